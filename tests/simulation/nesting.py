"""Tasks that submit others and wait for them: a client in the process of a worker, which dies with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shunter.client.table import FINISHED, PENDING, Entry
from shunter.wire import messages
from tests.simulation.truth import Spec, Value

if TYPE_CHECKING:
    from tests.simulation.worker import Job, SimWorker

#: How often a task looks whether what it waits for is there, and how long it waits until it fetches again.
LOOK_S: Final = 0.02


class Nest:
    """One run of a task that waits. It has seceded, so that what it submits can run where it runs.

    Its children have keys of their own, the same in each run: if the worker dies, the next run finds them again.
    """

    def __init__(self, worker: SimWorker, job: Job, spec: Spec) -> None:
        self._world = worker.world
        self._worker = worker
        self._job = job
        self.values: dict[str, Value] = {}
        truth = self._world.truth
        if spec.kids is None:
            spec.kids = []
            for n in range(spec.children):
                kid = truth.new_spec(f"{spec.key}/{n}", ())
                kid.duration = 0.001 * n
                spec.kids.append(kid)
        self._kids = spec.kids
        self.client = self._world.start_client()
        self.client.is_nested = True
        keys = frozenset(kid.key for kid in self._kids)
        self._world.submit(self.client, list(self._kids), parent=spec.key, in_order=True, fixed=keys)
        self._entries = list(self.client.held)
        self._world.clock.after(LOOK_S, self._look)

    def close(self) -> None:
        """The task is over, or its process is."""
        if self.client.is_alive:
            self.client.held.clear()
            self._world.stop_client(self.client)

    def _look(self) -> None:
        """Go on waiting, fetch, or end."""
        if not self._worker.is_alive or self._worker.running.get(self._job.ticket) is not self._job:
            return
        if any(entry.status == PENDING for entry in self._entries):
            self._world.clock.after(LOOK_S, self._look)
        elif any(entry.status != FINISHED for entry in self._entries):
            self._worker.end_nest(self._job, self, has_failed=True)
        elif len(self.values) == len(self._entries):
            self._worker.end_nest(self._job, self, has_failed=False)
        else:
            for entry in self._entries:
                if entry.key not in self.values:
                    self._fetch(entry)
            self._world.clock.after(LOOK_S, self._look)

    def results(self) -> list[Value]:
        """Of the children, in order."""
        return [self.values[kid.key] for kid in self._kids]

    def _fetch(self, entry: Entry) -> None:
        if entry.data is not None:
            self._take(entry, self._world.unpickled(entry.data))
            return

        def answer(ok: bool, rows: object) -> None:
            assert isinstance(rows, list)
            for _, _, _, holders in rows:
                holder = self._world.find_worker(holders[0]) if holders else None
                if holder is not None and entry.key in holder.store and entry.status == FINISHED:
                    self._take(entry, holder.store[entry.key])

        self.client.connection.request(lambda n: messages.Query(n, "who_has", {"keys": [entry.key]}), answer)

    def _take(self, entry: Entry, value: Value) -> None:
        self._world.truth.check_result(self.client.name, entry.key, value, self.client.since[entry])
        self.values[entry.key] = value
