"""Peers that have fallen silent.

A process that dies closes its connection, so this is for what does not: a host that lost power, a cut cable, a process
that was stopped. When a silent worker is given up is the state's to decide (`Settings.worker_ttl`); here it is asked
whether it lives, and one that holds the others up is let go sooner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from shunter.server.peers import ClientPeer, Peer, Peers, WorkerPeer
from shunter.wire import messages

#: A worker that says nothing and reads nothing for this long is given up, seconds: its queue holds all clients up.
STUCK_MAX_S: Final = 60.0
#: Between two looks, seconds; less if workers have less time than this to say something.
LOOK_EVERY_S: Final = 5.0


class Vitals:
    """Looks at all peers every few seconds, asks silent workers for a word, and closes those that are stuck.

    Args:
        peers: all connections.
        drop: closes a peer for a reason.
        worker_ttl: silence after which the state gives a worker up, seconds; 0 for never.
        clock: monotonic seconds, that of ``Peer.heard``.
    """

    __slots__ = ("_clock", "_drop", "_every", "_peers", "_timer")

    def __init__(
        self,
        peers: Peers,
        drop: Callable[[Peer, str], None],
        *,
        worker_ttl: float,
        clock: Callable[[], float],
    ) -> None:
        self._peers = peers
        self._drop = drop
        self._clock = clock
        self._every = min(LOOK_EVERY_S, worker_ttl / 4) if worker_ttl > 0 else LOOK_EVERY_S
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._every, self._again)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _again(self) -> None:
        self.start()
        self.look()

    def look(self) -> None:
        """Ask workers that have been silent, close those that are stuck, and tell clients that we are here.

        A client is not read while workers are congested, so what it asks is not answered; it must not think us dead.
        """
        now = self._clock()
        beat = [messages.Heartbeat().frame()]
        for client in self._peers.of(ClientPeer):
            client.link.send(beat)
        for worker in self._peers.of(WorkerPeer):
            silent = now - worker.heard
            if silent > STUCK_MAX_S and worker.link.congested:
                self._drop(worker, f"reads nothing and says nothing for {silent:.0f} s")
            elif silent > self._every and not worker.link.congested:
                worker.link.send(beat)  # It answers at once, if it can.
