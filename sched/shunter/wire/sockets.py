"""Sockets below asyncio: listen, and move bytes over blocking connections without copying them in Python."""

from __future__ import annotations

import errno
import mmap
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from shunter.errors import ConnectionLost, PeerError
from shunter.types import Buffer

__all__ = [
    "allocate",
    "bind",
    "discard",
    "explain",
    "reachable_host",
    "receive_into",
    "receive_parts",
    "send_pieces",
    "set_timeout",
    "tune",
]

#: Parts of at least this size get memory of their own from the system: see `allocate`.
_LARGE: Final = 1024 * 1024
#: Parts below this size travel together, several to a system call, and are copied once.
_SMALL: Final = 64 * 1024
#: At most this much is copied together.
_RUN: Final = 1024 * 1024


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. ``port`` 0 lets the system choose.

    One socket, also for a name with several addresses: with port 0 each would get a port of its own.

    Raises:
        OSError: the port is in use, or the host is not here.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # Elsewhere it would let two processes share the port.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(1024)
    except OSError:
        sock.close()
        raise
    return sock


def reachable_host(host: str) -> str:
    """The host by which others reach a socket that is bound to ``host``: itself, unless that means "all"."""
    if host not in ("0.0.0.0", "::"):
        return host
    family = socket.AF_INET6 if host == "::" else socket.AF_INET
    # Which of our addresses leads outside? Nothing is sent: a UDP "connect" only looks up the route, here to
    # an address that is reserved for documentation.
    target = "2001:db8::1" if family == socket.AF_INET6 else "192.0.2.1"
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return "::1" if family == socket.AF_INET6 else "127.0.0.1"


def explain(error: OSError) -> str:
    """An operating system's error in few words, with the next move where there is one."""
    if isinstance(error, ConnectionRefusedError) or error.errno == errno.ECONNREFUSED:
        return "nothing listens there (connection refused); is it running, is the port right?"
    if isinstance(error, socket.gaierror):
        return f"the host cannot be found ({error.strerror})"
    return error.strerror or str(error) or type(error).__name__


def tune(sock: socket.socket, timeout: float) -> None:
    """Make a socket fit for blocking transfers."""
    sock.settimeout(
        None
    )  # With a timeout Python makes it non-blocking inside, and MSG_WAITALL has no effect.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    set_timeout(sock, timeout)


def set_timeout(sock: socket.socket, seconds: float) -> None:
    """How long the kernel waits for progress in one call before it gives up; 0 means for ever."""
    timeval = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)


def receive_into(
    sock: socket.socket, target: bytearray | memoryview | mmap.mmap, *, eof: bool = False
) -> bool:
    """Fill ``target``. False if ``eof`` is allowed and the peer had closed before the first byte.

    Raises:
        ConnectionLost: the peer went away, or sent nothing for the time that `set_timeout` allows.
    """
    with memoryview(target) as view:
        at, size = 0, len(view)
        while at < size:
            try:
                count = sock.recv_into(view[at:], size - at, socket.MSG_WAITALL)
            except BlockingIOError:
                raise ConnectionLost(f"no data came for too long, {size - at:,} bytes are missing") from None
            except OSError as error:
                raise ConnectionLost(f"the connection broke: {explain(error)}") from None
            if count == 0:
                if eof and at == 0:
                    return False
                raise ConnectionLost(f"the peer closed the connection, {size - at:,} bytes are missing")
            at += count
    return True


def receive_parts(sock: socket.socket, lens: Sequence[int]) -> list[Buffer]:
    """Receive parts of these lengths, each into writable memory of its own.

    Raises as `receive_into` does, and PeerError if there is no memory for a part.
    """
    parts: list[Buffer] = []
    for run in _runs(lens):
        if len(run) == 1:
            part = allocate(run[0])
            if run[0]:
                receive_into(sock, part)
            parts.append(part)
        else:
            scratch = bytearray(sum(run))
            receive_into(sock, scratch)
            at = 0
            for size in run:
                parts.append(scratch[at : at + size])
                at += size
    return parts


def allocate(size: int) -> bytearray | mmap.mmap:
    """Memory to receive into. Raises PeerError if there is none.

    Large blocks come from the system, in huge pages if it has them: they are not filled with zeros twice, and
    few page faults slow down the first write.
    """
    try:
        if size < _LARGE:
            return bytearray(size)
        block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, MemoryError, OverflowError, ValueError) as error:
        raise PeerError(f"{size:,} bytes were announced and there is no memory for them: {error}") from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            block.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # A kernel without huge pages; only slower.
    return block


def discard(sock: socket.socket, nbytes: int) -> None:
    """Receive bytes and forget them. Raises as `receive_into` does."""
    scratch = memoryview(bytearray(min(nbytes, _RUN)))
    while nbytes > 0:
        count = min(nbytes, len(scratch))
        receive_into(sock, scratch[:count])
        nbytes -= count


def send_pieces(sock: socket.socket, pieces: Iterable[bytes | memoryview]) -> None:
    """Send pieces in order: small ones together, large ones from where they are.

    Raises:
        ConnectionLost: the peer went away, or took nothing for the time that `set_timeout` allows.
    """
    together: list[bytes | memoryview] = []
    size = 0
    try:
        for piece in pieces:
            if len(piece) < _SMALL:
                together.append(piece)
                size += len(piece)
                if size < _RUN:
                    continue
                sock.sendall(b"".join(together))
            else:
                if together:
                    sock.sendall(b"".join(together))
                sock.sendall(piece)
            together, size = [], 0
        if together:
            sock.sendall(b"".join(together))
    except BlockingIOError:
        raise ConnectionLost("the peer took no data for too long") from None
    except OSError as error:
        raise ConnectionLost(f"the connection broke: {explain(error)}") from None


def _runs(lens: Sequence[int]) -> Iterable[list[int]]:
    """Group neighbours that are small; everything else stands alone."""
    run: list[int] = []
    total = 0
    for size in lens:
        if size >= _SMALL or total + size > _RUN:
            if run:
                yield run
                run, total = [], 0
        if size >= _SMALL:
            yield [size]
        else:
            run.append(size)
            total += size
    if run:
        yield run
