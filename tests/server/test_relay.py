"""Values through the scheduler, for clients that cannot reach the workers. A true data port on loopback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shunter.server import relay
from shunter.types import Buffer
from shunter.wire import messages
from shunter.wire.bulk import DataServer
from tests.server.harness import Peer, Running, with_scheduler

VALUES: dict[str, list[Buffer]] = {"x": [b"pickle", b"", b"buffer"], "y": [b"y" * 1000], "z": [b"z" * 1000]}


def with_holder(story: Callable[[Running, Peer, Peer], Any], **options: Any) -> None:
    """Run a story with a client and a worker that serves `VALUES`."""

    def get(keys: list[str]) -> tuple[dict[str, list[Buffer]], list[str]]:
        return {k: VALUES[k] for k in keys if k in VALUES}, [k for k in keys if k not in VALUES]

    async def main(s: Running) -> None:
        server = DataServer("127.0.0.1", 0, s.scheduler.token, get=get, put=lambda values: [])
        server.start()
        try:
            worker = await s.worker("a", server.address)
            for key, parts in VALUES.items():
                s.state.the_view.rows[key] = ("memory", sum(map(len, parts)), [worker.number])
            await story(s, await s.client(), worker)
        finally:
            server.close()

    with_scheduler(main, **options)


def test_relay__carries_whole_values_and_leaves_out_what_the_worker_does_not_hold() -> None:
    async def story(s: Running, client: Peer, worker: Peer) -> None:
        client.send(messages.Relay(5, worker.number, ["x", "nothing", "y"]))
        answer = await client.next(messages.Relayed)
        assert (answer.request, answer.ok, answer.error) == (5, True, "")
        assert answer.keys == ["x", "y"]
        assert answer.values == [VALUES["x"], VALUES["y"]]

    with_holder(story)


def test_many_requests__are_all_answered() -> None:
    async def story(s: Running, client: Peer, worker: Peer) -> None:
        client.send(*(messages.Relay(n, worker.number, ["y"]) for n in range(20)))
        answers = [await client.next(messages.Relayed) for _ in range(20)]
        assert sorted(answer.request for answer in answers) == list(range(20))
        assert all(answer.ok for answer in answers)

    with_holder(story)


def test_values_too_large_together__come_in_several_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "TOGETHER_MAX", 1500)

    async def story(s: Running, client: Peer, worker: Peer) -> None:
        wanted, got = ["x", "y", "z"], []
        while wanted:
            client.send(messages.Relay(1, worker.number, wanted))
            answer = await client.next(messages.Relayed)
            got.append(answer.keys)
            wanted = [key for key in wanted if key not in answer.keys]
        assert got == [["x", "y"], ["z"]]

    with_holder(story)


@pytest.mark.parametrize("known", [True, False])
def test_value_too_large_alone__is_refused_with_its_name(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "ALONE_MAX", 999)

    async def story(s: Running, client: Peer, worker: Peer) -> None:
        if not known:  # The state's figure may be wrong.
            s.state.the_view.rows["y"] = ("memory", -1, [worker.number])
        client.send(messages.Relay(1, worker.number, ["y"]))
        answer = await client.next(messages.Relayed)
        assert not answer.ok
        assert "'y' has 1000 bytes" in answer.error

    with_holder(story)


def test_worker_that_is_gone__is_said_so() -> None:
    async def story(s: Running, client: Peer, worker: Peer) -> None:
        client.send(messages.Relay(1, 99, ["x"]))
        answer = await client.next(messages.Relayed)
        assert (answer.ok, answer.error) == (False, "worker 99 is gone")

    with_holder(story)


def test_worker_whose_data_port_does_not_answer__is_said_so() -> None:
    async def story(s: Running) -> None:
        unused = DataServer("127.0.0.1", 0, s.scheduler.token, get=lambda keys: ({}, keys), put=lambda v: [])
        address = unused.address
        unused.close()
        client, worker = await s.client(), await s.worker("a", address)
        client.send(messages.Relay(1, worker.number, ["x"]))
        answer = await client.next(messages.Relayed)
        assert not answer.ok
        assert answer.error

    with_scheduler(story)


def test_too_many_requests_of_one_client__are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "WAITING_MAX", 2)

    async def story(s: Running, client: Peer, worker: Peer) -> None:
        client.send(*(messages.Relay(n, worker.number, ["y"]) for n in range(4)))
        answers = {
            answer.request: answer.ok for answer in [await client.next(messages.Relayed) for _ in range(4)]
        }
        assert answers == {0: True, 1: True, 2: False, 3: False}
        client.send(messages.Relay(9, worker.number, ["y"]))
        assert (await client.next(messages.Relayed)).ok

    with_holder(story)
