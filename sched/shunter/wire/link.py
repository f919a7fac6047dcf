"""Control connections: framed messages over TCP in an asyncio loop, after a handshake.

A link parses all complete frames of a chunk at once and hands them to its owner synchronously; the owner
answers with one `Link.send`, which is one write. That, and no timers, is where the speed comes from.

A connection changes hands: while the handshake lasts it belongs to `shunter.wire.greeting`, which knows no
frames but those of the handshake; a `Link` gets it only when both sides have proved themselves.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from shunter.errors import ConnectionLost, PeerError
from shunter.wire.contact import format_address, parse_address
from shunter.wire.frames import Frame, FrameReader, encode
from shunter.wire.greeting import Accepting, Connecting, hang_up
from shunter.wire.handshake import Acceptor, Connector, Role
from shunter.wire.shared_messages import Closing
from shunter.wire.sockets import bind, explain, reachable_host

__all__ = [
    "QUEUE_HIGH",
    "QUEUE_MAX",
    "Accept",
    "Accepted",
    "Link",
    "LinkOwner",
    "Listener",
    "connect",
    "serve",
]

logger = logging.getLogger("shunter.wire")

#: Bytes queued above which a link counts as congested (`Link.congested`).
QUEUE_HIGH: Final = 4 * 1024 * 1024
#: Bytes queued above which a link is cut: the peer does not read. `Link.queue_max` changes it for one link.
QUEUE_MAX: Final = 256 * 1024 * 1024

#: Seconds that a link which was closed has to get rid of what is queued.
_LINGER: Final = 5.0
#: Connections whose handshake is not over, at a time; one more, and the oldest is cut off.
_PENDING_MAX: Final = 1024
#: What connectors may be on a control connection.
_CONTROL_ROLES: Final = frozenset({"client", "worker", "parent"})


class LinkOwner(Protocol):
    """Who a link belongs to. All calls come from the loop's thread."""

    def on_message(self, link: Link, header: list[object], body: bytes) -> None:
        """One frame. Raising PeerError closes the link with that reason, as `Link.close` does."""

    def on_batch(self, link: Link) -> None:
        """All frames of one chunk have been given to `on_message`: settle and answer."""

    def on_closed(self, link: Link, reason: str) -> None:
        """The link is gone: called exactly once, never from within `Link.close` or `Link.send`."""


Accepted: TypeAlias = tuple[int, Mapping[str, object]]
#: Decides about a connector whose token was right: returns (number, welcome details), having set
#: ``link.owner``, or raises PeerError(reason), which the connector gets to read. If it returns, ``on_closed``
#: will be called once, even if the peer has left meanwhile. What it sends through the link goes out after the
#: welcome.
Accept: TypeAlias = Callable[["Link", Role, dict[str, object]], "Accepted | Awaitable[Accepted]"]


class Link(asyncio.Protocol):
    """One control connection. Made by `connect` and `serve`.

    Attributes:
        role: what the connector is.
        number: the number that the acceptor gave to this connection; −1 before.
        details: what this side told about itself (as acceptor: in welcome).
        peer_details: what the other side told.
        peer_versions: its versions of ``shunter`` and ``python``, and its ``build``; for information.
        address: ``tcp://host:port`` of the other end.
        owner: who gets the messages.
        queue_max: bytes queued above which the link is cut.
        on_drained: called when a congested link has room again.
    """

    owner: LinkOwner

    def __init__(
        self,
        transport: asyncio.Transport,
        side: Connector | Acceptor,
        *,
        role: Role,
        details: Mapping[str, object],
        address: str,
    ) -> None:
        self.role = role
        self.number = -1
        self.details: dict[str, object] = dict(details)
        self.peer_details = side.details if isinstance(side, Acceptor) else side.peer_details
        self.peer_versions = side.peer_versions
        self.address = address
        self.queue_max = QUEUE_MAX
        self.on_drained: Callable[[Link], None] | None = None
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._is_acceptor = isinstance(side, Acceptor)
        self._early: list[bytes] | None = []  # Sent before the link was opened; None afterwards.
        self._reason: str | None = None  # Why it is closed; None while it is not.
        self._last_words = ""  # The reason that the peer gave for closing.
        self._is_told = False  # `on_closed` was called, or nobody is to be told.
        self._congested = False
        self._is_paused = False  # By `pause`.
        self._gone: asyncio.Future[None] = self._loop.create_future()
        transport.set_write_buffer_limits(high=QUEUE_HIGH)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            # asyncio sets this too, but not on what a socket accepts that was made without a protocol number.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def __repr__(self) -> str:
        state = "open" if self._reason is None else f"closed: {self._reason}"
        return f"<Link {self.role} {self.number} {self.address} {state}>"

    # ---------------------------------------------------------------------------------------- sending

    def send(self, frames: Sequence[Frame]) -> None:
        """Queue messages, joined into one write that starts at once. Nothing happens on a closed link.

        Raises:
            UsageError: a frame is over a limit or cannot be encoded; then none of them is sent.
        """
        if self._reason is not None or not frames:
            return
        pieces: list[bytes | memoryview] = []
        for frame in frames:
            pieces += encode(frame)
        data = b"".join(pieces)
        if self._early is not None:
            self._early.append(data)
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > self.queue_max:
            self.abort(f"{self.address} does not read: {self.queued >> 20} MiB were queued for it")

    @property
    def queued(self) -> int:
        """Bytes given to `send` that the operating system has not taken yet."""
        if self._early is not None:
            return sum(map(len, self._early))
        return self._transport.get_write_buffer_size()

    def duplicate_socket(self) -> socket.socket | None:
        """Another handle of the connection, for an owner that writes past `send` from now on, and closes it.

        None if what is written is not what travels (TLS).
        """
        if self._transport.get_extra_info("sslcontext") is not None:
            return None
        own = self._transport.get_extra_info("socket")
        return None if own is None else own.dup()

    @property
    def congested(self) -> bool:
        """More than QUEUE_HIGH bytes are queued, and since then it was never less than a quarter of it."""
        return self._congested

    # ---------------------------------------------------------------------------------------- reading

    def pause(self) -> None:
        """Stop reading. The kernel's buffers then slow the peer down."""
        self._is_paused = True
        if self._reason is None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        self._is_paused = False
        if self._reason is None and self._early is None:
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """For asyncio only."""
        if self._reason is not None:
            return
        frames: list[tuple[list[object], bytes]] = []
        try:
            frames = self._reader.feed(data)
            for header, body in frames:
                if header[0] == "closing" and not self._is_acceptor:
                    self._last_words = str(header[1])[:1000] if len(header) > 1 else ""
                self.owner.on_message(self, header, body)
                if self.closed:  # By the owner: it wants no more.
                    break
        except PeerError as error:
            self.close(str(error))
        if frames:
            self.owner.on_batch(self)  # Also when it ended badly: what came before it stands.

    # ---------------------------------------------------------------------------------------- closing

    @property
    def closed(self) -> bool:
        """`close` was called or the connection is gone."""
        return self._reason is not None

    def close(self, reason: str) -> None:
        """Close after what is queued has been sent (for 5 s at most).

        The acceptor's side tells the peer the reason first, by ``["closing", reason]``. No message is handed on
        any more; `on_closed` follows soon. A second call does nothing.
        """
        if self._reason is not None:
            return
        if self._is_acceptor:
            self.send([Closing(reason).frame()])
        self._reason = reason
        self._loop.call_soon(self._tell_closed)
        hang_up(self._transport, _LINGER)

    def abort(self, reason: str) -> None:
        """Close at once; what is queued is lost."""
        if self._reason is None:
            self._reason = reason
            self._loop.call_soon(self._tell_closed)
        self._transport.abort()

    async def wait_closed(self) -> None:
        """Until the connection is really gone and what was queued has left."""
        await asyncio.shield(self._gone)

    def _tell_closed(self) -> None:
        if self._early is None and not self._is_told and self._reason is not None:
            self._is_told = True
            self.owner.on_closed(self, self._reason)

    # ------------------------------------------------------------------------------- called by asyncio

    def connection_lost(self, exc: Exception | None) -> None:
        """For asyncio only."""
        if self._reason is None:
            self._reason = self._reason_of(exc)
        if not self._gone.done():
            self._gone.set_result(None)
        self._tell_closed()

    def pause_writing(self) -> None:
        """For asyncio only."""
        self._congested = True

    def resume_writing(self) -> None:
        """For asyncio only."""
        self._congested = False
        if self.on_drained is not None and self._reason is None:
            self.on_drained(self)

    def _reason_of(self, exc: Exception | None) -> str:
        if self._last_words:
            return f"{self.address} closed the connection: {self._last_words}"
        if exc is not None:
            return f"the connection to {self.address} broke: {exc}"
        return f"{self.address} closed the connection"

    # --------------------------------------------------------------------- called at the handshake's end

    def open(self, number: int, details: Mapping[str, object], welcome: bytes) -> None:
        """For this module only: the acceptor's owner has agreed. Nothing is read before."""
        self.number = number
        self.details = dict(details)
        early = self._early or []
        self._early = None
        if self._reason is not None:  # It went away, or was closed, while the owner made up its mind.
            self._loop.call_soon(self._tell_closed)
            return
        self._transport.write(b"".join([welcome, *early]))
        if not self._is_paused:
            self._transport.resume_reading()

    def refuse(self, reason: str, answer: bytes) -> None:
        """For this module only: the acceptor's owner has refused."""
        self._is_told = True
        if self._reason is None:
            self._reason = reason
            self._transport.write(answer)
            hang_up(self._transport, _LINGER)

    def begin(self, side: Connector) -> None:
        """For this module only: the connector's caller has the link, or will before the loop's next pass."""
        self.number = side.number
        self._early = None
        self._loop.call_soon(self._begin, side.rest)

    def _begin(self, rest: bytes) -> None:
        if rest:
            self.data_received(rest)
        if not self._is_paused:
            self.resume()
        self._tell_closed()


class Listener:
    """A listening port. Made by `serve`.

    Attributes:
        host: where it really listens.
        port: likewise.
        address: ``tcp://host:port`` by which others reach it.
    """

    def __init__(self, sock: socket.socket, accept: Accept) -> None:
        self.host: str
        self.port: int
        self.host, self.port = sock.getsockname()[:2]
        self.address = format_address(reachable_host(self.host), self.port)
        self._sock = sock
        self._accept = accept
        self._server: asyncio.Server | None = None
        self._pending: dict[Accepting, None] = {}  # In order of arrival.
        self._admissions: set[asyncio.Task[None]] = set()

    async def start(self, token: str, timeout: float) -> None:
        """For `serve` only."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: self._make_protocol(token, timeout), sock=self._sock, backlog=1024
        )

    def close(self) -> None:
        """Stop listening and cut off connections whose handshake is not over. Links stay."""
        if self._server is not None:
            self._server.close()
        for task in self._admissions:
            task.cancel()
        for each in list(self._pending):
            each.cut()

    async def wait_closed(self) -> None:
        """Until the port is free and the handshakes are cut off."""
        if self._admissions:
            await asyncio.wait(self._admissions)

    def _make_protocol(self, token: str, timeout: float) -> Accepting:
        """For this module only: what a new connection gets."""
        if len(self._pending) >= _PENDING_MAX:
            oldest = next(iter(self._pending))
            oldest.cut()
        accepting = Accepting(
            Acceptor(token, _CONTROL_ROLES),
            on_proven=self._on_proven,
            on_over=self._pending.pop,
            timeout=timeout,
        )
        self._pending[accepting] = None
        return accepting

    def _on_proven(self, accepting: Accepting) -> None:
        side = accepting.side
        link = Link(accepting.transport, side, role=side.role, details={}, address=accepting.address)
        accepting.transport.set_protocol(link)
        task = asyncio.get_running_loop().create_task(self._admit(link, side))
        self._admissions.add(task)
        task.add_done_callback(self._admissions.discard)

    async def _admit(self, link: Link, side: Acceptor) -> None:
        """Let the owner decide."""
        try:
            answer = self._accept(link, side.role, side.details)
            number, details = await answer if inspect.isawaitable(answer) else answer
            welcome = side.welcome(number, details)
        except PeerError as error:
            logger.warning("%s from %s refused: %s", side.role, link.address, error)
            link.refuse(str(error), side.refuse(str(error)))
        except asyncio.CancelledError:
            link.refuse("closing", side.refuse("the scheduler is closing"))
            raise
        except Exception:
            logger.exception("%s from %s could not be admitted", side.role, link.address)
            link.refuse("internal error", side.refuse("internal error of the scheduler: see its log"))
        else:
            link.open(number, details, welcome)


async def connect(
    address: str,
    role: Role,
    token: str,
    details: Mapping[str, object],
    owner: LinkOwner,
    *,
    timeout: float = 10.0,
) -> Link:
    """Connect to a scheduler and get through the handshake, in at most ``timeout`` seconds.

    No message is handed to ``owner`` before this has returned and the caller has come to its next ``await``.

    Raises:
        UsageError: the address is malformed.
        ConnectionLost: nothing answers there, or it went away.
        PeerError: wrong token, wrong version, refused, or not shunter's port.
    """
    host, port = parse_address(address)
    side = Connector(role, token, details, where=address)
    connecting = Connecting(side, address)

    async def shake_hands() -> asyncio.Transport:
        await asyncio.get_running_loop().create_connection(lambda: connecting, host, port)
        return await connecting.done

    try:
        transport = await asyncio.wait_for(shake_hands(), timeout)
    except (PeerError, ConnectionLost):
        raise
    except asyncio.TimeoutError:
        raise ConnectionLost(f"{address} did not answer as a scheduler within {timeout:g} s") from None
    except OSError as error:
        raise ConnectionLost(f"cannot connect to {address}: {explain(error)}") from None
    finally:
        if not side.done:
            connecting.cut()
    link = Link(transport, side, role=role, details=details, address=address)
    link.owner = owner
    transport.set_protocol(link)
    link.begin(side)
    return link


async def serve(
    host: str,
    port: int,
    token: str,
    accept: Accept,
    *,
    sock: socket.socket | None = None,
    timeout: float = 10.0,
) -> Listener:
    """Listen for control connections. ``port`` 0 lets the system choose; ``sock`` is used instead if given.

    Args:
        host: name or address to listen on; "0.0.0.0" or "::" for all.
        port: likewise.
        token: the cluster's token.
        accept: decides about connectors whose token was right.
        sock: a bound socket to use instead.
        timeout: seconds that a connector has for its part of the handshake.

    Raises:
        OSError: the port is in use, or the host is not here.
    """
    sock = sock if sock is not None else bind(host, port)
    listener = Listener(sock, accept)
    await listener.start(token, timeout)
    return listener
