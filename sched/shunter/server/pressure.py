"""Back-pressure: bytes queued for a peer are bounded.

A worker that does not read as fast as it is sent to stops *all* clients from being read, since they make the work; a
client that does not read stops itself only. Reading goes on when the queue has drained. What happens past that is for
others: a link over its hard limit cuts itself (`Link.queue_max`), and `vitals` closes a worker that reads nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from shunter.server.peers import ClientPeer, Peer, Peers, WorkerPeer
from shunter.wire.link import Link


class Pressure:
    """Decides which clients are read, by whose queue is long. Told of every peer that was written to."""

    __slots__ = ("_full", "_paused", "_peers")

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._full: set[int] = set()  # Numbers of peers whose queue is too long.
        self._paused: set[int] = set()  # Numbers of clients that are not read now.

    @property
    def paused(self) -> int:
        """How many clients are not read now."""
        return len(self._paused)

    def check(self, written: Iterable[Peer]) -> None:
        """Look at the peers that were just written to."""
        fresh = False
        for peer in written:
            if peer.link.congested and peer.number not in self._full:
                peer.link.on_drained = self._on_drained
                self._full.add(peer.number)
                fresh = True
        if fresh:
            self._apply()

    def forget(self, peer: Peer) -> None:
        """The peer is gone, and so is its queue."""
        self._paused.discard(peer.number)
        if peer.number in self._full:
            self._full.discard(peer.number)
            self._apply()

    def greet(self, client: ClientPeer) -> None:
        """A client that comes while others wait, waits too."""
        if self._full:
            self._apply()

    def _on_drained(self, link: Link) -> None:
        self._full.discard(link.number)
        self._apply()

    def _apply(self) -> None:
        everyone = any(isinstance(self._peers.find(number), WorkerPeer) for number in self._full)
        for client in self._peers.of(ClientPeer):
            wanted = everyone or client.number in self._full
            if wanted and client.number not in self._paused:
                self._paused.add(client.number)
                client.link.pause()
            elif not wanted and client.number in self._paused:
                self._paused.discard(client.number)
                client.link.resume()
