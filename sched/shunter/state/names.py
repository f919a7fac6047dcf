"""Words of the state: task states, worker statuses, failure kinds and the list of legal arrows."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Literal, TypeAlias

#: Any hashable value. Our own wire carries ``str``; a bridge may hand in tuples.
Key: TypeAlias = Hashable

TaskStatus: TypeAlias = Literal[
    "released", "waiting", "no-worker", "queued", "processing", "memory", "erred", "forgotten"
]
RELEASED: Final = "released"  # known, nothing to do
WAITING: Final = "waiting"  # some input is not in memory
NO_WORKER: Final = "no-worker"  # runnable, but no permitted worker is running
QUEUED: Final = "queued"  # runnable, on exactly one heap or parked under one limit
PROCESSING: Final = "processing"  # sent to a worker; has a run_id
MEMORY: Final = "memory"  # at least one worker holds the value
ERRED: Final = "erred"  # failed, or blamed on a task that failed
FORGOTTEN: Final = "forgotten"  # removed; the record may still be referred to

WorkerStatus: TypeAlias = Literal["running", "paused", "retiring", "closed"]
RUNNING: Final = "running"
PAUSED: Final = "paused"
RETIRING: Final = "retiring"
CLOSED: Final = "closed"

FailureKind: TypeAlias = Literal[
    "exception",  # the user's function raised; `data` holds the pickled exception
    "serialization",  # argument, result or exception could not be (un)pickled
    "killed-worker",  # the task was running on too many workers that died
    "no-worker",  # no worker, or none with what the task asks for, in the time allowed
    "graph",  # a cycle, an unknown input, an ill-formed graph
    "lost-input",  # an input that cannot be recomputed is gone
]
FAILED_EXCEPTION: Final = "exception"
FAILED_SERIALIZATION: Final = "serialization"
FAILED_KILLED_WORKER: Final = "killed-worker"
FAILED_NO_WORKER: Final = "no-worker"
FAILED_GRAPH: Final = "graph"
FAILED_LOST_INPUT: Final = "lost-input"

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

#: Every legal arrow (start, finish), one function of `transitions` for each; anything else goes through `released`.
#: A test holds this list against what random clusters do.
ARROWS: Final[frozenset[tuple[str, str]]] = frozenset(
    {
        ("released", "waiting"),
        ("released", "erred"),
        ("released", "forgotten"),
        ("released", "memory"),
        ("waiting", "queued"),
        ("waiting", "no-worker"),
        ("waiting", "released"),
        ("queued", "processing"),
        ("queued", "released"),
        ("no-worker", "queued"),
        ("no-worker", "released"),
        ("processing", "memory"),
        ("processing", "released"),
        ("memory", "released"),
        ("erred", "released"),
    }
)
