"""Very many different demands on one worker: an event costs what it touches, no more."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from shunter.state import Options
from tests.state.script import Script
from tests.state.work import lines_of, pure_only


def different_demands(n: int, low: float, high: float, *, prefix: str = "x") -> dict[str, Options]:
    """Options of n tasks, no two of which ask for the same."""
    step = (high - low) / n
    return {f"{prefix}-{i}": Options(resources={"MEM": low + step * i}) for i in range(n)}


def large_worker(n: int, *, threads: int = 4, supply: float = 100.0) -> Script:
    s = Script(validate=False)
    s.worker("a", threads, resources={"MEM": supply})
    demands = different_demands(n, 1.0, 30.0)
    s.submit({key: [] for key in demands}, options=demands)
    return s


@pure_only
@pytest.mark.parametrize("act", ["finish", "release", "submit"])
def test_many_different_demands_on_one_worker__an_event_costs_the_same(act: str) -> None:
    def work(n: int) -> int:
        s = large_worker(n)
        running = next(key for key in s.latest if s.status(key) == "processing")
        waiting = next(f"x-{i}" for i in reversed(range(n)) if s.status(f"x-{i}") == "queued")
        acts: dict[str, Callable[[], object]] = {
            "finish": lambda: s.finish(running),
            "release": lambda: s.release(waiting),
            "submit": lambda: s.submit({"y": []}, options=Options(resources={"MEM": 2.5})),
        }
        return lines_of(acts[act])

    assert work(2_000) < 1.5 * work(100)


@pytest.mark.parametrize("seed", range(3))
def test_many_different_demands__all_run_and_never_too_many_at_once(seed: int) -> None:
    s = Script()
    s.worker("a", 8, resources={"MEM": 40.0, "GPU": 2.0})
    rng = random.Random(seed)
    demands = {}
    for i in range(200):
        resources = {"MEM": round(rng.uniform(0.1, 40.0), 3)}
        if rng.random() < 0.3:
            resources["GPU"] = rng.choice([0.3, 0.5, 1.0, 2.0])
        demands[f"x-{i}"] = Options(resources=resources)
    s.submit({key: [] for key in demands}, options=demands)
    done = 0
    while done < 200:
        running = [key for key in demands if s.status(key) == "processing"]
        assert running, "nothing runs"
        for name, supply in (("MEM", 40.0), ("GPU", 2.0)):
            asked = [demands[key].resources or {} for key in running]
            assert sum(each.get(name, 0.0) for each in asked) <= supply + 1e-6
        s.finish(rng.choice(running))
        done += 1
    assert s.row("a")["used"] == {}


def test_many_different_demands__a_blocked_one_blocks_none_that_asks_for_much_less() -> None:
    s = Script()
    s.worker("a", 50, resources={"MEM": 10.0})
    large = different_demands(100, 8.0, 9.0, prefix="large")
    small = different_demands(100, 0.01, 0.02, prefix="small")
    s.submit({key: [] for key in large}, options=large)
    s.submit({key: [] for key in small}, options=small)
    assert len([key for key in large if s.status(key) == "processing"]) == 1
    assert len([key for key in small if s.status(key) == "processing"]) >= 49


def test_demand_whose_like_is_all_done__others_take_its_place() -> None:
    s = Script()
    s.worker("a", 1, resources={"MEM": 100.0})
    for turn in range(10):
        demands = different_demands(20, 1.0 + turn, 2.0 + turn, prefix=f"x-{turn}")
        s.submit({key: [] for key in demands}, options=demands)
        s.play()
        s.release(*demands)
    assert s.count("tasks") == 0
