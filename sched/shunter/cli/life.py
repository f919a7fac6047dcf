"""The life of a service's process: it starts, says that it is ready, and ends when it is told to.

A service ends gracefully on the first SIGINT or SIGTERM, and at once on the second. With ``--die-with-stdin``
it ends as well when its standard input closes, which is what happens when the process that started it is
gone, however that died: so no kill -9 leaves an orphan behind.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import threading
from argparse import Namespace
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from shunter import config
from shunter.cli import exits

#: A graceful end may take this long (seconds); then the process ends in any case.
GRACE: Final = 10.0


class Service(Protocol):
    """What `serve` runs: a scheduler, or a parent of workers."""

    async def start(self) -> None: ...

    async def close(self, reason: str) -> None: ...


def set_up_logging(options: Namespace) -> None:
    """Send the log to stderr, at the level of ``--log-level``, else of ``SHUNTER_LOG_LEVEL``."""
    level = str(config.lookup("log_level", options.log_level))
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")


async def serve(
    service: Service,
    options: Namespace,
    *,
    on_ready: Callable[[], Awaitable[Mapping[str, object]]],
    finished: Callable[[], Awaitable[int]],
) -> int:
    """Run a service until it finishes by itself, or is told to stop.

    Args:
        service: what to run.
        options: ``die_with_stdin`` and ``ready_fd`` are looked at.
        on_ready: called once it has started; returns what the starter is to know, as soon as it may know it.
        finished: waits until the service ends by itself; returns the exit code.

    Returns:
        The exit code; 0 when it was told to stop.
    """
    stop = _stop_signals()
    if options.die_with_stdin:
        _watch_stdin(stop)
    work = asyncio.ensure_future(_run(service, options.ready_fd, on_ready, finished))
    try:
        await asyncio.wait((work, stop), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        logging.getLogger("shunter").info("stopping: %s", stop.result())
        return exits.OK  # Being told to stop is no failure.
    finally:
        work.cancel()
        timer = _end_by(GRACE)
        await service.close(stop.result() if stop.done() else "finished")
        timer.cancel()


async def _run(
    service: Service,
    ready_fd: int,
    on_ready: Callable[[], Awaitable[Mapping[str, object]]],
    finished: Callable[[], Awaitable[int]],
) -> int:
    await service.start()
    ended = asyncio.ensure_future(finished())
    ready = asyncio.ensure_future(on_ready())
    try:
        await asyncio.wait((ended, ready), return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            facts = ready.result()
            if ready_fd >= 0:
                with open(ready_fd, "w", encoding="utf-8") as file:
                    file.write(json.dumps(facts) + "\n")
        return await ended
    finally:
        ready.cancel()
        ended.cancel()


def _stop_signals() -> asyncio.Future[str]:
    """A future that the first SIGINT or SIGTERM resolves with its name; the second one ends the process."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[str] = loop.create_future()

    def on_signal(signum: signal.Signals) -> None:
        if stop.done():
            os._exit(128 + signum)
        stop.set_result(f"stopped by {signum.name}")

    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, on_signal, signum)
    return stop


def _watch_stdin(stop: asyncio.Future[str]) -> None:
    """Stop when standard input ends. A thread, so that it works even if the loop is stuck."""
    loop = asyncio.get_running_loop()

    def resolve() -> None:
        if not stop.done():
            stop.set_result("the process that started this one is gone")

    def watch() -> None:
        try:
            while os.read(0, 4096):
                pass
        except OSError:
            pass  # No standard input at all: nobody is there.
        _end_by(GRACE)
        try:
            loop.call_soon_threadsafe(resolve)
        except RuntimeError:
            pass  # The loop is closed: we are on the way out already.

    threading.Thread(target=watch, name="shunter-stdin", daemon=True).start()


def _end_by(seconds: float) -> threading.Timer:
    """End the process after some time, whatever it does: its end must not hang on work that does not stop."""
    timer = threading.Timer(seconds, os._exit, (exits.FAILED,))
    timer.daemon = True
    timer.start()
    return timer
