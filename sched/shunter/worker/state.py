"""The worker's machine: what runs, what is held, what is fetched. Events in, instructions out.

Theory of operation
    `WorkerState.step` applies one event; `WorkerState.drain` settles (starts tasks and fetches, asks what has
    to be asked) and hands over the instructions, so that a batch of events makes one batch of work. No IO, no
    clock, no pickling, no randomness: values and failures pass through as they are.

    *Runs and values are apart.* A `Run` is one attempt at a task, from the scheduler's asking to its end; a
    value is held, or wanted (`fetching`), or neither. That is why no state is called "executing, but to be
    fetched instead": a run and a fetch of one key go on side by side, and whichever ends first serves those
    who wait.

        waiting → ready → executing → (long-running) → ended

    *Executing* means handed to the threads. Up to ``nthreads`` runs are, and a little work beyond (`Limits`),
    so that short tasks need not wait for the loop. Whether one of them has really started only the threads
    know: `Revoke` asks them, and their answer is the truth for take-backs, frees and pauses alike.

    *Running tasks cannot be stopped.* One that is freed keeps its slot until it ends; then its result is
    dropped without a word. If the same task (function and argument bytes) is asked for anew meanwhile, and no
    input of it was dropped since it started, the running one is *adopted*: it is reported under the new
    run_id. If it is another task under the same key, both run, and only the wanted one is reported.

    *Dropping.* Free is for values that are void: the value goes at once (running tasks have their own hold on
    it). Remove is for copies: it is put off while a running task uses the value; if the value is of use again
    before that, it stays, and is reported as added.

Modules, each importing only from those before it: `events`, `instructions`, `model`, `ready`, `fetching`,
`function_table`, `tables`, `values`, `runs`, `reactions`, `validate`, and this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from shunter.worker.events import (
    AcquireAsked,
    ComputeAsked,
    DataPut,
    Event,
    FetchBusy,
    FetchDone,
    FetchFailed,
    FreeAsked,
    FunctionsArrived,
    PeerGone,
    PeerRested,
    Registered,
    RemoveAsked,
    RevokeAnswered,
    RunFailed,
    RunRescheduled,
    RunSeceded,
    RunsFinished,
    StatusSet,
    TakeBackAsked,
    TimePassed,
    WhoHasTold,
    WorkerStatus,
)
from shunter.worker.instructions import Instruction, ReportHeld
from shunter.worker.model import Limits
from shunter.worker.reactions import (
    on_acquire_asked,
    on_compute_asked,
    on_data_put,
    on_fetch_busy,
    on_fetch_done,
    on_fetch_failed,
    on_free_asked,
    on_functions_arrived,
    on_remove_asked,
    on_revoke_answered,
    on_run_failed,
    on_run_rescheduled,
    on_run_seceded,
    on_runs_finished,
    on_status_set,
    on_take_back_asked,
)
from shunter.worker.runs import start_runs
from shunter.worker.tables import Tables
from shunter.worker.validate import validate

__all__ = ["WorkerState"]


@final
class WorkerState:
    """The decisions of one worker.

    Args:
        nthreads: tasks that run at a time.
        resources: amounts by name that tasks may ask for.
        limits: how much is done at a time.
    """

    __slots__ = ("_tables",)

    def __init__(
        self, *, nthreads: int, resources: Mapping[str, float] | None = None, limits: Limits | None = None
    ) -> None:
        self._tables: Final = Tables(nthreads, resources or {}, limits if limits is not None else Limits())

    def step(self, event: Event) -> None:
        """Apply one event. What it leads to is settled by `drain`."""
        t = self._tables
        if isinstance(event, RunsFinished):
            on_runs_finished(t, event)
        elif isinstance(event, ComputeAsked):
            on_compute_asked(t, event)
        elif isinstance(event, FreeAsked):
            on_free_asked(t, event)
        elif isinstance(event, FetchDone):
            on_fetch_done(t, event)
        elif isinstance(event, FunctionsArrived):
            on_functions_arrived(t, event)
        elif isinstance(event, RunFailed):
            on_run_failed(t, event)
        elif isinstance(event, TakeBackAsked):
            on_take_back_asked(t, event)
        elif isinstance(event, RevokeAnswered):
            on_revoke_answered(t, event)
        elif isinstance(event, RemoveAsked):
            on_remove_asked(t, event)
        elif isinstance(event, AcquireAsked):
            on_acquire_asked(t, event)
        elif isinstance(event, WhoHasTold):
            for key, holders in zip(event.keys, event.holders):
                t.fetching.told(key, holders)
        elif isinstance(event, FetchBusy):
            on_fetch_busy(t, event)
        elif isinstance(event, FetchFailed):
            on_fetch_failed(t, event)
        elif isinstance(event, PeerRested):
            t.fetching.rested(event.peer)
        elif isinstance(event, PeerGone):
            t.fetching.gone(event.peer)
        elif isinstance(event, RunSeceded):
            on_run_seceded(t, event)
        elif isinstance(event, RunRescheduled):
            on_run_rescheduled(t, event)
        elif isinstance(event, DataPut):
            on_data_put(t, event)
        elif isinstance(event, StatusSet):
            on_status_set(t, event)
        elif isinstance(event, TimePassed):
            t.fetching.time_passed()
        elif isinstance(event, Registered):
            t.fetching.number = event.number
        else:
            raise TypeError(f"not an event of the worker: {event!r}")

    def drain(self) -> list[Instruction]:
        """Start what may start, and hand over all instructions since the last call, in order."""
        t = self._tables
        if t.status == "running" or t.status == "retiring":
            start_runs(t)
            if t.fetching.peers:
                t.fetching.start()
        t.fetching.ask()
        if t.unwanted != t.unwanted_told:
            t.unwanted_told = t.unwanted
            t.outbox.push(ReportHeld(t.unwanted))
        return t.outbox.take()

    @property
    def status(self) -> WorkerStatus:
        """As the scheduler set it."""
        return self._tables.status

    def counts(self) -> dict[str, int]:
        """How many runs and values there are, by status; for people and tests."""
        t = self._tables
        runs = [run.status for run in t.runs.values()]
        return {
            "waiting": runs.count("waiting"),
            "ready": runs.count("ready"),
            "executing": len(t.executing),
            "unwanted": sum(not run.wanted for run in t.executing.values()),
            "long-running": sum(run.status == "long-running" for run in t.executing.values()),
            "occupied": t.occupied,
            "held": len(t.held),
            "doomed": len(t.doomed),
            "wanted": len(t.fetching.wants),
            "fetches": len(t.fetching.flights),
            "functions": len(t.functions),
            "unknown": t.unknown,
        }

    def why(self, key: str) -> str:
        """One sentence: what becomes of a key here."""
        t = self._tables
        run = t.runs.get(key)
        if key in t.held:
            return f"{key!r} is held here ({t.held[key]} bytes)"
        if run is not None and run.status == "waiting":
            absent = [name for name in run.task.inputs if name not in t.held]
            return f"{key!r} waits for {', '.join(map(repr, absent)) or 'its function'}"
        if run is not None:
            return f"{key!r} is {run.status}"
        want = t.fetching.wants.get(key)
        if want is not None:
            return f"{key!r} is wanted: {want.status}, held by {list(want.holders) or 'nobody known'}"
        if key in t.orphans:
            return f"{key!r} was given up, and still runs: nothing can stop it"
        return f"nothing is known of {key!r}"

    def validate(self) -> None:
        """Check all invariants. For tests and debugging: it looks at everything.

        Raises:
            AssertionError: naming what is wrong.
        """
        validate(self._tables)
