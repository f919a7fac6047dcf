"""Keys that clients give up: what stops, what stays for others, who hears of it."""

from __future__ import annotations

from tests.state.script import Script, chain, roots


def test_release_of_a_running_task__frees_it_on_its_worker() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.release("x")
    assert s.freed() == [("x", "a")]
    assert s.count("tasks") == 0


def test_release_of_a_queued_task__tells_no_worker() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 5))
    s.sent()
    s.release("x-4")
    assert s.freed() == []
    assert s.status("x-4") == "unknown"


def test_release_of_a_task_without_a_worker__forgets_it() -> None:
    s = Script(graph={"x": []})
    s.release("x")
    assert s.count("tasks") == 0


def test_release_of_the_end_of_a_chain__gives_up_the_whole() -> None:
    s = Script(workers={"a": 1}, graph=chain(5), want=["x-4"])
    s.finish("x-0")
    s.release("x-4")
    assert s.count("tasks") == 0
    assert s.freed() == [("x-1", "a"), ("x-0", "a")]


def test_release_of_an_input__waits_for_its_dependent() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]})
    s.release("x")
    assert s.status("x") == "processing"
    s.finish("x")
    s.finish("y")
    assert s.reports() == [("finished", "y")]
    assert s.freed() == [("x", "a")]


def test_release_of_unknown_keys__is_nothing() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.release("nobody")
    s.release("x")
    s.release("x")
    assert s.count("tasks") == 0


def test_release_by_a_client_that_does_not_want_it__changes_nothing() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, clients=("c", "d"))
    s.release("x", by="d")
    assert s.status("x") == "processing"


def test_thread_that_a_released_task_leaves__is_used_at_once() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 3))
    s.sent()
    s.release("x-0")
    assert s.sent() == [("x-2", "a")]


def test_cancel__is_told_and_takes_dependents_along() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"], "z": ["y"]})
    s.cancel("x")
    assert sorted(s.reports()) == [("cancelled", "x"), ("cancelled", "y"), ("cancelled", "z")]
    assert s.count("tasks") == 0
    assert s.freed() == [("x", "a")]


def test_cancel_of_a_dependent__leaves_its_input() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]})
    s.cancel("y")
    assert s.reports() == [("cancelled", "y")]
    assert s.status("x") == "processing"


def test_cancel_of_a_key_that_another_client_wants__is_cancelled_only_for_the_one() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]}, clients=("c", "d"))
    s.desire("x", by="d")
    s.cancel("x", by="c")
    assert s.reports("c") == [("cancelled", "x")]
    assert s.reports("d") == []
    assert s.statuses("x", "y") == ["processing", "waiting"]


def test_cancel_of_a_key_whose_dependent_another_client_wants__both_stay() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, clients=("c", "d"))
    s.submit({"y": ["x"]}, by="d")
    s.cancel("x", by="c")
    assert s.statuses("x", "y") == ["processing", "waiting"]
    s.finish("x")
    s.finish("y")
    assert s.reports("d") == [("finished", "y")]


def test_cancel_by_force__takes_it_from_everybody() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, clients=("c", "d"))
    s.submit({"y": ["x"]}, by="d")
    s.cancel("x", by="c", force=True)
    assert s.reports("c") == [("cancelled", "x")]
    assert s.reports("d") == [("cancelled", "y")]
    assert s.count("tasks") == 0


def test_cancel_of_an_unknown_key__is_answered() -> None:
    s = Script()
    s.cancel("nobody")
    assert s.reports() == [("cancelled", "nobody")]


def test_cancel_of_a_finished_key__frees_it() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.finish("x")
    s.cancel("x")
    assert s.freed() == [("x", "a")]
    assert s.count("tasks") == 0


def test_cancel_of_a_failed_key__forgets_it() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]})
    s.fail("x")
    s.cancel("x")
    assert s.count("tasks") == 0


def test_cancel_twice__is_told_each_time_and_done_once() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.cancel("x", "x")
    s.cancel("x")
    assert s.freed() == [("x", "a")]
    assert s.reports() == [("cancelled", "x"), ("cancelled", "x")]


def test_cancelled_task_that_finishes_all_the_same__is_freed() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.cancel("x")
    s.freed()
    s.finish("x")
    assert s.freed() == [("x", "a")]
    assert s.count("tasks") == 0


def test_cancelled_and_submitted_again__is_a_new_run() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    old = s.run_id("x")
    s.cancel("x")
    s.submit({"x": []})
    assert s.run_id("x") != old
    s.finish("x", run_id=old)
    assert s.status("x") == "processing"
    s.finish("x")
    assert s.reports() == [("cancelled", "x"), ("finished", "x")]


def test_cancel_while_taking_back__the_answer_changes_nothing() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 2))
    s.worker("b")
    assert s.asked_back() == [("x-1", "a")]
    s.cancel("x-1")
    s.answer("a")
    assert s.count("tasks") == 1


def test_release_of_a_whole_graph_in_any_order__leaves_nothing() -> None:
    graph = {**chain(30), **{f"y-{i}": [f"x-{i}", f"x-{29 - i}"] for i in range(30)}}
    for keys in (list(graph), list(graph)[::-1], list(graph)[::2] + list(graph)[1::2]):
        s = Script(workers={"a": 2}, graph=graph)
        s.play(rounds=7)
        for key in keys:
            s.release(key)
        assert s.count("tasks") == 0
        assert s.row("a")["held"] == 0
