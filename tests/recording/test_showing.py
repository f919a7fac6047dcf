"""Events and instructions in one line each."""

from __future__ import annotations

import pytest

from shunter.recording import shown
from shunter.state import (
    ClientDesiresKeys,
    ComputeTasks,
    Failure,
    Heartbeat,
    Key,
    Log,
    Options,
    Tick,
    WorkerRemoved,
)
from tests.state import any_events
from tests.state.any_events import for_all


def test_event__its_fields_in_order() -> None:
    assert shown(Heartbeat(3, 1000, 0, 12.5)) == "Heartbeat(worker=3, process=1000, spilled=0, cpu=12.5)"
    assert shown(Tick()) == "Tick()"


def test_instruction__whom_it_is_for_comes_first() -> None:
    compute = ComputeTasks(7)
    compute.keys.append("x")

    assert shown(compute).startswith("ComputeTasks(peer=7, keys=['x'], ")
    assert shown(Log("info", "code", {"a": 1})).startswith("Log(peer=-1, ")


def test_many_keys__the_first_and_how_many() -> None:
    keys: list[Key] = [f"x-{i}" for i in range(100)]

    assert shown(ClientDesiresKeys(1, keys)) == (
        "ClientDesiresKeys(client=1, keys=['x-0', 'x-1', 'x-2', 'x-3', 'x-4', 'x-5', … 100 in all])"
    )


def test_long_text__clipped() -> None:
    assert len(shown(WorkerRemoved(1, "x" * 10_000, False))) < 150


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Options(), "Options()"),
        (Options(retries=2, workers=["a"]), "Options(retries=2, workers=['a'])"),
        ([], "[]"),
        ((), "()"),
        ({}, "{}"),
        ({"GPU": 1.0}, "{'GPU': 1.0}"),
        (("t", 1), "('t', 1)"),
        (None, "None"),
    ],
)
def test_value_in_a_field__as_python_writes_it(value: object, text: str) -> None:
    assert shown(value) == text


def test_failure__no_address_shows() -> None:
    assert shown(Failure("exception", "x", "boom")).startswith(
        "Failure(kind='exception', key='x', text='boom', "
    )


@pytest.mark.parametrize("sort", list(any_events.EVENTS), ids=lambda sort: sort.__name__)
def test_any_event__one_line_without_addresses(sort: type) -> None:
    def check(event: object) -> None:
        text = shown(event)
        assert "\n" not in text and " at 0x" not in text

    for_all(any_events.EVENTS[sort], check, examples=10)
