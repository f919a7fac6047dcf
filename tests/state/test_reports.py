"""What users of schedulers like this one have reported of the state machine (group A), told to the state.

Each test names its report: the list, with its letters and numbers, is in the project's case collection. What is
tested is the right outcome, for the steps of the report and for the kind that it stands for. Group B is in
`test_reports_data`, C and D are in `test_reports_placement`, G, M, N and O in `test_reports_clients`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shunter.errors import InternalError
from shunter.state import (
    Event,
    Failure,
    Heartbeat,
    KeysAdded,
    Log,
    LongRunning,
    Options,
    TakeBack,
    TakeBackAnswered,
    TaskFailed,
    TaskRescheduled,
    TasksFinished,
)
from tests.state.script import Script, keys_of, roots


def ran_in_all(s: Script, key: str) -> int:
    """Let everything end; how often the key ran from now on."""
    return sum(keys.count(key) for keys in s.play().values())


#: What a worker may say of a run, late: (key, worker, run_id) -> event.
LATE: dict[str, Callable[[int, str, int], Event]] = {
    "done": lambda worker, key, run: TasksFinished(
        worker, [key], [run], [8], [0.0], [0.1], [7], ["int"], [None]
    ),
    "failed": lambda worker, key, run: TaskFailed(
        worker, key, run, Failure("exception", key, "late", types=["builtins.OSError"]), 0.0, 0.1, 7
    ),
    "reschedule": lambda worker, key, run: TaskRescheduled(worker, key, run),
    "secede": lambda worker, key, run: LongRunning(worker, key, run, 0.1),
}


# ------------------------------------------------------------------------------- moved, cancelled, late


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


@pytest.mark.parametrize("late", LATE)
def test_a2_freed_task_is_heard_of_late_while_its_dependent_is_on_that_worker__it_completes(
    late: str,
) -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []}, options=Options(workers=["a"]))
    old = s.latest["x"]
    s.release("x")
    s.submit({"x": []}, options=Options(workers=["b"]))
    s.finish("x", on="b")
    s.submit({"y": ["x"]}, options=Options(workers=["a"]))
    s.step(LATE[late](old[0], "x", old[1]))
    s.finish("y")
    assert s.statuses("x", "y") == ["memory", "memory"]
    assert s.holders("x") == ["b"]


def test_a4_secede_after_cancel__changes_no_count() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": []})
    s.cancel("x")
    s.long_running("x")
    assert (s.row("a")["processing"], s.row("a")["long_running"]) == (1, 0)
    assert s.row("a")["status"] == "running"


def test_a4_secede_after_cancel_and_a_second_life__the_new_run_keeps_its_slot() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    old = s.latest["x"]
    s.cancel("x")
    s.submit({"x": []})
    s.step(LATE["secede"](old[0], "x", old[1]))
    assert (s.row("a")["processing"], s.row("a")["long_running"]) == (1, 0)
    s.finish("x")
    assert s.row("a")["occupancy"] == 0.0


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


def test_a5_seceded_task_is_cancelled_and_asked_for_again__both_ends_are_counted_once() -> None:
    s = Script()
    s.worker("a", 1, resources={"GPU": 1.0})
    s.submit({"x": []}, options=Options(resources={"GPU": 1.0}))
    s.long_running("x")
    old = s.latest["x"]
    s.cancel("x")
    s.submit({"x": []}, options=Options(resources={"GPU": 1.0}))
    s.step(LATE["reschedule"](old[0], "x", old[1]))
    s.reschedule("x")
    s.finish("x")
    row = s.row("a")
    assert (row["used"], row["long_running"], row["processing"], row["occupancy"]) == ({}, 0, 0, 0.0)


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("again", ["queued", "no-worker", "processing"])
def test_a7_news_of_the_past_life_of_a_key__the_new_life_goes_on(again: str, late: str) -> None:
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
    s.step(LATE[late](old[0], "x", old[1]))
    assert s.freed() == ([("x", "a")] if late == "done" else [])
    assert s.status("x") == again
    if again == "no-worker":
        s.worker("b")
    assert ran_in_all(s, "x") == 1
    assert ("finished", "x") in s.reports()


@pytest.mark.parametrize("waits", [True, False], ids=["worker-waits", "worker-comes"])
def test_a8_input_of_queued_tasks_is_lost__it_is_computed_again_first(waits: bool) -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.finish("x")
    if waits:  # its only thread is taken, so that it has not helped before
        s.worker("b")
        s.submit({"other": []}, options=Options(workers=["b"]))
    s.submit({f"y-{i}": ["x"] for i in range(10)}, options=Options(stealable=False))
    assert s.count("queued") > 0
    s.link_breaks("a")
    assert s.statuses("x", "y-0", "y-9") == ["queued" if waits else "no-worker", "waiting", "waiting"]
    if not waits:
        s.worker("b")
    ran = [key for key in s.play()["b"] if key != "other"]
    assert ran[0] == "x"
    assert sorted(ran[1:]) == keys_of("y", 10)


# ------------------------------------------------------------------------------- incarnations, moving back


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


def test_a10_victim_comes_back_at_its_address__the_answer_of_the_old_one_is_not_its_own() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 2))
    s.worker("b")
    old, run_id = s.numbers["a"], s.run_id("x-1")
    s.worker("a")  # replaces it: its link was not yet seen to break
    s.sent()
    s.step(TakeBackAnswered(old, [run_id], [run_id]))
    assert s.sent() == []
    s.play()
    assert s.statuses("x-0", "x-1") == ["memory", "memory"]


def test_a10_late_heartbeat_of_a_removed_worker__does_not_register_it() -> None:
    s = Script(workers={"a": 1})
    s.link_breaks("a")
    s.step(Heartbeat(s.numbers["a"], 1, 0, 0.0))
    assert s.count("workers") == 0


@pytest.mark.parametrize("late", LATE)
def test_a10_news_of_a_removed_incarnation__concern_nobody(late: str) -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    old = s.latest["x"]
    s.link_breaks("a")
    s.worker("a")
    now = s.latest["x"]
    assert now[0] != old[0]
    s.step(LATE[late](old[0], "x", old[1]))
    s.step(LATE[late](old[0], "x", now[1]))  # not even with the right number of the run
    assert (s.latest["x"], s.status("x")) == (now, "processing")
    assert s.row("a")["long_running"] == 0


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


def test_a11_two_requests_for_two_lives_under_way__only_the_second_moves_it() -> None:
    s = Script(workers={"a": 1}, graph={"busy": [], "x": []})
    s.worker("b")
    assert s.asked_back() == [("x", "a")]
    a, first = s.latest["x"]
    s.release("x")
    s.submit({"other": []})  # takes the idle thread
    assert s.where("other") == "b"
    s.submit({"x": []}, options=Options(workers=["a", "e"]))
    assert s.where("x") == "a"
    second = s.run_id("x")
    s.worker("e")
    assert s.asked_back() == [("x", "a")]
    s.sent()
    s.step(TakeBackAnswered(a, [first], [first]))
    assert s.sent() == []
    assert s.latest["x"] == (a, second)
    s.step(TakeBackAnswered(a, [second], [second]))
    assert s.sent() == [("x", "e")]
    assert ran_in_all(s, "x") == 1


@pytest.mark.parametrize("leaver", ["a", "b"])
@pytest.mark.parametrize("when", ["before the answer", "after the answer"])
def test_a13_worker_leaves_while_work_is_moved__tasks_end_on_live_workers(leaver: str, when: str) -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 2))
    s.worker("b")
    if when == "after the answer":
        s.answer("a")
    s.link_breaks(leaver)
    if leaver == "b" and when == "before the answer":
        s.answer("a")
    s.play()
    assert s.statuses("x-0", "x-1") == ["memory", "memory"]


def test_a13_idle_workers_come_and_go__each_of_them_moves_a_task_at_most_once() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 2))
    s.sent()
    for i in range(45):
        s.worker(f"b{i}")
        for _ in range(3):
            s.wait(1.0)
            s.answer("a")
        s.leaves(f"b{i}")
    moves = [worker for key, worker in s.sent() if key == "x-1" and worker != "a"]
    assert len(moves) == len(set(moves))
    s.play()
    assert s.statuses("x-0", "x-1") == ["memory", "memory"]


# ------------------------------------------------------------------------------- copies


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


def test_a14_holder_dies_while_a_task_fetches_from_it__the_run_goes_on_with_the_other_copy() -> None:
    s = Script(workers={"a": 1, "b": 1, "e": 1}, graph={"x": []}, options=Options(workers=["a"]))
    s.finish("x")
    s.holds("b", "x")
    s.submit({"y": ["x"]}, options=Options(workers=["e"]))
    s.sent()
    s.link_breaks("a")
    assert s.sent() == []
    assert s.status("y") == "processing"
    s.finish("y")
    assert s.statuses("x", "y") == ["memory", "memory"]


@pytest.mark.parametrize("submitted_again", [False, True])
def test_a19_copy_that_came_for_a_freed_task__is_freed_at_once(submitted_again: bool) -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []}, options=Options(workers=["a"]))
    s.finish("x")
    s.submit({"y": ["x"]}, options=Options(workers=["b"]))
    life = s.lives["x"]
    s.release("y")
    s.freed()
    if submitted_again:  # somewhere else: the copy is of no use there
        s.submit({"y": ["x"]}, options=Options(workers=["a"]))
    s.step(KeysAdded(s.numbers["b"], ["x"], [8], [life]))
    assert s.freed() == [("x", "b")]
    assert s.holders("x") == ["a"]


# ------------------------------------------------------------------------------- graphs that fail


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


def test_a22_event_that_makes_no_sense_to_us__is_an_internal_error_and_no_silence() -> None:
    s = Script()
    with pytest.raises(InternalError, match="no reaction to Event"):
        s.state.step(Event(), s.now)


def test_a23_task_secedes_and_waits_for_another__the_other_is_sent() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 20))
    s.submit({"z": []}, parent="x-0", options=Options(priority=1.0))
    s.sent()
    s.long_running("x-0")
    assert s.sent() == [("z", "a")]


def test_a23_each_task_secedes_in_turn__all_that_wait_are_sent() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 20))
    for i in range(20):
        s.long_running(f"x-{i}")
    assert s.count("processing") == 20
    s.finish(*keys_of("x", 20))
    assert s.count("memory") == 20


@pytest.mark.parametrize("rerun", ["finishes", "fails"])
def test_a25_fan_out_whose_middle_is_lost__ends_as_the_second_run_does(rerun: str) -> None:
    options = {"h-a": Options(workers=["a"]), "h-b": Options(workers=["b"])}
    graph = {"f": [], "g": ["f"], "h-a": ["g"], "h-b": ["g"]}
    s = Script(
        workers={"a": 1, "b": 1}, graph=graph, want=["h-a", "h-b"], options=options, allowed_failures=0
    )
    s.finish("f")
    s.finish("g")
    assert s.count("released") == 1  # f: nobody needs it any more
    side = s.holders("g")[0]
    s.kill(side, started=[])
    assert (s.status("f"), s.status("g")) == ("processing", "waiting")
    s.worker(side)
    if rerun == "fails":
        s.fail("f")
        assert sorted(s.reports()) == [("erred", "h-a"), ("erred", "h-b")]
        assert {s.failure("h-a").key, s.failure("h-b").key} == {"f"}
    s.play()
    word = "memory" if rerun == "finishes" else "erred"
    assert s.statuses("h-a", "h-b") == [word, word]


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


@pytest.mark.parametrize("inputs", [["x"], ["x", "known"], ["known", "x"]], ids="+".join)
def test_a28_graph_with_a_lost_input_submitted_twice__fails_the_same_way_twice(inputs: list[str]) -> None:
    s = Script(workers={"a": 1}, graph={"known": []})
    s.finish("known")
    s.reports()
    for _ in range(2):
        s.submit({"y": inputs})
        assert s.reports() == [("erred", "y")]
        assert s.failure("y").kind == "graph"
        assert "'x'" in s.failure("y").text
        assert s.count("tasks") == 1
    assert s.status("known") == "memory"


def test_a29_heartbeat_after_its_task_was_forgotten__the_worker_stays() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.release("x")
    s.step(Heartbeat(s.numbers["a"], 1, 0, 0.0))
    assert s.row("a")["status"] == "running"
    assert s.count("dropped_events") == 0


@pytest.mark.parametrize("late", LATE)
def test_a29_news_of_a_forgotten_task__the_worker_stays(late: str) -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    old = s.latest["x"]
    s.release("x")
    s.step(LATE[late](old[0], "x", old[1]))
    assert s.row("a")["status"] == "running"
    assert s.count("tasks") == 0
    assert s.closed() == []


def test_a31_client_that_wants_an_unknown_key__gets_an_answer_and_makes_no_ghost() -> None:
    s = Script(workers={"a": 1}, clients=("c", "d"))
    s.desire("k", by="d")
    assert s.reports("d") == [("cancelled", "k")]
    s.client_leaves("d")
    s.submit({"k": []})
    s.finish("k")
    assert s.reports("c") == [("finished", "k")]


@pytest.mark.parametrize("verb", ["desire", "release", "cancel", "retry", "prioritize", "use as an input"])
def test_a31_whatever_a_client_does_with_an_unknown_key__no_task_comes_of_it(verb: str) -> None:
    s = Script(workers={"a": 1}, clients=("c", "d"))
    {
        "desire": lambda: s.desire("k", by="d"),
        "release": lambda: s.release("k", by="d"),
        "cancel": lambda: s.cancel("k", by="d", force=True),
        "retry": lambda: s.retry("k", by="d"),
        "prioritize": lambda: s.set_priority(9.0, "k", by="d"),
        "use as an input": lambda: s.submit({"y": ["k"]}, by="d"),
    }[verb]()
    assert s.count("tasks") == 0
    assert s.status("k") == "unknown"


def test_a32_worker_lost_while_its_task_is_cancelled__nothing_is_left() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.cancel("x")
    s.cancel("x")
    assert s.freed() == [("x", "a")]
    s.kill("a", started=["x"])
    s.wait(5.0)
    assert s.count("tasks") == 0


@pytest.mark.parametrize("late", LATE)
def test_a32_late_result_of_a_forgotten_graph__is_dropped(late: str) -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]})
    old = s.latest["x"]
    s.cancel("x")
    s.step(LATE[late](old[0], "x", old[1]))
    assert s.count("tasks") == 0


def test_a32_balanced_again_and_again_before_the_answer__asked_and_freed_once() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 2))
    s.worker("b")
    for _ in range(20):
        s.wait(1.0)
    assert s.asked_back() == [("x-1", "a")]
    s.cancel("x-1")
    for _ in range(20):
        s.wait(1.0)
    assert s.freed() == [("x-1", "a")]
    assert s.take(TakeBack) == []
    s.answer("a", given=[])
    s.finish("x-0")
    assert s.statuses("x-0", "x-1") == ["memory", "unknown"]


@pytest.mark.parametrize("child", ["sent behind it", "not sent"])
def test_a34_task_keeps_its_thread_and_what_it_has_submitted_cannot_run__a_warning_names_both(
    child: str,
) -> None:
    s = Script(workers={"a": 1}, graph={"p": []})
    if child == "not sent":
        s.submit({"other": []})  # it takes the place behind p
    s.submit({"z": []}, parent="p")
    s.wait(60.0)
    warned = [set(each.fields.values()) for each in s.take(Log) if each.level == "warning"]
    assert any({"p", "z"} <= named for named in warned)


def test_a34_task_secedes_before_it_waits__nobody_is_warned() -> None:
    s = Script(workers={"a": 1}, graph={"p": []})
    s.submit({"z": []}, parent="p")
    s.long_running("p")
    s.finish("z")
    s.wait(60.0)
    assert s.take(Log) == []
