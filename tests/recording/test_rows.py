"""Events become rows, and rows events: all of them, with all that they say but the users' data."""

from __future__ import annotations

import ast
import inspect
import json
from math import inf, nan
from typing import Any

import pytest
from hypothesis import strategies as st

from shunter import state
from shunter.recording import Malformed, from_row, names_of, to_row
from shunter.recording.rows import EVENTS, FAILURE, OPTIONS
from shunter.recording.sorts import COLUMN_MAX, placeholder, size_of
from shunter.state import (
    ClientDesiresKeys,
    DatasetPublished,
    Event,
    Failure,
    GraphPart,
    Heartbeat,
    Options,
    TaskFailed,
    TasksFinished,
    Tick,
    WorkerAdded,
)
from tests.architecture.sources import modules
from tests.state import any_events
from tests.state.any_events import fields_of, for_all

#: Fields that come back as their sizes.
OPAQUE = {
    (GraphPart, "specs"),
    (TasksFinished, "data"),
    (DatasetPublished, "data"),
    (Failure, "data"),
}


def through_text(event: Event) -> Event:
    """What a recording does to an event."""
    return from_row(json.loads(json.dumps(to_row(event))))


def plain(value: Any, *, masked: bool) -> Any:
    """Plain data that says all of an event; ``masked``: opaque values as a recording gives them back."""
    if isinstance(value, (Event, Options, Failure)):
        fields: dict[str, Any] = {}
        for name in fields_of(type(value)):
            field = getattr(value, name)
            if masked and (type(value), name) in OPAQUE:
                fields[name] = [hidden(e) for e in field] if isinstance(field, list) else hidden(field)
            elif name == "annotations":
                fields[name] = None if field is None else len(field)
            else:
                fields[name] = plain(field, masked=masked)
        return (type(value).__name__, fields)
    if isinstance(value, (list, tuple)):
        return type(value)(plain(each, masked=masked) for each in value)
    return value


def hidden(value: object) -> str | None:
    return None if value is None else placeholder(size_of(value))


# ---------------------------------------------------------------------------------------------- the table


def test_every_event_there_is__is_in_the_table() -> None:
    found = {each for each in vars(state).values() if isinstance(each, type) and issubclass(each, Event)}

    assert set(EVENTS) == found - {Event}


@pytest.mark.parametrize(
    ("sort", "fields"),
    [*EVENTS.items(), (Options, OPTIONS), (Failure, FAILURE)],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_fields_of_a_record__are_those_that_its_constructor_takes_and_its_slots(
    sort: type, fields: dict[str, object]
) -> None:
    assert sorted(fields) == sorted(fields_of(sort))
    if fields:  # Without any, a class has the signature of `object`.
        assert list(inspect.signature(sort).parameters) == list(fields)
    assert slots_in_source(sort.__name__) == set(fields)


def slots_in_source(name: str) -> set[str]:
    classes = {
        node.name: node
        for node in modules()["shunter.state.events"].tree.body
        if isinstance(node, ast.ClassDef)
    }
    found: set[str] = set()
    queue = [name]
    while queue:
        node = classes[queue.pop()]
        queue += [base.id for base in node.bases if isinstance(base, ast.Name)]
        for each in node.body:
            if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "__slots__":
                value = ast.literal_eval(each.value)
                found |= {value} if isinstance(value, str) else set(value)
    return found


def test_names__are_what_stands_in_a_row() -> None:
    names = names_of()

    assert names["Heartbeat"] == ["worker", "process", "spilled", "cpu"]
    assert to_row(Heartbeat(3, 100, 0, 12.5)) == ["Heartbeat", 3, 100, 0, 12.5]
    assert names["Tick"] == [] and to_row(Tick()) == ["Tick"]
    assert {"Options", "Failure"} <= set(names)


# ---------------------------------------------------------------------------------------------- there and back


@pytest.mark.parametrize("sort", list(any_events.EVENTS), ids=lambda sort: sort.__name__)
def test_any_event__comes_back_as_it_was(sort: type[Event]) -> None:
    def check(event: Event) -> None:
        before = repr(plain(event, masked=True))  # repr: NaN is not equal to itself.
        assert repr(plain(through_text(event), masked=False)) == before

    for_all(any_events.EVENTS[sort], check, examples=30)


@pytest.mark.parametrize("number", [nan, inf, -inf, -0.0, 5e-324, 1e308, 0.1])
def test_odd_floats__survive(number: float) -> None:
    event = through_text(Heartbeat(1, 2, 3, number))

    assert isinstance(event, Heartbeat)
    assert repr(event.cpu) == repr(number)


@pytest.mark.parametrize("key", ["x", "\ud800 \0 \n", "ключ", 7, -1.5, None, ("t", 1, ("u", "x")), ()])
def test_keys_of_all_sorts__survive(key: state.Key) -> None:
    event = through_text(ClientDesiresKeys(1, [key]))

    assert isinstance(event, ClientDesiresKeys)
    assert event.keys == [key]


def part(options: list[Options], kinds: list[str]) -> GraphPart:
    keys: list[state.Key] = [f"x-{i}" for i in range(len(options))]
    none: list[Any] = [None] * len(keys)
    return GraphPart(1, 1, keys, [b"spec"] * len(keys), kinds, none, options, {})


def test_options_of_a_part__are_written_once_and_shared_again() -> None:
    fast, slow = Options(priority=1.0), Options(retries=2)
    event = part([fast, slow, fast, fast], ["f", "g", "f", "f"])

    again = through_text(event)

    assert isinstance(again, GraphPart)
    assert again.options[0] is again.options[2] is again.options[3] is not again.options[1]
    assert [each.retries for each in again.options] == [0, 2, 0, 0]
    assert again.kinds == ["f", "g", "f", "f"]
    assert json.dumps(to_row(event)).count("true") == 2  # `stealable` of each


def test_column_of_one_value__costs_next_to_nothing() -> None:
    size = len(json.dumps(to_row(part([Options()] * 1000, ["0" * 64] * 1000))))

    assert size < 1000 * len('"x-999", 4, null, ') + 500


def test_what_users_pass_and_get__is_not_in_a_row() -> None:
    secret = "s3cret"
    opaque = secret.encode()
    events = [
        GraphPart(
            1,
            1,
            ["x"],
            [(opaque, opaque)],
            ["f"],
            [None],
            [Options(annotations={secret: secret})],
            {"f": "inc"},
        ),
        TasksFinished(1, ["x"], [1], [8], [0.0], [0.0], [1], ["int"], [memoryview(opaque)]),
        TaskFailed(1, "x", 1, Failure("exception", "x", "boom", data=bytearray(opaque)), 0.0, 0.0, 1),
        DatasetPublished(1, 1, "name", ["x"], secret, False),
    ]

    text = json.dumps([to_row(event) for event in events])

    assert secret not in text
    assert size_of((opaque, opaque)) == 12
    assert json.loads(text)[0][4] == [12]


# ---------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (None, "expected a list, not None"),
        ([], "there is no event None"),
        (["Tock"], "there is no event 'Tock'"),
        ([["Tick"]], "there is no event"),
        (["Tick", 1], "Tick: expected 0 fields, not 1"),
        (["Heartbeat", 1, 2, 3], "Heartbeat: expected 4 fields, not 3"),
        (["Heartbeat", True, 2, 3, 4], "Heartbeat: worker: expected a whole number, not True"),
        (["Heartbeat", 1, 2, 3, "4"], "Heartbeat: cpu: expected a number, not '4'"),
        (["Heartbeat", 1, 2, 3, 10**400], "Heartbeat: cpu: expected a number that is not beyond all bounds"),
        (["WorkerStatusChanged", 1, "asleep"], "status: expected one of running, paused"),
        (["WorkerStatusChanged", 1, []], "status: expected one of running, paused"),
        (["ClientDesiresKeys", 1, [{}]], "keys: expected a key, not {}"),
        (["ClientDesiresKeys", 1, "x"], "keys: expected a list, not 'x'"),
        (["KeysAdded", 1, ["x"], [1, 2], [1]], "KeysAdded: nbytes: expected 1 entries"),
        (["WorkerDied", 1, "x" * 1000, 1], "WorkerDied: started: expected a list, not 1"),
    ],
)
def test_malformed_row__refused_with_the_name_of_the_field(row: object, complaint: str) -> None:
    with pytest.raises(Malformed) as caught:
        from_row(row)

    assert complaint in str(caught.value)


@pytest.mark.parametrize("indices", [2, -1, COLUMN_MAX + 1, [1], [-1], [True], None, "", [[]]])
def test_malformed_column_of_shared_values__refused(indices: object) -> None:
    with pytest.raises(Malformed):
        from_row(["TasksFinished", 1, ["x"], [1], [1], [0], [0], [1], [["int"], indices], [None]])


def test_any_row_with_a_part_replaced__is_an_event_or_malformed() -> None:
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
        max_leaves=5,
    )

    def check(drawn: tuple[Event, int, Any]) -> None:
        event, where, value = drawn
        row = json.loads(json.dumps(to_row(event)))
        places = list(places_in(row))
        holder, index = places[where % len(places)]
        holder[index] = value
        try:
            again = from_row(row)
        except Malformed:
            return
        assert repr(plain(through_text(again), masked=False)) == repr(plain(again, masked=True))

    sorts = [each for sort, each in any_events.EVENTS.items() if sort is not Tick]
    for_all(st.tuples(st.one_of(sorts), st.integers(0, 1000), values), check, examples=300)


def places_in(row: list[Any]) -> Any:
    """Everything in a row that can be replaced: the list or dict that it is in, and where."""
    for index, value in enumerate(row):
        yield row, index
        if isinstance(value, list):
            yield from places_in(value)
        elif isinstance(value, dict):
            yield from ((value, name) for name in value)


def test_event_with_default__may_leave_nothing_out() -> None:
    """`has_parent` has a default in the constructor; a row says it all the same."""
    assert to_row(WorkerAdded(1, "tcp://a:1", "a", "h", 1, 0, {}))[-1] is False
