"""Valid messages made invalid at random, in any direction: read as declared, or refused with PeerError.

`test_messages` tries each place of each message with a list of wrong values. Here several things are wrong at once, and
are of any shape: entries that are missing, doubled, swapped, wrapped, or nested ten thousand deep; bytes that
were turned over on the way. What is accepted is held against the types that the classes declare.
"""

from __future__ import annotations

import copy
import json
import math
import types
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest
from hypothesis import example as with_example
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.errors import PeerError
from shunter.wire.details import check_details
from shunter.wire.fields import INT_MAX, INT_MIN
from shunter.wire.frames import FrameReader, encode
from tests.wire.examples import EXAMPLES, Example

#: Lists that are not as long as the columns of their message; their docstrings say so.
FREE: Final = {
    "Submit": {"options", "wanted"},
    "GraphPart": {"options"},
    "Erred": {"failures"},
    "Failed": {"types"},
    "Failure": {"types"},
    "WhoHasWanted": {"failed"},
    "TakenBack": {"given"},
    "Data": {"missing"},
    "Died": {"started"},
}
#: Integers that may be below zero.
LOWEST: Final = {"option_of": -1, "priorities": INT_MIN}
#: Numbers that may be below zero.
SIGNED: Final = {"starts", "start", "priority", "priorities"}
DEPTH_MAX: Final = 64

# ---------------------------------------------------------------------------------------------- what is declared


def is_declared(value: object, declared: Any, name: str) -> bool:
    """Whether a value has the declared type, and lies where its field may lie."""
    origin, arguments = get_origin(declared), get_args(declared)
    if declared is object:
        return is_plain(value)
    if declared is int:
        return type(value) is int and LOWEST.get(name, 0) <= value <= INT_MAX
    if declared is float:
        lowest = -math.inf if name in SIGNED else 0.0
        return type(value) in (int, float) and math.isfinite(value) and value >= lowest  # type: ignore[arg-type, operator]  # Just checked.
    if origin in (Union, types.UnionType):
        return any(is_declared(value, each, name) for each in arguments)
    if origin is Literal:
        return value in arguments
    if origin is list:
        return type(value) is list and all(is_declared(each, arguments[0], name) for each in value)
    if origin is tuple:
        return (
            type(value) is tuple
            and len(value) == len(arguments)
            and all(map(is_declared, value, arguments, [name] * len(value)))
        )
    if origin is dict:
        return type(value) is dict and all(
            type(key) is str and is_declared(each, arguments[1], name) for key, each in value.items()
        )
    if is_typeddict(declared):
        hints = get_type_hints(declared)
        return type(value) is dict and all(
            key in hints and is_declared(each, hints[key], key) for key, each in value.items()
        )
    if hasattr(declared, "_fields"):
        return is_message(value, declared)
    return type(value) is declared


def is_message(value: object, declared: type) -> bool:
    """Whether all fields are as declared, and the columns of equal lengths."""
    if type(value) is not declared:
        return False
    free = FREE.get(declared.__name__, set())
    hints = get_type_hints(declared)
    columns = {len(getattr(value, n)) for n in hints if n not in free and type(getattr(value, n)) is list}
    return len(columns) <= 1 and all(is_declared(getattr(value, n), hint, n) for n, hint in hints.items())


def is_plain(value: object) -> bool:
    """JSON of finite numbers, not too deep."""
    stack = [(value, 0)]
    while stack:
        each, depth = stack.pop()
        if isinstance(each, (list, dict)):
            if depth >= DEPTH_MAX:
                return False
            stack += [(inner, depth + 1) for inner in (each.values() if isinstance(each, dict) else each)]
        elif isinstance(each, float):
            if not math.isfinite(each):
                return False
        elif isinstance(each, int):
            if not INT_MIN <= each <= INT_MAX:
                return False
        elif not isinstance(each, (str, type(None))):
            return False
    return True


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_every_example__is_as_its_class_declares(example: Example) -> None:
    assert is_message(example.message, type(example.message))


# ---------------------------------------------------------------------------------------------- what goes wrong

_words = st.sampled_from(["", "x", "é", "\ud800", "exception", "running", "x" * 5000, "\x00", "nan", "1"])
_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.sampled_from([2**53 + 1, INT_MAX, INT_MAX + 1, INT_MIN - 1, 10**400, -(10**400)])
    | st.floats()
    | _words
)
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            _words | st.sampled_from(["priority", "retries", "resources", "key"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


#: Mostly those that JSON is made of.
_bytes = st.sampled_from(list(b'0123456789-+.eE"[]{},: \\')) | st.integers(0, 255)


class Nested(NamedTuple):
    """So many lists (or objects) in each other; made when it is needed, as its repr would be too deep."""

    depth: int
    objects: bool

    def made(self) -> Any:
        value: Any = []
        for _ in range(self.depth):
            value = {"x": value} if self.objects else [value]
        return value


class Change(NamedTuple):
    """``place`` counts all places of the header; it is taken modulo their number."""

    how: Literal["put", "drop", "double", "wrap", "unwrap", "swap", "text", "nest"]
    place: int
    value: Any


_changes = st.one_of(
    st.builds(Change, st.just("put"), st.integers(0, 99), st.integers(-2, 3) | _words),
    st.builds(Change, st.just("put"), st.integers(0, 99), _values),
    st.builds(
        Change, st.sampled_from(["drop", "double", "wrap", "unwrap", "text"]), st.integers(0, 99), st.none()
    ),
    st.builds(Change, st.just("swap"), st.integers(0, 99), st.integers(0, 99)),
    st.builds(
        Change,
        st.just("nest"),
        st.integers(0, 99),
        st.builds(Nested, st.sampled_from([1, 62, 63, 64, 65, 10_000]), st.booleans()),
    ),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where anything stands in a header, but for the operation."""
    inner = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for index, each in inner:
        if path or index != 0:
            yield (*path, index)
            if len(path) < 8:
                yield from places(each, (*path, index))


def at(header: Any, path: tuple[Any, ...]) -> Any:
    for index in path:
        header = header[index]
    return header


def changed(header: list[Any], change: Change) -> None:
    """Do one thing wrong, in place. Does nothing if there is no such place."""
    found = list(places(header))
    if not found:
        header.append(change.value if change.how == "put" else None)
        return
    path = found[change.place % len(found)]
    parent, index = at(header, path[:-1]), path[-1]
    value = parent[index]
    if change.how == "put":
        parent[index] = copy.deepcopy(change.value)
    elif change.how == "nest":
        parent[index] = change.value.made()
    elif change.how == "drop":
        del parent[index]
    elif change.how == "double":
        if isinstance(parent, list):
            parent.insert(index, copy.deepcopy(value))
        else:
            parent[f"{index} too"] = copy.deepcopy(value)
    elif change.how == "wrap":
        parent[index] = [value]
    elif change.how == "unwrap":
        parent[index] = value[0] if isinstance(value, list) and value else None
    elif change.how == "text":
        parent[index] = str(value)
    else:
        other = found[change.value % len(found)]
        if other[: len(path)] != path and path[: len(other)] != other:
            there = at(header, other[:-1])
            parent[index], there[other[-1]] = there[other[-1]], parent[index]


def _is_nesting(change: Change) -> bool:
    """What is nested ten thousand deep cannot be copied or shown any more: it comes last."""
    return change.how == "nest"


def check_read(example: Example, header: list[Any], body: bytes) -> None:
    """A message as its class declares, which can be sent on; or a PeerError that says where, briefly."""
    try:
        message = example.read(header, body)
    except PeerError as error:
        assert str(header[0])[:40] in str(error)
        assert len(str(error)) < 600
        return
    assert is_message(message, type(message)), message
    encode(message.frame())


def _wrong(examples: int) -> settings:
    return settings(max_examples=examples, derandomize=True, database=None, deadline=None)


@_wrong(600)
@given(
    example=st.sampled_from(EXAMPLES),
    changes=st.lists(_changes, min_size=1, max_size=3),
    body=st.none() | st.binary(max_size=8),
)
def test_several_things_are_wrong__read_as_declared_or_refused(
    example: Example, changes: list[Change], body: bytes | None
) -> None:
    header: list[Any] = json.loads(json.dumps(example.header))
    for change in sorted(changes, key=_is_nesting):
        changed(header, change)
    check_read(example, header, example.body if body is None else body)


@_wrong(500)
@given(
    example=st.sampled_from(EXAMPLES),
    flips=st.lists(
        st.tuples(st.integers(8, 10_000), _bytes) | st.tuples(st.integers(0, 7), _bytes), max_size=2
    ),
    cut=st.integers(0, 3).flatmap(lambda i: st.none() if i else st.integers(0, 10_000)),
    chunk=st.integers(1, 50),
)
def test_bytes_are_turned_over_on_the_way__read_as_declared_or_refused(
    example: Example, flips: list[tuple[int, int]], cut: int | None, chunk: int
) -> None:
    data = bytearray(b"".join(encode(example.message.frame())))
    for place, value in flips:
        data[place % len(data)] = value
    if cut is not None:
        del data[cut % len(data) :]
    reader = FrameReader(header_max=1 << 20, body_max=1 << 20)
    try:
        frames = [
            frame for i in range(0, len(data), chunk) for frame in reader.feed(bytes(data[i : i + chunk]))
        ]
    except PeerError:
        return
    for header, body in frames:
        check_read(example, header, body)


@pytest.mark.parametrize("opening", ["[", '{"x":', '["get",'])
def test_header_is_nested_as_deep_as_it_may_be_long__refused(opening: str) -> None:
    text = (opening * (1_000_000 // len(opening))).encode()
    data = len(text).to_bytes(4, "little") + bytes(4) + text
    with pytest.raises(PeerError, match="not JSON"):
        FrameReader().feed(data)


_DETAILS: Final[dict[str, dict[str, Any]]] = {
    "client": {"name": "c"},
    "parent": {"name": "p", "pid": 1},
    "worker": {
        "name": "a",
        "address": "tcp://127.0.0.1:1",
        "host": "h",
        "nthreads": 2,
        "memory_limit": 0,
        "resources": {"GPU": 1.0},
        "pid": 3,
        "clock": 1.7e9,
        "parent": -1,
    },
}


@_wrong(300)
@given(
    role=st.sampled_from(sorted(_DETAILS)),
    changes=st.lists(_changes, max_size=2),
    instead=st.none() | _values,
)
@with_example(role="worker", changes=[], instead=None)
def test_what_a_peer_says_about_itself_is_wrong__read_as_declared_or_refused(
    role: str, changes: list[Change], instead: Any
) -> None:
    header: list[Any] = ["details", copy.deepcopy(_DETAILS[role])]
    for change in sorted(changes, key=_is_nesting):
        changed(header, change)
    details = instead if instead is not None else header[1] if len(header) > 1 else None
    try:
        found = check_details(role, details)
    except PeerError as error:
        assert len(str(error)) < 600
        return
    assert found.keys() == _DETAILS[role].keys()
    for name, value in found.items():
        right = _DETAILS[role][name]
        assert type(value) is type(right) or {type(value), type(right)} == {int, float}, name
        if isinstance(value, int):
            assert {"nthreads": 1, "parent": -1}.get(name, 0) <= value <= INT_MAX or name == "clock"
