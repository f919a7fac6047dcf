"""Restart: everything of everybody is given up, workers are replaced, and the answer waits for them."""

from __future__ import annotations

from shunter.state import (
    ClientDesiresKeys,
    FreeKeys,
    GraphBegin,
    GraphCommit,
    KillWorker,
    Options,
    Reply,
    Restarted,
    RestartRequested,
)
from tests.state.script import Script, chain, roots


def restart(s: Script, *, by: str = "c", timeout: float = 30.0) -> None:
    s.step(RestartRequested(s.numbers[by], 7, timeout))


def replies(s: Script) -> list[tuple[str, bool]]:
    return [(s.names[each.peer], each.ok) for each in s.take(Reply)]


def killed(s: Script) -> list[str]:
    return [s.names[each.peer] for each in s.take(KillWorker)]


def test_work_of_all_clients__is_given_up() -> None:
    s = Script(clients=("c", "d"), workers={"a": 2})
    s.submit({"x": [], "y": ["x"]}, by="c")
    s.submit({"u": [], "v": ["y"]}, by="d")
    s.finish("u")
    restart(s)
    assert s.count("tasks") == 0
    assert [s.names[each.peer] for each in s.take(Restarted)] == ["c", "d"]
    assert sorted({str(key) for each in s.take(FreeKeys) for key in each.keys}) == ["u", "x"]
    assert replies(s) == [("c", True)]


def test_worker_without_a_parent__stays() -> None:
    s = Script(workers={"a": 1})
    restart(s)
    assert killed(s) == []
    s.submit({"x": []})
    assert s.sent() == [("x", "a")]


def test_workers_with_a_parent__are_replaced_and_the_answer_waits_for_them() -> None:
    s = Script()
    for name in ("a", "b"):
        s.worker(name, has_parent=True)
    s.submit(roots("x", 4))
    s.sent()
    restart(s)
    assert killed(s) == ["a", "b"]
    assert replies(s) == []
    s.submit({"y": []})
    assert s.sent() == []  # nothing goes to a worker that is about to be killed
    s.link_breaks("a")
    s.worker("a", has_parent=True)
    assert replies(s) == []
    s.worker("b", has_parent=True)
    assert replies(s) == [("c", True)]
    assert s.sent() == [("y", "a")]


def test_killed_workers__make_nobody_suspect() -> None:
    s = Script(allowed_failures=0)
    s.worker("a", has_parent=True)
    s.submit({"x": []})
    restart(s)
    s.parent_tells("a", started=["x"])
    s.link_breaks("a")
    s.worker("a", has_parent=True)
    s.submit({"x": []})
    s.wait(10.0)
    assert s.status("x") == "processing"


def test_workers_do_not_come_back__the_answer_says_how_many_did() -> None:
    s = Script()
    for name in ("a", "b"):
        s.worker(name, has_parent=True)
    restart(s, timeout=5.0)
    s.worker("a", has_parent=True)
    s.wait(6.0)
    (reply,) = s.take(Reply)
    assert not reply.ok
    assert "1 of 2 workers" in str(reply.value)
    s.worker("b", has_parent=True)
    assert replies(s) == []


def test_client_leaves_while_it_waits__nobody_is_answered() -> None:
    s = Script()
    s.worker("a", has_parent=True)
    restart(s, timeout=5.0)
    s.client_leaves()
    s.worker("a", has_parent=True)
    s.wait(10.0)
    assert replies(s) == []
    assert s.state.next_deadline == float("inf")


def test_graph_that_is_coming_in__is_given_up_and_what_waits_behind_it_is_answered() -> None:
    s = Script(workers={"a": 1}, slice=5)
    c = s.numbers["c"]
    graph = s.begin()
    s.part(chain(100), graph)
    s.commit(graph)
    s.step(ClientDesiresKeys(c, ["x-3"]))
    restart(s)
    s.take_in()
    s.wait(1.0)
    assert s.count("tasks") == 0
    assert ("cancelled", "x-3") in s.reports()


def test_graph_begun_before_and_committed_after__is_taken() -> None:
    """The client has not heard of the restart yet. It releases the keys when it does."""
    s = Script(workers={"a": 1})
    c = s.numbers["c"]
    s.step(GraphBegin(c, 9, False, None))
    restart(s)
    s.step(GraphCommit(c, 9, []))
    assert s.closed() == []


def test_delayed_retry__does_not_come_back() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, options=Options(retries=1, retry_delay=5.0))
    s.fail("x")
    restart(s)
    s.wait(10.0)
    assert s.count("tasks") == 0


def test_request_of_a_client_that_is_gone__is_dropped() -> None:
    s = Script(clients=("c", "d"), workers={"a": 1}, graph={"x": []})
    s.client_leaves("d")
    restart(s, by="d")
    assert s.status("x") == "processing"
    assert s.count("dropped_events") == 1


def test_restart_while_another_waits_for_its_workers__waits_for_as_many() -> None:
    s = Script(clients=("c", "d"))
    s.worker("a", has_parent=True)
    restart(s, by="c")
    restart(s, by="d")
    assert replies(s) == []
    s.worker("a", has_parent=True)
    assert replies(s) == [("c", True), ("d", True)]
