"""The tables of the worker's machine: one record that the modules of the machine share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from shunter.worker.events import WorkerStatus
from shunter.worker.fetching import Fetching
from shunter.worker.function_table import FunctionTable
from shunter.worker.instructions import Outbox
from shunter.worker.model import Limits, Run
from shunter.worker.ready import ReadyQueue

__all__ = ["Tables"]


@final
class Tables:
    """All that a worker's machine knows.

    Attributes:
        nthreads: tasks that run at a time.
        ready: runs that may start, and the use of resources.
        fetching: values that are wanted here and not held, and the peers that have them.
        functions: functions by the scheduler's numbers.
        runs: the wanted run of each key.
        by_run_id: the same, by run_id.
        executing: runs that are with the threads, by ticket; long-running and unwanted ones included.
        orphans: the newest unwanted run that executes, by key.
        unwanted: slots in use by runs that nobody wants; ``unwanted_told`` of them are known to the scheduler.
        occupied: slots in use; more than ``nthreads`` means that work was handed out ahead.
        ahead: sum of the estimates of runs that occupy slots, seconds.
        held: bytes of each value in the store.
        lives: of which life of its key each of them is.
        using: how many executing runs use a value, by key (of whichever version of the value).
        doomed: copies to be dropped when no run uses them.
        asked: take-backs that wait for the threads' answer, by request: (asked, given so far).
        unknown: events that named an execution or a fetch that is not here; harmless, but worth a look.
    """

    __slots__ = (
        "ahead",
        "asked",
        "by_run_id",
        "doomed",
        "executing",
        "fetching",
        "functions",
        "held",
        "limits",
        "lives",
        "nthreads",
        "occupied",
        "orphans",
        "outbox",
        "ready",
        "requests",
        "runs",
        "sequence",
        "status",
        "unknown",
        "unwanted",
        "unwanted_told",
        "using",
    )

    def __init__(self, nthreads: int, resources: Mapping[str, float], limits: Limits) -> None:
        self.limits: Final = limits
        self.nthreads: Final = nthreads
        self.outbox: Final = Outbox()
        self.ready: Final = ReadyQueue(resources)
        self.fetching: Final = Fetching(limits, self.outbox)
        self.functions: Final = FunctionTable(limits, self.outbox)
        self.status: WorkerStatus = "running"
        self.runs: dict[str, Run] = {}
        self.by_run_id: dict[int, Run] = {}
        self.executing: dict[int, Run] = {}
        self.orphans: dict[str, Run] = {}
        self.occupied = 0
        self.unwanted = 0
        self.unwanted_told = 0
        self.ahead = 0.0
        self.held: dict[str, int] = {}
        self.lives: dict[str, int] = {}
        self.using: dict[str, int] = {}
        self.doomed: dict[str, None] = {}
        self.asked: dict[int, tuple[list[int], list[int]]] = {}
        self.requests = 0
        self.sequence = 0
        self.unknown = 0
