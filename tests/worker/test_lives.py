"""A key that is forgotten and submitted again begins another life: what is left here of a former one is void."""

from __future__ import annotations

from collections.abc import Sequence

from shunter.worker.events import DataPut
from shunter.worker.instructions import Drop, Fetch, Instruction, ReportAdded
from tests.worker.script import Script, compute, executed, fetches, finished


def lives_added(out: Sequence[Instruction]) -> list[tuple[str, int]]:
    return [pair for each in out if isinstance(each, ReportAdded) for pair in zip(each.keys, each.lives)]


def with_x_of_life_1() -> Script:
    """A worker that fetched x in its first life, for a task that was given up after."""
    s = Script()
    (fetch,) = fetches(s.step(compute("y", 1, [("x", 8, [5], 1)])))
    assert lives_added(s.got(fetch)) == [("x", 1)]
    s.finish(1)
    return s


def test_input_of_a_former_life_is_here__the_new_one_is_fetched() -> None:
    s = with_x_of_life_1()
    out = s.step(compute("z", 2, [("x", 8, [6], 2)]))
    assert executed(out) == []
    (fetch,) = fetches(out)
    assert fetch.peer == 6
    out = s.got(fetch)
    assert lives_added(out) == [("x", 2)]
    assert executed(out) == ["z"]


def test_input_of_the_same_life_is_here__nothing_is_fetched() -> None:
    s = with_x_of_life_1()
    out = s.step(compute("z", 2, [("x", 8, [6], 1)]))
    assert fetches(out) == []
    assert executed(out) == ["z"]


def test_key_to_compute_is_here_from_a_former_life__it_is_computed() -> None:
    s = with_x_of_life_1()
    out = s.step(compute("x", 2, life=2))
    assert executed(out) == ["x"]
    assert finished(out) == []
    assert [each.keys for each in out if isinstance(each, Drop)] == [["x"]]


def test_fetch_of_a_former_life_is_under_way__what_it_brings_is_not_used() -> None:
    s = Script()
    (old,) = fetches(s.step(compute("y", 1, [("x", 8, [5], 1)])))
    s.step(compute("z", 2, [("x", 8, [6], 2)]))
    s.free("y")
    out = s.got(old)
    assert executed(out) == []
    assert lives_added(out) == []
    (new,) = [each for each in s.out if isinstance(each, Fetch) and each.fetch != old.fetch]
    assert new.peer == 6
    assert executed(s.got(new)) == ["z"]


def test_value_that_a_client_has_put_here__takes_the_life_that_the_scheduler_names() -> None:
    s = Script()
    s.step(DataPut(["x"], [8], ["value"]))
    out = s.step(compute("y", 1, [("x", 8, [5], 3)]))
    assert fetches(out) == []
    assert executed(out) == ["y"]
    assert fetches(s.step(compute("z", 2, [("x", 8, [5], 4)]))) != []
