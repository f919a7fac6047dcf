"""Tasks that fail: who is told, who is to blame, what goes on."""

from __future__ import annotations

from shunter.state import Options, ReportErred
from tests.state.script import Script, chain


def test_failing_task__is_told_to_the_client() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.fail("x", text="division by zero")
    assert s.reports() == [("erred", "x")]
    failure = s.failure("x")
    assert (failure.kind, failure.key, failure.text) == ("exception", "x", "division by zero")


def test_failing_task__takes_its_dependents_along_and_is_named_as_the_cause() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"], "z": ["y"]})
    s.fail("x")
    assert s.statuses("x", "y", "z") == ["erred"] * 3
    assert {s.failure(key).key for key in "xyz"} == {"x"}


def test_failing_task__is_told_in_one_message() -> None:
    s = Script(workers={"a": 1}, graph=chain(5))
    s.fail("x-0")
    assert [message.keys for message in s.take(ReportErred)] == [[f"x-{i}" for i in range(5)]]


def test_failing_task__leaves_others_alone() -> None:
    s = Script(workers={"a": 2}, graph={"x": [], "y": ["x"], "v": [], "w": ["v"]})
    s.fail("x")
    s.finish("v")
    s.finish("w")
    assert s.statuses("v", "w") == ["memory", "memory"]


def test_dependent_of_two_failures__is_told_once() -> None:
    s = Script(workers={"a": 2}, graph={"x": [], "y": [], "z": ["x", "y"]}, want=["z"])
    s.fail("x")
    assert s.reports() == [("erred", "z")]
    assert s.freed() == [("y", "a")]


def test_dependent_submitted_after_the_failure__errs_at_once() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.fail("x")
    s.submit({"y": ["x"]})
    assert s.failure("y").key == "x"
    assert s.status("y") == "erred"


def test_input_that_only_the_failed_task_needed__is_freed() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]}, want=["y"])
    s.finish("x")
    s.fail("y")
    assert s.freed() == [("x", "a")]


def test_failed_task_that_nobody_wants__is_forgotten_with_its_dependents() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]})
    s.fail("x")
    s.release("x")
    assert s.status("x") == "erred"  # y still points at it
    s.release("y")
    assert s.statuses("x", "y") == ["unknown", "unknown"]
    assert s.count("tasks") == 0


def test_failure_kinds__are_passed_on_as_they_are() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.fail("x", kind="serialization", text="cannot pickle a lock")
    assert s.failure("x").kind == "serialization"


def test_failure_of_an_older_run__changes_nothing() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    old = s.latest["x"]
    s.reschedule("x")
    new, s.latest["x"] = s.latest["x"], old
    s.fail("x")
    s.latest["x"] = new
    assert s.status("x") == "processing"
    assert s.reports() == []


def test_failure_of_a_task_that_was_released__changes_nothing() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.release("x")
    s.fail("x")
    assert s.count("tasks") == 0
    assert s.count("dropped_events") == 1


def test_retry_by_the_client__runs_the_task_that_really_failed() -> None:
    s = Script(workers={"a": 1}, graph=chain(3))
    s.fail("x-0")
    s.reports()
    s.sent()
    s.retry("x-2")
    assert sorted(s.reports()) == [("retried", "x-0"), ("retried", "x-1"), ("retried", "x-2")]
    assert s.sent() == [("x-0", "a")]
    for key in ("x-0", "x-1", "x-2"):
        s.finish(key)
    assert s.reports() == [("finished", "x-0"), ("finished", "x-1"), ("finished", "x-2")]


def test_retry_by_the_client__dependents_that_were_not_named_stay_erred() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"], "z": ["x"]})
    s.fail("x")
    s.retry("y")
    assert s.statuses("x", "y", "z") == ["processing", "waiting", "erred"]


def test_retry_by_the_client__gives_all_retries_back() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, options=Options(retries=1))
    s.fail("x")
    s.fail("x")
    assert s.status("x") == "erred"
    s.retry("x")
    s.fail("x")
    assert s.status("x") == "processing"


def test_retry_of_keys_that_did_not_fail__changes_nothing() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]})
    s.finish("x")
    s.reports()
    s.retry("x", "y")
    assert s.reports() == []
    assert s.statuses("x", "y") == ["memory", "processing"]


def test_retry_twice_in_a_row__is_one_retry() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.fail("x")
    s.reports()
    s.retry("x")
    s.retry("x")
    assert s.reports() == [("retried", "x")]


def test_retry__is_told_to_other_clients_that_want_the_key() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, clients=("c", "d"))
    s.desire("x", by="d")
    s.fail("x")
    s.retry("x", by="c")
    assert s.reports("d") == [("erred", "x"), ("retried", "x")]


def test_retry_of_a_key_that_only_others_have__its_client_wants_it_from_then_on() -> None:
    """Its own graph was refused; somebody else has submitted the same key since."""
    s = Script(clients=("c", "d"), workers={"a": 1})
    s.submit({"x": ["nobody"]}, by="c")
    assert s.reports("c") == [("erred", "x")]
    s.submit({"x": []}, by="d")
    s.retry("x", by="c")
    s.finish("x")
    assert s.reports("c") == [("finished", "x")]
    s.release("x", by="d")
    assert s.status("x") == "memory"
