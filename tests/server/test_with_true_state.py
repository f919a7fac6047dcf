"""The server with the state that it is for: a graph runs through both."""

from __future__ import annotations

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
