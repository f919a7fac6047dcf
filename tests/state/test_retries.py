"""Retries that the task asked for: how many, for which exceptions, when and where."""

from __future__ import annotations

from shunter.state import Options
from tests.state.script import Script, roots


def test_task_with_retries__runs_again_and_nobody_hears_of_it() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, options=Options(retries=1))
    s.fail("x")
    assert s.sent() == [("x", "a"), ("x", "a")]
    assert s.reports() == []


def test_task_whose_retries_are_used_up__errs() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, options=Options(retries=2))
    for _ in range(3):
        s.fail("x")
    assert s.reports() == [("erred", "x")]


def test_exception_that_is_not_listed__is_not_retried() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, options=Options(retries=5, retry_on=["builtins.OSError"]))
    s.fail("x", types=["builtins.ValueError", "builtins.Exception"])
    assert s.status("x") == "erred"


def test_subclass_of_a_listed_exception__is_retried() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, options=Options(retries=5, retry_on=["builtins.OSError"]))
    s.fail("x", types=["builtins.FileNotFoundError", "builtins.OSError", "builtins.Exception"])
    assert s.status("x") == "processing"


def test_delayed_retry__waits_for_its_time() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, options=Options(retries=1, retry_delay=5.0))
    s.sent()
    s.fail("x")
    assert s.sent() == []
    assert s.state.next_deadline == s.now + 5.0
    assert "tried again" in s.view.why("x")
    s.wait(4.9)
    assert s.sent() == []
    s.wait(0.2)
    assert s.sent() == [("x", "a")]


def test_delayed_retry_that_is_cancelled__is_forgotten() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, options=Options(retries=1, retry_delay=5.0))
    s.sent()
    s.fail("x")
    s.cancel("x")
    s.wait(10.0)
    assert s.sent() == []
    assert s.count("tasks") == 0
    assert s.state.next_deadline == float("inf")


def test_delayed_retry_whose_input_is_lost__waits_for_both() -> None:
    options = {"y": Options(retries=1, retry_delay=5.0)}
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]}, options=options)
    s.finish("x")
    s.fail("y")
    s.sent()
    s.loses("a", "x")
    assert s.sent() == [("x", "a")]
    s.wait(6.0)
    assert s.sent() == []
    s.finish("x")
    assert s.sent() == [("y", "a")]


def test_delayed_retry_that_comes_in_again_with_a_graph__still_waits() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, options=Options(retries=1, retry_delay=5.0))
    s.fail("x")
    s.sent()
    s.submit({"x": [], **roots("y", 10)})
    assert "x" not in [key for key, _ in s.sent()]
    assert s.status("x") == "waiting"
    s.wait(5.0)
    assert s.status("x") in ("queued", "processing")


def test_retry_elsewhere__runs_on_another_worker() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []}, options=Options(retries=1, retry_elsewhere=True))
    first = s.where("x")
    s.fail("x")
    assert s.where("x") != first


def test_retry_elsewhere_with_inputs__leaves_the_holder_too() -> None:
    options = {"y": Options(retries=1, retry_elsewhere=True)}
    s = Script(workers={"a": 1, "b": 1}, graph={"x": [], "y": ["x"]}, options=options)
    s.finish("x", nbytes=1_000_000)
    assert s.where("y") == s.where("x")
    s.fail("y")
    assert s.where("y") != s.where("x")


def test_retry_elsewhere_without_another_worker__runs_where_it_failed() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, options=Options(retries=1, retry_elsewhere=True))
    s.fail("x")
    assert s.sent() == [("x", "a"), ("x", "a")]


def test_retry_elsewhere_that_comes_in_again_with_a_graph__still_avoids_the_worker() -> None:
    options = Options(retries=1, retry_elsewhere=True, retry_delay=1.0)
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []}, options=options)
    first = s.where("x")
    s.fail("x")
    s.submit({"x": [], **roots("y", 10)})
    s.wait(1.0)
    ran = s.play()
    other = "b" if first == "a" else "a"
    assert "x" in ran[other]


def test_death_of_a_worker__does_not_use_up_a_retry() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []}, options=Options(retries=1))
    s.kill(s.where("x"))
    s.fail("x")
    assert s.status("x") == "processing"


# What is run again keeps its inputs: nothing is freed, nothing computed twice.


def test_task_with_an_input_fails_and_is_retried__its_input_stays() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]}, want=["y"], options=Options(retries=1))
    s.finish("x")
    s.sent()
    s.fail("y")
    assert s.freed() == []
    assert s.sent() == [("y", "a")]


def test_task_reschedules_itself__scattered_input_that_nobody_wants_is_not_lost() -> None:
    s = Script(workers={"a": 1, "b": 1})
    s.scatter("d", to=["a"])
    s.submit({"y": ["d"]}, want=["y"])
    s.release("d")
    s.reschedule("y")
    assert s.freed() == []
    assert s.status("y") == "processing"


def test_worker_dies_with_a_task__the_other_copy_of_its_input_stays() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    s.finish("x")
    s.holds("a", "x")
    s.holds("b", "x")
    s.submit({"y": ["x"]})
    s.release("x")
    s.sent()
    s.link_breaks(s.where("y"))
    assert s.freed() == []
    assert [key for key, _ in s.sent()] == ["y"]


def test_task_is_given_back__its_input_stays() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"], "z": ["x"]}, want=["y", "z"])
    s.finish("x", seconds=1.0)
    s.sent()
    s.worker("b")
    s.wait(0.06)
    if s.asked:
        s.answer("a")
    assert ("x", "a") not in s.freed()
    assert s.status("x") == "memory"
