"""Giving keys up: futures that are dropped, cancelled, detached or void, and the fences behind what may come back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from shunter.client.connection import Answer, Connection, cut_keys
from shunter.client.table import CANCELLED, PENDING, Entry, FutureTable
from shunter.errors import ConnectionLost, UsageError
from shunter.wire import messages

__all__ = ["GivingUp"]

#: Dropped futures are told about after so long, in one message.
RELEASE_S: Final = 0.010


class GivingUp:
    """Tells the scheduler, in the one order of the connection, what is not wanted any more."""

    def __init__(self, connection: Connection, table: FutureTable) -> None:
        self._connection = connection
        self._table = table
        self._released: deque[Entry] = deque()
        self._release_armed = False
        connection.on_restarted = self.restarted
        table.on_cancelled = self._release_cancelled

    @property
    def has_dropped(self) -> bool:
        """Futures were dropped that the scheduler has not been told of."""
        return bool(self._released)

    def release(self, entry: Entry) -> None:
        """A future is gone. Called by ``__del__`` on any thread at any time, so no lock is taken here."""
        if self._connection.unusable is not None:
            return
        self._released.append(entry)
        if not self._release_armed:
            self._release_armed = True
            try:
                self._connection.loop.call_soon_threadsafe(self._arm_release)
            except RuntimeError:  # The loop is closed.
                self._connection.unusable = ConnectionLost("the client's event loop is closed")

    def _arm_release(self) -> None:
        self._connection.loop.call_later(RELEASE_S, self._release_in_loop)

    def _release_in_loop(self) -> None:
        self._release_armed = False  # Before draining: what comes now arms again.
        with self._connection.lock:
            self.drain()
            self._connection.flush()

    def drain(self) -> None:
        """Tell of futures that are gone. The caller has the lock, and flushes."""
        dropped = []
        while self._released:
            dropped.append(self._released.popleft())
        self.drop(dropped)

    def drop(self, entries: Iterable[Entry]) -> None:
        """Give up one count of each of these. The caller has the lock, and flushes."""
        keys = self._table.drop(entries)
        if keys:
            self._connection.say_keys(messages.Release, keys)
            self.put_fence()

    def put_fence(self) -> None:
        """See `FutureTable`. The caller has the lock."""
        fence = self._table.open_fence()
        if fence:
            self._ask_interest([], lambda ok, value: self._look_behind(fence))

    def _look_behind(self, fence: int) -> None:
        parts = list(cut_keys(self._table.find_behind(fence))) or [[]]
        statuses: dict[str, tuple[str, int]] = {}
        answers = 0

        def answer(ok: bool, rows: object) -> None:
            nonlocal answers
            answers += 1
            if ok and isinstance(rows, list):
                statuses.update({key: (status, nbytes) for key, status, nbytes in rows})
            if answers == len(parts):
                self._table.pass_fence(fence, statuses)

        for part in parts:
            self._ask_interest(part, answer)

    def _ask_interest(self, keys: list[str], answer: Answer) -> None:
        with self._connection.lock:
            if self._connection.unusable is None:
                self._connection.request(
                    lambda number: messages.Query(number, "interest", {"keys": keys}), answer
                )

    def cancel(
        self, entries: Iterable[Entry], *, force: bool, reason: str = "cancelled by this client"
    ) -> None:
        """Give up; at once as far as this client is concerned."""
        with self._connection.lock:
            self._connection.check_usable()
            keys, tell = self._table.cancel(entries, reason)
            if keys:
                self._connection.say_keys(lambda part: messages.Cancel(part, force), keys)
                self.put_fence()
                self._connection.flush()
        tell()

    def restarted(self) -> None:
        """Everything is void: give it all up, before anything else is said. In the loop."""
        with self._connection.lock:
            keys, tell = self._table.restarted()
            if keys and self._connection.unusable is None:
                self._connection.say_keys(messages.Release, keys)
                self.put_fence()
                self._connection.flush()
        tell()

    def _release_cancelled(self, keys: list[str]) -> None:
        """What crossed the cancellation on its way (a retry, a desire) may have renewed our interest. In the loop."""
        with self._connection.lock:
            if self._connection.unusable is None:
                self._connection.say_keys(messages.Release, keys)
                self.put_fence()
                self._connection.flush()

    def detach(self, entries: Sequence[Entry]) -> None:
        """Have tasks run to their end, whoever gives them up. Raises UsageError if one was cancelled."""
        with self._connection.lock:
            self._connection.check_usable()
            for entry in entries:
                if entry.status == CANCELLED:
                    raise UsageError(f"{entry.key!r} will not run, it was cancelled: submit it again")
            keys = [entry.key for entry in entries if entry.status == PENDING]
            if keys:
                self._connection.say_keys(messages.Detach, keys)
                self._connection.flush()

    def retry(self, entries: Sequence[Entry]) -> None:
        """Run again what has failed, each given once. Raises UsageError if one has not."""
        with self._connection.lock:
            self._connection.check_usable()
            keys = self._table.retry(entries)
            if keys:
                self._connection.say_keys(messages.Retry, keys)
                self._connection.flush()
