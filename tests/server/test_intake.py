"""Messages become events; a bad one closes its own peer alone. Over loopback, with a false state."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from shunter.server.functions import digest_of
from shunter.server.intake import TRACEBACK_MAX
from shunter.state import (
    DEFAULT_OPTIONS,
    AcquireFailed,
    ClientDesiresKeys,
    ClientReleasesKeys,
    DataReleased,
    DataScattered,
    DatasetPublished,
    DatasetRequested,
    DatasetUnpublished,
    Event,
    GraphAborted,
    GraphBegin,
    GraphCommit,
    GraphPart,
    Heartbeat,
    KeysAdded,
    KeysCancelled,
    KeysDetached,
    KeysRetried,
    LongRunning,
    PrioritySet,
    RestartRequested,
    TakeBackAnswered,
    TaskFailed,
    TaskRescheduled,
    TasksFinished,
    WhoHasRequested,
    WorkerStatusChanged,
)
from shunter.wire import messages
from tests.server.harness import Peer, Running, with_scheduler


def announce(number: int = 0, blob: bytes = b"f", name: str = "inc") -> messages.Functions:
    return messages.Functions([number], [digest_of(blob)], [name], [blob])


def submit(*keys: str, function: int = 0, wanted: list[str] | None = None) -> messages.Submit:
    count = len(keys)
    return messages.Submit(
        1, None, list(keys), [function] * count, [None] * count, [], [-1] * count, wanted, [b"args"] * count
    )


def fields(event: Any, expected: Mapping[str, object]) -> dict[str, object]:
    """The fields of an event that are named in what is expected."""
    return {name: getattr(event, name) for name in expected}


def assert_events(found: list[Event], expected: list[tuple[type[Event], dict[str, object]]]) -> None:
    assert [type(event) for event in found] == [kind for kind, _ in expected]
    for event, (_, said) in zip(found, expected):
        assert fields(event, said) == said


# ------------------------------------------------------------------------------------- clients


def test_submit__is_begun_sent_and_committed() -> None:
    async def story(s: Running) -> None:
        client = await s.client()
        client.send(announce(), submit("x", "y", wanted=["y"]))
        await s.steps(GraphCommit)
        assert s.state.names() == ["ClientAdded", "GraphBegin", "GraphPart", "GraphCommit"]
        begin, part, commit = (s.state.of(kind)[0] for kind in (GraphBegin, GraphPart, GraphCommit))
        said = {"client": client.number, "graph": 1, "in_order": True, "parent": None}
        assert fields(begin, said) == said
        assert part.keys == ["x", "y"]
        assert part.kinds == [digest_of(b"f")] * 2
        assert part.kind_names == {digest_of(b"f"): "inc"}
        assert part.options == [DEFAULT_OPTIONS] * 2
        assert [(function.blob, arguments) for function, arguments in part.specs] == [(b"f", b"args")] * 2
        assert part.specs[0][0] is part.specs[1][0]
        assert commit.wanted == ["y"]

    with_scheduler(story)


def test_graph_part__resolves_shared_options_and_tells_names() -> None:
    async def story(s: Running) -> None:
        client = await s.client()
        part = messages.GraphPart(
            1,
            ["x", "y", "z"],
            [0, 0, 0],
            [None, ["x"], None],
            [{"retries": 2, "workers": ["a"]}, {"priority": 3.0}],
            [0, -1, 0],
            [b"1", b"2", b"3"],
        )
        client.send(announce(), messages.GraphBegin(1, False, "parent"), part, part._replace(graph=2))
        first, second = await s.steps(GraphPart, 2)
        assert first.inputs == [None, ["x"], None]
        assert (first.options[0].retries, first.options[0].workers) == (2, ["a"])
        assert first.options[0] is first.options[2]
        assert first.options[1] is DEFAULT_OPTIONS
        assert list(first.kind_names.values()) == list(second.kind_names.values()) == ["inc"]

    with_scheduler(story)


def test_other_requests_of_clients__become_their_events() -> None:
    async def story(s: Running) -> None:
        client = await s.client()
        n = client.number
        client.send(
            messages.GraphBegin(4, True, None),
            messages.GraphCommit(4, None),
            messages.GraphAbort(5),
            messages.Desire(["a"]),
            messages.Release(["b"]),
            messages.Cancel(["c"], True),
            messages.Retry(["d"]),
            messages.SetPriority(["e"], 2.5),
            messages.Scattered(["f"], [8], [[3, 4]]),
            messages.Detach(["g"]),
            messages.Publish(7, "sales", ["h"], "data", True),
            messages.GetDataset(8, "sales"),
            messages.Unpublish(9, "sales"),
            messages.Restart(10, 2.5),
        )
        await s.steps(RestartRequested)
        expected: list[tuple[type[Event], dict[str, object]]] = [
            (GraphBegin, {"client": n, "graph": 4, "in_order": True, "parent": None}),
            (GraphCommit, {"client": n, "graph": 4, "wanted": None}),
            (GraphAborted, {"client": n, "graph": 5}),
            (ClientDesiresKeys, {"client": n, "keys": ["a"]}),
            (ClientReleasesKeys, {"client": n, "keys": ["b"]}),
            (KeysCancelled, {"client": n, "keys": ["c"], "force": True}),
            (KeysRetried, {"client": n, "keys": ["d"]}),
            (PrioritySet, {"client": n, "keys": ["e"], "priority": 2.5}),
            (DataScattered, {"client": n, "keys": ["f"], "nbytes": [8], "holders": [[3, 4]]}),
            (KeysDetached, {"client": n, "keys": ["g"]}),
            (
                DatasetPublished,
                {"client": n, "request": 7, "name": "sales", "keys": ["h"], "data": "data", "replace": True},
            ),
            (DatasetRequested, {"client": n, "request": 8, "name": "sales"}),
            (DatasetUnpublished, {"client": n, "request": 9, "name": "sales"}),
            (RestartRequested, {"client": n, "request": 10, "timeout": 2.5}),
        ]
        assert_events(s.state.events[1:], expected)

    with_scheduler(story)


def test_client_heartbeat__is_answered() -> None:
    async def story(s: Running) -> None:
        client = await s.client()
        client.send(messages.Heartbeat())
        await client.next(messages.Heartbeat)

    with_scheduler(story)


def test_function_number_sent_again__stands_for_the_new_function() -> None:
    async def story(s: Running) -> None:
        client = await s.client()
        client.send(announce(0, b"f"), submit("x"), announce(0, b"g"), submit("y"))
        first, second = await s.steps(GraphPart, 2)
        assert (first.specs[0][0].blob, second.specs[0][0].blob) == (b"f", b"g")

    with_scheduler(story)


def test_two_clients_with_one_function__share_its_blob() -> None:
    async def story(s: Running) -> None:
        for name in ("a", "b"):
            client = await s.client(name)
            client.send(announce(), submit(name))
        first, second = await s.steps(GraphPart, 2)
        assert first.specs[0][0] is second.specs[0][0]

    with_scheduler(story)


# ------------------------------------------------------------------------------------- workers


def test_other_reports_of_workers__become_their_events() -> None:
    async def story(s: Running) -> None:
        worker = await s.worker()
        n = worker.number
        worker.send(
            messages.WorkerHeartbeat(100, 10, 99.5),
            messages.Added(["a"], [8], [1]),
            messages.AcquireFailed(["b"]),
            messages.Released(["c"]),
            messages.WhoHasWanted(["d"], [7]),
            messages.TakenBack([1, 2], [2]),
            messages.LongRunning("e", 3, 0.5),
            messages.Rescheduled("f", 4),
            messages.Status("paused"),
        )
        await s.steps(WorkerStatusChanged)
        expected: list[tuple[type[Event], dict[str, object]]] = [
            (Heartbeat, {"worker": n, "process": 100, "spilled": 10, "cpu": 99.5}),
            (KeysAdded, {"worker": n, "keys": ["a"], "nbytes": [8], "lives": [1]}),
            (AcquireFailed, {"worker": n, "keys": ["b"]}),
            (DataReleased, {"worker": n, "keys": ["c"]}),
            (WhoHasRequested, {"worker": n, "keys": ["d"], "failed": [7]}),
            (TakeBackAnswered, {"worker": n, "asked": [1, 2], "given": [2]}),
            (LongRunning, {"worker": n, "key": "e", "run_id": 3, "duration": 0.5}),
            (TaskRescheduled, {"worker": n, "key": "f", "run_id": 4}),
            (WorkerStatusChanged, {"worker": n, "status": "paused"}),
        ]
        assert_events(s.state.events[1:], expected)

    with_scheduler(story)


@pytest.mark.parametrize("behind", [0.0, 1000.0])
def test_finished__has_starts_on_the_schedulers_wall_clock(behind: float) -> None:
    async def story(s: Running) -> None:
        worker = await s.worker(clock=time.time() - behind)
        worker.send(
            messages.WorkerFinished(
                ["x", "y"], [1, 2], [8, 9], [50.0, 51.0], [0.1, 0.2], [3, 4], ["int", "str"], [b"r", None]
            )
        )
        (finished,) = await s.steps(TasksFinished)
        assert finished.starts == pytest.approx([50.0 + behind, 51.0 + behind], abs=20)
        assert (finished.starts == [50.0, 51.0]) == (not behind)
        said = {
            "worker": worker.number,
            "keys": ["x", "y"],
            "run_ids": [1, 2],
            "nbytes": [8, 9],
            "durations": [0.1, 0.2],
            "threads": [3, 4],
            "types": ["int", "str"],
            "data": [b"r", None],
        }
        assert fields(finished, said) == said

    with_scheduler(story)


def test_failed__keeps_the_ends_of_a_huge_traceback() -> None:
    async def story(s: Running) -> None:
        worker = await s.worker(clock=time.time())
        trace = "first line\n" + "x" * 500_000 + "\nlast line"
        worker.send(
            messages.Failed(
                "x", 1, 50.0, 0.5, 2, "exception", "ValueError: no", trace, ["builtins.ValueError"], b"p"
            )
        )
        (event,) = await s.steps(TaskFailed)
        assert (event.key, event.run_id, event.duration, event.thread) == ("x", 1, 0.5, 2)
        failure = event.failure
        assert (failure.kind, failure.text, failure.data) == ("exception", "ValueError: no", b"p")
        assert len(failure.traceback) < TRACEBACK_MAX + 100
        assert failure.traceback.startswith("first line") and failure.traceback.endswith("last line")

    with_scheduler(story)


def test_function_that_a_worker_evicted__is_sent_again() -> None:
    from shunter.state import ComputeTasks, WorkerAdded

    async def story(s: Running) -> None:
        client, worker = await s.client(), await s.worker()
        client.send(announce(), submit("x"))
        (part,) = await s.steps(GraphPart)
        compute = ComputeTasks(worker.number)
        compute.keys, compute.run_ids, compute.specs = ["x"], [1], part.specs
        compute.priorities, compute.inputs = [(0.0, 0.0, 1, 0)], [None]
        compute.options, compute.inline_max, compute.lives = [DEFAULT_OPTIONS], [0], [1]
        s.state.react = lambda event: [compute] if isinstance(event, ClientDesiresKeys) else None
        client.send(messages.Desire(["x"]))
        first = await worker.next(messages.WorkerFunctions)
        await worker.next(messages.Compute)
        worker.send(messages.FunctionWanted(first.numbers[0]))
        assert await worker.next(messages.WorkerFunctions) == first
        assert len(s.state.of(WorkerAdded)) == 1

    with_scheduler(story)


# ------------------------------------------------------------------------------------- bad peers


def bad_frames() -> list[tuple[str, list[object], str]]:
    digest = digest_of(b"f")
    return [
        ("client", ["no-such-thing"], "unknown operation"),
        ("client", ["release", 5], "release"),
        ("client", ["priority", ["x"], "high"], "priority"),
        ("client", ["submit", 1, None, ["x"], [9], None, [], None, None, [0]], "function number 9"),
        ("client", ["functions", [0], [digest], ["evil"], [0]], "does not belong"),
        ("worker", ["finished", ["x"], [1]], "finished"),
        ("worker", ["status", "sleepy"], "status"),
        ("parent", ["kill", 1, "me"], "unknown operation"),
        ("parent", ["died", "w", "x", []], "died"),
    ]


@pytest.mark.parametrize(("role", "header", "complaint"), bad_frames())
def test_bad_message__closes_that_peer_with_the_reason_and_nobody_else(
    role: str, header: list[object], complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(s: Running) -> None:
        others: list[Peer] = [await s.client("other"), await s.worker("other", "tcp://127.0.0.1:2")]
        connect: Any = {"client": s.client, "worker": s.worker, "parent": s.parent}[role]
        bad: Peer = await connect()
        bad.link.send([(header, [])])
        assert complaint in await bad.closed()
        others[0].send(messages.Heartbeat())
        await others[0].next(messages.Heartbeat)
        others[1].send(messages.Added(["a"], [1], [1]))
        await s.steps(KeysAdded)
        assert [other.closed_for for other in others] == [None, None]

    with_scheduler(story)
    told = [record for record in caplog.records if "broke the protocol" in record.getMessage()]
    assert len(told) == 1


def test_message_that_our_code_stumbles_over__closes_that_peer_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def stumble(*args: object) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr("shunter.server.intake.event_of_client", stumble)

    async def story(s: Running) -> None:
        good, bad = await s.client("good"), await s.client("bad")
        bad.send(messages.Release(["x"]))
        assert "log says more" in await bad.closed()
        good.send(messages.Heartbeat())
        await good.next(messages.Heartbeat)

    with_scheduler(story)
    (record,) = [record for record in caplog.records if record.exc_info]
    assert "a bug of ours" in str(record.exc_info)


def test_what_a_peer_says_after_its_error__is_not_heard() -> None:
    async def story(s: Running) -> None:
        client = await s.client()
        client.link.send([messages.Release(["a"]).frame(), (["bad"], []), messages.Release(["b"]).frame()])
        await client.closed()
        assert [event.keys for event in s.state.of(ClientReleasesKeys)] == [["a"]]

    with_scheduler(story)


def test_worker_asks_for_a_function_it_was_never_sent__is_closed() -> None:
    async def story(s: Running) -> None:
        client, worker = await s.client(), await s.worker()
        client.send(announce(), submit("x"))
        (part,) = await s.steps(GraphPart)
        worker.send(messages.FunctionWanted(part.specs[0][0].number))
        assert "never sent" in await worker.closed()

    with_scheduler(story)
