"""The handshake, without a socket: who gets in, who does not, and what both sides learn."""

from __future__ import annotations

import hmac
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.errors import PeerError, UsageError
from shunter.wire.details import ClientDetails, ParentDetails, WorkerDetails
from shunter.wire.frames import FrameReader, encode
from shunter.wire.handshake import MAGIC, PROTOCOL, Acceptor, Connector, HandshakeFailed, Role

TOKEN = "s3cret"
CLIENT = ClientDetails("me").as_dict()
WORKER = WorkerDetails("w", "tcp://h:1", "h", 2, 0, {"GPU": 1.0}, 99, 1.7e9, -1).as_dict()
PARENT = ParentDetails("p", 98).as_dict()


def shake(connector: Connector, acceptor: Acceptor, *, step: int = 10**9) -> None:
    """Carry bytes to and fro, ``step`` at a time, until the connector is done."""
    to_acceptor, to_connector = connector.start(), b""
    while to_acceptor or to_connector:
        for at in range(0, len(to_acceptor), step):
            to_connector += acceptor.receive(to_acceptor[at : at + step])
        if acceptor.proven:
            to_connector += acceptor.welcome(7, {"clock": 1.5, "name": "s"})
        to_acceptor = b""
        for at in range(0, len(to_connector), step):
            to_acceptor += connector.receive(to_connector[at : at + step])
        to_connector = b""


def frame(*header: Any) -> bytes:
    return b"".join(encode((list(header), ())))


def headers(data: bytes) -> list[list[Any]]:
    """The frames behind the magic."""
    assert data.startswith(MAGIC)
    return [header for header, _ in FrameReader().feed(data[len(MAGIC) :])]


@pytest.mark.parametrize(
    ("role", "details"), [("client", CLIENT), ("worker", WORKER), ("parent", PARENT), ("data", {})]
)
@pytest.mark.parametrize("token", [TOKEN, "", "ключ\udc80"], ids=ascii)
def test_both_know_the_token__welcome(role: Role, details: dict[str, object], token: str) -> None:
    connector, acceptor = Connector(role, token, details), Acceptor(token)
    shake(connector, acceptor)

    assert (connector.done, acceptor.proven) == (True, True)
    assert (connector.number, connector.peer_details) == (7, {"clock": 1.5, "name": "s"})
    assert (acceptor.role, acceptor.details) == (role, details)
    assert connector.peer_versions["build"] in ("pure", "compiled")
    assert acceptor.peer_versions.keys() == {"shunter", "python", "build"}


def test_bytes_come_one_by_one__welcome() -> None:
    connector, acceptor = Connector("worker", TOKEN, WORKER), Acceptor(TOKEN)
    shake(connector, acceptor, step=1)

    assert connector.done


def test_frames_follow_the_welcome_at_once__kept() -> None:
    connector, acceptor = Connector("client", TOKEN, CLIENT), Acceptor(TOKEN)
    acceptor.receive(connector.receive(acceptor.receive(connector.start())))
    connector.receive(acceptor.welcome(1, {}) + b"rest")

    assert connector.rest == b"rest"


@pytest.mark.parametrize(("ours", "theirs"), [("wrong", TOKEN), ("wrong", ""), ("", TOKEN)])
def test_tokens_differ__connector_learns_it_and_where_to_get_the_right_one(ours: str, theirs: str) -> None:
    with pytest.raises(HandshakeFailed, match=r"tcp://h:1.*--scheduler-file.*--token-file") as info:
        shake(Connector("client", ours, CLIENT, where="tcp://h:1"), Acceptor(theirs))
    assert ("none was given" in str(info.value)) == (not ours)


def test_connector_does_not_know_the_token__acceptor_refuses_and_says_why() -> None:
    acceptor = Acceptor(TOKEN)
    acceptor.receive(MAGIC + frame("hello", PROTOCOL, "client", "0" * 32, {}))

    with pytest.raises(HandshakeFailed, match="the token is wrong") as info:
        acceptor.receive(frame("proof", "0" * 64, CLIENT))
    assert FrameReader().feed(info.value.answer) == [(["refused", "the token is wrong"], b"")]
    assert not acceptor.proven


def test_acceptors_own_proof_is_sent_back__refused() -> None:
    acceptor = Acceptor(TOKEN)
    answer = headers(acceptor.receive(MAGIC + frame("hello", PROTOCOL, "client", "0" * 32, {})))
    [_, _, nonce, proof, _] = answer[0]
    # A second connection that is asked to sign the first one's nonce does not help either.
    other = Acceptor(TOKEN)
    [_, _, _, borrowed, _] = headers(other.receive(MAGIC + frame("hello", PROTOCOL, "client", nonce, {})))[0]

    for each in (proof, borrowed):
        fresh = Acceptor(TOKEN)
        fresh._nonce = acceptor._nonce
        fresh.receive(MAGIC + frame("hello", PROTOCOL, "client", "0" * 32, {}))
        with pytest.raises(HandshakeFailed, match="the token is wrong"):
            fresh.receive(frame("proof", each, CLIENT))


def test_connectors_nonce_is_reflected__it_proves_nothing() -> None:
    connector = Connector("client", TOKEN, CLIENT)
    [_, _, _, nonce, _] = headers(connector.start())[0]
    as_connector = hmac.new(TOKEN.encode(), f"connector{nonce}{nonce}".encode(), "sha256").hexdigest()

    with pytest.raises(HandshakeFailed, match="token"):
        connector.receive(MAGIC + frame("challenge", PROTOCOL, nonce, as_connector, {}))


def test_recorded_proof_is_replayed_on_another_connection__refused() -> None:
    connector, acceptor = Connector("client", TOKEN, CLIENT), Acceptor(TOKEN)
    hello = connector.start()
    proof = connector.receive(acceptor.receive(hello))
    acceptor.receive(proof)
    assert acceptor.proven

    again = Acceptor(TOKEN)
    again.receive(hello)
    with pytest.raises(HandshakeFailed, match="the token is wrong"):
        again.receive(proof)


def test_proof_is_not_ascii__refused() -> None:
    acceptor = Acceptor(TOKEN)
    acceptor.receive(MAGIC + frame("hello", PROTOCOL, "client", "0" * 32, {}))

    with pytest.raises(HandshakeFailed, match="the token is wrong"):
        acceptor.receive(frame("proof", "é\ud800", CLIENT))


@pytest.mark.parametrize("version", [0, 2, 255])
def test_magic_has_another_version__both_sides_name_both_versions(version: int) -> None:
    magic = MAGIC[:-1] + bytes([version])
    acceptor = Acceptor(TOKEN)
    older = "the connector" if version == 0 else "the peer it connected to"

    with pytest.raises(
        HandshakeFailed, match=rf"protocol {version}.*protocol 1.*upgrade shunter at {older}"
    ) as info:
        acceptor.receive(magic + b"whatever follows")
    assert headers(info.value.answer)[0][0] == "refused"
    with pytest.raises(HandshakeFailed, match=rf"tcp://h:1 speaks protocol {version}, this side protocol 1"):
        Connector("client", TOKEN, CLIENT, where="tcp://h:1").receive(magic)


def test_hello_has_another_version__refused_before_the_rest_is_looked_at() -> None:
    acceptor = Acceptor(TOKEN)

    with pytest.raises(
        HandshakeFailed, match=r"the connector speaks protocol 2, .*protocol 1 \(shunter"
    ) as info:
        acceptor.receive(MAGIC + frame("hello", 2, {"new": "shape"}))
    assert "upgrade shunter at the peer it connected to" in headers(info.value.answer)[0][1]


def test_challenge_has_another_version__connector_names_both_with_releases() -> None:
    connector = Connector("client", TOKEN, CLIENT, where="tcp://h:1")

    with pytest.raises(HandshakeFailed, match=r"tcp://h:1 speaks protocol 2 \(shunter 9\.9\), this side"):
        connector.receive(MAGIC + frame("challenge", 2, "0" * 32, "proof", {"shunter": "9.9"}))


@pytest.mark.parametrize(
    "request_line",
    [b"GET / HTTP/1.1\r\n", b"OPTIONS * HTTP/1.0\r\n", b"POST /x HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n"],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_somebody_speaks_http__gets_a_400_that_names_shunter(request_line: bytes, step: int) -> None:
    acceptor = Acceptor(TOKEN)

    with pytest.raises(HandshakeFailed, match="HTTP") as info:
        for at in range(0, len(request_line), step):
            acceptor.receive(request_line[at : at + step])
    assert info.value.answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"This is a shunter port" in info.value.answer
    assert info.value.answer.count(b"\n", info.value.answer.index(b"\r\n\r\n") + 4) == 1


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01\x02\x00", b"SSH-2.0-x\r\n", b"\x00" * 20, b"shunteX\x01"], ids=repr
)
def test_garbage_comes__cut_off_without_an_answer(data: bytes) -> None:
    with pytest.raises(HandshakeFailed, match="not shunter's protocol") as info:
        Acceptor(TOKEN).receive(data)
    assert info.value.answer == b""


@pytest.mark.parametrize(
    "data", [b"HTTP/1.1 400 Bad Request\r\n", b"SSH-2.0-x\r\n", b"220 mail\r\n"], ids=repr
)
def test_connector_reaches_something_else__told_what_it_answered(data: bytes) -> None:
    with pytest.raises(HandshakeFailed, match=r"tcp://h:1 is not a shunter port: it answered b'"):
        Connector("client", TOKEN, CLIENT, where="tcp://h:1").receive(data)


@pytest.mark.parametrize(
    "header",
    [
        ["hello", PROTOCOL, "admin", "0" * 32, {}],
        ["hello", PROTOCOL, None, "0" * 32, {}],
        ["hello", PROTOCOL, "client", "0" * 31, {}],
        ["hello", PROTOCOL, "client", "G" * 32, {}],
        ["hello", PROTOCOL, "client", 0, {}],
        ["hello", True],
        ["hello", "1"],
        ["hello"],
        ["proof", "0" * 64, CLIENT],
        ["welcome", 1, {}],
        ["submit", 1],
    ],
    ids=str,
)
def test_first_message_is_wrong__refused_with_the_reason(header: list[Any]) -> None:
    with pytest.raises(HandshakeFailed) as info:
        Acceptor(TOKEN).receive(MAGIC + frame(*header))
    assert headers(info.value.answer)[-1][0] == "refused"


def test_hello_comes_twice__refused() -> None:
    hello = frame("hello", PROTOCOL, "client", "0" * 32, {})

    with pytest.raises(HandshakeFailed, match="out of place"):
        Acceptor(TOKEN).receive(MAGIC + hello + hello)


def test_versions_are_nonsense__no_reason_to_refuse() -> None:
    acceptor = Acceptor(TOKEN)
    acceptor.receive(
        MAGIC + frame("hello", PROTOCOL, "client", "0" * 32, {"shunter": 1, "python": "3\n", "x": "y"})
    )

    assert acceptor.peer_versions == {}


@pytest.mark.parametrize(
    "prefix",
    [b"\x01\x00\x01\x00\x00\x00\x00\x00", b"\x02\x00\x00\x00\x01\x00\x00\x00", b"\xff" * 8],
    ids=repr,
)
def test_frame_of_the_handshake_is_too_large__refused_by_its_prefix(prefix: bytes) -> None:
    with pytest.raises(HandshakeFailed, match="announced"):
        Acceptor(TOKEN).receive(MAGIC + prefix)
    with pytest.raises(HandshakeFailed, match="announced"):
        Connector("client", TOKEN, CLIENT).receive(MAGIC + prefix)


def test_bytes_follow_the_proof_before_the_welcome__refused() -> None:
    connector, acceptor = Connector("client", TOKEN, CLIENT), Acceptor(TOKEN)
    proof = connector.receive(acceptor.receive(connector.start()))

    with pytest.raises(HandshakeFailed, match="before the welcome"):
        acceptor.receive(proof + frame("heartbeat"))


def test_role_is_not_served_here__refused() -> None:
    with pytest.raises(HandshakeFailed, match="this port serves data, not client"):
        shake(Connector("client", TOKEN, CLIENT), Acceptor(TOKEN, {"data"}))


def test_owner_refuses__connector_learns_the_reason() -> None:
    connector, acceptor = Connector("worker", TOKEN, WORKER, where="tcp://h:1"), Acceptor(TOKEN)
    acceptor.receive(connector.receive(acceptor.receive(connector.start())))

    with pytest.raises(HandshakeFailed, match="tcp://h:1 refused the connection: name taken"):
        connector.receive(acceptor.refuse("name taken"))


@pytest.mark.parametrize(
    "header", [["welcome", 1, {}], ["hello", 1], ["closing", "x"], ["finished"]], ids=str
)
def test_acceptor_skips_its_proof__connector_gives_up(header: list[Any]) -> None:
    with pytest.raises(HandshakeFailed, match="out of place"):
        Connector("client", TOKEN, CLIENT).receive(MAGIC + frame(*header))


@pytest.mark.parametrize(
    ("role", "details", "field", "wrong"),
    [
        ("client", CLIENT, "name", ["\ud800", 1, None]),
        ("parent", PARENT, "name", [1]),
        ("parent", PARENT, "pid", [-1, True, "1"]),
        ("worker", WORKER, "name", [1]),
        ("worker", WORKER, "address", ["h:1", "tcp://h:0", 1, None]),
        ("worker", WORKER, "host", [1]),
        ("worker", WORKER, "nthreads", [0, -1, 1.5, True]),
        ("worker", WORKER, "memory_limit", [-1, None, 2**63]),
        ("worker", WORKER, "resources", [None, [], {"GPU": "1"}, {"GPU": -1}, {"\ud800": 1}, {"GPU": True}]),
        ("worker", WORKER, "pid", [None]),
        ("worker", WORKER, "clock", [None, "now", 10**400]),
        ("worker", WORKER, "parent", [-2, None]),
    ],
)
def test_details_have_a_wrong_field__refused_by_name(
    role: Role, details: dict[str, object], field: str, wrong: list[object]
) -> None:
    missing = {name: value for name, value in details.items() if name != field}
    for each in [missing, *({**details, field: value} for value in wrong)]:
        connector, acceptor = Connector(role, TOKEN, each), Acceptor(TOKEN)
        with pytest.raises(HandshakeFailed, match=field):
            shake(connector, acceptor)
        assert not acceptor.proven


@pytest.mark.parametrize("details", [None, [], "x", 1], ids=repr)
def test_details_are_no_object__refused(details: Any) -> None:
    connector, acceptor = Connector("client", TOKEN, {}), Acceptor(TOKEN)
    connector._details = details

    with pytest.raises(HandshakeFailed, match="details of a client must be an object"):
        shake(connector, acceptor)


def test_own_details_cannot_be_encoded__usage_error_at_once() -> None:
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        Connector("client", TOKEN, {"name": object()})


def test_unknown_details__dropped() -> None:
    connector, acceptor = Connector("client", TOKEN, {**CLIENT, "new": [1]}), Acceptor(TOKEN)
    shake(connector, acceptor)

    assert acceptor.details == CLIENT


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=30), max_size=4), st.booleans())
def test_arbitrary_bytes__never_raise_anything_but_peer_error(chunks: list[bytes], has_magic: bool) -> None:
    for side in (Acceptor(TOKEN), Connector("client", TOKEN, CLIENT)):
        try:
            for chunk in [MAGIC, *chunks] if has_magic else chunks:
                side.receive(chunk)
        except PeerError:
            pass
        assert not (side.proven if isinstance(side, Acceptor) else side.done)
