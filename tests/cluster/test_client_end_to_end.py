"""The clients' whole surface against a true cluster, all of it in this process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from shunter.client.async_client import AsyncClient
from shunter.client.client import Client
from shunter.client.futures import as_completed, wait
from shunter.client.graphs import Ref, Task
from shunter.deploy.local import LocalCluster

PATIENCE = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(2, 1, processes=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        client.wait_for_workers(2, timeout=PATIENCE)
        yield client


def inc(x: int) -> int:
    return x + 1


def add(x: Any, y: Any) -> Any:
    return x + y


async def inc_later(x: int) -> int:
    await asyncio.sleep(0)
    return x + 1


class Block:
    """A task that runs until it is let go: workers share this process."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.go = threading.Event()

    def __call__(self) -> str:
        self.started.set()
        assert self.go.wait(PATIENCE)
        return "done"

    def __reduce__(self) -> Any:
        BLOCKS[id(self)] = self
        return (find_block, (id(self),))


BLOCKS: dict[int, Block] = {}


def find_block(number: int) -> Block:
    return BLOCKS[number]


def wait_until_unknown(client: Client, keys: list[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while {row[1] for row in client._ask("who_has", {"keys": keys})} != {"unknown"}:
        assert time.monotonic() < deadline, client.story(keys[0])
        time.sleep(0.001)


def test_map_and_gather__in_order(client: Client) -> None:
    futures = client.map(inc, range(3000))
    assert client.gather(futures, timeout=PATIENCE) == list(range(1, 3001))


def test_chain_of_submits__each_uses_the_last(client: Client) -> None:
    future = client.submit(inc, 0)
    for _ in range(100):
        future = client.submit(inc, future)
    assert future.result(PATIENCE) == 101


def test_tree_of_merges(client: Client) -> None:
    level = client.map(inc, range(64))
    while len(level) > 1:
        level = [client.submit(add, *pair) for pair in zip(level[::2], level[1::2])]
    assert level[0].result(PATIENCE) == sum(range(1, 65))


def test_coroutine__is_awaited_on_the_worker(client: Client) -> None:
    assert client.gather(client.map(inc_later, range(20)), timeout=PATIENCE) == list(range(1, 21))


def test_graph__only_what_is_wanted_comes_back(client: Client) -> None:
    graph = {f"leaf{n}": Task(inc, n) for n in range(10)}
    graph["sum"] = Task(sum, [Ref(f"leaf{n}") for n in range(10)])
    for _ in range(5):  # The same keys, again and again.
        assert client.get(graph, "sum", timeout=PATIENCE) == 55
    assert client.get(graph, ["sum", "leaf3"], timeout=PATIENCE) == [55, 4]


def test_large_results__fetched_from_the_workers(client: Client) -> None:
    np = pytest.importorskip("numpy")
    futures = [client.submit(np.full, 500_000, n) for n in range(4)]
    arrays = client.gather(futures, timeout=PATIENCE)
    assert [array[-1] for array in arrays] == [0, 1, 2, 3]
    assert set(client.who_has(futures)) == {future.key for future in futures}
    total = client.submit(add, futures[1], futures[3])
    assert total.result(PATIENCE)[0] == 4


def test_scattered_values__used_by_tasks_and_fetched_back(client: Client) -> None:
    np = pytest.importorskip("numpy")
    array, words = client.scatter([np.arange(100_000), ["a", "b"]])
    assert client.submit(add, words, ["c"]).result(PATIENCE) == ["a", "b", "c"]
    assert client.submit(np.sum, array).result(PATIENCE) == 4999950000
    assert client.gather({"x": words}, timeout=PATIENCE) == {"x": ["a", "b"]}
    everywhere = client.scatter({"shared": 7}, broadcast=True)["shared"]
    assert len(client.who_has(everywhere)["shared"]) == 2


def test_pure_and_explicit_keys__share_a_result(client: Client) -> None:
    one, two = client.submit(add, "a", "b", pure=True), client.submit(add, "a", "b", pure=True)
    assert one.key == two.key
    assert client.submit(inc, 1, key="mine").result(PATIENCE) == 2


def test_key_dropped_and_submitted_again__always_the_new_task(client: Client) -> None:
    for n in range(100):
        future = client.submit(inc, n, key="again")
        if n % 3 == 0:
            assert future.result(PATIENCE) == n + 1
        elif n % 3 == 1:
            future.cancel()
        del future
    assert client.submit(inc, 1000, key="again").result(PATIENCE) == 1001


def test_two_clients__share_a_key(cluster: LocalCluster, client: Client) -> None:
    with Client(cluster) as other:
        block = Block()
        mine = client.submit(block, key="shared")
        assert block.started.wait(PATIENCE)
        theirs = other.submit(block, key="shared")
        assert other.story("shared")
        mine.cancel()
        block.go.set()
        assert theirs.result(PATIENCE) == "done"
        assert mine.cancelled()


def test_cancelled_by_force_of_another_client__says_who(cluster: LocalCluster, client: Client) -> None:
    with Client(cluster, name="bob") as other:
        block = Block()
        mine = client.submit(block, key="contested")
        assert block.started.wait(PATIENCE)
        theirs = other.submit(block, key="contested")
        other.who_has(theirs)  # It has been heard.
        other.cancel(theirs, force=True)
        with pytest.raises(concurrent.futures.CancelledError, match="bob"):
            mine.result(PATIENCE)
        block.go.set()


def test_waiting_for_the_first__others_go_on(client: Client) -> None:
    block = Block()
    slow, quick = client.submit(block), client.submit(inc, 1)
    assert wait([slow, quick], PATIENCE, return_when="FIRST_COMPLETED") == ({quick}, {slow})
    arrivals = as_completed([slow, quick], timeout=PATIENCE)
    assert next(arrivals) is quick
    block.go.set()
    assert next(arrivals) is slow


def test_dropped_futures__the_scheduler_forgets_their_tasks(client: Client) -> None:
    keys = [future.key for future in client.map(inc, range(100))]
    gc.collect()
    wait_until_unknown(client, keys)


def test_async_client__same_cluster(cluster: LocalCluster) -> None:
    async def run() -> None:
        async with AsyncClient(cluster) as client:
            futures = client.map(inc, range(100))
            assert await client.gather(futures) == list(range(1, 101))
            assert await client.get({"a": Task(inc, 1), "b": Task(inc, Ref("a"))}, "b") == 3
            data = await client.scatter(list(range(10)), broadcast=True)
            total = client.submit(sum, data)
            assert await total == 45
            assert await client.submit(bytes, 2_000_000) == bytes(2_000_000)
            done = [value async for _, value in as_completed(futures, with_results=True)]
            assert sorted(done) == list(range(1, 101))
            with pytest.raises(ZeroDivisionError):
                await client.submit(divmod, 1, 0)

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def test_client_that_leaves__takes_its_tasks_along(cluster: LocalCluster, client: Client) -> None:
    with Client(cluster) as other:
        keys = [future.key for future in other.map(inc, range(10), key="guest")]
    wait_until_unknown(client, keys)
