"""A scheduler's life: token rules, scheduler file, one write for each connection, internal errors, its end."""

from __future__ import annotations

import gc
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shunter.errors import InternalError, PeerError, UsageError
from shunter.server.scheduler import Scheduler, choose_token, is_loopback, tune_gc
from shunter.state import (
    ClientDesiresKeys,
    ClientReleasesKeys,
    ClientRemoved,
    Event,
    FreeKeys,
    Instruction,
    KeysAdded,
    Reply,
    ReportLost,
    Shutdown,
    WorkerAdded,
)
from shunter.wire import contact, messages
from shunter.wire.link import Link, connect
from tests.server.false import FalseState
from tests.server.harness import Peer, Running, run, until, with_scheduler

# ------------------------------------------------------------------------------------- token


def test_loopback_without_a_token__makes_one() -> None:
    assert len(choose_token("127.0.0.1", None, insecure=False)) >= 32
    assert choose_token("127.0.0.1", None, insecure=False) != choose_token("::1", None, insecure=False)


def test_token_given__is_kept() -> None:
    assert choose_token("0.0.0.0", "secret", insecure=False) == "secret"
    assert choose_token("0.0.0.0", "secret", insecure=True) == "secret"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "example.org", "127.evil.example.org", "10.0.0.1"])
def test_other_host_without_a_token__is_refused_unless_insecure(host: str) -> None:
    with pytest.raises(UsageError, match=r"--token-file.*--insecure"):
        Scheduler(host=host)
    assert Scheduler(host=host, insecure=True).token == ""


def test_empty_token__is_refused() -> None:
    with pytest.raises(UsageError, match="empty"):
        Scheduler(token="")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "::1"])
def test_loopback__is_known(host: str) -> None:
    assert is_loopback(host)


def test_wrong_token__is_refused_and_no_event_comes_of_it() -> None:
    async def story(s: Running) -> None:
        with pytest.raises(PeerError, match="token"):
            await connect(
                s.scheduler.address, "client", "wrong", {"name": "x"}, Peer(messages.from_scheduler_to_client)
            )
        assert s.state.events == []

    with_scheduler(story)


# ------------------------------------------------------------------------------------- start and end


def test_first_line_of_the_log__tells_address_build_and_version(caplog: pytest.LogCaptureFixture) -> None:
    import shunter

    address = []
    with caplog.at_level("INFO", logger="shunter.scheduler"):

        async def story(s: Running) -> None:
            address.append(s.scheduler.address)

        with_scheduler(story)
    build = "compiled" if shunter.COMPILED else "pure"
    first = next(record for record in caplog.records if record.name == "shunter.scheduler")
    assert first.getMessage() == f"shunter {shunter.__version__} (state: {build}) listens at {address[0]}"


def test_scheduler_file__is_there_while_it_listens_and_private(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.json"

    async def story(s: Running) -> None:
        assert contact.read(str(path)) == contact.Contact(s.scheduler.address, s.scheduler.token)
        assert path.stat().st_mode & 0o777 == 0o600

    with_scheduler(story, scheduler_file=str(path))
    assert not path.exists()


def test_scheduler_file_of_another_by_now__is_left(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.json"
    other = contact.Contact("tcp://127.0.0.1:9", "other")

    async def story(s: Running) -> None:
        contact.write(str(path), other)

    with_scheduler(story, scheduler_file=str(path))
    assert contact.read(str(path)) == other


def test_scheduler_file_that_cannot_be_written__lets_go_of_the_port(tmp_path: Path) -> None:
    async def main() -> None:
        scheduler = Scheduler(scheduler_file=str(tmp_path / "missing" / "scheduler.json"))
        with pytest.raises(OSError):
            await scheduler.start()
        assert await scheduler.finished() == 0

    run(main())


def test_port_in_use__is_an_os_error() -> None:
    async def story(s: Running) -> None:
        port = contact.parse_address(s.scheduler.address)[1]
        second = Scheduler(port=port)
        with pytest.raises(OSError):
            await second.start()
        await second.close()

    with_scheduler(story)


def test_address_before_start__is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="start"):
        _ = Scheduler().address


def test_close__tells_every_peer_why_and_is_finished_with_0() -> None:
    async def story(s: Running) -> None:
        peers = [await s.client(), await s.worker(), await s.parent()]
        await s.scheduler.close("maintenance")
        assert [await peer.closed() for peer in peers] == ["maintenance"] * 3
        assert await s.scheduler.finished() == 0
        await s.scheduler.close("again")  # Does nothing.

    with_scheduler(story)


def test_state_wants_to_end__every_peer_is_told_why_and_it_is_finished_with_0() -> None:
    async def story(s: Running) -> None:
        peers = [await s.client(), await s.worker(), await s.parent()]
        s.state.react = lambda event: [Reply(peers[0].number, 1, True, None), Shutdown("nothing to do")]
        peers[0].send(messages.Release(["a"]))
        await peers[0].next(messages.Reply)
        assert [await peer.closed() for peer in peers] == ["nothing to do"] * 3
        assert await s.scheduler.finished() == 0

    with_scheduler(story)


def test_close_before_start__is_finished() -> None:
    async def main() -> None:
        scheduler = Scheduler()
        await scheduler.close()
        assert await scheduler.finished() == 0
        with pytest.raises(UsageError):
            await scheduler.start()

    run(main())


def test_started_in_a_users_process__leaves_the_garbage_collector_alone() -> None:
    before = gc.get_threshold(), gc.get_freeze_count()

    async def story(s: Running) -> None:
        assert (gc.get_threshold(), gc.get_freeze_count()) == before

    with_scheduler(story)


def test_own_process__tunes_the_garbage_collector() -> None:
    before = gc.get_threshold()
    try:
        tune_gc()
        assert gc.get_threshold() == (100_000, 50, 100)
        assert gc.get_freeze_count() > 0
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


# ------------------------------------------------------------------------------------- the loop, over loopback


def test_one_batch__is_one_write_for_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three requests in one piece: their instructions for two peers leave in two writes."""
    writes: Counter[int] = Counter()
    send = Link.send

    def counting(self: Link, frames: Any) -> None:
        if self.details:  # The acceptor's side: it has said a welcome.
            writes[self.number] += 1
        send(self, frames)

    monkeypatch.setattr(Link, "send", counting)

    async def story(s: Running) -> None:
        client, worker = await s.client(), await s.worker()

        def react(event: Event) -> list[Instruction]:
            if not isinstance(event, ClientDesiresKeys):
                return []
            lost, free = ReportLost(client.number), FreeKeys(worker.number)
            lost.keys.extend(event.keys)
            free.keys.extend(event.keys)
            return [lost, free]

        s.state.react = react
        await s.steps(WorkerAdded)
        writes.clear()
        client.send(
            messages.Desire(["a"]), messages.Desire(["b"]), messages.Desire(["c"]), messages.Heartbeat()
        )
        await client.next(messages.Heartbeat)
        assert [(await client.next(messages.Lost)).keys for _ in range(3)] == [["a"], ["b"], ["c"]]
        assert [(await worker.next(messages.Free)).keys for _ in range(3)] == [["a"], ["b"], ["c"]]
        ours = {peer.number: writes[peer.number] for peer in (client, worker)}
        assert ours == {client.number: 2, worker.number: 1}  # One of the client's is the test's own.

    with_scheduler(story)


def test_instructions_for_one_peer__come_in_the_order_of_the_state() -> None:
    async def story(s: Running) -> None:
        client = await s.client()
        s.state.react = lambda event: [Reply(client.number, 100 + i, True, None) for i in range(50)]
        client.send(messages.Release(["a"]))
        assert [(await client.next(messages.Reply)).request for _ in range(50)] == list(range(100, 150))

    with_scheduler(story)


def test_queries__are_answered_from_the_view_in_their_turn() -> None:
    async def story(s: Running) -> None:
        client, worker = await s.client(), await s.worker("a", "tcp://127.0.0.1:7")
        s.state.the_view.rows["x"] = ("memory", 8, [worker.number, 999])
        asked: list[tuple[str, dict[str, object]]] = [
            ("who_has", {"keys": ["x", "y"]}),
            ("tasks", {}),
            ("workers", {}),
            ("story", {"key": "x"}),
            ("why", {"key": "x"}),
            ("status", {}),
            ("datasets", {}),
        ]
        client.send(*(messages.Query(n, name, given) for n, (name, given) in enumerate(asked)))
        replies = [await client.next(messages.Reply) for _ in asked]
        assert [reply.request for reply in replies] == list(range(len(asked)))
        assert all(reply.ok for reply in replies)
        values: list[Any] = [reply.value for reply in replies]
        assert values[0] == [
            ["x", "memory", 8, [[worker.number, "tcp://127.0.0.1:7"]]],
            ["y", "unknown", -1, []],
        ]
        assert values[1:5] == [{"tasks": 1}, [{"number": 1, "name": "a"}], ["story of x"], "x rests"]
        assert values[6] == [{"name": "sales", "keys": 2}]
        status = values[5]
        assert status["counts"] == {"tasks": 1}
        assert status["address"] == s.scheduler.address
        assert status["pid"] == os.getpid()
        assert status["build"] in ("pure", "compiled")
        assert {"version", "uptime", "queued_bytes"} <= status.keys()

    with_scheduler(story)


@pytest.mark.parametrize(
    ("name", "arguments", "complaint"),
    [
        ("stroy", {}, "none called"),
        ("story", {}, "'key'"),
        ("who_has", {}, "'keys'"),
        ("tasks", {"broken": 1}, "the scheduler failed"),
    ],
)
def test_bad_query__is_answered_with_the_reason(
    name: str, arguments: dict[str, object], complaint: str
) -> None:
    async def story(s: Running) -> None:
        s.state.the_view.broken = "broken" in arguments
        client = await s.client()
        client.send(messages.Query(1, name, arguments), messages.Heartbeat())
        reply = await client.next(messages.Reply)
        assert not reply.ok
        assert complaint in str(reply.value)
        await client.next(messages.Heartbeat)

    with_scheduler(story)


def test_answer_that_fits_in_no_message__is_refused_and_the_client_goes_on() -> None:
    async def story(s: Running) -> None:
        s.state.the_view.rows = {f"k{i}": ("x" * 200, 1, []) for i in range(10_000)}
        client = await s.client()
        client.send(messages.Query(1, "who_has", {"keys": [f"k{i}" for i in range(10_000)]}))
        assert not (await client.next(messages.Reply)).ok
        client.send(messages.Query(2, "tasks", {}))
        assert (await client.next(messages.Reply)).ok

    with_scheduler(story)


def test_work_for_a_worker_that_reads_nothing__stops_the_clients_until_it_does() -> None:
    async def story(s: Running) -> None:
        client, worker = await s.client(), await s.worker()
        keys = [f"{'long' * 10_000}-{i}" for i in range(25)]  # 1 MB at a time

        def react(event: Event) -> list[Instruction]:
            if isinstance(event, ClientDesiresKeys):
                free = FreeKeys(worker.number)
                free.keys.extend(keys)
                return [free]
            return []

        s.state.react = react
        worker.link.pause()
        sent = 0
        while not figures(s)["clients_paused"]:
            client.send(messages.Desire(["x"]))
            sent += 1
            await s.steps(ClientDesiresKeys, sent)
        client.send(messages.Desire(["late"]))
        worker.send(messages.Added(["a"], [1], [1]))  # Workers are read all the same.
        await s.steps(KeysAdded)
        assert len(s.state.of(ClientDesiresKeys)) == sent
        worker.link.resume()
        await s.steps(ClientDesiresKeys, sent + 1)
        await until(lambda: figures(s)["clients_paused"] == 0)

    with_scheduler(story)


def figures(s: Running) -> dict[str, object]:
    hub = s.scheduler._hub
    assert hub is not None
    return hub._figures()


# ------------------------------------------------------------------------------------- internal errors


def test_state_breaks__every_peer_is_told_and_the_exit_code_is_70(caplog: pytest.LogCaptureFixture) -> None:
    def react(event: Event) -> None:
        if isinstance(event, ClientReleasesKeys):
            raise InternalError("counter below zero: task 'x' is memory", ["1.0 released → waiting", "2.0 …"])

    async def story(s: Running) -> None:
        client, other, worker = await s.client(), await s.client("other"), await s.worker()
        client.send(messages.Release(["x"]))
        for peer in (client, other, worker):
            reason = await peer.closed()
            assert "internal error in the scheduler" in reason
            assert "counter below zero" in reason
        assert await s.scheduler.finished() == 70

    with_scheduler(story, FalseState(react))
    (record,) = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert "released → waiting" in record.getMessage()
    assert record.exc_info is not None


def test_client_that_leaves_with_a_batch_on_its_way__hurts_nobody() -> None:
    async def story(s: Running) -> None:
        client, other = await s.client(), await s.client("other")
        s.state.react = lambda event: (
            [Reply(client.number, 1, True, None)] if not isinstance(event, ClientRemoved) else None
        )
        client.send(messages.Release(["x"]))
        client.link.abort("gone")
        await s.steps(ClientRemoved)
        other.send(messages.Heartbeat())
        await other.next(messages.Heartbeat)

    with_scheduler(story)
