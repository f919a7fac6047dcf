"""Workers that die: which tasks are suspect, when that is settled, and which fail in the end."""

from __future__ import annotations

from tests.state.script import Script, roots


def kill_times(s: Script, key: str, times: int) -> None:
    """The worker that runs the task dies, and another one comes, so often."""
    for _ in range(times):
        s.kill(s.where(key), started=[key])
        s.worker(f"w{len(s.names)}")


def test_task_that_was_running_on_three_workers_that_died__runs_once_more() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    kill_times(s, "x", 3)
    assert s.status("x") == "processing"
    s.finish("x")
    assert s.reports() == [("finished", "x")]


def test_task_that_was_running_on_four_workers_that_died__fails() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]})
    kill_times(s, "x", 4)
    assert s.statuses("x", "y") == ["erred", "erred"]
    failure = s.failure("y")
    assert (failure.kind, failure.key) == ("killed-worker", "x")
    assert failure.fields["deaths"] == 4
    assert "signal 9" in failure.text and "'x'" in failure.text


def test_allowed_failures__is_a_setting() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, allowed_failures=0)
    kill_times(s, "x", 1)
    assert s.failure("x").kind == "killed-worker"


def test_task_that_had_not_started__is_not_to_blame() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 2), allowed_failures=0)
    assert len(s.sent()) == 2
    s.kill("a", started=["x-0"])
    s.worker("b")
    assert s.statuses("x-0", "x-1") == ["erred", "processing"]


def test_parent_tells_before_the_link_breaks__the_started_are_blamed() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 2), allowed_failures=0)
    s.parent_tells("a", started=["x-1"])
    assert s.statuses("x-0", "x-1") == ["processing", "processing"]
    s.link_breaks("a")
    s.worker("b")
    assert s.statuses("x-0", "x-1") == ["processing", "erred"]


def test_parent_tells_after_the_link_broke__the_verdict_waits_for_it() -> None:
    s = Script(workers={"a": 1, "b": 2}, graph={"x": []}, allowed_failures=0)
    first = s.where("x")
    s.link_breaks(first)
    assert s.status("x") == "processing"  # it runs again at once
    s.wait(1.0)
    s.parent_tells(first, started=["x"])
    assert s.status("x") == "erred"
    assert s.freed() != []  # the second run is given up


def test_parent_never_tells__the_first_runs_are_presumed_after_two_seconds() -> None:
    s = Script(workers={"a": 2}, graph=roots("x", 3), allowed_failures=0)
    s.link_breaks("a")
    s.worker("b", 3)
    s.wait(1.9)
    assert s.statuses("x-0", "x-1", "x-2") == ["processing"] * 3
    s.wait(0.2)
    assert s.statuses("x-0", "x-1", "x-2") == ["erred", "erred", "processing"]
    assert "link broke" in s.failure("x-0").text


def test_parent_tells_too_late__nothing_more_is_blamed() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, allowed_failures=1)
    s.link_breaks("a")
    s.worker("b")
    s.wait(3.0)
    s.parent_tells("a", started=["x"])
    assert s.status("x") == "processing"
    assert s.count("dropped_events") == 1


def test_nothing_had_started__nobody_is_blamed() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, allowed_failures=0)
    s.kill("a", started=[])
    s.worker("b")
    s.wait(10.0)
    assert s.status("x") == "processing"


def test_expected_departure__never_blames() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, allowed_failures=0)
    s.leaves("a")
    s.parent_tells("a", started=["x"])
    s.worker("b")
    s.wait(10.0)
    assert s.status("x") == "processing"


def test_task_that_finished_elsewhere_meanwhile__is_not_blamed() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []}, allowed_failures=0)
    s.link_breaks(s.where("x"))
    s.finish("x")
    s.wait(5.0)
    assert s.status("x") == "memory"
    assert s.reports() == [("finished", "x")]


def test_key_that_was_submitted_anew_meanwhile__is_not_blamed() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []}, allowed_failures=0)
    s.link_breaks(s.where("x"))
    s.release("x")
    s.submit({"x": []})
    s.wait(5.0)
    assert s.status("x") == "processing"


def test_finished_run__clears_the_suspicion() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    kill_times(s, "x", 3)
    s.finish("x")
    s.loses(s.holders("x")[0], "x")
    kill_times(s, "x", 3)
    assert s.status("x") == "processing"


def test_retry_by_the_client__clears_the_suspicion() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    kill_times(s, "x", 4)
    s.retry("x")
    kill_times(s, "x", 3)
    assert s.status("x") == "processing"


def test_replaced_worker_of_whose_death_its_parent_told__its_task_is_blamed() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, allowed_failures=0)
    s.parent_tells("a", started=["x"])
    s.worker("a")  # started again before the broken link was seen
    assert s.status("x") == "erred"


def test_replaced_worker_of_which_nobody_told__its_task_is_suspect_after_two_seconds() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, allowed_failures=0)
    s.worker("a")
    assert s.status("x") == "processing"
    s.wait(2.1)
    assert s.status("x") == "erred"


def test_poisonous_task__others_go_on() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"poison": [], **roots("x", 6)})
    for _ in range(10):
        if s.status("poison") != "processing":
            break
        s.kill(s.where("poison"), started=["poison"])
        s.worker(f"w{len(s.names)}")
        s.wait(0.1)
    assert s.failure("poison").kind == "killed-worker"
    s.play()
    assert s.count("memory") == 6
