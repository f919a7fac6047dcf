"""Sole writer of where unsent tasks wait: the heaps of the workers, the root queue, and `no-worker`.

A queued task is in exactly one backlog: that of the worker it prefers (`ready` for tasks with inputs, `roots` for
its home block, one of `demands` if it asks for resources), or the cluster's root queue. Entries of heaps are
deleted lazily. Workers are indexed by the work that waits for them, so the heaviest is found in O(1).
"""

from __future__ import annotations

from heapq import heappop, heappush

from shunter.state.cluster import Cluster, LoadIndex, bucket_of
from shunter.state.costs import duration_us
from shunter.state.model import Backlog, TaskState, WorkerState


def push(cluster: Cluster, backlog: Backlog, ts: TaskState) -> None:
    """Put a runnable task on one heap."""
    assert ts.backlog is None, ts.key
    cluster.next_serial += 1
    ts.serial = cluster.next_serial
    ts.backlog = backlog
    ts_work = duration_us(cluster, ts.kind)
    ts.estimate_us = ts_work
    heappush(
        backlog.heap,
        (-ts.user_priority, ts.share, ts.generation, ts.order, ts.index, ts.serial, ts),
    )
    backlog.count += 1
    backlog.work_us += ts_work
    cluster.unsent += 1
    if backlog.owner is not None:
        _reindex(cluster, backlog.owner)
        mark_hungry(cluster, backlog.owner)


def mark_hungry(cluster: Cluster, ws: WorkerState) -> None:
    """The worker has got work or room: `dispatch` looks at it at the end of the step."""
    if not ws.listed_hungry:
        ws.listed_hungry = True
        cluster.hungry.append(ws)


def take_hungry(cluster: Cluster) -> list[WorkerState]:
    """Those marked since the last time, in that order."""
    workers = cluster.hungry
    cluster.hungry = []
    for ws in workers:
        ws.listed_hungry = False
    return workers


def remove(cluster: Cluster, ts: TaskState) -> None:
    """Take a task off its heap, because it is sent or given up. Its entry dies where it lies."""
    backlog = ts.backlog
    assert backlog is not None, ts.key
    ts.backlog = None
    backlog.count -= 1
    backlog.work_us -= ts.estimate_us
    ts.estimate_us = 0
    cluster.unsent -= 1
    if backlog.count == 0:
        backlog.heap = []
    elif len(backlog.heap) > 2 * backlog.count + 64:
        _compact(backlog)
    if backlog.owner is not None:
        _reindex(cluster, backlog.owner)


def head(backlog: Backlog) -> TaskState | None:
    """The task that should run first, left where it is."""
    heap = backlog.heap
    while heap:
        item = heap[0]
        ts = item[6]
        if ts.backlog is backlog and ts.serial == item[5]:
            return ts
        heappop(heap)
    return None


def first_tasks(backlog: Backlog, most: int) -> list[TaskState]:
    """Up to ``most`` tasks from the front, nearly in order, left where they are: a look at the heap's top."""
    found: list[TaskState] = []
    heap = backlog.heap
    i = 0
    n = len(heap)
    limit = 4 * most
    while i < n and i < limit and len(found) < most:
        item = heap[i]
        ts = item[6]
        if ts.backlog is backlog and ts.serial == item[5]:
            found.append(ts)
        i += 1
    return found


def all_tasks(backlog: Backlog) -> list[TaskState]:
    """Every live task, in priority order. O(n log n): for workers that leave."""
    items = [item for item in backlog.heap if item[6].backlog is backlog and item[6].serial == item[5]]
    items.sort()
    return [item[6] for item in items]


def runs_before(a: TaskState, b: TaskState) -> bool:
    """The order of the heaps, for two tasks."""
    if a.user_priority != b.user_priority:
        return a.user_priority > b.user_priority
    if a.share != b.share:
        return a.share < b.share
    if a.generation != b.generation:
        return a.generation < b.generation
    if a.order != b.order:
        return a.order < b.order
    return a.index < b.index


def demand_of(ts: TaskState) -> str:
    """Tasks that ask for the same resources share a heap: a blocked one then blocks only its like."""
    resources = ts.options.resources
    if not resources:
        return ""
    return "|".join([f"{name}={resources[name]!r}" for name in sorted(resources)])


def backlog_for(ws: WorkerState, ts: TaskState) -> Backlog:
    """The heap on which a worker keeps such a task."""
    if not ts.options.resources:
        return ws.ready
    signature = demand_of(ts)
    if ws.demands is None:
        ws.demands = {}
    found = ws.demands.get(signature)
    if found is None:
        found = Backlog(ws)
        ws.demands[signature] = found
    return found


def waiting_work_us(ws: WorkerState) -> int:
    """Estimated duration of everything that waits for this worker, unsent."""
    work = ws.ready.work_us + ws.roots.work_us
    if ws.demands is not None:
        for backlog in ws.demands.values():
            work += backlog.work_us
    return work


def waiting_count(ws: WorkerState) -> int:
    n = ws.ready.count + ws.roots.count
    if ws.demands is not None:
        for backlog in ws.demands.values():
            n += backlog.count
    return n


def drop_empty_demands(ws: WorkerState) -> None:
    if ws.demands is not None:
        ws.demands = {s: b for s, b in ws.demands.items() if b.count > 0}
        if not ws.demands:
            ws.demands = None


def add_no_worker(cluster: Cluster, ts: TaskState) -> None:
    cluster.no_worker[ts] = cluster.now


def remove_no_worker(cluster: Cluster, ts: TaskState) -> None:
    del cluster.no_worker[ts]
    if not cluster.no_worker:
        cluster.no_worker = {}


def restart_no_worker_clock(cluster: Cluster) -> None:
    """The first worker has come: from now on a task can wait too long for a suitable one."""
    cluster.no_worker = dict.fromkeys(cluster.no_worker, cluster.now)


def unindex(cluster: Cluster, ws: WorkerState) -> None:
    """Take a worker that leaves out of the index of loads."""
    _move(cluster.workers_by_backlog, ws, -1)


def _compact(backlog: Backlog) -> None:
    """Drop dead entries once they outnumber the live ones: amortised O(1) for each removal."""
    live = [item for item in backlog.heap if item[6].backlog is backlog and item[6].serial == item[5]]
    live.sort()  # a sorted list is a heap
    backlog.heap = live


def _reindex(cluster: Cluster, ws: WorkerState) -> None:
    work = waiting_work_us(ws)
    if work <= 0 and waiting_count(ws) > 0:
        work = 1
    bucket = bucket_of(work)
    if bucket != ws.backlog_bucket:
        _move(cluster.workers_by_backlog, ws, bucket)


def _move(index: LoadIndex, ws: WorkerState, bucket: int) -> None:
    old = ws.backlog_bucket
    if old >= 0:
        members = index.buckets[old]
        last = members.pop()
        if last is not ws:
            members[ws.backlog_slot] = last
            last.backlog_slot = ws.backlog_slot
        if not members:
            index.mask &= ~(1 << old)
    ws.backlog_bucket = bucket
    if bucket >= 0:
        members = index.buckets[bucket]
        ws.backlog_slot = len(members)
        members.append(ws)
        index.mask |= 1 << bucket
    else:
        ws.backlog_slot = -1
