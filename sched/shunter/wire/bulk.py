"""Data connections: values between workers, and between clients and workers, on blocking sockets and threads.

A value is a list of parts: a pickle and its out-of-band buffers. Parts go from the sender's memory into
memory of their own at the receiver, without a copy in Python. Why threads and blocking sockets: ``recv_into`` with
MSG_WAITALL keeps its speed in a busy process and leaves the event loop alone.
"""

from __future__ import annotations

import itertools
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from shunter.errors import ConnectionLost, PeerError, ShunterError, UsageError
from shunter.types import Buffer
from shunter.wire import sockets
from shunter.wire.channel import Channel
from shunter.wire.contact import format_address
from shunter.wire.frames import Frame
from shunter.wire.messages import (
    Busy,
    Data,
    DataAnswer,
    Get,
    Put,
    PutFailed,
    Stored,
    data_answer,
    data_request,
)

__all__ = ["LIMIT", "DataPool", "DataServer", "Getter", "PeerBusy", "Putter", "Values"]

logger = logging.getLogger("shunter.wire")

#: Largest body accepted by default, bytes. Memory is touched only as data arrives.
LIMIT: Final = 2**40

Values: TypeAlias = dict[str, list[Buffer]]

#: keys → (values by key, keys that are not here). Called on a connection's thread.
Getter: TypeAlias = Callable[[list[str]], tuple[Values, list[str]]]
#: values by key → bytes stored for each, in the same order. Called on a connection's thread.
Putter: TypeAlias = Callable[[Values], list[int]]

_T = TypeVar("_T")


class PeerBusy(ShunterError):
    """The peer serves as many transfers as it can: try another holder, or again later."""


class DataServer:
    """Serves values on a port: one thread that accepts, one for each connection.

    Args:
        host: name or address to listen on; "0.0.0.0" or "::" for all.
        port: 0 lets the system choose.
        token: the cluster's token.
        get: looks values up. An exception is told to the peer as text.
        put: stores values. An exception is told to the peer as text.
        transfers_max: requests served at a time; more are answered with ``busy``.
        connections_max: open connections; when one more comes, the one that was idle longest is closed.
        limit: largest body that is accepted, bytes.
        timeout: seconds without progress after which a transfer is given up.

    Attributes:
        address: ``tcp://host:port`` by which others reach it (bound by the constructor).

    Raises:
        OSError: the port is in use, or the host is not here.
    """

    def __init__(
        self,
        host: str,
        port: int,
        token: str,
        *,
        get: Getter,
        put: Putter,
        transfers_max: int = 16,
        connections_max: int = 512,
        limit: int = LIMIT,
        timeout: float = 30.0,
    ) -> None:
        self._listening = sockets.bind(host, port)
        bound_host, bound_port = self._listening.getsockname()[:2]
        self.address = format_address(sockets.reachable_host(bound_host), bound_port)
        self._token = token
        self._get = get
        self._put = put
        self._transfers = threading.Semaphore(transfers_max)
        self._connections_max = connections_max
        self._limit = limit
        self._timeout = timeout
        self._closing = threading.Event()
        self._lock = threading.Lock()  # Guards what follows.
        self._connections: dict[Channel, threading.Thread] = {}
        self._numbers = itertools.count(1)
        self._accepting = threading.Thread(target=self._accept, name="shunter-data-accept", daemon=True)

    def start(self) -> None:
        """Start to accept."""
        self._accepting.start()

    def close(self) -> None:
        """Stop listening, break all connections and wait for the threads (5 seconds at most)."""
        with self._lock:
            was_closed = self._closing.is_set()
            self._closing.set()
            threads = list(self._connections.values())
            for channel in self._connections:  # Under the lock: their threads close them without it, later.
                channel.abort()
        if not was_closed:
            self._stop_listening()
        deadline = time.monotonic() + 5.0
        for thread in (self._accepting, *threads):
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        self._listening.close()

    def _stop_listening(self) -> None:
        try:
            self._listening.shutdown(socket.SHUT_RDWR)  # Wakes the accepting thread.
        except OSError:  # Not on every system; a connection does it everywhere.
            try:
                socket.create_connection(self._listening.getsockname()[:2], 1.0).close()
            except OSError:
                pass

    # -------------------------------------------------------------------------------------- accepting

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                sock, peer = self._listening.accept()
            except OSError as error:
                if self._closing.is_set():
                    return
                # Out of file descriptors, or the peer was gone already. Neither ends the server.
                logger.warning("data port: cannot accept a connection: %s", sockets.explain(error))
                self._closing.wait(0.05)
                continue
            address = format_address(str(peer[0]), int(peer[1]))
            channel = Channel(sock, address, limit=self._limit, timeout=self._timeout)
            if not self._start_thread(channel):
                channel.close()

    def _start_thread(self, channel: Channel) -> bool:
        """Give the connection a thread; False if there is no room for it."""
        with self._lock:
            if self._closing.is_set():
                return False
            if len(self._connections) >= self._connections_max and not self._make_room():
                logger.warning("data port: %s turned away: all connections are in use", channel.address)
                return False
            name = f"shunter-data-{next(self._numbers)}"
            thread = threading.Thread(target=self._serve, args=(channel,), name=name, daemon=True)
            self._connections[channel] = thread
            try:
                thread.start()
            except RuntimeError as error:  # The system's limit of threads.
                del self._connections[channel]
                logger.warning("data port: %s turned away: %s", channel.address, error)
                return False
        return True

    def _make_room(self) -> bool:
        """Close the connection that was idle longest; its pool will open another when it needs one."""
        longest = min(self._connections, key=lambda channel: channel.idle_since)
        if longest.idle_since == float("inf"):
            return False
        longest.idle_since = float("inf")  # Not again while its thread ends.
        longest.abort()
        return True

    # ---------------------------------------------------------------------------------------- serving

    def _serve(self, channel: Channel) -> None:
        """A connection's thread."""
        try:
            channel.shake_hands(self._token)
            while (request := channel.wait_for_header()) is not None:
                self._answer(channel, *request)
        except PeerError as error:
            logger.warning("data connection from %s closed: %s", channel.address, error)
        except ConnectionLost as error:
            if not self._closing.is_set():
                logger.info("data connection from %s lost: %s", channel.address, error)
        except Exception:
            logger.exception("data connection from %s closed after an internal error", channel.address)
        finally:
            with self._lock:
                self._connections.pop(channel, None)
            channel.close()

    def _answer(self, channel: Channel, header: list[object], body: int) -> None:
        request = data_request(header)
        if not self._transfers.acquire(blocking=False):
            # A body has to be read all the same, or the answer would be lost on its way.
            channel.discard(body)
            channel.send(Busy().frame())
            return
        try:
            frame = self._frame_for(channel, request, body)
            try:
                channel.send(frame)
            except UsageError as error:  # Nothing was sent: more parts than a header can name, for one.
                channel.send(PutFailed(str(error)).frame())
        finally:
            self._transfers.release()

    def _frame_for(self, channel: Channel, request: Get | Put, body: int) -> Frame:
        """Do what is asked and lay out the answer."""
        if isinstance(request, Put):
            values = channel.receive_parts(request.lens, body)
            by_key = dict(zip(request.keys, values))
            del values
            try:
                return Stored(self._put(by_key)).frame()
            except Exception as error:
                logger.exception("data port: values could not be stored")
                return PutFailed(_text(error)).frame()
        if body:
            raise PeerError(f"a get request has a body of {body:,} bytes")
        try:
            found, missing = self._get(request.keys)
        except Exception as error:
            logger.exception("data port: values could not be looked up")
            return PutFailed(_text(error)).frame()
        header = Data(list(found), [_lens(value) for value in found.values()], missing).frame()[0]
        return header, [part for value in found.values() for part in value]


class DataPool:
    """Connections to data servers, kept for the next transfer. Thread-safe; calls block.

    Args:
        token: the cluster's token.
        per_peer: transfers at a time with one peer; further calls wait.
        idle_s: unused connections are closed after this long (at the next call, or by `close_idle`).
        limit: largest body that is accepted, bytes.
        timeout: seconds to connect, and without progress after which a transfer is given up.
    """

    def __init__(
        self,
        token: str,
        *,
        per_peer: int = 4,
        idle_s: float = 60.0,
        limit: int = LIMIT,
        timeout: float = 30.0,
    ) -> None:
        self._token = token
        self._per_peer = per_peer
        self._idle_s = idle_s
        self._limit = limit
        self._timeout = timeout
        self._changed = threading.Condition()  # Guards what follows.
        self._closed = False
        self._idle: dict[str, list[Channel]] = {}  # By address; the one used last at the end.
        self._busy: dict[str, int] = {}  # Transfers by address, those that still connect included.
        self._in_use: set[Channel] = set()

    def get(self, address: str, keys: Sequence[str]) -> tuple[Values, list[str]]:
        """Fetch values: (values by key, keys that the peer does not hold).

        Raises:
            ConnectionLost: the peer is not there, or went away in the middle.
            PeerBusy: the peer has no room for another transfer now.
            PeerError: the peer broke the protocol, or failed to look the values up.
        """
        wanted = dict.fromkeys(keys)  # Each once, in order.

        def exchange(channel: Channel) -> tuple[Values, list[str]]:
            answer, body = _ask(channel, Get(list(wanted)).frame())
            if not isinstance(answer, Data):
                raise PeerError("the answer to get is not data")
            named = [*answer.keys, *answer.missing]
            if len(named) != len(wanted) or wanted.keys() != set(named):
                raise PeerError("the answer names other keys than those that were asked for")
            return dict(zip(answer.keys, channel.receive_parts(answer.lens, body))), answer.missing

        return self._with_channel(address, exchange)

    def put(self, address: str, values: Mapping[str, Sequence[Buffer]]) -> list[int]:
        """Store values on a worker: bytes stored for each, in order. Raises as `get` does."""
        header = Put(list(values), [_lens(value) for value in values.values()]).frame()[0]
        parts = [part for value in values.values() for part in value]

        def exchange(channel: Channel) -> list[int]:
            answer, body = _ask(channel, (header, parts))
            if not isinstance(answer, Stored) or body or len(answer.nbytes) != len(values):
                raise PeerError("the answer to put does not tell what was stored")
            return answer.nbytes

        return self._with_channel(address, exchange)

    def close_idle(self) -> None:
        """Close connections that were not used for ``idle_s``."""
        with self._changed:
            self._close_idle(time.monotonic() - self._idle_s)

    def close(self) -> None:
        """Break all connections; calls in progress raise ConnectionLost, and so do later ones."""
        with self._changed:
            self._closed = True
            self._close_idle(float("inf"))
            for channel in self._in_use:
                channel.abort()
            self._changed.notify_all()

    # ---------------------------------------------------------------------------------------- channels

    def _with_channel(self, address: str, exchange: Callable[[Channel], _T]) -> _T:
        """Run an exchange; once more on a new connection if an old one turns out to be dead."""
        channel = self._take(address)
        while True:
            is_fresh = channel is None
            if channel is None:
                channel = self._connect(address)
            try:
                result = exchange(channel)
            except PeerBusy:
                self._give_back(channel)
                raise
            except ConnectionLost as error:
                is_worth_another = not is_fresh and not channel.answered and not self._closed
                self._drop(channel, is_over=not is_worth_another)
                if is_worth_another:
                    channel = None
                    continue
                why = "this pool was closed" if self._closed else str(error)
                raise ConnectionLost(f"{address}: {why}") from None
            except PeerError as error:
                self._drop(channel)
                raise PeerError(f"{address}: {error}") from None
            except BaseException:
                self._drop(channel)
                raise
            self._give_back(channel)
            return result

    def _take(self, address: str) -> Channel | None:
        """Wait for a place, and take an unused connection; None if one has to be opened for it."""
        with self._changed:
            while not self._closed and self._busy.get(address, 0) >= self._per_peer:
                self._changed.wait()
            self._check_open()
            self._close_idle(time.monotonic() - self._idle_s)
            self._busy[address] = self._busy.get(address, 0) + 1
            unused = self._idle.get(address)
            while unused:
                channel = unused.pop()
                if not channel.is_stale:
                    self._in_use.add(channel)
                    return channel
                channel.close()
        return None

    def _connect(self, address: str) -> Channel:
        """Open a connection for a place that was taken."""
        try:
            channel = Channel.connect(address, self._token, limit=self._limit, timeout=self._timeout)
        except BaseException:
            self._leave(address)
            raise
        with self._changed:
            if not self._closed:
                self._in_use.add(channel)
                return channel
        channel.close()
        self._leave(address)
        raise ConnectionLost("this pool was closed")

    def _give_back(self, channel: Channel) -> None:
        with self._changed:
            self._in_use.discard(channel)
            channel.idle_since = time.monotonic()
            if self._closed:
                channel.close()
            else:
                self._idle.setdefault(channel.address, []).append(channel)
        self._leave(channel.address)

    def _drop(self, channel: Channel, *, is_over: bool = True) -> None:
        """Close a connection whose state is not known; ``is_over``: and leave its place."""
        with self._changed:
            self._in_use.discard(channel)  # Before it is closed: `close` must not abort a number used anew.
        channel.close()
        if is_over:
            self._leave(channel.address)

    def _leave(self, address: str) -> None:
        with self._changed:
            self._busy[address] -= 1
            if not self._busy[address]:
                del self._busy[address]
            self._changed.notify_all()

    def _close_idle(self, before: float) -> None:
        for address, channels in list(self._idle.items()):
            kept = []
            for channel in channels:
                if channel.idle_since < before:
                    channel.close()
                else:
                    kept.append(channel)
            if kept:
                self._idle[address] = kept
            else:
                del self._idle[address]

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionLost("this pool was closed")


def _ask(channel: Channel, frame: Frame) -> tuple[DataAnswer, int]:
    """Send a request and read the header of the answer. Raises PeerBusy and PeerError for refusals."""
    channel.send(frame)
    header, body = channel.receive_header()
    answer = data_answer(header)
    if body and not isinstance(answer, Data):
        raise PeerError(f"an answer of {body:,} bytes to a question that has none")
    if isinstance(answer, Busy):
        raise PeerBusy(f"{channel.address} has no room for another transfer now")
    if isinstance(answer, PutFailed):
        raise PeerError(answer.text)
    return answer, body


def _lens(value: Sequence[Buffer]) -> list[int]:
    return [memoryview(part).nbytes for part in value]


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:1000]
