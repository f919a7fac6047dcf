"""The event loop on which users' coroutines run: a thread of its own, started by the first of them.

Heartbeats and messages never share it, so a coroutine that blocks harms nobody but other coroutines.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, final

__all__ = ["CoroutineLoop"]


@final
class CoroutineLoop:
    """Runs coroutines for task threads, which wait for them: each counts as one running task."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def run(self, coroutine: Coroutine[Any, Any, object]) -> object:
        """Run it in the context of the calling thread, and wait for its result. Raises what it raises."""
        try:
            loop = self._start()
        except BaseException:
            coroutine.close()
            raise
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    def close(self) -> None:
        """Cancel what runs and end the thread. Does not wait."""
        with self._lock:
            self._is_closed = True
            loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(loop.stop)
            except RuntimeError:
                pass  # Closed already.

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the worker is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=_serve, args=(self._loop,), name="shunter-coroutines", daemon=True
                ).start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        rest = asyncio.all_tasks(loop)
        for task in rest:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
