"""Messages that several kinds of peer exchange with the scheduler, and what several messages contain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, cast, get_args

from shunter.wire.fields import Fields
from shunter.wire.frames import Frame

__all__ = [
    "FAILURE_KINDS",
    "WORKER_STATUSES",
    "Closing",
    "FailureKind",
    "Heartbeat",
    "Priority",
    "Status",
    "TaskInput",
    "WorkerStatus",
    "blob_parts",
    "collapse",
    "column_or_none",
    "lengths",
]

#: Why a task failed; the state's own words (``shunter.state.FailureKind``; a test compares them).
FailureKind: TypeAlias = Literal[
    "exception", "serialization", "killed-worker", "no-worker", "graph", "lost-input"
]
FAILURE_KINDS: Final[frozenset[str]] = frozenset(get_args(FailureKind))

#: What a worker does; the state's own words (``shunter.state.WorkerStatus``).
WorkerStatus: TypeAlias = Literal["running", "paused", "retiring", "closed"]
WORKER_STATUSES: Final[frozenset[str]] = frozenset(get_args(WorkerStatus))

#: An input of a task that is sent to a worker: (key, bytes, numbers of workers that hold it, life of the key).
TaskInput: TypeAlias = tuple[str, int, list[int], int]
#: Smaller runs sooner: (−user priority, share, generation, order in its graph).
Priority: TypeAlias = tuple[float, float, int, int]


class Heartbeat(NamedTuple):
    """Still here. Client ↔ scheduler, scheduler → worker, parent → scheduler."""

    def frame(self) -> Frame:
        return ["heartbeat"], ()

    @classmethod
    def parse(cls, fields: Fields) -> Heartbeat:
        return cls()


class Closing(NamedTuple):
    """The scheduler is about to close the connection."""

    reason: str

    def frame(self) -> Frame:
        return ["closing", self.reason], ()

    @classmethod
    def parse(cls, fields: Fields) -> Closing:
        return cls(fields.text("reason"))


class Status(NamedTuple):
    """Scheduler → worker: change to this status. Worker → scheduler: it has."""

    status: WorkerStatus

    def frame(self) -> Frame:
        return ["status", self.status], ()

    @classmethod
    def parse(cls, fields: Fields) -> Status:
        return cls(cast("WorkerStatus", fields.word("status", WORKER_STATUSES)))


# ------------------------------------------------------------------------------------- columns, both ways


def lengths(blobs: Sequence[bytes | None]) -> list[int]:
    """The column ``lens`` for blobs: their lengths, −1 for None."""
    return [-1 if each is None else len(each) for each in blobs]


def blob_parts(blobs: Sequence[bytes | None]) -> list[bytes]:
    """The blobs that have bytes, as the body of a frame."""
    return [each for each in blobs if each]


def column_or_none(column: Sequence[object]) -> Sequence[object] | None:
    """A column, or None if nothing is in it."""
    return column if any(column) else None


def collapse(column: Sequence[object]) -> object:
    """A column of numbers, or the one number that all its entries are."""
    if len(column) > 1 and column.count(column[0]) == len(column):
        return column[0]
    return column
