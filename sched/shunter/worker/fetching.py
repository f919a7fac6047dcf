"""What to fetch from whom: values that are wanted here, and the peers that hold them.

Each wanted key stands in the heap of every peer known to hold it. A fetch takes the most urgent keys of one
peer, up to a number of bytes; one fetch at a time for each peer, several peers at once. Entries of keys that
were taken elsewhere go stale and are dropped when they come up. A peer that is busy rests for a moment; one
that cannot be reached rests longer each time, and its keys are sought elsewhere. If no holder of a key is
known, the scheduler is asked: at once the first time, then with each `TimePassed`.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import final

from shunter.worker.events import Priority
from shunter.worker.instructions import AskWhoHas, Fetch, Outbox, RestPeer
from shunter.worker.model import Flight, Limits, Peer, Run, Want

__all__ = ["Fetching"]


@final
class Fetching:
    """Wants, peers and running fetches; sole writer of all three."""

    __slots__ = ("_asks", "_failed", "_limits", "_outbox", "_sequence", "flights", "number", "peers", "wants")

    def __init__(self, limits: Limits, outbox: Outbox) -> None:
        self._limits = limits
        self._outbox = outbox
        self._sequence = 0
        self._asks: dict[str, None] = {}
        self._failed: dict[int, None] = {}
        self.number = -1
        self.wants: dict[str, Want] = {}
        self.peers: dict[int, Peer] = {}
        self.flights: dict[int, Flight] = {}

    # ------------------------------------------------------------------------------------------ wants

    def want(self, key: str, life: int, nbytes: int, holders: Iterable[int], priority: Priority) -> Want:
        """Want a value, or want it sooner, or learn of more holders."""
        want = self.wants.get(key)
        if want is None:
            want = self.wants[key] = Want(key, life, nbytes, priority)
        want.life = life
        sooner = priority < want.priority
        if sooner:
            want.priority = priority
        for peer in holders:
            if peer != self.number and peer not in want.holders and peer not in want.denied:
                want.holders[peer] = None
                if want.status == "fetch" and not sooner:
                    self._queue(want, peer)
        if want.status == "missing" or (want.status == "fetch" and sooner):
            self._seek(want)
        return want

    def acquire(self, key: str, life: int, nbytes: int, holders: Iterable[int], priority: Priority) -> None:
        """Want a copy because the scheduler asked for it."""
        want = self.want(key, life, nbytes, holders, priority)
        if want.status != "missing":
            want.acquired = True
            return
        self._outbox.acquire_failed(key)
        if not want.waiters:
            del self.wants[key]

    def unwait(self, key: str, run: Run) -> None:
        """A run no longer waits for a key."""
        want = self.wants.get(key)
        if want is not None:
            want.waiters.pop(run, None)
            if not want.waiters and not want.acquired:
                del self.wants[key]

    def satisfy(self, key: str) -> Want | None:
        """The value is here, by whatever way: the want is over."""
        return self.wants.pop(key, None)

    def void(self, key: str) -> None:
        """The value is void everywhere. Runs may still wait for the key: they need a new one."""
        want = self.wants.get(key)
        if want is None:
            return
        if not want.waiters:
            del self.wants[key]
            return
        want.acquired = False
        want.flight = -1  # What is on its way is void as well.
        want.holders.clear()
        want.status = "missing"
        self._seek(want)

    def rely_on_run(self, want: Want) -> None:
        """A run here is about to bring the value: do nothing before time has passed."""
        want.holders.clear()
        want.acquired = False
        want.asked = True
        if not want.waiters:
            del self.wants[want.key]

    def abandon_acquisition(self, key: str) -> None:
        want = self.wants.get(key)
        if want is not None and want.acquired:
            want.acquired = False
            if not want.waiters:
                del self.wants[key]

    def told(self, key: str, holders: Iterable[int]) -> None:
        """The scheduler has said who holds a key."""
        want = self.wants.get(key)
        if want is None or want.status == "flight":
            return
        want.holders = {peer: None for peer in holders if peer != self.number and peer not in want.denied}
        if want.holders:
            want.status = "missing"
            self._seek(want)
        else:
            self._lose(want)

    def time_passed(self) -> None:
        """Ask again for what nobody was known to hold."""
        for want in self.wants.values():
            want.denied.clear()
            if want.status == "missing":
                self._asks[want.key] = None

    # ------------------------------------------------------------------------------------------ fetches

    def landed(self, fetch: int) -> tuple[int, list[Want]]:
        """A fetch is over: its peer (-1 if that is gone) and the wants that it was to satisfy.

        The caller settles each of them: `satisfy`, `denied`, `busy` or `failed`.
        """
        flight = self.flights.pop(fetch)
        peer = self.peers.get(flight.peer)
        if peer is not None and peer.flight == fetch:
            peer.flight = -1
        wants: list[Want] = []
        for key in flight.keys:
            want = self.wants.get(key)
            # A key that was freed and wanted anew is not this flight's any more: the value may be an old one.
            if want is not None and want.flight == fetch:
                want.flight = -1
                want.status = "missing"
                wants.append(want)
        return (flight.peer if peer is not None else -1), wants

    def is_known(self, fetch: int) -> bool:
        """The fetch has not landed yet."""
        return fetch in self.flights

    def is_open(self, want: Want) -> bool:
        """The value is still wanted."""
        return self.wants.get(want.key) is want

    def answered(self, number: int) -> None:
        """A peer gave an answer of substance."""
        peer = self.peers.get(number)
        if peer is not None:
            peer.failures = 0
            self._forget_if_idle(peer)

    def denied(self, want: Want, peer: int) -> None:
        """A peer does not hold the key."""
        want.holders.pop(peer, None)
        want.denied[peer] = None
        self._failed[peer] = None  # So that the scheduler, which believes otherwise, hears of it.
        self._seek(want)

    def busy(self, number: int, wants: list[Want]) -> None:
        """A peer has no room for another transfer: others may have the keys, else it is asked again soon."""
        self._rest(number, self._limits.busy_rest)
        for want in wants:
            self._seek(want)
            if len(want.holders) == 1:
                self._asks[want.key] = None  # Meanwhile others may have got it.

    def failed(self, number: int, wants: list[Want]) -> None:
        """A peer cannot be reached: nothing that was believed about it holds."""
        peer = self.peers.get(number)
        if peer is None:
            for want in wants:
                self._seek(want)
            return
        peer.failures += 1
        limits = self._limits
        self._rest(number, min(limits.busy_rest * 2.0 ** (peer.failures - 1), limits.failed_rest_max))
        self._failed[number] = None
        affected = {want.key: want for want in wants}
        for _, _, key in peer.heap:
            queued = self.wants.get(key)
            if queued is not None and queued.status == "fetch" and number in queued.holders:
                affected[key] = queued
        peer.heap.clear()
        for want in affected.values():
            want.holders.pop(number, None)
            self._seek(want)

    def rested(self, number: int) -> None:
        peer = self.peers.get(number)
        if peer is not None:
            peer.resting = False
            self._forget_if_idle(peer)

    def gone(self, number: int) -> None:
        """A peer has left: what was on its way from it is sought elsewhere at once."""
        peer = self.peers.pop(number, None)
        flight = peer.flight if peer is not None else -1
        for want in list(self.wants.values()):
            want.denied.pop(number, None)
            known = want.holders.pop(number, 0) is None
            if want.flight >= 0 and want.flight == flight:
                want.flight = -1
                want.status = "missing"
                self._seek(want)
            elif known and not want.holders and want.status == "fetch":
                self._seek(want)

    def start(self) -> None:
        """Start all fetches that may start now."""
        limits = self._limits
        while len(self.flights) < limits.fetches_max:
            peer = self._most_urgent()
            if peer is None:
                return
            self._fetch(peer)

    def ask(self) -> None:
        """Send the questions that have come up, in one message."""
        if not self._asks:
            self._failed.clear()
            return
        keys = [key for key in self._asks if key in self.wants]
        if keys:
            for key in keys:
                self.wants[key].asked = True
            self._outbox.push(AskWhoHas(keys, list(self._failed)))
        self._asks.clear()
        self._failed.clear()

    # ------------------------------------------------------------------------------------------ helpers

    def _seek(self, want: Want) -> None:
        """Line up at the holders, or ask who holds the key."""
        if want.holders:
            want.status = "fetch"
            want.asked = False
            for peer in want.holders:
                self._queue(want, peer)
        else:
            self._lose(want)

    def _lose(self, want: Want) -> None:
        """Nobody is known to hold the key."""
        want.status = "missing"
        if want.acquired:
            want.acquired = False
            self._outbox.acquire_failed(want.key)
            if not want.waiters:
                del self.wants[want.key]
                return
        if not want.asked:
            self._asks[want.key] = None

    def _queue(self, want: Want, number: int) -> None:
        peer = self.peers.get(number)
        if peer is None:
            peer = self.peers[number] = Peer(number)
            for fetch, flight in self.flights.items():
                if flight.peer == number:  # It was said to be gone, and the fetch has not failed yet.
                    peer.flight = fetch
        self._sequence += 1
        heappush(peer.heap, (want.priority, self._sequence, want.key))

    def _most_urgent(self) -> Peer | None:
        best: Peer | None = None
        for peer in list(self.peers.values()):
            if peer.flight >= 0 or peer.resting:
                continue
            self._drop_stale(peer)
            if not peer.heap:
                self._forget_if_idle(peer)
            elif best is None or peer.heap[0][:2] < best.heap[0][:2]:
                best = peer
        return best

    def _fetch(self, peer: Peer) -> None:
        self._sequence += 1
        fetch = self._sequence
        keys: list[str] = []
        nbytes = 0
        while peer.heap:
            want = self.wants[peer.heap[0][2]]
            if keys and nbytes + want.nbytes > self._limits.fetch_bytes_max:
                break
            heappop(peer.heap)
            keys.append(want.key)
            nbytes += want.nbytes
            want.status = "flight"
            want.flight = fetch
            self._drop_stale(peer)
        peer.flight = fetch
        self.flights[fetch] = Flight(peer.number, keys)
        self._outbox.push(Fetch(fetch, peer.number, keys, nbytes))

    def _drop_stale(self, peer: Peer) -> None:
        heap = peer.heap
        while heap:
            want = self.wants.get(heap[0][2])
            if want is not None and want.status == "fetch" and peer.number in want.holders:
                return
            heappop(heap)

    def _rest(self, number: int, seconds: float) -> None:
        peer = self.peers.get(number)
        if peer is not None and not peer.resting:
            peer.resting = True
            self._outbox.push(RestPeer(number, seconds))

    def _forget_if_idle(self, peer: Peer) -> None:
        if not peer.heap and peer.flight < 0 and not peer.resting and not peer.failures:
            self.peers.pop(peer.number, None)
