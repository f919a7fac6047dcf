"""Sole writer of which task is sent to which worker: runs, occupancy, resources in use, and windows.

Occupancy is the estimated work of what is sent and not long-running, in whole microseconds: what was added is
what is taken away, so it returns to exactly zero.
"""

from __future__ import annotations

from shunter.state.cluster import Cluster, LoadIndex, bucket_of
from shunter.state.costs import duration_us
from shunter.state.model import TaskState, WorkerState

#: How much longer a task that was given up is guessed to run, microseconds: nobody knows.
HELD_US = 60_000_000
#: Resources above this are as good as endless.
AMOUNT_MAX = 1e12


def assign(cluster: Cluster, ts: TaskState, ws: WorkerState) -> None:
    """Give a task to a worker. The only place that links the two."""
    assert ts.processing_on is None, ts.key
    ts.processing_on = ws
    ts.run_id = cluster.next_run_id
    cluster.next_run_id += 1
    ts.run_work_us = duration_us(cluster, ts.kind)
    if has_idle_thread(ws):
        ws.progress_at = cluster.now
    ws.processing[ts] = None
    ws.occupancy_us += ts.run_work_us
    resources = ts.options.resources
    if resources:
        for name, amount in resources.items():
            units = millionths(amount)
            if units:
                ws.used[name] = ws.used.get(name, 0) + units
    _reindex(cluster, ws)


def unassign(cluster: Cluster, ts: TaskState) -> WorkerState:
    """The run is over, or given up."""
    ws = ts.processing_on
    assert ws is not None, ts.key
    ts.processing_on = None
    if ts.is_long_running:
        ts.is_long_running = False
        ws.n_long_running -= 1
    else:
        ws.occupancy_us -= ts.run_work_us
    ts.run_work_us = 0
    if ws.asked_back:
        answered(ws, ts.run_id)
    ts.run_id = 0
    ws.progress_at = cluster.now
    del ws.processing[ts]
    if not ws.processing:
        ws.processing = {}
    resources = ts.options.resources
    if resources:
        for name, amount in resources.items():
            left = ws.used.get(name, 0) - millionths(amount)
            if left:
                ws.used[name] = left
            else:
                ws.used.pop(name, None)
    _reindex(cluster, ws)
    return ws


def set_long_running(cluster: Cluster, ts: TaskState) -> None:
    """The task gave its thread back: it stays assigned, and no longer counts as load."""
    ws = ts.processing_on
    assert ws is not None and not ts.is_long_running, ts.key
    ts.is_long_running = True
    ws.n_long_running += 1
    ws.progress_at = cluster.now
    ws.occupancy_us -= ts.run_work_us
    ts.run_work_us = 0
    _reindex(cluster, ws)


def ask_back(ts: TaskState, thief: WorkerState) -> None:
    """A TakeBack is under way, for a worker with an idle thread."""
    ws = ts.processing_on
    assert ws is not None, ts.key
    ws.asked_back[ts.run_id] = (ts, thief)
    thief.n_expected += 1


def answered(ws: WorkerState, run_id: int) -> tuple[TaskState, WorkerState] | None:
    """A TakeBack was answered: what it was about and for whom, if that run is still the current one."""
    found = ws.asked_back.pop(run_id, None)
    if found is not None:
        found[1].n_expected -= 1
    return found


def n_sent(ws: WorkerState) -> int:
    """Tasks sent and unfinished that hold or want a thread; those given up that still run are among them."""
    return len(ws.processing) - ws.n_long_running + ws.n_held


def load_us(ws: WorkerState) -> int:
    """Estimated work before a thread is free, summed over the threads."""
    return ws.occupancy_us + HELD_US * ws.n_held if ws.n_held else ws.occupancy_us


def has_idle_thread(ws: WorkerState) -> bool:
    return len(ws.processing) - ws.n_long_running + ws.n_held < ws.nthreads


def hold_threads(cluster: Cluster, ws: WorkerState, count: int) -> None:
    """So many threads are not to be had, although nothing that counts runs on them."""
    ws.n_held = max(0, min(count, ws.nthreads))
    _reindex(cluster, ws)


def window_of(cluster: Cluster, ws: WorkerState, ts: TaskState) -> int:
    """How many tasks may be sent to a worker, given the kind of the next one.

    Its threads, and as many more as its threads finish in ``window_s``: at least one, at most ``window_max``.
    Kinds that are unknown or whose results are large get one more, no others: roots are not overproduced.
    """
    kind = ts.kind
    threads = ws.nthreads
    us = kind.duration_us
    settings = cluster.settings
    if us < 0 or kind.nbytes >= settings.large_result:
        return threads + 1
    window_us = int(settings.window_s * 1e6) * threads
    ahead = (window_us + us - 1) // us if us > 0 else settings.window_max
    if ahead < 1:
        ahead = 1
    elif ahead > settings.window_max:
        ahead = settings.window_max
    return threads + ahead


def has_room(cluster: Cluster, ws: WorkerState, ts: TaskState) -> bool:
    return n_sent(ws) < window_of(cluster, ws, ts)


def fits_now(ws: WorkerState, ts: TaskState) -> bool:
    """The resources it asks for are free on this worker."""
    resources = ts.options.resources
    if not resources:
        return True
    for name, amount in resources.items():
        if ws.used.get(name, 0) + millionths(amount) > ws.supply.get(name, 0):
            return False
    return True


def supplies(ws: WorkerState, resources: dict[str, float] | None) -> bool:
    """The worker has so much of everything, in use or not."""
    if not resources:
        return True
    for name, amount in resources.items():
        if millionths(amount) > ws.supply.get(name, 0):
            return False
    return True


def count_suppliers(workers: list[WorkerState], name: str, units: int) -> int:
    """How many of these workers, those first that have most of a resource, have so much of it."""
    low = 0
    high = len(workers)
    while low < high:
        middle = (low + high) // 2
        if workers[middle].supply[name] >= units:
            low = middle + 1
        else:
            high = middle
    return low


def millionths(amount: float) -> int:
    """Resource amounts are counted in whole millionths, so that sums are exact; absurd ones are cut off."""
    if not amount > 0.0:  # Not a number asks for nothing.
        return 0
    return round(min(amount, AMOUNT_MAX) * 1e6)


def unindex(cluster: Cluster, ws: WorkerState) -> None:
    """Take a worker that leaves out of the index of loads."""
    ws.sent_floor = 0
    _move(cluster.workers_by_sent, ws, -1)


def _reindex(cluster: Cluster, ws: WorkerState) -> None:
    """Index workers that have more sent than threads by how much work that is."""
    if n_sent(ws) <= ws.nthreads:
        if ws.sent_bucket >= 0:
            ws.sent_floor = 0
            _move(cluster.workers_by_sent, ws, -1)
        return
    load = load_us(ws) + 1
    if ws.sent_floor <= load < 2 * ws.sent_floor:
        return  # still in its bucket
    bucket = bucket_of(load)
    ws.sent_floor = 1 << bucket
    _move(cluster.workers_by_sent, ws, bucket)


def _move(index: LoadIndex, ws: WorkerState, bucket: int) -> None:
    old = ws.sent_bucket
    if old >= 0:
        members = index.buckets[old]
        last = members.pop()
        if last is not ws:
            members[ws.sent_slot] = last
            last.sent_slot = ws.sent_slot
        if not members:
            index.mask &= ~(1 << old)
    ws.sent_bucket = bucket
    if bucket >= 0:
        members = index.buckets[bucket]
        ws.sent_slot = len(members)
        members.append(ws)
        index.mask |= 1 << bucket
    else:
        ws.sent_slot = -1
