"""A scheduler that does as it is told: the other end of a worker's, or a parent's, control connection."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from shunter import serialize
from shunter.errors import PeerError
from shunter.wire import link as control
from shunter.wire import messages
from shunter.wire.link import Link
from shunter.wire.messages import FromParent, FromWorker
from shunter.worker.worker import Worker

TOKEN = "a-token"
#: Bound of every wait, seconds. Nothing here takes a tenth of it.
PATIENCE = 20.0

M = TypeVar("M")


class Peer:
    """A worker or parent that has joined, and what it has said."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.number = link.number
        self.said: list[FromWorker | FromParent] = []
        self.news = asyncio.Event()
        self.is_gone = asyncio.Event()
        self.functions: dict[Callable[..., Any], int] = {}

    async def hear(self, kind: type[M], *, where: Callable[[M], bool] = lambda message: True) -> M:
        """Wait for a message of a kind, and take it out of what was said."""

        async def search() -> M:
            while True:
                for message in self.said:
                    if isinstance(message, kind) and where(message):
                        self.said.remove(message)
                        return message
                self.news.clear()
                await self.news.wait()

        return await asyncio.wait_for(search(), PATIENCE)

    def say(self, *said: Any) -> None:
        self.link.send([message.frame() for message in said])

    def compute(
        self,
        key: str,
        run_id: int,
        fn: Callable[..., Any],
        *args: object,
        inputs: Sequence[tuple[str, int, list[int]]] = (),
        inline_max: int = 4096,
        blob: bytes | None = None,
        arguments: bytes | None = None,
        priority: float = 0.0,
    ) -> None:
        """Have ``fn(*args)`` run; the function travels when it is first used."""
        if fn not in self.functions:
            self.functions[fn] = len(self.functions)
            blob = blob if blob is not None else serialize.dump_function(fn)
            self.say(messages.WorkerFunctions([self.functions[fn]], [fn.__name__], [blob]))
        data = arguments if arguments is not None else serialize.dump_call(args, {})[0]
        self.say(
            messages.Compute(
                [key],
                [run_id],
                [self.functions[fn]],
                [(priority, 0.0, 0, run_id)],
                [[(*each, 1) for each in inputs] or None],
                [None],
                [inline_max],
                [1],
                [data],
            )
        )

    async def result(self, key: str) -> object:
        """Wait until a key is reported as finished; its value, if it came along."""
        message = await self.hear(messages.WorkerFinished, where=lambda each: key in each.keys)
        i = message.keys.index(key)
        blob = message.blobs[i]
        self.last = {name: column[i] for name, column in message._asdict().items()}
        return pickle.loads(blob) if blob is not None else None

    async def failure(self, key: str) -> messages.Failed:
        return await self.hear(messages.Failed, where=lambda each: each.key == key)


class FakeScheduler:
    """Accepts workers and parents. An async context manager; ``workers`` and ``parents`` in the order they came."""

    def __init__(self, *, heartbeat: float = 0.05, refuse: str = "") -> None:
        self.heartbeat = heartbeat
        self.refuse = refuse
        self.peers: dict[int, Peer] = {}
        self.joined = asyncio.Condition()
        self.workers: list[Peer] = []
        self.parents: list[Peer] = []
        self.errors: list[str] = []

    async def __aenter__(self) -> FakeScheduler:
        self.listener = await control.serve("127.0.0.1", 0, TOKEN, self._accept)
        self.address = self.listener.address
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.listener.close()
        await self.listener.wait_closed()
        for peer in self.peers.values():
            peer.link.abort("the fake scheduler ends")
        for peer in self.peers.values():
            await asyncio.wait_for(peer.link.wait_closed(), PATIENCE)

    async def worker(self, i: int = 0) -> Peer:
        """The worker that came as number ``i``; waits for it."""
        return await self._wait(self.workers, i)

    async def parent(self, i: int = 0) -> Peer:
        return await self._wait(self.parents, i)

    async def _wait(self, peers: list[Peer], i: int) -> Peer:
        async with self.joined:
            await asyncio.wait_for(self.joined.wait_for(lambda: len(peers) > i), PATIENCE)
        return peers[i]

    async def _accept(
        self, link: Link, role: str, details: dict[str, object]
    ) -> tuple[int, Mapping[str, object]]:
        if self.refuse:
            raise PeerError(self.refuse)
        link.owner = self
        number = len(self.peers) + 1
        peer = self.peers[number] = Peer(link)
        peer.number = number
        (self.workers if role == "worker" else self.parents).append(peer)
        async with self.joined:
            self.joined.notify_all()
        return number, {"heartbeat": self.heartbeat, "clock": 0.0, "name": "fake"}

    # ------------------------------------------------------------------------------------------- LinkOwner

    def on_message(self, link: Link, header: list[object], body: bytes) -> None:
        peer = next(peer for peer in self.peers.values() if peer.link is link)
        read = messages.from_worker if link.role == "worker" else messages.from_parent
        message = read(header, body)
        if isinstance(message, messages.WorkerHeartbeat):  # The latest one is enough.
            peer.said = [each for each in peer.said if not isinstance(each, messages.WorkerHeartbeat)]
        if isinstance(message, messages.WorkerFinished):
            peer.said += [messages.WorkerFinished(*([each] for each in row)) for row in zip(*message)]
        else:
            peer.said.append(message)
        peer.news.set()

    def on_batch(self, link: Link) -> None:
        pass

    def on_closed(self, link: Link, reason: str) -> None:
        for peer in self.peers.values():
            if peer.link is link:
                peer.is_gone.set()


class Running:
    """A fake scheduler and workers of this process, that have joined it."""

    def __init__(self, workers: int = 1, **options: Any) -> None:
        self.count = workers
        self.options = options

    async def __aenter__(self) -> Running:
        self.scheduler = FakeScheduler()
        await self.scheduler.__aenter__()
        self.workers = [
            Worker(self.scheduler.address, token=TOKEN, **self.options) for _ in range(self.count)
        ]
        self.peers = []
        for i, worker in enumerate(self.workers):
            await worker.start()
            self.peers.append(await self.scheduler.worker(i))
        for peer in self.peers:
            peer.say(messages.Peers([each.number for each in self.peers], [w.address for w in self.workers]))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        for worker in self.workers:
            await asyncio.wait_for(worker.close("the test ends"), PATIENCE)
        await self.scheduler.__aexit__(kind, error, tb)
