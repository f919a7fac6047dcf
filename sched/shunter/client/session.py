"""A session: one connection to a scheduler with all that belongs to it. `Client` and `AsyncClient` are its faces."""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from collections.abc import Callable
from typing import Any, Final

from shunter.client.connection import Connection
from shunter.client.datasets import Datasets
from shunter.client.futures import Future
from shunter.client.gather import Fetcher
from shunter.client.giving_up import GivingUp
from shunter.client.results import Results
from shunter.client.submitting import Submitting
from shunter.client.table import Entry, FutureTable
from shunter.errors import UsageError
from shunter.wire.bulk import DataPool

__all__ = ["Session"]

log: Final = logging.getLogger("shunter.client")


class Session:
    """See the module.

    Args:
        loop: where messages are read.
        run_callback: runs users' callbacks, in order, where they may take their time.

    Attributes:
        table: what became of each key.
        connection: what is said and asked.
        giving_up: dropped, cancelled and retried futures.
        submitting: how tasks get out.
        results: how results get in.
        datasets: what is published, and got.
        pool: data connections to workers.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, run_callback: Callable[[Callable[[], object]], object]
    ) -> None:
        self._run_callback = run_callback
        self.table: Final = FutureTable()
        self.connection: Final = Connection(loop, self.table)
        self.giving_up: Final = GivingUp(self.connection, self.table)
        self.submitting: Final = Submitting(
            self.connection, self.table, self.giving_up, owner=self, make_future=self.make_future
        )
        self.pool = DataPool("")
        self._fetcher = Fetcher(self.connection, lambda: self.pool)
        self.results: Final = Results(self.connection, self.table, self._fetcher)
        self.datasets: Final = Datasets(
            self.connection, self.table, self.giving_up, owner=self, make_future=self.make_future
        )
        _sessions.add(self)

    async def open(self, address: str, token: str, *, name: str, timeout: float) -> None:
        """Connect. In the session's loop.

        Raises:
            UsageError: a malformed address. ConnectionLost: nobody is there. PeerError: not let in.
        """
        await self.connection.open(address, token, name=name, timeout=timeout)
        self.pool = DataPool(token)

    def say_goodbye(self) -> None:
        """Send what is queued. Not in the loop's thread. Then comes `close`."""
        self._tell_what_was_dropped()
        self.connection.say_goodbye()

    async def say_goodbye_in_loop(self) -> None:
        """`say_goodbye` in the session's loop."""
        self._tell_what_was_dropped()
        await self.connection.say_goodbye_in_loop()

    def _tell_what_was_dropped(self) -> None:
        with self.table.lock:
            if self.connection.unusable is None:
                self.giving_up.drain()

    async def close(self) -> None:
        """Cancel what is pending, and close all connections. In the session's loop."""
        self._fetcher.close()
        self.pool.close()
        await self.connection.close()

    # ------------------------------------------------------------------------------------ for futures

    def make_future(self, entry: Entry) -> Future[Any]:
        """A future that takes over one count of the entry."""
        return Future(entry, self)

    def add_done_callback(
        self, future: Future[Any], entry: Entry, fn: Callable[[Future[Any]], object]
    ) -> None:
        """See `Future.add_done_callback`."""

        def call() -> None:
            try:
                fn(future)
            except Exception:
                log.exception("a callback of %r failed: %r", future.key, fn)

        if not self.results.watch(entry, lambda entry: self._run_callback(call)):
            call()


_sessions: Final[weakref.WeakSet[Session]] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    error = UsageError("this client was made before a fork: make another one in the child process")
    for session in _sessions:
        session.connection.unusable = error
        session.table.forked(error)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
