"""The story of a task, and the changes that plugins may watch."""

from __future__ import annotations

import pytest

from tests.state.script import Script, roots

ALL = frozenset({"released", "waiting", "no-worker", "queued", "processing", "memory", "erred", "forgotten"})


def arrows(s: Script, key: str) -> list[str]:
    return [f"{change.start} -> {change.finish}" for change in s.changes if change.key == key]


def test_nothing_watched__no_changes() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.finish("x")
    assert s.changes == []


def test_everything_watched__the_whole_life_of_a_task() -> None:
    s = Script(workers={"a": 1})
    s.state.watch(ALL)
    s.submit({"x": []})
    s.finish("x")
    s.release("x")
    assert arrows(s, "x") == [
        "released -> waiting",
        "waiting -> queued",
        "queued -> processing",
        "processing -> memory",
        "memory -> released",
        "released -> forgotten",
    ]


def test_no_worker_watched__is_an_arrow_there_and_back() -> None:
    s = Script()
    s.state.watch(ALL)
    s.submit({"x": []})
    s.worker("a")
    assert arrows(s, "x")[1:3] == ["waiting -> no-worker", "no-worker -> queued"]


def test_watched_states__only_arrows_that_end_there() -> None:
    s = Script(workers={"a": 1})
    s.state.watch(frozenset({"memory", "erred"}))
    s.submit({"x": [], "y": ["x"]})
    s.finish("x")
    s.fail("y")
    assert [(change.key, change.finish) for change in s.changes] == [("x", "memory"), ("y", "erred")]


def test_change__is_complete_in_itself() -> None:
    s = Script(workers={"a": 1})
    s.state.watch(frozenset({"memory"}))
    s.submit({"f-0": []})
    run_id = s.run_id("f-0")
    s.now += 1.5
    s.finish("f-0", nbytes=77, seconds=0.25)
    (change,) = s.changes
    assert (change.key, change.kind, change.start, change.finish) == ("f-0", "f", "processing", "memory")
    assert (change.worker, change.client, change.run_id) == (s.numbers["a"], s.numbers["c"], run_id)
    assert (change.nbytes, change.startstop, change.thread) == (77, (s.now, 0.25), 7)
    assert (change.error_kind, change.cause, change.at) == ("", "TasksFinished", s.now)


def test_change_of_a_failure__names_its_kind_and_cause() -> None:
    s = Script(workers={"a": 1})
    s.state.watch(frozenset({"erred"}))
    s.submit({"x": [], "y": ["x"]})
    s.fail("x")
    assert [(change.key, change.error_kind, change.cause) for change in s.changes] == [
        ("x", "exception", "TaskFailed"),
        ("y", "exception", "TaskFailed"),
    ]


def test_watching_stopped__no_more_changes() -> None:
    s = Script(workers={"a": 1})
    s.state.watch(ALL)
    s.state.watch(frozenset())
    s.submit({"x": []})
    assert s.changes == []


def test_drain__hands_over_once() -> None:
    s = Script(workers={"a": 1})
    s.state.watch(ALL)
    s.submit({"x": []})
    outcome = s.state.drain()
    assert (outcome.instructions, outcome.changes) == ([], [])


# ---------------------------------------------------------------------------------------------- story


def test_story__is_told_oldest_first_with_causes_and_runs() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.finish("x")
    story = s.view.story("x")
    assert [line.split(" ", 1)[1].split(" (")[0] for line in story] == [
        "released -> waiting",
        "waiting -> queued",
        "queued -> processing",
        "processing -> memory",
    ]
    assert "(TasksFinished, run 1 on worker 2)" in story[-1]
    assert story[-1].startswith("100.000000")


def test_story_of_a_forgotten_task__is_still_told() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.release("x")
    assert "released -> forgotten (ClientReleasesKeys)" in s.view.story("x")[-1]


def test_story_of_an_unknown_key__is_empty() -> None:
    assert Script().view.story("nobody") == []


@pytest.mark.parametrize("length", [10, 100])
def test_story__reaches_back_as_far_as_the_log_is_long(length: int) -> None:
    s = Script(workers={"a": 1}, log_length=length)
    for i in range(200):
        s.submit({f"x-{i}": []})
        s.release(f"x-{i}")
    per_task = len(s.view.story("x-199"))
    assert per_task == 5
    told = [i for i in range(200) if s.view.story(f"x-{i}")]
    assert length // per_task <= len(told) <= 2 * length // per_task + 1
    assert told[-1] == 199


def test_log__does_not_grow_with_work() -> None:
    s = Script(workers={"a": 4}, log_length=50)
    for _ in range(5):
        s.submit(roots("x", 50))
        s.play()
        s.release(*roots("x", 50))
    assert sum(len(s.view.story(f"x-{i}")) for i in range(50)) <= 100
