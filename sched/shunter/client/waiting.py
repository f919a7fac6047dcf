"""Waiting for entries of the table: from a thread, or in an event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress

from shunter.client.table import PENDING, Entry, FutureTable, Gate

__all__ = ["Deadline", "LoopGate", "wait_all", "wait_all_async", "wait_one"]


class Deadline:
    """A timeout that several waits share. ``seconds`` None: never."""

    __slots__ = ("_at", "seconds")

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._at = None if seconds is None else time.monotonic() + seconds

    def remaining(self) -> float | None:
        """Seconds left, 0 or more; None: no end."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())

    def error(self, what: str) -> FutureTimeoutError:
        """The exception to raise."""
        return FutureTimeoutError(f"{what} within {self.seconds:g} s")


def wait_one(table: FutureTable, entry: Entry, deadline: Deadline) -> None:
    """Block until the entry is no longer pending.

    Raises:
        concurrent.futures.TimeoutError: it still is.
    """
    gate = Gate()
    # In a loop: a result may be lost again before this thread wakes up.
    while table.watch(entry, gate.open):
        if not gate.wait(deadline.remaining()):
            table.unwatch(entry, gate.open)
            if table.watch(entry, gate.open):
                table.unwatch(entry, gate.open)
                raise deadline.error(f"{entry.key!r} did not finish")


def wait_all(table: FutureTable, entries: Sequence[Entry], deadline: Deadline, *, fail_fast: bool) -> None:
    """Block until none is pending, or with ``fail_fast`` until one has failed.

    The last one is waited for first: usually all others are done by then, and there was one wake-up for all.

    Raises:
        concurrent.futures.TimeoutError: some still are.
    """
    pending = [entry for entry in entries if entry.status == PENDING]
    if not pending:
        return
    gate = Gate()
    alarm = table.set_alarm(entries, gate.open) if fail_fast else None
    try:
        while pending:
            while pending and pending[-1].status != PENDING:
                pending.pop()
            if alarm is not None and alarm.rang:
                return
            if pending and table.watch(pending[-1], gate.open):
                passed = gate.wait(deadline.remaining())
                table.unwatch(pending[-1], gate.open)
                if not passed and pending[-1].status == PENDING:
                    left = sum(entry.status == PENDING for entry in entries)
                    raise deadline.error(f"{left:,} of {len(entries):,} tasks did not finish")
    finally:
        if alarm is not None:
            table.clear_alarm(alarm)


class LoopGate:
    """A `Gate` for a task of an event loop; may be opened from any thread, and again after it was passed."""

    __slots__ = ("_is_open", "_loop", "_thread", "_waiter")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._is_open = False
        self._waiter: asyncio.Future[None] | None = None

    def open(self, entry: Entry | None = None) -> None:
        """Let the waiting task pass, once."""
        if threading.get_ident() == self._thread:
            self._open()  # The loop is the client's own: no hand-over.
        else:
            with suppress(RuntimeError):  # That loop is closed: nobody waits any more.
                self._loop.call_soon_threadsafe(self._open)

    def _open(self) -> None:
        self._is_open = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Pass, and close the gate behind."""
        if not self._is_open:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._is_open = False


async def wait_all_async(table: FutureTable, entries: Sequence[Entry], *, fail_fast: bool) -> None:
    """`wait_all` in the running loop. Cancelling the waiting task ends the wait; there is no timeout."""
    pending = [entry for entry in entries if entry.status == PENDING]
    if not pending:
        return
    gate = LoopGate()
    alarm = table.set_alarm(entries, gate.open) if fail_fast else None
    try:
        while pending:
            while pending and pending[-1].status != PENDING:
                pending.pop()
            if alarm is not None and alarm.rang:
                return
            if pending and table.watch(pending[-1], gate.open):
                try:
                    await gate.wait()
                finally:
                    table.unwatch(pending[-1], gate.open)
    finally:
        if alarm is not None:
            table.clear_alarm(alarm)
