"""What users have reported of work that is moved (C) and placed (D), told to the state: each test names the report."""

from __future__ import annotations

import pytest

from shunter.state import Options
from tests.state.script import Script, keys_of, roots

MB = 1_000_000

# ------------------------------------------------------------------------------- C: moving work


def test_c1_many_small_tasks_with_one_large_input__are_spread_evenly() -> None:
    s = Script(workers=dict.fromkeys("abef", 1), graph={"x": []})
    s.finish("x", nbytes=MB, seconds=0.1)
    s.submit({f"y-{i}": ["x"] for i in range(400)})
    ran = s.play(seconds=0.1)
    assert sorted(ran) == ["a", "b", "e", "f"]
    assert all(60 <= len(keys) <= 140 for keys in ran.values())


def test_c2_many_short_tasks_and_new_workers__the_load_spreads() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.finish("x", seconds=0.001)
    s.submit({f"y-{i}": ["x"] for i in range(300)})
    s.finish("y-0", seconds=0.001)
    for name in "befgh":
        s.worker(name)
    ran = s.play(seconds=0.001)
    assert len(ran) == 6
    assert len(ran["a"]) < 150


def test_c4_thirty_tasks_and_twenty_new_workers__one_for_each_idle_worker() -> None:
    first = {f"a{i}": 1 for i in range(10)}
    s = Script(workers=first, graph=roots("x", 30))
    for i in range(20):
        s.worker(f"b{i}")
    for _ in range(20):
        for name in first:
            s.answer(name)
        s.wait(0.05)
    ran = s.play(rounds=1)
    assert sum(len(keys) for keys in ran.values()) == 30


def test_c7_thief_with_less_than_the_victim_has_but_what_the_task_needs__may_take_it() -> None:
    needs = {"CPU": 1.0, "MEM": 4.0}
    s = Script()
    s.worker("a", 1, resources={**needs, "GPU": 1.0})
    s.submit(roots("x", 8), options=Options(resources=needs))
    s.worker("b", 1, resources=needs)
    assert len(s.play(seconds=1.0)["b"]) >= 2


def test_c8_paused_worker__takes_nothing_from_others() -> None:
    s = Script(workers={"a": 1, "b": 1, "e": 1})
    s.pause("b")
    s.submit(roots("x", 30))
    assert sorted(s.play(seconds=1.0)) == ["a", "e"]


def test_c10_no_progress__moves_come_to_an_end() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph=roots("x", 20))
    s.sent()
    s.asked_back()
    for _ in range(100):
        s.wait(0.1)
    assert s.sent() == []
    assert s.asked_back() == []


def test_c13_first_duration_was_wrong__the_load_spreads_all_the_same() -> None:
    s = Script(workers={"a": 1}, graph={"f-first": []})
    s.finish("f-first", seconds=1e-9)
    s.submit(roots("f", 20))
    s.worker("b")
    ran = s.play(seconds=0.1)
    assert len(ran["b"]) >= 7


# ------------------------------------------------------------------------------- D: placement


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_d1_loads_and_reduces__few_loads_are_ever_in_memory(threads: int) -> None:
    n = 60
    graph = {**roots("load", n), **{f"reduce-{i}": [f"load-{i}"] for i in range(n)}}
    s = Script(workers={"a": threads}, graph=graph, want=keys_of("reduce", n))
    most = 0
    while s.count("memory") < n or s.count("released") < n:
        s.play(rounds=1, nbytes=10 * MB)
        most = max(most, sum(status == "memory" for status in s.statuses(*keys_of("load", n))))
    assert most <= 2 * threads + 1


@pytest.mark.parametrize("threads", [2, 4])
def test_d2_a_few_more_roots_than_threads__are_bound_late_as_well(threads: int) -> None:
    for n in range(threads + 1, 2 * threads + 1):
        s = Script(workers={"a": threads}, graph=roots("x", n))
        assert s.count("processing") <= threads + 1


def test_d2_seven_tasks_on_seven_idle_workers__one_each() -> None:
    workers = {f"w{i}": 1 for i in range(7)}
    s = Script(workers=workers, graph=roots("x", 7))
    assert sorted(worker for _, worker in s.sent()) == sorted(workers)


def test_d4_widely_shared_input__does_not_attract_everything() -> None:
    s = Script(workers=dict.fromkeys("abef", 1))
    s.submit({"everywhere": []})
    s.finish("everywhere", nbytes=10)
    s.submit(roots("root", 16))
    s.play(nbytes=10 * MB)
    s.submit({"x-first": ["everywhere"]})
    s.finish("x-first", seconds=0.01)
    s.submit({f"x-{i}": [f"root-{i}", "everywhere"] for i in range(16)})
    ran = s.play(seconds=0.01)
    at = {key: name for name, keys in ran.items() for key in keys}
    beside = [i for i in range(16) if at[f"x-{i}"] == s.holders(f"root-{i}")[0]]
    assert len(beside) == 16


def test_d5_worker_paused_for_a_moment__gets_its_share_afterwards() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    s.finish("x")
    s.holds("a", "x")
    s.holds("b", "x")
    s.pause("a")
    s.submit({f"y-{i}": ["x"] for i in range(200)})
    s.resume("a")
    ran = s.play(seconds=0.1)
    assert len(ran["a"]) >= 70


def test_d7_names_of_keys__do_not_change_placement() -> None:
    plain = Script(workers={"a": 1, "b": 2}, graph=roots("f", 20))
    names = [f"{i:02}unique" for i in range(20)]
    other = Script(workers={"a": 1, "b": 2})
    graph = other.begin()
    other.part({name: [] for name in names}, graph, kind="f")
    other.commit(graph)
    renamed = {f"f-{i}": name for i, name in enumerate(names)}
    assert [(renamed[key], worker) for key, worker in plain.sent()] == other.sent()
