"""Graphs that come in: by parts, checked and created as a whole, in slices; keys that exist already."""

from __future__ import annotations

import pytest

from shunter.state import AnswerQuestion, GraphAborted, GraphPart, Options, QuestionAsked
from tests.state.script import Script, chain, keys_of, roots

# ---------------------------------------------------------------------------------------------- parts


def test_graph_in_parts__starts_only_at_its_commit() -> None:
    s = Script(workers={"a": 2})
    graph = s.begin()
    s.part({"y": ["x"]}, graph)
    s.part({"x": []}, graph)
    assert s.count("tasks") == 0
    s.commit(graph)
    assert s.sent() == [("x", "a")]
    assert s.status("y") == "waiting"


def test_small_graph_out_of_order__goes_through_in_one_step() -> None:
    s = Script(workers={"a": 2})
    graph = s.begin()
    s.part({"y": ["x"], "x": []}, graph)
    s.commit(graph)
    assert s.state.next_deadline > s.now
    assert s.sent() == [("x", "a")]


def test_two_graphs_at_once__keep_their_parts_apart() -> None:
    s = Script(workers={"a": 4})
    one = s.begin()
    two = s.begin()
    s.part({"x": []}, one)
    s.part({"y": []}, two)
    s.commit(two)
    assert s.statuses("x", "y") == ["unknown", "processing"]
    s.commit(one)
    assert s.status("x") == "processing"


def test_graph_given_up_before_its_commit__leaves_nothing() -> None:
    s = Script(workers={"a": 1})
    graph = s.begin()
    s.part({"x": []}, graph)
    s.step(GraphAborted(s.numbers["c"], graph))
    assert s.count("tasks") == 0
    s.commit(graph)
    assert s.closed() == ["c"]


def test_part_of_a_graph_that_was_not_begun__closes_the_client() -> None:
    s = Script(workers={"a": 1})
    s.part({"x": []}, 99)
    assert s.closed() == ["c"]
    assert s.count("tasks") == 0


def test_commit_of_a_graph_that_was_not_begun__closes_the_client() -> None:
    s = Script(workers={"a": 1})
    s.commit(99)
    assert s.closed() == ["c"]


def test_empty_graph__is_nothing() -> None:
    s = Script(workers={"a": 1}, graph={})
    assert s.count("tasks") == 0
    assert s.reports() == []


def test_large_graph__is_taken_in_by_slices() -> None:
    s = Script(workers={"a": 1}, clients=("c", "d"), slice=100)
    graph = s.begin()
    s.part(roots("x", 5_000), graph)
    s.commit(graph)
    assert s.state.next_deadline <= s.now
    assert s.sent() == []
    ticks = s.take_in()
    assert ticks > 50
    assert s.count("tasks") == 5_000


def test_large_graph__others_are_answered_meanwhile() -> None:
    s = Script(workers={"a": 1}, clients=("c", "d"), slice=100)
    graph = s.begin(by="c")
    s.part(roots("x", 5_000), graph, by="c")
    s.commit(graph, by="c")
    s.tick()
    s.submit({"y": []}, by="d")
    assert s.sent()[0] == ("y", "a")
    s.finish("y")
    assert s.reports("d") == [("finished", "y")]


def test_two_large_graphs__take_turns() -> None:
    s = Script(workers={"a": 1}, clients=("c", "d"), slice=100)
    for name in ("c", "d"):
        graph = s.begin(by=name)
        s.part(roots(name, 2_000), graph, by=name)
        s.commit(graph, by=name)
    while s.count("tasks") == 0:
        s.tick()
    while s.status("c-1500") == "unknown":
        s.tick()
    assert s.status("d-500") != "unknown"
    s.take_in()
    assert s.count("tasks") == 4_000


# ---------------------------------------------------------------------------------------------- deferred


def test_events_behind_a_graph_coming_in__wait_for_it_in_order() -> None:
    s = Script(workers={"a": 1}, slice=10)
    graph = s.begin()
    s.part(roots("x", 500), graph)
    s.commit(graph)
    s.release(*keys_of("x", 499))
    s.submit({"y": ["x-499"]}, want=["y"])
    assert s.statuses("x-0", "x-499", "y") == ["unknown", "processing", "waiting"]


def test_second_graph_behind_one_coming_in__waits_and_may_use_its_keys() -> None:
    s = Script(workers={"a": 1}, slice=10)
    one = s.begin()
    s.part(roots("x", 500), one)
    s.commit(one)
    two = s.begin()
    s.part({"y": ["x-3"]}, two)
    s.commit(two)
    s.cancel("x-7")
    s.take_in()
    assert s.status("y") == "waiting"
    assert s.status("x-7") == "unknown"
    assert ("cancelled", "x-7") in s.reports()


def test_client_gone_while_its_graph_comes_in__leaves_nothing() -> None:
    s = Script(workers={"a": 1}, clients=("c", "d"), slice=10)
    for ticks in range(0, 300, 20):
        name = f"leaver {ticks}"
        s.client(name)
        graph = s.begin(by=name)
        s.part({**roots("x", 100), **chain(100)}, graph, by=name)
        s.commit(graph, by=name)
        for _ in range(ticks):
            s.tick()
        s.client_leaves(name)
        assert s.count("tasks") == 0, ticks
        assert s.take_in() <= 1
    assert s.row("a")["processing"] == 0


def test_client_gone_before_its_commit__leaves_nothing() -> None:
    s = Script(workers={"a": 1})
    graph = s.begin()
    s.part(roots("x", 10), graph)
    s.client_leaves()
    assert s.count("tasks") == 0
    s.commit(graph)
    assert s.count("dropped_events") == 1


def test_input_released_by_another_client_while_a_graph_comes_in__is_kept_for_it() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, clients=("c", "d"), slice=10)
    s.finish("x")
    graph = s.begin(by="d")
    s.part({f"y-{i}": ["x"] for i in range(200)}, graph, by="d")
    s.commit(graph, by="d")
    for _ in range(30):
        s.tick()
    s.release("x", by="c")
    s.take_in()
    assert s.freed() == []
    assert s.status("x") == "memory"
    assert s.status("y-199") in ("queued", "processing")


# ---------------------------------------------------------------------------------------------- cull


def test_tasks_that_no_wanted_key_needs__are_not_created() -> None:
    s = Script(workers={"a": 4}, graph={"x": [], "y": ["x"], "v": [], "w": ["v"]}, want=["y"])
    assert s.statuses("x", "y", "v", "w") == ["processing", "waiting", "unknown", "unknown"]


def test_culled_graph_out_of_order__is_ordered_all_the_same() -> None:
    s = Script(workers={"a": 1}, graph={"z": ["y"], "v": ["x"], "y": ["x"], "x": []}, want=["z"])
    assert s.count("tasks") == 3
    assert s.play() == {"a": ["x", "y", "z"]}


def test_graph_that_wants_nothing__creates_nothing() -> None:
    s = Script(workers={"a": 4}, graph={"x": [], "y": ["x"]}, want=[])
    assert s.count("tasks") == 0


# ---------------------------------------------------------------------------------------------- refused


def test_cycle__refuses_the_graph_and_is_named() -> None:
    s = Script(workers={"a": 4}, graph={"x": ["z"], "y": ["x"], "z": ["y"], "free": []})
    assert s.count("tasks") == 0
    assert sorted(s.reports()) == [("erred", key) for key in ("free", "x", "y", "z")]
    failure = s.failure("free")
    assert failure.kind == "graph"
    assert "'x' -> 'z' -> 'y' -> 'x'" in failure.text


def test_task_that_needs_itself__is_a_cycle() -> None:
    s = Script(workers={"a": 4}, graph={"x": ["x"]})
    assert s.failure("x").kind == "graph"
    assert "'x' -> 'x'" in s.failure("x").text


def test_long_cycle__is_named_in_part() -> None:
    s = Script(workers={"a": 4}, graph={f"x-{i}": [f"x-{(i + 1) % 50}"] for i in range(50)})
    assert "43 more" in s.failure("x-0").text


def test_unknown_input__refuses_the_graph_and_is_named() -> None:
    s = Script(workers={"a": 4}, graph={"x": ["nobody"], "y": []})
    assert s.count("tasks") == 0
    failure = s.failure("y")
    assert failure.kind == "graph"
    assert "'x'" in failure.text and "'nobody'" in failure.text


def test_key_twice_in_one_graph__refuses_it() -> None:
    s = Script(workers={"a": 4})
    graph = s.begin()
    s.part([("x", []), ("y", []), ("x", [])], graph)
    s.commit(graph)
    assert s.count("tasks") == 0
    assert s.reports() == [("erred", "x"), ("erred", "y")]
    assert "'x' is twice" in s.failure("x").text


def test_key_twice_in_two_parts__refuses_the_graph() -> None:
    s = Script(workers={"a": 4})
    graph = s.begin()
    s.part({"x": []}, graph)
    s.part({"x": []}, graph)
    s.commit(graph)
    assert s.count("tasks") == 0
    assert s.reports() == [("erred", "x")]


def test_unknown_wanted_key__refuses_the_graph() -> None:
    s = Script(workers={"a": 4}, graph={"x": []}, want=["x", "nobody"])
    assert s.count("tasks") == 0
    assert s.reports() == [("erred", "x"), ("erred", "nobody")]


def test_wanted_key_that_only_the_cluster_knows__is_wanted_from_there() -> None:
    s = Script(workers={"a": 4}, graph={"x": []}, clients=("c", "d"))
    s.finish("x")
    s.submit({"y": []}, want=["x", "y"], by="d")
    assert s.reports("d") == [("finished", "x")]


def test_refused_graph__what_the_client_had_stays_as_it_is() -> None:
    s = Script(workers={"a": 4}, graph={"x": []})
    s.finish("x")
    s.reports()
    s.submit({"x": [], "y": ["nobody"]})
    assert s.reports() == [("erred", "y")]
    assert s.status("x") == "memory"


def test_refused_graph__the_next_one_comes_in() -> None:
    s = Script(workers={"a": 4}, graph={"x": ["x"]})
    s.submit({"x": []})
    assert s.status("x") == "processing"


def test_refused_graph__does_not_keep_the_inputs_it_named() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, clients=("c", "d"))
    s.finish("x")
    s.submit({"y": ["x", "nobody"]}, by="d")
    s.release("x", by="c")
    assert s.count("tasks") == 0


# ---------------------------------------------------------------------------------------------- again


def test_resubmission_of_a_running_task__runs_once_and_tells_both() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, clients=("c", "d"))
    s.submit({"x": []}, by="d")
    assert s.sent() == [("x", "a")]
    s.finish("x")
    assert (s.reports("c"), s.reports("d")) == ([("finished", "x")], [("finished", "x")])


def test_resubmission_of_a_finished_task__is_answered_at_once() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, clients=("c", "d"))
    s.finish("x")
    s.submit({"x": []}, by="d")
    assert s.reports("d") == [("finished", "x")]
    assert s.sent() == [("x", "a")]


def test_resubmission_of_a_failed_task__is_answered_at_once() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, clients=("c", "d"))
    s.fail("x")
    s.submit({"x": []}, by="d")
    assert s.reports("d") == [("erred", "x")]


def test_resubmission_of_a_waiting_task__the_first_spec_wins() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]}, clients=("c", "d"))
    s.submit({"y": []}, by="d")
    assert s.status("y") == "waiting"
    s.finish("x")
    s.finish("y")
    assert s.reports("d") == [("finished", "y")]


def test_resubmission_with_other_inputs__is_logged() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]})
    s.submit({"y": []})
    assert s.logged() == ["spec-ignored"]
    s.submit({"v": [], "x": ["v"]})
    assert s.logged() == ["spec-ignored"]
    s.submit({"v": [], "x": []})
    assert s.logged() == []


def test_resubmission_of_a_queued_task__waits_no_second_time() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 5), clients=("c", "d"))
    assert s.status("x-4") == "queued"
    s.submit(roots("x", 5), by="d")
    assert s.play() == {"a": keys_of("x", 5)}
    assert len(s.reports("d")) == 5


def test_resubmission_without_a_worker__runs_once_one_comes() -> None:
    s = Script(graph={"x": []}, clients=("c", "d"))
    s.submit({"x": []}, by="d")
    assert s.status("x") == "no-worker"
    s.worker("a")
    assert s.sent() == [("x", "a")]


def test_resubmission_of_a_value_that_was_let_go__is_computed_again() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]}, want=["y"])
    s.finish("x")
    s.finish("y")
    assert s.status("x") == "released"
    s.sent()
    s.submit({"x": []})
    assert s.sent() == [("x", "a")]
    s.finish("x")
    assert ("finished", "x") in s.reports()


def test_resubmission_after_release__is_a_new_task() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.finish("x")
    s.release("x")
    s.submit({"x": []})
    assert s.status("x") == "processing"


def test_chain_of_released_values__is_computed_as_far_back_as_needed() -> None:
    s = Script(workers={"a": 1}, graph=chain(4), want=["x-3"])
    s.play()
    assert s.statuses("x-0", "x-1", "x-2", "x-3") == ["released"] * 3 + ["memory"]
    s.desire("x-2")
    assert s.play() == {"a": ["x-0", "x-1", "x-2"]}
    assert s.reports()[-1] == ("finished", "x-2")


# ---------------------------------------------------------------------------------------------- clients


def test_key_wanted_by_two__stays_when_one_releases_it() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, clients=("c", "d"))
    s.desire("x", by="d")
    s.finish("x")
    s.release("x", by="c")
    assert s.freed() == []
    s.release("x", by="d")
    assert s.freed() == [("x", "a")]


def test_client_gone__what_only_it_wanted_is_given_up() -> None:
    s = Script(workers={"a": 2}, graph={"x": [], "y": []}, clients=("c", "d"))
    s.desire("y", by="d")
    s.client_leaves("c")
    assert s.freed() == [("x", "a")]
    assert s.statuses("x", "y") == ["unknown", "processing"]


def test_unknown_key_desired__is_answered_as_cancelled() -> None:
    s = Script()
    s.desire("nobody")
    assert s.reports() == [("cancelled", "nobody")]
    assert s.count("tasks") == 0


def test_failed_key_desired__is_answered_at_once() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, clients=("c", "d"))
    s.fail("x")
    s.desire("x", by="d")
    assert s.reports("d") == [("erred", "x")]


def test_keys_of_two_clients_with_the_same_name__are_kept_apart() -> None:
    s = Script(workers={"a": 1}, clients=("c", "c"))
    first, second = [n for n, name in s.names.items() if name == "c"]
    assert first != second
    s.submit({"x": []})
    s.step(GraphPart(first, 1, ["x"], ["s"], ["k"], [None], [Options()], {}))
    assert s.count("clients") == 2


@pytest.mark.parametrize("key", [("x", 1), 5, frozenset({1}), b"x"])
def test_keys__may_be_any_hashable(key: object) -> None:
    s = Script(workers={"a": 1})
    graph = s.begin()
    s.step(
        GraphPart(
            s.numbers["c"], graph, [key, "y"], ["s", "s"], ["k", "k"], [["y"], None], [Options()] * 2, {}
        )
    )
    s.commit(graph)
    assert s.view.who_has([key])[0][1] == "waiting"


def test_question_behind_a_graph_that_is_coming_in__is_answered_when_that_is_there() -> None:
    s = Script(workers={"a": 1}, slice=5)
    graph = s.begin()
    s.part(chain(100), graph)
    s.commit(graph)
    s.step(QuestionAsked(s.numbers["c"], 7))
    assert s.take(AnswerQuestion) == []
    s.take_in()
    (answer,) = s.take(AnswerQuestion)
    assert answer.question == 7
    assert s.statuses("x-0", "x-99") == ["processing", "waiting"]


def test_question_of_a_client_with_nothing_on_its_way__is_answered_at_once_behind_what_was_reported() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.out.clear()
    s.cancel("x")
    s.step(QuestionAsked(s.numbers["c"], 7))
    kinds = [type(each).__name__ for each in s.out if each.peer == s.numbers["c"]]
    assert kinds == ["ReportCancelled", "AnswerQuestion"]
