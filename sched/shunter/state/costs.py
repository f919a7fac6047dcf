"""Sole writer of estimates: durations and sizes by kind, bandwidth, and when each worker's links are free.

Durations are running means that forget (weight 1/n up to 1/4), so that a bad first value is soon outweighed.
"""

from __future__ import annotations

from shunter.state.cluster import Cluster
from shunter.state.model import Kind, TaskState, WorkerState

#: No run takes longer; whatever a worker says.
SECONDS_MAX = 1e9


def duration_us(cluster: Cluster, kind: Kind) -> int:
    """Expected duration of a task of this kind, in microseconds; the default guess if none has finished."""
    if kind.duration_us >= 0:
        return kind.duration_us
    return int(cluster.settings.default_duration * 1e6)


def note_run(kind: Kind, seconds: float, nbytes: int) -> None:
    """A task of this kind has finished. A duration of exactly 0 means that it did not run: the value was there."""
    if not seconds > 0.0:  # Not a number is none either.
        return
    us = int(min(seconds, SECONDS_MAX) * 1e6)
    kind.samples += 1
    n = kind.samples
    if n == 1:
        kind.duration_us = us
        kind.nbytes = nbytes
        return
    weight = n if n < 4 else 4
    kind.duration_us += (us - kind.duration_us) // weight
    kind.nbytes += (nbytes - kind.nbytes) // weight


def size_of(cluster: Cluster, ts: TaskState) -> int:
    """Bytes of a value, or the default guess."""
    return ts.nbytes if ts.nbytes >= 0 else cluster.settings.default_nbytes


def transfer_s(cluster: Cluster, ws: WorkerState, nbytes: int) -> float:
    """Seconds until so many bytes would have arrived at a worker, counting what is on its way there."""
    if nbytes <= 0:
        return 0.0
    bandwidth = ws.link_bandwidth if ws.link_bandwidth > 0.0 else cluster.settings.bandwidth
    wait = ws.in_clock - cluster.now
    if wait < 0.0:
        wait = 0.0
    return wait + cluster.settings.latency + nbytes / bandwidth


def note_transfers(cluster: Cluster, ts: TaskState, ws: WorkerState) -> None:
    """The task is sent: its missing inputs will use the links of the worker and of their holders."""
    if ts.dependencies is None:
        return
    now = cluster.now
    bandwidth = cluster.settings.bandwidth
    for dep in ts.dependencies:
        if dep.holder is ws or dep in ws.has_what:
            continue
        source = dep.holder
        if source is None:
            continue
        start = ws.in_clock if ws.in_clock > now else now
        if source.out_clock > start:
            start = source.out_clock
        finish = start + size_of(cluster, dep) / bandwidth
        ws.in_clock = finish
        source.out_clock = finish
