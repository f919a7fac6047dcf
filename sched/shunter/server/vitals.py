"""Workers that have fallen silent.

A process that dies closes its connection, so this is for what does not: a host that lost power, a cut cable, a process
that was stopped. The limit is generous because C code that holds the interpreter's lock also holds heartbeats up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from shunter.server.peers import ClientPeer, Peer, Peers, WorkerPeer
from shunter.wire import messages

#: A worker that says nothing for this long is given up, seconds.
SILENT_MAX_S: Final = 300.0
#: The same for one that does not read either: its queue holds all clients up.
STUCK_MAX_S: Final = 60.0
LOOK_EVERY_S: Final = 5.0


class Vitals:
    """Looks at all workers every few seconds, and closes those that are silent for too long.

    Args:
        peers: all connections.
        drop: closes a peer for a reason.
        clock: monotonic seconds, that of ``Peer.heard``.
    """

    __slots__ = ("_clock", "_drop", "_peers", "_timer")

    def __init__(
        self, peers: Peers, drop: Callable[[Peer, str], None], *, clock: Callable[[], float]
    ) -> None:
        self._peers = peers
        self._drop = drop
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._again)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _again(self) -> None:
        self.start()
        self.look()

    def look(self) -> None:
        """Close what has been silent for too long, and tell clients that we are here.

        A client is not read while workers are congested, so what it asks is not answered; it must not think us dead.
        """
        now = self._clock()
        alive = [messages.Heartbeat().frame()]
        for client in self._peers.of(ClientPeer):
            client.link.send(alive)
        for worker in self._peers.of(WorkerPeer):
            silent = now - worker.heard
            if silent > SILENT_MAX_S:
                self._drop(worker, f"no heartbeat for {silent:.0f} s")
            elif silent > STUCK_MAX_S and worker.link.congested:
                self._drop(worker, f"reads nothing and says nothing for {silent:.0f} s")
