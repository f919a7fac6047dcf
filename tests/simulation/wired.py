"""The same cluster with real messages: every word is a frame of bytes.

Between the state and the false network stand the true `Intake`, `Delivery`, `Queries` and tables of functions and
peers; between a worker's machine and the network its true reports. Slower, so only some seeds run so.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from shunter.serialize import digest
from shunter.server.delivery import Delivery
from shunter.server.functions import Functions
from shunter.server.intake import Intake
from shunter.server.peers import ClientPeer, Peer, Peers, WorkerPeer
from shunter.server.queries import Queries
from shunter.server.turn import Item, Question
from shunter.state import (
    DEFAULT_OPTIONS,
    ClosePeer,
    ComputeTasks,
    DatasetPublished,
    DatasetRequested,
    DatasetUnpublished,
    Event,
    Failure,
    GraphAborted,
    GraphBegin,
    GraphCommit,
    GraphPart,
    Heartbeat,
    Instruction,
    KeysDetached,
    KillWorker,
    Log,
    Options,
    QuestionAsked,
    RestartRequested,
    Settings,
    Shutdown,
    WorkerStatusChanged,
)
from shunter.wire import messages
from shunter.wire.frames import Frame, FrameReader, encode
from shunter.wire.options import TaskOptions
from shunter.worker import events as we
from shunter.worker import instructions as wi
from shunter.worker.reports import frames_of
from shunter.worker.threads import TaskFailure
from tests.simulation.client import SimClient
from tests.simulation.clock import Clock, Pipe
from tests.simulation.truth import SimulationFailed, Spec
from tests.simulation.worker import SimWorker
from tests.simulation.world import World

if TYPE_CHECKING:
    from shunter.wire.link import Link

_NAMES = (
    "priority",
    "retries",
    "retry_on",
    "retry_delay",
    "retry_elsewhere",
    "workers",
    "allow_other_workers",
    "resources",
    "stealable",
)


def bytes_of(frames: Sequence[Frame]) -> bytes:
    return b"".join([bytes(piece) for frame in frames for piece in encode(frame)])


def frames_in(data: object) -> list[tuple[list[object], bytes]]:
    """What one write brings. The whole of it, as no write is lost in part."""
    assert isinstance(data, bytes)
    reader = FrameReader()
    frames = reader.feed(data)
    assert reader.pending == 0
    return frames


class WirePipe(Pipe):
    """A pipe for bytes: what a client says in objects becomes frames on its way in."""

    def __init__(
        self,
        clock: Clock,
        dice: random.Random,
        deliver: Callable[[object], None],
        frames: Callable[[object], list[Frame]],
    ) -> None:
        super().__init__(clock, dice, deliver)
        self._frames = frames

    def send(self, item: object) -> None:
        super().send(bytes_of(self._frames(item)))


class FalseLink:
    """What the server needs of a connection."""

    def __init__(self, number: int, send: Callable[[bytes], None]) -> None:
        self.number = number
        self.queued = 0
        self._send = send

    def send(self, frames: Sequence[Frame]) -> None:
        self._send(bytes_of(frames))


# ---------------------------------------------------------------------------------------------- peers


class WiredWorker(SimWorker):
    """A worker that hears and says bytes."""

    def _hear(self, item: object) -> None:
        events: list[we.Event] = []
        for header, body in frames_in(item):
            event = _worker_event(messages.from_scheduler_to_worker(header, body))
            if event is not None:
                events.append(event)
        self.step(*events)

    def _carry_out(self, each: wi.Instruction) -> None:
        if isinstance(each, (wi.Execute, wi.Revoke, wi.Rename, wi.Keep, wi.Drop, wi.Fetch, wi.RestPeer)):
            super()._carry_out(each)
        elif not isinstance(each, wi.ForgetFunctions):
            self.up.send(bytes_of(frames_of(_with_task_failure(each))))


def _with_task_failure(each: wi.Instruction) -> wi.Instruction:
    if isinstance(each, wi.ReportFailed) and isinstance(each.failure, Failure):
        told = each.failure
        failure = TaskFailure(told.kind, told.text, told.traceback, told.types, b"an exception")
        return wi.ReportFailed(each.key, each.run_id, failure, each.start, each.duration, each.thread)
    return each


def _worker_event(message: messages.ToWorker) -> we.Event | None:
    if isinstance(message, messages.Compute):
        resources = [each.get("resources") if each is not None else None for each in message.options]
        return we.ComputeAsked(
            message.keys,
            message.run_ids,
            message.functions,
            message.priorities,
            message.inputs,
            resources,
            message.inline_max,
            message.lives,
            message.blobs,
        )
    if isinstance(message, messages.WorkerFunctions):
        return we.FunctionsArrived(message.numbers, [len(blob) for blob in message.blobs])
    if isinstance(message, messages.Free):
        return we.FreeAsked(message.keys)
    if isinstance(message, messages.Remove):
        return we.RemoveAsked(message.keys)
    if isinstance(message, messages.Acquire):
        return we.AcquireAsked(message.keys, message.nbytes, message.lives, message.holders)
    if isinstance(message, messages.WhoHas):
        return we.WhoHasTold(message.keys, message.holders)
    if isinstance(message, messages.TakeBack):
        return we.TakeBackAsked(message.run_ids)
    if isinstance(message, messages.WorkerGone):
        return we.PeerGone(message.number)
    if isinstance(message, messages.Status):
        return we.StatusSet(message.status)
    return None  # Addresses, heartbeats and last words are nothing to the machine.


class WiredClient(SimClient):
    """A client that hears bytes. What it says is put into frames by its pipe."""

    def __init__(self, world: World, number: int, name: str) -> None:
        super().__init__(world, number, name)
        self.known_functions: set[int] = set()
        self.up = WirePipe(world.clock, self.dice, lambda item: world.from_client(self, item), self._frames)

    def _frames(self, item: object) -> list[Frame]:
        if isinstance(item, GraphPart):
            return self._part(item)
        if isinstance(item, Event):
            item = _client_message(item)
        return [item.frame()]  # type: ignore[attr-defined]

    def _part(self, part: GraphPart) -> list[Frame]:
        numbers = [int(kind.split()[-1]) for kind in part.kinds]
        frames: list[Frame] = []
        fresh = [number for number in dict.fromkeys(numbers) if number not in self.known_functions]
        if fresh:
            self.known_functions.update(fresh)
            blobs = [b"function %d" % number for number in fresh]
            names = [f"kind {number}" for number in fresh]
            frames.append(messages.Functions(fresh, [digest(blob) for blob in blobs], names, blobs).frame())
        records = [each for each in dict.fromkeys(part.options) if each is not DEFAULT_OPTIONS]
        frames.append(
            messages.GraphPart(
                part.graph,
                cast("list[str]", part.keys),
                numbers,
                cast("list[list[str] | None]", part.inputs),
                [_task_options(each) for each in records],
                [records.index(each) if each in records else -1 for each in part.options],
                [cast("WiredWorld", self.world).blob_of(cast("Spec", spec)) for spec in part.specs],
            ).frame()
        )
        return frames

    def _hear(self, item: object) -> None:
        for header, body in frames_in(item):
            self._take(messages.from_scheduler_to_client(header, body))

    def _take(self, message: messages.ToClient) -> None:
        if isinstance(message, messages.ClientFinished):
            self.table.finished(message.keys, message.nbytes, message.blobs)
            for key in message.keys:
                self._look_at(key)
        elif isinstance(message, messages.Erred):
            self.table.erred(message.keys, [message.failures[index] for index in message.failure_of])
        elif isinstance(message, (messages.Lost, messages.Retried)):
            self.table.pending_again(message.keys)
        elif isinstance(message, messages.Cancelled):
            self.table.cancelled(message.keys, message.reasons)
        elif isinstance(message, messages.Restarted):
            self.connection.on_restarted()
        elif isinstance(message, messages.Reply):
            self.connection.answer(message.request, message.ok, _with_numbers(message.value))
        else:
            raise SimulationFailed(f"a client was sent {type(message).__name__}")


def _with_numbers(value: object) -> object:
    """Rows of who_has with numbers of holders only, as the rest of the simulator has them."""
    if isinstance(value, list):
        return [
            [*row[:3], [holder[0] for holder in row[3]]] if isinstance(row, list) and len(row) == 4 else row
            for row in value
        ]
    return value


def _task_options(options: Options) -> TaskOptions:
    told = {name: getattr(options, name) for name in _NAMES}
    default = {name: getattr(DEFAULT_OPTIONS, name) for name in _NAMES}
    return cast("TaskOptions", {name: value for name, value in told.items() if value != default[name]})


def _client_message(event: Event) -> object:
    if isinstance(event, GraphBegin):
        return messages.GraphBegin(event.graph, event.in_order, cast("str | None", event.parent))
    if isinstance(event, GraphCommit):
        return messages.GraphCommit(event.graph, cast("list[str] | None", event.wanted))
    if isinstance(event, GraphAborted):
        return messages.GraphAbort(event.graph)
    if isinstance(event, KeysDetached):
        return messages.Detach(cast("list[str]", event.keys))
    if isinstance(event, DatasetPublished):
        keys = cast("list[str]", event.keys)
        return messages.Publish(event.request, event.name, keys, event.data, event.replace)
    if isinstance(event, DatasetUnpublished):
        return messages.Unpublish(event.request, event.name)
    if isinstance(event, DatasetRequested):
        return messages.GetDataset(event.request, event.name)
    if isinstance(event, RestartRequested):
        return messages.Restart(event.request, event.timeout)
    raise SimulationFailed(f"no client says {type(event).__name__}")


# ---------------------------------------------------------------------------------------------- the world


class WiredWorld(World):
    """See the module."""

    worker_class = WiredWorker
    client_class = WiredClient

    def __init__(
        self, seed: int, settings: Settings, *, faults: float, trace: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(seed, settings, faults=faults, trace=trace)
        self._spec_of_blob: dict[bytes, Spec] = {}
        self._peers = Peers()
        self._functions = Functions()
        self._queries = Queries(self.state.view, self._peers, dict)
        self._delivery = Delivery(
            self._peers,
            drop=self._drop,
            end=self._end,
            put=self.feed,
            wake=self._wake,
            answer=self._answer_of,
        )
        self._intake = Intake(
            self._peers,
            self._functions,
            put=self._put,
            post=self._delivery.post,
            relay=self._relay,
            drop=self._drop,
            gone=lambda peer, reason: None,
            hurry=lambda: None,
            clock=lambda: self.clock.now,
        )
        self._asked = 0
        self._wake_due = False
        self._broken: Exception | None = None

    def blob_of(self, spec: Spec) -> bytes:
        """Argument bytes. Specs with equal payloads are one task to everybody: the first of them."""
        blob = spec.payload.encode()
        self._spec_of_blob.setdefault(blob, spec)
        return blob

    # ------------------------------------------------------------------------------------ peers

    def greet_worker(self, worker: SimWorker) -> None:
        link = cast("Link", FalseLink(worker.number, worker.down.send))
        self._peers.add(
            WorkerPeer(
                worker.number, link, worker.name, self.clock.now, address=worker.address, parent=-1, skew=0.0
            )
        )

    def greet_client(self, client: SimClient) -> None:
        link = cast("Link", FalseLink(client.number, client.down.send))
        self._peers.add(ClientPeer(client.number, link, client.name, self.clock.now))

    def _sweep_peers(self) -> None:
        for peer in self._peers:
            if peer.number not in self.workers and peer.number not in self.clients:
                self._peers.remove(peer.number)

    def _drop(self, peer: Peer, reason: str) -> None:
        if self._broken is not None:
            raise self._broken  # The server would go on without the peer.
        raise SimulationFailed(f"{peer} was disconnected: {reason}")

    def _end(self, reason: str) -> None:
        raise SimulationFailed(f"the scheduler wants to end: {reason}")

    def _relay(self, client: ClientPeer, message: messages.Relay) -> None:
        raise SimulationFailed("nobody asks for a relay")

    # ------------------------------------------------------------------------------------ from the network

    def from_worker(self, worker: SimWorker, item: object) -> None:
        if self.workers.get(worker.number) is worker:
            self._receive(worker.number, item)

    def from_client(self, client: SimClient, item: object) -> None:
        if self.clients.get(client.number) is client:
            self._receive(client.number, item)

    def _receive(self, number: int, item: object) -> None:
        self._sweep_peers()
        peer = self._peers.find(number)
        assert peer is not None
        for header, body in frames_in(item):
            self._intake.on_message(peer.link, header, body)

    def _put(self, item: Item) -> None:
        try:
            self._feed_item(item)
        except Exception as error:
            self._broken = error
            raise

    def _feed_item(self, item: Item) -> None:
        if isinstance(item, Question):
            client = self._peers.find(item.client)
            assert isinstance(client, ClientPeer)
            self._asked += 1
            client.questions[self._asked] = (item.name, item.arguments, item.request)
            self.feed(QuestionAsked(item.client, self._asked))
        else:
            self.feed(item)

    def heartbeat(self, worker: SimWorker) -> None:
        if self.calm:  # At once: what is always under way would hide that nothing else is.
            self.feed(Heartbeat(worker.number, 1_000, 0, 1.0))
        else:
            worker.up.send(bytes_of([messages.WorkerHeartbeat(1_000, 0, 1.0).frame()]))

    def tell_status(self, worker: SimWorker, event: WorkerStatusChanged) -> None:
        worker.up.send(bytes_of([messages.Status(event.status).frame()]))

    # ------------------------------------------------------------------------------------ to the network

    def deliver(self, instructions: list[Instruction]) -> None:
        """Carry out a batch: by the server's own code, but for what is the world's."""
        told: list[Instruction] = []
        for each in instructions:
            if isinstance(each, (KillWorker, ClosePeer, Log, Shutdown)):
                self._carry_out(each)
                continue
            if isinstance(each, ComputeTasks):
                self._note_compute(each)
            told.append(each)
        self._sweep_peers()
        self._delivery.carry_out(told)

    def _note_compute(self, each: ComputeTasks) -> None:
        specs = [self._spec_of_blob[blob] for _, blob in cast("list[tuple[object, bytes]]", each.specs)]
        self.note_runs(each, specs)

    def _answer_of(self, client: ClientPeer, number: int) -> Frame:
        name, arguments, request = client.questions.pop(number)
        return messages.Reply(request, True, self._queries.answer(client.number, name, arguments)).frame()

    def _wake(self) -> None:
        if not self._wake_due:
            self._wake_due = True
            self.clock.after(0.0, self._woken)

    def _woken(self) -> None:
        self._wake_due = False
        self.drain()
