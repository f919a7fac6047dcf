"""What users have reported of clients (G), priorities and resources (M), names (N) and of other systems (O).

Told to the state: each test names the report.
"""

from __future__ import annotations

import pytest

from shunter.state import ClosePeer, GraphBegin, Heartbeat, Options, ThreadsHeld
from tests.state.script import Script, keys_of, roots

HOUR = 3600.0

# ------------------------------------------------------------------------------- G: clients


def test_g2_cancelled_task_runs_on__its_slot_is_counted_shown_and_given_no_work() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []}, options=Options(workers=["a"]))
    s.cancel("x")
    s.step(ThreadsHeld(s.numbers["a"], 1))  # nothing can stop it
    row = s.row("a")
    assert (row["given_up"], row["processing"]) == (1, 0)
    for i in range(3):
        s.submit({f"y-{i}": []})
        s.finish(f"y-{i}", on="b")
    s.step(ThreadsHeld(s.numbers["a"], 0))
    assert s.row("a")["given_up"] == 0
    s.submit(roots("z", 2))
    assert {s.where("z-0"), s.where("z-1")} == {"a", "b"}


def test_g2_work_was_sent_behind_a_cancelled_task_before_that_was_known__it_is_taken_back() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.cancel("x")
    s.submit({"y": []})
    assert s.where("y") == "a"
    s.step(ThreadsHeld(s.numbers["a"], 1))
    s.worker("b")
    assert s.asked_back() == [("y", "a")]
    s.answer("a", given=["y"])
    assert s.where("y") == "b"


def test_g5_release_and_use_again_in_one_breath__nothing_is_cancelled() -> None:
    s = Script(workers={"a": 1}, graph={"y": []})
    s.finish("y")
    for i in range(100):
        s.release("y")
        s.submit({"y": [], f"z-{i}": ["y"]})
        s.play()
        s.release(f"z-{i}")
    assert "cancelled" not in {word for word, _ in s.reports()}


@pytest.mark.parametrize(("verb", "times"), [("release", 10_000), ("cancel", 1_000)])
def test_g5_given_up_and_used_again_thousands_of_times__each_life_ends_well(verb: str, times: int) -> None:
    s = Script(workers={"a": 1}, validate=False)
    for i in range(times):
        s.submit({"y": [], f"z-{i}": ["y"]}, want=["y", f"z-{i}"])
        s.finish("y")
        s.finish(f"z-{i}")
        done = [each for each in s.reports() if each[0] != "cancelled"]
        assert done == [("finished", "y"), ("finished", f"z-{i}")]
        (s.release if verb == "release" else s.cancel)("y", f"z-{i}")
        s.out.clear()
    assert s.count("tasks") == 0


def test_g7_some_are_retried_after_others_were_released__only_those_run() -> None:
    n = 1_100
    s = Script(workers={"a": 4}, graph=roots("x", n))
    while running := list(s.runs[s.numbers["a"]].values()):
        for key in running:
            s.fail(key)
    assert s.count("erred") == n
    s.release(*keys_of("x", n)[::2])
    assert s.count("tasks") == n // 2
    again = keys_of("x", n)[1::4]
    s.reports()
    s.retry(*again)
    assert s.reports()[: len(again)] == [("retried", key) for key in reversed(again)]
    assert sorted(s.play()["a"]) == sorted(again)
    assert s.count("erred") == n // 2 - len(again)


def test_g7_retried_with_an_input_that_erred_too__both_run() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]})
    s.fail("x")
    s.retry("y")
    assert s.play() == {"a": ["x", "y"]}


def test_g7_forgotten_key_is_retried__its_client_is_told_so() -> None:
    s = Script(workers={"a": 1}, clients=("c", "d"), graph={"x": []})
    s.fail("x")
    s.release("x")
    s.reports()
    s.retry("x")
    assert s.reports() == [("cancelled", "x")]


@pytest.mark.parametrize("tie", ["none", "an input of another task of the client that left"])
def test_g8_erred_task_of_a_client_that_left__is_tried_again_by_the_next(tie: str) -> None:
    s = Script(workers={"a": 1}, clients=("c", "d"))
    s.submit({"k": []} if tie == "none" else {"k": [], "p": ["k"]}, by="d")
    s.fail("k")
    s.client_leaves("d")
    s.submit({"k": []}, by="c")
    assert s.status("k") == "processing"
    s.finish("k")
    assert s.reports("c") == [("finished", "k")]


def test_g11_many_workers_tasks_and_holders__none_is_left_out_of_any_answer() -> None:
    n = 300
    s = Script(workers={f"w{i}": 1 for i in range(n)}, validate=False)
    assert [row["name"] for row in s.view.workers()] == [f"w{i}" for i in range(n)]
    s.scatter("d", to=[f"w{i}" for i in range(n)])
    assert len(s.holders("d")) == n
    s.submit({f"kind{i}-0": [] for i in range(n)})
    status = s.view.status()
    assert isinstance(status["workers"], list) and len(status["workers"]) == n
    assert isinstance(status["kinds"], list) and len(status["kinds"]) == n + 1
    s.submit({"y": [f"kind{i}-0" for i in range(n)]})
    assert s.view.why("y").endswith(f"and {n - 3} more")


# ------------------------------------------------------------------------------- M: priorities and resources


def test_m1_tasks_of_one_client__run_first_come_first_served() -> None:
    s = Script(workers={"a": 1})
    for i in range(20):
        s.submit({f"x-{i}": []})
    assert s.play() == {"a": keys_of("x", 20)}


def test_m1_tasks_of_two_clients_in_one_instant__run_first_come_first_served() -> None:
    s = Script(workers={"a": 1}, clients=("c", "d"))
    for i in range(20):
        s.submit({f"x-{i}": []}, by="cd"[i % 2])
    assert s.play() == {"a": keys_of("x", 20)}


def test_m1_input_is_ready_at_last__those_that_waited_for_it_run_in_the_order_they_came() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    for i in range(20):
        s.submit({f"y-{i}": ["x"]})
    assert s.play() == {"a": ["x", *keys_of("y", 20)]}


def test_m2_larger_priority__runs_sooner() -> None:
    s = Script(workers={"a": 1}, graph=roots("busy", 2))
    for priority in (-1.0, 0.0, 1.0):
        s.submit({f"x{priority:+g}": []}, options=Options(priority=priority))
    assert s.play()["a"][2:] == ["x+1", "x+0", "x-1"]


def test_m2_priority_changed_while_it_waits__larger_runs_sooner() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 5))
    s.set_priority(1.0, "x-4")
    s.set_priority(-1.0, "x-2")
    assert s.play()["a"][2:] == ["x-4", "x-3", "x-2"]


LACKING = {
    "a resource nobody has": (Options(resources={"QUANTUM": 1.0}), "QUANTUM=1"),
    "more than anybody has": (Options(resources={"GPU": 3.0}), "GPU=3"),
    "a worker that is not there": (Options(workers=["zoe"]), "zoe"),
    "two that nobody has together": (Options(resources={"GPU": 1.0, "DISK": 1.0}), "all of its resources"),
}


@pytest.mark.parametrize("what", LACKING)
def test_m4_unsuitable_workers_only__is_visible_and_fails_in_time(what: str) -> None:
    options, named = LACKING[what]
    s = Script()
    s.worker("a", resources={"GPU": 2.0})
    s.worker("b", resources={"DISK": 1.0})
    s.submit({"x": []}, options=options)
    assert s.count("no-worker") == 1
    assert named in s.view.why("x")
    s.submit(roots("y", 2))
    s.play()  # others are not held up
    assert s.count("memory") == 2
    s.wait(61.0)
    assert s.failure("x").kind == "no-worker"
    assert named in s.failure("x").text


def test_m4_suitable_worker_comes_in_time__the_task_runs_there() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, options=Options(resources={"QUANTUM": 1.0}))
    s.wait(59.0)
    s.worker("q", resources={"QUANTUM": 1.0})
    s.wait(HOUR)
    assert s.where("x") == "q"
    s.finish("x")
    assert s.status("x") == "memory"


def test_m7_urgent_task_that_can_never_fit__does_not_block_others() -> None:
    s = Script()
    s.worker("a", 2, resources={"GPU": 1.0})
    s.submit({"x": []}, options=Options(priority=9.0, resources={"GPU": 5.0}))
    s.submit(roots("y", 6), options=Options(resources={"GPU": 1.0}))
    s.submit(roots("z", 6))
    s.play()
    assert s.count("memory") == 12
    assert s.status("x") == "no-worker"


def test_m7_tasks_sent_ahead_are_cancelled__all_sums_return_to_zero() -> None:
    s = Script()
    s.worker("a", 1, resources={"GPU": 2.0})
    s.submit({"f-first": []})
    s.finish("f-first", seconds=0.0001)
    s.submit(roots("f", 20), options=Options(resources={"GPU": 0.1}))
    ahead = s.count("processing")
    assert ahead > 10
    s.cancel(*keys_of("f", 20))
    assert len(s.freed()) == ahead
    row = s.row("a")
    assert (row["processing"], row["occupancy"], row["used"]) == (0, 0.0, {})
    s.submit({"y": []}, options=Options(resources={"GPU": 2.0}))
    s.finish("y")
    assert s.status("y") == "memory"


# ------------------------------------------------------------------------------- N: names


def test_n6_worker_at_a_known_address__replaces_the_older_and_work_goes_on() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 5))
    s.worker("a")
    assert s.count("workers") == 1
    assert s.play() == {"a": keys_of("x", 5)}


@pytest.mark.parametrize("before", ["no-worker", "queued", "processing", "memory"])
def test_n7_task_pinned_to_a_name__runs_after_that_worker_came_back_elsewhere(before: str) -> None:
    s = Script(workers={"a": 1})
    if before != "no-worker":
        s.worker("gpu")
    pinned = Options(workers=["gpu"])
    if before == "queued":
        s.submit(roots("busy", 2), options=pinned)
    s.submit({"x": []}, options=pinned)
    if before == "memory":
        s.finish("x")
    assert s.status("x") == before
    if before != "no-worker":
        s.link_breaks("gpu")
    s.wait(1.0)
    s.worker("gpu", address="tcp://elsewhere:1")
    ran = s.play()
    assert ran["gpu"][-1] == "x"
    assert s.holders("x") == ["gpu"]


def test_n8_worker_restarted_under_its_name_elsewhere__the_older_one_is_closed_and_no_other() -> None:
    s = Script(workers={"a": 1})
    old = s.worker("gpu")
    new = s.worker("gpu", address="tcp://elsewhere:1")
    assert [each.peer for each in s.take(ClosePeer)] == [old]
    s.submit({"x": []}, options=Options(workers=["gpu"]))
    assert s.latest["x"][0] == new
    s.numbers["gpu"] = old
    s.link_breaks("gpu")
    s.parent_tells("gpu", started=[])
    s.numbers["gpu"] = new
    assert s.count("workers") == 2
    s.finish("x")
    assert s.holders("x") == ["gpu"]


# ------------------------------------------------------------------------------- O: other systems


@pytest.mark.parametrize("seceded", [False, True])
def test_o1_task_of_many_hours_on_a_worker_that_lives__is_run_once(seceded: bool) -> None:
    """A lease is renewed by life signs; the time since the task was sent means nothing."""
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []}, worker_ttl=300.0)
    if seceded:
        s.long_running("x")
    for _ in range(10 * 60):
        s.wait(60.0)
        for name in "ab":
            s.step(Heartbeat(s.numbers[name], 1, 0, 0.0))
    assert s.closed() == []
    assert s.asked_back() == []
    s.finish("x", seconds=10 * HOUR)
    assert [key for key, _ in s.sent()] == ["x"]
    assert s.reports() == [("finished", "x")]


@pytest.mark.parametrize("behind", [1, 5, 200])
def test_o2_one_of_a_short_kind_takes_hours__those_sent_behind_it_go_to_idle_workers(behind: int) -> None:
    s = Script(workers={"a": 1}, graph={"f-first": []})
    s.finish("f-first", seconds=0.0001)
    s.submit(roots("f", 1 + behind))  # f-0 does not end
    s.worker("b")
    for _ in range(behind + 10):
        s.wait(1.0)
        s.answer("a")
        s.play(but=["a"], rounds=1)
    assert s.statuses(*keys_of("f", 1 + behind)) == ["processing", *["memory"] * behind]
    assert s.where("f-0") == "a"


@pytest.mark.parametrize("known", [False, True], ids=["new kind", "known kind"])
def test_o2_short_tasks_sent_behind_a_long_one__go_to_idle_workers(known: bool) -> None:
    s = Script(workers={"a": 1}, graph={"f-first": [], "long-first": []})
    s.finish("f-first", seconds=0.0001)
    s.finish("long-first", seconds=HOUR)
    s.submit({"long-1" if known else "new-1": []})
    s.submit(roots("f", 10))
    s.worker("b")
    for _ in range(100):
        s.wait(0.1)
        s.answer("a")
        s.play(but=["a"], rounds=1)
    assert s.statuses(*keys_of("f", 10)) == ["memory"] * 10


def test_o2_more_workers_come_later__tasks_that_wait_behind_long_ones_go_there() -> None:
    s = Script(workers={"a": 2}, graph=roots("x", 3))
    for _ in range(10):
        s.wait(HOUR)
    s.worker("b")
    s.answer("a")
    assert s.where("x-2") == "b"


def test_o4_every_task__is_counted_under_exactly_one_status() -> None:
    graph = {"w": [], "x": ["w"], "y": ["x"], "bad": [], "worse": ["bad"], "n": []}
    options = {"n": Options(workers=["nobody"])}
    s = Script(workers={"a": 1}, graph=graph, want=["y", "worse", "n"], options=options)
    seen: set[str] = set()
    while True:
        counts = s.view.counts()
        found = [status for status in s.statuses(*graph) if status != "unknown"]
        statuses = ("released", "waiting", "no-worker", "queued", "processing", "memory", "erred")
        assert [counts[each] for each in statuses] == [found.count(each) for each in statuses]
        assert counts["tasks"] == len(found)
        seen.update(found)
        running = list(s.runs[s.numbers["a"]].values())
        if not running:
            break
        if running[0] == "bad":
            s.fail("bad")
        else:
            s.finish(running[0])
    assert seen == {"released", "waiting", "no-worker", "processing", "memory", "erred"}


def test_graph_number_begun_twice__the_later_one_counts() -> None:
    s = Script(workers={"a": 1})
    graph = s.begin()
    s.part({"x": []}, graph)
    s.step(GraphBegin(s.numbers["c"], graph, False, None))
    s.part({"y": []}, graph)
    s.commit(graph)
    assert s.statuses("x", "y") == ["unknown", "processing"]
