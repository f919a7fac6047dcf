"""Tasks that run and end well: what wakes, what is told, what is let go."""

from __future__ import annotations

from shunter.state import ComputeTasks, KeysAdded, Options, ReportFinished
from tests.state.script import Script, roots


def test_finished_task__wakes_its_dependent() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]})
    assert s.sent() == [("x", "a")]
    s.finish("x")
    assert s.sent() == [("y", "a")]


def test_task_with_two_inputs__waits_for_both() -> None:
    s = Script(workers={"a": 2}, graph={"x": [], "y": [], "z": ["x", "y"]})
    s.sent()
    s.finish("x")
    assert s.sent() == []
    assert s.status("z") == "waiting"
    s.finish("y")
    assert s.sent() == [("z", "a")]


def test_input_named_twice__is_one_input() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x", "x"]})
    s.finish("x")
    (message,) = s.take(ComputeTasks)[1:]
    assert [each[0] for each in message.inputs[0] or []] == ["x"]


def test_finished_task__is_told_to_every_client_that_wants_it() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, clients=("c", "d", "e"))
    s.desire("x", by="d")
    s.finish("x")
    assert [s.reports(name) for name in "cde"] == [[("finished", "x")], [("finished", "x")], []]


def test_result_that_nobody_wants_any_more__is_freed_once_used() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]}, want=["y"])
    s.finish("x")
    assert s.status("x") == "memory"
    s.finish("y")
    assert s.freed() == [("x", "a")]
    assert s.statuses("x", "y") == ["released", "memory"]


def test_result_for_two_dependents__stays_until_the_last_has_used_it() -> None:
    s = Script(workers={"a": 2}, graph={"x": [], "y": ["x"], "z": ["x"]}, want=["y", "z"])
    s.finish("x")
    s.finish("y")
    assert s.freed() == []
    s.finish("z")
    assert s.freed() == [("x", "a")]


def test_only_wanted_keys_are_reported() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]}, want=["y"])
    s.finish("x")
    s.finish("y")
    assert s.reports() == [("finished", "y")]


def test_many_results_in_one_event__are_one_message_to_the_client() -> None:
    s = Script(workers={"a": 4}, graph=roots("x", 4))
    s.finish("x-0", "x-1", "x-2", "x-3", nbytes=5, data="pickled")
    (report,) = s.take(ReportFinished)
    assert report.keys == ["x-0", "x-1", "x-2", "x-3"]
    assert report.nbytes == [5] * 4
    assert report.data == ["pickled"] * 4


def test_tasks_sent_in_one_step__are_one_message() -> None:
    s = Script(workers={"a": 3}, graph=roots("x", 3))
    (message,) = s.take(ComputeTasks)
    assert message.keys == ["x-0", "x-1", "x-2"]
    assert len(set(message.run_ids)) == 3


def test_task_that_is_sent__carries_what_the_worker_needs() -> None:
    options = Options(priority=3.0)
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]}, options={"y": options})
    s.take(ComputeTasks)
    s.finish("x", nbytes=50)
    (message,) = s.take(ComputeTasks)
    assert message.specs == ["spec of y, graph 1"]
    assert message.inputs == [[("x", 50, [s.numbers["a"]], s.lives["x"])]]
    assert message.options == [options]
    assert message.priorities[0][0] == -3.0
    assert message.run_ids == [s.run_id("y")]


def test_task_without_inputs__has_no_list_of_them() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    (message,) = s.take(ComputeTasks)
    assert message.inputs == [None]


def test_input_with_many_holders__at_most_four_are_named() -> None:
    workers = dict.fromkeys("abefgh", 1)
    s = Script(workers=workers, graph={"x": []})
    s.finish("x")
    for name in workers:
        s.holds(name, "x")
    s.take(ComputeTasks)
    s.submit({"y": ["x"]})
    (message,) = s.take(ComputeTasks)
    assert len((message.inputs[0] or [])[0][2]) == 4


def test_inline_max__is_set_only_for_keys_that_a_client_wants() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]}, want=["y"], inline_max=777)
    s.finish("x")
    assert [message.inline_max for message in s.take(ComputeTasks)] == [[0], [777]]


def test_result_of_zero_bytes__is_a_result() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]})
    s.finish("x", nbytes=0, seconds=0.0)
    s.finish("y", nbytes=0, seconds=0.0)
    assert s.statuses("x", "y") == ["memory", "memory"]
    assert s.row("a")["nbytes"] == 0


def test_task_that_asks_to_run_again__runs_again() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    first = s.run_id("x")
    s.sent()
    s.reschedule("x")
    assert s.sent() == [("x", "a")]
    assert s.run_id("x") != first
    assert s.reports() == []


def test_long_running_task__gives_its_thread_to_the_next() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 3))
    assert s.sent() == [("x-0", "a"), ("x-1", "a")]
    s.long_running("x-0")
    assert s.sent() == [("x-2", "a")]
    assert (s.row("a")["processing"], s.row("a")["long_running"]) == (2, 1)


def test_long_running_task__still_ends_as_any_other() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]})
    s.long_running("x")
    s.long_running("x")
    s.finish("x")
    assert s.statuses("x", "y") == ["memory", "processing"]
    assert s.row("a")["long_running"] == 0


def test_result_of_an_older_run__is_not_the_end_of_the_new_one() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    old = s.run_id("x")
    s.reschedule("x")
    s.finish("x", run_id=old)
    assert s.status("x") == "processing"
    assert s.reports() == []
    assert s.count("dropped_events") == 1


def test_stale_result_of_a_key_in_memory__is_no_copy_to_count_on() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    old = s.run_id("x")
    first = s.where("x")
    s.pause(first)
    s.reschedule("x")
    assert s.where("x") != first
    s.finish("x")
    s.freed()
    s.finished(s.numbers[first], [("x", old)])
    assert s.holders("x") != [first] and len(s.holders("x")) == 1
    assert s.freed() == [("x", first)]
    assert s.reports() == [("finished", "x")]


def test_stale_result_of_a_key_that_runs_elsewhere__is_freed() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    old = s.run_id("x")
    first = s.where("x")
    s.pause(first)
    s.reschedule("x")
    s.finished(s.numbers[first], [("x", old)])
    assert s.freed() == [("x", first)]
    s.finish("x")
    assert s.status("x") == "memory"


def test_result_of_an_unknown_key__is_freed() -> None:
    s = Script(workers={"a": 1})
    s.finished(s.numbers["a"], [("nobody", 5)])
    assert s.freed() == [("nobody", "a")]


def test_result_of_a_run_on_another_worker__changes_nothing() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    other = "b" if s.where("x") == "a" else "a"
    s.finished(s.numbers[other], [("x", s.run_id("x"))])
    assert s.status("x") == "processing"
    assert s.freed() == [("x", other)]


def test_result_told_twice__is_counted_once() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    number, run_id = s.latest["x"]
    s.finished(number, [("x", run_id)])
    s.finished(number, [("x", run_id)])
    assert s.reports() == [("finished", "x")]
    assert s.holders("x") == ["a"]
    assert s.row("a")["nbytes"] == 8


def test_input_that_a_worker_fetched__is_a_copy() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    s.finish("x", nbytes=10)
    other = "b" if s.holders("x") == ["a"] else "a"
    s.holds(other, "x", nbytes=10)
    assert len(s.holders("x")) == 2
    assert s.row(other)["nbytes"] == 10


def test_copies_are_freed_everywhere__when_nobody_needs_the_value() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    s.finish("x")
    s.holds("a", "x")
    s.holds("b", "x")
    s.release("x")
    assert sorted(s.freed()) == [("x", "a"), ("x", "b")]
    assert s.status("x") == "unknown"


def test_copy_of_a_key_that_is_no_longer_known__is_freed() -> None:
    s = Script(workers={"a": 1})
    s.holds("a", "nobody")
    assert s.freed() == [("nobody", "a")]
    assert s.row("a")["held"] == 0


def test_copy_told_while_the_same_worker_computes_the_key__the_run_goes_on() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.holds("a", "x")
    assert s.freed() == []
    s.finish("x")
    assert s.status("x") == "memory"


def test_copy_of_a_former_life_of_a_key__is_no_copy_of_the_new_one() -> None:
    """The worker fetched x for y; both are given up, and x comes to life again, before its report arrives."""
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []}, options=Options(workers=["a"]))
    s.finish("x")
    on_b = Options(workers=["b"])
    s.submit({"y": ["x"]}, options=on_b)
    old = s.lives["x"]
    s.release("x", "y")
    s.submit({"x": []}, options=Options(workers=["a"]))
    s.submit({"z": ["x"]}, options=on_b)
    s.finish("x")
    assert s.lives["x"] != old
    s.freed()
    s.step(KeysAdded(s.numbers["b"], ["x"], [8], [old]))
    assert s.holders("x") == ["a"]
    assert s.freed() == []  # z was sent there: the worker knows by itself that what it has is void
    s.step(KeysAdded(s.numbers["b"], ["x"], [8], [s.lives["x"]]))
    assert s.holders("x") == ["a", "b"]
