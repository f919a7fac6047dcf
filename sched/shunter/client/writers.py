"""Puts frames on the connection, from whatever thread has them.

`SocketWriter` lets the calling thread write to the socket itself, which saves a hand-over to the loop (20–30 µs, or
5 ms while the caller is busy: the loop's thread waits for the GIL). It is the only writer of the connection once
the handshake is over, on a duplicate of the transport's socket, so its order needs one lock and no more: the
caller's. `LinkWriter` hands everything to the loop; for loops and transports that allow nothing else.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from shunter.wire.frames import Frame, encode
from shunter.wire.link import Link

__all__ = ["LinkWriter", "SocketWriter", "Writer", "make_writer"]

#: Bytes queued above which `Writer.wait_for_room` holds the caller up, until a quarter of it is left.
QUEUE_HIGH: Final = 64 * 1024 * 1024
DRAIN_POLL_S: Final = 0.005


class Writer(Protocol):
    """``write`` and ``wait_for_room`` are called with the session's lock."""

    def write(self, frames: Sequence[Frame]) -> None:
        """Send frames, behind all earlier ones. Never blocks; does nothing on a lost connection."""

    def wait_for_room(self) -> None:
        """Block while the scheduler reads too slowly, with the lock released meanwhile."""

    def drain(self, timeout: float) -> bool:
        """Wait until everything has been handed to the system. Called without the lock, not from the loop."""

    async def drain_in_loop(self, timeout: float) -> None:
        """`drain`, in the loop."""

    def close(self) -> None:
        """Let go. What is queued is lost."""


def make_writer(link: Link, loop: asyncio.AbstractEventLoop, lock: threading.RLock) -> Writer:
    """The fastest writer that this link and loop allow."""
    sock = link.duplicate_socket() if isinstance(loop, asyncio.SelectorEventLoop) else None
    return LinkWriter(link, loop) if sock is None else SocketWriter(sock, loop, lock)


class SocketWriter:
    """Writes from the calling thread; what the socket does not take at once follows from the loop."""

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop, lock: threading.RLock) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = loop
        self._room = threading.Condition(lock)
        self._pending: deque[memoryview] = deque()
        self._queued = 0
        self._closed = False

    def write(self, frames: Sequence[Frame]) -> None:
        if self._closed or not frames:
            return
        data = memoryview(b"".join([piece for frame in frames for piece in encode(frame)]))
        if not self._pending:
            data = data[self._send(data) :]
            if not data or self._closed:
                return
            with suppress(RuntimeError):  # The loop is closing.
                self._loop.call_soon_threadsafe(self._start_waiting)
        self._pending.append(data)
        self._queued += len(data)

    def wait_for_room(self) -> None:
        if self._queued <= QUEUE_HIGH:
            return
        while self._queued > QUEUE_HIGH // 4 and not self._closed:
            self._room.wait(1.0)

    def drain(self, timeout: float) -> bool:
        with self._room:
            return self._room.wait_for(lambda: not self._pending or self._closed, timeout)

    async def drain_in_loop(self, timeout: float) -> None:
        end = self._loop.time() + timeout
        # Polled: once in a client's life, and hardly ever more than once then.
        while self._pending and not self._closed and self._loop.time() < end:
            await asyncio.sleep(DRAIN_POLL_S)

    def close(self) -> None:
        with self._room:
            if self._closed:
                return
            self._closed = True
            self._pending.clear()
            self._queued = 0
            self._room.notify_all()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._dispose)

    def _send(self, data: memoryview) -> int:
        try:
            return self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self._closed = True  # The loop reads the same connection and learns the reason.
            self._room.notify_all()
            return 0

    def _start_waiting(self) -> None:
        with self._room:
            if self._pending and not self._closed:
                self._loop.add_writer(self._sock, self._on_writable)

    def _on_writable(self) -> None:
        with self._room:
            while self._pending and not self._closed:
                sent = self._send(self._pending[0])
                self._queued -= sent
                if sent < len(self._pending[0]):
                    self._pending[0] = self._pending[0][sent:]
                    break
                self._pending.popleft()
            if self._queued <= QUEUE_HIGH // 4:
                self._room.notify_all()
            if not self._pending or self._closed:
                self._loop.remove_writer(self._sock)

    def _dispose(self) -> None:
        self._loop.remove_writer(self._sock)
        self._sock.close()


class LinkWriter:
    """Hands everything to the loop, in order."""

    def __init__(self, link: Link, loop: asyncio.AbstractEventLoop) -> None:
        self._link = link
        self._loop = loop

    def write(self, frames: Sequence[Frame]) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._link.send, frames)

    def wait_for_room(self) -> None:
        pass  # The link is cut by itself when far too much is queued.

    def drain(self, timeout: float) -> bool:
        passed = threading.Event()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(passed.set)
        return passed.wait(timeout)

    async def drain_in_loop(self, timeout: float) -> None:
        await asyncio.sleep(0)  # The link has got it by then, and lingers when it is closed.

    def close(self) -> None:
        pass
