"""Workers that come, pause and go; who is to blame for a death; and tasks that no worker may run.

A worker that goes leaves every index first, else its tasks would go back to it. Its tasks run again at once;
which of them had started, and so are suspect, is known when its parent process has told (`WorkerDied`), or is
presumed after ``blame_wait``.
"""

from __future__ import annotations

from shunter.state import assignment, backlog, engine, events, replicas, transitions
from shunter.state.cluster import Cluster, Grave, Timer
from shunter.state.events import Failure, Options
from shunter.state.model import TaskState, WorkerState
from shunter.state.names import (
    CLOSED,
    FAILED_KILLED_WORKER,
    FAILED_NO_WORKER,
    MEMORY,
    QUEUED,
    RELEASED,
    RUNNING,
    WAITING,
    WorkerStatus,
)
from shunter.state.outbox import ClosePeer, KillWorker, WorkerGone

LOST_WITH_MAX = 8  # names of lost workers in the failure of data that was lost with them

# ---------------------------------------------------------------------------------------------- workers


def on_worker_added(cluster: Cluster, event: events.WorkerAdded) -> None:
    """A new incarnation. What stands at the same address or name is older, and is replaced."""
    number = event.worker
    is_taken = number in cluster.workers or number in cluster.clients or number in cluster.graves
    if number < 0 or is_taken or event.nthreads < 1:
        cluster.dropped_events += 1
        if number >= 0 and number not in cluster.clients:
            cluster.outbox.push(ClosePeer(number, "registered twice, or without a thread"))
        return
    for older in (
        cluster.workers_by_address.get(event.address),
        cluster.workers_by_name.get(event.name),
    ):
        if older is not None and older.number in cluster.workers:
            cluster.outbox.push(ClosePeer(older.number, "a newer worker has its address or name"))
            # Most likely it died and was started again before its broken link was seen.
            remove_worker(cluster, older, "replaced by a newer worker", expected=False)
    supply = {name: assignment.millionths(amount) for name, amount in event.resources.items()}
    ws = WorkerState(
        event.worker,
        cluster.next_index,
        event.address,
        event.name,
        event.host,
        event.nthreads,
        event.memory_limit,
        supply,
        event.has_parent,
        cluster.now,
    )
    cluster.next_index += 1
    cluster.workers[ws.number] = ws
    cluster.worker_list.append(ws)
    cluster.workers_by_address[ws.address] = ws
    cluster.workers_by_name[ws.name] = ws
    cluster.workers_by_host.setdefault(ws.host, {})[ws] = None
    if not cluster.had_workers:
        cluster.had_workers = True
        backlog.restart_no_worker_clock(cluster)
    if cluster.settings.worker_ttl > 0.0:
        cluster.wake_at(cluster.now + cluster.settings.worker_ttl, Timer("ttl", ws.number))
    _start_running(cluster, ws)


def _start_running(cluster: Cluster, ws: WorkerState) -> None:
    cluster.running += 1
    cluster.total_threads += ws.nthreads
    _list_supplies(cluster, ws)
    for ts in cluster.no_worker:
        cluster.recommend(ts, QUEUED)
    backlog.mark_hungry(cluster, ws)


def _stop_running(cluster: Cluster, ws: WorkerState) -> None:
    """It takes no more work: what waited for it waits elsewhere."""
    cluster.running -= 1
    cluster.total_threads -= ws.nthreads
    _unlist_supplies(cluster, ws)
    places = [ws.ready, ws.roots]
    if ws.demands is not None:
        places.extend(ws.demands.values())
    if cluster.running == 0:
        places.append(cluster.roots)
    for place in places:
        for ts in backlog.all_tasks(place):
            cluster.recommend(ts, WAITING)


def _list_supplies(cluster: Cluster, ws: WorkerState) -> None:
    """Who has most of a resource comes first: those that have enough are found without looking at the others."""
    for name, units in ws.supply.items():
        have = cluster.suppliers.setdefault(name, [])
        have.insert(assignment.count_suppliers(have, name, units), ws)


def _unlist_supplies(cluster: Cluster, ws: WorkerState) -> None:
    for name in ws.supply:
        cluster.suppliers[name].remove(ws)
        if not cluster.suppliers[name]:
            del cluster.suppliers[name]


def on_worker_status_changed(cluster: Cluster, event: events.WorkerStatusChanged) -> None:
    ws = cluster.workers.get(event.worker)
    if ws is None or event.status == CLOSED:
        cluster.dropped_events += 1
        return
    _set_status(cluster, ws, event.status)


def _set_status(cluster: Cluster, ws: WorkerState, status: WorkerStatus) -> None:
    was_running = ws.status == RUNNING
    ws.status = status
    if was_running and status != RUNNING:
        _stop_running(cluster, ws)
        if status != CLOSED:
            _ask_all_back(cluster, ws)
    elif status == RUNNING and not was_running:
        _start_running(cluster, ws)


def _ask_all_back(cluster: Cluster, ws: WorkerState) -> None:
    """What it has not started need not wait until it runs again."""
    for ts in ws.processing:
        if not ts.is_long_running and ts.run_id not in ws.asked_back:
            assignment.ask_back(ts, ws)
            cluster.outbox.take_back(ws.number, ts.run_id)


def seen(cluster: Cluster, ws: WorkerState) -> None:
    """It has said something."""
    ws.last_seen = cluster.now


def on_heartbeat(cluster: Cluster, event: events.Heartbeat) -> None:
    ws = cluster.workers.get(event.worker)
    if ws is None:
        cluster.dropped_events += 1
        return
    seen(cluster, ws)
    ws.process = event.process
    ws.spilled = event.spilled
    ws.cpu = event.cpu


def on_silence(cluster: Cluster, number: int) -> None:
    """The time of a worker is over, unless it has been heard meanwhile.

    One more tenth of it is given after the timer was due: if it was the scheduler that stood still (a sleeping
    laptop, a stopped process), what workers said meanwhile has still to be read.
    """
    ws = cluster.workers.get(number)
    if ws is None:
        return
    ttl = cluster.settings.worker_ttl
    if cluster.now < ws.last_seen + ttl:
        cluster.wake_at(ws.last_seen + ttl, Timer("ttl", number))
    else:
        cluster.wake_at(cluster.now + ttl / 10.0, Timer("ttl-over", number))


def on_silence_again(cluster: Cluster, number: int) -> None:
    """Still not a word: take it for dead. Its parent, if it has one, is to replace it."""
    ws = cluster.workers.get(number)
    if ws is None:
        return
    ttl = cluster.settings.worker_ttl
    if cluster.now < ws.last_seen + ttl:
        cluster.wake_at(ws.last_seen + ttl, Timer("ttl", number))
        return
    reason = (
        f"nothing was heard of it for {cluster.now - ws.last_seen:.0f} s (worker_ttl is {ttl:g} s):"
        " its process is stopped, its host is gone, or a task holds the interpreter lock"
    )
    if ws.has_parent:
        cluster.outbox.push(KillWorker(number, reason))
    cluster.outbox.push(ClosePeer(number, reason))
    remove_worker(cluster, ws, reason, expected=False)


def on_worker_removed(cluster: Cluster, event: events.WorkerRemoved) -> None:
    ws = cluster.workers.get(event.worker)
    if ws is None:
        cluster.dropped_events += 1  # it left twice: its link broke while it was being replaced
        return
    remove_worker(cluster, ws, event.reason, event.expected)


def remove_worker(cluster: Cluster, ws: WorkerState, reason: str, expected: bool) -> None:
    """Out of every index first, else tasks would go back to it; then its work and its data."""
    _set_status(cluster, ws, CLOSED)
    del cluster.workers[ws.number]
    cluster.worker_list.remove(ws)
    del cluster.workers_by_address[ws.address]
    if cluster.workers_by_name.get(ws.name) is ws:
        del cluster.workers_by_name[ws.name]
    on_host = cluster.workers_by_host[ws.host]
    del on_host[ws]
    if not on_host:
        del cluster.workers_by_host[ws.host]

    running = list(ws.processing)
    run_ids = [ts.run_id for ts in running]
    for ts in running:  # Before it is released: else the agenda finds that nobody needs its inputs.
        cluster.recommend(ts, WAITING)
        transitions.processing_to_released(cluster, ts, tell=False)
    if running and not expected:
        _bury(cluster, ws, Grave(ws.name, ws.nthreads, reason, run_ids, running))
    for ts in list(ws.has_what):
        replicas.remove_holder(ts, ws)
        if ts.spec is None:
            names = cluster.lost_with.setdefault(ts, [])
            if len(names) < LOST_WITH_MAX:
                names.append(ws.name)
        if ts.holder is None:
            cluster.recommend(ts, RELEASED)
    engine.settle(cluster)  # its backlogs are empty after this
    backlog.close(cluster, ws)
    assignment.unindex(cluster, ws)
    for other in cluster.workers.values():
        cluster.outbox.push(WorkerGone(other.number, ws.number))
    cluster.say(
        "info" if expected else "warning",
        "worker-removed",
        {"worker": ws.name, "address": ws.address, "reason": reason, "tasks": len(running)},
    )


# ---------------------------------------------------------------------------------------------- blame


def _bury(cluster: Cluster, ws: WorkerState, grave: Grave) -> None:
    """Keep what ran on a worker that is gone, until it is known which of it had started."""
    if ws.death is not None:
        cause, started = ws.death
        _blame(cluster, grave, cause, started)
        return
    cluster.graves[ws.number] = grave
    cluster.wake_at(cluster.now + cluster.settings.blame_wait, Timer("grave", ws.number))


def on_worker_died(cluster: Cluster, event: events.WorkerDied) -> None:
    """Its parent process tells why. This may come before the link is seen to break."""
    grave = cluster.graves.pop(event.worker, None)
    if grave is not None:
        _blame(cluster, grave, event.cause, event.started)
        return
    ws = cluster.workers.get(event.worker)
    if ws is None:
        cluster.dropped_events += 1
        return
    ws.death = (event.cause, event.started)


def settle_grave(cluster: Cluster, number: int) -> None:
    """Nobody said in time which had started: presume the first ones sent, as many as it had threads."""
    grave = cluster.graves.pop(number, None)
    if grave is not None:
        _blame(cluster, grave, grave.reason, grave.run_ids[: grave.nthreads])


def _blame(cluster: Cluster, grave: Grave, cause: str, started: list[int]) -> None:
    """Suspect the tasks that had started; one that was there too often fails."""
    blamed = frozenset(started)
    for i in range(len(grave.tasks)):
        ts = grave.tasks[i]
        if grave.run_ids[i] not in blamed or cluster.tasks.get(ts.key) is not ts or ts.state == MEMORY:
            continue
        deaths = transitions.suspect(ts)
        allowed = cluster.settings.allowed_failures
        if deaths > allowed:
            cluster.recommend_erred(
                ts,
                Failure(
                    FAILED_KILLED_WORKER,
                    ts.key,
                    f"{deaths} {'worker' if deaths == 1 else 'workers'} died while running {ts.key!r},"
                    f" the last one, {grave.name!r}: {cause}. Deaths allowed: {allowed}."
                    " Look at that worker's log, or run the function alone",
                    fields={"deaths": deaths, "worker": grave.name, "cause": cause},
                ),
            )


# ---------------------------------------------------------------------------------------------- no worker


def arm_no_worker(cluster: Cluster) -> None:
    """Have a timer look at the task that has been without a worker for longest."""
    limit = cluster.settings.no_workers_timeout
    if limit <= 0.0 or cluster.is_no_worker_armed or not cluster.had_workers or not cluster.no_worker:
        return
    for since in cluster.no_worker.values():
        cluster.is_no_worker_armed = True
        cluster.wake_at(since + limit, Timer("no-worker", 0))
        return


def fail_without_worker(cluster: Cluster) -> None:
    """Tasks that have waited too long for a permitted worker fail, with the reason."""
    cluster.is_no_worker_armed = False
    limit = cluster.settings.no_workers_timeout
    reasons: dict[Options, str] = {}  # tasks of a submission share them: every worker is looked at once
    for ts, since in cluster.no_worker.items():
        if since + limit > cluster.now:
            break  # insertion order is time order
        reason = reasons.get(ts.options)
        if reason is None:
            reason = reasons[ts.options] = why_no_worker(cluster, ts)
        text = f"{reason}; {ts.key!r} has waited {limit:g} s for one"
        fields: dict[str, object] = {"workers": len(cluster.workers), "waited": limit}
        cluster.recommend_erred(ts, Failure(FAILED_NO_WORKER, ts.key, text, fields=fields))


def why_no_worker(cluster: Cluster, ts: TaskState) -> str:
    """What is missing, and the next move."""
    if cluster.running == 0:
        state = "all workers are paused" if cluster.workers else "no worker is connected"
        return f"{state}: start some with `shunter worker`"
    options = ts.options
    if options.resources:
        lacking = [
            f"{name}={amount:g}"
            for name, amount in options.resources.items()
            if not any([assignment.supplies(ws, {name: amount}) for ws in cluster.worker_list])
        ]
        if lacking:
            return f"no worker has {', '.join(lacking)}: start one with `--resources {','.join(lacking)}`"
    if options.workers is not None:
        return (
            f"none of the workers it names ({', '.join(options.workers)}) is running with what it asks for:"
            " start one of that name, or pass allow_other_workers=True"
        )
    return "no running worker has all of its resources together"
