"""What is left when everything has been released: nothing. Looks at the records, so that no sum hides another."""

from __future__ import annotations

from collections import Counter
from typing import Final

from shunter.state import SchedulerState
from tests.simulation.truth import SimulationFailed
from tests.simulation.worker import SimWorker

#: Tables of the state that are empty when there is no task.
TABLES: Final = (
    "bereaved",
    "complaints",
    "datasets",
    "delayed",
    "graves",
    "incoming",
    "lost_with",
    "no_worker",
    "promised",
    "restarts",
    "tasks",
)
COUNTS: Final = ("released", "waiting", "no_worker", "queued", "processing", "memory", "erred")
#: Fields of a worker's record that are zero or empty then.
WORKER_FIELDS: Final = (
    "asked_back",
    "has_what",
    "n_expected",
    "n_held",
    "n_long_running",
    "nbytes",
    "occupancy_us",
    "processing",
    "used",
)
#: Timers for one and the same thing: a task that is given up while it waits for a retry may leave one.
TIMERS_ALIKE: Final = 2


def look_at_state(state: SchedulerState) -> None:
    """Every table of the scheduler is empty, every sum zero."""
    cluster = state._cluster
    left: dict[str, object] = {name: getattr(cluster, name) for name in TABLES if len(getattr(cluster, name))}
    left.update({name: getattr(cluster.counts, name) for name in COUNTS if getattr(cluster.counts, name)})
    if cluster.unsent or cluster.roots.count or cluster.roots.work_us:
        left["unsent"] = (cluster.unsent, cluster.roots.count, cluster.roots.work_us)
    timers = Counter((timer.what, timer.number, timer.key) for _, _, timer in cluster.timers)
    left.update({f"timers {timer}": n for timer, n in timers.items() if n > TIMERS_ALIKE})
    for cs in [*cluster.clients.values(), cluster.detached]:
        if cs.wants or cs.children or cs.incoming or cs.deferred:
            left[cs.name] = "wants, children or events behind a graph"
    for kind in cluster.kinds.values():
        if kind.alive:
            left[f"kind {kind.name}"] = kind.alive
    for ws in cluster.workers.values():
        fields = {name: getattr(ws, name) for name in WORKER_FIELDS if getattr(ws, name)}
        places = [ws.ready, ws.roots, *(ws.demands or {}).values()]
        waiting = [(place.count, place.work_us) for place in places if place.count or place.work_us]
        if fields or waiting:
            left[f"worker {ws.name}"] = (fields, waiting)
    if left:
        raise SimulationFailed(f"left in the scheduler: {left}")


def look_at_worker(worker: SimWorker, scattered: set[str]) -> None:
    """A worker has nothing to run, to fetch or to hold; and nobody told its machine what it could not know."""
    worker.machine.validate()
    counts = worker.machine.counts()
    left = {name: n for name, n in counts.items() if n and name not in ("functions", "held")}
    if left:
        raise SimulationFailed(f"left on {worker.name}: {left}")
    if counts["held"] != len(worker.store):
        raise SimulationFailed(f"{worker.name} holds {counts['held']} values, and stores {len(worker.store)}")
    values = [key for key in worker.store if key not in scattered]
    if values:
        raise SimulationFailed(f"{worker.name} still holds {values}")
