"""Frames: laid out, cut anywhere, too large, not JSON."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.errors import PeerError, UsageError
from shunter.wire.frames import (
    BODY_MAX,
    BULK_PREFIX,
    HEADER_MAX,
    PREFIX,
    FrameReader,
    batches,
    decode_header,
    encode,
    flat,
)

HEADERS: list[list[object]] = [["a"], ["b", 1, "é\ud800😀", [1.5, None, True]], ["c", "x" * 300]]
BODIES: list[list[bytes]] = [[], [b"one", b"", b"two"], [b"\x00" * 100]]
STREAM = b"".join(piece for frame in zip(HEADERS, BODIES) for piece in encode(frame))
FRAMES = [(header, b"".join(parts)) for header, parts in zip(HEADERS, BODIES)]


def test_frames_come_in_one_chunk__all_are_read() -> None:
    reader = FrameReader()

    assert reader.feed(STREAM) == FRAMES
    assert reader.pending == 0


def test_stream_is_split_at_every_offset__the_same_frames_are_read() -> None:
    for at in range(len(STREAM) + 1):
        reader = FrameReader()
        assert reader.feed(STREAM[:at]) + reader.feed(STREAM[at:]) == FRAMES
        assert reader.pending == 0


def test_stream_comes_byte_by_byte__the_same_frames_are_read() -> None:
    reader = FrameReader()

    assert [frame for i in range(len(STREAM)) for frame in reader.feed(STREAM[i : i + 1])] == FRAMES


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_stream_is_split_anyhow__the_same_frames_are_read(cuts: list[int]) -> None:
    reader = FrameReader()
    ends = [*sorted(cuts), len(STREAM)]
    chunks = [STREAM[start:end] for start, end in zip([0, *ends], ends)]

    assert [frame for chunk in chunks for frame in reader.feed(chunk)] == FRAMES


def test_stream_is_truncated__nothing_is_read_of_the_last_frame() -> None:
    reader = FrameReader()

    assert reader.feed(STREAM[:-1]) == FRAMES[:-1]
    assert reader.pending > 0


def test_large_body_comes_in_small_chunks__kept_once() -> None:
    body = bytes(range(256)) * 4096 * 8
    data = b"".join(encode((["x"], [body])))
    reader = FrameReader()
    frames = [frame for i in range(0, len(data), 4096) for frame in reader.feed(data[i : i + 4096])]

    assert frames == [(["x"], body)]


@pytest.mark.parametrize(
    ("prefix", "text"),
    [
        (
            struct.pack("<II", HEADER_MAX + 1, 0),
            r"a header of 1,048,577 bytes is announced; at most 1,048,576",
        ),
        (struct.pack("<II", 2, BODY_MAX + 1), r"a body of 67,108,865 bytes is announced"),
        (b"\xff" * 8, r"a header of 4,294,967,295 bytes"),
        (b"GET / HTTP/1.1\r\n", "is announced"),
    ],
)
def test_frame_is_too_large__refused_by_its_prefix_alone(prefix: bytes, text: str) -> None:
    with pytest.raises(PeerError, match=text):
        FrameReader().feed(prefix)


def test_limits_of_the_reader__are_its_own() -> None:
    with pytest.raises(PeerError, match="at most 10 are accepted"):
        FrameReader(header_max=10, body_max=0).feed(STREAM)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"[1]",
        b"[null]",
        b'"op"',
        b"1",
        b'["op"',
        b'["op"]x',
        b'["\xff"]',
        b"\xef\xbb\xbf[]",
        b'["op", NaN]',
        b'["op", Infinity]',
        b'["op", -Infinity]',
        b'["op", ' + b"9" * 5000 + b"]",
        b"[" * 100_000,
        b'["op",' + b"[" * 200_000 + b"]" * 200_001,
        b'["op\x00\n"]',
    ],
    ids=lambda data: ascii(data[:20]),
)
def test_header_is_not_an_array_of_json_that_names_an_operation__refused(data: bytes) -> None:
    with pytest.raises(PeerError, match="a header is not"):
        decode_header(data)


def test_lone_surrogates__survive_the_way() -> None:
    header: list[object] = ["op", "file-\udcff", "😀"]

    [(found, _)] = FrameReader().feed(b"".join(encode((header, ()))))

    assert found == header


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), b"bytes", {1, 2}], ids=repr)
def test_header_holds_what_json_cannot_say__usage_error_names_the_message(value: object) -> None:
    with pytest.raises(UsageError, match="message 'op' cannot be written as JSON"):
        encode((["op", value], ()))


def test_header_holds_itself__usage_error() -> None:
    header: list[object] = ["op"]
    header.append(header)

    with pytest.raises(UsageError, match="message 'op' cannot be written as JSON"):
        encode((header, ()))


def test_own_frame_is_too_large__usage_error_says_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"message 'op' has a header of .* send it in parts"):
        encode((["op", "x" * HEADER_MAX], ()))
    with pytest.raises(UsageError, match=r"message 'op' has a body of .*scatter"):
        encode((["op"], [bytes(BODY_MAX), b"!"]))


def test_bulk_frame__has_a_long_body_length_and_no_limit() -> None:
    body = memoryview(bytearray(BODY_MAX + 1))

    head, part = encode((["op"], [body]), bulk=True)

    assert BULK_PREFIX.unpack(bytes(head)[: BULK_PREFIX.size]) == (6, BODY_MAX + 1)
    assert part is body or part.obj is body.obj  # type: ignore[union-attr]  # Not copied.


def test_prefixes__are_as_documented() -> None:
    assert PREFIX.size == 8
    assert BULK_PREFIX.size == 12


@pytest.mark.parametrize(
    ("part", "size"),
    [
        (b"abc", 3),
        (bytearray(b"abc"), 3),
        (memoryview(b"abcdefgh").cast("d"), 8),
        (memoryview(bytearray(12)).cast("B", (3, 4)), 12),
        (memoryview(b""), 0),
        (memoryview(bytearray(8))[::1], 8),
    ],
    ids=lambda v: repr(v)[:20],
)
def test_part_of_any_shape__becomes_flat_bytes(part: Any, size: int) -> None:
    assert len(flat(part)) == size
    assert bytes(flat(part)) == bytes(part)


def test_part_is_not_contiguous__usage_error() -> None:
    with pytest.raises(UsageError, match="contiguous"):
        flat(memoryview(b"abcdef")[::2])


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([5], [(0, 1)]),
        ([5, 5, 5], [(0, 2), (2, 3)]),
        ([50, 1, 1], [(0, 1), (1, 3)]),
        ([1, 50, 1], [(0, 1), (1, 2), (2, 3)]),
        ([0] * 7, [(0, 3), (3, 6), (6, 7)]),
    ],
    ids=str,
)
def test_columns_are_cut_into_batches__by_rows_and_bytes(
    sizes: list[int], expected: list[tuple[int, int]]
) -> None:
    assert [(each.start, each.stop) for each in batches(sizes, rows=3, nbytes=10)] == expected
