"""Very many workers that cannot meet a demand: who can is found without asking them, and so is that nobody can."""

from __future__ import annotations

from shunter.state import Options
from tests.state.script import Script, roots
from tests.state.work import lines_of, pure_only


@pure_only
def test_more_than_most_workers_have__who_has_it_is_found_without_asking_the_others() -> None:
    def work(n: int) -> int:
        s = Script(validate=False)
        for i in range(n):
            s.worker(f"w{i}", resources={"GPU": 1.0})
        s.worker("big", resources={"GPU": 4.0})
        found = lines_of(lambda: s.submit({"x": []}, options=Options(resources={"GPU": 2.0})))
        assert s.where("x") == "big"
        return found

    assert work(200) < work(20) + 50


@pure_only
def test_more_than_any_worker_has__is_found_without_asking_them() -> None:
    def work(n: int) -> int:
        s = Script(validate=False)
        for i in range(n):
            s.worker(f"w{i}", resources={"GPU": 1.0})
        found = lines_of(lambda: s.submit(roots("x", 10), options=Options(resources={"GPU": 2.0})))
        assert s.count("no-worker") == 10
        return found

    assert work(200) < work(20) + 200


@pure_only
def test_many_tasks_give_up_waiting_for_a_worker__the_workers_are_looked_at_once() -> None:
    def work(n: int) -> int:
        s = Script(validate=False, no_workers_timeout=5.0)
        for i in range(n):
            s.worker(f"w{i}", resources={"GPU": 1.0})
        s.submit(roots("x", 50), options=Options(resources={"GPU": 2.0}))
        found = lines_of(lambda: s.wait(6.0))
        assert s.count("erred") == 50
        return found

    assert work(200) < 1.5 * work(20)


def test_suppliers_of_different_amounts_pause_and_resume__the_right_ones_are_used() -> None:
    s = Script()
    for i, amount in enumerate([1.0, 4.0, 2.0, 8.0, 2.0]):
        s.worker(f"w{i}", 1, resources={"GPU": amount})
    s.pause("w3")
    s.submit({"x": []}, options=Options(resources={"GPU": 3.0}))
    assert s.where("x") == "w1"
    s.pause("w1")
    s.submit({"y": []}, options=Options(resources={"GPU": 3.0}))
    assert s.status("y") == "no-worker"
    s.resume("w3")
    assert s.where("y") == "w3"
    s.leaves("w3")
    assert s.status("y") == "no-worker"
    s.resume("w1")
    assert s.status("y") in ("queued", "processing")
