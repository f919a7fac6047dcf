"""False time: what is to happen, in order of time, and first come first served at one time."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final


class Clock:
    """Runs what was put on it. Nothing here knows of real time."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now
        self.done = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0

    def at(self, when: float, call: Callable[[], None]) -> None:
        self._sequence += 1
        heappush(self._heap, (max(when, self.now), self._sequence, call))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self.at(self.now + seconds, call)

    def run_next(self) -> bool:
        """The next of them. False if there is none."""
        if not self._heap:
            return False
        when, _, call = heappop(self._heap)
        self.now = when
        self.done += 1
        call()
        return True

    @property
    def next_at(self) -> float:
        return self._heap[0][0] if self._heap else float("inf")


#: Delays on a link, in seconds: mostly short, at times long enough for anything to overtake.
DELAYS: Final[tuple[float, ...]] = (0.0, 0.0001, 0.0001, 0.001, 0.001, 0.01, 0.05, 0.3)
#: … on links that are quick, and on those where much is said before the other end hears of it.
QUICK: Final[tuple[float, ...]] = (0.0, 0.0001, 0.001)
SLOW: Final[tuple[float, ...]] = (0.001, 0.05, 0.1, 0.3)


class Pipe:
    """One direction of a connection: in order, late, and gone with what is under way when it is cut."""

    def __init__(self, clock: Clock, dice: random.Random, deliver: Callable[[object], None]) -> None:
        self._clock = clock
        self._dice = dice
        self._deliver = deliver
        self._queue: deque[object] = deque()
        self._last = 0.0
        self.is_open = True
        self.calm = False
        self.delays = DELAYS

    def send(self, item: object) -> None:
        if not self.is_open:
            return
        delay = 0.0001 if self.calm else self._dice.choice(self.delays)
        self._last = max(self._last, self._clock.now + delay)
        self._queue.append(item)
        self._clock.at(self._last, self._arrive)

    def cut(self, kept: int = 0) -> None:
        """Nothing can be sent any more. What is under way vanishes, but for the first of it."""
        self.is_open = False
        while len(self._queue) > kept:
            self._queue.pop()

    def stall(self, seconds: float) -> None:
        """Nothing arrives for a while."""
        self._last = max(self._last, self._clock.now + seconds)

    @property
    def idle_at(self) -> float:
        """When all that was sent has arrived."""
        return max(self._last, self._clock.now)

    def __len__(self) -> int:
        return len(self._queue)

    def _arrive(self) -> None:
        if self._queue:
            self._deliver(self._queue.popleft())
