"""A client: its true future table and its true way of giving keys up, on a false connection."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from shunter.client.connection import cut_keys
from shunter.client.giving_up import GivingUp
from shunter.client.table import Entry, FutureTable
from shunter.state import (
    Event,
    Instruction,
    Reply,
    ReportCancelled,
    ReportErred,
    ReportFinished,
    ReportLost,
    ReportRetried,
    Restarted,
)
from shunter.wire import messages
from tests.simulation.clock import Pipe
from tests.simulation.truth import SimulationFailed

if TYPE_CHECKING:
    from tests.simulation.world import World

Answer = Callable[[bool, object], None]


class FalseLoop:
    """What `GivingUp` needs of an event loop, on the false clock."""

    def __init__(self, world: World) -> None:
        self._world = world

    def call_soon_threadsafe(self, call: Callable[..., None], *arguments: object) -> None:
        self._world.clock.after(0.0, lambda: call(*arguments))

    def call_later(self, seconds: float, call: Callable[..., None], *arguments: object) -> None:
        self._world.clock.after(seconds, lambda: call(*arguments))


class FalseConnection:
    """What `GivingUp` needs of a connection: everything said goes onto the pipe at once."""

    def __init__(self, client: SimClient) -> None:
        self._client = client
        self.lock = threading.RLock()
        self.loop = FalseLoop(client.world)
        self.unusable: Exception | None = None
        self.on_restarted: Callable[[], None] = lambda: None
        self._requests: dict[int, Answer] = {}
        self._last = 0

    def check_usable(self) -> None:
        assert self.unusable is None

    def say(self, message: object) -> None:
        self._client.up.send(message)

    def say_keys(self, make: Callable[[list[str]], Any], keys: Sequence[str]) -> None:
        for part in cut_keys(keys):
            self.say(make(part))

    def request(self, make: Callable[[int], Any], answer: Answer) -> int:
        self._last += 1
        self._requests[self._last] = answer
        self.say(make(self._last))
        return self._last

    def answer(self, request: int, ok: bool, value: object) -> None:
        answer = self._requests.pop(request, None)
        if answer is not None:
            answer(ok, value)

    def flush(self) -> None:
        """Nothing is ever kept back."""


class SimClient:
    """One client and the two directions of its link."""

    def __init__(self, world: World, number: int, name: str) -> None:
        self.world = world
        self.dice = random.Random(f"{world.seed} client {number}")
        self.number = number
        self.name = name
        self.table = FutureTable()
        self.up = Pipe(world.clock, self.dice, lambda item: world.from_client(self, item))
        self.down = Pipe(world.clock, self.dice, self._hear)
        self.connection = FalseConnection(self)
        self.giving_up = GivingUp(self.connection, self.table)  # type: ignore[arg-type]
        self.held: list[Entry] = []  # one for each future
        self.since: dict[Entry, int] = {}  # step at which it came to be wanted
        self.pure: set[str] = set()  # keys of desires: unknown ones are cancelled rightly
        self.questions: dict[int, Any] = {}  # queries that the server has not answered yet
        self.graphs = 0
        self.committing: dict[int, list[Entry]] = {}  # what is to be wanted when a graph's commit has arrived
        self.is_alive = True
        self.is_nested = False  # it is a task's, in a worker's process
        self.cancels = False  # it has cancelled something

    @property
    def busy(self) -> bool:
        return bool(len(self.up) or len(self.down))

    def want(self, key: str, *, unique: bool) -> tuple[Entry, bool]:
        """A future of a key; whether the scheduler must be told, because there was none."""
        entry = self.table.find(key)
        fresh = entry is None
        if entry is None:
            entry = self.table.add(key, unique=unique)
            self.since[entry] = self.world.steps
        else:
            entry.count += 1
        self.held.append(entry)
        return entry, fresh

    def receive(self, keys: Sequence[str], since: int) -> None:
        """A dataset that was asked for at step ``since`` has come: as `shunter.client.datasets` takes it in."""
        self.giving_up.drain()
        fresh: list[str] = []
        for key in keys:
            self.pure.add(key)
            entry, is_fresh = self.table.adopt(key)
            self.held.append(entry)
            self.since.setdefault(entry, since)
            if is_fresh:
                fresh.append(key)
        if fresh:
            self.connection.say_keys(messages.Desire, fresh)
        self.giving_up.put_fence()

    def release(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.held.remove(entry)
        with self.connection.lock:
            self.giving_up.drop(entries)

    def forget_dead(self) -> None:
        """Futures whose entry is over for the table need not be held any more."""
        self.held = [entry for entry in self.held if self.table.find(entry.key) is entry]

    # ------------------------------------------------------------------------------------ reports

    def _hear(self, item: object) -> None:
        assert isinstance(item, Instruction)
        if isinstance(item, ReportFinished):
            data = [each if isinstance(each, bytes) else None for each in item.data]
            self.table.finished(_text(item.keys), item.nbytes, data)
            for key in _text(item.keys):
                self._look_at(key)
        elif isinstance(item, ReportErred):
            failures = [
                messages.Failure(
                    each.kind, str(each.key), each.text, each.traceback, each.types, each.fields, None
                )
                for each in item.failures
            ]
            self.table.erred(_text(item.keys), failures)
        elif isinstance(item, (ReportLost, ReportRetried)):
            self.table.pending_again(_text(item.keys))
        elif isinstance(item, ReportCancelled):
            self.table.cancelled(_text(item.keys), item.reasons)
        elif isinstance(item, Restarted):
            self.connection.on_restarted()
        elif isinstance(item, Reply):
            self.connection.answer(item.request, item.ok, item.value)
        else:
            raise SimulationFailed(f"a client was sent {type(item).__name__}")

    def _look_at(self, key: str) -> None:
        """A result that came along must be right at once."""
        entry = self.table.find(key)
        if entry is not None and entry.data is not None:
            value = self.world.unpickled(entry.data)
            self.world.truth.check_result(self.name, key, value, self.since[entry])

    def submit_events(self, events: Sequence[Event]) -> None:
        for event in events:
            self.up.send(event)


def _text(keys: Sequence[object]) -> list[str]:
    return [str(key) for key in keys]
