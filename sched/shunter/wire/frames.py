"""Frames: how a message lies in the stream of bytes.

A frame is a prefix (lengths of header and body), a JSON array whose first item names the operation, and
opaque bytes. Limits are checked on the lengths, before the bytes they speak of are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from json import JSONDecoder, JSONEncoder
from struct import Struct
from typing import Final, NoReturn, TypeAlias, cast

from shunter.errors import PeerError, UsageError
from shunter.types import Buffer

__all__ = [
    "BODY_MAX",
    "BULK_PREFIX",
    "HEADER_MAX",
    "PREFIX",
    "Frame",
    "FrameReader",
    "batches",
    "check_lengths",
    "decode_header",
    "encode",
    "encode_header",
    "flat",
]

#: A message to send: header (operation, fields …) and the parts of its body, which are laid end to end.
Frame: TypeAlias = tuple[list[object], Sequence[Buffer]]

#: Largest header and body on a control connection, bytes. Whoever needs more splits (see `batches`).
HEADER_MAX: Final = 1024 * 1024
BODY_MAX: Final = 64 * 1024 * 1024

PREFIX: Final = Struct("<II")  # Control connections: header length, body length.
BULK_PREFIX: Final = Struct("<IQ")  # Data connections.


def encode(frame: Frame, *, bulk: bool = False) -> list[bytes | memoryview]:
    """The pieces to write, in order: prefix and header in one, then the parts of the body, not copied.

    Raises:
        UsageError: the frame is over a limit, or the header holds what JSON cannot say (NaN, objects, cycles).
    """
    header, body = frame
    head = encode_header(header)
    parts = [flat(part) for part in body]
    nbytes = sum(map(len, parts))
    if bulk:
        return [BULK_PREFIX.pack(len(head), nbytes) + head, *parts]
    if nbytes > BODY_MAX:
        raise UsageError(
            f"message {header[0]!r} has a body of {nbytes:,} bytes; at most {BODY_MAX:,} fit in one message: "
            "send it in parts, or put the data on a worker first (scatter)"
        )
    return [PREFIX.pack(len(head), nbytes) + head, *parts]


def encode_header(header: Sequence[object]) -> bytes:
    """A header as ASCII JSON. Lone surrogates survive as escapes. Raises UsageError as `encode` does."""
    try:
        head = _to_json(header).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"message {header[0]!r} cannot be written as JSON: {error}") from None
    if len(head) > HEADER_MAX:
        raise UsageError(
            f"message {header[0]!r} has a header of {len(head):,} bytes; at most {HEADER_MAX:,} fit in one "
            "message: send it in parts, or use shorter keys and annotations"
        )
    return head


def decode_header(data: bytes | bytearray | memoryview) -> list[object]:
    """A header from its bytes: a JSON array that begins with the name of an operation, else PeerError.

    NaN and Infinity are refused here; types and ranges of the fields by `shunter.wire.messages`.
    """
    try:
        header = _from_json(str(data, "utf-8"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors.
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)[:200]
        raise PeerError(f"a header is not JSON: {reason}") from None
    if type(header) is not list or not header or type(header[0]) is not str:
        raise PeerError("a header is not a JSON array that begins with the name of an operation")
    return cast("list[object]", header)


def check_lengths(header: int, body: int, *, header_max: int, body_max: int) -> None:
    """Raise PeerError if a frame that is announced would be too large."""
    if header > header_max:
        raise PeerError(f"a header of {header:,} bytes is announced; at most {header_max:,} are accepted")
    if body > body_max:
        raise PeerError(f"a body of {body:,} bytes is announced; at most {body_max:,} are accepted")


def flat(part: Buffer) -> bytes | memoryview:
    """A part as one-dimensional bytes without a copy, so that ``len`` is its size in bytes."""
    if type(part) is bytes:
        return part
    view = memoryview(part)
    if view.ndim == 1 and view.format == "B" and view.contiguous:
        return view
    if not view.contiguous:
        raise UsageError("a part of a value must be contiguous in memory")
    # A view with a zero in its shape cannot be cast; it has no bytes either.
    return view.cast("B") if view.nbytes else b""


def batches(sizes: Iterable[int], *, rows: int = 1000, nbytes: int = 256 * 1024) -> list[slice]:
    """Cut columns into slices of at most ``rows`` entries and about ``nbytes`` bytes, for one message each.

    ``sizes``: bytes of each entry (key, arguments, inputs: a rough figure will do). One entry that is larger
    by itself gets a slice of its own. No entries: no slices.
    """
    slices: list[slice] = []
    start = end = total = 0
    for size in sizes:
        if end > start and (end - start >= rows or total + size > nbytes):
            slices.append(slice(start, end))
            start, total = end, 0
        end += 1
        total += size
    if end > start:
        slices.append(slice(start, end))
    return slices


class FrameReader:
    """Takes bytes as they come and gives complete frames. Linear in the size of what it is fed.

    Args:
        header_max: largest header accepted, bytes.
        body_max: largest body accepted, bytes.
    """

    __slots__ = ("_need", "_pending", "body_max", "header_max")

    def __init__(self, header_max: int = HEADER_MAX, body_max: int = BODY_MAX) -> None:
        self.header_max = header_max
        self.body_max = body_max
        self._pending = bytearray()  # The start of a frame that is not complete.
        self._need = PREFIX.size  # Bytes that `_pending` must reach before another look is worth it.

    @property
    def pending(self) -> int:
        """Bytes kept of a frame that is not complete; 0 between frames."""
        return len(self._pending)

    def feed(self, data: bytes) -> list[tuple[list[object], bytes]]:
        """Take a chunk and return the frames that it completed, as (header, body).

        Raises:
            PeerError: a length is over its limit, or a header is not a JSON array that names an operation.
                The reader is of no use afterwards.
        """
        if self._pending:
            # A look, with the copy it costs, only when there is something to see: at the prefix, at the end.
            self._pending += data
            if len(self._pending) < self._need:
                return []
            data = bytes(self._pending)
            self._pending = bytearray()
        frames: list[tuple[list[object], bytes]] = []
        at, size = 0, len(data)
        need = PREFIX.size
        while size - at >= PREFIX.size:
            header_size, body_size = PREFIX.unpack_from(data, at)
            if header_size > self.header_max or body_size > self.body_max:
                check_lengths(header_size, body_size, header_max=self.header_max, body_max=self.body_max)
            start = at + PREFIX.size
            middle = start + header_size
            end = middle + body_size
            if end > size:
                need = end - at
                break
            frames.append((decode_header(data[start:middle]), data[middle:end]))
            at = end
        self._need = need
        if at < size:
            self._pending += data[at:] if at else data
        return frames


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a finite number")


# Both bound once: building an encoder costs more than most headers. Cycles end in a RecursionError. Text is
# escaped to ASCII, so lone surrogates (undecodable file names in a traceback) pass through unharmed.
_to_json: Final = JSONEncoder(separators=(",", ":"), check_circular=False, allow_nan=False).encode
_from_json: Final = JSONDecoder(parse_constant=_refuse_constant).decode
