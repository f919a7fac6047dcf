"""Time without a word: silent workers are taken for dead, an idle scheduler ends."""

from __future__ import annotations

from shunter.state import Heartbeat, KillWorker, Shutdown
from tests.state.script import Script


def beat(s: Script, worker: str) -> None:
    s.step(Heartbeat(s.numbers[worker], 1000, 0, 1.0))


def ended(s: Script) -> list[str]:
    return [each.reason for each in s.take(Shutdown)]


def test_silent_worker__is_removed_and_its_tasks_run_elsewhere() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, worker_ttl=10.0)
    s.worker("b")
    for _ in range(12):
        s.wait(1.0)
        beat(s, "b")
    assert s.closed() == ["a"]
    assert s.where("x") == "b"
    assert "worker-removed" in s.logged()


def test_worker_that_only_beats__stays_and_its_task_is_sent_once() -> None:
    """A lease is renewed by life signs, not by the clock since delivery: a task may take days."""
    s = Script(workers={"a": 1}, graph={"x": []}, worker_ttl=10.0)
    for _ in range(3_600):
        s.wait(5.0)
        beat(s, "a")
    assert s.closed() == []
    assert s.sent() == [("x", "a")]


def test_silent_worker_with_a_parent__is_replaced() -> None:
    s = Script(worker_ttl=10.0)
    s.worker("a", has_parent=True)
    s.wait(20.0)
    (kill,) = s.take(KillWorker)
    assert s.names[kill.peer] == "a"
    assert "worker_ttl" in kill.reason


def test_scheduler_stood_still_for_long__what_workers_said_meanwhile_is_heard_first() -> None:
    s = Script(workers={"a": 1, "b": 1}, worker_ttl=10.0)
    s.tick(to=s.now + 3_600.0)  # a laptop that slept
    beat(s, "a")
    beat(s, "b")
    s.wait(5.0)
    assert s.closed() == []


def test_ttl_of_zero__no_worker_is_ever_removed() -> None:
    s = Script(workers={"a": 1}, worker_ttl=0.0)
    assert s.state.next_deadline == float("inf")


def test_worker_that_left__is_not_missed() -> None:
    s = Script(workers={"a": 1}, worker_ttl=10.0)
    s.link_breaks("a")
    s.wait(30.0)
    assert s.closed() == []
    assert s.state.next_deadline == float("inf")


def test_nothing_to_do_for_so_long__the_scheduler_is_to_end() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, idle_timeout=60.0)
    s.wait(600.0)
    assert ended(s) == []  # x is running
    s.finish("x")
    s.wait(59.0)
    assert ended(s) == []
    s.wait(2.0)
    (reason,) = ended(s)
    assert "60 s" in reason


def test_work_that_waits_for_a_worker__is_something_to_do() -> None:
    s = Script(graph={"x": []}, idle_timeout=60.0, no_workers_timeout=0.0)
    s.wait(600.0)
    assert ended(s) == []


def test_work_comes_in_time__the_clock_starts_again() -> None:
    s = Script(workers={"a": 1}, idle_timeout=60.0)
    s.wait(50.0)
    s.submit({"x": []})
    s.finish("x")
    s.wait(50.0)
    assert ended(s) == []
    s.wait(11.0)
    assert len(ended(s)) == 1


def test_clock_stands_still_and_goes_back__nothing_ends_early() -> None:
    s = Script(workers={"a": 1}, idle_timeout=60.0)
    s.now -= 1_000.0
    beat(s, "a")
    s.now += 1_050.0
    s.tick()
    assert ended(s) == []


def test_no_limit__the_scheduler_never_ends_by_itself() -> None:
    s = Script(workers={"a": 1})
    s.wait(1e6)
    assert ended(s) == []
