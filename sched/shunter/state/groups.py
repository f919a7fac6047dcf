"""Sole writer of counters: tasks by status, and what is alive and done of each kind."""

from __future__ import annotations

from shunter.state.cluster import Cluster, Counts
from shunter.state.model import Kind, TaskState
from shunter.state.names import (
    ERRED,
    MEMORY,
    NO_WORKER,
    PROCESSING,
    QUEUED,
    RELEASED,
    WAITING,
    TaskStatus,
)

#: Kinds that no task uses are kept for their estimates, up to this many.
IDLE_KINDS_MAX = 1_000


def get_kind(cluster: Cluster, digest: str, name: str) -> Kind:
    kind = cluster.kinds.get(digest)
    if kind is None:
        kind = Kind(digest, name)
        cluster.kinds[digest] = kind
    return kind


def created(cluster: Cluster, ts: TaskState) -> None:
    ts.kind.alive += 1
    cluster.counts.released += 1


def forgotten(cluster: Cluster, ts: TaskState) -> None:
    """The task left the table (from `released`)."""
    kind = ts.kind
    cluster.counts.released -= 1
    kind.alive -= 1
    if kind.alive == 0 and not kind.idle:
        kind.idle = True
        cluster.idle_kinds.append(kind)
        if len(cluster.idle_kinds) > IDLE_KINDS_MAX:
            oldest = cluster.idle_kinds.popleft()
            oldest.idle = False
            if oldest.alive == 0:
                cluster.kinds.pop(oldest.digest, None)


def finished(kind: Kind) -> None:
    kind.finished += 1


def moved(counts: Counts, start: TaskStatus, finish: TaskStatus) -> None:
    """A task went from one status to another, along one of `names.ARROWS`."""
    if finish == WAITING:
        counts.released -= 1
        counts.waiting += 1
    elif finish == QUEUED:
        counts.queued += 1
        if start == WAITING:
            counts.waiting -= 1
        else:
            counts.no_worker -= 1
    elif finish == PROCESSING:
        counts.queued -= 1
        counts.processing += 1
    elif finish == MEMORY:
        counts.memory += 1
        if start == PROCESSING:
            counts.processing -= 1
        else:
            counts.released -= 1
    elif finish == RELEASED:
        counts.released += 1
        _left(counts, start)
    elif finish == ERRED:
        counts.released -= 1
        counts.erred += 1
    elif finish == NO_WORKER:
        counts.waiting -= 1
        counts.no_worker += 1


def _left(counts: Counts, start: TaskStatus) -> None:
    if start == MEMORY:
        counts.memory -= 1
    elif start == PROCESSING:
        counts.processing -= 1
    elif start == WAITING:
        counts.waiting -= 1
    elif start == QUEUED:
        counts.queued -= 1
    elif start == ERRED:
        counts.erred -= 1
    elif start == NO_WORKER:
        counts.no_worker -= 1
