"""`AsyncClient`: the face for asyncio. It runs in the caller's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from types import TracebackType
from typing import Any, Literal

from shunter.client.base import BaseClient, Cluster, Keys, Where, names_of, restarting, shape_like
from shunter.client.client import find_scheduler, is_skip, key_of
from shunter.client.futures import DoneAndNotDone, Future, as_completed
from shunter.client.gather import locate
from shunter.client.graphs import Task
from shunter.client.nested import find_futures, replace_futures
from shunter.client.scatter import place
from shunter.client.session import Session
from shunter.client.waiting import Deadline
from shunter.errors import NoSuitableWorker

__all__ = ["AsyncClient"]


class AsyncClient(BaseClient):
    """As `Client`, in an event loop: ``async with AsyncClient(...) as client``, or ``client = await AsyncClient(...)``.

    `submit`, `map`, `submit_graph`, `cancel`, `retry` and `fire_and_forget` return at once, as in `Client`; what waits
    is a coroutine.
    Futures are awaited: ``await client.submit(fn, 1)``. Belongs to the loop and thread in which it was started.

    Args:
        address, token, scheduler_file, n_workers, threads_per_worker, processes, timeout, name: see `Client`.
    """

    def __init__(
        self,
        address: Where = None,
        *,
        token: str | None = None,
        scheduler_file: str | None = None,
        n_workers: int | None = None,
        threads_per_worker: int | None = None,
        processes: bool = True,
        timeout: float = 10.0,
        name: str | None = None,
    ) -> None:
        self._where = (address, token, scheduler_file)
        self._own = (n_workers, threads_per_worker, processes)
        self._timeout = timeout
        self._name = name or ""
        self._cluster: Cluster | None = None
        self._started = False
        self._closed = False

    async def start(self) -> AsyncClient:
        """Connect. Raises as `Client` does. A second call does nothing."""
        if self._started:
            return self
        self._started = True
        loop = asyncio.get_running_loop()
        found = find_scheduler(*self._where)
        if found is None:
            from shunter.deploy.local import LocalCluster

            self._cluster = cluster = await loop.run_in_executor(None, LocalCluster, *self._own)
            found = (cluster.address, cluster.token)
        self._session = Session(loop, loop.call_soon_threadsafe)
        try:
            await self._session.open(*found, name=self._name, timeout=self._timeout)
        except BaseException:
            await self._close_cluster()
            raise
        return self

    def __await__(self) -> Generator[Any, None, AsyncClient]:
        return self.start().__await__()

    async def __aenter__(self) -> AsyncClient:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel what is pending, disconnect, and end the cluster that it has started. A second call does nothing."""
        if self._closed or not self._started:
            return
        self._closed = True
        await self._session.say_goodbye_in_loop()  # What was said last must arrive: fire and forget.
        await self._session.close()
        await self._close_cluster()

    async def _close_cluster(self) -> None:
        if self._cluster is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._cluster.close)

    def __repr__(self) -> str:
        return f"<AsyncClient of {self.address}>" if self._started else "<AsyncClient, not started>"

    # ------------------------------------------------------------------------------------ results

    async def gather(self, futures: Any, *, errors: Literal["raise", "skip"] = "raise") -> Any:
        """See `Client.gather`. For a timeout use ``asyncio.wait_for``."""
        skip = is_skip(errors)
        entries = list(dict.fromkeys(each._entry for each in find_futures(futures)))
        values = await self._session.results.results_async(entries, skip=skip)
        return replace_futures(futures, values, skip=skip)

    async def get(self, graph: Mapping[str, Task], keys: Keys, **options: Any) -> Any:
        """See `Client.get`."""
        keys = keys if isinstance(keys, str) else list(keys)
        futures = self.submit_graph(graph, keys, **options)
        if isinstance(keys, str):
            return await futures[keys]
        return await self.gather([futures[key] for key in keys])

    async def wait(
        self,
        futures: Iterable[Future[Any]],
        timeout: float | None = None,
        return_when: Literal["ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION"] = "ALL_COMPLETED",
    ) -> DoneAndNotDone:
        """`shunter.wait`, without blocking the loop."""
        futures = list(futures)
        arrivals = as_completed(futures, timeout=timeout)
        try:
            async for future in arrivals:
                failed = future.status in ("error", "cancelled")
                if return_when == FIRST_COMPLETED or (return_when == "FIRST_EXCEPTION" and failed):
                    break
        except FutureTimeoutError:
            pass
        done = {future for future in futures if future.done()}
        return DoneAndNotDone(done, set(futures) - done)

    async def scatter(
        self,
        data: Any,
        *,
        workers: str | Iterable[str] | None = None,
        broadcast: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """See `Client.scatter`. Values are pickled on a thread."""
        values = self._name_values(data)
        if values:
            deadline = Deadline(self._timeout if timeout is None else timeout)
            names = None if workers is None else [workers] if isinstance(workers, str) else list(workers)
            call = partial(place, self._session, values, names, deadline, broadcast=broadcast)
            futures = self._announce(await asyncio.get_running_loop().run_in_executor(None, call))
            await self._session.results.confirm_async([each._entry for each in futures.values()])
            return shape_like(data, futures)
        return shape_like(data, {})

    # ------------------------------------------------------------------------------------ datasets and restart

    async def publish(self, name: str, value: Any, *, replace: bool = False) -> None:
        """See `Client.publish`."""
        make = self._session.datasets.publication(name, value, replace=replace)
        await self._session.connection.call_async(make)

    async def get_dataset(self, name: str) -> Any:
        """See `Client.get_dataset`."""
        datasets = self._session.datasets
        make = datasets.request(name)
        return datasets.load(name, await self._session.connection.call_async(make, receive=datasets.receive))

    async def unpublish(self, name: str) -> bool:
        """See `Client.unpublish`."""
        make = self._session.datasets.removal(name)
        found: bool = await self._session.connection.call_async(make)
        return found

    async def list_datasets(self) -> list[str]:
        """See `Client.list_datasets`."""
        return names_of(await self._session.connection.ask_async("datasets", {}))

    async def restart(self, timeout: float = 30.0) -> int:
        """See `Client.restart`."""
        make = restarting(timeout)
        count: int = await self._session.connection.call_async(make, refused=FutureTimeoutError)
        return count

    # ------------------------------------------------------------------------------------ questions

    async def workers(self) -> list[dict[str, Any]]:
        """See `Client.workers`."""
        found: list[dict[str, Any]] = await self._session.connection.ask_async("workers", {})
        return found

    async def wait_for_workers(self, n: int, timeout: float | None = None) -> None:
        """See `Client.wait_for_workers`."""
        deadline = Deadline(timeout)
        pause = 0.01
        while True:
            running = sum(each["status"] == "running" for each in await self.workers())
            if running >= n:
                return
            remaining = deadline.remaining()
            if remaining is not None and remaining <= pause:
                raise NoSuitableWorker(
                    f"{running} of {n} workers were there after {timeout:g} s. See: shunter status"
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.2)

    async def status(self) -> dict[str, Any]:
        """See `Client.status`."""
        found: dict[str, Any] = await self._session.connection.ask_async("status", {})
        return found

    async def who_has(self, futures: Any) -> dict[str, list[str]]:
        """See `Client.who_has`."""
        keys = list(dict.fromkeys(each.key for each in find_futures(futures)))
        call = partial(locate, self._session.connection, keys, Deadline(max(self._timeout, 30.0)))
        holdings = await asyncio.get_running_loop().run_in_executor(None, call)
        return {each.key: [address for _, address in each.holders] for each in holdings}

    async def story(self, future: Any) -> list[str]:
        """See `Client.story`."""
        found: list[str] = await self._session.connection.ask_async("story", {"key": key_of(future)})
        return found

    async def why(self, future: Any) -> str:
        """See `Client.why`."""
        found: str = await self._session.connection.ask_async("why", {"key": key_of(future)})
        return found
