"""One data connection on a blocking socket: handshake, headers, parts. Used by one thread at a time.

`Channel.abort` may be called from any thread: it makes calls in progress raise ConnectionLost.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Final

from shunter.errors import ConnectionLost, PeerError
from shunter.types import Buffer
from shunter.wire import sockets
from shunter.wire.contact import parse_address
from shunter.wire.frames import BULK_PREFIX, HEADER_MAX, Frame, check_lengths, decode_header, encode
from shunter.wire.handshake import Acceptor, Connector, HandshakeFailed

__all__ = ["Channel"]

#: Seconds for the whole handshake.
HANDSHAKE_S: Final = 10.0
#: Seconds between requests after which the serving side closes. Pools close earlier by themselves.
IDLE_S: Final = 600.0


class Channel:
    """A data connection. Made by `connect` or `accept`.

    Attributes:
        address: of the other end, for messages.
        idle_since: monotonic time of the end of the last exchange.
        answered: whether any byte of an answer to the last `send` has come.
    """

    __slots__ = ("_limit", "_sock", "_timeout", "address", "answered", "idle_since")

    def __init__(self, sock: socket.socket, address: str, *, limit: int, timeout: float) -> None:
        self.address = address
        self.idle_since = time.monotonic()
        self.answered = False
        self._sock = sock
        self._limit = limit
        self._timeout = timeout

    @classmethod
    def connect(cls, address: str, token: str, *, limit: int, timeout: float) -> Channel:
        """Connect to a data server and get through the handshake. Raises ConnectionLost, PeerError."""
        host, port = parse_address(address)
        try:
            sock = socket.create_connection((host, port), min(timeout, HANDSHAKE_S))
        except OSError as error:
            raise ConnectionLost(f"cannot connect to {address}: {sockets.explain(error)}") from None
        try:
            sockets.tune(sock, min(timeout, HANDSHAKE_S))
            side = Connector("data", token, {}, where=address)
            sockets.send_pieces(sock, [side.start()])
            deadline = time.monotonic() + HANDSHAKE_S
            while not side.done:
                answer = side.receive(_receive_some(sock, deadline))
                if answer:
                    sockets.send_pieces(sock, [answer])
            if side.rest:
                raise PeerError("it spoke without being asked")
            sockets.set_timeout(sock, timeout)
        except HandshakeFailed:  # Names the address already.
            sock.close()
            raise
        except ConnectionLost as error:
            sock.close()
            raise ConnectionLost(f"handshake with {address}: {error}") from None
        except PeerError as error:
            sock.close()
            raise PeerError(f"handshake with {address}: {error}") from None
        except BaseException:
            sock.close()
            raise
        return cls(sock, address, limit=limit, timeout=timeout)

    def shake_hands(self, token: str) -> None:
        """The serving side's handshake. Raises ConnectionLost, PeerError."""
        sock = self._sock
        sockets.tune(sock, min(self._timeout, HANDSHAKE_S))
        side = Acceptor(token, {"data"})
        deadline = time.monotonic() + HANDSHAKE_S
        try:
            while not side.proven:
                answer = side.receive(_receive_some(sock, deadline))
                if answer:
                    sockets.send_pieces(sock, [answer])
            sockets.send_pieces(sock, [side.welcome(0, {})])
        except HandshakeFailed as error:
            if error.answer:
                sockets.send_pieces(sock, [error.answer])
                self._hang_up()
            raise
        self.idle_since = time.monotonic()

    # ------------------------------------------------------------------------------------------ frames

    def send(self, frame: Frame) -> None:
        """Send a message. Raises UsageError before anything was sent, ConnectionLost afterwards."""
        pieces = encode(frame, bulk=True)
        self.answered = False
        sockets.send_pieces(self._sock, pieces)

    def receive_header(self) -> tuple[list[object], int]:
        """The next message's header, and the length of its body. Raises ConnectionLost, PeerError."""
        header = self._receive_header(eof=False)
        assert header is not None
        return header

    def wait_for_header(self) -> tuple[list[object], int] | None:
        """Like `receive_header`, for a server: waits longer, and None if the peer has closed the connection."""
        self.idle_since = time.monotonic()
        sockets.set_timeout(self._sock, IDLE_S)
        try:
            return self._receive_header(eof=True)
        finally:
            self.idle_since = float("inf")

    def receive_parts(self, lens: Sequence[Sequence[int]], body: int) -> list[list[Buffer]]:
        """The parts of each value. Raises ConnectionLost; PeerError if they do not fill the body."""
        total = sum(map(sum, lens))
        if total != body:
            raise PeerError(f"the lengths of the parts add up to {total:,}, the body has {body:,} bytes")
        parts = iter(sockets.receive_parts(self._sock, [each for value in lens for each in value]))
        return [[next(parts) for _ in value] for value in lens]

    def discard(self, body: int) -> None:
        """Skip a body."""
        sockets.discard(self._sock, body)

    def _receive_header(self, *, eof: bool) -> tuple[list[object], int] | None:
        prefix = bytearray(BULK_PREFIX.size)
        if not sockets.receive_into(self._sock, prefix, eof=eof):
            return None
        self.answered = True
        if eof:
            sockets.set_timeout(self._sock, self._timeout)
        header, body = BULK_PREFIX.unpack(prefix)
        check_lengths(header, body, header_max=HEADER_MAX, body_max=self._limit)
        head = bytearray(header)
        sockets.receive_into(self._sock, head)
        return decode_header(head), body

    # ----------------------------------------------------------------------------------------- closing

    @property
    def is_stale(self) -> bool:
        """An unused connection that the peer has closed, or on which it spoke without being asked."""
        try:
            self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def abort(self) -> None:
        """Break the connection, from any thread."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # It was broken already.

    def close(self) -> None:
        """Give the socket back; for the thread that uses the channel."""
        self._sock.close()

    def _hang_up(self) -> None:
        """Let the last words arrive: read on until the peer closes, or for a second."""
        try:
            self._sock.shutdown(socket.SHUT_WR)
            sockets.set_timeout(self._sock, 1.0)
            for _ in range(16):  # A peer that goes on talking is not worth more.
                if not self._sock.recv(65536):
                    return
        except OSError:
            pass


def _receive_some(sock: socket.socket, deadline: float) -> bytes:
    """Whatever has come, for the handshake."""
    if time.monotonic() > deadline:
        raise ConnectionLost("the handshake took too long")
    try:
        data = sock.recv(65536)
    except BlockingIOError:
        raise ConnectionLost("the peer did not answer in time") from None
    except OSError as error:
        raise ConnectionLost(f"the connection broke: {sockets.explain(error)}") from None
    if not data:
        raise ConnectionLost("the peer closed the connection")
    return data
