"""What users of schedulers like this one have reported, told to the state: each test names the report.

The list, with its letters and numbers, is in the project's case collection; the right outcome is what is tested.
"""

from __future__ import annotations

import pytest

from shunter.state import GraphBegin, Heartbeat, Options, RemoveReplicas
from tests.state.script import Script, keys_of, roots

MB = 1_000_000

# ------------------------------------------------------------------------------- A: state machine


def test_a2_moved_task_fails_late_on_its_old_worker__its_dependent_completes() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 2))
    s.submit({"y": ["x-1"]})
    old = s.latest["x-1"]
    s.worker("b")
    s.answer("a")
    assert s.where("x-1") == "b"
    s.finish("x-1")
    new, s.latest["x-1"] = s.latest["x-1"], old
    s.fail("x-1")
    s.latest["x-1"] = new
    s.finish("y")
    assert s.statuses("x-1", "y") == ["memory", "memory"]


def test_a4_secede_after_cancel__changes_no_count() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": []})
    s.cancel("x")
    s.long_running("x")
    assert (s.row("a")["processing"], s.row("a")["long_running"]) == (1, 0)
    assert s.row("a")["status"] == "running"


@pytest.mark.parametrize("resources", [None, {"GPU": 1.0}])
def test_a5_task_reschedules_itself_on_the_only_worker__runs_there_again(
    resources: dict[str, float] | None,
) -> None:
    s = Script()
    s.worker("a", 1, resources={"GPU": 1.0})
    s.submit({"x": []}, options=Options(resources=resources))
    s.long_running("x")
    s.reschedule("x")
    assert s.sent() == [("x", "a"), ("x", "a")]
    s.finish("x")
    assert s.status("x") == "memory"
    assert s.row("a")["used"] == {}


@pytest.mark.parametrize("again", ["queued", "no-worker", "processing"])
def test_a7_done_from_the_past_life_of_a_key__is_freed_and_the_new_life_goes_on(again: str) -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    old = s.latest["x"]
    s.release("x")
    options = Options()
    if again == "queued":
        s.submit(roots("busy", 3))
    elif again == "no-worker":
        options = Options(workers=["b"])
    else:
        s.worker("b")
        options = Options(workers=["b"])
    s.submit({"x": []}, options=options)
    assert s.status("x") == again
    s.freed()
    s.finished(old[0], [("x", old[1])])
    assert s.freed() == [("x", "a")]
    assert s.status("x") == again
    if again == "no-worker":
        s.worker("b")
    ran = s.play()
    assert sum(keys.count("x") for keys in ran.values()) == 1
    assert ("finished", "x") in s.reports()


def test_a8_input_of_queued_tasks_is_lost__it_is_computed_again_first() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.finish("x")
    s.submit({f"y-{i}": ["x"] for i in range(10)})
    assert s.count("queued") > 0
    s.link_breaks("a")
    assert s.statuses("x", "y-0", "y-9") == ["no-worker", "waiting", "waiting"]
    s.worker("b")
    ran = s.play()["b"]
    assert ran[0] == "x"
    assert sorted(ran[1:]) == keys_of("y", 10)


def test_a10_worker_of_a_dead_ones_address__is_not_taken_for_it() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 2))
    s.worker("b")
    assert s.asked_back() == [("x-1", "a")]
    s.link_breaks("b")
    s.worker("b")  # at the same address
    s.answer("a")
    s.link_breaks("b")
    s.play()
    assert s.statuses("x-0", "x-1") == ["memory", "memory"]


def test_a10_late_heartbeat_of_a_removed_worker__does_not_register_it() -> None:
    s = Script(workers={"a": 1})
    s.link_breaks("a")
    s.step(Heartbeat(s.numbers["a"], 1, 0, 0.0))
    assert s.count("workers") == 0


def test_a11_answer_to_a_take_back_after_the_task_moved_on__changes_nothing() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 2))
    s.worker("b")
    assert s.asked_back() == [("x-1", "a")]
    old = s.run_id("x-1")
    s.reschedule("x-1")
    now = s.latest["x-1"]
    assert now[1] != old
    s.runs[s.numbers["a"]].setdefault(old, "x-1")
    s.answer("a", given=["x-1"])
    assert s.latest["x-1"] == now
    s.finish("x-1")
    assert s.status("x-1") == "memory"


def test_a13_worker_leaves_while_asked_back__tasks_end_on_live_workers() -> None:
    for leaver in ("a", "b"):
        s = Script(workers={"a": 1}, graph=roots("x", 2))
        s.worker("b")
        s.link_breaks(leaver)
        if leaver == "b":
            s.answer("a")
        s.play()
        assert s.statuses("x-0", "x-1") == ["memory", "memory"]


def test_a14_fetch_fails_while_another_copy_exists__the_other_is_named_and_nothing_recomputed() -> None:
    s = Script(workers={"a": 1, "b": 1, "e": 1}, graph={"x": []}, options=Options(workers=["a"]))
    s.finish("x")
    s.holds("b", "x")
    s.sent()
    s.complain("e", "x", about=["a"])
    s.link_breaks("a")
    s.complain("e", "x", about=["a"])
    assert s.holders_told()[-1] == ("e", "x", ["b"])
    assert s.sent() == []


def test_a17_failed_graph__the_next_one_runs() -> None:
    s = Script(workers={"a": 2, "b": 2})
    graph = {**roots("x", 30), **{f"y-{i}": [f"x-{i}"] for i in range(30)}}
    s.submit(graph, want=keys_of("y", 30))
    for _ in range(200):
        running = [key for runs in s.runs.values() for key in runs.values()]
        if not running:
            break
        for key in running:
            if key.startswith("x"):
                s.finish(key)
            else:
                s.fail(key)
    assert s.count("erred") == 30
    s.submit({"z": []})
    s.finish("z")
    assert ("finished", "z") in s.reports()


def test_a23_task_secedes_and_waits_for_another__the_other_is_sent() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 20))
    s.submit({"z": []}, parent="x-0", options=Options(priority=1.0))
    s.sent()
    s.long_running("x-0")
    assert s.sent() == [("z", "a")]


def test_a25_fan_out_whose_middle_is_lost__all_ends_well() -> None:
    options = {"h-a": Options(workers=["a"]), "h-b": Options(workers=["b"])}
    graph = {"f": [], "g": ["f"], "h-a": ["g"], "h-b": ["g"]}
    s = Script(workers={"a": 1, "b": 1}, graph=graph, options=options, allowed_failures=0)
    s.finish("f")
    s.finish("g")
    side = s.holders("g")[0]
    s.kill(side, started=[])
    assert s.status("g") != "memory"
    s.worker(side)
    s.play()
    assert s.statuses("h-a", "h-b") == ["memory", "memory"]


def test_a26_key_submitted_again_while_a_dependent_runs__is_in_memory_and_not_recomputed() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"], "z": ["y"]}, want=["y", "z"])
    s.finish("x")
    s.finish("y")
    s.release("y")
    s.reports()
    s.sent()
    s.submit({"x": [], "y": ["x"]}, want=["y"])
    assert s.reports() == [("finished", "y")]
    assert s.sent() == []


def test_a28_graph_with_a_lost_input_submitted_twice__fails_the_same_way_twice() -> None:
    s = Script(workers={"a": 1})
    for _ in range(2):
        s.submit({"y": ["x"]})
        assert s.reports() == [("erred", "y")]
        assert s.failure("y").kind == "graph"
        assert s.count("tasks") == 0


def test_a29_heartbeat_after_its_task_was_forgotten__the_worker_stays() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.release("x")
    s.step(Heartbeat(s.numbers["a"], 1, 0, 0.0))
    assert s.row("a")["status"] == "running"
    assert s.count("dropped_events") == 0


def test_a31_client_that_wants_an_unknown_key__gets_an_answer_and_makes_no_ghost() -> None:
    s = Script(workers={"a": 1}, clients=("c", "d"))
    s.desire("k", by="d")
    assert s.reports("d") == [("cancelled", "k")]
    s.client_leaves("d")
    s.submit({"k": []})
    s.finish("k")
    assert s.reports("c") == [("finished", "k")]


def test_a32_worker_lost_while_its_task_is_cancelled__nothing_is_left() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.cancel("x")
    s.cancel("x")
    assert s.freed() == [("x", "a")]
    s.kill("a", started=["x"])
    s.wait(5.0)
    assert s.count("tasks") == 0


def test_a32_late_result_of_a_forgotten_graph__is_dropped() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]})
    s.cancel("x")
    s.finish("x")
    assert s.count("tasks") == 0


# ------------------------------------------------------------------------------- B: lost data


def test_b1_workers_leave_one_after_the_other__results_are_computed_again_on_the_last() -> None:
    s = Script(workers={"a": 1, "b": 1, "e": 1}, graph=roots("x", 12))
    s.play()
    for name in ("a", "b"):
        s.leaves(name)
    s.play()
    assert {holder for key in keys_of("x", 12) for holder in s.holders(key)} == {"e"}
    assert s.count("memory") == 12


def test_b2_scattered_data_and_a_murderous_task__the_innocent_learn_why() -> None:
    s = Script(workers={"a": 1, "b": 1}, clients=("c", "d"), allowed_failures=1)
    s.scatter("d", to=["a", "b"], by="d")
    s.submit({"y": ["d"]}, by="d", options=Options(workers=["nowhere"]))
    s.submit({"murder": []}, by="c")
    for _ in range(2):
        s.kill(s.where("murder"), started=["murder"])
    failure = s.failure("y", client="d")
    assert (failure.kind, failure.key) == ("lost-input", "d")
    assert "scattered" in failure.text and "cannot be computed again" in failure.text


def test_b4_holder_list_is_out_of_date__asking_again_gives_the_true_one() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []}, options=Options(workers=["a"]))
    s.finish("x")
    s.holds("b", "x")
    s.loses("a", "x")
    assert s.holders("x") == ["b"]


def test_b10_worker_back_with_another_number__has_no_data_and_nothing_hangs() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    s.finish("x")
    holder = s.holders("x")[0]
    s.link_breaks(holder)
    s.worker(holder)
    s.holds(holder, "x")  # it still has the value, and says so while it is computed elsewhere
    s.play()
    assert s.status("x") == "memory"
    assert s.take(RemoveReplicas) == []


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


# ------------------------------------------------------------------------------- G, M, N


def test_g5_release_and_use_again_in_one_breath__nothing_is_cancelled() -> None:
    s = Script(workers={"a": 1}, graph={"y": []})
    s.finish("y")
    for i in range(100):
        s.release("y")
        s.submit({"y": [], f"z-{i}": ["y"]})
        s.play()
        s.release(f"z-{i}")
    assert "cancelled" not in {word for word, _ in s.reports()}


def test_g8_erred_task_of_a_client_that_left__is_tried_again_by_the_next() -> None:
    s = Script(workers={"a": 1}, clients=("c", "d"))
    s.submit({"k": []}, by="d")
    s.fail("k")
    s.client_leaves("d")
    s.submit({"k": []}, by="c")
    assert s.status("k") == "processing"


def test_m1_tasks_of_one_client__run_first_come_first_served() -> None:
    s = Script(workers={"a": 1})
    for i in range(20):
        s.submit({f"x-{i}": []})
    assert s.play() == {"a": keys_of("x", 20)}


def test_m2_larger_priority__runs_sooner() -> None:
    s = Script(workers={"a": 1}, graph=roots("busy", 2))
    for priority in (-1.0, 0.0, 1.0):
        s.submit({f"x{priority:+g}": []}, options=Options(priority=priority))
    assert s.play()["a"][2:] == ["x+1", "x+0", "x-1"]


def test_m4_unknown_resource__is_visible_and_fails_in_time() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, options=Options(resources={"QUANTUM": 1.0}))
    assert s.count("no-worker") == 1
    assert "QUANTUM" in s.view.why("x")
    s.wait(61.0)
    assert s.failure("x").kind == "no-worker"
    assert "QUANTUM" in s.failure("x").text


def test_m7_urgent_task_that_can_never_fit__does_not_block_others() -> None:
    s = Script()
    s.worker("a", 2, resources={"GPU": 1.0})
    s.submit({"x": []}, options=Options(priority=9.0, resources={"GPU": 5.0}))
    s.submit(roots("y", 6), options=Options(resources={"GPU": 1.0}))
    s.submit(roots("z", 6))
    s.play()
    assert s.count("memory") == 12
    assert s.status("x") == "no-worker"


def test_n6_worker_at_a_known_address__replaces_the_older_and_work_goes_on() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 5))
    s.worker("a")
    assert s.count("workers") == 1
    assert s.play() == {"a": keys_of("x", 5)}


def test_n7_task_pinned_to_a_name__runs_after_that_worker_came_back_elsewhere() -> None:
    s = Script(workers={"a": 1})
    s.worker("gpu")
    s.submit({"x": []}, options=Options(workers=["gpu"]))
    s.link_breaks("gpu")
    s.worker("gpu", address="tcp://elsewhere:1")
    assert s.where("x") == "gpu"
    s.finish("x")
    assert s.status("x") == "memory"


def test_graph_number_begun_twice__the_later_one_counts() -> None:
    s = Script(workers={"a": 1})
    graph = s.begin()
    s.part({"x": []}, graph)
    s.step(GraphBegin(s.numbers["c"], graph, False, None))
    s.part({"y": []}, graph)
    s.commit(graph)
    assert s.statuses("x", "y") == ["unknown", "processing"]
