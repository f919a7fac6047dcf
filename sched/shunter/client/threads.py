"""The threads behind the synchronous client: its event loop, and the one that runs callbacks."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["CallbackThread", "LoopThread"]

T = TypeVar("T")


class LoopThread:
    """An event loop on a daemon thread of its own."""

    def __init__(self, name: str) -> None:
        # A selector loop everywhere: its sockets can be written to by other threads.
        self.loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for it. Ctrl-C cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the loop and wait for the thread, unless this is that thread."""
        with suppress(RuntimeError):  # It has ended already.
            self.loop.call_soon_threadsafe(self.loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(5.0)


class CallbackThread:
    """Runs callbacks one after the other. The thread starts with the first one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def run(self, call: Callable[[], object]) -> None:
        """Have it called soon. It must not raise."""
        self._queue.put(call)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Run what is queued, then end. Waits a while, unless this is that thread."""
        self._queue.put(None)
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _work(self) -> None:
        while True:
            call = self._queue.get()
            if call is None:
                return
            call()
            del call  # It refers to a future, which must not live until the next one comes.
