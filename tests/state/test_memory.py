"""Nothing is left of what is over: no cycles for the collector, no entries in tables, no growth."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator

import pytest

from shunter.state import Options
from tests.state.random_cluster import Story
from tests.state.script import Script, chain, keys_of, roots


@pytest.fixture
def saved_garbage() -> Iterator[list[object]]:
    """What only the collector would have freed is kept in this list; call `gc.collect` to fill it."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    flags = gc.get_debug()
    gc.garbage.clear()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield gc.garbage
    finally:
        gc.set_debug(flags)
        gc.garbage.clear()
        if was_enabled:
            gc.enable()
        gc.collect()


def is_of_the_state(thing: object) -> bool:
    module = type(thing).__module__
    return isinstance(module, str) and module.startswith(
        "shunter.state"
    )  # some classes of others' say it otherwise


def records_in(things: list[object]) -> Counter[str]:
    return Counter(type(thing).__name__ for thing in things if is_of_the_state(thing))


def whole_life() -> Script:
    """Graphs and workers of every sort come and go; at the end there is nothing but a state."""
    s = Script(workers={"a": 1, "b": 2}, log_length=50, slice=20)
    s.worker("g", 1, resources={"GPU": 1.0})
    s.submit({**chain(30), **{f"y-{i}": [f"x-{i}", "x-0"] for i in range(30)}})
    s.submit(roots("r", 40), options=Options(resources={"GPU": 0.5}))
    s.submit({"bad": [], "sad": ["bad"]}, options=Options(retries=1, retry_delay=0.5, retry_elsewhere=True))
    s.scatter("d", to=["a", "b"])
    s.submit({"z": ["d", "x-3"]})
    s.play(rounds=3)
    s.fail("bad")
    s.wait(1.0)
    s.fail("bad")
    s.retry("sad")
    s.kill("a")
    s.worker("a")
    s.pause("b")
    s.play(rounds=5)
    s.link_breaks("g")
    s.worker("g", 1, resources={"GPU": 1.0})
    s.resume("b")
    s.play()
    s.submit({"loop": ["loop"]})
    s.client("d")
    s.submit(roots("left", 200), by="d")
    s.client_leaves("d")
    s.cancel("x-10")
    s.client_leaves("c")
    s.wait(100.0)
    for name in ("a", "b", "g"):
        s.leaves(name)
    return s


def test_whole_life_of_graphs_and_workers__leaves_no_cycle_of_records(saved_garbage: list[object]) -> None:
    s = whole_life()
    gc.collect()
    assert records_in(saved_garbage) == Counter()
    Script.told.clear()
    del s
    gc.collect()
    assert records_in(saved_garbage) == Counter()


@pytest.mark.parametrize("seed", range(5))
def test_random_cluster__leaves_no_cycle_of_records(saved_garbage: list[object], seed: int) -> None:
    story = Story(seed)
    story.run(400)
    story.finish()
    gc.collect()
    assert records_in(saved_garbage) == Counter()


def test_state_with_everything_going_on_dropped_at_once__says_nothing() -> None:
    s = Script(workers={"a": 1}, graph={**chain(50), **roots("r", 50)})
    s.play(rounds=5)
    Script.told.clear()
    del s
    gc.collect()


def test_whole_life__tables_are_empty() -> None:
    s = whole_life()
    counts = s.view.counts()
    assert {name: n for name, n in counts.items() if n and name != "dropped_events"} == {}
    assert s.view.workers() == []
    assert s.state.next_deadline == float("inf")


@pytest.fixture(autouse=True)
def _others() -> Iterator[None]:
    """Records of other tests that are still alive are not this one's."""
    gc.collect()
    OTHERS.update(id(thing) for thing in gc.get_objects() if is_of_the_state(thing))
    yield
    OTHERS.clear()


#: Ids of records that were there before the test.
OTHERS: set[int] = set()


def live_records() -> Counter[str]:
    gc.collect()
    return records_in([thing for thing in gc.get_objects() if id(thing) not in OTHERS])


def test_ten_repeats_of_the_same_work__the_number_of_records_does_not_grow() -> None:
    s = Script(workers={"a": 2, "b": 1}, log_length=50)
    seen: list[Counter[str]] = []
    for _ in range(10):
        graph = {**chain(20), **roots("r", 60), **{f"y-{i}": [f"r-{i}", f"r-{i + 1}"] for i in range(50)}}
        s.submit(graph)
        s.play(rounds=4)
        s.kill("a", started=[])
        s.worker("a", 2)
        s.play()
        s.release(*graph)
        s.out.clear()
        s.wait(5.0)
        seen.append(live_records())
    assert s.count("tasks") == 0
    assert "TaskState" not in seen[-1]
    assert seen[2]["StepStamp"] <= 101
    for counts in seen[3:]:
        assert {n: c for n, c in counts.items() if n != "StepStamp"} == {
            n: c for n, c in seen[2].items() if n != "StepStamp"
        }


def test_many_workers_that_came_and_went__none_is_kept() -> None:
    s = Script(log_length=50)
    for i in range(50):
        s.worker(f"w{i}", resources={f"R{i}": 1.0}, host=f"h{i}")
        s.submit({"x": []})
        s.link_breaks(f"w{i}")
        s.release("x")
    s.wait(10.0)
    s.out.clear()
    assert live_records()["WorkerState"] == 0


def test_kinds_that_nobody_uses_any_more__are_bounded() -> None:
    s = Script(workers={"a": 1})
    for i in range(1500):
        s.submit({"x": []}, kind=f"kind {i}")
        s.release("x")
    assert len(s.view.kinds()) <= 1001


def test_clients_that_came_and_went__none_is_kept() -> None:
    s = Script(workers={"a": 1})
    for i in range(50):
        s.client(f"d{i}")
        s.submit({"x": [], **roots(f"y{i}", 20)}, by=f"d{i}", want=["x", *keys_of(f"y{i}", 3)])
        s.client_leaves(f"d{i}")
    s.out.clear()
    assert live_records()["ClientState"] == 2  # the test's own, and the one that keeps detached keys
    assert s.count("tasks") == 0
