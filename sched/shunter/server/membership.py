"""Who joins and who leaves: numbers, names and addresses of peers, after the wire has checked their token.

A name and an address belong to one worker at a time (DECISIONS 8). The same address: the port can only be bound by
one process, so the older worker is gone and the newcomer replaces it. The same name at another address: the older
worker is asked whether it lives; if it does, the newcomer is refused, since two workers were started alike.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from shunter.errors import PeerError
from shunter.server.peers import ClientPeer, ParentPeer, Peer, Peers, WorkerPeer
from shunter.server.pressure import Pressure
from shunter.state import ClientAdded, ClientRemoved, Event, WorkerAdded, WorkerRemoved
from shunter.wire import messages
from shunter.wire.details import ClientDetails, ParentDetails, WorkerDetails
from shunter.wire.handshake import Role
from shunter.wire.link import Accepted, Link, LinkOwner

logger = logging.getLogger("shunter.scheduler")

#: How long an older worker of the same name has to show that it lives, seconds.
PING_S: Final = 2.0
#: Differences of clocks below this are what a handshake takes, not skew (seconds).
SKEW_MIN_S: Final = 0.05


class Membership:
    """Lets peers in, as the wire's ``accept``, and sees them out.

    Args:
        peers: all connections.
        put: takes the events of those who come and go.
        worker_ttl: silence after which the state gives a worker up, seconds; 0 for never.
        clock, wall: monotonic and wall-clock seconds.
    """

    __slots__ = ("_clock", "_owner", "_peers", "_pressure", "_put", "_wall", "_worker_ttl")

    def __init__(
        self,
        peers: Peers,
        put: Callable[[Event], None],
        *,
        worker_ttl: float,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._peers = peers
        self._put = put
        self._worker_ttl = worker_ttl
        self._clock = clock
        self._wall = wall
        self._owner: LinkOwner | None = None
        self._pressure: Pressure | None = None

    def watch(self, owner: LinkOwner, pressure: Pressure) -> None:
        """Tell, once, before anybody comes, who gets the messages of new links, and who decides which are read."""
        self._owner = owner
        self._pressure = pressure

    async def accept(self, link: Link, role: Role, details: dict[str, object]) -> Accepted:
        """Let a newcomer in.

        Returns:
            Its number, and what to say in the welcome.

        Raises:
            PeerError: it may not join; the text tells its user why.
        """
        if role == "client":
            return self._accept_client(link, ClientDetails.parse(details))
        if role == "worker":
            return await self._accept_worker(link, WorkerDetails.parse(details))
        if role == "parent":
            return self._accept_parent(link, ParentDetails.parse(details))
        raise PeerError("this is the scheduler's port: data connections go to workers")

    def drop(self, peer: Peer, reason: str) -> None:
        """Give a peer up: tell the state at once, then the peer, and close its link."""
        if self.gone(peer, reason):
            peer.link.close(reason)

    def gone(self, peer: Peer, reason: str) -> bool:
        """A peer's link is closed, or about to be. False: that was known already."""
        if self._peers.remove(peer.number) is None:
            return False
        if isinstance(peer, WorkerPeer) and peer.ping is not None:
            peer.ping.set()
        for event in departure_of(peer, reason):
            self._put(event)
        if self._pressure is not None:
            self._pressure.forget(peer)
        logger.info("%s is gone: %s", peer, reason)
        return True

    def _accept_client(self, link: Link, details: ClientDetails) -> Accepted:
        number = self._peers.new_number()
        client = ClientPeer(number, link, details.name or f"client-{number}", self._clock())
        self._put(ClientAdded(number, client.name))
        return self._welcome(client, {})

    def _accept_parent(self, link: Link, details: ParentDetails) -> Accepted:
        number = self._peers.new_number()
        return self._welcome(ParentPeer(number, link, details.name or f"parent-{number}", self._clock()), {})

    async def _accept_worker(self, link: Link, details: WorkerDetails) -> Accepted:
        skew = skew_of(self._wall() - details.clock)
        await self._make_room(details)
        number = self._peers.new_number()
        worker = WorkerPeer(
            number,
            link,
            details.name or details.address,
            self._clock(),
            address=details.address,
            parent=details.parent,
            skew=skew,
        )
        self._put(
            WorkerAdded(
                number,
                worker.address,
                worker.name,
                details.host,
                details.nthreads,
                details.memory_limit,
                details.resources,
                isinstance(self._peers.find(details.parent), ParentPeer),
            )
        )
        interval = heartbeat_interval(len(self._peers.of(WorkerPeer)) + 1, self._worker_ttl)
        return self._welcome(worker, {"heartbeat": interval})

    def _welcome(self, peer: Peer, details: dict[str, object]) -> Accepted:
        assert self._owner is not None and self._pressure is not None, "watch() comes first"
        self._peers.add(peer)
        peer.link.owner = self._owner
        if isinstance(peer, ClientPeer):
            self._pressure.greet(peer)
        return peer.number, {"name": peer.name, "clock": self._wall(), **details}

    async def _make_room(self, details: WorkerDetails) -> None:
        """See to it that no other worker has the newcomer's address or name when this returns."""
        while True:
            older = self._peers.worker_at(details.address)
            if older is not None:
                self.drop(older, f"replaced by a newer worker at {details.address}")
                continue
            namesake = self._peers.worker_named(details.name) if details.name else None
            if namesake is None:
                return  # Looked at after the last await, so nobody has slipped in between.
            if await self._is_alive(namesake):
                raise PeerError(
                    f"there is a worker named {details.name!r} already, at {namesake.address}: "
                    "start this one with another --name, or stop that one"
                )
            self.drop(namesake, f"did not answer for {PING_S:g} s when {details.address} took its name")

    async def _is_alive(self, worker: WorkerPeer) -> bool:
        """Whether the worker says anything within the time it is given, once asked to."""
        worker.ping = worker.ping or asyncio.Event()
        worker.link.send([messages.Heartbeat().frame()])
        try:
            await asyncio.wait_for(worker.ping.wait(), PING_S)
        except asyncio.TimeoutError:
            return False
        return self._peers.find_worker(worker.number) is not None


def departure_of(peer: Peer, reason: str) -> list[Event]:
    """What the state is told when a peer is gone."""
    if isinstance(peer, ClientPeer):
        return [ClientRemoved(peer.number)]
    if isinstance(peer, WorkerPeer):
        expected = peer.goodbye is not None
        removed = WorkerRemoved(peer.number, peer.goodbye or reason, expected)
        return [removed] if peer.died is None else [removed, peer.died]
    return []


def heartbeat_interval(workers: int, worker_ttl: float) -> float:
    """Seconds between heartbeats of one worker, so that those of all stay cheap: about 100 a second.

    Silence for ``worker_ttl`` (seconds; 0: it is no matter) means death, so there are four in that time at least.
    """
    interval = max(1.0, workers / 100)
    return min(interval, worker_ttl / 4) if worker_ttl > 0 else interval


def skew_of(difference: float) -> float:
    """What to add to a peer's wall clock, from the difference seen in the handshake (seconds)."""
    return difference if abs(difference) >= SKEW_MIN_S else 0.0
