"""Which worker a runnable task prefers. Reads only.

Theory of operation: a task is not placed for good, it only joins the backlog of the worker that it would start on
soonest; a worker that runs dry takes from there (`dispatch`). Tasks with inputs look at the holders of their
inputs, in one pass: O(inputs + candidates). Tasks without inputs join the cluster's root queue, or the home
block that `graphs` gave them. Limits (named workers, resources, a worker to avoid) come first.
"""

from __future__ import annotations

from shunter.state.assignment import count_suppliers, load_us, millionths, supplies
from shunter.state.backlog import backlog_for, waiting_work_us
from shunter.state.cluster import Cluster
from shunter.state.costs import size_of, transfer_s
from shunter.state.model import Backlog, TaskState, WorkerState
from shunter.state.names import RUNNING

#: Holders looked at for each input, and workers looked at for a task without a place of its own.
HOLDERS_MAX = 8
CANDIDATES_MAX = 16


def choose_backlog(cluster: Cluster, ts: TaskState) -> Backlog | None:
    """The backlog that a runnable task should join; None if no permitted worker is running."""
    if cluster.running == 0:
        return None
    if is_limited(ts) or ts.avoid >= 0:
        return _choose_limited(cluster, ts)
    if ts.dependencies is None:
        return cluster.roots
    ws = _best_holder(cluster, ts)
    return ws.ready if ws is not None else cluster.roots


def is_limited(ts: TaskState) -> bool:
    """It may not run just anywhere."""
    options = ts.options
    return options.workers is not None or bool(options.resources)


def is_permitted(ts: TaskState, ws: WorkerState) -> bool:
    """The worker may run the task, whatever is in use there now."""
    options = ts.options
    if options.resources and not supplies(ws, options.resources):
        return False
    named = options.workers
    if named is None or options.allow_other_workers:
        return True
    return ws.name in named or ws.address in named or ws.host in named


def start_s(cluster: Cluster, ws: WorkerState, missing: int) -> float:
    """Seconds until a task could start there, if it had to bring ``missing`` bytes."""
    return (load_us(ws) + waiting_work_us(ws)) / (1e6 * ws.nthreads) + transfer_s(cluster, ws, missing)


def missing_bytes(cluster: Cluster, ts: TaskState, ws: WorkerState) -> int:
    """Bytes of the task's inputs that the worker does not hold. O(inputs)."""
    missing = 0
    if ts.dependencies is not None:
        for dep in ts.dependencies:
            if dep not in ws.has_what:
                missing += size_of(cluster, dep)
    return missing


def _best_holder(cluster: Cluster, ts: TaskState) -> WorkerState | None:
    """The running holder of some input on which the task would start soonest; ties to the older worker."""
    deps = ts.dependencies
    assert deps is not None
    candidates: list[WorkerState] = []
    total = 0
    cluster.marks += 1
    mark = cluster.marks
    for dep in deps:
        size = size_of(cluster, dep)
        total += size
        ws = dep.holder
        if ws is None:
            continue
        _tally(candidates, ws, size, mark)
        if dep.holders is not None:
            seen = 1
            for other in dep.holders:
                if seen >= HOLDERS_MAX:
                    break
                _tally(candidates, other, size, mark)
                seen += 1
    if len(candidates) == 1 and candidates[0].status == RUNNING:
        return candidates[0]
    best: WorkerState | None = None
    best_start = 0.0
    for ws in candidates:
        if ws.status != RUNNING:
            continue
        start = start_s(cluster, ws, total - ws.tally)
        if best is None or start < best_start or (start == best_start and ws.index < best.index):
            best = ws
            best_start = start
    return best


def _tally(candidates: list[WorkerState], ws: WorkerState, size: int, mark: int) -> None:
    if ws.tally_mark != mark:
        ws.tally_mark = mark
        ws.tally = 0
        candidates.append(ws)
    ws.tally += size


def _choose_limited(cluster: Cluster, ts: TaskState) -> Backlog | None:
    best = _soonest_named(cluster, ts, ts.avoid)
    if best is None and ts.options.workers is not None and ts.options.allow_other_workers:
        best = _soonest_supplier(cluster, ts, ts.avoid)
    if best is None and ts.avoid >= 0:  # better there than nowhere
        best = _soonest_named(cluster, ts, -1)
    return backlog_for(best, ts) if best is not None else None


def _soonest_named(cluster: Cluster, ts: TaskState, avoid: int) -> WorkerState | None:
    """Among the workers that the task names, or those that have its resources."""
    named = ts.options.workers
    if named is None:
        return _soonest_supplier(cluster, ts, avoid)
    workers = _workers_named(cluster, named)
    return _soonest(cluster, ts, workers, len(workers), avoid)


def _workers_named(cluster: Cluster, named: list[str]) -> list[WorkerState]:
    """By name, address or host, looked up now: a name outlives its worker."""
    found: list[WorkerState] = []
    for name in named:
        ws = cluster.workers_by_name.get(name)
        if ws is None:
            ws = cluster.workers_by_address.get(name)
        if ws is not None:
            found.append(ws)
        on_host = cluster.workers_by_host.get(name)
        if on_host is not None:
            found.extend(on_host)
    return found


def _soonest_supplier(cluster: Cluster, ts: TaskState, avoid: int) -> WorkerState | None:
    """Among the running workers that have enough of its rarest resource; among all, if it asks for none."""
    resources = ts.options.resources
    rarest = cluster.worker_list
    count = len(rarest)
    if resources:
        is_first = True
        for name, amount in resources.items():
            units = millionths(amount)
            if units == 0:
                continue
            have = cluster.suppliers.get(name)
            if have is None:
                return None
            enough = count_suppliers(have, name, units)
            if is_first or enough < count:
                is_first = False
                rarest = have
                count = enough
    return _soonest(cluster, ts, rarest, count, avoid)


def _soonest(
    cluster: Cluster, ts: TaskState, workers: list[WorkerState], n: int, avoid: int
) -> WorkerState | None:
    """Where it would start soonest, among the next few permitted ones of the first ``n``: the walk's start rotates."""
    if n == 0:
        return None
    best: WorkerState | None = None
    best_start = 0.0
    looked_at = 0
    first = cluster.marks % n
    cluster.marks += 1
    for i in range(n):
        ws = workers[(first + i) % n]
        if ws.status != RUNNING or ws.number == avoid or not supplies(ws, ts.options.resources):
            continue
        start = start_s(cluster, ws, missing_bytes(cluster, ts, ws))
        if best is None or start < best_start:
            best = ws
            best_start = start
        looked_at += 1
        if looked_at >= CANDIDATES_MAX:
            break
    return best
