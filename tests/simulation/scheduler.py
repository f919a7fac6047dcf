"""The scheduler: its true state, and between that and the false network what a server does, told in objects."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from shunter.server.intake import event_of_client
from shunter.state import (
    AnswerQuestion,
    ClosePeer,
    ComputeTasks,
    Event,
    FreeKeys,
    GraphCommit,
    Heartbeat,
    Instruction,
    KillWorker,
    Log,
    QuestionAsked,
    RemoveReplicas,
    Reply,
    SchedulerState,
    Settings,
    Shutdown,
    TakeBack,
    Tick,
    UpdateWhoHas,
    WorkerGone,
    WorkerStatusChanged,
)
from shunter.wire import messages
from shunter.worker import events as we
from shunter.worker.instructions import AskFunction
from tests.simulation.client import SimClient
from tests.simulation.clock import Clock
from tests.simulation.telling import described
from tests.simulation.truth import SimulationFailed, Spec, Truth, Value
from tests.simulation.worker import SimWorker

#: Functions that tasks run.
KINDS: Final = 5


class Server:
    """The scheduler of a cluster on a false clock. Who comes and goes is the matter of `world.World`.

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
            self.replace_worker(self.every_worker[each.peer])
        elif isinstance(each, ClosePeer):
            self.cut_off(each.peer)
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

    def check_inputs(self, run_id: int, values: dict[str, Value]) -> None:
        """A run uses the values that the scheduler means, as long as that still waits for it.

        A worker that has not heard that a run is over may fetch a later value of a key; nobody uses what comes of it.
        """
        ts = self.state._cluster.tasks.get(self.truth.meant[run_id].spec.key)
        if ts is not None and ts.run_id == run_id:
            self.truth.check_inputs(run_id, values)

    def cut_off(self, number: int) -> None:
        """The server closes a peer's link; the peer notices later."""
        raise NotImplementedError

    def replace_worker(self, worker: SimWorker) -> None:
        """A worker's parent is to kill it and to start another one."""
        raise NotImplementedError

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

    def tell_status(self, worker: SimWorker, event: WorkerStatusChanged) -> None:
        worker.up.send(event)

    def greet_worker(self, worker: SimWorker) -> None:
        """A server would make a record of it."""

    def greet_client(self, client: SimClient) -> None:
        """A server would make a record of it."""

    def find_worker(self, number: int) -> SimWorker | None:
        return self.every_worker.get(number)

    def pickled(self, value: Value) -> bytes:
        self.values.append(value)
        return b"%d" % (len(self.values) - 1)

    def unpickled(self, data: bytes) -> Value:
        return self.values[int(data)]
