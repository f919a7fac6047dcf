"""Who is connected: one record for each connection, by its number.

Numbers are positive, count up and are never reused: a worker that comes back has another one, so that nothing meant
for the old incarnation can reach the new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TypeVar
from weakref import WeakSet

from shunter.server.functions import Function
from shunter.state import WorkerDied
from shunter.wire.link import Link

P = TypeVar("P", bound="Peer")


class Peer:
    """A connection. ``heard``: when its last message came (the server's clock)."""

    __slots__ = ("heard", "link", "name", "number")

    #: As in the handshake.
    role = "peer"

    def __init__(self, number: int, link: Link, name: str, now: float) -> None:
        self.number = number
        self.link = link
        self.name = name
        self.heard = now

    def __str__(self) -> str:
        return f"{self.role} {self.number} ({self.name})"


class ClientPeer(Peer):
    """``functions``: what it has announced, by its own numbers; this keeps their blobs alive while it is here.

    ``questions``: (query, arguments, request) of those not answered yet, by the server's number.
    """

    __slots__ = ("functions", "questions")
    role = "client"

    def __init__(self, number: int, link: Link, name: str, now: float) -> None:
        super().__init__(number, link, name, now)
        self.functions: dict[int, Function] = {}
        self.questions: dict[int, tuple[str, object, int]] = {}


class WorkerPeer(Peer):
    """A worker.

    ``address`` is that of its data port; ``parent`` the number of its parent process's connection, or -1; ``skew``
    what to add to its wall clock (seconds). ``functions``: those it has been sent; ``known``: the numbers of workers
    whose addresses it has been sent. ``goodbye``: it has announced that it leaves, and why. ``ping``: set when it
    speaks or is gone; there while somebody waits for that. ``died``: what its parent said of its death while its link
    was still open.
    """

    __slots__ = ("address", "died", "functions", "goodbye", "known", "parent", "ping", "skew")
    role = "worker"

    def __init__(
        self, number: int, link: Link, name: str, now: float, *, address: str, parent: int, skew: float
    ) -> None:
        super().__init__(number, link, name, now)
        self.address = address
        self.parent = parent
        self.skew = skew
        self.functions: WeakSet[Function] = WeakSet()
        self.known: set[int] = {number}
        self.goodbye: str | None = None
        self.ping: asyncio.Event | None = None
        self.died: WorkerDied | None = None


class ParentPeer(Peer):
    """The parent process of workers on one machine."""

    __slots__ = ()
    role = "parent"


class Peers:
    """All connections, by number."""

    __slots__ = ("_by_number", "_last")

    def __init__(self) -> None:
        self._by_number: dict[int, Peer] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Peer]:
        return iter(list(self._by_number.values()))

    def new_number(self) -> int:
        self._last += 1
        return self._last

    def add(self, peer: Peer) -> None:
        self._by_number[peer.number] = peer

    def remove(self, number: int) -> Peer | None:
        return self._by_number.pop(number, None)

    def find(self, number: int) -> Peer | None:
        return self._by_number.get(number)

    def of(self, kind: type[P]) -> list[P]:
        """All connections of one kind, oldest first."""
        return [peer for peer in self._by_number.values() if isinstance(peer, kind)]

    def find_worker(self, number: int) -> WorkerPeer | None:
        peer = self._by_number.get(number)
        return peer if isinstance(peer, WorkerPeer) else None

    def worker_at(self, address: str) -> WorkerPeer | None:
        """The worker whose data port has this address."""
        return next((peer for peer in self.of(WorkerPeer) if peer.address == address), None)

    def worker_named(self, name: str) -> WorkerPeer | None:
        return next((peer for peer in self.of(WorkerPeer) if peer.name == name), None)
