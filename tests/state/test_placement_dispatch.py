"""Where tasks run: priorities, homes, holders, and idle threads that take what is not sent."""

from __future__ import annotations

import pytest

from shunter.state import Options
from tests.state.script import Script, keys_of, roots

MB = 1_000_000

# ---------------------------------------------------------------------------------------------- priorities


def test_equal_tasks__run_first_come_first_served() -> None:
    s = Script(workers={"a": 1})
    for key in ("x", "y", "z", "v", "w"):
        s.submit({key: []}, kind="f")
    assert s.play() == {"a": ["x", "y", "z", "v", "w"]}


def test_higher_user_priority__runs_sooner() -> None:
    s = Script(workers={"a": 1})
    s.submit(roots("x", 4))
    s.submit({"urgent": []}, options=Options(priority=1.0))
    s.submit({"later": []}, options=Options(priority=-1.0))
    s.submit({"y": []})
    assert s.play() == {"a": ["x-0", "x-1", "urgent", "x-2", "x-3", "y", "later"]}


def test_user_priority__goes_before_the_order_of_the_graph() -> None:
    options = {"x-4": Options(priority=2.0), "x-3": Options(priority=1.0)}
    s = Script(workers={"a": 1}, graph={**roots("x", 5)}, options=options)
    assert s.play() == {"a": ["x-4", "x-3", "x-0", "x-1", "x-2"]}


def test_earlier_graph__runs_before_a_later_one() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 4), clients=("c", "d"))
    s.submit(roots("y", 4), by="d")
    assert s.play() == {"a": keys_of("x", 4) + keys_of("y", 4)}


def test_children_of_a_running_task__run_in_its_generation() -> None:
    s = Script(workers={"a": 1}, graph={"parent": []}, clients=("c", "d"))
    s.submit(roots("x", 6), by="d")
    s.submit({"child": []}, parent="parent")
    ran = s.play()["a"]
    assert ran.index("child") < ran.index("x-2")


def test_children_of_a_task_that_is_gone__are_a_generation_of_their_own() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.submit({"child": []}, parent="nobody")
    assert s.play() == {"a": ["x", "child"]}


def test_graph_in_order__runs_in_the_order_given() -> None:
    s = Script(workers={"a": 1})
    graph = {"x-3": [], "x-1": [], "x-2": [], "y": ["x-3"]}
    s.submit(graph, in_order=True)
    assert s.play() == {"a": ["x-3", "x-1", "y", "x-2"]}


def test_graph_that_says_it_is_in_order_and_is_not__is_ordered() -> None:
    s = Script(workers={"a": 1})
    s.submit({"y": ["x"], "x": []}, in_order=True)
    assert s.play() == {"a": ["x", "y"]}


def test_priority_set_later__moves_a_queued_task() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 5))
    s.set_priority(1.0, "x-4", "nobody")
    assert s.play() == {"a": ["x-0", "x-1", "x-4", "x-2", "x-3"]}


def test_priority_set_while_waiting__counts_once_it_can_run() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]})
    s.submit(roots("v", 4))
    s.set_priority(-5.0, "y")
    assert s.play()["a"][-1] == "y"


def test_downstream_work__goes_before_roots_of_the_same_priority() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 10))
    s.submit({"y": ["x-0"]})
    ran = s.play()["a"]
    assert ran.index("y") < 4


# ---------------------------------------------------------------------------------------------- homes


def test_many_roots__each_worker_has_a_block_of_neighbours() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph=roots("x", 20))
    ran = s.play()
    assert ran == {"a": keys_of("x", 20)[:10], "b": keys_of("x", 20)[10:]}


def test_home_blocks__are_as_large_as_the_threads() -> None:
    s = Script(workers={"a": 1, "b": 3}, graph=roots("x", 40))
    assert (s.row("a")["queued"], s.row("b")["queued"]) == (10 - 2, 30 - 4)


def test_few_roots__go_to_idle_threads_one_each() -> None:
    workers = dict.fromkeys("abefghi", 1)
    s = Script(workers=workers, graph=roots("x", 7))
    assert sorted(worker for _, worker in s.sent()) == sorted(workers)


def test_few_roots_on_wide_workers__fill_threads_before_windows() -> None:
    s = Script(workers={"a": 2, "b": 2}, graph=roots("x", 5))
    sent = dict(s.sent())
    assert sorted(sent[key] for key in keys_of("x", 4)) == ["a", "a", "b", "b"]


def test_roots_of_later_submissions__rotate() -> None:
    workers = dict.fromkeys("abef", 1)
    s = Script(workers=workers)
    for key in keys_of("x", 4):
        s.submit({key: []})
    assert sorted(worker for _, worker in s.sent()) == sorted(workers)


# ---------------------------------------------------------------------------------------------- holders


def test_task_with_an_input__runs_where_the_input_is() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": [], "y": ["x"]})
    s.finish("x", nbytes=MB)
    assert s.where("y") == s.holders("x")[0]


def test_task_with_two_inputs__runs_where_most_bytes_are() -> None:
    for heavy in ("x", "y"):
        s = Script(workers={"a": 1, "b": 1}, graph={"x": [], "y": [], "z": ["x", "y"]})
        assert s.where("x") != s.where("y")
        s.finish("x", nbytes=100 * MB if heavy == "x" else MB)
        s.finish("y", nbytes=100 * MB if heavy == "y" else MB)
        assert s.where("z") == s.holders(heavy)[0]


def test_holder_that_is_busy_for_long__an_idle_thread_takes_its_unsent_work() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    s.finish("x", nbytes=8, seconds=0.001)
    s.submit({f"y-{i}": ["x"] for i in range(20)})
    ran = s.play(seconds=1.0)
    assert min(len(keys) for keys in ran.values()) >= 8


def test_input_that_takes_long_to_bring__stays_where_it_is() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": [], "y-0": ["x"]}, clients=("c", "d"))
    s.finish("x", nbytes=1000 * MB)
    s.finish("y-0", seconds=0.01)
    s.submit({f"y-{i}": ["x"] for i in range(1, 6)})
    ran = s.play(seconds=0.01)
    assert list(ran) == s.holders("x")


def test_new_worker__takes_unsent_work() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.finish("x")
    s.submit({f"y-{i}": ["x"] for i in range(20)})
    s.sent()
    s.worker("b")
    assert "b" in {worker for _, worker in s.sent()}


def test_task_that_may_not_be_moved__stays() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    s.finish("x")
    s.submit({f"y-{i}": ["x"] for i in range(10)}, options=Options(stealable=False))
    assert list(s.play(seconds=1.0)) == s.holders("x")


def test_idle_thread_whose_own_work_is_blocked__takes_work_from_others() -> None:
    s = Script(workers={"a": 1})
    s.worker("b", 2, resources={"GPU": 1.0})
    s.submit({"x": []}, options=Options(workers=["a"]))
    s.finish("x", seconds=1.0)
    s.submit({f"gpu-{i}": [] for i in range(200)}, options=Options(resources={"GPU": 1.0}))
    s.submit({f"y-{i}": ["x"] for i in range(20)})
    ran = s.play(seconds=1.0, rounds=30)
    assert [key for key in ran["b"] if key.startswith("y")] != []


def test_idle_threads_and_work_that_cannot_be_moved__are_looked_at_again() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    s.finish("x", nbytes=100 * MB)
    s.submit({f"y-{i}": ["x"] for i in range(4)})
    assert s.state.next_deadline < float("inf")
    s.play()
    s.wait(1.0)
    assert s.state.next_deadline == float("inf")


# ---------------------------------------------------------------------------------------------- late binding


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_only_the_window__is_sent(threads: int) -> None:
    s = Script(workers={"a": threads}, graph=roots("x", 100))
    assert len(s.sent()) == threads + 1
    assert s.count("queued") == 100 - threads - 1


def test_finished_task__makes_room_for_one_more() -> None:
    s = Script(workers={"a": 2}, graph=roots("x", 100))
    s.sent()
    s.finish("x-0")
    assert len(s.sent()) == 1


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("extra", [1, 2, 4])
def test_roots_just_above_the_threads__are_bound_late_as_well(threads: int, extra: int) -> None:
    s = Script(workers={"a": threads}, graph=roots("load", threads + extra))
    assert s.count("processing") <= threads + 1


def test_large_roots__are_not_overproduced() -> None:
    n = 50
    graph = {**roots("load", n), **{f"reduce-{i}": [f"load-{i}"] for i in range(n)}}
    s = Script(workers={"a": 2}, graph=graph, want=keys_of("reduce", n))
    most = 0
    for _ in range(200):
        s.play(rounds=1, nbytes=10 * MB)
        held = [key for key in keys_of("load", n) if s.status(key) == "memory"]
        most = max(most, len(held))
    assert s.count("memory") == n
    assert most <= 4
