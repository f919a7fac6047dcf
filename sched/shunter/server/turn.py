"""The loop: one settled batch for each iteration of the event loop.

Whatever arrives while the event loop looks at its sockets is put here; one call at its next iteration steps the state
through all of it, drains it, and writes what came out, one piece for each connection. There are no timers but the
state's own deadline, so a lone message is answered at once, and batches form by themselves when there is load.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias, final

from shunter.server.facade import State
from shunter.state import Event, Outcome, Tick


@final
class Question:
    """A request that is answered from the state's view, in its turn between the events around it.

    ``arguments`` are as they came. ``client`` and ``request`` say whom to answer.
    """

    __slots__ = ("arguments", "client", "name", "request")

    def __init__(self, client: int, request: int, name: str, arguments: object) -> None:
        self.client = client
        self.request = request
        self.name = name
        self.arguments = arguments


Item: TypeAlias = Event | Question

#: Seconds without a turn after which the loop counts as idle.
IDLE_S: Final = 0.0002


class Turn:
    """Collects events and runs the state over them.

    Args:
        state: the state, or a false one.
        clock: monotonic seconds: the state's clock.
        answer: answers a question.
        deliver: carries out what a batch gave, and flushes what was posted meanwhile.
        fail: told of an exception out of the state; nothing runs after that.
    """

    __slots__ = (
        "_answer",
        "_clock",
        "_deliver",
        "_fail",
        "_items",
        "_loop",
        "_running",
        "_scheduled",
        "_settled_at",
        "_state",
        "_timer",
    )

    def __init__(
        self,
        state: State,
        *,
        clock: Callable[[], float],
        answer: Callable[[Question], None],
        deliver: Callable[[Outcome], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._state = state
        self._clock = clock
        self._answer = answer
        self._deliver = deliver
        self._fail = fail
        self._items: list[Item] = []
        self._loop = asyncio.get_running_loop()
        self._running = True
        self._scheduled = False
        self._settled_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def put(self, item: Item) -> None:
        """Have the item handled at the next iteration, after those put before it."""
        if self._running:
            self._items.append(item)
            self.wake()

    def wake(self) -> None:
        """Have a turn at the next iteration: there is something to handle or to flush."""
        if not self._scheduled and self._running:
            self._scheduled = True
            self._loop.call_soon(self._settle)

    def hurry(self) -> None:
        """All that was read at once has been put. If the loop was idle until now, have the turn at once.

        The end of the iteration would find nothing more to merge, and cost one more pass of the loop: a tenth of
        a lone task's way. Under load turns follow each other closely, and merge as ever.
        """
        if self._scheduled and self._running and self._clock() - self._settled_at > IDLE_S:
            self._settle()

    def stop(self) -> None:
        """No turn any more; what has been put is dropped."""
        self._running = False
        self._items.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _settle(self) -> None:
        if not self._scheduled or not self._running:
            return  # It was in a hurry.
        self._scheduled = False
        items, self._items = self._items, []
        try:
            for item in items:
                if isinstance(item, Question):
                    self._answer(item)
                else:
                    self._state.step(item, self._clock())
            now = self._clock()
            if self._state.next_deadline <= now:
                self._state.step(Tick(), now)
            outcome = self._state.drain()
        except Exception as error:  # Whatever it is: the state cannot be trusted any more.
            self.stop()
            self._fail(error)
            return
        self._deliver(outcome)
        self._settled_at = now
        self._arm()

    def _arm(self) -> None:
        """See to a turn when the state's deadline comes. A timer that is early enough already is left alone."""
        if self._scheduled or not self._running:
            return
        deadline = self._state.next_deadline
        if deadline == float("inf"):
            return
        delay = deadline - self._clock()
        if delay <= 0:
            self.wake()  # By way of the event loop, so that messages are read between the slices of long work.
            return
        when = self._loop.time() + delay
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.wake()
