"""What users of schedulers like this one have reported of workers, told to the machine: each test names the report.

The list, with its letters and numbers, is in the project's case collection; the right outcome is what is tested.
"""

from __future__ import annotations

import os
import signal
import sys

import pytest

from shunter.errors import PeerError
from shunter.wire import messages
from shunter.worker.events import (
    DataPut,
    FetchBusy,
    FetchFailed,
    FreeAsked,
    PeerGone,
    PeerRested,
    RemoveAsked,
    RunRescheduled,
    RunSeceded,
    StatusSet,
    TakeBackAsked,
    TimePassed,
    WhoHasTold,
)
from shunter.worker.instructions import (
    Fetch,
    ReportFailed,
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
    dropped,
    executed,
    failed,
    fetched,
    fetches,
    finished,
)
from tests.worker.test_parent import Family, in_loop

# ------------------------------------------------------------------------------- a fetch and a run of one key

ENDS = ("well", "without it", "badly", "busy", "with its peer")


def end_fetch(s: Script, fetch: Fetch, how: str) -> None:
    """A fetch ends; nobody else has the value."""
    if how == "well":
        s.got(fetch)
    elif how == "without it":
        s.got(fetch, missing=fetch.keys)
    elif how == "badly":
        s.step(FetchFailed(fetch.fetch, "connection reset"))
    elif how == "busy":
        s.step(FetchBusy(fetch.fetch))
        s.step(PeerRested(fetch.peer))
    else:
        s.step(PeerGone(fetch.peer))
        s.step(FetchFailed(fetch.fetch, "connection reset"))


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("steal", ["none", "too late", "in time"])
@pytest.mark.parametrize("y_waits", [True, False])
def test_a1_key_that_is_fetched_is_freed_and_then_to_be_computed__ends_once(
    end: str, steal: str, y_waits: bool
) -> None:
    s = Script()
    (fetch,) = fetches(s.compute("y", 1, [("x", 8, [2])]))
    s.free("x") if y_waits else s.free("x", "y")
    assert executed(s.compute("x", 2)) == ["x"]
    if steal != "none":
        out = s.step(TakeBackAsked([2]))
        given = [2] if steal == "in time" else []
        assert answers(s.revoked(out, *given)) == [([2], given)]
    end_fetch(s, fetch, end)
    if steal == "in time":
        assert finished(s.out) == []  # another worker is to run it, and has the value then
        if y_waits:
            (again,) = fetches(s.step(WhoHasTold(["x"], [[3]])))
            s.got(again)
    else:
        assert finished(s.finish(2)) == [("x", 2)]
    if y_waits:
        assert executed(s.out)[-1] == "y"
        s.finish(1)
    assert finished(s.out).count(("x", 2)) == (steal != "in time")
    assert s.end() == {}


# ------------------------------------------------------------------------------- what cannot be stopped


@pytest.mark.parametrize("end", ["finishes", "fails", "asks to be rescheduled"])
@pytest.mark.parametrize("first", ["the run", "the fetch"])
def test_a2_task_that_was_moved_away_ends_late__its_dependent_here_runs(end: str, first: str) -> None:
    s = Script()
    s.compute("x", 1)
    s.revoked(s.free("x"))
    (fetch,) = fetches(s.compute("y", 2, [("x", 8, [5])]))
    if first == "the fetch":
        assert executed(s.got(fetch)) == []  # its slot is taken
    if end == "finishes":
        s.finish(1)
    elif end == "fails":
        s.fail(1)
    else:
        s.step(RunRescheduled(1))
    if first == "the run":
        s.got(fetch)
    assert executed(s.out) == ["x", "y"]
    assert finished(s.out) == failed(s.out) == []
    assert finished(s.finish(2)) == [("y", 2)]
    assert s.end() == {}


@pytest.mark.parametrize("then", ["ends", "fails"])
def test_a4_cancelled_task_secedes__only_its_slot_is_free(then: str) -> None:
    s = Script()
    s.compute("x", 1)
    s.compute("next", 2)
    s.revoked(s.free("x"))
    out = s.step(RunSeceded(1, 1.0))
    assert [each for each in out if isinstance(each, ReportLongRunning)] == []
    assert executed(out) == ["next"]
    assert s.machine.counts()["occupied"] == 1
    assert (s.finish(1) if then == "ends" else s.fail(1)) == []
    s.finish(2)
    assert s.end() == {}


def test_a4_cancelled_task_whose_value_is_fetched_secedes__the_fetch_serves_its_dependent() -> None:
    s = Script()
    s.compute("x", 1)
    s.revoked(s.free("x"))
    (fetch,) = fetches(s.compute("y", 2, [("x", 8, [5])]))
    s.step(RunSeceded(1, 1.0))
    assert executed(s.got(fetch)) == ["y"]
    s.finish(1)
    assert finished(s.finish(2)) == [("y", 2)]
    assert s.end() == {}


@pytest.mark.parametrize("seceded", [False, True])
def test_a5_task_reschedules_itself__comes_back_here_with_its_resources(seceded: bool) -> None:
    s = Script(resources={"GPU": 1.0})
    for run_id in (1, 2, 3):
        assert executed(s.compute("x", run_id, resources={"GPU": 1.0})) == ["x"]
        if seceded:
            s.step(RunSeceded(run_id, 1.0))
        out = s.step(RunRescheduled(run_id))
        assert [each.run_id for each in out if isinstance(each, ReportRescheduled)] == [run_id]
        assert s.end() == {}
    s.compute("x", 4, resources={"GPU": 1.0})
    assert finished(s.finish(4)) == [("x", 4)]


@pytest.mark.parametrize("end", ["finishes", "asks to be rescheduled"])
def test_a5_seceded_task_is_cancelled_and_asked_for_again__its_end_is_that_of_the_new_run(end: str) -> None:
    s = Script()
    s.compute("x", 1)
    s.step(RunSeceded(1, 1.0))
    s.free("x")
    s.compute("x", 2)
    if end == "finishes":
        assert finished(s.finish(1)) == [("x", 2)]
    else:
        out = s.step(RunRescheduled(1))
        assert [each.run_id for each in out if isinstance(each, ReportRescheduled)] == [2]
    assert s.end() == {}


def test_g2_cancelled_tasks_that_run_on__their_slots_stay_counted_until_they_end() -> None:
    s = Script(nthreads=2)
    s.compute("a", 1)
    s.compute("b", 2)
    s.revoked(s.free("a", "b"))
    s.compute("c", 3)
    counts = s.machine.counts()
    assert (counts["occupied"], counts["unwanted"], counts["ready"]) == (2, 2, 1)
    assert executed(s.finish(2)) == ["c"]
    counts = s.machine.counts()
    assert (counts["occupied"], counts["unwanted"], counts["ready"]) == (2, 1, 0)
    s.finish(1, 3)
    assert s.end() == {}


def test_g2_cancelled_task_that_runs_on__why_says_so() -> None:
    s = Script()
    s.compute("x", 1)
    s.revoked(s.free("x"))
    assert "still runs" in s.machine.why("x")


# ------------------------------------------------------------------------------- copies and inputs


@pytest.mark.parametrize("how", ["it cannot be reached", "it has lost the value", "it leaves"])
def test_a14_fetch_fails_while_another_copy_exists__that_one_is_fetched(how: str) -> None:
    s = Script()
    (fetch,) = fetches(s.compute("y", 1, [("x", 8, [2, 3])]))
    end_fetch(
        s, fetch, {"it cannot be reached": "badly", "it has lost the value": "without it"}.get(how, ENDS[-1])
    )
    (again,) = [each for each in fetches(s.out) if each.fetch != fetch.fetch]
    assert {fetch.peer, again.peer} == {2, 3}
    assert executed(s.got(again)) == ["y"]


def test_a16_value_that_is_to_go_is_an_input_again__it_stays() -> None:
    s = Script()
    s.step(DataPut(["x"], [8], ["value"]))
    s.compute("y1", 1, [("x", 8, [1])])
    s.step(RemoveAsked(["x"]))
    out = s.compute("y2", 2, [("x", 8, [2])])
    assert fetches(out) == []
    assert dropped(out) == []
    assert executed(s.finish(1)) == ["y2"]


@pytest.mark.parametrize("used", [False, True])
def test_a16_value_is_freed_and_an_input_in_one_breath__it_is_fetched_anew(used: bool) -> None:
    s = Script(nthreads=2)
    s.step(DataPut(["x"], [8], ["value"]))
    if used:
        s.compute("y1", 1, [("x", 8, [1])])
    out = s.step(FreeAsked(["x", "y1"]), compute("y2", 2, [("x", 8, [2])]))
    assert dropped(out) == ["x"]
    assert fetched(out) == [(2, ["x"])]
    assert executed(s.got(fetches(out)[0])) == ["y2"]


def test_a16_only_task_that_waits_is_freed_and_another_needs_the_input_in_one_breath__it_comes_once() -> None:
    s = Script()
    (fetch,) = fetches(s.compute("y1", 1, [("x", 8, [2])]))
    s.step(FreeAsked(["y1"]), compute("y2", 2, [("x", 8, [2])]))
    s.got(fetch)
    for again in [each for each in fetches(s.out) if each.fetch != fetch.fetch]:
        s.got(again)
    assert executed(s.out) == ["y2"]
    s.finish(2)
    assert s.end() == {}


def test_a16_overlapping_graphs_again_and_again__each_run_has_its_inputs() -> None:
    s = Script()
    for n in range(50):
        run = 3 * n
        s.step(
            compute("x", run + 1, life=n + 1),
            compute("y", run + 2, [("x", 8, [1], n + 1)], life=n + 1),
            compute("z", run + 3, [("y", 8, [1], n + 1), ("x", 8, [1], n + 1)], life=n + 1),
        )
        s.finish(run + 1)
        if n % 2:
            s.step(FreeAsked(["z"]), compute("z", run + 1000, [("y", 8, [1], n + 1)], life=n + 1))
            s.finish(run + 2)
            s.finish(run + 1000)
        else:
            s.revoked(s.free("x", "y", "z"))
            s.finish(run + 2)
    assert {key: executed(s.out).count(key) for key in "xyz"} == {"x": 50, "y": 50, "z": 25}
    assert s.end() == {}


def test_a19_task_is_freed_after_its_input_came__the_copy_goes_when_it_is_told_to() -> None:
    s = Script()
    s.compute("busy", 9)
    (fetch,) = fetches(s.compute("y", 1, [("x", 8, [2])]))
    s.got(fetch)
    s.free("y")
    assert dropped(s.step(RemoveAsked(["x"]))) == ["x"]
    s.finish(9)
    assert executed(s.out) == ["busy"]
    assert dropped(s.free("busy")) == ["busy"]
    assert s.machine.counts()["held"] == 0


@pytest.mark.parametrize("end", ["finishes", "fails"])
def test_a19_freed_task_still_runs__the_copy_goes_right_after(end: str) -> None:
    s = Script()
    (fetch,) = fetches(s.compute("y", 1, [("x", 8, [2])]))
    s.got(fetch)
    s.revoked(s.free("y"))
    assert dropped(s.step(RemoveAsked(["x"]))) == []
    assert dropped(s.finish(1) if end == "finishes" else s.fail(1)) == ["x"]
    assert s.machine.counts()["held"] == 0


@pytest.mark.parametrize("freed", ["during the fetch", "after it"])
def test_a19_copy_that_nobody_needs_any_more__is_not_kept_without_the_scheduler_knowing(freed: str) -> None:
    s = Script()
    s.compute("busy", 9)
    (fetch,) = fetches(s.compute("y", 1, [("x", 8, [2])]))
    if freed == "during the fetch":
        s.free("y")
        s.got(fetch)
        assert s.machine.counts()["held"] == 0  # what nobody waits for is thrown away
    else:
        s.got(fetch)
        s.free("y")
        assert dropped(s.free("x")) == ["x"]


# ------------------------------------------------------------------------------- between the asking and the start


@pytest.mark.parametrize("had_started", [True, False])
@pytest.mark.parametrize("again", ["before the answer", "after the answer"])
def test_a20_freed_and_asked_for_again_before_it_starts__runs_once(had_started: bool, again: str) -> None:
    s = Script()
    s.compute("x", 1)
    out = s.free("x")
    given = [] if had_started else [1]
    if again == "before the answer":
        s.compute("x", 2)
        s.revoked(out, *given)
    else:
        s.revoked(out, *given)
        s.compute("x", 2)
    ticket = 1 if had_started else 2
    assert executed(s.out).count("x") == (1 if had_started else 2)  # the first was given back unstarted
    assert finished(s.finish(ticket)) == [("x", 2)]
    assert s.end() == {}


@pytest.mark.parametrize("had_started", [True, False])
def test_a20_freed_before_it_starts_and_an_input_then__is_fetched_and_runs_at_most_once(
    had_started: bool,
) -> None:
    s = Script()
    s.compute("x", 1)
    out = s.free("x")
    (fetch,) = fetches(s.compute("y", 2, [("x", 8, [2])]))
    s.revoked(out, *([] if had_started else [1]))
    if had_started:
        s.finish(1)
    assert executed(s.got(fetch)) == ["y"]
    assert executed(s.out) == ["x", "y"]
    s.finish(2)
    assert s.end() == {}


@pytest.mark.parametrize("status", ["paused", "retiring"])
@pytest.mark.parametrize("had_started", [True, False])
def test_a20_told_to_pause_or_retire_before_it_starts__runs_once(status: str, had_started: bool) -> None:
    s = Script()
    s.compute("x", 1)
    out = s.step(StatusSet(status))  # type: ignore[arg-type]  # one of its words
    asked_back = any(isinstance(each, Revoke) for each in out)
    assert asked_back == (status == "paused")
    if asked_back:
        s.revoked(out, *([] if had_started else [1]))
    s.step(StatusSet("running"))
    assert executed(s.out).count("x") == (2 if asked_back and not had_started else 1)
    assert finished(s.finish(1)) == [("x", 1)]
    assert s.end() == {}


def test_a20_told_to_leave_before_it_starts__does_not_run() -> None:
    s = Script()
    s.compute("x", 1)
    s.revoked(s.step(StatusSet("closed")), 1)
    assert s.machine.counts()["executing"] == 0
    assert executed(s.compute("y", 2)) == []


# ------------------------------------------------------------------------------- data


def test_b7_input_cannot_be_unpickled_here__all_that_need_it_fail_and_it_is_not_sought_again() -> None:
    s = Script()
    for n in range(8):
        s.compute(f"y{n}", n, [("x", 8, [2, 3])])
    (fetch,) = fetches(s.out)
    out = s.got(fetch, failed={"x": "ValueError: no good"})
    assert failed(out) == [(f"y{n}", n) for n in range(8)]
    for each in out:
        if isinstance(each, ReportFailed):
            assert isinstance(each.failure, TextFailure)
            assert each.failure.kind == "serialization"
            assert "'x'" in each.failure.text and "no good" in each.failure.text
    assert fetches(s.step(TimePassed())) == []
    assert asked(s.out) == []
    assert s.end() == {}


def test_m3_inputs_at_one_peer__are_fetched_by_the_priority_of_their_tasks() -> None:
    s = Script(limits=Limits(fetch_bytes_max=1))
    order = [3.0, 1.0, 2.0, 0.0]
    s.step(*[compute(f"y{p}", n, [(f"x{p}", 8, [2])], priority=p) for n, p in enumerate(order)])
    for _ in order:
        s.got(fetches(s.out)[-1])
    assert [each.keys for each in fetches(s.out)] == [["x0.0"], ["x1.0"], ["x2.0"], ["x3.0"]]


def test_m3_inputs_at_many_peers_and_few_places__the_most_urgent_are_fetched_first() -> None:
    s = Script(limits=Limits(fetches_max=2))
    s.step(*[compute(f"y{n}", n, [(f"x{n}", 8, [10 + n])], priority=-float(n)) for n in range(6)])
    for n in (5, 4, 3, 2):
        (fetch,) = [each for each in fetches(s.out) if each.keys == [f"x{n}"]]
        s.got(fetch)
    assert [each.keys for each in fetches(s.out)] == [[f"x{n}"] for n in (5, 4, 3, 2, 1, 0)]


def test_m3_urgent_task_comes_later_and_needs_the_same_input__that_is_fetched_earlier() -> None:
    s = Script(limits=Limits(fetch_bytes_max=1))
    s.step(*[compute(f"y{n}", n, [(f"x{n}", 8, [2])]) for n in range(4)])
    s.compute("urgent", 9, [("x3", 8, [2])], priority=-1.0)
    s.got(fetches(s.out)[0])
    assert fetches(s.out)[-1].keys == ["x3"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals and process groups")
@in_loop
async def test_n8_kill_of_the_former_worker_comes_late__its_successor_of_the_same_name_lives() -> None:
    async with Family(name="w") as family:
        former = await family.scheduler.worker()
        former.compute("x", 1, abs, -1)
        await former.result("x")  # it knows its number by now
        (pid,) = family.parent.pids
        os.kill(pid, signal.SIGKILL)
        assert (await family.peer.hear(messages.Died)).worker == former.number
        successor = await family.scheduler.worker(1)
        assert successor.link.peer_details["name"] == former.link.peer_details["name"] == "w"

        family.peer.say(messages.Kill(former.number, "former"), messages.Kill(successor.number, "successor"))

        died = await family.peer.hear(messages.Died)
        assert (died.worker, died.cause) == (successor.number, "signal 9 (SIGKILL): successor")


@pytest.mark.parametrize("status", ["pending", "", "RUNNING", "lost"])
def test_o4_unknown_status__is_an_error_and_not_taken_for_another(status: str) -> None:
    for read in (messages.from_worker, messages.from_scheduler_to_worker):
        with pytest.raises(PeerError, match="status"):
            read(["status", status], b"")
