"""From threads to the event loop: a queue with one wake-up for many items.

The flag is set before the loop is woken, and cleared by the loop before it drains: so an item is never left
behind, and while the loop is busy any number of items cost one wake-up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar, final

__all__ = ["HandBack"]

T = TypeVar("T")


@final
class HandBack(Generic[T]):
    """Hands items to ``receive`` on the loop's thread, soon and in order.

    Args:
        loop: whose thread receives.
        receive: gets everything that has come since the last time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, receive: Callable[[list[T]], None]) -> None:
        self._loop = loop
        self._receive = receive
        self._items: deque[T] = deque()
        self._is_woken = False

    def put(self, item: T) -> None:
        """Hand an item over, from any thread. Does nothing once the loop is closed."""
        self._items.append(item)
        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # The loop is closed: nobody is there.
                self._items.clear()

    def _drain(self) -> None:
        self._is_woken = False
        items: list[T] = []
        try:
            while True:
                items.append(self._items.popleft())
        except IndexError:
            pass
        if items:
            self._receive(items)
