"""Who joins and who leaves. Over loopback, with a false state."""

from __future__ import annotations

import time

import pytest

from shunter.errors import PeerError
from shunter.server import membership
from shunter.server.membership import heartbeat_interval, skew_of
from shunter.state import ClientAdded, ClientRemoved, WorkerAdded, WorkerDied, WorkerRemoved
from shunter.wire import messages
from tests.server.harness import Running, with_scheduler

ADDRESS = "tcp://127.0.0.1:1001"
ELSEWHERE = "tcp://127.0.0.1:1002"


def test_newcomers__get_numbers_that_are_never_reused() -> None:
    async def story(s: Running) -> None:
        first = await s.client("a")
        parent = await s.parent()
        worker = await s.worker()
        first.link.close("bye")
        await s.steps(ClientRemoved)
        second = await s.client("a")
        assert [first.number, parent.number, worker.number, second.number] == [1, 2, 3, 4]
        assert [(e.client, e.name) for e in s.state.of(ClientAdded)] == [(1, "a"), (4, "a")]

    with_scheduler(story)


def test_worker_added__carries_what_the_worker_said() -> None:
    async def story(s: Running) -> None:
        worker = await s.worker("a", ADDRESS, nthreads=3)
        (added,) = await s.steps(WorkerAdded)
        assert (added.worker, added.address, added.name) == (worker.number, ADDRESS, "a")
        assert (added.host, added.nthreads, added.memory_limit, added.resources) == ("127.0.0.1", 3, 0, {})
        welcome = worker.link.peer_details
        assert welcome["name"] == "a"
        assert welcome["heartbeat"] == 1.0
        assert welcome["clock"] == pytest.approx(time.time(), abs=60)

    with_scheduler(story)


def test_nameless_worker__is_called_by_its_address() -> None:
    async def story(s: Running) -> None:
        worker = await s.worker("", ADDRESS)
        assert worker.link.peer_details["name"] == ADDRESS

    with_scheduler(story)


@pytest.mark.parametrize("goodbye", [True, False])
def test_worker_link_closes__is_removed_as_expected_or_not(goodbye: bool) -> None:
    async def story(s: Running) -> None:
        worker = await s.worker()
        if goodbye:
            worker.send(messages.Goodbye("retired"))
        worker.link.close("bye")
        (removed,) = await s.steps(WorkerRemoved)
        assert (removed.worker, removed.expected) == (worker.number, goodbye)
        assert removed.reason == ("retired" if goodbye else removed.reason)
        assert removed.reason

    with_scheduler(story)


def test_same_address__newcomer_replaces() -> None:
    async def story(s: Running) -> None:
        old = await s.worker("a", ADDRESS)
        new = await s.worker("b", ADDRESS)
        assert "replaced" in await old.closed()
        await s.steps(WorkerAdded, 2)
        assert s.state.names() == ["WorkerAdded", "WorkerRemoved", "WorkerAdded"]
        (removed,) = s.state.of(WorkerRemoved)
        assert (removed.worker, removed.expected) == (old.number, False)
        assert new.closed_for is None

    with_scheduler(story)


def test_same_name_elsewhere_and_the_older_lives__newcomer_is_refused() -> None:
    async def story(s: Running) -> None:
        old = await s.worker("a", ADDRESS)
        answer = old.on_message

        def on_message(link: object, header: list[object], body: bytes) -> None:
            answer(old.link, header, body)
            if header == ["heartbeat"]:
                old.send(messages.WorkerHeartbeat(1, 0, 0.0))

        old.on_message = on_message  # type: ignore[method-assign]  # a peer that answers
        with pytest.raises(PeerError, match="there is a worker named 'a' already"):
            await s.worker("a", ELSEWHERE)
        assert old.closed_for is None
        assert len(s.state.of(WorkerAdded)) == 1

    with_scheduler(story)


def test_same_name_elsewhere_and_the_older_is_dead__newcomer_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(membership, "PING_S", 0.05)

    async def story(s: Running) -> None:
        old = await s.worker("a", ADDRESS)  # It never answers.
        new = await s.worker("a", ELSEWHERE)
        await s.steps(WorkerAdded, 2)
        assert "did not answer" in await old.closed()
        assert s.state.names() == ["WorkerAdded", "WorkerRemoved", "WorkerAdded"]
        assert new.closed_for is None

    with_scheduler(story)


def test_older_namesake_leaves_while_it_is_asked__newcomer_joins() -> None:
    async def story(s: Running) -> None:
        old = await s.worker("a", ADDRESS)
        answer = old.on_message

        def on_message(link: object, header: list[object], body: bytes) -> None:
            answer(old.link, header, body)
            old.link.close("on its way out")

        old.on_message = on_message  # type: ignore[method-assign]  # a peer that answers
        await s.worker("a", ELSEWHERE)
        await s.steps(WorkerAdded, 2)

    with_scheduler(story)


def test_data_connection__is_refused_with_a_hint() -> None:
    async def story(s: Running) -> None:
        with pytest.raises(PeerError, match="this port serves client"):
            await s._connect("data", {}, messages.from_scheduler_to_client)

    with_scheduler(story)


def test_death_told_after_the_link_closed__is_passed_on() -> None:
    async def story(s: Running) -> None:
        parent = await s.parent()
        worker = await s.worker(parent=parent.number)
        worker.link.close("killed")
        await s.steps(WorkerRemoved)
        parent.send(messages.Died(worker.number, "signal 9 (SIGKILL)", [5]))
        (died,) = await s.steps(WorkerDied)
        assert (died.worker, died.cause, died.started) == (worker.number, "signal 9 (SIGKILL)", [5])

    with_scheduler(story)


def test_death_told_before_the_link_closed__waits_for_what_the_worker_still_said() -> None:
    async def story(s: Running) -> None:
        parent = await s.parent()
        worker = await s.worker(parent=parent.number)
        parent.send(messages.Died(worker.number, "exit code 3", []))
        parent.send(messages.Heartbeat())
        client = await s.client()
        client.send(messages.Heartbeat())
        await client.next(messages.Heartbeat)
        assert not s.state.of(WorkerDied)
        worker.send(messages.Added(["a"], [1], [1]))
        worker.link.close("dead")
        await s.steps(WorkerDied)
        names = s.state.names()
        assert names[names.index("KeysAdded") :] == ["KeysAdded", "WorkerRemoved", "WorkerDied"]

    with_scheduler(story)


def test_parent_speaks_of_a_worker_that_is_not_its_child__is_closed() -> None:
    async def story(s: Running) -> None:
        stranger = await s.parent()
        worker = await s.worker()
        stranger.send(messages.Died(worker.number, "exit code 3", []))
        assert "not a child" in await stranger.closed()
        assert worker.closed_for is None
        assert not s.state.of(WorkerDied)

    with_scheduler(story)


def test_worker_whose_parent_is_here__can_be_replaced() -> None:
    async def story(s: Running) -> None:
        parent, client = await s.parent(), await s.client()
        await s.worker("a", "tcp://127.0.0.1:1", parent=parent.number)
        await s.worker("b", "tcp://127.0.0.1:2")
        await s.worker("c", "tcp://127.0.0.1:3", parent=client.number)  # That is nobody's parent.
        await s.worker("d", "tcp://127.0.0.1:4", parent=999)
        added = await s.steps(WorkerAdded, 4)
        assert [(each.name, each.has_parent) for each in added] == [
            ("a", True),
            ("b", False),
            ("c", False),
            ("d", False),
        ]

    with_scheduler(story)


@pytest.mark.parametrize(
    ("workers", "worker_ttl", "seconds"),
    [(1, 300.0, 1.0), (100, 0.0, 1.0), (1000, 300.0, 10.0), (100_000, 300.0, 75.0), (1, 2.0, 0.5)],
)
def test_heartbeats__are_cheap_together_and_four_in_the_time_of_a_worker(
    workers: int, worker_ttl: float, seconds: float
) -> None:
    assert heartbeat_interval(workers, worker_ttl) == seconds


@pytest.mark.parametrize(("difference", "skew"), [(0.01, 0.0), (-0.01, 0.0), (3.0, 3.0), (-3.0, -3.0)])
def test_small_difference_of_clocks__is_not_skew(difference: float, skew: float) -> None:
    assert skew_of(difference) == skew
