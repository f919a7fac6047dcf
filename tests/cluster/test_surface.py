"""Retry, cancel, story, why, fire and forget, datasets, restart: by true clients of a true cluster in this process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from shunter.client.async_client import AsyncClient
from shunter.client.client import Client
from shunter.client.graphs import Ref, Task
from shunter.deploy.local import LocalCluster
from shunter.errors import ConnectionLost, UsageError

PATIENCE = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(2, 1, processes=False) as cluster:
        with Client(cluster) as client:
            client.wait_for_workers(2, timeout=PATIENCE)
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        yield client
    with Client(cluster) as client:  # Nothing is left, whatever a test did.
        for name in client.list_datasets():
            client.unpublish(name)
        wait_until(lambda: n_tasks(client) == 0)


@pytest.fixture
def other(cluster: LocalCluster, client: Client) -> Iterator[Client]:
    with Client(cluster) as other:
        yield other


def inc(x: int) -> int:
    return x + 1


def wait_until(condition: Callable[[], bool]) -> None:
    """Ask again and again, in bounded time: what is waited for has no event."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        threading.Event().wait(0.005)


def n_tasks(client: Client) -> int:
    """How many tasks the scheduler knows."""
    count: int = client.status()["counts"]["tasks"]
    return count


class Flaky:
    """Fails until it is mended: workers share this process."""

    mended: ClassVar[dict[str, bool]] = {}

    def __init__(self, name: str) -> None:
        self.name = name
        self.mended[name] = False

    def __call__(self, *args: object) -> str:
        if not self.mended[self.name]:
            raise ValueError(f"{self.name} is broken")
        return self.name


class Block:
    """A task that runs until it is let go."""

    made: ClassVar[dict[int, Block]] = {}

    def __init__(self) -> None:
        self.started = threading.Event()
        self.go = threading.Event()
        self.ended = threading.Event()
        self.made[id(self)] = self

    def __call__(self, *args: object) -> str:
        self.started.set()
        assert self.go.wait(PATIENCE)
        self.ended.set()
        return "done"

    def __reduce__(self) -> tuple[object, ...]:
        return (find_block, (id(self),))


def find_block(number: int) -> Block:
    return Block.made[number]


# ------------------------------------------------------------------------------------------- retry, story, why


def test_retry_of_several__from_the_root_that_failed(client: Client) -> None:
    graph = {"root": Task(Flaky("root")), "a": Task(str, Ref("root")), "b": Task(str, Ref("root"))}
    futures = client.submit_graph(graph, ["a", "b"])
    for future in futures.values():
        with pytest.raises(ValueError, match="root is broken"):
            future.result(PATIENCE)
    Flaky.mended["root"] = True
    client.retry(futures)
    assert client.gather(futures, timeout=PATIENCE) == {"a": "root", "b": "root"}
    with pytest.raises(UsageError, match="has not failed"):
        client.retry(futures)


def test_story_and_why__tell_of_a_future_and_of_a_key(client: Client) -> None:
    future = client.submit(inc, 1, resources={"MOON": 1}, key="lunar")
    wait_until(lambda: "MOON" in client.why(future))
    assert client.why(future) == client.why("lunar")
    assert "\n" not in client.why("lunar")
    story = client.story("lunar")
    assert story and all(isinstance(line, str) for line in story)
    assert client.story(future) == story
    future.cancel()


def test_cancel__takes_what_depends_on_it_along_and_leaves_what_others_want(
    client: Client, other: Client
) -> None:
    block = Block()
    root = client.submit(block, key="root")
    child = client.submit(str, root, key="child")
    shared = other.submit_graph({"root": Task(block)})["root"]
    assert block.started.wait(PATIENCE)
    client.cancel(root)
    assert root.cancelled() and not shared.done()
    client.cancel(child)
    block.go.set()
    assert shared.result(PATIENCE) == "done"


def test_cancel_by_force__other_clients_are_told_by_whom(client: Client, other: Client) -> None:
    block = Block()
    mine = client.submit(block, key="root")
    theirs = other.submit(block, key="root")
    child = other.submit(str, theirs)
    assert block.started.wait(PATIENCE)
    other.status()  # It is known as wanting it.
    client.cancel(mine, force=True)
    for future in (theirs, child):
        with pytest.raises(concurrent.futures.CancelledError, match="by force"):
            future.result(PATIENCE)
    block.go.set()


# ------------------------------------------------------------------------------------------- fire and forget


def test_fire_and_forget__runs_to_its_end_without_future_and_client_and_is_released_then(
    cluster: LocalCluster, other: Client
) -> None:
    first, last = Block(), Block()
    with Client(cluster) as client:
        client.fire_and_forget(client.submit(last, client.submit(first)))
    assert first.started.wait(PATIENCE)
    assert n_tasks(other) == 2
    first.go.set()
    last.go.set()
    assert last.ended.wait(PATIENCE)
    wait_until(lambda: n_tasks(other) == 0)


def test_fire_and_forget_by_an_asynchronous_client__the_same(cluster: LocalCluster, other: Client) -> None:
    block = Block()

    async def run() -> None:
        async with AsyncClient(cluster) as client:
            client.fire_and_forget([client.submit(block)])

    asyncio.run(asyncio.wait_for(run(), PATIENCE))
    assert block.started.wait(PATIENCE)
    block.go.set()
    assert block.ended.wait(PATIENCE)
    wait_until(lambda: n_tasks(other) == 0)


# ------------------------------------------------------------------------------------------- datasets


def test_dataset__outlives_its_client_and_is_released_with_the_last_who_want_it(
    cluster: LocalCluster, client: Client
) -> None:
    with Client(cluster) as publisher:
        futures = publisher.map(inc, range(3))
        failed = publisher.submit(divmod, 1, 0)
        publisher.publish("d", {"xs": futures, "bad": failed, "note": "hello"})
    assert client.list_datasets() == ["d"]
    found = client.get_dataset("d")
    assert client.gather(found["xs"], timeout=PATIENCE) == [1, 2, 3]
    with pytest.raises(ZeroDivisionError):
        found["bad"].result(PATIENCE)
    assert found["note"] == "hello"
    assert client.submit(sum, found["xs"]).result(PATIENCE) == 6
    assert client.unpublish("d") is True
    assert client.gather(found["xs"], timeout=PATIENCE) == [1, 2, 3]
    assert n_tasks(client) >= 4
    del found
    gc.collect()
    wait_until(lambda: n_tasks(client) == 0)


def test_dataset_of_what_still_runs__result_comes_to_whoever_got_it(client: Client, other: Client) -> None:
    block = Block()
    client.publish("d", client.submit(block))
    found = other.get_dataset("d")
    assert not found.done()
    block.go.set()
    assert found.result(PATIENCE) == "done"


def test_dataset_in_use_unknown_or_with_a_hole__the_schedulers_words(client: Client, other: Client) -> None:
    client.publish("d", 1)
    with pytest.raises(UsageError, match=r"there is a dataset 'd' already.*replace=True"):
        other.publish("d", 2)
    other.publish("d", 3, replace=True)
    assert client.get_dataset("d") == 3
    with pytest.raises(UsageError, match="no dataset 'e'; published are: 'd'"):
        client.get_dataset("e")
    gone = client.submit(inc, 1)
    assert gone.result(PATIENCE) == 2
    client.cancel(gone)
    with pytest.raises(UsageError, match="does not know"):
        client.publish("e", [gone])
    assert client.list_datasets() == ["d"]


def test_dataset_got_and_dropped_over_and_over__every_future_works(client: Client, other: Client) -> None:
    client.publish("d", {"x": client.submit(inc, 1, key="x"), "y": client.submit(inc, 2)})
    for each in [client, other] * 100:
        found = each.get_dataset("d")
        assert found["x"].result(PATIENCE) == 2
        del found["x"]
        assert each.gather(found, timeout=PATIENCE) == {"y": 3}
        del found
    client.unpublish("d")
    gc.collect()
    wait_until(lambda: n_tasks(client) == 0)


def test_dataset_got_by_many_threads_while_another_drops__every_future_works(client: Client) -> None:
    client.publish("d", client.submit(inc, 1, key="x"))
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                assert client.get_dataset("d").result(PATIENCE) == 2
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    assert failures == []


def test_datasets_of_an_asynchronous_client__there_and_back(cluster: LocalCluster, client: Client) -> None:
    async def run() -> Any:
        async with AsyncClient(cluster) as asynchronous:
            await asynchronous.publish("d", [asynchronous.submit(inc, 1)])
            found = await asynchronous.get_dataset("d")
            return await found[0], await asynchronous.list_datasets()

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE)) == (2, ["d"])
    assert client.get_dataset("d")[0].result(PATIENCE) == 2


# ------------------------------------------------------------------------------------------- restart


def test_restart__everything_of_everybody_is_void_and_then_all_works(client: Client, other: Client) -> None:
    block = Block()
    mine = [client.submit(inc, 1, key="x"), client.submit(block, key="block"), client.submit(inc, 2)]
    theirs = [other.submit(inc, 1, key="x"), other.submit(str, other.submit(block, key="block"))]
    client.publish("d", mine[0])
    assert mine[0].result(PATIENCE) == 2
    assert block.started.wait(PATIENCE)
    assert client.restart(PATIENCE) == 2
    assert all(each.cancelled() for each in mine)
    other.status()  # It has been told as well.
    for future in theirs:
        with pytest.raises(concurrent.futures.CancelledError, match="the cluster was restarted"):
            future.result(PATIENCE)
    block.go.set()
    assert client.list_datasets() == []
    wait_until(lambda: n_tasks(client) == 0)
    again = client.submit(inc, 5, key="x")
    assert again.result(PATIENCE) == 6
    assert other.get({"x": Task(inc, 6), "y": Task(inc, Ref("x"))}, "y", timeout=PATIENCE) == 7


def test_restart_by_an_asynchronous_client__the_same(cluster: LocalCluster, client: Client) -> None:
    future = client.submit(inc, 1)

    async def run() -> int:
        async with AsyncClient(cluster) as asynchronous:
            return await asynchronous.restart()

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE)) == 2
    client.list_datasets()  # What this client was told before the answer, it has heard.
    with pytest.raises(concurrent.futures.CancelledError, match="the cluster was restarted"):
        future.result(PATIENCE)


def test_restarts_while_others_submit__each_future_ends_and_nothing_is_left(
    client: Client, other: Client
) -> None:
    failures: list[BaseException] = []
    rounds = 20
    ended: list[int] = []

    def work(number: int) -> None:
        """Graphs with fixed keys, maps and chains; each ends well, cancelled, or without an input that is void."""
        try:
            for n in range(rounds):
                key = f"{number}-x"
                graph = {key: Task(inc, n), f"{key}{n}": Task(inc, Ref(key))}
                expected = {f"{key}{n}": n + 2}
                try:
                    futures = other.submit_graph(graph, list(expected))
                    assert other.gather(futures, timeout=PATIENCE) == expected
                    futures = other.map(inc, range(5))
                    assert other.gather(futures, timeout=PATIENCE) == list(range(1, 6))
                except concurrent.futures.CancelledError as error:
                    assert "restarted" in str(error)
                del futures
        except BaseException as error:
            failures.append(error)
        finally:
            ended.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    while len(ended) < len(threads):
        assert client.restart(PATIENCE) == 2
        for n in range(3):  # Some of the others' work gets done meanwhile.
            assert client.submit(inc, n).result(PATIENCE) == n + 1
    for thread in threads:
        thread.join(2 * PATIENCE)
    assert failures == []
    gc.collect()
    wait_until(lambda: n_tasks(client) == 0)


# ------------------------------------------------------------------------------------------- the link is lost


def test_scheduler_ends__what_is_not_here_fails_with_address_and_reason_and_nothing_hangs() -> None:
    block = Block()
    cluster = LocalCluster(1, 1, processes=False)
    with Client(cluster) as client:
        here, large = client.submit(inc, 1), client.submit(bytes, 10_000_000)
        assert here.result(PATIENCE) == 2
        wait_until(large.done)
        pending = client.submit(block)
        assert block.started.wait(PATIENCE)
        block.go.set()
        address = client.address
        cluster.close()
        waits: list[Callable[[], object]] = [
            lambda: large.result(PATIENCE),
            lambda: client.gather([large], timeout=PATIENCE),
            lambda: client.submit(inc, 1),
            lambda: client.restart(1.0),
            lambda: client.publish("d", here),
            lambda: client.get_dataset("d"),
            client.list_datasets,
            lambda: client.story("x"),
            lambda: client.fire_and_forget(pending),
        ]
        wait_until(lambda: client.closed)
        for call in waits:
            with pytest.raises(ConnectionLost, match=address):
                call()
        assert here.result() == 2
