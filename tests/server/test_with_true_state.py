"""The server with the state that it is for: a graph runs through both."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from shunter.server.functions import digest_of
from shunter.server.scheduler import true_state
from shunter.state import Settings
from shunter.wire import messages
from tests.server.harness import Peer, Running, with_scheduler

TRUE: dict[str, Any] = {
    "make_state": lambda settings, now: true_state(settings, now),
    "settings": Settings(validate=True),
}


def announce(blob: bytes = b"f") -> messages.Functions:
    return messages.Functions([0], [digest_of(blob)], ["inc"], [blob])


def submit(keys: list[str], inputs: list[list[str] | None]) -> messages.Submit:
    count = len(keys)
    return messages.Submit(1, None, keys, [0] * count, inputs, [], [-1] * count, None, [b"args"] * count)


def finish(worker: Peer, compute: messages.Compute, data: bytes | None = b"result") -> None:
    count = len(compute.keys)
    worker.send(
        messages.WorkerFinished(
            compute.keys,
            compute.run_ids,
            [6] * count,
            [time.time()] * count,
            [0.001] * count,
            [0] * count,
            ["bytes"] * count,
            [data] * count,
        )
    )


async def run_all(worker: Peer, client: Peer, count: int) -> dict[str, bytes | None]:
    """Finish whatever the worker is sent until the client has so many results."""
    results: dict[str, bytes | None] = {}
    while len(results) < count:
        finish(worker, await worker.next(messages.Compute))
        report = await client.next(messages.ClientFinished)
        results.update(zip(report.keys, report.blobs))
    return results


def test_chain__runs_and_its_results_come_along() -> None:
    async def story(s: Running) -> None:
        client, worker = await s.client(), await s.worker(clock=time.time())
        client.send(announce(), submit(["x", "y", "z"], [None, ["x"], ["y"]]))
        functions = await worker.next(messages.WorkerFunctions)
        assert functions.blobs == [b"f"]
        assert await run_all(worker, client, 3) == dict.fromkeys(["x", "y", "z"], b"result")
        assert not worker.of(messages.WorkerFunctions)

    with_scheduler(story, **TRUE)


def test_task_fails__client_is_told_with_the_opaque_exception() -> None:
    async def story(s: Running) -> None:
        client, worker = await s.client(), await s.worker(clock=time.time())
        client.send(announce(), submit(["x", "y"], [None, ["x"]]))
        compute = await worker.next(messages.Compute)
        worker.send(
            messages.Failed(
                "x",
                compute.run_ids[0],
                time.time(),
                0.1,
                0,
                "exception",
                "no",
                "trace",
                ["builtins.ValueError"],
                b"e",
            )
        )
        told: dict[str, messages.Failure] = {}
        while len(told) < 2:
            erred = await client.next(messages.Erred)
            told.update((key, erred.failures[index]) for key, index in zip(erred.keys, erred.failure_of))
        assert {key: (failure.key, failure.data) for key, failure in told.items()} == {
            "x": ("x", b"e"),
            "y": ("x", b"e"),
        }

    with_scheduler(story, **TRUE)


def test_worker_dies__its_task_runs_on_another() -> None:
    async def story(s: Running) -> None:
        client, first = await s.client(), await s.worker("a", "tcp://127.0.0.1:1", clock=time.time())
        client.send(announce(), submit(["x"], [None]))
        await first.next(messages.Compute)
        second = await s.worker("b", "tcp://127.0.0.1:2", clock=time.time())
        first.link.abort("killed")
        assert await run_all(second, client, 1) == {"x": b"result"}

    with_scheduler(story, **TRUE)


def test_cycle__is_told_to_its_client_and_others_run_on() -> None:
    async def story(s: Running) -> None:
        client, other = await s.client(), await s.client("other")
        worker = await s.worker(clock=time.time())
        part = messages.GraphPart(1, ["x", "y"], [0, 0], [["y"], ["x"]], [], [-1, -1], [b"1", b"2"])
        client.send(announce(), messages.GraphBegin(1, False, None), part, messages.GraphCommit(1, None))
        erred = await client.next(messages.Erred)
        assert {failure.kind for failure in erred.failures} == {"graph"}
        other.send(announce(), submit(["ok"], [None]))
        assert await run_all(worker, other, 1) == {"ok": b"result"}

    with_scheduler(story, **TRUE)


def test_released_tasks__free_their_function_when_the_client_is_gone() -> None:
    async def story(s: Running) -> None:
        client, worker = await s.client(), await s.worker(clock=time.time())
        client.send(announce(), submit(["x"], [None]))
        await run_all(worker, client, 1)
        client.link.close("bye")
        await worker.next(messages.Free)
        watcher = await s.client("watcher")
        while True:
            watcher.send(messages.Query(1, "status", {}))
            status = (await watcher.next(messages.Reply)).value
            assert isinstance(status, dict)
            if status["functions"] == 0:
                break

    with_scheduler(story, **TRUE)


async def ask(client: Peer, *requests: Any) -> list[messages.Reply]:
    """Send requests; their replies in order (queries are answered ahead of the batch that they came in)."""
    client.send(*requests)
    replies = [await client.next(messages.Reply) for _ in requests]
    return sorted(replies, key=lambda reply: reply.request)


def test_detached_key__runs_though_its_client_has_left() -> None:
    async def story(s: Running) -> None:
        client, watcher = await s.client(), await s.client("watcher")
        client.send(announce(), submit(["x", "y"], [None, None]), messages.Detach(["x"]))
        client.link.close("bye")
        worker = await s.worker(clock=time.time())
        compute = await worker.next(messages.Compute)
        assert compute.keys == ["x"]
        finish(worker, compute)
        await worker.next(messages.Free)
        (reply,) = await ask(watcher, messages.Query(1, "why", {"key": "x"}))
        assert "not known" in str(reply.value)

    with_scheduler(story, **TRUE)


def test_detached_key_is_unknown__client_is_told() -> None:
    async def story(s: Running) -> None:
        client = await s.client()
        client.send(messages.Detach(["x"]))
        assert (await client.next(messages.Cancelled)).keys == ["x"]

    with_scheduler(story, **TRUE)


def test_dataset__outlives_its_client_and_goes_to_another_until_it_is_unpublished() -> None:
    async def story(s: Running) -> None:
        client, worker = await s.client(), await s.worker(clock=time.time())
        client.send(announce(), submit(["x", "y"], [None, ["x"]]))
        await run_all(worker, client, 2)
        publish = messages.Publish(1, "sales", ["y"], "how to put it together", False)
        missing = messages.Publish(3, "hole", ["y", "z"], "", False)
        replies = await ask(client, publish, publish._replace(request=2), missing)
        assert [(reply.request, reply.ok) for reply in replies] == [(1, True), (2, False), (3, False)]
        assert "'sales' already" in str(replies[1].value)
        assert "'z'" in str(replies[2].value)
        client.link.close("bye")

        other = await s.client("other")
        got, listed = await ask(other, messages.GetDataset(1, "sales"), messages.Query(2, "datasets", {}))
        assert got.value == {"keys": ["y"], "data": "how to put it together"}
        assert listed.value == [{"name": "sales", "keys": 1}]
        assert (await other.next(messages.ClientFinished)).keys == ["y"]

        unpublish = messages.Unpublish(3, "sales")
        again = await ask(other, unpublish, unpublish, messages.GetDataset(4, "sales"))
        assert [(reply.ok, reply.value) for reply in again[:2]] == [(True, True), (True, False)]
        assert not again[2].ok
        other.send(messages.Release(["y"]))
        freed: list[str] = []
        while "y" not in freed:
            freed += (await worker.next(messages.Free)).keys

    with_scheduler(story, **TRUE)


def test_restart__kills_the_workers_through_their_parents_and_is_answered_when_as_many_are_back() -> None:
    async def story(s: Running) -> None:
        client, other, parent = await s.client(), await s.client("other"), await s.parent()
        now = time.time()
        child = await s.worker("child", "tcp://127.0.0.1:1", clock=now, parent=parent.number)
        alone = await s.worker("alone", "tcp://127.0.0.1:2", clock=now)
        client.send(announce(), submit(["x"], [None]), messages.Restart(5, 1_000.0))
        for each in (client, other):
            await each.next(messages.Restarted)
        kill = await parent.next(messages.Kill)
        assert (kill.worker, kill.reason) == (child.number, "the cluster is restarted")
        assert await child.closed() == "the cluster is restarted"
        assert not client.of(messages.Reply)
        parent.send(messages.Died(child.number, "signal 9 (SIGKILL)", [1]))

        await s.worker("child", "tcp://127.0.0.1:3", clock=now, parent=parent.number)
        reply = await client.next(messages.Reply)
        assert (reply.request, reply.ok, reply.value) == (5, True, 2)
        assert alone.closed_for is None
        (counts,) = await ask(client, messages.Query(6, "tasks", {}))
        assert isinstance(counts.value, dict)
        assert (counts.value["tasks"], counts.value["workers"]) == (0, 2)

    with_scheduler(story, **TRUE)


def test_workers_are_not_back_in_time__restart_is_answered_with_how_many() -> None:
    async def story(s: Running) -> None:
        client, parent = await s.client(), await s.parent()
        await s.worker(clock=time.time(), parent=parent.number)
        (reply,) = await ask(client, messages.Restart(5, 0.01))
        assert not reply.ok
        assert "0 of 1 workers were back" in str(reply.value)

    with_scheduler(story, **TRUE)


def test_silent_worker__is_asked_then_given_up_and_its_task_runs_elsewhere() -> None:
    async def story(s: Running) -> None:
        client, parent = await s.client(), await s.parent()
        silent = await s.worker("silent", "tcp://127.0.0.1:1", clock=time.time(), parent=parent.number)
        client.send(announce(), submit(["x"], [None]))
        compute = await silent.next(messages.Compute)
        await silent.next(messages.Heartbeat)
        kill = await parent.next(messages.Kill)
        assert kill.worker == silent.number
        assert "nothing was heard of it" in kill.reason
        assert await silent.closed() == kill.reason
        parent.send(messages.Died(silent.number, "signal 9 (SIGKILL)", compute.run_ids))
        assert silent.link.peer_details["heartbeat"] == 0.05

        alive = await s.worker("alive", "tcp://127.0.0.1:2", clock=time.time())
        finish(alive, await alive.next(messages.Compute))
        assert (await client.next(messages.ClientFinished)).keys == ["x"]

    with_scheduler(story, **TRUE | {"settings": Settings(validate=True, worker_ttl=0.2)})


def test_worker_that_only_beats__is_alive() -> None:
    async def story(s: Running) -> None:
        worker, witness = (
            await s.worker("a", "tcp://127.0.0.1:1", clock=time.time()),
            await s.worker("silent", "tcp://127.0.0.1:2", clock=time.time()),
        )

        async def beat() -> None:
            while True:
                worker.send(messages.WorkerHeartbeat(1, 0, 0.0))
                await asyncio.sleep(0.01)

        beating = asyncio.ensure_future(beat())
        try:
            for number in range(2, 5):  # As long as three silent ones need to be given up.
                assert "nothing was heard of it" in await witness.closed()
                witness = await s.worker("silent", f"tcp://127.0.0.1:{number}", clock=time.time())
            assert worker.closed_for is None
        finally:
            beating.cancel()

    with_scheduler(story, **TRUE | {"settings": Settings(validate=True, worker_ttl=0.3)})


def test_nothing_to_do_for_the_idle_time__scheduler_ends_and_says_why() -> None:
    async def story(s: Running) -> None:
        client, worker = await s.client(), await s.worker(clock=time.time())
        client.send(announce(), submit(["x"], [None]))
        await run_all(worker, client, 1)
        for peer in (client, worker):
            assert await peer.closed() == "nothing ran or waited to run for 0.5 s (idle time-out)"
        assert await s.scheduler.finished() == 0

    with_scheduler(story, **TRUE | {"settings": Settings(validate=True, idle_timeout=0.5)})
