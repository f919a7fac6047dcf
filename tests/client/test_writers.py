"""Writing to the connection from any thread: order, partial writes, loss."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from shunter.client import writers
from shunter.client.threads import CallbackThread, LoopThread
from shunter.client.writers import SocketWriter
from shunter.wire.frames import FrameReader
from shunter.wire.messages import Release

TIMEOUT = 30.0


class Pair:
    """A writer and the socket at the other end."""

    def __init__(self) -> None:
        self.loop = LoopThread("test-writers")
        self.lock = threading.RLock()
        own, self.other = socket.socketpair()
        self.other.settimeout(TIMEOUT)
        self.writer = SocketWriter(own, self.loop.loop, self.lock)
        self.reader = FrameReader()

    def write(self, *keys: str) -> None:
        with self.lock:
            self.writer.write([Release([key]).frame() for key in keys])

    def read(self, n: int) -> list[str]:
        """The keys of the next ``n`` messages."""
        found: list[str] = []
        while len(found) < n:
            data = self.other.recv(1 << 20)
            assert data, found
            for header, _ in self.reader.feed(data):
                (key,) = header[1]  # type: ignore[misc]
                found.append(key)
        return found


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.writer.close()
    pair.loop.stop()
    pair.other.close()


def test_write__arrives_at_once_and_in_order(pair: Pair) -> None:
    pair.write("a", "b")
    pair.write("c")
    pair.write()
    assert pair.read(3) == ["a", "b", "c"]


def test_socket_is_full__the_rest_follows_in_order(pair: Pair) -> None:
    keys = [f"{n}-" + "x" * 100_000 for n in range(50)]
    for key in keys:
        pair.write(key)
    assert not pair.writer.drain(0.01)
    assert pair.read(50) == keys
    assert pair.writer.drain(TIMEOUT)
    pair.write("later")
    assert pair.read(1) == ["later"]


def test_many_threads__frames_stay_whole(pair: Pair) -> None:
    def work(name: str) -> None:
        for n in range(100):
            pair.write(f"{name}{n}-" + "x" * 5000)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    found = [key.partition("-")[0] for key in pair.read(300)]
    for thread in threads:
        thread.join(TIMEOUT)
    for name in "abc":
        assert [key for key in found if key[0] == name] == [f"{name}{n}" for n in range(100)]


def test_too_much_queued__writer_waits_for_room(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "QUEUE_HIGH", 100_000)
    pair.write("x" * 900_000)
    passed = threading.Event()

    def work() -> None:
        with pair.lock:
            pair.writer.wait_for_room()
        passed.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert not passed.wait(0.02)
    pair.write("the lock is free meanwhile")
    pair.read(2)
    assert passed.wait(TIMEOUT)
    thread.join(TIMEOUT)


def test_other_end_gone__writes_do_nothing(pair: Pair) -> None:
    pair.other.close()
    for _ in range(3):
        pair.write("x")
    assert pair.writer.drain(TIMEOUT)


@pytest.mark.parametrize("act", [lambda pair: pair.writer.close(), lambda pair: pair.other.close()])
def test_closed_while_full__who_waits_goes_on(pair: Pair, act: Callable[[Pair], None]) -> None:
    pair.write("x" * 900_000)
    passed: list[bool] = []
    thread = threading.Thread(target=lambda: passed.append(pair.writer.drain(TIMEOUT)))
    thread.start()
    act(pair)
    thread.join(TIMEOUT)
    assert passed == [True]


def test_closed_writer__lets_go_of_its_socket(pair: Pair) -> None:
    pair.writer.close()
    pair.writer.close()
    pair.write("x")
    assert pair.other.recv(1) == b""  # End of file: nobody holds the other end.


def test_callback_thread__in_order_and_ends() -> None:
    callbacks = CallbackThread("test-callbacks")
    callbacks.stop()
    callbacks = CallbackThread("test-callbacks")
    order: list[int] = []
    for n in range(10):
        callbacks.run(lambda n=n: order.append(n))  # type: ignore[misc]
    callbacks.run(callbacks.stop)  # From within: does not wait for itself.
    callbacks.stop()
    assert order == list(range(10))
