"""Data connections over loopback: values there and back, and peers that die, lie or stall."""

from __future__ import annotations

import errno
import mmap
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from shunter.errors import ConnectionLost, PeerError
from shunter.types import Buffer
from shunter.wire import sockets
from shunter.wire.bulk import DataPool, DataServer, PeerBusy
from shunter.wire.frames import BULK_PREFIX, encode
from shunter.wire.handshake import Acceptor, Connector

TOKEN = "s3cret"
MIB = 1024 * 1024
Values = dict[str, list[Buffer]]


class Store:
    """Values in memory, as a worker has them."""

    def __init__(self) -> None:
        self.values: Values = {}

    def get(self, keys: list[str]) -> tuple[Values, list[str]]:
        return {k: self.values[k] for k in keys if k in self.values}, [
            k for k in keys if k not in self.values
        ]

    def put(self, values: Values) -> list[int]:
        self.values.update(values)
        return [sum(len(part) for part in parts) for parts in values.values()]


@contextmanager
def served(store: Any = None, **options: Any) -> Iterator[DataServer]:
    store = store if store is not None else Store()
    server = DataServer("127.0.0.1", 0, TOKEN, get=store.get, put=store.put, **options)
    server.start()
    try:
        yield server
    finally:
        server.close()


@contextmanager
def pooled(**options: Any) -> Iterator[DataPool]:
    pool = DataPool(TOKEN, **{"timeout": 10.0, **options})
    try:
        yield pool
    finally:
        pool.close()


@contextmanager
def impostor(talk: Callable[[socket.socket], None], *, connections: int = 1) -> Iterator[str]:
    """A peer that knows the token and then does as it likes."""

    def serve() -> None:
        for _ in range(connections):
            sock, _ = listening.accept()
            with sock:
                side = Acceptor(TOKEN)
                while not side.proven:
                    sock.sendall(side.receive(sock.recv(65536)))
                sock.sendall(side.welcome(0, {}))
                sock.recv(65536)  # The request.
                talk(sock)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(10)


def connect_raw(server: DataServer) -> socket.socket:
    """A connection to a server whose handshake is over."""
    host, port = server.address.removeprefix("tcp://").split(":")
    sock = socket.create_connection((host, int(port)), 10)
    side = Connector("data", TOKEN, {})
    sock.sendall(side.start())
    while not side.done:
        sock.sendall(side.receive(sock.recv(65536)))
    return sock


@contextmanager
def _any_end() -> Iterator[None]:
    """The end of a connection: in order, or by a reset because something was left unread."""
    try:
        yield
    except OSError as error:
        assert error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN)


def head(*header: Any, body: int = 0) -> bytes:
    """A frame's beginning, whose body may be a lie."""
    data = bytes(encode((list(header), ()), bulk=True)[0])[BULK_PREFIX.size :]
    return BULK_PREFIX.pack(len(data), body) + data


# ----------------------------------------------------------------------------------------- there and back


def test_values_are_put_and_fetched__the_same_bytes_in_writable_memory() -> None:
    store = Store()
    values: dict[str, list[Buffer]] = {
        "small": [b"pickle"],
        "none": [],
        "empty": [b"", b""],
        "mixed": [b"p", bytearray(b"x" * 100_000), memoryview(bytes(range(256)) * 8192), b"tail"],
        "shaped": [memoryview(bytearray(24)).cast("B", (2, 3, 4)), memoryview(b"12345678").cast("q")],
    }
    with served(store) as server, pooled() as pool:
        assert pool.put(server.address, values) == [6, 0, 0, 1 + 100_000 + 2 * MIB + 4, 32]
        found, missing = pool.get(server.address, [*values, "other"])

    assert missing == ["other"]
    assert list(found) == list(values)
    for key, parts in values.items():
        assert [bytes(part) for part in found[key]] == [bytes(part) for part in parts], key
        assert not any(memoryview(part).readonly for part in found[key])
    assert isinstance(found["mixed"][2], mmap.mmap)


def test_many_small_values__each_has_memory_of_its_own() -> None:
    store = Store()
    store.values = {f"k{i}": [b"%d" % i, b"x" * (i % 50)] for i in range(3000)}
    with served(store) as server, pooled() as pool:
        found, _ = pool.get(server.address, list(store.values))

    assert found == store.values
    assert all(isinstance(parts[0], bytearray) for parts in found.values())


def test_key_is_asked_for_twice__answered_once() -> None:
    store = Store()
    store.values = {"x": [b"1"]}
    with served(store) as server, pooled() as pool:
        assert pool.get(server.address, ["x", "x", "y", "y"]) == ({"x": [b"1"]}, ["y"])
        assert pool.get(server.address, []) == ({}, [])


def test_transfers_follow_each_other__one_connection_serves_them() -> None:
    with served() as server, pooled() as pool:
        for _ in range(5):
            pool.get(server.address, ["x"])
        assert len(server._connections) == 1


def test_unused_connection_is_too_old__closed() -> None:
    with served() as server, pooled(idle_s=-1.0) as pool:
        pool.get(server.address, [])
        pool.close_idle()
        assert pool._idle == {}
        pool.get(server.address, [])


def test_many_threads_ask__each_gets_its_answer_over_few_connections() -> None:
    store = Store()
    store.values = {f"k{i}": [b"%d" % i] for i in range(40)}
    with served(store) as server, pooled(per_peer=3) as pool, ThreadPoolExecutor(12) as threads:
        found = list(threads.map(lambda key: pool.get(server.address, [key])[0], store.values))
        assert len(server._connections) <= 3
        assert pool._busy == {}

    assert found == [{key: value} for key, value in store.values.items()]


# --------------------------------------------------------------------------------------- refusals, errors


class Stuck(Store):
    """Does not answer before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.released = threading.Event(), threading.Event()

    def get(self, keys: list[str]) -> tuple[Values, list[str]]:
        if keys == ["stuck"]:
            self.entered.set()
            assert self.released.wait(10)
        return super().get(keys)


def test_server_has_no_room_for_another_transfer__busy_and_later_served() -> None:
    store = Stuck()
    with served(store, transfers_max=1) as server, pooled() as pool, ThreadPoolExecutor(1) as threads:
        stuck = threads.submit(pool.get, server.address, ["stuck"])
        store.entered.wait(10)
        with pytest.raises(PeerBusy, match=f"{server.address} has no room"):
            pool.get(server.address, ["x"])
        with pytest.raises(PeerBusy):
            pool.put(server.address, {"x": [bytes(3 * MIB)]})
        store.released.set()
        assert stuck.result(10) == ({}, ["stuck"])
        assert pool.get(server.address, ["x"]) == ({}, ["x"])


class Broken(Store):
    def get(self, keys: list[str]) -> tuple[Values, list[str]]:
        raise ZeroDivisionError("in get")

    def put(self, values: Values) -> list[int]:
        raise ZeroDivisionError("in put")


def test_callbacks_raise__peer_error_with_their_text_and_the_server_goes_on() -> None:
    with served(Broken()) as server, pooled() as pool:
        for _ in range(2):
            with pytest.raises(PeerError, match=f"{server.address}: ZeroDivisionError: in get"):
                pool.get(server.address, ["x"])
            with pytest.raises(PeerError, match="ZeroDivisionError: in put"):
                pool.put(server.address, {"x": [b"1"]})


def test_answer_names_more_parts_than_a_header_holds__peer_error_says_so() -> None:
    store = Store()
    store.values = {"x": [b"1"] * 600_000}
    with served(store) as server, pooled() as pool:
        with pytest.raises(PeerError, match=r"message 'data' has a header of"):
            pool.get(server.address, ["x"])
        assert pool.get(server.address, ["y"]) == ({}, ["y"])


def test_value_is_over_the_limit__refused_by_its_announcement() -> None:
    store = Store()
    store.values = {"x": [bytes(1001)]}
    with served(store, limit=500) as server, pooled(limit=1000) as pool:
        with pytest.raises(PeerError, match=r"a body of 1,001 bytes is announced; at most 1,000"):
            pool.get(server.address, ["x"])
        with pytest.raises(ConnectionLost):
            pool.put(server.address, {"x": [bytes(501)]})
        assert pool.get(server.address, ["y"]) == ({}, ["y"])


def test_token_is_wrong__peer_error() -> None:
    with served() as server:
        pool = DataPool("wrong")
        with pytest.raises(PeerError, match="token"):
            pool.get(server.address, ["x"])
        pool.close()


def test_nothing_listens__connection_lost_names_the_address() -> None:
    with socket.socket() as unused, pooled() as pool:
        unused.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ConnectionLost, match=f"cannot connect to {address}"):
            pool.get(address, ["x"])
        assert pool._busy == {}


# ----------------------------------------------------------------------------------------- peers that fail

ONE_PART = head("data", ["x"], [[3 * MIB]], [], body=3 * MIB)


@pytest.mark.parametrize(
    "answer",
    [b"", ONE_PART[:5], ONE_PART[:20], ONE_PART, ONE_PART + b"x" * MIB],
    ids=["nothing", "prefix", "header", "no body", "half"],
)
def test_peer_dies_in_the_middle__connection_lost(answer: bytes) -> None:
    with impostor(lambda sock: sock.sendall(answer)) as address, pooled() as pool:
        with pytest.raises(ConnectionLost, match=f"{address}: the "):
            pool.get(address, ["x"])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is announced"),
        (b"\xff" * 100, "is announced"),
        (BULK_PREFIX.pack(3, 0) + b"[1]", "not a JSON array"),
        (BULK_PREFIX.pack(2, 0) + b"no", "not JSON"),
        (head("welcome", 1), "unknown operation 'welcome'"),
        (head("stored", [1]), "the answer to get is not data"),
        (head("stored", [1], body=9), "an answer of 9 bytes"),
        (head("data", ["y"], [[1]], [], body=1) + b"1", "names other keys"),
        (head("data", [], [], []), "names other keys"),
        (head("data", ["x"], [[1]], ["x"], body=1) + b"1", "names other keys"),
        (head("data", ["x"], [[-1]], []), "'lens' must be an integer from 0"),
        (head("data", ["x"], [[5]], [], body=4), "add up to 5, the body has 4"),
        (head("data", ["x"], [[2**62]], [], body=2**62), "is announced; at most"),
        (head("failed", "no such luck"), "no such luck"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else value,
)
def test_peer_answers_nonsense__peer_error_names_it(answer: bytes, text: str) -> None:
    with impostor(lambda sock: sock.sendall(answer)) as address, pooled() as pool:
        with pytest.raises(PeerError, match=rf"{address}: .*{text}"):
            pool.get(address, ["x"])


def test_peer_announces_more_than_there_is_memory_for__peer_error() -> None:
    answer = head("data", ["x"], [[2**62]], [], body=2**62)
    with impostor(lambda sock: sock.sendall(answer)) as address, pooled(limit=2**63) as pool:
        with pytest.raises(PeerError, match="there is no memory for them"):
            pool.get(address, ["x"])


def test_peer_stalls__connection_lost_after_the_timeout() -> None:
    over = threading.Event()

    def stall(sock: socket.socket) -> None:
        sock.sendall(ONE_PART + b"x" * 1000)
        over.wait(10)

    with impostor(stall) as address, pooled(timeout=0.1) as pool:
        with pytest.raises(ConnectionLost, match=r"no data came for too long, 3,144,728 bytes are missing"):
            pool.get(address, ["x"])
        over.set()


def test_server_was_restarted__stale_connection_is_replaced_unnoticed() -> None:
    store = Store()
    with pooled() as pool:
        with served(store) as server:
            port = int(server.address.rpartition(":")[2])
            pool.get(server.address, [])
        again = DataServer("127.0.0.1", port, TOKEN, get=store.get, put=store.put)
        again.start()
        assert pool.get(again.address, ["x"]) == ({}, ["x"])
        again.close()


def test_pooled_connection_dies_at_its_next_use__tried_once_more_on_a_new_one() -> None:
    asked = []

    def answer_once(sock: socket.socket) -> None:
        asked.append(1)
        sock.sendall(head("data", [], [], ["x"]))
        if len(asked) == 1:
            sock.recv(65536)  # The second request: no answer.

    with impostor(answer_once, connections=2) as address, pooled() as pool:
        assert pool.get(address, ["x"]) == ({}, ["x"])
        assert pool.get(address, ["x"]) == ({}, ["x"])
    assert len(asked) == 2


def test_connection_dies_in_the_middle_of_an_answer__not_tried_again() -> None:
    asked = []

    def answer_once(sock: socket.socket) -> None:
        asked.append(1)
        sock.sendall(head("data", [], [], ["x"]))
        sock.recv(65536)
        sock.sendall(ONE_PART)

    with impostor(answer_once) as address, pooled() as pool:
        pool.get(address, ["x"])
        with pytest.raises(ConnectionLost):
            pool.get(address, ["x"])
    assert len(asked) == 1


# ----------------------------------------------------------------------------- servers with bad connectors


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 12,
        BULK_PREFIX.pack(2, 0) + b"no",
        head("fetch", ["x"]),
        head("get", [1]),
        head("get", ["x"], body=3) + b"abc",
        head("put", ["x"], [[5]], body=4) + b"abcd",
        head("put", ["x"], [[2**62]], body=2**62),
        head("put", ["x"], [[2**39]], body=2**39)[:-1],
    ],
    ids=lambda data: ascii(data[12:40]),
)
def test_connector_sends_nonsense__its_connection_is_closed_and_the_server_goes_on(data: bytes) -> None:
    with served() as server, pooled() as pool:
        with connect_raw(server) as sock:
            with _any_end():
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
                assert sock.recv(100) == b""
        assert pool.get(server.address, ["x"]) == ({}, ["x"])


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 50, b""], ids=repr)
def test_stranger_reaches_the_data_port__cut_off_and_the_server_goes_on(data: bytes) -> None:
    with served() as server, pooled() as pool:
        host, port = server.address.removeprefix("tcp://").split(":")
        with socket.create_connection((host, int(port)), 10) as sock:
            with _any_end():
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
                answer = sock.recv(1000)
                assert answer == b"" or (answer.startswith(b"HTTP/1.1 400 ") and b"shunter" in answer)
        assert pool.get(server.address, ["x"]) == ({}, ["x"])


def test_connector_breaks_off_a_put__nothing_is_stored() -> None:
    store = Store()
    with served(store) as server, pooled() as pool:
        with connect_raw(server) as sock:
            sock.sendall(head("put", ["x"], [[2 * MIB]], body=2 * MIB) + b"half")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # Close by a reset.
        assert pool.get(server.address, ["x"]) == ({}, ["x"])
    assert store.values == {}


def test_one_connection_too_many__the_one_that_was_idle_longest_makes_room() -> None:
    with served(connections_max=2) as server:
        pools = [DataPool(TOKEN, timeout=10.0) for _ in range(4)]
        for _ in range(3):
            for pool in pools:
                assert pool.get(server.address, ["x"]) == ({}, ["x"])
        for pool in pools:
            pool.close()


# --------------------------------------------------------------------------------------------- closing


def test_pool_is_closed_during_a_transfer__the_call_ends_with_connection_lost() -> None:
    store = Stuck()
    with served(store) as server, pooled() as pool, ThreadPoolExecutor(1) as threads:
        stuck = threads.submit(pool.get, server.address, ["stuck"])
        store.entered.wait(10)
        pool.close()
        with pytest.raises(ConnectionLost, match="this pool was closed"):
            stuck.result(10)
        with pytest.raises(ConnectionLost, match="this pool was closed"):
            pool.get(server.address, ["x"])
        store.released.set()


def test_pool_is_closed_while_a_call_waits_for_its_turn__connection_lost() -> None:
    store = Stuck()
    with served(store) as server, pooled(per_peer=1) as pool, ThreadPoolExecutor(2) as threads:
        first = threads.submit(pool.get, server.address, ["stuck"])
        store.entered.wait(10)
        second = threads.submit(pool.get, server.address, ["x"])
        pool.close()
        for each in (first, second):
            with pytest.raises(ConnectionLost):
                each.result(10)
        store.released.set()


def test_server_is_closed_during_a_transfer__both_ends_are_released() -> None:
    store = Store()
    store.values = {"x": [bytes(64 * MIB)]}
    with served(store) as server:
        with connect_raw(server) as sock:
            sock.sendall(head("get", ["x"]))
            assert sock.recv(1000)  # It sends, and blocks: nobody reads on.
            server.close()
        server.close()
        names = {thread.name for thread in threading.enumerate()}
        assert not any(name.startswith("shunter-data-") for name in names)


def test_server_was_never_started__closes() -> None:
    server = DataServer("127.0.0.1", 0, TOKEN, get=Store().get, put=Store().put)
    server.close()
    with pooled() as pool, pytest.raises(ConnectionLost):
        pool.get(server.address, ["x"])


def test_shutdown_does_not_wake_accept_here__server_closes_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with served() as server:

        class Stubborn:
            """A listening socket of a system on which shutdown is an error."""

            def __getattr__(self, name: str) -> Any:
                return getattr(listening, name)

            def shutdown(self, how: int) -> None:
                raise OSError("not connected")

        listening = server._listening
        monkeypatch.setattr(server, "_listening", Stubborn())
        server.close()
        assert not server._accepting.is_alive()


def test_port_is_in_use__os_error() -> None:
    with served() as server, pytest.raises(OSError):
        DataServer(
            "127.0.0.1", int(server.address.rpartition(":")[2]), TOKEN, get=Store().get, put=Store().put
        )


def test_memory_comes_from_the_system_without_huge_pages__still_allocated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        mmap, "MADV_HUGEPAGE", 12345, raising=False
    )  # A kernel that does not know the advice.

    assert len(sockets.allocate(3 * MIB)) == 3 * MIB
