"""The whole cluster: the true scheduler state in the middle, true workers and clients around it, all from one seed."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from shunter.client.table import Entry
from shunter.server.intake import event_of_client
from shunter.state import (
    DEFAULT_OPTIONS,
    AnswerQuestion,
    ClientAdded,
    ClientRemoved,
    ClosePeer,
    ComputeTasks,
    Event,
    FreeKeys,
    GraphBegin,
    GraphCommit,
    GraphPart,
    Heartbeat,
    Instruction,
    KillWorker,
    Log,
    Options,
    QuestionAsked,
    RemoveReplicas,
    Reply,
    SchedulerState,
    Settings,
    Shutdown,
    TakeBack,
    Tick,
    UpdateWhoHas,
    WorkerAdded,
    WorkerDied,
    WorkerGone,
    WorkerRemoved,
    WorkerStatus,
    WorkerStatusChanged,
)
from shunter.wire import messages
from shunter.worker import events as we
from shunter.worker.instructions import AskFunction
from tests.simulation.client import SimClient
from tests.simulation.clock import QUICK, SLOW, Clock, Pipe
from tests.simulation.truth import SimulationFailed, Spec, Truth, Value
from tests.simulation.worker import SimWorker, event_of

KINDS = 5
HOSTS = 2


class World:
    """A cluster on a false clock.

    Args:
        seed: everything that is drawn comes from it.
        settings: of the scheduler's state; validated after each step.
        faults: 0 to 1, how much goes wrong by itself.
    """

    worker_class: type[SimWorker] = SimWorker
    client_class: type[SimClient] = SimClient

    def __init__(
        self, seed: int, settings: Settings, *, faults: float, trace: Callable[[str], None] | None = None
    ) -> None:
        self.seed = seed
        self.dice = random.Random(f"{seed} world")
        self.clock = Clock()
        self.truth = Truth()
        self.state = SchedulerState(settings, now=self.clock.now)
        self.state.watch(frozenset({"forgotten"}))
        self.faults = faults
        self.calm = False
        self.size = 1  # of graphs, times so much
        self.steps = 0
        self.trace = trace
        self.workers: dict[int, SimWorker] = {}  # connected, as the server sees it
        self.every_worker: dict[int, SimWorker] = {}
        self.clients: dict[int, SimClient] = {}
        self.values: list[Value] = []
        self.warnings: list[str] = []
        self.in_flight = 0  # deaths, starts and breaks that are still to be noticed
        self.allowed_failures = settings.allowed_failures
        self.may_fail_without_worker = False
        self.slow_reports = False
        self._number = 0
        self._key = 0
        self._tick_at = float("inf")
        self._drain_due = False
        self._questions = 0

    # ------------------------------------------------------------------------------------ the scheduler

    def feed(self, event: Event) -> None:
        self.steps += 1
        if self.trace is not None:
            self.trace(f"{self.clock.now:.4f} {described(event)}")
        self.state.step(event, self.clock.now)
        if self.calm or self.dice.random() < 0.5:
            self.drain()
        elif not self._drain_due:
            self._drain_due = True
            self.clock.after(0.0, self.drain)
        self._arm_tick()

    def drain(self) -> None:
        self._drain_due = False
        outcome = self.state.drain()
        if self.trace is not None:
            for instruction in outcome.instructions:
                self.trace(f"    → {described(instruction)}")
        self.deliver(outcome.instructions)
        for change in outcome.changes:  # After what was said meanwhile; the key may live again already.
            ts = self.state._cluster.tasks.get(change.key)
            self.truth.forgotten(str(change.key), self.steps, ts.index if ts is not None else -1)

    def deliver(self, instructions: list[Instruction]) -> None:
        """Carry out a batch."""
        for instruction in instructions:
            self._carry_out(instruction)

    def _arm_tick(self) -> None:
        due = self.state.next_deadline
        if due < self._tick_at:
            self._tick_at = max(due, self.clock.now)
            late = 0.0 if self.calm else self.dice.choice([0.0, 0.0, 0.0005, 0.02])
            self.clock.at(self._tick_at + late, self._tick)

    def _tick(self) -> None:
        self._tick_at = float("inf")
        if self.state.next_deadline <= self.clock.now:
            self.feed(Tick())
        else:
            self._arm_tick()

    def _carry_out(self, each: Instruction) -> None:
        if isinstance(each, ComputeTasks):
            self._compute(each)
        elif isinstance(each, FreeKeys):
            self._tell(each.peer, we.FreeAsked([str(key) for key in each.keys]))
        elif isinstance(each, RemoveReplicas):
            self._tell(each.peer, we.RemoveAsked([str(key) for key in each.keys]))
        elif isinstance(each, TakeBack):
            self._tell(each.peer, we.TakeBackAsked(each.run_ids))
        elif isinstance(each, UpdateWhoHas):
            self._tell(each.peer, we.WhoHasTold([str(key) for key in each.keys], each.holders))
        elif isinstance(each, WorkerGone):
            self._tell(each.peer, we.PeerGone(each.gone))
        elif isinstance(each, KillWorker):
            worker = self.every_worker[each.peer]
            self.later(lambda: self.kill(worker, told=False))
        elif isinstance(each, ClosePeer):
            self._close(each.peer)
        elif isinstance(each, Log):
            if each.level in ("warning", "error"):
                self.warnings.append(each.code)
        elif isinstance(each, Shutdown):
            raise SimulationFailed(f"the scheduler wants to end: {each.reason}")
        elif isinstance(each, AnswerQuestion):
            if each.peer in self.clients:
                self._answer(self.clients[each.peer], each.question)
        elif each.peer in self.clients:
            self.clients[each.peer].down.send(each)

    def _tell(self, number: int, *events: we.Event) -> None:
        worker = self.workers.get(number)
        if worker is not None:
            worker.down.send(list(events))

    def _compute(self, each: ComputeTasks) -> None:
        specs = [spec for spec in each.specs if isinstance(spec, Spec)]
        self.note_runs(each, specs)
        worker = self.workers.get(each.peer)
        if worker is None:
            return
        numbers = [spec.number % KINDS for spec in specs]
        fresh = [number for number in dict.fromkeys(numbers) if number not in worker.functions]
        worker.functions.update(fresh)
        events: list[we.Event] = [we.FunctionsArrived(fresh, [10] * len(fresh))] if fresh else []
        inputs: list[list[we.Input] | None] = [
            None if row is None else [(str(key), nbytes, holders, life) for key, nbytes, holders, life in row]
            for row in each.inputs
        ]
        events.append(
            we.ComputeAsked(
                [str(key) for key in each.keys],
                each.run_ids,
                numbers,
                each.priorities,
                inputs,
                [options.resources for options in each.options],
                each.inline_max,
                each.lives,
                [spec.payload.encode() for spec in specs],
            )
        )
        self._tell(each.peer, *events)

    def note_runs(self, each: ComputeTasks, specs: list[Spec]) -> None:
        """What the scheduler means by the runs that it asks for."""
        assert len(specs) == len(each.keys), "a task without a spec was sent"
        for i, spec in enumerate(specs):
            lives = {str(name): life for name, _, _, life in each.inputs[i] or []}
            if set(lives) != set(spec.inputs) or str(each.keys[i]) != spec.key:
                raise SimulationFailed(f"{spec} was sent as {each.keys[i]!r} with inputs {sorted(lives)}")
            self.truth.sent(each.run_ids[i], spec, each.lives[i], lives)
        worker = self.workers.get(each.peer)
        if worker is not None:
            worker.sent.update(spec.key for spec in specs)
            if worker.is_guessed_at:  # And the scheduler has not seen that it is gone.
                for spec in specs:
                    self.truth.deaths[spec.key] = self.truth.deaths.get(spec.key, 0) + 1

    def _close(self, number: int) -> None:
        """The server cuts a peer off; the peer notices later."""
        worker = self.workers.get(number)
        if worker is not None:
            self.break_link(worker, now=True)
        elif number in self.clients:
            raise SimulationFailed(f"client {self.clients[number].name} was cut off")

    def from_worker(self, worker: SimWorker, item: object) -> None:
        if self.workers.get(worker.number) is not worker:
            return
        if isinstance(item, AskFunction):
            self._tell(worker.number, we.FunctionsArrived([item.function], [10]))
            return
        assert isinstance(item, Event)
        self.feed(item)

    def from_client(self, client: SimClient, item: Any) -> None:
        if self.clients.get(client.number) is not client:
            return
        if isinstance(item, GraphCommit):
            # From here on what the client gave up before is over, as far as nobody else wants it.
            for entry in client.committing.pop(item.graph, []):
                client.since[entry] = self.steps
        if isinstance(item, Event):
            self.feed(item)
        elif isinstance(item, messages.Query):
            self._questions += 1
            client.questions[self._questions] = item
            self.feed(QuestionAsked(client.number, self._questions))
        else:
            self.feed(event_of_client(client.number, item))

    def _answer(self, client: SimClient, question: int) -> None:
        """The server answers from the view, when the state says so."""
        query = client.questions.pop(question)
        keys: list[object] = list(query.arguments["keys"])
        view = self.state.view()
        if query.name == "interest":
            rows: list[object] = [list(row) for row in view.interest(client.number, keys)]
        else:
            rows = [list(row) for row in view.who_has(keys)]
        client.down.send(Reply(client.number, query.request, True, rows))

    def heartbeat(self, worker: SimWorker) -> None:
        beat = Heartbeat(worker.number, 1_000, 0, 1.0)
        if self.calm:  # At once: what is always under way would hide that nothing else is.
            self.from_worker(worker, beat)
        else:
            worker.up.send(beat)

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

    def find_worker(self, number: int) -> SimWorker | None:
        return self.every_worker.get(number)

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

    def tell_status(self, worker: SimWorker, event: WorkerStatusChanged) -> None:
        worker.up.send(event)

    def greet_worker(self, worker: SimWorker) -> None:
        """A server would make a record of it."""

    def greet_client(self, client: SimClient) -> None:
        """A server would make a record of it."""

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

    def pickled(self, value: Value) -> bytes:
        self.values.append(value)
        return b"%d" % (len(self.values) - 1)

    def unpickled(self, data: bytes) -> Value:
        return self.values[int(data)]


def described(each: object) -> str:
    """One line that says what an event or an instruction is."""
    fields: deque[str] = deque()
    for name in sorted(name for name in dir(each) if not name.startswith("_")):
        value = getattr(each, name)
        if not callable(value) and name not in ("starts", "durations", "threads", "types", "kinds", "specs"):
            fields.append(f"{name}={value!r}"[:200])
    return f"{type(each).__name__}({', '.join(fields)})"


__all__ = ["Pipe", "World", "event_of"]
