"""What each event does: one function for each, named ``on_`` and the event."""

from __future__ import annotations

from typing import Final

from shunter.worker.events import (
    AcquireAsked,
    ComputeAsked,
    DataPut,
    FetchBusy,
    FetchDone,
    FetchFailed,
    FreeAsked,
    FunctionsArrived,
    Priority,
    RemoveAsked,
    RevokeAnswered,
    RunFailed,
    RunRescheduled,
    RunSeceded,
    RunsFinished,
    StatusSet,
    TakeBackAsked,
)
from shunter.worker.instructions import (
    UNKNOWN_LIFE,
    AnswerTakeBack,
    Keep,
    ReportAdded,
    ReportFailed,
    ReportFinished,
    ReportLongRunning,
    ReportRescheduled,
    Revoke,
    Task,
    TextFailure,
)
from shunter.worker.model import Want
from shunter.worker.ready import substantial
from shunter.worker.runs import (
    begin,
    disown,
    end,
    fail_waiting,
    give_up,
    have_one,
    hold,
    land,
    leave_threads,
    make_ready,
    secede,
    supersede,
)
from shunter.worker.tables import Tables
from shunter.worker.values import drop_value, mark_users, renew, spare

#: Copies asked for by the scheduler come after normal work, and before work of low priority.
ACQUIRE_PRIORITY: Final[Priority] = (0.5, 0.0, 0, 0)
NO_REQUEST: Final = -1


def on_compute_asked(t: Tables, event: ComputeAsked) -> None:
    for key, run_id, number, priority, inputs, resources, inline_max, life, data in zip(
        event.keys,
        event.run_ids,
        event.functions,
        event.priorities,
        event.inputs,
        event.resources,
        event.inline_max,
        event.lives,
        event.data,
    ):
        if run_id in t.by_run_id or run_id in t.executing:
            t.unknown += 1  # It was asked for already.
            continue
        if resources:
            resources = substantial(resources)
        names: tuple[str, ...] = ()
        lives: tuple[int, ...] = ()
        renew(t, key, life)
        if inputs:
            names = tuple([each[0] for each in inputs])
            lives = tuple([each[3] for each in inputs])
            for name, each_life in zip(names, lives):
                renew(t, name, each_life)
        task = Task(key, run_id, number, priority, names, resources, inline_max, data, life, lives)
        if key in t.held:
            spare(t, key)
            if key in t.runs:
                disown(t, t.runs[key])  # An older run that still executes: the value came by another way.
            t.outbox.finished(key, run_id, t.held[key])
        elif supersede(t, task):
            pass
        elif resources and t.ready.lacks(resources):
            text = f"this worker can never give {key!r} what it asks for: {resources}"
            t.outbox.push(ReportFailed(key, run_id, TextFailure("no-worker", text), 0.0, 0.0, 0))
        else:
            begin(t, task, inputs)


def on_functions_arrived(t: Tables, event: FunctionsArrived) -> None:
    for number, size in zip(event.functions, event.sizes):
        for run in t.functions.arrived(number, size):
            have_one(t, run)
    t.functions.evict()


def on_runs_finished(t: Tables, event: RunsFinished) -> None:
    keep = Keep()
    report = ReportFinished()
    for ticket, value, nbytes, start, duration, thread, type_name, data in zip(
        event.tickets,
        event.values,
        event.nbytes,
        event.starts,
        event.durations,
        event.threads,
        event.types,
        event.data,
    ):
        run = land(t, ticket, duration)
        if run is None or not run.wanted:
            continue
        key = run.task.key
        keep.keys.append(key)
        keep.values.append(value)
        keep.nbytes.append(nbytes)
        report.keys.append(key)
        report.run_ids.append(run.task.run_id)
        report.nbytes.append(nbytes)
        report.starts.append(start)
        report.durations.append(duration)
        report.threads.append(thread)
        report.types.append(type_name)
        report.data.append(data)
        hold(t, key, run.task.life, nbytes)
    if report.keys:
        t.outbox.push(keep)
        t.outbox.push(report)


def on_run_failed(t: Tables, event: RunFailed) -> None:
    run = land(t, event.ticket, event.duration)
    if run is not None and run.wanted:
        t.outbox.push(
            ReportFailed(
                run.task.key, run.task.run_id, event.failure, event.start, event.duration, event.thread
            )
        )


def on_run_rescheduled(t: Tables, event: RunRescheduled) -> None:
    run = land(t, event.ticket, -1.0)
    if run is not None and run.wanted:
        t.outbox.push(ReportRescheduled(run.task.key, run.task.run_id))


def on_run_seceded(t: Tables, event: RunSeceded) -> None:
    run = t.executing.get(event.ticket)
    if run is None or run.status != "executing":
        t.unknown += 1
        return
    secede(t, run)
    if run.wanted:
        t.outbox.push(ReportLongRunning(run.task.key, run.task.run_id, event.duration))


# ---------------------------------------------------------------------------------------------- values


def on_data_put(t: Tables, event: DataPut) -> None:
    for key, nbytes, value in zip(event.keys, event.nbytes, event.values):
        t.outbox.keep(key, value, nbytes)
        arrived(t, key, UNKNOWN_LIFE, nbytes)


def arrived(t: Tables, key: str, life: int, nbytes: int) -> bool:
    """A value came from elsewhere. True if that is news to the scheduler, and no run reports it."""
    hold(t, key, life, nbytes)
    run = t.runs.get(key)
    if run is None:
        return True
    if run.status == "waiting" or run.status == "ready":
        give_up(t, run)
        t.outbox.finished(key, run.task.run_id, nbytes)
    return False


def on_free_asked(t: Tables, event: FreeAsked) -> None:
    tickets: list[int] = []
    for key in event.keys:
        run = t.runs.get(key)
        if run is not None:
            if run.status == "waiting" or run.status == "ready":
                give_up(t, run)
            else:
                disown(t, run)
                if run.status == "executing":
                    tickets.append(run.ticket)
        if key in t.held:
            mark_users(t, key)
            drop_value(t, key)
        t.fetching.void(key)
    if tickets:
        t.outbox.push(Revoke(NO_REQUEST, tickets))


def on_remove_asked(t: Tables, event: RemoveAsked) -> None:
    for key in event.keys:
        t.fetching.abandon_acquisition(key)
        if key not in t.held:
            continue
        if key in t.using:
            mark_users(t, key)
            t.doomed[key] = None
        else:
            drop_value(t, key)


def on_acquire_asked(t: Tables, event: AcquireAsked) -> None:
    for key, nbytes, life, holders in zip(event.keys, event.nbytes, event.lives, event.holders):
        renew(t, key, life)
        if key in t.held:
            t.doomed.pop(key, None)
            t.outbox.added(key, t.held[key], life)
        elif key in t.runs:
            pass  # It will be here, and be reported, when the run has finished.
        else:
            t.fetching.acquire(key, life, nbytes, holders, ACQUIRE_PRIORITY)


# ---------------------------------------------------------------------------------------------- fetches


def on_fetch_done(t: Tables, event: FetchDone) -> None:
    if not t.fetching.is_known(event.fetch):
        t.unknown += 1
        return
    peer, wants = t.fetching.landed(event.fetch)
    landed = {want.key: want for want in wants}
    added = ReportAdded()
    for key, nbytes, value in zip(event.keys, event.nbytes, event.values):
        want = landed.pop(key, None)
        if want is None or not t.fetching.is_open(want):
            continue  # Freed meanwhile: the value is void.
        run = t.runs.get(key)
        if run is not None and (run.status == "executing" or run.status == "long-running"):
            t.fetching.rely_on_run(want)  # To the scheduler the key is being computed here.
            continue
        t.outbox.keep(key, value, nbytes)
        if arrived(t, key, want.life, nbytes):
            added.keys.append(key)
            added.nbytes.append(nbytes)
            added.lives.append(want.life)
    if added.keys:
        t.outbox.push(added)
    for want in landed.values():
        if not t.fetching.is_open(want):
            continue  # Whoever waited for it got, or gave up, something else just now.
        if want.key in event.failed:
            fail_want(t, want, event.failed[want.key])
        else:
            t.fetching.denied(want, peer)
    t.fetching.answered(peer)


def fail_want(t: Tables, want: Want, text: str) -> None:
    """A value cannot be brought here, from anywhere: asking again is of no use."""
    t.fetching.satisfy(want.key)
    if want.acquired:
        t.outbox.acquire_failed(want.key)
    for run in list(want.waiters):
        fail_waiting(t, run, "serialization", f"input {want.key!r} of task {run.task.key!r}: {text}")


def on_fetch_busy(t: Tables, event: FetchBusy) -> None:
    if t.fetching.is_known(event.fetch):
        peer, wants = t.fetching.landed(event.fetch)
        t.fetching.busy(peer, wants)
    else:
        t.unknown += 1


def on_fetch_failed(t: Tables, event: FetchFailed) -> None:
    if t.fetching.is_known(event.fetch):
        peer, wants = t.fetching.landed(event.fetch)
        t.fetching.failed(peer, wants)
    else:
        t.unknown += 1


# ---------------------------------------------------------------------------------------------- asked back


def on_take_back_asked(t: Tables, event: TakeBackAsked) -> None:
    given: list[int] = []
    tickets: list[int] = []
    for run_id in event.run_ids:
        run = t.by_run_id.get(run_id)
        if run is None:
            continue
        if run.status == "waiting" or run.status == "ready":
            give_up(t, run)
            given.append(run_id)
        elif run.status == "executing":
            tickets.append(run.ticket)
    if tickets:
        t.requests += 1
        t.asked[t.requests] = (event.run_ids, given)
        t.outbox.push(Revoke(t.requests, tickets))
    else:
        t.outbox.push(AnswerTakeBack(event.run_ids, given))


def on_revoke_answered(t: Tables, event: RevokeAnswered) -> None:
    asked = t.asked.pop(event.request, None)
    for ticket in event.given:
        run = t.executing.get(ticket)
        if run is None:
            t.unknown += 1
            continue
        leave_threads(t, run)
        if not run.wanted:
            end(t, run)
        elif asked is not None:
            asked[1].append(run.task.run_id)
            end(t, run)
        elif run.task.key in t.held:  # The value has come by another way.
            end(t, run)
            t.outbox.finished(run.task.key, run.task.run_id, t.held[run.task.key])
        else:
            make_ready(t, run)  # A pause, or a free that was followed by an adoption.
    if asked is not None:
        t.outbox.push(AnswerTakeBack(asked[0], asked[1]))


def on_status_set(t: Tables, event: StatusSet) -> None:
    t.status = event.status
    if event.status == "paused" or event.status == "closed":
        tickets = [run.ticket for run in t.executing.values() if run.status == "executing"]
        if tickets:
            t.outbox.push(Revoke(NO_REQUEST, tickets))
