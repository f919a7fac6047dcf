"""The handshake: who speaks which version, and a proof on both sides that they know the token.

Theory of operation. Both sides are sans-IO: they take bytes and give bytes, so that the asyncio links and the
blocking data connections share them.

    connector                                   acceptor
    MAGIC, hello(version, role, nonce)     →    checks magic, version, role
    checks the acceptor's proof            ←    MAGIC, challenge(version, nonce', HMAC "acceptor")
    proof(HMAC "connector", details)       →    checks the proof, then the details; the owner decides
    done                                   ←    welcome(number, details)   or   refused(reason), at any point

Each proof covers both fresh nonces and the word for its side: an answer can neither be replayed on another
connection nor be reflected to the side that made it. The connector proves nothing to an acceptor that has not
proved itself first. A side that is refused learns why.
"""

from __future__ import annotations

import hmac
import re
import secrets
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Final, Literal, NoReturn, TypeAlias, cast, get_args

from shunter.errors import PeerError
from shunter.wire.details import check_details
from shunter.wire.fields import Fields, excerpt
from shunter.wire.frames import PREFIX, check_lengths, decode_header, encode, encode_header

__all__ = ["MAGIC", "PROTOCOL", "ROLES", "Acceptor", "Connector", "HandshakeFailed", "Role"]

#: Version of the protocol; both sides must have the same one.
PROTOCOL: Final = 1
_NAME: Final = b"shunter"
#: The first bytes on every connection, in both directions.
MAGIC: Final = _NAME + bytes([PROTOCOL])

Role: TypeAlias = Literal["client", "worker", "parent", "data"]
ROLES: Final[frozenset[str]] = frozenset(get_args(Role))

#: Largest header before the handshake is over, bytes. There are no bodies.
_HEADER_MAX: Final = 64 * 1024
_HTTP: Final = re.compile(rb"(GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|TRACE|CONNECT|PRI) ")
_HTTP_ANSWER: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"This is a shunter port: connect with shunter.Client, not with HTTP.\r\n"
)
_NONCE: Final = re.compile("[0-9a-f]{32}")


class HandshakeFailed(PeerError):
    """The handshake is over, without success. ``answer``: last bytes to send before closing, perhaps none."""

    def __init__(self, text: str, answer: bytes = b"") -> None:
        super().__init__(text)
        self.answer = answer


class Connector:
    """The side that opens the connection.

    Args:
        role: what it wants to be.
        token: the cluster's token, "" for none.
        details: about itself, by role (see `shunter.wire.details`).
        where: the address, for messages.

    Raises:
        UsageError: the details cannot be written as JSON.

    Attributes:
        done: True once welcome has been read; then the others are valid.
        number: the number that the acceptor gave this connection.
        peer_details: what the acceptor says in its welcome.
        peer_versions: what it says about its versions, for information.
        rest: bytes that came after welcome: frames.
    """

    def __init__(
        self, role: Role, token: str, details: Mapping[str, object], *, where: str = "the peer"
    ) -> None:
        self.done = False
        self.number = -1
        self.peer_details: dict[str, object] = {}
        self.peer_versions: dict[str, str] = {}
        self.rest = b""
        self._role = role
        self._token = token
        self._details = dict(details)
        encode_header(["details", self._details])  # Find out now, not in the middle of the handshake.
        self._where = where
        self._nonce = _new_nonce()
        self._stream = _Stream()
        self._proved = False  # The acceptor has proved itself, and so have we.

    def start(self) -> bytes:
        """The first bytes to send."""
        return MAGIC + _frame(["hello", PROTOCOL, self._role, self._nonce, _versions()])

    def receive(self, data: bytes) -> bytes:
        """Take bytes and return the bytes to send now. Raises HandshakeFailed: refused, or no such peer."""
        self._stream.add(data)
        answer = b""
        try:
            if not self._stream.take_magic(self._refuse_magic):
                return b""
            while not self.done and (header := self._stream.take_header()) is not None:
                answer += self._on_header(header)
        except HandshakeFailed:
            raise
        except PeerError as error:
            raise HandshakeFailed(f"handshake with {self._where}: {error}") from None
        if self.done:
            self.rest = self._stream.take_rest()
        return answer

    def _on_header(self, header: list[object]) -> bytes:
        fields = Fields(header, b"")
        if fields.op == "refused":
            raise HandshakeFailed(f"{self._where} refused the connection: {fields.text('reason')}")
        if fields.op == "challenge" and not self._proved:
            return self._on_challenge(fields)
        if fields.op == "welcome" and self._proved:
            self.number = fields.integer("number")
            self.peer_details = fields.plain_mapping("details")
            self.done = True
            return b""
        raise PeerError(f"message {excerpt(fields.op)} is out of place")

    def _on_challenge(self, fields: Fields) -> bytes:
        version, nonce = fields.integer("version"), _nonce(fields)
        proof = fields.text("proof")
        self.peer_versions = _read_versions(fields)
        if version != PROTOCOL:
            raise HandshakeFailed(self._version_text(version))
        if not _is_equal(proof, _proof(self._token, "acceptor", self._nonce, nonce)):
            raise HandshakeFailed(_token_text(self._where, self._token))
        self._proved = True
        return _frame(["proof", _proof(self._token, "connector", nonce, self._nonce), self._details])

    def _refuse_magic(self, found: bytes) -> NoReturn:
        if found.startswith(_NAME) and len(found) > len(_NAME):
            raise HandshakeFailed(self._version_text(found[len(_NAME)]))
        raise HandshakeFailed(f"{self._where} is not a shunter port: it answered {found[:40]!r}")

    def _version_text(self, version: int) -> str:
        return _version_text(version, self.peer_versions.get("shunter", ""), them=self._where, us="this side")


class Acceptor:
    """The side that was connected to. Once ``proven``, its owner decides: `welcome` or `refuse`.

    Args:
        token: the cluster's token, "" for none.
        roles: what connectors may be here.

    Attributes:
        proven: True once the connector has proved that it knows the token; then the others are valid.
        role: what the connector wants to be.
        details: what it says about itself, checked.
        peer_versions: what it says about its versions, for information.
    """

    def __init__(self, token: str, roles: Collection[str] = ROLES) -> None:
        self.proven = False
        self.role: Role = "client"
        self.details: dict[str, object] = {}
        self.peer_versions: dict[str, str] = {}
        self._roles = roles
        self._token = token
        self._nonce = _new_nonce()
        self._peer_nonce = ""  # Until hello has been read.
        self._stream = _Stream()

    def receive(self, data: bytes) -> bytes:
        """Take bytes and return the bytes to send now. Raises HandshakeFailed, with a last answer to send."""
        self._stream.add(data)
        answer = b""
        try:
            if not self._stream.take_magic(self._refuse_magic):
                return b""
            while not self.proven and (header := self._stream.take_header()) is not None:
                answer += self._on_header(header)
            if self.proven and self._stream.take_rest():
                raise PeerError("bytes came before the welcome")
        except HandshakeFailed:
            raise
        except PeerError as error:
            raise HandshakeFailed(f"handshake: {error}", answer + self.refuse(str(error))) from None
        return answer

    def welcome(self, number: int, details: Mapping[str, object]) -> bytes:
        """The last bytes of a handshake that succeeded."""
        return _frame(["welcome", number, dict(details)])

    def refuse(self, reason: str) -> bytes:
        """The last bytes of one that did not."""
        magic = b"" if self._peer_nonce else MAGIC  # It goes out with the challenge.
        return magic + _frame(["refused", reason])

    def _on_header(self, header: list[object]) -> bytes:
        fields = Fields(header, b"")
        if fields.op == "hello" and not self._peer_nonce:
            return self._on_hello(fields)
        if fields.op == "proof" and self._peer_nonce:
            self._on_proof(fields)
            return b""
        raise PeerError(f"message {excerpt(fields.op)} is out of place")

    def _on_hello(self, fields: Fields) -> bytes:
        version = fields.integer("version")
        if version != PROTOCOL:  # Before anything else is read: the rest may look different there.
            raise PeerError(_connector_version_text(version))
        self.role = cast("Role", fields.word("role", ROLES))
        nonce = _nonce(fields)
        self.peer_versions = _read_versions(fields)
        if self.role not in self._roles:
            served = " and ".join(sorted(self._roles))
            raise PeerError(f"this port serves {served}, not {self.role}: is the address right?")
        self._peer_nonce = nonce
        proof = _proof(self._token, "acceptor", nonce, self._nonce)
        return MAGIC + _frame(["challenge", PROTOCOL, self._nonce, proof, _versions()])

    def _on_proof(self, fields: Fields) -> None:
        proof = fields.text("proof")
        if not _is_equal(proof, _proof(self._token, "connector", self._nonce, self._peer_nonce)):
            raise PeerError("the token is wrong")
        self.details = check_details(self.role, fields.take("details"))
        self.proven = True

    def _refuse_magic(self, found: bytes) -> NoReturn:
        if found.startswith(_NAME) and len(found) > len(_NAME):
            raise PeerError(_connector_version_text(found[len(_NAME)]))
        if _HTTP.match(found):
            raise HandshakeFailed("somebody spoke HTTP to this port", _HTTP_ANSWER)
        # Whoever this is would not understand an answer.
        raise HandshakeFailed(f"a connection began with {found[:40]!r}, which is not shunter's protocol")


class _Stream:
    """The bytes of a handshake: the magic, then frames without bodies."""

    __slots__ = ("_data", "_has_magic")

    def __init__(self) -> None:
        self._data = bytearray()
        self._has_magic = False

    def add(self, data: bytes) -> None:
        self._data += data

    def take_magic(self, refuse: Callable[[bytes], NoReturn]) -> bool:
        """True once the magic has been read; ``refuse`` is called, and raises, when it cannot be it."""
        if self._has_magic:
            return True
        found = bytes(self._data[: len(MAGIC)])
        if found == MAGIC:
            del self._data[: len(MAGIC)]
            self._has_magic = True
            return True
        may_be_http = len(found) < len(MAGIC) and found.isalpha() and found.isupper()
        if not MAGIC.startswith(found) and not may_be_http:
            refuse(bytes(self._data[:200]))
        return False

    def take_header(self) -> list[object] | None:
        """The next header, or None if it is not complete."""
        data = self._data
        if len(data) < PREFIX.size:
            return None
        header, body = PREFIX.unpack_from(data)
        check_lengths(header, body, header_max=_HEADER_MAX, body_max=0)
        end = PREFIX.size + header
        if len(data) < end:
            return None
        found = decode_header(data[PREFIX.size : end])
        del data[:end]
        return found

    def take_rest(self) -> bytes:
        rest = bytes(self._data)
        self._data.clear()
        return rest


def _frame(header: list[object]) -> bytes:
    return b"".join(encode((header, ())))


def _new_nonce() -> str:
    return secrets.token_hex(16)


def _nonce(fields: Fields) -> str:
    nonce = fields.text("nonce")
    if not _NONCE.fullmatch(nonce):  # A fixed length, so that no two proofs cover the same text.
        fields.fail("nonce", "32 hex digits", nonce)
    return nonce


def _proof(token: str, side: Literal["acceptor", "connector"], theirs: str, ours: str) -> str:
    """What only a holder of the token can say: ``theirs`` is the nonce of the side that checks it."""
    key = token.encode("utf-8", "surrogatepass")
    return hmac.new(key, f"{side}{theirs}{ours}".encode(), "sha256").hexdigest()


def _is_equal(found: str, expected: str) -> bool:
    """Compare in constant time; bytes, since compare_digest raises for text that is not ASCII."""
    return hmac.compare_digest(found.encode("utf-8", "surrogatepass"), expected.encode())


def _versions() -> dict[str, object]:
    """For information only. Read when it is needed: the package's root is lazy and nothing inside imports it."""
    root = sys.modules.get("shunter")
    return {
        "shunter": str(getattr(root, "__version__", "unknown")),
        "python": ".".join(map(str, sys.version_info[:3])),
        "build": "compiled" if getattr(root, "COMPILED", False) else "pure",
    }


def _read_versions(fields: Fields) -> dict[str, str]:
    """The versions that a peer tells: kept if they are text, never a reason to fail."""
    found = fields.peek()
    if type(found) is not dict:
        return {}
    versions = {name: found[name] for name in ("shunter", "python", "build") if name in found}
    return {name: text[:40] for name, text in versions.items() if type(text) is str and text.isprintable()}


def _connector_version_text(version: int) -> str:
    return _version_text(version, "", them="the connector", us="the peer it connected to")


def _version_text(version: int, shunter: str, *, them: str, us: str) -> str:
    ours = _versions()["shunter"]
    theirs = f"protocol {excerpt(version)}" + (f" (shunter {shunter})" if shunter else "")
    older = them if version < PROTOCOL else us
    return f"{them} speaks {theirs}, {us} protocol {PROTOCOL} (shunter {ours}): upgrade shunter at {older}"


def _token_text(where: str, token: str) -> str:
    what = f"the token is not the one of {where}" if token else f"{where} asks for a token and none was given"
    return (
        f"{what}: use the scheduler file that it wrote (--scheduler-file, scheduler_file=), "
        "or its token (--token-file, token=)"
    )
