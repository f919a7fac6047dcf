"""Asks a scheduler questions (docs/protocol.md, ``query``): what commands need of a client, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from shunter.errors import ConnectionLost, PeerError
from shunter.wire import messages
from shunter.wire.details import ClientDetails
from shunter.wire.link import Link, connect


class Asker:
    """A client's connection that only asks questions."""

    def __init__(self) -> None:
        self._link: Link | None = None
        self._reason = ""
        self._last = 0
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[object] | None = None

    @classmethod
    async def connect(cls, address: str, token: str) -> Asker:
        """Connect. Raises ConnectionLost or PeerError."""
        asker = cls()
        asker._link = await connect(address, "client", token, ClientDetails(name="status").as_dict(), asker)
        return asker

    async def close(self) -> None:
        """Disconnect."""
        assert self._link is not None
        self._link.close("done")
        await self._link.wait_closed()

    async def ask(self, name: str, arguments: Mapping[str, object] | None = None) -> object:
        """The answer to a query. Raises PeerError if it is refused."""
        assert self._link is not None
        if self._reason:
            raise ConnectionLost(self._reason)
        self._last += 1
        self._waiting = self._loop.create_future()
        self._link.send([messages.Query(self._last, name, dict(arguments or {})).frame()])
        return await self._waiting

    def on_message(self, link: Link, header: list[object], body: bytes) -> None:
        """A message from the scheduler."""
        message = messages.from_scheduler_to_client(header, body)
        if isinstance(message, messages.Reply) and self._waiting is not None and not self._waiting.done():
            if message.ok:
                self._waiting.set_result(message.value)
            else:
                self._waiting.set_exception(PeerError(str(message.value)))

    def on_batch(self, link: Link) -> None:
        """Nothing waits for the end of a batch."""

    def on_closed(self, link: Link, reason: str) -> None:
        """The scheduler went away."""
        self._reason = f"connection to {link.address} lost: {reason}"
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionLost(self._reason))
