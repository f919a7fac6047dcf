"""Values for clients that cannot reach a worker: fetched by the scheduler, passed on, and never kept.

A few fetches run at a time, on threads of their own, since data connections are blocking. What one answer carries is
bounded by the sizes that the state knows, before anything is fetched; so is what waits for one client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

from shunter.errors import ShunterError
from shunter.server.columns import as_keys
from shunter.server.peers import ClientPeer, Peer, Peers
from shunter.state import View
from shunter.types import Buffer
from shunter.wire import messages
from shunter.wire.frames import Frame

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from shunter.wire.bulk import DataPool

#: Bytes of values in one answer, if there is more than one value in it.
TOGETHER_MAX: Final = 32 * 1024 * 1024
#: Bytes of one value: what fits in a message.
ALONE_MAX: Final = 63 * 1024 * 1024
#: Fetches at a time, for all clients.
FETCHES_MAX: Final = 2
#: Requests of one client that may wait.
WAITING_MAX: Final = 256
#: A client with this many bytes queued waits before more is fetched for it; looked at this often (seconds).
QUEUED_MAX: Final = 16 * 1024 * 1024
LOOK_EVERY_S: Final = 0.02


class Relay:
    """Answers the relay requests of clients.

    Args:
        token: the cluster's, for the workers' data ports.
        peers: all connections.
        get_view: ``state.view``.
        post: queues the answer.
    """

    __slots__ = (
        "_executor",
        "_get_view",
        "_peers",
        "_pool",
        "_post",
        "_slots",
        "_tasks",
        "_token",
        "_waiting",
    )

    def __init__(
        self,
        token: str,
        peers: Peers,
        get_view: Callable[[], View],
        post: Callable[[Peer, Frame], None],
    ) -> None:
        self._token = token
        self._peers = peers
        self._get_view = get_view
        self._post = post
        self._slots = asyncio.Semaphore(FETCHES_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[int, int] = {}
        self._pool: DataPool | None = None
        self._executor: Executor | None = None

    def take(self, client: ClientPeer, request: messages.Relay) -> None:
        """Start to answer a request."""
        if self._waiting.get(client.number, 0) >= WAITING_MAX:
            self._refuse(client, request, f"more than {WAITING_MAX} relay requests are waiting")
            return
        self._waiting[client.number] = self._waiting.get(client.number, 0) + 1
        task = asyncio.get_running_loop().create_task(self._serve(client, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Give up what is being fetched."""
        for task in list(self._tasks):
            task.cancel()
        if self._pool is not None:
            self._pool.close()
        if self._executor is not None:
            self._executor.shutdown(wait=False)

    async def _serve(self, client: ClientPeer, request: messages.Relay) -> None:
        try:
            async with self._slots:
                await self._answer(client, request)
        finally:
            left = self._waiting.pop(client.number, 1) - 1
            if left:
                self._waiting[client.number] = left

    async def _answer(self, client: ClientPeer, request: messages.Relay) -> None:
        while client.link.queued > QUEUED_MAX and not client.link.closed:
            await asyncio.sleep(LOOK_EVERY_S)
        worker = self._peers.find_worker(request.worker)
        if client.link.closed:
            return
        if worker is None:
            self._refuse(client, request, f"worker {request.worker} is gone")
            return
        try:
            keys = self._choose(request.keys)
            values = await self._fetch(worker.address, keys)
            sent = [key for key in keys if key in values]
            parts = [as_bytes(values[key]) for key in sent]
            check_size(sent, parts)
        except ShunterError as error:
            self._refuse(client, request, str(error))
            return
        answer = messages.Relayed(request.request, True, "", sent, parts)
        self._post(client, answer.frame())

    def _choose(self, keys: list[str]) -> list[str]:
        """The first of the keys that go into one answer together, by the sizes that the state knows."""
        chosen: list[str] = []
        room = TOGETHER_MAX
        for key, _, nbytes, _ in self._get_view().who_has(as_keys(keys)):
            if nbytes > ALONE_MAX:
                if chosen:
                    break
                raise too_large(cast("str", key), nbytes)
            if chosen and nbytes > room:
                break
            chosen.append(cast("str", key))
            room -= max(nbytes, 0)
        return chosen

    async def _fetch(self, address: str, keys: list[str]) -> dict[str, list[Buffer]]:
        if self._pool is None or self._executor is None:
            # Few schedulers ever relay: the others do without threads and what comes with them.
            from concurrent.futures import ThreadPoolExecutor

            from shunter.wire.bulk import DataPool

            self._pool = DataPool(self._token, per_peer=FETCHES_MAX, limit=2 * ALONE_MAX)
            self._executor = ThreadPoolExecutor(FETCHES_MAX, thread_name_prefix="shunter-relay")
        loop = asyncio.get_running_loop()
        values, _ = await loop.run_in_executor(self._executor, self._pool.get, address, keys)
        return values

    def _refuse(self, client: ClientPeer, request: messages.Relay, text: str) -> None:
        self._post(client, messages.Relayed(request.request, False, text, [], []).frame())


def check_size(keys: list[str], values: list[list[bytes]]) -> None:
    """Refuse what does not fit in one message: the sizes that were known beforehand are only the workers' figures."""
    sizes = [sum(map(len, parts)) for parts in values]
    if sum(sizes) > ALONE_MAX:
        largest = sizes.index(max(sizes))
        raise too_large(keys[largest], sizes[largest])


def too_large(key: str, nbytes: int) -> ShunterError:
    return ShunterError(
        f"the value of {key!r} has {nbytes} bytes, more than the scheduler relays ({ALONE_MAX}): "
        "run the client where it can reach the workers, or gather it in pieces"
    )


def as_bytes(parts: Sequence[Buffer]) -> list[bytes]:
    """The same parts: the wire takes any flat buffer, also where its types say bytes."""
    return cast("list[bytes]", list(parts))
