"""Values that clients put on workers: they are in memory at once, and cannot be computed again."""

from __future__ import annotations

from shunter.state import DataScattered
from tests.state.script import Script


def test_scattered_value__is_in_memory_and_told() -> None:
    s = Script(workers={"a": 1, "b": 1})
    s.scatter("d", to=["a", "b"], nbytes=100)
    assert s.reports() == [("finished", "d")]
    assert s.holders("d") == ["a", "b"]
    assert s.row("a")["nbytes"] == 100


def test_scattered_value__is_an_input_like_any_other() -> None:
    s = Script(workers={"a": 1, "b": 1})
    s.scatter("d", to=["b"])
    s.submit({"y": ["d"]})
    assert s.sent() == [("y", "b")]


def test_scattered_value_released__is_freed() -> None:
    s = Script(workers={"a": 1})
    s.scatter("d", to=["a"])
    s.release("d")
    assert s.freed() == [("d", "a")]
    assert s.count("tasks") == 0


def test_scattered_value_whose_holders_are_gone__fails_with_those_that_need_it() -> None:
    s = Script(workers={"a": 1, "b": 1})
    s.scatter("d", to=["a"])
    s.submit({"y": ["d"]}, want=["y"])
    s.link_breaks("a")
    assert s.statuses("d", "y") == ["erred", "erred"]
    failure = s.failure("y")
    assert (failure.kind, failure.key) == ("lost-input", "d")
    assert "scattered" in failure.text


def test_scattered_value_with_a_second_holder__is_not_lost() -> None:
    s = Script(workers={"a": 1, "b": 1})
    s.scatter("d", to=["a", "b"])
    s.link_breaks("a")
    assert s.status("d") == "memory"


def test_scattered_value_whose_only_use_is_over__is_not_lost() -> None:
    s = Script(workers={"a": 1, "b": 1})
    s.scatter("d", to=["a"])
    s.submit({"y": ["d"]})
    s.finish("y")
    s.holds("b", "y")
    s.release("d")
    s.reports()
    s.link_breaks("a")
    assert s.reports() == []


def test_scattered_value_that_was_let_go__what_needs_it_again_fails() -> None:
    s = Script(workers={"a": 1, "b": 1})
    s.scatter("d", to=["a"])
    s.submit({"y": ["d"]}, want=["y"])
    s.finish("y")
    s.release("d")
    assert s.status("d") == "released"
    s.sent()
    s.loses("a", "y")
    assert s.sent() == []  # there is nothing to run
    failure = s.failure("y")
    assert (failure.kind, failure.key) == ("lost-input", "d")
    assert "released" in failure.text


def test_scattered_value_that_was_let_go__is_told_to_who_wants_it() -> None:
    s = Script(workers={"a": 1})
    s.scatter("d", to=["a"])
    s.submit({"y": ["d"]}, want=["y"])
    s.finish("y")
    s.release("d")
    s.sent()
    s.desire("d")
    assert s.sent() == []
    assert s.failure("d").kind == "lost-input"


def test_graph_with_an_input_that_was_scattered_and_let_go__fails() -> None:
    s = Script(workers={"a": 1})
    s.scatter("d", to=["a"])
    s.submit({"y": ["d"]}, want=["y"])
    s.finish("y")
    s.release("d")
    s.sent()
    s.submit({"z": ["d"]}, want=["z"])
    assert s.sent() == []
    assert s.failure("z").key == "d"


def test_graph_with_a_key_that_was_scattered_and_let_go__fails() -> None:
    s = Script(workers={"a": 1})
    s.scatter("d", to=["a"])
    s.submit({"y": ["d"]}, want=["y"])
    s.finish("y")
    s.release("d")
    s.sent()
    s.submit({"d": [], "z": ["d"]}, want=["d", "z"])
    assert s.sent() == []
    assert {s.failure("d").key, s.failure("z").key} == {"d"}


def test_retry_of_what_needs_lost_data__fails_again() -> None:
    s = Script(workers={"a": 1, "b": 1})
    s.scatter("d", to=["a"])
    s.submit({"y": ["d"]})
    s.link_breaks("a")
    s.retry("y")
    assert s.statuses("d", "y") == ["erred", "erred"]


def test_lost_data_scattered_again__is_in_memory_and_what_needs_it_can_be_retried() -> None:
    s = Script(workers={"a": 1, "b": 1})
    s.scatter("d", to=["a"])
    s.submit({"y": ["d"]})
    s.link_breaks("a")
    s.reports()
    s.scatter("d", to=["b"])
    assert s.reports() == [("retried", "d"), ("finished", "d")]
    assert s.holders("d") == ["b"]
    s.retry("y")
    assert s.where("y") == "b"
    s.finish("y")
    assert s.status("y") == "memory"


def test_let_go_data_scattered_again__is_in_memory() -> None:
    s = Script(workers={"a": 1})
    s.scatter("d", to=["a"])
    s.submit({"y": ["d"]}, want=["y"])
    s.finish("y")
    s.release("d")
    s.reports()
    s.scatter("d", to=["a"])
    assert s.reports() == [("finished", "d")]
    assert s.holders("d") == ["a"]


def test_value_scattered_twice__has_both_holders() -> None:
    s = Script(workers={"a": 1, "b": 1}, clients=("c", "d"))
    s.scatter("x", to=["a"], by="c")
    s.scatter("x", to=["b"], by="d")
    assert s.holders("x") == ["a", "b"]
    assert s.reports("d") == [("finished", "x")]
    s.release("x", by="c")
    assert s.status("x") == "memory"


def test_value_scattered_to_workers_that_are_gone__fails_at_once() -> None:
    s = Script(workers={"a": 1})
    s.step(DataScattered(s.numbers["c"], ["d"], [8], [[999]]))
    assert s.failure("d").kind == "lost-input"
    assert s.count("tasks") == 0


def test_key_of_a_task_that_waits__is_computed_and_the_scattered_value_freed() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]})
    s.scatter("y", to=["a"])
    assert s.freed() == [("y", "a")]
    assert s.status("y") == "waiting"


def test_key_of_a_task_that_runs_on_the_worker_it_is_scattered_to__the_run_goes_on() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.scatter("x", to=["a"])
    assert s.freed() == []
    s.finish("x")
    assert s.reports() == [("finished", "x")]
