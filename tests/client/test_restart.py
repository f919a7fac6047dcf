"""Restarts, as a client sees them: everything is void, nothing of it lives on, and what follows works."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shunter.client.async_client import AsyncClient
from shunter.client.client import Client
from shunter.client.futures import Future
from shunter.client.graphs import Ref, Task
from shunter.errors import ConnectionLost, UsageError
from shunter.wire import messages as m
from tests.client.fake import TIMEOUT, FakeScheduler
from tests.client.test_client import erred, finished, inc


@pytest.fixture
def scheduler() -> Iterator[FakeScheduler]:
    with FakeScheduler() as scheduler:
        scheduler.reactions[m.Restart] = lambda message: [m.Restarted(), m.Reply(message.request, True, 4)]
        yield scheduler


@pytest.fixture
def client(scheduler: FakeScheduler) -> Iterator[Client]:
    with Client(scheduler.address, token=scheduler.token) as client:
        yield client


@pytest.fixture
def idle(scheduler: FakeScheduler, client: Client) -> FakeScheduler:
    """The client's scheduler, which runs nothing by itself."""
    scheduler.runs_tasks = False
    return scheduler


def restarted(future: Future[Any]) -> None:
    assert future.cancelled()
    with pytest.raises(concurrent.futures.CancelledError, match="the cluster was restarted"):
        future.result(TIMEOUT)


# ------------------------------------------------------------------------------------------- the request


def test_restart__asks_waits_and_tells_how_many_workers_there_are(
    client: Client, scheduler: FakeScheduler
) -> None:
    assert client.restart(timeout=7) == 4
    assert [each.timeout for each in scheduler.of(m.Restart)] == [7.0]


def test_workers_not_back_in_time__timeout_with_the_schedulers_text(
    client: Client, scheduler: FakeScheduler
) -> None:
    scheduler.reactions[m.Restart] = lambda message: [
        m.Restarted(),
        m.Reply(message.request, False, "3 of 4 workers were back after 7 s"),
    ]
    with pytest.raises(concurrent.futures.TimeoutError, match="3 of 4 workers"):
        client.restart(timeout=7)


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), "3", None, True])
def test_timeout_that_is_none__usage_error_and_nothing_said(
    client: Client, scheduler: FakeScheduler, timeout: Any
) -> None:
    with pytest.raises(UsageError, match="timeout"):
        client.restart(timeout)
    assert scheduler.of(m.Restart) == []


def test_scheduler_goes_meanwhile__connection_lost(client: Client, scheduler: FakeScheduler) -> None:
    def leave(message: m.Restart) -> list[Any]:
        scheduler.cut_off("it has had enough")
        return []

    scheduler.reactions[m.Restart] = leave
    with pytest.raises(ConnectionLost, match="had enough"):
        client.restart()


def test_asynchronous__the_same(scheduler: FakeScheduler) -> None:
    async def run() -> None:
        async with AsyncClient(scheduler.address, token=scheduler.token) as client:
            future = client.submit(inc, 1)
            assert await client.restart(timeout=7) == 4
            restarted(future)
            assert await client.submit(inc, 1) == 2
            scheduler.reactions[m.Restart] = lambda message: [m.Reply(message.request, False, "too late")]
            with pytest.raises(concurrent.futures.TimeoutError, match="too late"):
                await client.restart()

    asyncio.run(asyncio.wait_for(run(), TIMEOUT))


# ------------------------------------------------------------------------------------------- what is void


def test_every_future__is_cancelled_whatever_it_was(client: Client, idle: FakeScheduler) -> None:
    pending, here, there, failed = (client.submit(inc, n) for n in range(4))
    idle.tell(finished(here.key, 1), m.ClientFinished([there.key], [8], [None]), erred(failed.key))
    assert failed.exception(TIMEOUT) is not None
    assert here.result() == 1
    client.restart()
    for future in (pending, here, there, failed):
        restarted(future)
    with pytest.raises(UsageError, match="cancelled"):
        client.submit(inc, here)
    with pytest.raises(UsageError, match="was cancelled: submit it again"):
        failed.retry()


def test_threads_that_wait__wake_up(client: Client, idle: FakeScheduler) -> None:
    futures = client.map(inc, range(2))
    waits: list[Callable[[], object]] = [futures[0].result, lambda: client.gather(futures)]
    ended: list[str] = []

    def work(call: Callable[[], object]) -> None:
        try:
            call()
        except concurrent.futures.CancelledError as error:
            ended.append(str(error))

    threads = [threading.Thread(target=work, args=(call,)) for call in waits]
    for thread in threads:
        thread.start()
    client.restart()
    for thread in threads:
        thread.join(TIMEOUT)
    assert len(ended) == 2 and all("restarted" in each for each in ended)


def test_keys_of_all_futures__are_released_once_before_anything_else_is_said(
    client: Client, idle: FakeScheduler
) -> None:
    futures = [client.submit(inc, 1), client.submit(inc, 1, key="x"), *client.map(inc, range(3))]
    keys = [each.key for each in futures]
    client.restart()
    again = client.submit(inc, 1, key="x")
    del futures
    client.status()
    said = [each for each in idle.said if isinstance(each, (m.Submit, m.Release, m.Restart))]
    assert said[-2:] == [m.Release(keys), said[-1]]
    assert said[-1].keys == [again.key]
    idle.wait_for(m.Restart)
    assert len(idle.of(m.Release)) == 1


def test_key_submitted_again_while_its_former_life_is_still_reported__newcomer_is_told_apart(
    client: Client, idle: FakeScheduler
) -> None:
    former = client.submit(inc, 1, key="x")
    idle.held["x"] = ("processing", -1, [])
    # What was submitted before the news came ran at the scheduler after its restart, and is reported late.
    idle.late = [finished("x", "old")]
    client.restart()
    newcomer = client.submit(inc, 2, key="x")
    restarted(former)
    client.status()
    client.status()  # The fence has been passed.
    assert not newcomer.done()
    idle.tell(finished("x", "new"))
    assert newcomer.result(TIMEOUT) == "new"


def test_restarted_twice__nothing_left_to_say(client: Client, idle: FakeScheduler) -> None:
    future = client.submit(inc, 1)
    client.restart()
    client.restart()
    restarted(future)
    assert len(idle.of(m.Release)) == 1


def test_after_a_restart__all_works(client: Client, scheduler: FakeScheduler) -> None:
    for n in range(5):
        futures = [client.submit(inc, n, key="x"), client.submit(inc, n)]
        assert client.gather(futures, timeout=TIMEOUT) == [n + 1, n + 1]
        client.restart()
        assert client.get({"y": Task(inc, n), "z": Task(inc, Ref("y"))}, "z", timeout=TIMEOUT) == n + 2


# ------------------------------------------------------------------------------------------- graphs on their way


class Restarts:
    """Restarts the cluster when it is pickled: in the midst of a graph."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def __reduce__(self) -> tuple[object, ...]:
        # On another thread, like the one that streams would be.
        thread = threading.Thread(target=self.client.restart)
        thread.start()
        thread.join(TIMEOUT)
        return (int, ())


@pytest.mark.parametrize("n", [3, 3000])
def test_graph_being_streamed__ends_cancelled_and_is_taken_back(
    client: Client, idle: FakeScheduler, n: int
) -> None:
    graph = {f"x{i}": Task(inc, Restarts(client) if i == n // 2 else i) for i in range(n)}
    wanted = ["x0", f"x{n // 2}", f"x{n - 1}"]
    futures = client.submit_graph(
        {**graph, wanted[2]: Task(inc, [Ref(key) for key in list(graph)[:-1]])}, wanted
    )
    assert list(futures) == wanted
    for future in futures.values():
        restarted(future)
    assert len(idle.wait_for(m.GraphAbort)) == len(idle.of(m.GraphBegin)) == 1
    assert idle.of(m.GraphCommit) == []
    idle.runs_tasks = True
    assert client.get({"x0": Task(inc, 1)}, "x0", timeout=TIMEOUT) == 2
    del futures, future
    client.status()


def test_graph_being_streamed_with_futures_of_before__ends_cancelled(
    client: Client, idle: FakeScheduler
) -> None:
    before = client.submit(inc, 1)
    graph = {"a": Task(inc, Restarts(client)), "b": Task(inc, before)}
    futures = client.submit_graph(graph)
    restarted(before)
    for future in futures.values():
        restarted(future)
    assert len(idle.wait_for(m.GraphAbort)) == 1


def test_graph_being_streamed_whose_own_code_fails__that_is_raised(
    client: Client, idle: FakeScheduler
) -> None:
    class Bad(Restarts):
        def __reduce__(self) -> tuple[object, ...]:
            super().__reduce__()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.submit_graph({"a": Task(inc, Bad(client))})
    assert len(idle.wait_for(m.GraphAbort)) == 1


def test_restarted_while_a_call_is_pickled_that_needs_a_future_of_before__ends_cancelled(
    client: Client, idle: FakeScheduler
) -> None:
    before = client.submit(inc, 1)
    idle.wait_for(m.Submit)

    future = client.submit(inc, [before, Restarts(client)], key="after")

    restarted(future)
    client.status()
    assert "after" not in idle.submitted()


@pytest.mark.parametrize("key", [None, "after"])
def test_restarted_while_a_map_is_pickled__what_needs_a_future_of_before_ends_cancelled(
    client: Client, idle: FakeScheduler, key: str | None
) -> None:
    before = client.submit(inc, 1)
    idle.wait_for(m.Submit)

    first, second, third = client.map(inc, [before, Restarts(client), 3], key=key)

    restarted(first)
    assert not second.cancelled() and not third.cancelled()
    idle.wait_for(m.Submit, 2)
    assert first.key not in idle.submitted()
    assert idle.submitted()[-2:] == [second.key, third.key]
