"""Back-pressure and silent workers, on false links."""

from __future__ import annotations

from typing import Any

import pytest

from shunter.server.peers import ClientPeer, Peer, Peers, WorkerPeer
from shunter.server.pressure import Pressure
from shunter.server.vitals import LOOK_EVERY_S, STUCK_MAX_S, Vitals
from tests.server.false import FalseLink


class Room:
    """Clients 1 and 2, workers 11 and 12."""

    def __init__(self) -> None:
        self.peers = Peers()
        self.links: dict[int, Any] = {number: FalseLink(number) for number in (1, 2, 3, 11, 12)}
        for number in (1, 2):
            self.join(number)
        for number in (11, 12):
            link = self.links[number]
            self.peers.add(
                WorkerPeer(number, link, "w", 0.0, address=f"tcp://127.0.0.1:{number}", parent=-1, skew=0.0)
            )
        self.pressure = Pressure(self.peers)

    def join(self, number: int) -> ClientPeer:
        client = ClientPeer(number, self.links[number], "c", 0.0)
        self.peers.add(client)
        return client

    def peer(self, number: int) -> Peer:
        peer = self.peers.find(number)
        assert peer is not None
        return peer

    def fill(self, number: int) -> None:
        self.links[number].congested = True
        self.pressure.check([self.peer(number)])

    def drain(self, number: int) -> None:
        link = self.links[number]
        link.congested = False
        link.on_drained(link)

    def read(self) -> list[int]:
        """The clients that are read."""
        return [number for number in (1, 2, 3) if self.links[number].reading]


def test_worker_congested__stops_all_clients_until_it_has_drained() -> None:
    room = Room()
    room.fill(11)
    assert room.read() == [3]  # 3 has not come yet.
    assert room.pressure.paused == 2
    room.drain(11)
    assert room.read() == [1, 2, 3]


def test_two_workers_congested__clients_wait_for_both() -> None:
    room = Room()
    room.fill(11)
    room.fill(12)
    room.drain(11)
    assert room.pressure.paused == 2
    room.drain(12)
    assert room.pressure.paused == 0


def test_client_congested__stops_itself_only() -> None:
    room = Room()
    room.fill(1)
    assert room.read() == [2, 3]
    room.drain(1)
    assert room.read() == [1, 2, 3]


def test_client_that_comes_meanwhile__waits_too() -> None:
    room = Room()
    room.fill(11)
    room.pressure.greet(room.join(3))
    assert room.read() == []
    room.drain(11)
    assert room.read() == [1, 2, 3]


def test_congested_worker_leaves__clients_are_read_again() -> None:
    room = Room()
    room.fill(11)
    peer = room.peers.remove(11)
    assert peer is not None
    room.pressure.forget(peer)
    assert room.read() == [1, 2, 3]


def test_paused_client_leaves__is_forgotten() -> None:
    room = Room()
    room.fill(11)
    peer = room.peers.remove(1)
    assert peer is not None
    room.pressure.forget(peer)
    assert room.pressure.paused == 1
    room.drain(11)
    assert room.pressure.paused == 0


@pytest.mark.parametrize(
    ("silent", "congested", "dropped"),
    [
        (STUCK_MAX_S - 1, True, False),
        (STUCK_MAX_S + 1, True, True),
        (STUCK_MAX_S + 1, False, False),
        (100 * STUCK_MAX_S, False, False),  # The state's to decide (worker_ttl).
    ],
)
def test_silent_worker__is_given_up_here_only_if_it_reads_nothing(
    silent: float, congested: bool, dropped: bool
) -> None:
    room = Room()
    gone: list[int] = []
    vitals = Vitals(
        room.peers, lambda peer, reason: gone.append(peer.number), worker_ttl=0.0, clock=lambda: silent
    )
    room.links[11].congested = congested
    room.peer(12).heard = silent
    vitals.look()
    assert gone == ([11] if dropped else [])


@pytest.mark.parametrize(("worker_ttl", "every"), [(0.0, LOOK_EVERY_S), (300.0, LOOK_EVERY_S), (2.0, 0.5)])
def test_worker_silent_since_the_last_look__is_asked_for_a_word(worker_ttl: float, every: float) -> None:
    room = Room()
    now = every * 1.01
    vitals = Vitals(room.peers, lambda peer, reason: None, worker_ttl=worker_ttl, clock=lambda: now)
    room.peer(12).heard = now
    vitals.look()
    assert room.links[11].ops() == ["heartbeat"]
    assert room.links[12].ops() == []
