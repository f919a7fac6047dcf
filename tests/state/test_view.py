"""Questions to a live state: fresh, plain answers."""

from __future__ import annotations

import json

from shunter.state import (
    AcquireFailed,
    ClientAdded,
    Heartbeat,
    Options,
    PreferencesSet,
    ProposalMade,
    RebalanceRequested,
    ReplicateRequested,
    Reply,
    RetireRequested,
)
from tests.state.script import Script, roots


def test_counts__say_how_many_tasks_are_in_each_status() -> None:
    s = Script(workers={"a": 1, "b": 2}, graph={"x": [], "y": ["x"], "bad": []}, clients=("c", "d"))
    s.fail("bad")
    counts = s.view.counts()
    assert (counts["processing"], counts["waiting"], counts["erred"], counts["tasks"]) == (1, 1, 1, 3)
    assert (counts["workers"], counts["threads"], counts["clients"]) == (2, 3, 2)
    assert counts["dropped_events"] == 0


def test_threads__are_those_of_running_workers() -> None:
    s = Script(workers={"a": 1, "b": 2})
    s.pause("b")
    assert s.count("threads") == 1


def test_worker_row__says_what_it_is_and_does() -> None:
    s = Script()
    s.worker("a", 2, host="here", resources={"GPU": 1.0})
    s.submit(roots("x", 10))
    s.finish("x-0", nbytes=100, seconds=1.0)
    row = s.row("a")
    assert (row["name"], row["address"], row["host"]) == ("a", "tcp://a:1", "here")
    assert (row["nthreads"], row["status"], row["resources"]) == (2, "running", {"GPU": 1.0})
    assert (row["processing"], row["queued"], row["held"], row["nbytes"]) == (3, 6, 1, 100)
    assert row["occupancy"] == 0.5 + 0.5 + 1.0  # two were sent when nothing was known


def test_heartbeat__is_shown() -> None:
    s = Script(workers={"a": 1})
    s.now += 3.0
    s.step(Heartbeat(s.numbers["a"], 1_000, 500, 12.5))
    s.now += 2.0
    s.tick()
    row = s.row("a")
    assert (row["process"], row["spilled"], row["cpu"], row["last_seen"]) == (1_000, 500, 12.5, 2.0)


def test_kinds__have_means_once_one_has_finished() -> None:
    s = Script(workers={"a": 1}, graph={"f-0": [], "f-1": [], "g-0": []})
    s.finish("f-0", seconds=0.25, nbytes=100)
    rows = {row["name"]: row for row in s.view.kinds()}
    assert rows["f"] == {"name": "f", "alive": 2, "finished": 1, "duration": 0.25, "nbytes": 100}
    assert (rows["g"]["duration"], rows["g"]["nbytes"]) == (None, None)


def test_who_has__answers_for_each_key_asked() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]})
    s.finish("x", nbytes=5)
    assert s.view.who_has(["y", "nobody", "x"]) == [
        ("y", "processing", -1, []),
        ("nobody", "unknown", -1, []),
        ("x", "memory", 5, [s.numbers["a"]]),
    ]


def test_status__is_plain_data() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    assert set(json.loads(json.dumps(s.view.status()))) == {"counts", "workers", "kinds"}


def test_answers__are_copies() -> None:
    s = Script(workers={"a": 1})
    s.view.workers().clear()
    s.view.counts()["tasks"] = 99
    assert (s.count("workers"), s.count("tasks")) == (1, 0)


# ---------------------------------------------------------------------------------------------- why


def test_why__of_each_status() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 4))
    s.submit({"y": ["x-0", "x-1"], "z": []})
    assert "sent to worker 'a'" in s.view.why("x-0")
    assert "waits for a thread; worker 'a'" in s.view.why("x-3")
    assert "waits for a free thread on any worker" in s.view.why("z")
    assert s.view.why("y") == "'y' waits for 'x-0' (processing), 'x-1' (processing)"
    assert "not known" in s.view.why("nobody")
    s.finish("x-0")
    assert "done: 8 bytes on 1 worker" in s.view.why("x-0")
    s.fail("x-1", text="boom")
    assert s.view.why("y") == "'y' failed because of 'x-1': boom"


def test_why_a_value_is_not_there__nobody_needs_it() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]}, want=["y"])
    s.finish("x")
    s.finish("y")
    assert "nobody needs" in s.view.why("x")


def test_why_with_many_inputs__names_some() -> None:
    s = Script(workers={"a": 1}, graph={**roots("x", 10), "y": list(roots("x", 10))})
    assert "and 7 more" in s.view.why("y")


def test_why_of_a_task_of_a_graph_that_comes_in__says_so() -> None:
    s = Script(workers={"a": 1}, slice=10)
    graph = s.begin()
    s.part(roots("x", 300), graph)
    s.commit(graph)
    while s.status("x-0") == "unknown":
        s.tick()
    assert "coming in" in s.view.why("x-0")
    s.take_in()


# ---------------------------------------------------------------------------------------------- deadlines


def test_nothing_to_wait_for__no_deadline() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    assert s.state.next_deadline == float("inf")


def test_graph_coming_in__the_deadline_is_now() -> None:
    s = Script(slice=10)
    graph = s.begin()
    s.part(roots("x", 300), graph)
    s.commit(graph)
    assert s.state.next_deadline <= s.now
    s.take_in()


def test_worker_gone_without_a_word__the_deadline_is_that_of_the_blame() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, no_workers_timeout=60.0)
    s.link_breaks("a")
    assert s.state.next_deadline == s.now + 2.0
    s.wait(2.0)
    assert s.state.next_deadline == s.now - 2.0 + 60.0


def test_tick_too_early__changes_nothing() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, options=Options(retries=1, retry_delay=5.0))
    s.fail("x")
    s.tick()
    assert s.status("x") == "waiting"


def test_clock_that_goes_back__is_not_followed() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, options=Options(retries=1, retry_delay=5.0))
    s.now -= 50.0
    s.fail("x")
    assert s.state.next_deadline == 105.0


# ---------------------------------------------------------------------------------------------- odd peers


def test_events_of_unknown_clients__are_dropped_and_counted() -> None:
    s = Script(workers={"a": 1})
    s.numbers["ghost"] = 999
    s.submit({"x": []}, by="ghost")
    s.release("x", by="ghost")
    s.client_leaves("ghost")
    assert s.count("dropped_events") == 5
    assert s.count("tasks") == 0


def test_events_of_unknown_workers__are_dropped_and_counted() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.numbers["ghost"] = 999
    s.runs[999] = {1: "x"}
    s.threads[999] = 1
    s.finished(999, [("x", 1)])
    s.holds("ghost", "x")
    s.loses("ghost", "x")
    s.pause("ghost")
    s.complain("ghost", "x", about=[])
    s.answer("ghost")
    s.parent_tells("ghost", started=[])
    s.link_breaks("ghost")
    s.step(Heartbeat(999, 0, 0, 0.0), AcquireFailed(999, ["x"]))
    assert s.count("dropped_events") == 10
    assert s.status("x") == "processing"


def test_client_number_used_twice__is_dropped() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.step(ClientAdded(s.numbers["c"], "other"))
    assert s.count("dropped_events") == 1
    s.finish("x")
    assert s.reports() == [("finished", "x")]


def test_requests_that_this_version_cannot_do__are_refused_in_words() -> None:
    s = Script()
    c = s.numbers["c"]
    s.step(
        RebalanceRequested(c, 1, None, None),
        ReplicateRequested(c, 2, ["x"], 2, None),
        RetireRequested(c, 3, [1], 60.0),
    )
    replies = s.take(Reply)
    assert [(reply.peer, reply.request, reply.ok) for reply in replies] == [(c, n, False) for n in (1, 2, 3)]
    assert all("cannot" in str(reply.value) for reply in replies)


def test_proposals__are_refused_in_the_log() -> None:
    s = Script()
    s.step(ProposalMade("plugin", "anything", {}), PreferencesSet("f", {"a": 1.0}, 200.0))
    assert s.logged() == ["proposal-refused", "proposal-refused"]
