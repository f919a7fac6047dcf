"""Sole writer of counters: tasks by status, and what is alive and done of each kind."""

from __future__ import annotations

from shunter.state.cluster import Cluster, Counts
from shunter.state.model import Kind, TaskState
from shunter.state.names import TaskStatus

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
    """A task went from one status to another."""
    _add(counts, start, -1)
    _add(counts, finish, 1)


def _add(counts: Counts, status: TaskStatus, n: int) -> None:
    if status == "waiting":
        counts.waiting += n
    elif status == "queued":
        counts.queued += n
    elif status == "processing":
        counts.processing += n
    elif status == "memory":
        counts.memory += n
    elif status == "released":
        counts.released += n
    elif status == "erred":
        counts.erred += n
    elif status == "no-worker":
        counts.no_worker += n
