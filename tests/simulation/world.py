"""The whole cluster: the true scheduler state in the middle, true workers and clients around it, all from one seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shunter.client.table import Entry
from shunter.state import (
    DEFAULT_OPTIONS,
    ClientAdded,
    ClientRemoved,
    GraphBegin,
    GraphCommit,
    GraphPart,
    Options,
    WorkerAdded,
    WorkerDied,
    WorkerRemoved,
    WorkerStatus,
    WorkerStatusChanged,
)
from shunter.worker import events as we
from tests.simulation.client import SimClient
from tests.simulation.clock import QUICK, SLOW
from tests.simulation.scheduler import KINDS, Server
from tests.simulation.truth import SimulationFailed, Spec
from tests.simulation.worker import SimWorker

HOSTS: Final = 2


class World(Server):
    """A cluster on a false clock: see `Server`, whose arguments it takes."""

    # ------------------------------------------------------------------------------------ peers come and go

    def new_number(self) -> int:
        self._number += 1
        return self._number

    def new_key(self, prefix: str = "k") -> str:
        self._key += 1
        return f"{prefix}-{self._key}"

    def later(
        self, call: Callable[[], None], delays: tuple[float, ...] = (0.0, 0.001, 0.05, 0.5, 3.0)
    ) -> None:
        """Something that is certain to come, some time."""
        self.at(self.clock.now + self.dice.choice(delays), call)

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Something that is certain to come, then."""
        self.in_flight += 1

        def run() -> None:
            self.in_flight -= 1
            call()

        self.clock.at(when, run)

    def start_worker(
        self,
        name: str,
        address: str | None = None,
        nthreads: int = 1,
        resources: dict[str, float] | None = None,
        has_parent: bool = True,
    ) -> SimWorker:
        number = self.new_number()
        worker = self.worker_class(
            self, number, name, address or f"tcp://{name}:{number}", nthreads, resources or {}, has_parent
        )
        worker.up.calm = worker.down.calm = self.calm
        if self.slow_reports:
            worker.up.delays, worker.down.delays = SLOW, QUICK
        self.workers[number] = worker
        self.every_worker[number] = worker
        self.greet_worker(worker)
        host = f"h{number % HOSTS}"
        self.feed(WorkerAdded(number, worker.address, name, host, nthreads, 0, resources or {}, has_parent))
        return worker

    def cut_off(self, number: int) -> None:
        worker = self.workers.get(number)
        if worker is not None:
            self.break_link(worker, now=True)
        elif number in self.clients:
            raise SimulationFailed(f"client {self.clients[number].name} was cut off")

    def replace_worker(self, worker: SimWorker) -> None:
        self.later(lambda: self.kill(worker, told=False))

    def kill(self, worker: SimWorker, *, told: bool = True) -> None:
        """The process dies. The server sees the link break, and the parent tells, in either order or never."""
        if not worker.is_alive:
            return
        started = worker.started()
        told_after = self.dice.choice((0.0, 0.001, 0.05, 0.5, 3.0))
        is_told = told and worker.has_parent and self.dice.random() < 0.8
        if not is_told or told_after > 1.0:  # The scheduler has to guess which of them had started.
            self._dies_untold(worker)
        worker.die(self.dice.randint(0, len(worker.up)))
        self.later(lambda: self._removed(worker, "link broke", expected=False), (0.0, 0.001, 0.05, 0.5))
        if is_told:
            died = WorkerDied(worker.number, "signal 9", started)
            self.later(lambda: self.feed(died), (told_after,))
        if worker.has_parent and not self.calm:
            address = worker.address if self.dice.random() < 0.5 else None
            self.later(lambda: self._again(worker, address))

    def _dies_untold(self, worker: SimWorker) -> None:
        """The scheduler may guess that whatever was sent there had started."""
        worker.is_guessed_at = True
        for key in worker.sent - {job.key for job in worker.running.values()}:
            self.truth.deaths[key] = self.truth.deaths.get(key, 0) + 1

    def _again(self, worker: SimWorker, address: str | None) -> None:
        """A parent starts another one: of the same name, and perhaps at the same address."""
        if self.calm:
            return  # By now there are others of that name.
        self.start_worker(worker.name, address, worker.nthreads, worker.resources)

    def break_link(self, worker: SimWorker, *, now: bool = False) -> None:
        """Both ends lose what was under way, and hear of it later; a worker ends then."""
        worker.up.cut(self.dice.randint(0, len(worker.up)))
        worker.down.cut(self.dice.randint(0, len(worker.down)))
        if now:
            self._removed(worker, "closed", expected=False)
        else:
            self.later(lambda: self._removed(worker, "link broke", expected=False), (0.0, 0.05, 0.5))
        self.later(lambda: self.kill(worker), (0.0, 0.05, 0.5))

    def leave(self, worker: SimWorker) -> None:
        """A worker says goodbye."""
        self._dies_untold(worker)  # Should another one take its name before its goodbye is heard.
        worker.die(len(worker.up))
        self.at(worker.up.idle_at, lambda: self._removed(worker, "goodbye", expected=True))

    def _removed(self, worker: SimWorker, reason: str, *, expected: bool) -> None:
        if self.workers.get(worker.number) is worker:
            del self.workers[worker.number]
            self.feed(WorkerRemoved(worker.number, reason, expected))

    def task_kills(self, worker: SimWorker, job: object) -> None:
        if worker.is_alive and job in worker.running.values():
            self.kill(worker)

    def set_paused(self, worker: SimWorker, paused: bool) -> None:
        """A worker pauses or resumes by itself, and says so."""
        worker.is_paused = paused
        status: WorkerStatus = "paused" if paused else "running"
        worker.step(we.StatusSet(status))
        self.tell_status(worker, WorkerStatusChanged(worker.number, status))

    def start_client(self) -> SimClient:
        number = self.new_number()
        client = self.client_class(self, number, f"client {number}")
        client.up.calm = client.down.calm = self.calm
        if self.slow_reports:
            client.up.delays = client.down.delays = QUICK
        self.clients[number] = client
        self.greet_client(client)
        self.feed(ClientAdded(number, client.name))
        return client

    def stop_client(self, client: SimClient, *, polite: bool = False) -> None:
        """``polite``: what it has said arrives; else only the first of it may."""
        client.is_alive = False
        client.connection.unusable = ConnectionError("gone")
        client.up.cut(len(client.up) if polite else self.dice.randint(0, len(client.up)))
        client.down.cut()

        def removed() -> None:
            del self.clients[client.number]
            self.feed(ClientRemoved(client.number))

        if polite:
            self.at(client.up.idle_at, removed)
        else:
            self.later(removed, (0.0, 0.05, 0.5))

    # ------------------------------------------------------------------------------------ work

    def submit(
        self,
        client: SimClient,
        specs: list[Spec],
        *,
        options: Options | list[Options] = DEFAULT_OPTIONS,
        wanted: list[str] | None = None,
        in_order: bool = False,
        parent: str | None = None,
        fixed: frozenset[str] = frozenset(),
        parts: int = 1_000,
    ) -> None:
        client.graphs += 1
        graph = client.graphs
        n = client.number
        told: list[str] = []
        fresh: list[Entry] = []
        for key in wanted if wanted is not None else [spec.key for spec in specs]:
            entry, is_fresh = client.want(key, unique=key not in fixed)
            if is_fresh:
                told.append(key)
                fresh.append(entry)
        client.committing[graph] = fresh
        if wanted is None and len(told) == len(specs):
            told_or_none: list[str] | None = None
        else:
            told_or_none = told
        client.up.send(GraphBegin(n, graph, in_order, parent))
        for at in range(0, len(specs), parts):
            some = specs[at : at + parts]
            client.up.send(
                GraphPart(
                    n,
                    graph,
                    [spec.key for spec in some],
                    list(some),
                    [f"kind {spec.number % KINDS}" for spec in some],
                    [list(spec.inputs) or None for spec in some],
                    options[at : at + parts] if isinstance(options, list) else [options] * len(some),
                    {},
                )
            )
        client.up.send(GraphCommit(n, graph, None if told_or_none is None else list(told_or_none)))

    def submit_children(self, spec: Spec) -> None:
        """A running task submits others, through some client, and does not wait for them."""
        alive = [client for client in self.clients.values() if client.is_alive and not client.is_nested]
        if not alive:
            return
        client = self.dice.choice(alive)
        specs = [self.truth.new_spec(self.new_key("child"), ()) for _ in range(spec.children)]
        self.submit(client, specs, parent=spec.key, in_order=True)
