"""A scheduler and workers inside this process, on an event loop in a thread of its own.

Nothing of the process is changed: not its garbage collector, its switch interval or its signal handlers.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Final

from shunter.errors import ShunterError

if TYPE_CHECKING:
    from shunter.server.scheduler import Scheduler
    from shunter.state import Settings
    from shunter.worker.worker import Worker

#: All of it may take this long to end (seconds); a task that does not stop is left behind in a daemon thread.
GRACE: Final = 3.0


class InProcess:
    """See `LocalCluster` for the arguments."""

    def __init__(
        self,
        n_workers: int,
        threads_per_worker: int,
        host: str,
        memory_limit: int,
        resources: dict[str, float],
        settings: Settings | None,
        timeout: float,
    ) -> None:
        self.address = self.token = ""
        self._scheduler: Scheduler | None = None
        self._workers: list[Worker] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="shunter-cluster", daemon=True)
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(
            self._start(n_workers, threads_per_worker, host, memory_limit, resources, settings), self._loop
        )
        try:
            started.result(timeout)
        except FutureTimeout:
            started.cancel()
            self.close()
            raise ShunterError(f"the cluster did not start within {timeout:g} s") from None
        except BaseException:
            started.cancel()
            self.close()
            raise

    async def _start(
        self,
        n_workers: int,
        threads_per_worker: int,
        host: str,
        memory_limit: int,
        resources: dict[str, float],
        settings: Settings | None,
    ) -> None:
        from shunter import config
        from shunter.server.scheduler import Scheduler
        from shunter.wire.contact import new_token
        from shunter.worker.worker import Worker

        self.token = new_token()
        self._scheduler = Scheduler(host=host, token=self.token, settings=settings or config.settings())
        await self._scheduler.start()
        self.address = self._scheduler.address
        for number in range(n_workers):
            worker = Worker(
                self.address,
                token=self.token,
                nthreads=threads_per_worker,
                name=f"local-{number}",
                host=host,
                resources=resources,
                memory_limit=memory_limit,
            )
            self._workers.append(worker)
            await worker.start()

    def close(self) -> None:
        """End all of it, in a bounded time."""
        stopped = asyncio.run_coroutine_threadsafe(self._stop(), self._loop)
        if threading.current_thread() is self._thread:
            return  # Collected by the garbage collector there: the loop goes on and ends by itself.
        try:
            stopped.result(2 * GRACE)
        except FutureTimeout:
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(GRACE)

    async def _stop(self) -> None:
        try:
            closing = [worker.close(reason="the cluster is closed") for worker in self._workers]
            await asyncio.wait_for(asyncio.gather(*closing, return_exceptions=True), GRACE)
            if self._scheduler is not None:
                await asyncio.wait_for(self._scheduler.close("the cluster is closed"), GRACE)
        except asyncio.TimeoutError:
            pass  # Threads are daemons, sockets close with the loop.
        finally:
            self._loop.call_soon(self._loop.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            rest = asyncio.all_tasks(self._loop)
            for task in rest:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
        finally:
            self._loop.close()
