"""Work that was sent is moved only by asking for it back; only the answer proves that it had not started."""

from __future__ import annotations

from typing import Any

import pytest

from shunter.state import Options, TakeBackAnswered, ThreadsHeld
from tests.state.script import Script, roots


def story(**settings: Any) -> Script:
    """Two tasks of unknown length are sent to "a"; then "b" comes with an idle thread."""
    s = Script(workers={"a": 1}, graph=roots("x", 2), **settings)
    s.worker("b")
    return s


def test_idle_thread_and_nothing_unsent__sent_work_is_asked_back() -> None:
    s = story()
    assert s.asked_back() == [("x-1", "a")]
    assert s.status("x-1") == "processing"


def test_task_given_back__goes_to_the_idle_thread_it_was_asked_for() -> None:
    s = story()
    s.sent()
    assert s.answer("a") == ["x-1"]
    assert s.sent() == [("x-1", "b")]


def test_task_given_back__goes_to_the_promised_thread_even_if_its_inputs_are_elsewhere() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.finish("x", seconds=1.0)
    s.submit({"y-0": ["x"], "y-1": ["x"]})
    s.worker("b")
    s.sent()
    assert s.asked_back() == [("y-1", "a")]
    s.answer("a")
    assert s.sent() == [("y-1", "b")]


def test_task_that_had_started__stays() -> None:
    s = story()
    s.sent()
    s.answer("a", given=[])
    assert s.sent() == []
    assert s.where("x-1") == "a"
    s.finish("x-1")
    assert s.status("x-1") == "memory"


def test_tasks_shorter_than_the_question__are_not_asked_back() -> None:
    s = Script(workers={"a": 1}, graph={"f-first": []})
    s.finish("f-first", seconds=0.0001)
    s.submit(roots("f", 5))
    s.worker("b")
    assert s.asked_back() == []


def test_long_tasks__the_newest_half_is_asked_back() -> None:
    s = Script(workers={"a": 1}, graph={"f-first": []}, window_s=100.0)
    s.finish("f-first", seconds=10.0)
    s.submit(roots("f", 9))
    s.worker("b")
    assert s.asked_back() == [(f"f-{i}", "a") for i in (8, 7, 6, 5)]


def test_worker_that_was_asked__is_not_asked_again_before_it_answered() -> None:
    s = story()
    s.asked_back()
    s.worker("e")
    s.wait(1.0)
    assert s.asked_back() == []


def test_answer_of_a_task_that_has_finished__changes_nothing() -> None:
    s = story()
    run_id = s.run_id("x-1")
    s.finish("x-1", on="a")
    s.step(TakeBackAnswered(s.numbers["a"], [run_id], [run_id]))
    assert s.status("x-1") == "memory"


def test_answer_twice__moves_once() -> None:
    s = story()
    run_id = s.run_id("x-1")
    s.sent()
    s.answer("a")
    s.step(TakeBackAnswered(s.numbers["a"], [run_id], [run_id]))
    assert s.sent() == [("x-1", "b")]


def test_answer_that_was_not_asked_for__changes_nothing() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.step(TakeBackAnswered(s.numbers["a"], [s.run_id("x")], [s.run_id("x")]))
    assert s.status("x") == "processing"
    assert s.sent() == [("x", "a")]


def test_idle_thread_gone_before_the_answer__the_task_runs_somewhere() -> None:
    s = story()
    s.leaves("b")
    s.sent()
    s.answer("a")
    assert s.sent() == [("x-1", "a")]


def test_idle_thread_paused_before_the_answer__the_task_runs_somewhere() -> None:
    s = story()
    s.pause("b")
    s.sent()
    s.answer("a")
    assert s.sent() == [("x-1", "a")]


def test_asked_worker_gone_before_its_answer__the_task_runs_elsewhere() -> None:
    s = story()
    run_id = s.run_id("x-1")
    s.sent()
    s.link_breaks("a")
    assert {key for key, _ in s.sent()} == {"x-0", "x-1"}
    s.step(TakeBackAnswered(s.numbers["a"], [run_id], [run_id]))
    assert s.count("dropped_events") == 1
    assert s.count("processing") == 2


def test_task_that_may_not_be_moved__is_not_asked_back() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 2), options=Options(stealable=False))
    s.worker("b")
    assert s.asked_back() == []


def test_task_that_may_not_run_there__is_not_asked_back() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 2), options=Options(workers=["a"]))
    s.worker("b")
    assert s.asked_back() == []


def test_unsent_work__is_taken_before_sent_work() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 10))
    s.sent()
    s.worker("b")
    assert s.asked_back() == []
    assert "b" in {worker for _, worker in s.sent()}


def test_sent_work_of_a_paused_worker__is_asked_back() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 2))
    s.pause("a")
    assert s.asked_back() == [("x-0", "a"), ("x-1", "a")]  # it knows which has not started
    s.worker("b")
    s.answer("a")
    assert s.where("x-0") == "a"
    assert s.where("x-1") == "b"


def test_worker_is_paused_and_nobody_else_is_there__what_it_gives_back_returns_to_it() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 2))
    s.pause("a")
    s.answer("a")
    assert s.status("x-1") == "no-worker"
    s.resume("a")
    assert s.where("x-1") == "a"
    assert s.statuses("x-0", "x-1") == ["processing", "processing"]


def test_worker_is_paused_while_it_is_asked_back__each_run_is_asked_for_once() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 2))
    s.worker("b")
    first = s.asked_back()
    s.pause("a")
    assert sorted(first + s.asked_back()) == [("x-0", "a"), ("x-1", "a")]


def test_thread_that_runs_a_cancelled_task__is_not_an_idle_thread() -> None:
    """Report G2: it cannot be stopped, so nothing is sent to wait behind it."""
    s = Script(workers={"a": 1}, graph={"x": []})
    s.cancel("x")
    s.step(ThreadsHeld(s.numbers["a"], 1))
    assert s.row("a")["given_up"] == 1
    s.worker("b")
    s.submit(roots("y", 2))
    assert s.where("y-0") == "b"
    assert s.asked_back() == []
    s.step(ThreadsHeld(s.numbers["a"], 0))
    s.wait(1.0)
    if s.where("y-1") != "a":
        s.answer("b")
    assert s.where("y-1") == "a"


def test_tasks_sent_behind_a_cancelled_one__are_asked_back_for_an_idle_thread() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.cancel("x")
    s.submit({"y": []})  # before the worker says that its thread is held
    assert s.where("y") == "a"
    s.step(ThreadsHeld(s.numbers["a"], 1))
    s.worker("b")
    assert s.asked_back() == [("y", "a")]


@pytest.mark.parametrize("threads", [10**15, -1])
def test_more_threads_are_said_to_be_held_than_there_are__it_is_cut(threads: int) -> None:
    s = Script(workers={"a": 2})
    s.step(ThreadsHeld(s.numbers["a"], threads))
    assert s.row("a")["given_up"] == (2 if threads > 0 else 0)
