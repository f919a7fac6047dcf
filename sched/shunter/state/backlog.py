"""Sole writer of where unsent tasks wait: the heaps of the workers, the root queue, and `no-worker`.

A queued task is in exactly one backlog: that of the worker it prefers (`ready` for tasks with inputs, `roots` for
its home block, one of `demands` if it asks for resources), or the cluster's root queue. Entries are
deleted lazily. Workers are indexed by the work that waits for them, so the heaviest is found in O(1).

A worker looks at the head of each of its `demands` when it has room, so their number is bounded: tasks that ask for
exactly the same share one while there are few, then those that ask for about as much of the same, then all others.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import frexp

from shunter.state.cluster import Cluster, LoadIndex, bucket_of
from shunter.state.costs import duration_us
from shunter.state.model import Backlog, TaskState, WorkerState

#: Backlogs of a worker for tasks with resources: so many by what exactly they ask for, and so many in all but one.
DEMANDS_EXACT = 16
DEMANDS_MAX = 32


def push(cluster: Cluster, backlog: Backlog, ts: TaskState) -> None:
    """Put a runnable task into one backlog."""
    assert ts.backlog is None, ts.key
    cluster.next_serial += 1
    ts.serial = cluster.next_serial
    ts.backlog = backlog
    ts.estimate_us = duration_us(cluster, ts.kind)
    if _comes_last(backlog, ts):
        backlog.run.append(ts)
        backlog.serials.append(ts.serial)
    else:
        heappush(
            backlog.heap,
            (-ts.user_priority, ts.share, ts.generation, ts.order, ts.index, ts.serial, ts),
        )
    backlog.count += 1
    backlog.work_us += ts.estimate_us
    cluster.unsent += 1
    owner = backlog.owner
    if owner is not None:
        _reindex(cluster, owner)
        if not owner.listed_hungry:
            mark_hungry(cluster, owner)


def _comes_last(backlog: Backlog, ts: TaskState) -> bool:
    """The task belongs at the end of the run. Dead entries there are dropped: they may be out of order by now."""
    run = backlog.run
    serials = backlog.serials
    while len(run) > backlog.at:
        last = run[-1]
        if last.backlog is backlog and last.serial == serials[-1]:
            return not runs_before(ts, last)
        run.pop()
        serials.pop()
    return True


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
    """Take a task out of its backlog, because it is sent or given up. Its entry dies where it lies."""
    backlog = ts.backlog
    assert backlog is not None, ts.key
    ts.backlog = None
    backlog.count -= 1
    backlog.work_us -= ts.estimate_us
    ts.estimate_us = 0
    cluster.unsent -= 1
    if backlog.count == 0:
        backlog.heap.clear()
        backlog.run.clear()
        backlog.serials.clear()
        backlog.at = 0
    elif len(backlog.heap) > 2 * backlog.count + 64:
        _compact_heap(backlog)
    elif len(backlog.run) - backlog.at > 2 * backlog.count + 64:
        _compact_run(backlog)
    if backlog.owner is not None:
        _reindex(cluster, backlog.owner)


def head(backlog: Backlog) -> TaskState | None:
    """The task that should run first, left where it is."""
    if backlog.count == 0:
        return None
    first = _head_of_run(backlog)
    if backlog.heap:
        other = _head_of_heap(backlog)
        if first is None or (other is not None and runs_before(other, first)):
            return other
    return first


def _head_of_run(backlog: Backlog) -> TaskState | None:
    run = backlog.run
    serials = backlog.serials
    at = backlog.at
    found: TaskState | None = None
    while at < len(run):
        ts = run[at]
        if ts.backlog is backlog and ts.serial == serials[at]:
            found = ts
            break
        at += 1
    if at > 512 and 2 * at > len(run):  # amortised: as many were used up as are moved
        del run[:at]
        del serials[:at]
        at = 0
    backlog.at = at
    return found


def _head_of_heap(backlog: Backlog) -> TaskState | None:
    heap = backlog.heap
    while heap:
        item = heap[0]
        ts = item[6]
        if ts.backlog is backlog and ts.serial == item[5]:
            return ts
        heappop(heap)
    return None


def first_tasks(backlog: Backlog, most: int) -> list[TaskState]:
    """Up to ``most`` tasks from the front, nearly in order, left where they are."""
    found: list[TaskState] = []
    looked_at = 0
    for item in backlog.heap:
        ts = item[6]
        if len(found) >= most or looked_at >= 4 * most:
            break
        looked_at += 1
        if ts.backlog is backlog and ts.serial == item[5]:
            found.append(ts)
    at = backlog.at
    end = min(len(backlog.run), at + 4 * most)
    while at < end and len(found) < 2 * most:
        ts = backlog.run[at]
        if ts.backlog is backlog and ts.serial == backlog.serials[at]:
            found.append(ts)
        at += 1
    return found


def all_tasks(backlog: Backlog) -> list[TaskState]:
    """Every live task; those of the run come first. O(n log n): for workers that leave."""
    found: list[TaskState] = []
    for at in range(backlog.at, len(backlog.run)):
        ts = backlog.run[at]
        if ts.backlog is backlog and ts.serial == backlog.serials[at]:
            found.append(ts)
    items = [item for item in backlog.heap if item[6].backlog is backlog and item[6].serial == item[5]]
    items.sort()
    found.extend([item[6] for item in items])
    return found


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


def backlog_for(ws: WorkerState, ts: TaskState) -> Backlog:
    """The backlog in which a worker keeps such a task. A task at its head that is blocked blocks only its like."""
    resources = ts.options.resources
    if not resources:
        return ws.ready
    demands = ws.demands
    if demands is None:
        demands = ws.demands = {}
    signature = "|".join([f"{name}={resources[name]!r}" for name in sorted(resources)])
    found = demands.get(signature)
    if found is not None:
        return found
    if len(demands) >= DEMANDS_EXACT:
        _drop_empty(demands)
    if len(demands) >= DEMANDS_EXACT:
        signature = "|".join([f"{name}~{frexp(resources[name])[1]}" for name in sorted(resources)])
        found = demands.get(signature)
        if found is None and len(demands) >= DEMANDS_MAX:
            signature = "*"
            found = demands.get(signature)
    if found is None:
        found = demands[signature] = Backlog(ws)
    return found


def _drop_empty(demands: dict[str, Backlog]) -> None:
    for signature in [signature for signature, backlog in demands.items() if backlog.count == 0]:
        del demands[signature]


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


def add_no_worker(cluster: Cluster, ts: TaskState) -> None:
    cluster.no_worker[ts] = cluster.now


def remove_no_worker(cluster: Cluster, ts: TaskState) -> None:
    del cluster.no_worker[ts]
    if not cluster.no_worker:
        cluster.no_worker = {}


def restart_no_worker_clock(cluster: Cluster) -> None:
    """The first worker has come: from now on a task can wait too long for a suitable one."""
    cluster.no_worker = dict.fromkeys(cluster.no_worker, cluster.now)


def close(cluster: Cluster, ws: WorkerState) -> None:
    """The worker has left, and nothing waits for it: out of the index, and no cycle of records stays behind."""
    assert waiting_count(ws) == 0, ws.name
    ws.backlog_floor = 0
    _move(cluster.workers_by_backlog, ws, -1)
    ws.ready.owner = None
    ws.roots.owner = None
    if ws.demands is not None:
        for demand in ws.demands.values():
            demand.owner = None


def _compact_heap(backlog: Backlog) -> None:
    """Drop dead entries once they outnumber the live ones: amortised O(1) for each removal."""
    live = [item for item in backlog.heap if item[6].backlog is backlog and item[6].serial == item[5]]
    live.sort()  # a sorted list is a heap
    backlog.heap = live


def _compact_run(backlog: Backlog) -> None:
    run: list[TaskState] = []
    serials: list[int] = []
    for at in range(backlog.at, len(backlog.run)):
        ts = backlog.run[at]
        if ts.backlog is backlog and ts.serial == backlog.serials[at]:
            run.append(ts)
            serials.append(ts.serial)
    backlog.run = run
    backlog.serials = serials
    backlog.at = 0


def _reindex(cluster: Cluster, ws: WorkerState) -> None:
    work = ws.ready.work_us + ws.roots.work_us if ws.demands is None else waiting_work_us(ws)
    if work <= 0 and waiting_count(ws) > 0:
        work = 1
    if ws.backlog_floor <= work < 2 * ws.backlog_floor:
        return  # still in its bucket
    bucket = bucket_of(work)
    if bucket != ws.backlog_bucket:
        ws.backlog_floor = 1 << bucket if bucket >= 0 else 0
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
