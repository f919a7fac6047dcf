"""Every message: what is sent is what is read, and whatever else comes is refused with PeerError."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter import state
from shunter.errors import PeerError
from shunter.wire import messages as m
from shunter.wire.frames import FrameReader, decode_header, encode
from tests.wire.examples import EXAMPLES, READERS, Example

WRONG: list[Any] = [
    None,
    True,
    -2,
    2**63,
    1.5,
    float("nan"),
    float("inf"),
    "word",
    "\ud800",
    [],
    ["\ud800"],
    [[]],
    [None],
    [True],
    [-2],
    [2**63],
    [10**4000],
    [1.5],
    [float("nan")],
    ["word"],
    [["word"]],
    [[-1]],
    [[[]]],
    {},
    {"key": 1},
    [{"priority": "high"}],
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_message_is_sent__the_same_is_read(example: Example) -> None:
    [(header, body)] = FrameReader().feed(b"".join(encode(example.message.frame())))

    assert example.read(header, body) == example.message


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_message_has_more_columns_than_known__they_are_ignored(example: Example) -> None:
    assert example.read([*_travelled(example.header), "new", [1]], example.body) == example.message


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_message_is_cut_short__peer_error_names_operation_and_field(example: Example) -> None:
    header = _travelled(example.header)
    for length in range(1, len(header)):
        with pytest.raises(PeerError, match=f"message {header[0]!r}"):
            example.read(header[:length], example.body)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_body_is_longer_or_shorter_than_the_lengths_say__refused(example: Example) -> None:
    header = _travelled(example.header)
    if example.read in READERS[6:]:
        return  # The body of data connections is none of the message's business.
    with pytest.raises(PeerError, match=r"the body has|has a body"):
        example.read(header, example.body + b"!")
    if example.body:
        with pytest.raises(PeerError, match="the body has"):
            example.read(header, example.body[:-1])


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_any_field_is_replaced_by_something_wrong__refused_or_of_the_right_type(example: Example) -> None:
    """Each place in the header, at any depth, gets each wrong value in turn."""
    header = _travelled(example.header)
    right = _shape(example.message)
    for place in _places(header):
        for wrong in WRONG:
            changed = copy.deepcopy(header)
            _put(changed, place, wrong)
            try:
                message = example.read(changed, example.body)
            except PeerError as error:
                assert f"{header[0]}" in str(error)
                assert len(str(error)) < 600
            else:
                assert isinstance(message, m.Reply) or _fits(_shape(message), right), (place, wrong, message)
                encode(message.frame())  # It can be sent on: finite, not too deep.


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
@pytest.mark.parametrize("header", [["no-such-thing"], [None], [["x"]], [1], [], [{}]], ids=repr)
def test_unknown_operation__refused(read: Any, header: list[Any]) -> None:
    with pytest.raises(PeerError, match="unknown operation"):
        read(header, b"")


def test_message_of_another_direction__refused() -> None:
    with pytest.raises(PeerError, match=r"unknown operation 'compute'"):
        m.from_client(m.Compute([], [], [], [], [], [], [], [], []).frame()[0], b"")


@pytest.mark.parametrize(
    "value", [True, -1, 2**63, 10**5000, 1.0, "1", None, [1]], ids=lambda v: type(v).__name__
)
def test_integer_column_holds_something_else__refused_with_what_was_found(value: Any) -> None:
    with pytest.raises(PeerError, match=r"message 'take-back': 'run_id' must be an integer .*, found"):
        m.from_scheduler_to_worker(["take-back", [1, 2, value, 3]], b"")


@pytest.mark.parametrize(
    "value", [True, float("nan"), float("inf"), -float("inf"), -1e-9, 2**63, "1", None], ids=repr
)
def test_duration_is_not_a_finite_number_from_zero__refused(value: Any) -> None:
    header = m.WorkerFinished(["x"], [1], [1], [1.0], [value], [1], ["t"], [None]).frame()[0]

    with pytest.raises(PeerError, match="message 'finished': 'duration' must be a finite number of at least"):
        m.from_worker(header, b"")


@pytest.mark.parametrize("key", ["\ud800", "a\udc80", 1, None, ["x"], True], ids=ascii)
def test_key_is_not_encodable_text__refused(key: Any) -> None:
    with pytest.raises(PeerError, match="message 'desire': 'key' must be text"):
        m.from_client(["desire", ["x", key, "y"]], b"")


def test_halves_of_a_surrogate_pair_in_neighbouring_keys__refused() -> None:
    with pytest.raises(PeerError, match="lone surrogates"):
        m.from_client(["desire", ["a\ud83d", "\ude00b"]], b"")


def test_keys_outside_ascii__accepted() -> None:
    keys = ["ключ", "😀", "x\x00", ""]

    assert m.from_client(["desire", keys], b"") == m.Desire(keys)


def test_columns_of_different_lengths__refused() -> None:
    with pytest.raises(PeerError, match="message 'added': 'nbytes' has 1 entries, others have 2"):
        m.from_worker(["added", ["x", "y"], [1]], b"")


def test_priority_column_of_another_length__refused() -> None:
    header = m.Compute(["x"], [1], [0], [(0.0, 0.0, 1, 2)], [None], [None], [0], [1], [b""]).frame()[0]
    header[4] = [[0.0, 0.0], 0.0, 1, 2]

    with pytest.raises(PeerError, match=r"'priority\.user' has 2 entries, others have 1"):
        m.from_scheduler_to_worker(header, b"")


def test_uniform_columns__travel_as_one_number() -> None:
    n = 100
    message = m.Compute(
        ["x"] * n,
        [1] * n,
        [0] * n,
        [(0.0, 0.0, 1, i) for i in range(n)],
        [None] * n,
        [None] * n,
        [7] * n,
        [1] * n,
        [b""] * n,
    )
    header = message.frame()[0]

    assert header[4] == [0.0, 0.0, 1, tuple(range(n))]
    assert header[5:8] == [None, None, 7]


def test_option_index_is_out_of_range__refused() -> None:
    header = m.GraphPart(1, ["x"], [0], [None], [{}], [1], [b""]).frame()[0]

    with pytest.raises(PeerError, match="'option_of' must be below 1"):
        m.from_client(header, b"")


def test_failure_index_is_out_of_range__refused() -> None:
    with pytest.raises(PeerError, match="'failure index' must be below 0"):
        m.from_scheduler_to_client(["erred", ["x"], [0], [], []], b"")


@pytest.mark.parametrize("name", ["", "n" * 257], ids=["empty", "too long"])
@pytest.mark.parametrize("op", ["publish", "unpublish", "get-dataset"])
def test_name_of_a_dataset_is_empty_or_too_long__refused(op: str, name: str) -> None:
    with pytest.raises(PeerError, match=f"message '{op}': 'name' must be text of 1 to 256 characters"):
        m.from_client([op, 1, name, [], "", False], b"")


def test_data_of_a_dataset_is_too_long__refused() -> None:
    longest = m.Publish(1, "n" * 256, [], "d" * m.DATASET_DATA_MAX, False)
    assert m.from_client(longest.frame()[0], b"") == longest
    with pytest.raises(PeerError, match="message 'publish': 'data' must be at most 262144 characters"):
        m.from_client(longest._replace(data=longest.data + "d").frame()[0], b"")


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), float("inf"), None, True], ids=repr)
def test_restart_with_a_time_limit_that_is_none__refused(timeout: Any) -> None:
    with pytest.raises(PeerError, match="message 'restart': 'timeout' must be a finite number of at least 0"):
        m.from_client(["restart", 1, timeout], b"")


def test_unknown_option__dropped() -> None:
    header = m.GraphPart(1, ["x"], [0], [None], [{"retries": 2, "new": 1}], [0], [b""]).frame()[0]  # type: ignore[typeddict-unknown-key]

    message = m.from_client(header, b"")

    assert isinstance(message, m.GraphPart)
    assert message.options == [{"retries": 2}]


def test_every_task_option__is_a_keyword_of_the_state() -> None:
    options = state.Options(**m.TaskOptions(retries=2, annotations={"a": 1}))

    assert options.retries == 2
    fields = {
        name for name in dir(state.Options) if not name.startswith("_")
    }  # A compiled class has no slots.
    assert set(m.TaskOptions.__annotations__) == fields


def test_words_of_the_wire__are_those_of_the_state() -> None:
    assert get_args(m.FailureKind) == get_args(state.FailureKind)
    assert get_args(m.WorkerStatus) == get_args(state.WorkerStatus)


@pytest.mark.parametrize("value", [[1e999], {"a": [float("nan")]}, [10**30]], ids=repr)
def test_free_form_value_has_a_number_that_json_cannot_say__refused(value: Any) -> None:
    with pytest.raises(PeerError, match="message 'reply': 'value' must be made of finite numbers"):
        m.from_scheduler_to_client(["reply", 1, True, value], b"")


def test_free_form_value_is_nested_too_deep__refused() -> None:
    value: Any = 1
    for _ in range(500):
        value = [value]

    with pytest.raises(PeerError, match="nested at most 64 levels"):
        m.from_scheduler_to_client(["reply", 1, True, value], b"")


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-2, max_value=3)
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "x", "exception", "running", "\ud800"])
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(
    example=st.sampled_from(EXAMPLES),
    fields=st.lists(_json, max_size=9),
    keep=st.integers(0, 9),
    body=st.binary(max_size=8),
)
def test_arbitrary_header__never_raises_anything_but_peer_error(
    example: Example, fields: list[Any], keep: int, body: bytes
) -> None:
    header = _travelled(example.header)
    mixed = [header[0], *header[1 : 1 + keep], *fields]
    try:
        message = example.read(mixed, body)
    except PeerError:
        return
    encode(message.frame())


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=40) | _json.map(lambda value: json.dumps(value).encode()))
def test_arbitrary_bytes_as_header__never_raise_anything_but_peer_error(data: bytes) -> None:
    try:
        header = decode_header(data)
    except PeerError:
        return
    for read in READERS:
        try:
            read(header, b"")
        except PeerError:
            pass


def _travelled(header: list[Any]) -> list[Any]:
    travelled: list[Any] = json.loads(json.dumps(header))
    return travelled


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where anything stands in a header: its fields (not the operation), their entries, and so on."""
    inner = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for index, each in inner:
        if path or index != 0:
            yield (*path, index)
            yield from _places(each, (*path, index))


def _put(header: Any, place: tuple[Any, ...], value: Any) -> None:
    for index in place[:-1]:
        header = header[index]
    header[place[-1]] = value


def _shape(value: Any) -> Any:
    """The types that a message consists of: a set for what a list holds, by field for records."""
    if isinstance(value, tuple):
        return (type(value), *map(_shape, value))
    if isinstance(value, list):
        return [_shape(each) for each in value]
    return type(value)


def _fits(found: Any, right: Any) -> bool:
    """Is the message of the shape of the example, as far as the example shows it?"""
    if type(None) in (found, right) or dict in (found, right):
        return True  # A field that may be absent, or free-form.
    if isinstance(right, tuple):
        return isinstance(found, tuple) and len(found) == len(right) and all(map(_fits, found, right))
    if isinstance(right, list):
        return isinstance(found, list) and all(not right or any(_fits(f, r) for r in right) for f in found)
    return bool(found is right) or [found, right] in ([int, float], [float, int])
