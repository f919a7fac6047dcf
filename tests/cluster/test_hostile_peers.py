"""Garbage, truncated and huge frames, wrong versions and tokens, browsers: on both kinds of port.

Only the connection concerned is closed; the cluster goes on.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator

import pytest

from shunter.client.client import Client
from shunter.deploy.local import LocalCluster
from shunter.errors import PeerError
from shunter.wire.handshake import MAGIC, PROTOCOL

PATIENCE = 10.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(1, 1, processes=False) as found:
        yield found


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as found:
        yield found


@pytest.fixture(params=["scheduler", "worker's data port"])
def port(request: pytest.FixtureRequest, cluster: LocalCluster, client: Client) -> Iterator[int]:
    """The port to attack; afterwards the cluster must still work, for those who were there and for newcomers."""
    address = cluster.address if request.param == "scheduler" else str(client.workers()[0]["address"])
    yield int(address.rpartition(":")[2])
    assert client.submit(abs, -7).result(PATIENCE) == 7
    with Client(cluster) as newcomer:
        assert newcomer.submit(abs, -8).result(PATIENCE) == 8


def talk(port: int, data: bytes, *, hang_up: bool = False) -> bytes:
    """Say something, and read until the other side closes. Fails if it does not in time."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as sock:
        sock.settimeout(PATIENCE)
        try:
            sock.sendall(data)
            if hang_up:
                sock.shutdown(socket.SHUT_WR)
            answer = b""
            while piece := sock.recv(65536):
                answer += piece
        except ConnectionError:  # Closed before it had read everything.
            return b""
        return answer


def frame(header: object) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<II", len(text), 0) + text


def hello(protocol: object = PROTOCOL, role: object = "client") -> bytes:
    return MAGIC + frame(["hello", protocol, role, "0" * 32, {"shunter": "9.9.9", "python": "3.99.0"}])


def test_browser__one_line_says_what_this_is(port: int) -> None:
    answer = talk(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"shunter" in answer


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 64,
        b"\xff" * 4096,
        b"SSH-2.0-OpenSSH_9.2\r\n",
        MAGIC + b"\xff" * 64,
        MAGIC + struct.pack("<II", 2**31, 0),
        MAGIC + struct.pack("<II", 10, 2**31) + b"[",
        MAGIC + frame("hello"),
        MAGIC + frame(["hello"]),
        MAGIC + frame(["hello", True, "client", "0" * 32, {}]),
        MAGIC + frame(["finished", ["k"], [1]]),
        MAGIC + frame(["[" * 10, 1]),
        hello(role="king"),
        hello(role=7),
    ],
    ids=range(13),
)
def test_garbage__closed(port: int, data: bytes) -> None:
    talk(port, data)


def test_nothing_but_half_a_greeting__closed_when_the_peer_hangs_up(port: int) -> None:
    talk(port, hello()[:20], hang_up=True)


def test_other_protocol_version__told_which(port: int) -> None:
    answer = talk(port, hello(protocol=PROTOCOL + 1))
    assert b"refused" in answer
    assert str(PROTOCOL + 1).encode() in answer and str(PROTOCOL).encode() in answer


def test_proof_without_the_token__refused(port: int) -> None:
    wrong = "0" * 64
    answer = talk(port, hello(role="client") + frame(["proof", wrong, {"name": "x"}]))
    assert b"welcome" not in answer


def test_client_with_a_wrong_token__error_names_the_next_move(cluster: LocalCluster) -> None:
    with pytest.raises(PeerError, match="token"):
        Client(cluster.address, token="f" * 32, timeout=PATIENCE)
