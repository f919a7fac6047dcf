"""Read-only answers: fresh plain data, so that no record leaves the door."""

from __future__ import annotations

from typing import Final, final

from shunter.state.assignment import fits_now, n_sent
from shunter.state.backlog import waiting_count
from shunter.state.cluster import Cluster
from shunter.state.membership import why_no_worker
from shunter.state.model import TaskState, WorkerState
from shunter.state.names import ERRED, MEMORY, NO_WORKER, PROCESSING, QUEUED, RUNNING, WAITING, Key
from shunter.state.replicas import holders_of


@final
class View:
    """Questions to a live state. Answers are copies; ask again to see what has changed."""

    __slots__ = ("_cluster",)

    def __init__(self, cluster: Cluster) -> None:
        self._cluster: Final = cluster

    def workers(self) -> list[dict[str, object]]:
        """One row for each worker, oldest first."""
        return [_worker_row(self._cluster, ws) for ws in self._cluster.workers.values()]

    def who_has(self, keys: list[Key]) -> list[tuple[Key, str, int, list[int]]]:
        """For each key: (key, status, bytes or -1, numbers of all holders). Status "unknown": no such task."""
        rows: list[tuple[Key, str, int, list[int]]] = []
        for key in keys:
            ts = self._cluster.tasks.get(key)
            if ts is None:
                rows.append((key, "unknown", -1, []))
            else:
                rows.append((key, ts.state, ts.nbytes, [ws.number for ws in holders_of(ts)]))
        return rows

    def interest(self, client: int, keys: list[Key]) -> list[tuple[Key, str, int]]:
        """For each key: (key, status, bytes or -1), as far as this client wants it.

        Status "unknown": there is no such task, or it is none of this client's.
        """
        rows: list[tuple[Key, str, int]] = []
        cs = self._cluster.clients.get(client)
        for key in keys:
            ts = self._cluster.tasks.get(key)
            if ts is None or cs is None or ts not in cs.wants:
                rows.append((key, "unknown", -1))
            else:
                rows.append((key, ts.state, ts.nbytes))
        return rows

    def counts(self) -> dict[str, int]:
        """Tasks by status, and how many tasks, workers, threads and clients there are."""
        cluster = self._cluster
        counts = cluster.counts
        return {
            "released": counts.released,
            "waiting": counts.waiting,
            "no-worker": counts.no_worker,
            "queued": counts.queued,
            "processing": counts.processing,
            "memory": counts.memory,
            "erred": counts.erred,
            "tasks": len(cluster.tasks),
            "workers": len(cluster.workers),
            "threads": cluster.total_threads,
            "clients": len(cluster.clients),
            "dropped_events": cluster.dropped_events,
        }

    def kinds(self) -> list[dict[str, object]]:
        """One row for each kind of task: name, tasks alive, runs finished, mean duration (s) and bytes."""
        rows: list[dict[str, object]] = []
        for kind in self._cluster.kinds.values():
            known = kind.samples > 0
            rows.append(
                {
                    "name": kind.name,
                    "alive": kind.alive,
                    "finished": kind.finished,
                    "duration": kind.duration_us / 1e6 if known else None,
                    "nbytes": kind.nbytes if known else None,
                }
            )
        return rows

    def datasets(self) -> list[dict[str, object]]:
        """One row for each published dataset, oldest first: name and number of keys."""
        return [
            {"name": name, "keys": len(dataset.keeper.wants)}
            for name, dataset in self._cluster.datasets.items()
        ]

    def story(self, key: Key) -> list[str]:
        """What happened to a task, as far as the transition log reaches back; oldest first."""
        return self._cluster.log.story(key)

    def why(self, key: Key) -> str:
        """One sentence: why the task is not running, or what it does."""
        ts = self._cluster.tasks.get(key)
        if ts is None:
            return f"{key!r} is not known: it was never submitted, or everybody has released it"
        return _why(self._cluster, ts)

    def status(self) -> dict[str, object]:
        """Everything `shunter status` shows."""
        return {"counts": self.counts(), "workers": self.workers(), "kinds": self.kinds()}


def _worker_row(cluster: Cluster, ws: WorkerState) -> dict[str, object]:
    return {
        "number": ws.number,
        "address": ws.address,
        "name": ws.name,
        "host": ws.host,
        "nthreads": ws.nthreads,
        "status": ws.status,
        "processing": n_sent(ws) - ws.n_held,
        "long_running": ws.n_long_running,
        "given_up": ws.n_held,
        "queued": waiting_count(ws),
        "held": len(ws.has_what),
        "nbytes": ws.nbytes,
        "memory_limit": ws.memory_limit,
        "process": ws.process,
        "spilled": ws.spilled,
        "cpu": ws.cpu,
        "occupancy": ws.occupancy_us / 1e6,
        "resources": {name: amount / 1e6 for name, amount in ws.supply.items()},
        "used": {name: amount / 1e6 for name, amount in ws.used.items()},
        "last_seen": cluster.now - ws.last_seen,
    }


def _why(cluster: Cluster, ts: TaskState) -> str:
    state = ts.state
    name = repr(ts.key)
    if state == PROCESSING:
        ws = ts.processing_on
        where = ws.name if ws is not None else "?"
        if ws is not None and ws.status != RUNNING:
            return (
                f"{name} was sent to worker {where!r}, which is {ws.status}:"
                " it ends there if it had started, else it is given back and runs elsewhere"
            )
        return f"{name} was sent to worker {where!r}, which runs it or will as soon as a thread is free"
    if state == QUEUED:
        place = ts.backlog
        if place is not None and place.owner is not None:
            if ts.options.resources and not fits_now(place.owner, ts):
                asked = ", ".join([f"{each}={amount:g}" for each, amount in ts.options.resources.items()])
                return f"{name} can run, and waits until {asked} is free on worker {place.owner.name!r}"
            return (
                f"{name} can run, and waits for a thread; worker {place.owner.name!r} would start it soonest"
            )
        return f"{name} can run, and waits for a free thread on any worker"
    if state == NO_WORKER:
        return f"{name} can run, but {why_no_worker(cluster, ts)}"
    if state == WAITING:
        if ts in cluster.delayed:
            return f"{name} waits {cluster.delayed[ts] - cluster.now:.1f} s more before it is tried again"
        missing: list[str] = []
        if ts.dependencies is not None:
            for dep in ts.dependencies:
                if dep.holder is None:
                    missing.append(f"{dep.key!r} ({dep.state})")
        if not missing:
            return f"{name} belongs to a graph that is still coming in"
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        return f"{name} waits for {', '.join(missing[:3])}{more}"
    if state == MEMORY:
        return f"{name} is done: {ts.nbytes} bytes on {len(holders_of(ts))} worker(s)"
    if state == ERRED:
        failure = ts.failure
        assert failure is not None, ts.key
        return f"{name} failed because of {failure.key!r}: {failure.text}"
    return f"{name} is known, but nobody needs its value now"
