"""Workers that come, leave, pause and are replaced; data that goes with them."""

from __future__ import annotations

import pytest

from shunter.state import Options, WorkerAdded, WorkerGone
from tests.state.script import Script, chain, roots


def test_worker_leaves_while_task_runs__task_runs_elsewhere() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    first = s.where("x")
    s.link_breaks(first)
    assert s.where("x") != first
    assert s.reports() == []


def test_last_worker_leaves_while_task_runs__task_waits_for_the_next() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.link_breaks("a")
    assert s.status("x") == "no-worker"
    s.worker("b")
    assert s.where("x") == "b"


def test_worker_leaves__its_unsent_work_goes_to_others() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph=roots("x", 20))
    s.leaves("a")
    assert sorted(s.play()["b"]) == sorted(roots("x", 20))


def test_worker_leaves_with_a_result_that_is_wanted__it_is_computed_again() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    s.finish("x")
    s.leaves(s.holders("x")[0])
    assert s.reports() == [("finished", "x"), ("lost", "x")]
    s.finish("x")
    assert s.reports() == [("finished", "x")]


def test_worker_leaves_with_an_input__dependents_wait_again_and_all_is_computed() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph=chain(4), want=["x-3"])
    for key in ("x-0", "x-1", "x-2"):
        s.finish(key)
    s.link_breaks(s.where("x-3"))
    assert s.statuses("x-0", "x-1", "x-2", "x-3") == ["processing", "waiting", "waiting", "waiting"]
    s.play()
    assert s.reports() == [("finished", "x-3")]


def test_worker_leaves_with_a_result_that_nobody_needs__nothing_is_computed() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": [], "y": ["x"]}, want=["y"])
    s.finish("x")
    s.finish("y")
    holder = s.holders("y")[0]
    s.sent()
    s.leaves("b" if holder == "a" else "a")
    assert s.sent() == []


def test_worker_leaves_with_one_of_two_copies__nothing_is_computed() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    s.finish("x")
    s.holds("a", "x")
    s.holds("b", "x")
    s.sent()
    s.leaves("a")
    assert s.sent() == []
    assert s.holders("x") == ["b"]
    assert s.reports() == [("finished", "x")]


def test_worker_leaves_with_the_input_of_a_running_task__the_run_is_given_up() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    s.finish("x")
    holder = s.holders("x")[0]
    s.pause(holder)
    s.submit({"y": ["x"]})
    other = s.where("y")
    assert other != holder
    s.link_breaks(holder)
    assert ("y", other) in s.freed()
    assert s.statuses("x", "y") == ["processing", "waiting"]


def test_worker_leaves__every_other_one_is_told() -> None:
    s = Script(workers={"a": 1, "b": 1, "e": 1})
    s.leaves("a")
    told = s.take(WorkerGone)
    assert [(s.names[each.peer], s.names[each.gone]) for each in told] == [("b", "a"), ("e", "a")]


def test_events_of_a_worker_that_left__are_dropped_and_counted() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    s.pause("b")
    run_id = s.run_id("x")
    s.resume("b")
    s.link_breaks("a")
    s.finished(s.numbers["a"], [("x", run_id)])
    s.holds("a", "x")
    s.link_breaks("a")
    assert s.count("dropped_events") == 3
    assert s.status("x") == "processing"


def test_value_that_a_worker_lost__is_computed_again() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.finish("x")
    s.loses("a", "x")
    assert s.reports() == [("finished", "x"), ("lost", "x")]
    assert s.status("x") == "processing"


def test_value_that_a_worker_never_had__is_not_lost() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    s.finish("x")
    s.loses("b" if s.holders("x") == ["a"] else "a", "x", "nobody")
    assert s.status("x") == "memory"


def test_new_worker__gets_work_at_once() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 10))
    s.sent()
    s.worker("b", 2)
    assert len([key for key, worker in s.sent() if worker == "b"]) >= 2


def test_worker_at_the_same_address__replaces_the_old_one() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    old = s.numbers["a"]
    s.worker("a")
    assert [row["number"] for row in s.view.workers()] == [s.numbers["a"]]
    assert s.numbers["a"] != old
    assert s.status("x") == "processing"
    assert s.closed() == ["a"]


def test_worker_of_the_same_name_elsewhere__replaces_the_old_one() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.worker("a", address="tcp://other:1")
    assert s.count("workers") == 1
    assert s.closed() == ["a"]


def test_worker_with_the_address_of_one_and_the_name_of_another__replaces_both() -> None:
    s = Script(workers={"a": 1, "b": 1})
    s.worker("b", address="tcp://a:1")
    assert [row["number"] for row in s.view.workers()] == [s.numbers["b"]]


def test_old_worker_leaves_after_it_was_replaced__the_new_one_stays() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    old = s.numbers["a"]
    s.worker("a")
    s.names[old] = "old a"
    s.numbers["old a"] = old
    s.link_breaks("old a")
    assert s.count("workers") == 1
    assert s.status("x") == "processing"


def test_result_of_a_replaced_worker__is_dropped() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    old, run_id = s.latest["x"]
    s.worker("a")
    s.finished(old, [("x", run_id)])
    assert s.status("x") == "processing"
    assert s.holders("x") == []


def test_number_used_twice__is_refused() -> None:
    s = Script(workers={"a": 1})
    s.step(WorkerAdded(s.numbers["a"], "tcp://else:1", "other", "h", 1, 0, {}))
    assert s.closed() == ["a"]
    assert s.count("workers") == 1


def test_worker_without_threads__is_refused() -> None:
    s = Script(workers={"a": 0})
    assert s.closed() == ["a"]
    assert s.count("workers") == 0


# ---------------------------------------------------------------------------------------------- pausing


def test_paused_worker__gets_no_new_work() -> None:
    s = Script(workers={"a": 2, "b": 1})
    s.pause("a")
    s.submit(roots("x", 6))
    assert {worker for _, worker in s.sent()} == {"b"}
    assert set(s.play()) == {"b"}


def test_worker_paused__its_unsent_work_goes_to_others() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph=roots("x", 20))
    on_a = [key for key, worker in s.sent() if worker == "a"]
    s.pause("a")
    assert s.row("a")["queued"] == 0
    ran = s.play(but=["a"])
    assert len(ran["b"]) >= 20 - len(on_a)


def test_worker_paused__what_it_was_sent_goes_on_there() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.pause("a")
    assert s.status("x") == "processing"
    s.finish("x")
    assert s.status("x") == "memory"


def test_all_workers_paused__tasks_wait_without_a_worker() -> None:
    s = Script(workers={"a": 1})
    s.pause("a")
    s.submit({"x": []})
    assert s.status("x") == "no-worker"
    assert "paused" in s.view.why("x")
    s.resume("a")
    assert s.sent() == [("x", "a")]


def test_worker_resumed__is_filled_at_once() -> None:
    s = Script(workers={"a": 1, "b": 2})
    s.pause("b")
    s.submit(roots("x", 10))
    s.sent()
    s.resume("b")
    assert len([key for key, worker in s.sent() if worker == "b"]) >= 2


def test_worker_paused_twice__is_paused_once() -> None:
    s = Script(workers={"a": 1})
    s.pause("a")
    s.pause("a")
    s.resume("a")
    assert s.count("threads") == 1


def test_paused_holder__still_counts_as_a_holder() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    s.finish("x")
    holder = s.holders("x")[0]
    s.pause(holder)
    s.submit({"y": ["x"]})
    assert s.where("y") != holder
    assert s.holders("x") == [holder]


def test_retiring_worker__gets_no_new_work() -> None:
    s = Script(workers={"a": 2, "b": 1})
    s.set_status("a", "retiring")
    s.submit(roots("x", 6))
    assert set(s.play()) == {"b"}


def test_worker_that_says_it_is_closed__must_say_so_by_leaving() -> None:
    s = Script(workers={"a": 1})
    s.set_status("a", "closed")
    assert s.count("dropped_events") == 1
    assert s.row("a")["status"] == "running"


# ---------------------------------------------------------------------------------------------- no worker


def test_no_worker_yet__tasks_wait_for_ever() -> None:
    s = Script(graph={"x": []}, no_workers_timeout=60.0)
    s.wait(10_000.0)
    assert s.status("x") == "no-worker"
    assert "no worker is connected" in s.view.why("x")


def test_workers_gone_for_too_long__tasks_fail_with_the_reason() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]}, no_workers_timeout=60.0)
    s.leaves("a")
    s.wait(59.0)
    assert s.status("x") == "no-worker"
    s.wait(2.0)
    assert s.reports() == [("erred", "x"), ("erred", "y")]
    failure = s.failure("y")
    assert (failure.kind, failure.key) == ("no-worker", "x")
    assert "60 s" in failure.text and "shunter worker" in failure.text


def test_worker_back_in_time__tasks_run() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, no_workers_timeout=60.0)
    s.leaves("a")
    s.wait(59.0)
    s.worker("b")
    s.wait(100.0)
    assert s.status("x") == "processing"


def test_first_worker_is_unsuitable__the_time_counts_from_then() -> None:
    s = Script(graph={"x": []}, options=Options(workers=["gpu"]), no_workers_timeout=60.0)
    s.wait(500.0)
    s.worker("a")
    s.wait(59.0)
    assert s.status("x") == "no-worker"
    s.wait(2.0)
    assert s.failure("x").kind == "no-worker"


def test_time_limit_of_zero__waits_for_ever() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, no_workers_timeout=0.0)
    s.leaves("a")
    s.wait(10_000.0)
    assert s.status("x") == "no-worker"


def test_tasks_without_a_worker__each_has_its_own_time() -> None:
    s = Script(workers={"a": 1}, no_workers_timeout=60.0)
    options = Options(workers=["gpu"])
    s.submit({"x": []}, options=options)
    s.wait(40.0)
    s.submit({"y": []}, options=options)
    s.wait(30.0)
    assert s.statuses("x", "y") == ["erred", "no-worker"]
    s.wait(40.0)
    assert s.status("y") == "erred"


# ---------------------------------------------------------------------------------------------- complaints


def test_complaint__is_answered_with_the_other_holders() -> None:
    s = Script(workers={"a": 1, "b": 1, "e": 1}, graph={"x": []})
    s.finish("x", on=s.where("x"))
    for name in "ab":
        s.holds(name, "x")
    s.complain("e", "x", about=["a"])
    ((worker, key, holders),) = s.holders_told()
    assert (worker, key) == ("e", "x")
    assert "b" in holders


def test_complaints_that_do_not_stop__are_believed() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    s.finish("x")
    holder = s.holders("x")[0]
    other = "b" if holder == "a" else "a"
    s.sent()
    for _ in range(3):
        s.complain(other, "x", about=[holder])
    assert s.reports() == [("finished", "x"), ("lost", "x")]
    assert [key for key, _ in s.sent()] == ["x"]
    assert "holder-disbelieved" in s.logged()


def test_complaint_about_a_key_that_is_not_known__frees_it() -> None:
    s = Script(workers={"a": 1})
    s.complain("a", "nobody", about=[])
    assert s.freed() == [("nobody", "a")]


@pytest.mark.parametrize("status", ["waiting", "processing"])
def test_complaint_about_a_key_that_is_being_computed__says_that_nobody_has_it(status: str) -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": [], "y": ["x"]})
    key = "y" if status == "waiting" else "x"
    s.complain("b", key, about=["a"])
    assert s.holders_told() == [("b", key, [])]
