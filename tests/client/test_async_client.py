"""`AsyncClient` against a false scheduler. Each test runs a loop of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from shunter.client.async_client import AsyncClient
from shunter.client.client import Client
from shunter.client.futures import as_completed, wait
from shunter.client.graphs import Ref, Task
from shunter.errors import ConnectionLost, PeerError, UsageError
from shunter.serialize import dump_value
from shunter.wire import messages as m
from tests.client.fake import TIMEOUT, FakeScheduler
from tests.client.test_client import Unpicklable, erred, fail, finished, inc
from tests.client.test_values import Store, hold


@pytest.fixture
def scheduler() -> Iterator[FakeScheduler]:
    with FakeScheduler() as scheduler:
        yield scheduler


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store(1)
    yield store
    store.server.close()


Test = Callable[[AsyncClient, FakeScheduler], Awaitable[None]]


def in_loop(test: Test) -> Callable[[FakeScheduler], None]:
    """Run a test in a loop, with a client, in bounded time."""

    async def run(scheduler: FakeScheduler) -> None:
        async with AsyncClient(scheduler.address, token=scheduler.token) as client:
            await test(client, scheduler)

    @functools.wraps(test)
    def call(scheduler: FakeScheduler) -> None:
        asyncio.run(asyncio.wait_for(run(scheduler), TIMEOUT))

    del call.__wrapped__  # type: ignore[attr-defined]  # pytest would look for the fixtures of that one
    return call


@in_loop
async def test_submit__awaited(client: AsyncClient, scheduler: FakeScheduler) -> None:
    future = client.submit(inc, 1)
    assert await future == 2
    assert await future == future.result() == 2
    assert await client.gather([client.submit(inc, future), *client.map(inc, range(3))]) == [3, 1, 2, 3]


@in_loop
async def test_future_that_only_an_await_knows__is_not_released(
    client: AsyncClient, scheduler: FakeScheduler
) -> None:
    scheduler.runs_tasks = False

    async def lone() -> int:
        return await client.submit(inc, 1, key="x")

    waiting = asyncio.ensure_future(lone())
    while not scheduler.of(m.Submit):
        await client.status()
    other = client.submit(inc, 2, key="y")
    del other
    found = await asyncio.get_running_loop().run_in_executor(None, scheduler.wait_for, m.Release)
    assert found == [m.Release(["y"])]
    scheduler.tell(finished("x", 2))
    assert await waiting == 2


@in_loop
async def test_task_raises__raised_by_await(client: AsyncClient, scheduler: FakeScheduler) -> None:
    with pytest.raises(ValueError, match="mine"):
        await client.submit(fail, "mine")
    with pytest.raises(UsageError, match="argument 0"):
        client.submit(inc, Unpicklable())


@in_loop
async def test_burst_of_submits__few_messages_in_order(client: AsyncClient, scheduler: FakeScheduler) -> None:
    futures = [client.submit(inc, n) for n in range(500)]
    assert await client.gather(futures) == list(range(1, 501))
    assert scheduler.submitted() == [each.key for each in futures]
    assert len(scheduler.of(m.Submit)) < 100


@in_loop
async def test_blocking_calls__refused_in_the_loop(client: AsyncClient, scheduler: FakeScheduler) -> None:
    scheduler.runs_tasks = False
    future = client.submit(inc, 1)
    for call in (future.result, lambda: wait([future]), lambda: next(as_completed([future]))):
        with pytest.raises(UsageError, match="use 'await'"):
            call()


@in_loop
async def test_wait_for__times_out_and_the_future_lives(
    client: AsyncClient, scheduler: FakeScheduler
) -> None:
    scheduler.runs_tasks = False
    future = client.submit(inc, 1)

    async def result() -> int:
        return await future

    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(result(), 0.001)
    assert not future.done()
    scheduler.tell(finished(future.key, 2))
    assert await future == 2


@in_loop
async def test_gather__fails_early_or_skips(client: AsyncClient, scheduler: FakeScheduler) -> None:
    scheduler.runs_tasks = False
    slow, bad = client.submit(inc, 1), client.submit(inc, 2)
    scheduler.tell(erred(bad.key, kind="graph"))
    with pytest.raises(ValueError):
        await client.gather({"a": bad, "b": slow})
    scheduler.tell(finished(slow.key, 2))
    assert await client.gather({"a": bad, "b": [slow]}, errors="skip") == {"b": [2]}


@in_loop
async def test_as_completed__by_async_for(client: AsyncClient, scheduler: FakeScheduler) -> None:
    scheduler.runs_tasks = False
    x, y = client.submit(inc, 1, key="x"), client.submit(inc, 2, key="y")
    scheduler.tell(finished("y", "Y"))
    seen = []
    async for future, value in as_completed([x, y], with_results=True):
        seen.append((future, value))
        scheduler.tell(finished("x", "X"))
    assert seen == [(y, "Y"), (x, "X")]
    with pytest.raises(concurrent.futures.TimeoutError):
        async for _ in as_completed([client.submit(inc, 1)], timeout=0.001):
            pass


@in_loop
async def test_wait__does_not_block(client: AsyncClient, scheduler: FakeScheduler) -> None:
    scheduler.runs_tasks = False
    x, y = client.submit(inc, 1, key="x"), client.submit(inc, 2, key="y")
    assert await client.wait([x, y], timeout=0.001) == (set(), {x, y})
    scheduler.tell(finished("x", 1))
    assert await client.wait([x, y], return_when="FIRST_COMPLETED") == ({x}, {y})
    y.cancel()
    assert (await client.wait([x, y])).done == {x, y}


@in_loop
async def test_graph(client: AsyncClient, scheduler: FakeScheduler) -> None:
    graph = {"a": Task(inc, 1), "b": Task(inc, Ref("a"))}
    assert await client.get(graph, "b") == 3
    assert await client.get(graph, ["a", "b"]) == [2, 3]


@in_loop
async def test_questions__answered(client: AsyncClient, scheduler: FakeScheduler) -> None:
    scheduler.answers["workers"] = lambda arguments: [{"status": "running"}]
    await client.wait_for_workers(1, timeout=TIMEOUT)
    assert await client.status() == {"tasks": 0}
    assert await client.story("x") == ["the story of x"]
    assert await client.why("x") == "because of x"
    assert await client.who_has(client.submit(inc, 1, key="x")) == {"x": []}


@in_loop
async def test_callbacks__run_in_the_loop(client: AsyncClient, scheduler: FakeScheduler) -> None:
    called: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    client.submit(inc, 1).add_done_callback(lambda future: called.set_result(threading.get_ident()))
    assert await called == threading.get_ident()


@in_loop
async def test_dropped_future__is_released(client: AsyncClient, scheduler: FakeScheduler) -> None:
    future = client.submit(inc, 1)
    await future
    key = future.key
    del future
    found = await asyncio.get_running_loop().run_in_executor(None, scheduler.wait_for, m.Release)
    assert found == [m.Release([key])]


@in_loop
async def test_scheduler_goes_away__awaits_fail(client: AsyncClient, scheduler: FakeScheduler) -> None:
    scheduler.runs_tasks = False
    future = client.submit(inc, 1)
    scheduler.answers = {}
    question = asyncio.ensure_future(client.status())
    scheduler.cut_off("bye")
    with pytest.raises(ConnectionLost, match="bye"):
        await future
    with pytest.raises(ConnectionLost, match="bye"):
        await question


def test_values_at_workers__fetched_and_scattered(scheduler: FakeScheduler, store: Store) -> None:
    scheduler.answers["workers"] = lambda arguments: [store.row()]

    async def run() -> None:
        async with AsyncClient(scheduler.address, token=scheduler.token) as client:
            scheduler.runs_tasks = False
            x, y = client.submit(inc, 1, key="x"), client.submit(inc, 2, key="y")
            hold(scheduler, "x", "X", store)
            hold(scheduler, "y", "Y", store)
            assert await x == "X"
            assert await client.gather([y, x]) == ["Y", "X"]
            scheduler.runs_tasks = True
            future = await client.scatter([1, 2])
            assert [store.values[each.key] for each in future] == [dump_value(1), dump_value(2)]
            assert await client.scatter([]) == []

    asyncio.run(asyncio.wait_for(run(), TIMEOUT))


def test_future_of_a_synchronous_client__can_be_awaited(scheduler: FakeScheduler) -> None:
    async def result(future: Any) -> Any:
        return await future

    with Client(scheduler.address, token=scheduler.token) as client:
        assert asyncio.run(asyncio.wait_for(result(client.submit(inc, 1)), TIMEOUT)) == 2


def test_await_a_client__connects_and_close_ends_it(scheduler: FakeScheduler) -> None:
    async def run() -> None:
        client = AsyncClient(scheduler.address, token=scheduler.token)
        assert "not started" in repr(client)
        await client.close()
        client = await AsyncClient(scheduler.address, token=scheduler.token)
        assert client.address in repr(client)
        scheduler.runs_tasks = False
        future = client.submit(inc, 1)
        await client.close()
        await client.close()
        with pytest.raises(concurrent.futures.CancelledError, match="closed"):
            await future
        with pytest.raises(UsageError, match="closed"):
            client.submit(inc, 1)
        with pytest.raises(PeerError, match="token"):
            await AsyncClient(scheduler.address, token="wrong")

    asyncio.run(asyncio.wait_for(run(), TIMEOUT))
    scheduler.wait_until_gone()
