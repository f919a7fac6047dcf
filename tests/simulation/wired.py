"""The same cluster with real messages: every word is a frame of bytes.

Between the state and the false network stand the true `Intake`, `Delivery`, `Queries` and tables of functions and
peers; between a worker's machine and the network its true reports. Slower, so only some seeds run so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from shunter.server.delivery import Delivery
from shunter.server.functions import Functions
from shunter.server.intake import Intake
from shunter.server.peers import ClientPeer, Peer, Peers, WorkerPeer
from shunter.server.queries import Queries
from shunter.server.turn import Item, Question
from shunter.state import (
    ClosePeer,
    ComputeTasks,
    Heartbeat,
    Instruction,
    KillWorker,
    Log,
    QuestionAsked,
    Settings,
    Shutdown,
    WorkerStatusChanged,
)
from shunter.wire import messages
from shunter.wire.frames import Frame
from tests.simulation.client import SimClient
from tests.simulation.truth import SimulationFailed, Spec
from tests.simulation.wired_peers import FalseLink, WiredClient, WiredWorker, bytes_of, frames_in
from tests.simulation.worker import SimWorker
from tests.simulation.world import World

if TYPE_CHECKING:
    from shunter.wire.link import Link


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
