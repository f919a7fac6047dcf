"""A scheduler in this process, and peers that speak the wire with it over loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from shunter.server.scheduler import Scheduler
from shunter.wire import messages
from shunter.wire.details import ClientDetails, ParentDetails, WorkerDetails
from shunter.wire.link import Link, connect
from tests.server.false import FalseState

T = TypeVar("T")

#: Bound of everything that is awaited in a test, seconds.
PATIENCE = 20.0


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine, bounded in time."""
    return asyncio.run(asyncio.wait_for(main, PATIENCE))


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop go on until the condition holds."""
    while not condition():
        await asyncio.sleep(0.001)


class Peer:
    """One end of a connection to the scheduler; notes all that comes."""

    def __init__(self, read: Callable[[list[object], bytes], Any]) -> None:
        self.link: Link
        self.received: list[Any] = []
        self.closed_for: str | None = None
        self._read = read
        self._news = asyncio.Event()

    def on_message(self, link: Link, header: list[object], body: bytes) -> None:
        self.received.append(self._read(header, body))
        self._news.set()

    def on_batch(self, link: Link) -> None:
        pass

    def on_closed(self, link: Link, reason: str) -> None:
        self.closed_for = reason
        self._news.set()

    @property
    def number(self) -> int:
        return self.link.number

    def send(self, *what: Any) -> None:
        """Send messages, in one write."""
        self.link.send([message.frame() for message in what])

    def of(self, kind: type[T]) -> list[T]:
        return [message for message in self.received if isinstance(message, kind)]

    async def next(self, kind: type[T]) -> T:
        """Wait for a message of one kind; it is taken out."""
        while True:
            for index, message in enumerate(self.received):
                if isinstance(message, kind):
                    del self.received[index]
                    return message
            await self._wait(f"no {kind.__name__}; there is {self.received}")

    async def closed(self) -> str:
        """Wait until the connection is closed: the reason that the scheduler gave, else what the link says."""
        while self.closed_for is None:
            await self._wait("still open")
        said = self.of(messages.Closing)
        return said[-1].reason if said else self.closed_for

    async def _wait(self, complaint: str) -> None:
        self._news.clear()
        try:
            await asyncio.wait_for(self._news.wait(), PATIENCE / 2)
        except asyncio.TimeoutError:
            raise AssertionError(complaint) from None


class Running:
    """A scheduler that listens on loopback; ``async with``."""

    def __init__(self, state: FalseState | None = None, **options: Any) -> None:
        self.state = state if state is not None else FalseState()
        options.setdefault("make_state", lambda settings, now: self.state)
        self.scheduler = Scheduler(**options)
        self.peers: list[Peer] = []

    async def __aenter__(self) -> Running:
        await self.scheduler.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        for peer in self.peers:
            peer.link.abort("the test is over")
        await self.scheduler.close()

    async def client(self, name: str = "c") -> Peer:
        return await self._connect("client", ClientDetails(name).as_dict(), messages.from_scheduler_to_client)

    async def parent(self, name: str = "p") -> Peer:
        return await self._connect("parent", ParentDetails(name, 1).as_dict(), messages.to_parent)

    async def worker(
        self,
        name: str = "w",
        address: str = "tcp://127.0.0.1:1001",
        *,
        clock: float = 0.0,
        parent: int = -1,
        nthreads: int = 1,
    ) -> Peer:
        details = WorkerDetails(name, address, "127.0.0.1", nthreads, 0, {}, 1, clock, parent)
        return await self._connect("worker", details.as_dict(), messages.from_scheduler_to_worker)

    async def _connect(self, role: Any, details: dict[str, object], read: Any) -> Peer:
        peer = Peer(read)
        peer.link = await connect(self.scheduler.address, role, self.scheduler.token, details, peer)
        self.peers.append(peer)
        return peer

    async def steps(self, kind: type[Any], count: int = 1) -> list[Any]:
        """Wait until the state has had so many events of one kind."""
        await until(lambda: len(self.state.of(kind)) >= count)
        return self.state.of(kind)


#: What a test with a running scheduler is.
Story = Callable[[Running], Awaitable[None]]


def with_scheduler(story: Story, state: FalseState | None = None, **options: Any) -> None:
    """Run a story against a scheduler."""

    async def main() -> None:
        async with Running(state, **options) as running:
            await story(running)

    run(main())
