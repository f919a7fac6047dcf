"""What users have reported of lost and recomputed data (group B), told to the state: each test names the report."""

from __future__ import annotations

import pytest

from shunter.state import ComputeTasks, Options, RemoveReplicas
from tests.state.script import Script, keys_of, roots


@pytest.mark.parametrize("how", ["said goodbye", "link broke", "retired first"])
def test_b1_workers_leave_one_after_the_other__results_are_computed_again_on_the_last(how: str) -> None:
    s = Script(workers={"a": 1, "b": 1, "e": 1}, graph=roots("x", 12))
    s.play()
    for name in ("a", "b"):
        if how == "retired first":
            s.set_status(name, "retiring")
            s.submit({f"after-{name}": []})  # it gets nothing new
            assert f"after-{name}" not in s.play().get(name, [])
        if how == "link broke":
            s.link_breaks(name)
        else:
            s.leaves(name)
    s.play()
    assert {holder for key in keys_of("x", 12) for holder in s.holders(key)} == {"e"}
    assert all(status == "memory" for status in s.statuses(*keys_of("x", 12)))


def test_b1_scattered_data_on_workers_that_leave__lasts_as_long_as_one_copy_and_then_its_loss_is_told() -> (
    None
):
    s = Script(workers={"a": 1, "b": 1, "e": 1})
    s.scatter("d", to=["a", "b"])
    s.submit({"y": ["d"]}, options=Options(workers=["nowhere"]))
    s.leaves("a")
    assert (s.status("d"), s.holders("d")) == ("memory", ["b"])
    s.leaves("b")
    assert s.statuses("d", "y") == ["erred", "erred"]
    assert s.failure("d").kind == s.failure("y").kind == "lost-input"


@pytest.mark.parametrize("copies", [["a"], ["a", "b"]], ids=["one copy", "two copies"])
def test_b2_scattered_data_and_a_murderous_task__the_innocent_learn_why(copies: list[str]) -> None:
    s = Script(workers={"a": 1, "b": 1}, clients=("c", "d"), allowed_failures=1)
    s.scatter("d", to=copies, by="d")
    s.submit({"y": ["d"]}, by="d", options=Options(workers=["nowhere"]))
    s.submit({"murder": []}, by="c")
    for _ in range(2):
        s.kill(s.where("murder"), started=["murder"])
    failure = s.failure("y", client="d")
    assert (failure.kind, failure.key) == ("lost-input", "d")
    assert "scattered" in failure.text and "cannot be computed again" in failure.text
    assert s.failure("murder").kind == "killed-worker"
    assert ("cancelled", "y") not in s.reports("d")


def test_b2_scattered_data_is_lost__the_failure_names_the_workers_that_held_it() -> None:
    s = Script(workers={"a": 1, "bob": 1})
    s.scatter("d", to=["a", "bob"])
    s.link_breaks("a")
    s.link_breaks("bob")
    assert "'a', 'bob'" in s.failure("d").text


def test_b4_holder_list_is_out_of_date__asking_again_gives_the_true_one() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []}, options=Options(workers=["a"]))
    s.finish("x")
    s.holds("b", "x")
    s.loses("a", "x")
    assert s.holders("x") == ["b"]


def test_b4_worker_was_sent_a_list_that_is_out_of_date__its_question_is_answered_with_the_true_one() -> None:
    s = Script(workers={"a": 1, "b": 1, "e": 1}, graph={"x": []}, options=Options(workers=["a"]))
    s.finish("x")
    s.submit({"y": ["x"]}, options=Options(workers=["e"]))
    s.holds("b", "x")
    s.loses("a", "x")
    s.complain("e", "x", about=["a"])
    assert s.holders_told() == [("e", "x", ["b"])]
    s.finish("y")
    assert s.statuses("x", "y") == ["memory", "memory"]


def test_b5_both_holders_are_disbelieved_in_turn__the_value_is_computed_again() -> None:
    """Nothing takes the last copy away and leaves it at that. (Copies are not reduced yet.)"""
    s = Script(workers={"a": 1, "b": 1, "e": 1}, graph={"x": []}, options=Options(workers=["a"]))
    s.finish("x")
    s.holds("b", "x")
    s.submit({"y": ["x"]}, options=Options(workers=["e"]))
    for holder in ("a", "b"):
        for _ in range(3):
            s.complain("e", "x", about=[holder])
    assert s.status("x") == "processing"
    s.play()
    assert s.statuses("x", "y") == ["memory", "memory"]


@pytest.mark.parametrize("retries", [0, 2])
def test_b7_input_cannot_be_unpickled_at_a_peer__dependents_fail_and_nothing_goes_round(retries: int) -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []}, options=Options(workers=["a"]))
    s.finish("x")
    s.sent()
    ys = keys_of("y", 8)
    s.submit({key: ["x"] for key in ys}, options=Options(workers=["b"], retries=retries))
    for _ in range(100):
        running = list(s.runs[s.numbers["b"]].values())
        if not running:
            break
        s.fail(running[0], kind="serialization", text=f"input 'x' of task {running[0]!r}: no good", types=[])
    assert s.statuses(*ys) == ["erred"] * 8
    assert len(s.sent()) == 8 * (retries + 1)
    assert {s.failure(key).kind for key in ys} == {"serialization"}
    assert (s.status("x"), s.holders("x")) == ("memory", ["a"])


def test_b8_input_that_hundreds_of_tasks_need_everywhere__few_holders_are_named_and_none_is_dropped() -> None:
    s = Script(workers={f"w{i}": 1 for i in range(80)}, graph={"x": []}, validate=False)
    s.finish("x", seconds=0.1)
    s.submit({f"y-{i}": ["x"] for i in range(500)})
    ran = s.play(seconds=10.0)
    assert sum(map(len, ran.values())) == 501 - 1
    assert len(ran) > 40
    for message in s.take(ComputeTasks):
        assert all(len(holders) <= 4 for inputs in message.inputs for _, _, holders, _ in inputs or [])
    assert s.take(RemoveReplicas) == []
    assert s.status("x") == "memory"


@pytest.mark.parametrize("elsewhere", [True, False], ids=["computed elsewhere", "computed by the newcomer"])
def test_b10_worker_back_with_another_number__has_no_data_and_nothing_hangs(elsewhere: bool) -> None:
    s = Script(workers={"a": 1, "b": 1} if elsewhere else {"a": 1}, graph={"x": []})
    s.finish("x")
    holder = s.holders("x")[0]
    s.link_breaks(holder)
    s.worker(holder)
    s.holds(holder, "x")  # it still has the value, and says so while it is computed elsewhere
    s.play()
    assert s.status("x") == "memory"
    assert s.take(RemoveReplicas) == []


def test_b10_link_breaks_again_and_again__each_time_the_value_is_computed_again() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": [], "y": ["x"]}, want=["x", "y"])
    s.finish("x")
    for _ in range(10):
        holder = s.holders("x")[0]
        s.link_breaks(holder)
        s.worker(holder)
        s.finish("x")
        s.complain(s.where("y"), "x", about=[holder])
    s.finish("y")
    assert s.statuses("x", "y") == ["memory", "memory"]


@pytest.mark.parametrize("end", ["memory", "erred"])
def test_b11_worker_dies_with_a_task_that_has_submitted_others__they_stay_until_it_has_run_again(
    end: str,
) -> None:
    s = Script(
        workers={"a": 1, "b": 2}, graph={"p": []}, clients=("c", "in p"), options=Options(workers=["a"])
    )
    children = keys_of("z", 20)
    s.submit(roots("z", 20), by="in p", parent="p", options=Options(workers=["b"]))
    s.finish("z-0", "z-1")
    s.client_leaves("in p")  # it was in the process that was killed
    s.kill("a", started=["p"])
    s.worker("a")
    assert s.status("p") == "processing"
    s.play(but=["a"])
    assert s.statuses(*children) == ["memory"] * 20
    if end == "memory":
        s.finish("p")
    else:
        s.fail("p")
    assert s.statuses(*children) == ["unknown"] * 20


def bereaved() -> Script:
    """The worker of p has died, and with it the client that has submitted 4 tasks in p; two of those are done."""
    options = Options(workers=["a"])
    s = Script(workers={"a": 1, "b": 4}, graph={"p": []}, clients=("c", "in p"), options=options)
    s.submit(roots("z", 4), by="in p", parent="p", options=Options(workers=["b"]))
    s.finish("z-0", "z-1")
    s.client_leaves("in p")
    s.kill("a", started=["p"])
    s.worker("a")
    s.sent()
    return s


def test_b11_second_run_submits_the_same_keys__what_is_done_is_not_done_again() -> None:
    s = bereaved()
    s.client("in p again")
    s.submit(roots("z", 4), by="in p again", parent="p", options=Options(workers=["b"]))
    assert s.sent() == []
    assert s.reports("in p again") == [("finished", "z-0"), ("finished", "z-1")]
    s.finish("z-2", "z-3")
    s.finish("p")
    assert s.statuses(*keys_of("z", 4)) == ["memory"] * 4
    s.client_leaves("in p again")
    assert s.statuses(*keys_of("z", 4)) == ["unknown"] * 4


@pytest.mark.parametrize("how", ["released", "cancelled", "client leaves", "killed again and again"])
def test_b11_task_is_given_up_before_it_has_run_again__what_it_submitted_goes_too(how: str) -> None:
    s = bereaved()
    if how == "released":
        s.release("p")
    elif how == "cancelled":
        s.cancel("p")
    elif how == "client leaves":
        s.client_leaves("c")
    else:
        for _ in range(3):
            s.kill("a", started=["p"])
            s.worker("a")
        assert s.failure("p").kind == "killed-worker"
    assert s.statuses(*keys_of("z", 4)) == ["unknown"] * 4


def test_b11_client_inside_of_a_task_closes_after_that_is_done__its_tasks_go_at_once() -> None:
    s = Script(
        workers={"a": 1, "b": 4}, graph={"p": []}, clients=("c", "in p"), options=Options(workers=["a"])
    )
    s.submit(roots("z", 4), by="in p", parent="p", options=Options(workers=["b"]))
    s.finish("p")
    s.client_leaves("in p")
    assert s.statuses(*keys_of("z", 4)) == ["unknown"] * 4
