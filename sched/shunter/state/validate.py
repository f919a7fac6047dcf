"""Every invariant of the records, each a small function. Reads only; raises InternalError with the story.

After each step the touched tasks are checked, and everything every 32 steps.
"""

from __future__ import annotations

from shunter.state import assignment, backlog
from shunter.state.cluster import Cluster
from shunter.state.interest import is_needed, wanters_of
from shunter.state.links import dependents_of, has_dependents
from shunter.state.model import Backlog, TaskState, WorkerState
from shunter.state.names import (
    ERRED,
    FORGOTTEN,
    MEMORY,
    NO_WORKER,
    PROCESSING,
    QUEUED,
    RELEASED,
    RUNNING,
    WAITING,
)
from shunter.state.replicas import holders_of

EVERYTHING_EVERY = 32  # steps
FAN_IN_SEARCHED = 1_000  # longer lists of inputs are not searched for each of them: that would be quadratic


def after_step(cluster: Cluster) -> None:
    """What a step touched; everything now and then."""
    touched = cluster.touched
    cluster.touched = {}
    if cluster.steps % EVERYTHING_EVERY == 0:
        everything(cluster)
        return
    for ts in touched:
        if ts.state == FORGOTTEN:
            _forgotten(cluster, ts)
        else:
            task(cluster, ts)


def everything(cluster: Cluster) -> None:
    for ts in cluster.tasks.values():
        task(cluster, ts)
    for ws in cluster.workers.values():
        worker(cluster, ws)
    _tables(cluster)


def _check(cluster: Cluster, holds: bool, text: str, ts: TaskState | None = None) -> None:
    if not holds:
        raise cluster.bug(f"invariant broken: {text}", ts)


# ---------------------------------------------------------------------------------------------- tasks


def task(cluster: Cluster, ts: TaskState) -> None:
    _known(cluster, ts)
    _links(cluster, ts)
    _waiting_count(cluster, ts)
    _waiters_count(cluster, ts)
    _holders(cluster, ts)
    _wanters(cluster, ts)
    _run(cluster, ts)
    _place(cluster, ts)
    _failure(cluster, ts)
    _need(cluster, ts)


def is_active(ts: TaskState) -> bool:
    state = ts.state
    return state == WAITING or state == QUEUED or state == PROCESSING or state == NO_WORKER


def _known(cluster: Cluster, ts: TaskState) -> None:
    _check(cluster, cluster.tasks.get(ts.key) is ts, "a live task is in the table under its key", ts)


def _links(cluster: Cluster, ts: TaskState) -> None:
    if ts.dependencies is not None:
        _check(cluster, len(ts.dependencies) > 0, "no list of dependencies rather than an empty one", ts)
        for dep in ts.dependencies:
            _check(cluster, dep.state != FORGOTTEN, "no dependency is forgotten", ts)
            is_linked = dep.dependent is ts or (dep.dependents is not None and ts in dep.dependents)
            _check(cluster, is_linked, f"dependency {dep.key!r} knows its dependent", ts)
    for other in dependents_of(ts):
        _check(cluster, other.state != FORGOTTEN, "no dependent is forgotten", ts)
        deps = other.dependencies
        knows = deps is not None and (len(deps) > FAN_IN_SEARCHED or ts in deps)
        _check(cluster, knows, f"dependent {other.key!r} knows its input", ts)


def _waiting_count(cluster: Cluster, ts: TaskState) -> None:
    if ts.state == WAITING:
        n = 0
        if ts.dependencies is not None:
            n = sum([1 for dep in ts.dependencies if dep.holder is None])
        _check(cluster, ts.n_waiting == n, f"it waits for {n} inputs, not {ts.n_waiting}", ts)
        is_due = n > 0 or ts in cluster.delayed or ts.n_holds > 0
        _check(cluster, is_due, "a task that can run does not stay waiting", ts)
    else:
        _check(cluster, ts.n_waiting == 0, "only a waiting task counts inputs", ts)
    if is_active(ts) and ts.dependencies is not None:
        for dep in ts.dependencies:
            if ts.state != WAITING:
                _check(cluster, dep.holder is not None, f"input {dep.key!r} of a runnable task is held", ts)
            elif dep.holder is None:
                _check(cluster, is_active(dep), f"input {dep.key!r} of a waiting task is on its way", ts)


def _waiters_count(cluster: Cluster, ts: TaskState) -> None:
    n = sum([1 for other in dependents_of(ts) if is_active(other)])
    n += ts.n_holds
    _check(cluster, ts.n_waiters == n, f"{n} active dependents, not {ts.n_waiters}", ts)


def _holders(cluster: Cluster, ts: TaskState) -> None:
    holders = holders_of(ts)
    _check(cluster, (len(holders) > 0) == (ts.state == MEMORY), "held if and only if in memory", ts)
    _check(cluster, len(set(holders)) == len(holders), "each holder once", ts)
    for ws in holders:
        _check(cluster, cluster.workers.get(ws.number) is ws, "a holder is connected", ts)
        _check(cluster, ts in ws.has_what, "a holder lists the key", ts)


def _wanters(cluster: Cluster, ts: TaskState) -> None:
    wanters = wanters_of(ts)
    _check(cluster, len(set(wanters)) == len(wanters), "each wanting client once", ts)
    for cs in wanters:
        _check(cluster, ts in cs.wants, "a wanting client lists the key", ts)


def _run(cluster: Cluster, ts: TaskState) -> None:
    ws = ts.processing_on
    _check(cluster, (ws is not None) == (ts.state == PROCESSING), "assigned if and only if processing", ts)
    _check(cluster, (ts.run_id != 0) == (ws is not None), "a run id if and only if assigned", ts)
    if ws is not None:
        _check(cluster, ts in ws.processing, "its worker lists it", ts)
        _check(cluster, cluster.workers.get(ws.number) is ws, "its worker is connected", ts)


def _place(cluster: Cluster, ts: TaskState) -> None:
    _check(cluster, (ts.backlog is not None) == (ts.state == QUEUED), "on a heap if and only if queued", ts)
    _check(cluster, (ts in cluster.no_worker) == (ts.state == NO_WORKER), "listed as without a worker", ts)
    if ts.backlog is not None and ts.backlog.owner is not None:
        _check(cluster, ts.backlog.owner.status == RUNNING, "queued for a running worker", ts)


def _failure(cluster: Cluster, ts: TaskState) -> None:
    _check(cluster, (ts.failure is not None) == (ts.state == ERRED), "a failure if and only if erred", ts)


def _need(cluster: Cluster, ts: TaskState) -> None:
    if is_active(ts) or ts.state == MEMORY:
        _check(cluster, is_needed(ts), "what is active or in memory is needed", ts)
    if ts.state == RELEASED:
        _check(cluster, not is_needed(ts), "what is needed is not left released", ts)
    if ts.state == RELEASED or ts.state == ERRED:
        _check(cluster, is_needed(ts) or has_dependents(ts), "what nobody knows is forgotten", ts)


def _forgotten(cluster: Cluster, ts: TaskState) -> None:
    _check(cluster, cluster.tasks.get(ts.key) is not ts, "a forgotten task is not in the table", ts)
    is_free = (
        ts.dependencies is None
        and not has_dependents(ts)
        and ts.holder is None
        and ts.wanter is None
        and ts.processing_on is None
        and ts.backlog is None
    )
    _check(cluster, is_free, "a forgotten task has no links", ts)


# ---------------------------------------------------------------------------------------------- workers


def worker(cluster: Cluster, ws: WorkerState) -> None:
    _loads(cluster, ws)
    _used(cluster, ws)
    _bytes(cluster, ws)
    places = [ws.ready, ws.roots]
    if ws.demands is not None:
        places.extend(ws.demands.values())
    for place in places:
        _backlog(cluster, place)
    _check(cluster, cluster.workers_by_address.get(ws.address) is ws, f"{ws.name} is indexed by address")
    _check(cluster, cluster.workers_by_name.get(ws.name) is ws, f"{ws.name} is indexed by name")
    _check(cluster, ws in cluster.workers_by_host.get(ws.host, {}), f"{ws.name} is indexed by host")
    for name in ws.supply:
        is_listed = ws in cluster.suppliers.get(name, [])
        _check(cluster, is_listed == (ws.status == RUNNING), f"{ws.name} is indexed by its {name}")
    _check(
        cluster,
        (ws.backlog_bucket >= 0) == (backlog.waiting_count(ws) > 0),
        f"{ws.name} is indexed by backlog",
    )


def _loads(cluster: Cluster, ws: WorkerState) -> None:
    work = 0
    n_long = 0
    for ts in ws.processing:
        _check(cluster, ts.processing_on is ws, f"worker {ws.name} lists what is assigned to it", ts)
        work += ts.run_work_us
        n_long += 1 if ts.is_long_running else 0
    _check(cluster, ws.occupancy_us == work, f"occupancy of {ws.name} is {work} us, not {ws.occupancy_us}")
    _check(cluster, ws.n_long_running == n_long, f"{ws.name} has {n_long} long-running tasks")
    has_surplus = assignment.n_sent(ws) > ws.nthreads
    _check(cluster, (ws.sent_bucket >= 0) == has_surplus, f"{ws.name} is indexed by what was sent")


def _expected(cluster: Cluster) -> None:
    """What has been asked back for each worker, and not been answered."""
    expected: dict[WorkerState, int] = {}
    for victim in cluster.workers.values():
        for run_id, (ts, thief) in victim.asked_back.items():
            _check(cluster, ts.run_id == run_id, "only current runs are asked back", ts)
            expected[thief] = expected.get(thief, 0) + 1
    for ws in cluster.workers.values():
        n = expected.get(ws, 0)
        _check(cluster, ws.n_expected == n, f"{n} tasks are asked back for {ws.name}, not {ws.n_expected}")


def _used(cluster: Cluster, ws: WorkerState) -> None:
    used: dict[str, int] = {}
    for ts in ws.processing:
        if ts.options.resources:
            for name, amount in ts.options.resources.items():
                used[name] = used.get(name, 0) + assignment.millionths(amount)
    used = {name: units for name, units in used.items() if units}
    _check(cluster, ws.used == used, f"{ws.name} uses {used}, not {ws.used}")
    for name, units in used.items():
        _check(cluster, units <= ws.supply.get(name, 0), f"{ws.name} has no more {name} in use than it has")


def _bytes(cluster: Cluster, ws: WorkerState) -> None:
    total = 0
    for ts in ws.has_what:
        _check(cluster, ws in holders_of(ts), f"worker {ws.name} lists what it holds", ts)
        total += ts.nbytes if ts.nbytes > 0 else 0
    _check(cluster, ws.nbytes == total, f"{ws.name} holds {total} bytes, not {ws.nbytes}")


def _backlog(cluster: Cluster, place: Backlog) -> int:
    tasks = backlog.all_tasks(place)
    live = len(tasks)
    _check(cluster, len(set(tasks)) == live, "each task of a backlog once")
    work = sum([ts.estimate_us for ts in tasks])
    entries = range(place.at, len(place.run))
    run = [place.run[at] for at in entries if place.run[at].serial == place.serials[at]]
    run = [ts for ts in run if ts.backlog is place]
    for at in range(1, len(run)):
        _check(cluster, not backlog.runs_before(run[at], run[at - 1]), "a run is in order", run[at])
    _check(cluster, place.count == live, f"a backlog counts {place.count} tasks and has {live}")
    _check(cluster, place.work_us == work, f"a backlog counts {place.work_us} us and has {work}")
    return live


def _side_tables(cluster: Cluster) -> None:
    """What lives beside the records names live tasks only, in the states it is about."""
    for table in (cluster.delayed, cluster.promised, cluster.complaints, cluster.bereaved, cluster.lost_with):
        for ts in table:
            _check(cluster, ts.state != FORGOTTEN, "no side table names a forgotten task", ts)
    for ts in cluster.delayed:
        _check(cluster, ts.state == WAITING, "a retry that is delayed waits", ts)
    for ts in cluster.promised:
        _check(cluster, is_active(ts), "a task that is promised to a worker is active", ts)
    for ts in cluster.complaints:
        _check(cluster, ts.state == MEMORY, "only what is in memory is complained about", ts)
    for ts in cluster.bereaved:
        _check(
            cluster,
            ts.state != MEMORY and ts.state != ERRED,
            "what it submitted is kept until it is done",
            ts,
        )
    for ts in cluster.lost_with:
        _check(cluster, ts.spec is None, "only of data it is remembered who was lost with it", ts)
    for number, grave in cluster.graves.items():
        _check(cluster, number not in cluster.workers, f"{grave.name} is connected, and in its grave")
    for restart in cluster.restarts.values():
        _check(cluster, restart.client in cluster.clients, "whoever waits for a restart is connected")


def _wishes(cluster: Cluster) -> None:
    """What clients, and those who keep keys for nobody, list is listed with the tasks too."""
    everyone = [*cluster.clients.values(), cluster.detached]
    everyone.extend([dataset.keeper for dataset in cluster.datasets.values()])
    everyone.extend(cluster.bereaved.values())
    for cs in everyone:
        for ts in cs.wants:
            _check(cluster, cs in wanters_of(ts), f"{cs.name} is among those who want it", ts)
    for ts in cluster.detached.wants:
        _check(cluster, is_active(ts), "only what has not ended is kept for nobody", ts)


def _tables(cluster: Cluster) -> None:
    _side_tables(cluster)
    _wishes(cluster)
    unsent = _backlog(cluster, cluster.roots)
    threads = 0
    running = 0
    for ws in cluster.workers.values():
        unsent += backlog.waiting_count(ws)
        if ws.status == RUNNING:
            running += 1
            threads += ws.nthreads
    _check(cluster, cluster.unsent == unsent, f"{unsent} unsent tasks, not {cluster.unsent}")
    _check(cluster, cluster.running == running, f"{running} running workers, not {cluster.running}")
    _check(cluster, cluster.total_threads == threads, f"{threads} threads, not {cluster.total_threads}")
    _check(cluster, len(cluster.worker_list) == len(cluster.workers), "each worker is listed once")
    for name, have in cluster.suppliers.items():
        amounts = [ws.supply[name] for ws in have]
        _check(cluster, amounts == sorted(amounts, reverse=True), f"who has most {name} is listed first")
    _counts(cluster)
    _expected(cluster)
    if cluster.roots.count > 0:
        for ws in cluster.workers.values():
            is_idle = ws.status == RUNNING and assignment.has_idle_thread(ws)
            _check(cluster, not is_idle, f"{ws.name} has no idle thread while root tasks wait")


def _counts(cluster: Cluster) -> None:
    found: dict[str, int] = {}
    for ts in cluster.tasks.values():
        found[ts.state] = found.get(ts.state, 0) + 1
    counts = cluster.counts
    for name, n in (
        (RELEASED, counts.released),
        (WAITING, counts.waiting),
        (NO_WORKER, counts.no_worker),
        (QUEUED, counts.queued),
        (PROCESSING, counts.processing),
        (MEMORY, counts.memory),
        (ERRED, counts.erred),
    ):
        _check(cluster, found.get(name, 0) == n, f"{found.get(name, 0)} tasks are {name}, not {n}")
