"""The machine: tasks from the asking to their end."""

from __future__ import annotations

import pytest

from shunter.worker.events import (
    AcquireAsked,
    DataPut,
    Event,
    FetchDone,
    FunctionsArrived,
    RunRescheduled,
    RunSeceded,
    StatusSet,
    TakeBackAsked,
)
from shunter.worker.instructions import (
    AskFunction,
    ForgetFunctions,
    Keep,
    Rename,
    ReportFailed,
    ReportFinished,
    ReportLongRunning,
    ReportRescheduled,
    Revoke,
    TextFailure,
)
from shunter.worker.model import Limits
from tests.worker.script import (
    Script,
    answers,
    asked,
    compute,
    compute_many,
    dropped,
    executed,
    failed,
    fetches,
    finished,
    held,
    kept,
)


def test_task_without_inputs__executes_at_once_and_is_reported() -> None:
    s = Script()

    assert executed(s.compute("x", 7)) == ["x"]
    out = s.finish(7, nbytes=100)

    assert kept(out) == ["x"]
    assert finished(out) == [("x", 7)]
    assert s.end() == {}
    assert s.machine.counts()["held"] == 1


def test_batch_finishes__is_one_keep_and_one_report() -> None:
    s = Script(nthreads=3)
    s.step(compute_many(["a", "b", "c"]))

    out = s.finish(0, 2, 1)

    assert [type(each) for each in out] == [Keep, ReportFinished]
    assert finished(out) == [("a", 0), ("c", 2), ("b", 1)]


def test_more_tasks_than_threads__the_rest_waits_in_order_of_priority() -> None:
    s = Script(nthreads=2)
    s.step(compute_many(["a", "b", "c"], 0), compute("urgent", 9, priority=-1.0))

    assert executed(s.out) == ["urgent", "a"]
    assert executed(s.finish(9)) == ["b"]


def test_equal_priority__first_come_first_served() -> None:
    s = Script()
    for i in range(5):
        s.compute(f"t{i}", i)
    for i in range(5):
        s.finish(i)

    assert executed(s.out) == [f"t{i}" for i in range(5)]


def test_long_tasks__nothing_is_handed_out_ahead() -> None:
    s = Script(nthreads=1)
    s.compute("first", 0)
    s.finish(0, seconds=1.0)

    s.step(compute_many(["a", "b", "c"], 1))

    assert executed(s.out) == ["first", "a"]


def test_short_tasks__are_handed_out_ahead_up_to_the_limit_of_work() -> None:
    s = Script(nthreads=1, limits=Limits(ahead_s=0.002))
    s.compute("first", 0)
    s.finish(0, seconds=0.0005)
    s.out.clear()

    s.step(compute_many([f"t{i}" for i in range(10)], 1))

    assert executed(s.out) == ["t0", "t1", "t2", "t3"]


def test_tiny_tasks__are_handed_out_ahead_up_to_the_limit_of_number() -> None:
    s = Script(nthreads=1, limits=Limits(ahead_max=5))
    s.compute("first", 0)
    s.finish(0, seconds=1e-6)
    s.out.clear()

    s.step(compute_many([f"t{i}" for i in range(10)], 1))

    assert len(executed(s.out)) == 6


def test_one_slow_run_of_a_fast_function__handing_out_ahead_stops() -> None:
    s = Script()
    s.compute("a", 0)
    s.finish(0, seconds=1e-6)
    s.compute("b", 1)
    s.finish(1, seconds=2.0)

    s.step(compute_many(["c", "d"], 2))

    assert executed(s.out) == ["a", "b", "c"]


def test_key_is_held_already__finished_is_reported_without_running() -> None:
    s = Script()
    s.compute("x", 1)
    s.finish(1)

    out = s.compute("x", 2)

    assert executed(out) == []
    (report,) = [each for each in out if isinstance(each, ReportFinished)]
    assert (report.keys, report.run_ids, report.durations, report.types) == (["x"], [2], [0.0], [""])


def test_task_fails__failure_passes_through_and_nothing_is_held() -> None:
    s = Script()
    s.compute("x", 1)
    failure = object()

    (report,) = [each for each in s.fail(1, failure) if isinstance(each, ReportFailed)]

    assert (report.key, report.run_id) == ("x", 1)
    assert report.failure is failure
    assert s.end() == {}


def test_task_asks_to_be_rescheduled__is_told_and_forgotten() -> None:
    s = Script()
    s.compute("x", 1)

    out = s.step(RunRescheduled(1))

    assert [(each.key, each.run_id) for each in out if isinstance(each, ReportRescheduled)] == [("x", 1)]
    assert s.end() == {}


@pytest.mark.parametrize(
    "event", [RunRescheduled(99), RunSeceded(99, 1.0), FetchDone(99, [], [], [], [], {})]
)
def test_end_of_something_unknown__is_counted_and_ignored(event: Event) -> None:
    s = Script()

    assert s.step(event) == []
    assert s.end() == {"unknown": 1}


# ------------------------------------------------------------------------------------------- secede


def test_task_secedes__its_slot_is_free_and_its_result_still_counts() -> None:
    s = Script()
    s.compute("long", 1)
    s.compute("next", 2)

    out = s.step(RunSeceded(1, 3.0))

    assert [
        (each.key, each.run_id, each.duration) for each in out if isinstance(each, ReportLongRunning)
    ] == [("long", 1, 3.0)]
    assert executed(out) == ["next"]
    assert finished(s.finish(2)) == [("next", 2)]
    assert finished(s.finish(1)) == [("long", 1)]
    assert s.end() == {}


def test_task_secedes_twice__the_second_time_is_ignored() -> None:
    s = Script()
    s.compute("long", 1)
    s.step(RunSeceded(1, 3.0))

    assert s.step(RunSeceded(1, 4.0)) == []
    assert s.machine.counts()["occupied"] == 0


# ------------------------------------------------------------------------------------------- free


@pytest.mark.parametrize("inputs", [[], [("x", 1, [2])]], ids=["ready", "waiting"])
def test_task_that_has_not_started_is_freed__is_forgotten_without_a_word(
    inputs: list[tuple[str, int, list[int]]],
) -> None:
    s = Script()
    s.compute("runs", 0)
    s.compute("y", 1, inputs)
    for fetch in fetches(s.out):
        s.got(fetch)

    out = s.free("y")

    assert finished(out) == failed(out) == []
    assert s.end() == {"executing": 1, "occupied": 1}


def test_running_task_is_freed__keeps_its_slot_and_its_result_is_dropped() -> None:
    s = Script()
    s.compute("x", 1)
    s.compute("y", 2)
    out = s.free("x")
    assert [each.tickets for each in out if isinstance(each, Revoke)] == [[1]]
    assert executed(s.revoked(out)) == []

    out = s.finish(1)

    assert finished(out) == []
    assert kept(out) == []
    assert executed(out) == ["y"]


def test_freed_running_task_fails__without_a_word() -> None:
    s = Script()
    s.compute("x", 1)
    out = s.revoked(s.free("x"))
    assert held(s.out) == [1]
    assert out == []

    assert held(s.fail(1)) == [0]
    assert s.end() == {}


def test_freed_task_is_asked_for_again_while_it_runs__its_thread_is_not_held_any_more() -> None:
    s = Script()
    s.compute("x", 1)
    s.revoked(s.free("x"))
    assert held(s.compute("x", 2)) == [0]
    assert finished(s.finish(1)) == [("x", 2)]


def test_freed_task_had_not_started_after_all__its_slot_is_free_at_once() -> None:
    s = Script()
    s.compute("x", 1)
    s.compute("y", 2)

    assert executed(s.revoked(s.free("x"), 1)) == ["y"]


def test_held_value_is_freed__is_dropped() -> None:
    s = Script()
    s.compute("x", 1)
    s.finish(1)

    assert dropped(s.free("x")) == ["x"]
    assert s.machine.counts()["held"] == 0


def test_unknown_key_is_freed__nothing_happens() -> None:
    assert Script().free("ghost") == []


# ------------------------------------------------------------------------------------------- the same key again


def test_same_task_again_while_the_freed_one_runs__is_adopted_under_the_new_run_id() -> None:
    s = Script()
    s.compute("x", 1)
    s.revoked(s.free("x"))

    out = s.compute("x", 2)

    assert executed(out) == []
    assert [(each.ticket, each.run_id) for each in out if isinstance(each, Rename)] == [(1, 2)]
    assert finished(s.finish(1)) == [("x", 2)]
    assert s.end() == {}


def test_same_task_again_without_a_free__is_adopted() -> None:
    s = Script()
    s.compute("x", 1)
    s.compute("x", 2)

    assert failed(s.fail(1)) == [("x", 2)]


def test_adopted_run_had_seceded__this_is_told_again() -> None:
    s = Script()
    s.compute("x", 1)
    s.step(RunSeceded(1, 1.0))
    s.free("x")

    out = s.compute("x", 2)

    assert [(each.key, each.run_id) for each in out if isinstance(each, ReportLongRunning)] == [("x", 2)]


@pytest.mark.parametrize("change", [{"data": b"other"}, {"function": 1}], ids=["arguments", "function"])
def test_another_task_under_the_key_while_the_old_one_runs__both_run_and_the_new_one_counts(
    change: dict[str, object],
) -> None:
    s = Script(nthreads=2)
    s.compute("x", 1)
    s.revoked(s.free("x"))

    assert executed(s.compute("x", 2, **change)) == ["x"]  # type: ignore[arg-type]  # a row of the table above

    assert finished(s.finish(1)) == []
    assert finished(s.finish(2)) == [("x", 2)]
    assert s.end() == {}


def test_input_was_freed_since_the_run_started__it_is_not_adopted() -> None:
    s = Script(nthreads=2)
    s.step(DataPut(["i"], [8], ["put"]))
    s.compute("x", 1, [("i", 8, [1])])
    s.revoked(s.free("x", "i"))
    s.step(DataPut(["i"], [8], ["put"]))

    assert executed(s.compute("x", 2, [("i", 8, [1])])) == ["x"]


def test_waiting_task_is_asked_for_again__only_the_new_run_counts() -> None:
    s = Script()
    s.compute("runs", 0)
    s.compute("x", 1)
    s.compute("x", 2)

    assert executed(s.finish(0)) == ["x"]
    assert finished(s.finish(2)) == [("x", 2)]
    assert s.end() == {}


def test_key_arrives_while_its_run_waits__is_reported_as_finished_without_running() -> None:
    s = Script()
    s.compute("runs", 0)
    s.compute("x", 1)

    out = s.step(DataPut(["x"], [8], ["put"]))

    assert finished(out) == [("x", 1)]
    assert executed(s.finish(0)) == []


def test_run_ends_after_its_key_arrived__its_result_takes_the_place() -> None:
    s = Script()
    s.compute("x", 1)
    s.step(DataPut(["x"], [8], ["put"]))

    out = s.finish(1)

    assert kept(out) == ["x"]
    assert finished(out) == [("x", 1)]


# ------------------------------------------------------------------------------------------- take-back


def test_take_back_of_ready_and_waiting_runs__all_are_given() -> None:
    s = Script()
    s.compute("runs", 0)
    s.compute("ready", 1)
    s.compute("waiting", 2, [("i", 8, [5])])

    out = s.step(TakeBackAsked([2, 1, 77]))

    assert answers(out) == [([2, 1, 77], [2, 1])]
    assert s.end() == {"executing": 1, "occupied": 1, "fetches": 1}


def test_take_back_of_a_started_run__is_not_given_and_goes_on() -> None:
    s = Script()
    s.compute("x", 1)
    s.compute("y", 2)
    out = s.step(TakeBackAsked([2, 1]))
    assert answers(out) == []

    out = s.revoked(out)

    assert answers(out) == [([2, 1], [2])]
    assert finished(s.finish(1)) == [("x", 1)]


def test_take_back_of_a_run_that_no_thread_had_started__is_given() -> None:
    s = Script()
    s.compute("x", 1)

    out = s.revoked(s.step(TakeBackAsked([1])), 1)

    assert answers(out) == [([1], [1])]
    assert s.end() == {}


def test_take_back_crosses_the_finish__is_not_given() -> None:
    s = Script()
    s.compute("x", 1)
    out = s.step(TakeBackAsked([1]))
    assert finished(s.finish(1)) == [("x", 1)]

    assert answers(s.revoked(out)) == [([1], [])]


def test_take_back_of_a_long_running_task__is_not_given() -> None:
    s = Script()
    s.compute("x", 1)
    s.step(RunSeceded(1, 1.0))

    assert answers(s.step(TakeBackAsked([1]))) == [([1], [])]


def test_freed_while_a_take_back_waits__it_is_not_given_back_twice() -> None:
    s = Script()
    s.compute("x", 1)
    take_back = s.step(TakeBackAsked([1]))
    free = s.free("x")

    assert answers(s.revoked(take_back, 1)) == [([1], [])]
    assert s.revoked(free) == []
    assert s.end() == {}


# ------------------------------------------------------------------------------------------- pause


def test_paused__nothing_starts_and_what_no_thread_started_waits() -> None:
    s = Script()
    s.compute("x", 1)
    out = s.step(StatusSet("paused"))
    assert executed(s.revoked(out, 1)) == []
    assert executed(s.compute("y", 2)) == []

    assert executed(s.step(StatusSet("running"))) == ["x"]
    assert executed(s.finish(1)) == ["y"]


def test_paused__running_tasks_end_and_are_reported() -> None:
    s = Script()
    s.compute("x", 1)
    s.revoked(s.step(StatusSet("paused")))

    assert finished(s.finish(1)) == [("x", 1)]


def test_paused__nothing_is_fetched_until_it_runs_again() -> None:
    s = Script()
    s.step(StatusSet("paused"))
    assert fetches(s.compute("y", 1, [("x", 8, [2])])) == []

    assert len(fetches(s.step(StatusSet("running")))) == 1


# ------------------------------------------------------------------------------------------- resources


def test_resources_are_in_use__the_task_waits_and_others_go_past() -> None:
    s = Script(nthreads=3, resources={"GPU": 1})
    s.compute("a", 1, resources={"GPU": 1})
    s.compute("b", 2, resources={"GPU": 1})
    s.compute("c", 3)

    assert executed(s.out) == ["a", "c"]
    assert executed(s.finish(1)) == ["b"]
    s.finish(2, 3)
    assert s.end() == {}


def test_large_demand_waits__smaller_ones_behind_it_for_the_same_do_not_pass() -> None:
    s = Script(nthreads=4, resources={"GPU": 2, "disk": 1})
    s.compute("a", 1, resources={"GPU": 1})
    s.compute("large", 2, resources={"GPU": 2})
    s.compute("small", 3, resources={"GPU": 1})
    s.compute("other", 4, resources={"disk": 1})

    assert executed(s.out) == ["a", "other"]
    assert executed(s.finish(1)) == ["large"]
    assert executed(s.finish(2)) == ["small"]


def test_task_with_resources_is_more_urgent__starts_before_plain_ones() -> None:
    s = Script(resources={"GPU": 1})
    s.compute("runs", 0)
    s.step(compute("plain", 1), compute("gpu", 2, priority=-1.0, resources={"GPU": 1}))

    assert executed(s.finish(0)) == ["gpu"]


def test_fractions_of_resources__add_up_exactly_when_all_is_given_back() -> None:
    s = Script(nthreads=10, resources={"disk": 1.0})
    for i in range(10):
        s.compute(f"t{i}", i, resources={"disk": 0.1})
    assert len(executed(s.out)) == 10

    s.finish(*range(10))

    assert executed(s.compute("all", 11, resources={"disk": 1.0})) == ["all"]


def test_seceded_task__keeps_its_resources() -> None:
    s = Script(nthreads=2, resources={"GPU": 1})
    s.compute("a", 1, resources={"GPU": 1})
    s.step(RunSeceded(1, 1.0))

    assert executed(s.compute("b", 2, resources={"GPU": 1})) == []
    assert executed(s.finish(1)) == ["b"]


def test_demand_that_this_worker_can_never_meet__fails_and_says_so() -> None:
    s = Script(resources={"GPU": 1})

    (report,) = [each for each in s.compute("x", 1, resources={"GPU": 2}) if isinstance(each, ReportFailed)]

    assert isinstance(report.failure, TextFailure)
    assert report.failure.kind == "no-worker"
    assert "GPU" in report.failure.text


# ------------------------------------------------------------------------------------------- functions


def test_function_is_not_here__is_asked_for_once_and_its_tasks_wait() -> None:
    s = Script(nthreads=2)
    s.compute("x", 1, function=50)
    s.compute("y", 2, function=50)
    assert [each.function for each in s.out if isinstance(each, AskFunction)] == [50]
    assert executed(s.out) == []

    assert executed(s.step(FunctionsArrived([50], [10]))) == ["x", "y"]


def test_task_is_freed_while_it_waits_for_its_function__does_not_run() -> None:
    s = Script()
    s.compute("x", 1, function=50)
    s.free("x")

    assert executed(s.step(FunctionsArrived([50], [10]))) == []


def test_too_many_functions__the_one_unused_longest_goes() -> None:
    s = Script(limits=Limits(functions_max=3))
    s.compute("x", 1, function=0)
    s.finish(1)

    out = s.step(FunctionsArrived([3], [10]))

    assert [each.functions for each in out if isinstance(each, ForgetFunctions)] == [[1]]


def test_functions_too_large__those_in_use_stay() -> None:
    s = Script(limits=Limits(function_bytes_max=35))
    s.compute("x", 1, function=0)
    s.compute("y", 2, function=1)

    out = s.step(FunctionsArrived([3], [10]))

    assert [each.functions for each in out if isinstance(each, ForgetFunctions)] == [[2]]


def test_evicted_function_is_used_again__is_asked_for() -> None:
    s = Script(limits=Limits(functions_max=3))
    s.step(FunctionsArrived([3], [10]))

    out = s.compute("x", 1, function=0)

    assert [each.function for each in out if isinstance(each, AskFunction)] == [0]


def test_acquire_of_what_is_being_computed__nothing_is_fetched() -> None:
    s = Script()
    s.compute("x", 1)

    out = s.step(AcquireAsked(["x"], [8], [1], [[5]]))

    assert fetches(out) == []
    assert asked(out) == []
