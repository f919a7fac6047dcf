"""Control connections over real loopback sockets, both ends in one loop."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from shunter.errors import ConnectionLost, PeerError, UsageError
from shunter.wire.details import ClientDetails, WorkerDetails
from shunter.wire.frames import PREFIX, encode
from shunter.wire.handshake import MAGIC, Acceptor, Connector
from shunter.wire.link import Link, Listener, connect, serve

TOKEN = "s3cret"
DETAILS = ClientDetails("me").as_dict()
T = TypeVar("T")


class Owner:
    """Notes what it hears, and lets tests wait for it."""

    def __init__(self) -> None:
        self.messages: list[tuple[list[object], bytes]] = []
        self.batches: list[int] = []  # How many messages there were at each `on_batch`.
        self.closed: list[str] = []
        self.react: Callable[[Link, list[object]], None] = lambda link, header: None
        self._changed = asyncio.Event()

    def on_message(self, link: Link, header: list[object], body: bytes) -> None:
        self.messages.append((header, body))
        self.react(link, header)
        self._changed.set()

    def on_batch(self, link: Link) -> None:
        self.batches.append(len(self.messages))

    def on_closed(self, link: Link, reason: str) -> None:
        self.closed.append(reason)
        self._changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()


class Port:
    """A listening port that admits everybody, and the links that it has."""

    def __init__(self, listener: Listener, owner: Owner, links: list[Link]) -> None:
        self.listener = listener
        self.owner = owner
        self.links = links
        self._connected: list[Link] = []

    @classmethod
    async def open(cls, accept: Callable[..., Any] | None = None, **options: Any) -> Port:
        owner, links = Owner(), list[Link]()

        def admit(link: Link, role: str, details: dict[str, object]) -> Any:
            link.owner = owner
            links.append(link)
            return accept(link, role, details) if accept is not None else (len(links), {"name": "s"})

        return cls(await serve("127.0.0.1", 0, TOKEN, admit, **options), owner, links)

    async def connect(self, **options: Any) -> tuple[Link, Owner]:
        owner = Owner()
        arguments = {"role": "client", "token": TOKEN, "details": DETAILS, **options}
        link = await connect(self.listener.address, owner=owner, **arguments)
        self._connected.append(link)
        return link, owner

    async def close(self) -> None:
        self.listener.close()
        await self.listener.wait_closed()
        for link in (*self._connected, *self.links):
            link.abort("the test is over")
            await link.wait_closed()


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return asyncio.run(asyncio.wait_for(main(), 20))


def with_port(test: Callable[[Port], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        port = await Port.open(**options)
        try:
            await test(port)
        finally:
            await port.close()

    run(main)


async def read_all(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b"reset"


# ------------------------------------------------------------------------------------------- messages


def test_messages_are_sent_both_ways__they_arrive_in_order_with_one_batch_a_chunk() -> None:
    async def test(port: Port) -> None:
        link, owner = await port.connect()
        link.send([(["a", 1], [b"x", b"yz"]), (["b"], [])])
        await port.owner.until(lambda: len(port.owner.messages) == 2)
        assert port.owner.messages == [(["a", 1], b"xyz"), (["b"], b"")]
        assert port.owner.batches == [2]

        port.links[0].send([(["c", i], []) for i in range(3000)])
        await owner.until(lambda: len(owner.messages) == 3000)
        assert [header for header, _ in owner.messages] == [["c", i] for i in range(3000)]
        assert owner.batches[-1] == 3000
        assert len(owner.batches) < 100

    with_port(test)


def test_handshake_is_over__both_ends_know_each_other() -> None:
    async def test(port: Port) -> None:
        worker = WorkerDetails("w", "tcp://h:1", "h", 2, 0, {}, 99, 1.7e9, -1).as_dict()
        link, _ = await port.connect(role="worker", details=worker)
        [other] = port.links

        assert (link.role, link.number, link.details, link.peer_details) == (
            "worker",
            1,
            worker,
            {"name": "s"},
        )
        assert link.address == port.listener.address
        assert (other.role, other.number, other.details, other.peer_details) == (
            "worker",
            1,
            {"name": "s"},
            worker,
        )
        assert other.address.startswith("tcp://127.0.0.1:")
        assert link.peer_versions.keys() == {"shunter", "python", "build"}
        assert "worker 1" in repr(link)

    with_port(test)


def test_large_body__arrives_whole() -> None:
    body = bytes(range(256)) * 40_000

    async def test(port: Port) -> None:
        link, _ = await port.connect()
        link.send([(["a"], [body, body])])
        await port.owner.until(lambda: port.owner.messages)
        assert port.owner.messages == [(["a"], body + body)]

    with_port(test)


def test_acceptor_sends_before_the_welcome__it_arrives_behind_it() -> None:
    def accept(link: Link, role: str, details: dict[str, object]) -> tuple[int, dict[str, object]]:
        link.send([(["early"], [])])
        assert link.queued > 0
        return 1, {}

    async def test(port: Port) -> None:
        _, owner = await port.connect()
        await owner.until(lambda: owner.messages)
        assert owner.messages == [(["early"], b"")]

    with_port(test, accept=accept)


def test_message_comes_with_the_welcome__not_handed_on_before_the_caller_has_the_link() -> None:
    def accept(link: Link, role: str, details: dict[str, object]) -> tuple[int, dict[str, object]]:
        link.send([(["early"], [])])
        return 1, {}

    async def test(port: Port) -> None:
        _, owner = await port.connect()
        assert owner.messages == []  # No await since connect has returned.
        await owner.until(lambda: owner.messages)

    with_port(test, accept=accept)


def test_link_is_paused__nothing_is_handed_on_until_it_is_resumed() -> None:
    async def test(port: Port) -> None:
        link, owner = await port.connect()
        link.pause()
        port.links[0].send([(["a"], [])])
        await asyncio.sleep(0)
        link.send([(["ping"], [])])
        await port.owner.until(lambda: port.owner.messages)
        assert owner.messages == []
        link.resume()
        await owner.until(lambda: owner.messages)

    with_port(test)


def test_frame_cannot_be_encoded__usage_error_and_nothing_of_the_batch_is_sent() -> None:
    async def test(port: Port) -> None:
        link, _ = await port.connect()
        with pytest.raises(UsageError):
            link.send([(["a"], []), (["b", float("nan")], [])])
        link.send([(["c"], [])])
        await port.owner.until(lambda: port.owner.messages)
        assert port.owner.messages == [(["c"], b"")]

    with_port(test)


# -------------------------------------------------------------------------------------------- closing


def test_acceptor_closes__connector_is_told_the_reason() -> None:
    async def test(port: Port) -> None:
        link, owner = await port.connect()
        port.links[0].close("too old")
        assert port.owner.closed == []  # Not from within close.
        port.links[0].close("again")
        await owner.until(lambda: owner.closed)
        assert owner.messages == [(["closing", "too old"], b"")]
        assert owner.closed == [f"{port.listener.address} closed the connection: too old"]
        await link.wait_closed()
        await port.links[0].wait_closed()
        assert port.owner.closed == ["too old"]
        assert link.closed
        link.send([(["a"], [])])
        link.close("late")
        link.pause()
        link.resume()
        assert owner.closed == [f"{port.listener.address} closed the connection: too old"]

    with_port(test)


def test_connector_closes__what_it_sent_before_still_arrives() -> None:
    async def test(port: Port) -> None:
        link, owner = await port.connect()
        link.send([(["a"], [bytes(10_000_000)]), (["b"], [])])
        link.close("done")
        await port.owner.until(lambda: port.owner.closed)
        assert [header for header, _ in port.owner.messages] == [["a"], ["b"]]
        await link.wait_closed()
        assert owner.closed == ["done"]
        assert "closed the connection" in port.owner.closed[0]

    with_port(test)


def test_owner_closes_in_the_middle_of_a_chunk__the_rest_is_not_handed_on_but_the_batch_ends() -> None:
    async def test(port: Port) -> None:
        link, owner = await port.connect()
        port.owner.react = lambda link, header: link.close("enough") if header == ["stop"] else None
        link.send([(["a"], []), (["stop"], []), (["b"], [])])
        await owner.until(lambda: owner.closed)
        assert [header for header, _ in port.owner.messages] == [["a"], ["stop"]]
        assert port.owner.batches == [2]

    with_port(test)


def test_owner_finds_a_message_wrong__peer_is_told_and_the_link_closed() -> None:
    def refuse(link: Link, header: list[object]) -> None:
        raise PeerError("message 'a' is nonsense")

    async def test(port: Port) -> None:
        link, owner = await port.connect()
        port.owner.react = refuse
        link.send([(["a"], [])])
        await owner.until(lambda: owner.closed)
        assert "message 'a' is nonsense" in owner.closed[0]
        assert port.owner.closed == ["message 'a' is nonsense"]

    with_port(test)


@pytest.mark.parametrize(
    "data", [b"\xff" * 8, PREFIX.pack(3, 0) + b"[1]", PREFIX.pack(2, 0) + b"no"], ids=repr
)
def test_garbage_comes_after_the_handshake__link_closed_with_the_reason(data: bytes) -> None:
    async def test(port: Port) -> None:
        link, owner = await port.connect()
        link._transport.write(data)
        await owner.until(lambda: owner.closed)
        assert "header" in port.owner.closed[0]
        assert port.owner.closed[0] in owner.closed[0]

    with_port(test)


def test_link_is_aborted__both_owners_hear_it_once() -> None:
    async def test(port: Port) -> None:
        link, owner = await port.connect()
        link.abort("broken")
        link.abort("again")
        await owner.until(lambda: owner.closed)
        await port.owner.until(lambda: port.owner.closed)
        await link.wait_closed()
        assert owner.closed == ["broken"]
        assert len(port.owner.closed) == 1

    with_port(test)


def test_owner_has_a_bug__the_link_is_gone_and_its_owner_told(caplog: pytest.LogCaptureFixture) -> None:
    def fail(link: Link, header: list[object]) -> None:
        raise ZeroDivisionError("bug")

    async def test(port: Port) -> None:
        link, owner = await port.connect()
        port.owner.react = fail
        link.send([(["a"], [])])
        await owner.until(lambda: owner.closed)
        await port.owner.until(lambda: port.owner.closed)

    with_port(test)
    assert "ZeroDivisionError" in caplog.text


# --------------------------------------------------------------------------------------- back-pressure


def test_peer_does_not_read__link_congested_then_cut_with_a_reason() -> None:
    async def test(port: Port) -> None:
        link, _ = await port.connect()
        link.pause()
        [other] = port.links
        other.queue_max = 32 << 20
        other.send([(["a"], [bytes(16 << 20)])])
        assert other.congested
        assert 0 < other.queued <= 16 << 20
        while not other.closed:
            other.send([(["a"], [bytes(8 << 20)])])
        await port.owner.until(lambda: port.owner.closed)
        assert "does not read" in port.owner.closed[0]
        assert "MiB were queued" in port.owner.closed[0]

    with_port(test)


def test_congested_link_has_room_again__owner_is_told() -> None:
    async def test(port: Port) -> None:
        link, owner = await port.connect()
        link.pause()
        [other] = port.links
        drained: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        other.on_drained = lambda link: drained.set_result(link.congested)
        other.send([(["a"], [bytes(16 << 20)])])
        assert other.congested
        link.resume()
        assert await drained is False
        await owner.until(lambda: owner.messages)

    with_port(test)


# ------------------------------------------------------------------------------------------ admission


def test_accept_refuses__connector_gets_the_reason_and_owner_hears_nothing() -> None:
    def accept(link: Link, role: str, details: dict[str, object]) -> Any:
        raise PeerError(f"a {role} named {details['name']} is here already")

    async def test(port: Port) -> None:
        with pytest.raises(PeerError, match=r"refused the connection: a client named me is here already"):
            await port.connect()
        await port.links[0].wait_closed()
        assert port.owner.closed == []

    with_port(test, accept=accept)


def test_accept_has_a_bug__connector_is_refused_and_the_port_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = [ZeroDivisionError("bug")]

    def accept(link: Link, role: str, details: dict[str, object]) -> Any:
        if failures:
            raise failures.pop()
        return 1, {}

    async def test(port: Port) -> None:
        with pytest.raises(PeerError, match="internal error of the scheduler"):
            await port.connect()
        await port.connect()

    with_port(test, accept=accept)
    assert "ZeroDivisionError" in caplog.text


def test_accept_answers_what_cannot_be_encoded__connector_is_refused() -> None:
    def accept(link: Link, role: str, details: dict[str, object]) -> Any:
        return 1, {"clock": float("nan")}

    async def test(port: Port) -> None:
        with pytest.raises(PeerError, match="internal error of the scheduler"):
            await port.connect()

    with_port(test, accept=accept)


def test_accept_takes_its_time__others_are_served_meanwhile() -> None:
    decided = asyncio.Event()

    async def accept(link: Link, role: str, details: dict[str, object]) -> Any:
        if details["name"] == "slow":
            await decided.wait()
        return 1, {}

    async def test(port: Port) -> None:
        slow = asyncio.ensure_future(port.connect(details={"name": "slow"}))
        await port.connect()
        assert not slow.done()
        decided.set()
        await slow

    with_port(test, accept=accept)


def test_connector_leaves_while_accept_decides__owner_hears_of_it_once() -> None:
    entered, decided = asyncio.Event(), asyncio.Event()

    async def accept(link: Link, role: str, details: dict[str, object]) -> Any:
        entered.set()
        await decided.wait()
        return 1, {}

    async def test(port: Port) -> None:
        connecting = asyncio.ensure_future(port.connect())
        await entered.wait()
        connecting.cancel()
        await asyncio.wait([connecting])
        assert port.owner.closed == []
        decided.set()
        await port.owner.until(lambda: port.owner.closed)
        assert len(port.owner.closed) == 1

    with_port(test, accept=accept)


def test_port_closes_while_accept_decides__connector_is_told() -> None:
    entered = asyncio.Event()

    async def accept(link: Link, role: str, details: dict[str, object]) -> Any:
        entered.set()
        await asyncio.Event().wait()

    async def test(port: Port) -> None:
        connecting = asyncio.ensure_future(port.connect())
        await entered.wait()
        port.listener.close()
        with pytest.raises(PeerError, match="the scheduler is closing"):
            await connecting

    with_port(test, accept=accept)


# --------------------------------------------------------------------------------- strangers, bad luck


def test_token_is_wrong__connector_is_told_and_nobody_is_admitted() -> None:
    async def test(port: Port) -> None:
        with pytest.raises(PeerError, match="token"):
            await port.connect(token="wrong")
        with pytest.raises(PeerError, match="token"):
            await port.connect(token="")
        assert port.links == []

    with_port(test)


def test_role_of_a_data_connection__refused_on_the_control_port() -> None:
    async def test(port: Port) -> None:
        with pytest.raises(PeerError, match="this port serves client and parent and worker, not data"):
            await port.connect(role="data", details={})

    with_port(test)


def test_http_request_comes__answered_with_a_400_that_names_shunter() -> None:
    async def test(port: Port) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.listener.port)
        writer.write(b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = await read_all(reader)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.endswith(b"This is a shunter port: connect with shunter.Client, not with HTTP.\r\n")
        writer.close()

    with_port(test)


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"\x00" * 100_000], ids=["tls", "zeros"]
)
def test_stranger_talks_nonsense__cut_off_and_the_port_goes_on(data: bytes) -> None:
    async def test(port: Port) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.listener.port)
        writer.write(data)
        assert await read_all(reader) in (b"", b"reset")
        writer.close()
        await port.connect()

    with_port(test)


def test_frames_come_before_the_handshake_is_over__refused() -> None:
    async def test(port: Port) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.listener.port)
        writer.write(MAGIC + b"".join(encode((["submit", 1], [b"body"]))))
        assert b"refused" in await read_all(reader)
        writer.close()
        assert port.links == []

    with_port(test)


def test_frames_follow_the_proof_without_waiting__refused() -> None:
    async def test(port: Port) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.listener.port)
        side = Connector("client", TOKEN, DETAILS)
        writer.write(side.start())
        proof = side.receive(await reader.read(65536))
        writer.write(proof + b"".join(encode((["heartbeat"], []))))
        assert b"refused" in await read_all(reader)
        writer.close()
        assert port.links == []

    with_port(test)


@pytest.mark.parametrize("said", [b"", MAGIC, MAGIC + b"\x10"], ids=repr)
def test_stranger_says_nothing_more__cut_off_in_time(said: bytes) -> None:
    async def test(port: Port) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.listener.port)
        writer.write(said)
        assert await read_all(reader) in (b"", b"reset")
        writer.close()

    with_port(test, timeout=0.05)


def test_port_closes__handshakes_are_cut_off() -> None:
    async def test(port: Port) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.listener.port)
        writer.write(MAGIC)
        link, _ = await port.connect()  # By now the other one is being heard.
        port.listener.close()
        assert await read_all(reader) in (b"", b"reset")
        writer.close()
        assert not link.closed  # Links stay.
        with pytest.raises(ConnectionLost):
            await port.connect()

    with_port(test)


def test_nothing_listens__connection_lost_names_the_address() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ConnectionLost, match=rf"cannot connect to {address}: nothing listens there"):
            run(lambda: connect(address, "client", TOKEN, DETAILS, Owner()))


def test_address_is_malformed__usage_error() -> None:
    with pytest.raises(UsageError, match="tcp://host:port"):
        run(lambda: connect("localhost", "client", TOKEN, DETAILS, Owner()))


def test_peer_is_silent__connection_lost_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConnectionLost, match=r"did not answer as a scheduler within 0\.05 s"):
            run(lambda: connect(address, "client", TOKEN, DETAILS, Owner(), timeout=0.05))


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (b"", ConnectionLost, "closed the connection during the handshake"),
        (MAGIC, ConnectionLost, "closed the connection during the handshake"),
        (b"HTTP/1.1 400 Bad Request\r\n", PeerError, "is not a shunter port"),
        (b"shunter\x02", PeerError, "protocol 2"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_peer_is_not_what_was_expected__error_says_what_it_is(
    answer: bytes, error: type[Exception], text: str
) -> None:
    async def main() -> None:
        async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(say, "127.0.0.1", 0)
        address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(error, match=text):
            await connect(address, "client", TOKEN, DETAILS, Owner())
        server.close()

    run(main)


def test_peer_breaks_off_in_the_middle_of_a_frame__owner_is_told() -> None:
    async def main() -> None:
        async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            side = Acceptor(TOKEN)
            while not side.proven:
                writer.write(side.receive(await reader.read(65536)))
            whole = b"".join(encode((["a"], []))) + b"".join(encode((["b"], [b"body"])))
            writer.write(side.welcome(1, {}) + whole[:-1])
            writer.close()

        server = await asyncio.start_server(say, "127.0.0.1", 0)
        owner = Owner()
        address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await connect(address, "client", TOKEN, DETAILS, owner)
        await owner.until(lambda: owner.closed)
        assert owner.messages == [(["a"], b"")]
        assert owner.closed == [f"{address} closed the connection"]
        server.close()

    run(main)


def test_port_is_in_use__os_error() -> None:
    async def test(port: Port) -> None:
        with pytest.raises(OSError) as info:
            await serve("127.0.0.1", port.listener.port, TOKEN, lambda link, role, details: (1, {}))
        assert info.value.errno == errno.EADDRINUSE

    with_port(test)


def test_socket_is_given__served_on_it_without_delay() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            port = await Port.open(sock=sock)
            assert port.listener.port == sock.getsockname()[1]
            await port.connect()
            accepted = port.links[0].duplicate_socket()
            assert accepted is not None
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            await port.close()

    run(main)


def test_duplicate_socket_is_written_to__arrives_like_the_rest() -> None:
    async def test(port: Port) -> None:
        link, _ = await port.connect()
        own = link.duplicate_socket()
        assert own is not None
        with own:
            thread = threading.Thread(target=own.send, args=(b"".join(encode((["a"], []))),))
            thread.start()
            thread.join()
            await port.owner.until(lambda: port.owner.messages)

    with_port(test)
