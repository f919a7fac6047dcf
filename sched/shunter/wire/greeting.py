"""The handshake on asyncio transports: `Connecting` and `Accepting` own a connection until a link gets it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from shunter.errors import ConnectionLost
from shunter.wire.contact import format_address
from shunter.wire.handshake import Acceptor, Connector, HandshakeFailed

__all__ = ["Accepting", "Connecting", "hang_up", "peer_address"]

logger = logging.getLogger("shunter.wire")

#: Seconds that a connector has to read why it was refused.
_LINGER: Final = 1.0


class Connecting(asyncio.Protocol):
    """The connector's side. ``done`` is the transport, paused, once the handshake is over.

    Args:
        side: the handshake.
        where: the address, for messages.
    """

    def __init__(self, side: Connector, where: str) -> None:
        self.done: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()
        self._side = side
        self._where = where
        self._transport: asyncio.Transport | None = None

    def cut(self) -> None:
        """Give up."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._side.start())

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if self.done.done():
            return
        try:
            answer = self._side.receive(data)
        except HandshakeFailed as error:
            self.done.set_exception(error)
            self._transport.abort()
            return
        if answer:
            self._transport.write(answer)
        if self._side.done:
            self._transport.pause_reading()  # What follows is for the link.
            self.done.set_result(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            why = f": {exc}" if exc is not None else ""
            self.done.set_exception(
                ConnectionLost(f"{self._where} closed the connection during the handshake{why}")
            )


class Accepting(asyncio.Protocol):
    """The acceptor's side.

    Args:
        side: the handshake.
        on_proven: gets this object once the connector has proved itself; the transport is paused.
        on_over: gets this object when the handshake is over, well or not.
        timeout: seconds that the connector has.
    """

    def __init__(
        self,
        side: Acceptor,
        *,
        on_proven: Callable[[Accepting], None],
        on_over: Callable[[Accepting], None],
        timeout: float,
    ) -> None:
        self.side = side
        self.address = "unknown"
        self._transport: asyncio.Transport | None = None
        self._on_proven = on_proven
        self._on_over = on_over
        self._timer = asyncio.get_running_loop().call_later(timeout, self._on_timeout, timeout)
        self._is_over = False

    def cut(self) -> None:
        """Close without a word."""
        self._over()
        if self._transport is not None:
            self._transport.abort()

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = peer_address(transport)
        if self._is_over:  # It was cut off before it began.
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        try:
            answer = self.side.receive(data)
        except HandshakeFailed as error:
            logger.warning("connection from %s refused: %s", self.address, error)
            self._over()
            if error.answer:
                self.transport.write(error.answer)
            hang_up(self.transport, _LINGER)
            return
        if answer:
            self.transport.write(answer)
        if self.side.proven:
            self._over()
            self.transport.pause_reading()  # Nothing may be said before the welcome.
            self._on_proven(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_over:
            logger.info("%s went away during the handshake", self.address)
            self._over()

    def _on_timeout(self, timeout: float) -> None:
        logger.warning("connection from %s cut off: no handshake within %g s", self.address, timeout)
        self.cut()

    def _over(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._timer.cancel()
            self._on_over(self)


def hang_up(transport: asyncio.Transport, linger: float) -> None:
    """Close once what is queued has gone and the peer has hung up too; after ``linger`` seconds in any case.

    Closing at once could destroy the last words on their way: the kernel answers what still comes in with a reset.
    """
    transport.resume_reading()
    try:
        if transport.can_write_eof():
            transport.write_eof()
        else:
            transport.close()
    except OSError:  # It is gone already.
        transport.abort()
    asyncio.get_running_loop().call_later(linger, transport.abort)


def peer_address(transport: asyncio.BaseTransport) -> str:
    """``tcp://host:port`` of the other end."""
    name = transport.get_extra_info("peername")
    if isinstance(name, tuple) and len(name) >= 2:
        return format_address(str(name[0]), int(name[1]))
    return "unknown"
