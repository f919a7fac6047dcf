"""Late binding: fill windows, give unsent work to idle threads, take sent work back.

Theory of operation. Only the window of a worker is committed; everything else waits here. At the end of a step
`run` looks at the workers that got work or room in it:

1. each is filled from its own backlog up to its window, and from the root queue up to its threads, by priority;
2. root tasks that are left go to idle threads anywhere, one each, in rotation;
3. those still left compete for the windows of the workers from 1 and 2;
4. idle threads take unsent work from the worker with the heaviest backlog, if they would start it sooner by more
   than twice the transfer and once the duration (ALGORITHMS: late binding, bounded attempts);
5. if none of that moves, a worker with much sent work is asked to give back half of what it has not started.
   Only its answer proves that a task had not started.

Every loop is bounded by what the step touched, never by the number of tasks or workers. While idle threads and
work that could not be moved exist, a timer has this looked at again.
"""

from __future__ import annotations

from shunter.state import assignment, backlog
from shunter.state.assignment import fits_now, has_idle_thread, has_room, load_us, n_sent
from shunter.state.cluster import Cluster, Timer
from shunter.state.costs import duration_us, note_transfers, size_of
from shunter.state.model import Backlog, TaskState, WorkerState
from shunter.state.names import RUNNING
from shunter.state.outbox import Input
from shunter.state.placement import is_permitted, missing_bytes, start_s
from shunter.state.replicas import some_holders
from shunter.state.transitions import queued_to_processing

HOLDERS_NAMED_MAX = 4  # of each input, in ComputeTasks
LOOK_AT_MAX = 8  # tasks of a heavy backlog that an idle thread looks at
VICTIMS_MAX = 4  # workers with much work that an idle thread looks at
RETRY_S = 0.05  # until idle threads look again


def run(cluster: Cluster) -> None:
    """Dispatch completely: see the theory of operation."""
    workers = backlog.take_hungry(cluster)
    for ws in workers:
        if ws.status == RUNNING:
            _fill(cluster, ws, beyond_threads=False)
    if cluster.roots.count > 0:
        _spread_roots(cluster)
        workers.extend(backlog.take_hungry(cluster))
        for ws in workers:
            if ws.status == RUNNING:
                _fill(cluster, ws, beyond_threads=True)
    if cluster.idle:
        _feed_idle(cluster, 2 * len(workers) + 2)


def list_idle(cluster: Cluster, ws: WorkerState) -> None:
    """The worker may have an idle thread."""
    if not ws.listed_idle:
        ws.listed_idle = True
        cluster.idle.append(ws)


def send(cluster: Cluster, ts: TaskState, ws: WorkerState) -> None:
    """Commit a queued task to a worker, and say so."""
    queued_to_processing(cluster, ts, ws)
    message = cluster.outbox.compute(ws.number)
    message.keys.append(ts.key)
    message.run_ids.append(ts.run_id)
    message.specs.append(ts.spec)
    message.priorities.append((-ts.user_priority, ts.share, ts.generation, ts.order))
    message.options.append(ts.options)
    message.inline_max.append(cluster.settings.inline_max if ts.wanter is not None else 0)
    message.lives.append(ts.index)
    deps = ts.dependencies
    if deps is None:
        message.inputs.append(None)
        return
    inputs: list[Input] = []
    for dep in deps:
        inputs.append((dep.key, size_of(cluster, dep), some_holders(dep, HOLDERS_NAMED_MAX), dep.index))
    message.inputs.append(inputs)
    note_transfers(cluster, ts, ws)


# ---------------------------------------------------------------------------------------------- filling


def _fill(cluster: Cluster, ws: WorkerState, *, beyond_threads: bool) -> None:
    """Send what it should run next, up to its window; shared roots up to its threads only, or beyond them too."""
    shared = cluster.roots
    while True:
        ts = _next_for(cluster, ws)
        if ts is None or not has_room(cluster, ws, ts):
            break
        if ts.backlog is shared and not beyond_threads and not has_idle_thread(ws):
            break
        send(cluster, ts, ws)
    if has_idle_thread(ws):
        list_idle(cluster, ws)


def _next_for(cluster: Cluster, ws: WorkerState) -> TaskState | None:
    """What the worker should run next: of what waits for it, and of the roots that anyone may run.

    Downstream work goes before roots of the same user priority and share, whatever was submitted first: it
    frees memory, roots use it.
    """
    best = backlog.head(ws.ready)
    if ws.demands is not None:
        for demand in ws.demands.values():
            ts = backlog.head(demand)
            if ts is not None and fits_now(ws, ts) and (best is None or backlog.runs_before(ts, best)):
                best = ts
    root = backlog.head(ws.roots)
    if cluster.roots.count > 0:
        shared = backlog.head(cluster.roots)
        if shared is not None and (root is None or backlog.runs_before(shared, root)):
            root = shared
    if best is None:
        return root
    if root is not None and (
        root.user_priority > best.user_priority
        or (root.user_priority == best.user_priority and root.share < best.share)
    ):
        return root
    return best


def _spread_roots(cluster: Cluster) -> None:
    """Root tasks go to idle threads, one each, in rotation."""
    idle = cluster.idle
    while idle:
        ts = backlog.head(cluster.roots)
        if ts is None:
            return
        ws = idle.popleft()
        ws.listed_idle = False
        if ws.status != RUNNING or not has_idle_thread(ws):
            continue
        send(cluster, ts, ws)
        backlog.mark_hungry(cluster, ws)
        if has_idle_thread(ws):
            list_idle(cluster, ws)


# ---------------------------------------------------------------------------------------------- moving


def _feed_idle(cluster: Cluster, attempts: int) -> None:
    """Bring idle threads and work that is elsewhere together, as long as that goes well."""
    idle = cluster.idle
    failed = 0
    while idle and failed < 2 and attempts > 0:
        ws = idle.popleft()
        ws.listed_idle = False
        if ws.status != RUNNING or not has_idle_thread(ws):
            continue
        attempts -= 1
        moved = (cluster.unsent > 0 and _take_unsent(cluster, ws)) or _ask_back(cluster, ws)
        if not moved:
            failed += 1
        if has_idle_thread(ws):
            list_idle(cluster, ws)
        if not moved and cluster.unsent == 0 and cluster.workers_by_sent.mask == 0:
            return  # nothing to move anywhere
    if idle and (cluster.workers_by_backlog.mask != 0 or cluster.workers_by_sent.mask != 0):
        arm_retry(cluster)


def arm_retry(cluster: Cluster) -> None:
    if not cluster.is_retry_armed:
        cluster.is_retry_armed = True
        cluster.wake_at(cluster.now + RETRY_S, Timer("idle", 0))


def on_retry(cluster: Cluster) -> None:
    """The timer of `arm_retry`: look again, a bounded number of times."""
    cluster.is_retry_armed = False
    _feed_idle(cluster, 16)


def _take_unsent(cluster: Cluster, thief: WorkerState) -> bool:
    """An idle thread takes unsent work from a heavy backlog, as long as each task would start sooner here."""
    cluster.marks += 1
    for victim in cluster.workers_by_backlog.heaviest(thief, VICTIMS_MAX, cluster.marks):
        if _take_unsent_of(cluster, victim, thief):
            return True
    return False


def _take_unsent_of(cluster: Cluster, victim: WorkerState, thief: WorkerState) -> bool:
    moved = False
    for place in _backlogs(victim):
        for ts in backlog.first_tasks(place, LOOK_AT_MAX):
            if not has_room(cluster, thief, ts):
                return moved
            if not _may_move(ts, thief) or not fits_now(thief, ts):
                continue
            if _gain_s(cluster, ts, victim, thief) > 0.0:
                send(cluster, ts, thief)
                moved = True
    return moved


def _backlogs(ws: WorkerState) -> list[Backlog]:
    found = [ws.ready, ws.roots]
    if ws.demands is not None:
        found.extend(ws.demands.values())
    return found


def _may_move(ts: TaskState, thief: WorkerState) -> bool:
    return ts.options.stealable and ts.avoid != thief.number and is_permitted(ts, thief)


def _gain_s(cluster: Cluster, ts: TaskState, victim: WorkerState, thief: WorkerState) -> float:
    """How much sooner the task starts here, less a margin: twice its transfer and once its duration."""
    if victim.status != RUNNING:
        return 1.0
    missing = missing_bytes(cluster, ts, thief)
    there = start_s(cluster, victim, missing_bytes(cluster, ts, victim))
    there += _underestimate_s(cluster, ts, victim, ts.estimate_us, backlog.waiting_count(victim))
    there = max(there, _silence_s(cluster, victim))
    here = load_us(thief) / (1e6 * thief.nthreads)
    transfer = start_s(cluster, thief, missing) - start_s(cluster, thief, 0)
    return there - here - transfer - 2.0 * transfer - duration_us(cluster, ts.kind) / 1e6


def _ask_back(cluster: Cluster, thief: WorkerState) -> bool:
    """Ask a worker with much sent work for half of what it has not started, newest first."""
    if n_sent(thief) + thief.n_expected >= thief.nthreads:
        return False  # What it has asked for already will keep it busy.
    cluster.marks += 1
    for victim in cluster.workers_by_sent.heaviest(thief, VICTIMS_MAX, cluster.marks):
        if not victim.asked_back and _ask_back_from(cluster, victim, thief):
            return True
    return False


def _ask_back_from(cluster: Cluster, victim: WorkerState, thief: WorkerState) -> bool:
    surplus = n_sent(victim) - victim.nthreads
    wanted = (surplus + 1) // 2
    asked = 0
    looked_at = 0
    for ts in reversed(victim.processing):
        looked_at += 1
        if asked >= wanted or looked_at > surplus:
            break
        if ts.is_long_running or not _may_move(ts, thief):
            continue
        if _ask_gain_s(cluster, ts, victim, thief) <= 0.0:
            continue
        assignment.ask_back(ts, thief)
        cluster.outbox.take_back(victim.number, ts.run_id)
        asked += 1
    return asked > 0


def _ask_gain_s(cluster: Cluster, ts: TaskState, victim: WorkerState, thief: WorkerState) -> float:
    """As `_gain_s`, less the round trip of asking."""
    there = load_us(victim) / (1e6 * victim.nthreads)
    there += _underestimate_s(cluster, ts, victim, ts.run_work_us, n_sent(victim))
    there = max(there, _silence_s(cluster, victim))
    transfer = start_s(cluster, thief, missing_bytes(cluster, ts, thief)) - start_s(cluster, thief, 0)
    round_trip = cluster.settings.latency
    return there - 2.0 * transfer - duration_us(cluster, ts.kind) / 1e6 - round_trip


def _silence_s(cluster: Cluster, ws: WorkerState) -> float:
    """How long no run has ended on a busy worker. What has taken so long, whatever the estimate, may as well again."""
    return cluster.now - ws.progress_at if n_sent(ws) >= ws.nthreads else 0.0


def _underestimate_s(cluster: Cluster, ts: TaskState, ws: WorkerState, estimate_us: int, n: int) -> float:
    """How much longer its ``n`` tasks take than was thought, if they are as wrongly estimated as this one.

    The first tasks of a kind may be short by accident; those that were sent or queued then would never be moved.
    """
    missing_us = duration_us(cluster, ts.kind) - estimate_us
    return missing_us * n / (1e6 * ws.nthreads) if missing_us > 0 else 0.0
