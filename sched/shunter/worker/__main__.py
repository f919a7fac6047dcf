"""A worker process: ``python -m shunter.worker``, started by `shunter.worker.parent`.

Its configuration is one line of JSON on stdin, so that the token is on no command line; it ends when stdin ends,
which is what happens when the parent is gone, however that died. `shunter.worker.exits` tells what exit codes
mean. People use ``shunter worker``.
"""

from __future__ import annotations

import asyncio
import atexit
import faulthandler
import gc
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, NoReturn

from shunter.errors import ConnectionLost, PeerError, UsageError
from shunter.worker import exits
from shunter.worker.worker import Worker

logger = logging.getLogger("shunter.worker")

#: Seconds for a graceful end; then the process ends in any case, whatever its tasks do.
GRACE: Final = 2.5
#: How long a thread that runs Python keeps the interpreter, seconds: the loop gets its turn after that.
SWITCH_INTERVAL: Final = 1e-3


def main() -> int:
    """Run a worker until it ends or is told to; the exit code."""
    faulthandler.enable(all_threads=False)  # A segmentation fault shows where the task was.
    try:
        config = json.loads(sys.stdin.buffer.readline())
        logging.basicConfig(
            level=str(config.pop("log_level")).upper(),
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        )
        worker = Worker(**config)
    except (ValueError, TypeError, KeyError, UsageError) as error:
        sys.stderr.write(f"shunter.worker: no configuration on stdin (use `shunter worker`): {error}\n")
        return exits.USAGE
    stdin = _take_stdin()
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.collect()
    gc.freeze()
    return asyncio.run(_serve(worker, stdin))


async def _serve(worker: Worker, stdin: int) -> int:
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[str] = loop.create_future()

    def resolve(reason: str) -> None:
        if not stop.done():
            stop.set_result(reason)

    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, resolve, signum.name)
    threading.Thread(target=_watch, args=(stdin, loop, resolve), name="shunter-watchdog", daemon=True).start()
    try:
        await worker.start()
    except (ConnectionLost, PeerError, OSError) as error:
        logger.error("cannot join the scheduler: %s", error)
        return exits.REFUSED
    finally:
        worker.unlink_blame_map()  # Mapped by us and by the parent: the name is not needed any more.
    ended = asyncio.ensure_future(worker.finished())
    await asyncio.wait((ended, stop), return_when=asyncio.FIRST_COMPLETED)
    if not ended.done():
        _end_by(GRACE, exits.OK)
        await worker.close(stop.result())
    if worker.has_failed:
        return exits.INTERNAL
    return exits.LINK_LOST if worker.was_lost else exits.OK


def _take_stdin() -> int:
    """Keep stdin to ourselves: tasks, and what they start, read from nothing instead."""
    kept = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return kept


def _watch(stdin: int, loop: asyncio.AbstractEventLoop, resolve: Callable[[str], None]) -> None:
    """End the process when stdin ends: gracefully, and after a while in any case.

    A thread of its own, so that it works whatever the loop and the tasks do.
    """
    try:
        while os.read(stdin, 4096):
            pass
    except OSError:
        pass
    try:
        loop.call_soon_threadsafe(resolve, "its parent closed the line")
    except RuntimeError:
        pass  # The loop is closed: we are on the way out already.
    time.sleep(GRACE)
    if (
        os.getpgrp() == os.getpid()
    ):  # The parent made us the leader of a group: nobody else is left to end it.
        os.killpg(0, signal.SIGKILL)
    os._exit(exits.OK)


def _end_by(seconds: float, code: int) -> None:
    """End the process after some time, whatever it does."""
    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()


def _exit(code: int) -> NoReturn:
    """End without waiting for threads that tasks have left behind, as `sys.exit` would."""
    _end_by(GRACE, code)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _exit(main())
