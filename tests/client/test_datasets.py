"""Datasets: published by one client, put together again by another, and let go of when their futures die."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from shunter.client.async_client import AsyncClient
from shunter.client.client import Client
from shunter.client.futures import Future
from shunter.errors import ConnectionLost, PeerError, RemoteError, UsageError
from shunter.wire import messages as m
from tests.client.fake import TIMEOUT, FakeScheduler
from tests.client.test_client import Unpicklable, erred, finished, inc


class Shelf:
    """Datasets of a false scheduler. ``reports``: said right behind the reply, as the true one does."""

    def __init__(self, scheduler: FakeScheduler) -> None:
        self.published: dict[str, m.Publish] = {}
        self.reports: list[Any] = []
        scheduler.reactions.update({m.Publish: self.put, m.GetDataset: self.get, m.Unpublish: self.remove})
        scheduler.answers["datasets"] = lambda arguments: [
            {"name": name, "keys": len(each.keys)} for name, each in self.published.items()
        ]

    def put(self, message: m.Publish) -> list[Any]:
        if message.name in self.published and not message.replace:
            return [m.Reply(message.request, False, f"there is a dataset {message.name!r} already")]
        self.published[message.name] = message
        return [m.Reply(message.request, True, None)]

    def get(self, message: m.GetDataset) -> list[Any]:
        found = self.published.get(message.name)
        if found is None:
            return [m.Reply(message.request, False, f"there is no dataset {message.name!r}")]
        return [m.Reply(message.request, True, {"keys": found.keys, "data": found.data}), *self.reports]

    def remove(self, message: m.Unpublish) -> list[Any]:
        return [m.Reply(message.request, True, self.published.pop(message.name, None) is not None)]


@pytest.fixture
def scheduler() -> Iterator[FakeScheduler]:
    with FakeScheduler(runs_tasks=False) as scheduler:
        yield scheduler


@pytest.fixture
def shelf(scheduler: FakeScheduler) -> Shelf:
    return Shelf(scheduler)


@pytest.fixture
def client(scheduler: FakeScheduler) -> Iterator[Client]:
    with Client(scheduler.address, token=scheduler.token) as client:
        yield client


@pytest.fixture
def other(scheduler: FakeScheduler, client: Client) -> Iterator[Client]:
    with Client(scheduler.address, token=scheduler.token) as other:
        yield other


def released(scheduler: FakeScheduler) -> list[str]:
    return [key for each in scheduler.of(m.Release) for key in each.keys]


# ------------------------------------------------------------------------------------------- there and back


def test_structure__comes_back_with_the_other_clients_futures(
    client: Client, other: Client, shelf: Shelf
) -> None:
    x, y = client.submit(inc, 1, key="x"), client.submit(inc, 2, key="y")
    shelf.reports = [finished("x", 2), erred("y")]
    client.publish("d", {"deep": [(x, 3), {"y": y}], "again": x, "plain": {1, 2}})
    found = other.get_dataset("d")
    first, second = found["deep"][0][0], found["deep"][1]["y"]
    assert found["deep"][0][1] == 3 and found["plain"] == {1, 2} and found["again"] is first
    assert (type(first), first.key, second.key) == (Future, "x", "y")
    assert first.result(TIMEOUT) == 2
    with pytest.raises(RemoteError):
        second.result(TIMEOUT)
    assert other.submit(inc, first).status == "pending"  # It is a future of that client.


def test_lone_future_and_no_future_at_all__both_can_be_published(
    client: Client, other: Client, shelf: Shelf
) -> None:
    x = client.submit(inc, 1, key="x")
    client.publish("one", x)
    client.publish("none", [1, "two"])
    assert other.get_dataset("one").key == "x"
    assert other.get_dataset("none") == [1, "two"]


def test_publish__said_after_the_submission(client: Client, scheduler: FakeScheduler, shelf: Shelf) -> None:
    client.publish("d", [client.submit(inc, n) for n in range(3)])
    kinds = [type(each) for each in scheduler.said if not isinstance(each, m.Functions)]
    assert kinds[-1] is m.Publish and set(kinds[:-1]) == {m.Submit}
    assert scheduler.of(m.Publish)[0].keys == scheduler.submitted()


def test_names__listed_replaced_and_let_go(client: Client, shelf: Shelf) -> None:
    assert client.list_datasets() == []
    client.publish("b", 1)
    client.publish("a", 2)
    with pytest.raises(UsageError, match="there is a dataset 'a' already"):
        client.publish("a", 3)
    client.publish("a", 3, replace=True)
    assert client.get_dataset("a") == 3
    assert client.list_datasets() == ["b", "a"]
    assert (client.unpublish("a"), client.unpublish("a")) == (True, False)
    with pytest.raises(UsageError, match="no dataset 'a'"):
        client.get_dataset("a")


def test_asynchronous__the_same(scheduler: FakeScheduler, shelf: Shelf) -> None:
    async def run() -> None:
        async with AsyncClient(scheduler.address, token=scheduler.token) as client:
            x = client.submit(inc, 1, key="x")
            await client.publish("d", [x])
            with pytest.raises(UsageError, match="already"):
                await client.publish("d", [x])
            (found,) = await client.get_dataset("d")
            scheduler.tell(finished("x", 2))
            assert await found == 2
            assert await client.list_datasets() == ["d"]
            assert await client.unpublish("d") is True
            with pytest.raises(UsageError, match="no dataset"):
                await client.get_dataset("d")

    asyncio.run(asyncio.wait_for(run(), TIMEOUT))


# ------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("name", ["", "x" * 257, 3, None, "\ud800"])
def test_name_that_does_not_fit__usage_error_and_nothing_said(
    client: Client, scheduler: FakeScheduler, name: Any
) -> None:
    for call in (
        lambda: client.publish(name, 1),
        lambda: client.get_dataset(name),
        lambda: client.unpublish(name),
    ):
        with pytest.raises(UsageError, match="name of a dataset"):
            call()
    assert scheduler.said == []


def test_values_that_cannot_be_published__usage_error_says_why(
    client: Client, other: Client, scheduler: FakeScheduler
) -> None:
    cancelled = client.submit(inc, 1)
    cancelled.cancel()
    for value, text in {
        "unpicklable": ([Unpicklable()], "publish.*cannot be pickled"),
        "large": (random.Random(0).randbytes(200_000), "bytes as text; 262,144 are allowed.*scatter"),
        "cancelled": ({"x": cancelled}, "was cancelled"),
        "another's": ([other.submit(inc, 1)], "another client's"),
        "many": ([client.submit(inc, 1, key=f"{n}-" + "x" * 900) for n in range(900)], "900 futures"),
    }.values():
        with pytest.raises(UsageError, match=text):
            client.publish("d", value)
    assert scheduler.of(m.Publish) == []


def test_largest_value__fits(client: Client, shelf: Shelf) -> None:
    value = random.Random(0).randbytes(190_000)
    client.publish("d", value)
    assert client.get_dataset("d") == value


def test_ten_thousand_futures__fit(client: Client, other: Client, shelf: Shelf) -> None:
    futures = client.map(inc, range(10_000))
    client.publish("d", futures)
    assert [each.key for each in other.get_dataset("d")] == [each.key for each in futures]
    assert len(shelf.published["d"].data) < 100_000


def test_answer_that_is_no_dataset__peer_error_and_the_connection_lives(
    client: Client, scheduler: FakeScheduler
) -> None:
    for value in (None, {"keys": [3], "data": ""}, {"keys": ["x"]}, ["x"]):
        scheduler.reactions[m.GetDataset] = lambda message, value=value: [
            m.Reply(message.request, True, value)
        ]
        with pytest.raises(PeerError, match="no dataset"):
            client.get_dataset("d")
    assert client.status() == {"tasks": 0}


def test_scheduler_goes_meanwhile__connection_lost(client: Client, scheduler: FakeScheduler) -> None:
    def leave(message: m.GetDataset) -> list[Any]:
        scheduler.cut_off("it is late")
        return []

    scheduler.reactions[m.GetDataset] = leave
    with pytest.raises(ConnectionLost, match="it is late"):
        client.get_dataset("d")


# ------------------------------------------------------------------------------------------- interest


def test_futures_of_a_dataset_die__released_once(
    client: Client, other: Client, scheduler: FakeScheduler, shelf: Shelf
) -> None:
    mine = [client.submit(inc, n, key=f"x{n}") for n in range(2)]
    client.publish("d", [*mine, mine[0]])
    found = other.get_dataset("d")
    again = other.get_dataset("d")
    del found
    gc.collect()
    other.status()
    assert released(scheduler) == []
    del again
    scheduler.wait_for(m.Release)
    other.status()
    assert sorted(released(scheduler)) == ["x0", "x1"]
    assert len(other._session.table) == 0
    assert len(client._session.table) == 2


def explode() -> None:
    raise ValueError("not here")


class Explodes:
    """Can be pickled only."""

    def __reduce__(self) -> tuple[object, ...]:
        return (explode, ())


def test_something_cannot_be_unpickled__error_says_so_and_futures_are_let_go(
    client: Client, other: Client, scheduler: FakeScheduler, shelf: Shelf
) -> None:
    x = client.submit(inc, 1, key="x")
    client.publish("d", [x, Explodes()])
    with pytest.raises(
        UsageError, match="dataset 'd' cannot be unpickled in this process: ValueError: not here"
    ):
        other.get_dataset("d")
    assert scheduler.wait_for(m.Release) == [m.Release(["x"])]
    assert len(other._session.table) == 0


def test_data_that_is_no_base64__error_says_so_and_futures_are_let_go(
    client: Client, scheduler: FakeScheduler
) -> None:
    value = {"keys": ["x"], "data": "?"}
    scheduler.reactions[m.GetDataset] = lambda message: [m.Reply(message.request, True, value)]
    with pytest.raises(UsageError, match="cannot be unpickled"):
        client.get_dataset("d")
    assert scheduler.wait_for(m.Release) == [m.Release(["x"])]


def test_nobody_waits_for_the_answer_any_more__released(scheduler: FakeScheduler, shelf: Shelf) -> None:
    with Client(scheduler.address, token=scheduler.token) as client:
        connection = client._session.connection
        client.publish("d", [client.submit(inc, 1, key="x")])
        datasets = client._session.datasets
        made = threading.Event()

        def receive(value: object) -> object:
            found = datasets.receive(value)
            made.set()
            return found

        async def give_up() -> None:
            asking = asyncio.ensure_future(connection.call_async(datasets.request("d"), receive=receive))
            await asyncio.sleep(0)  # It has asked.
            asking.cancel()

        client._loop_thread.run(give_up())
        assert made.wait(TIMEOUT)
        # Twice: the future that was published, and the one that nobody got, in either order.
        while len(client._session.table):
            client.status()
        assert set(released(scheduler)) == {"x"}


def test_key_released_after_the_request__wanted_again(
    client: Client, scheduler: FakeScheduler, shelf: Shelf
) -> None:
    """The scheduler hears: get the dataset, release x. So its interest is gone when the reply comes."""
    futures = [client.submit(inc, 1, key="x")]
    client.publish("d", futures[0])
    drop = client._session.giving_up

    def get(message: m.GetDataset) -> list[Any]:
        futures.clear()
        with client._session.table.lock:
            drop.drain()
            client._session.connection.flush()
        return shelf.get(message)

    scheduler.reactions[m.GetDataset] = get
    scheduler.held["x"] = ("processing", -1, [])
    found = client.get_dataset("d")
    assert scheduler.wait_for(m.Desire) == [m.Desire(["x"])]
    client.status()
    said = [type(each) for each in scheduler.said]
    assert said.index(m.Release) < said.index(m.Desire)
    client.status()
    client.status()  # Behind the fence of the key's former life.
    scheduler.tell(finished("x", 2))
    assert found.result(TIMEOUT) == 2


def test_key_of_a_live_future__shared(client: Client, scheduler: FakeScheduler, shelf: Shelf) -> None:
    x = client.submit(inc, 1, key="x")
    client.publish("d", x)
    found = client.get_dataset("d")
    assert found._entry is x._entry
    assert scheduler.of(m.Desire) == []
    del x
    client.status()
    assert released(scheduler) == []
    scheduler.tell(finished("x", 2))
    assert found.result(TIMEOUT) == 2


def test_dataset_gone_in_the_meantime__future_is_cancelled_with_the_reason(
    client: Client, other: Client, scheduler: FakeScheduler, shelf: Shelf
) -> None:
    client.publish("d", client.submit(inc, 1, key="x"))
    scheduler.reactions[m.Desire] = lambda message: [
        m.Cancelled(message.keys, ["the scheduler does not know 'x'; submit it again"])
    ]
    found = other.get_dataset("d")
    with pytest.raises(BaseException, match="does not know 'x'"):
        found.result(TIMEOUT)
    assert found.cancelled()


def test_restart_after_the_dataset_was_got__its_futures_are_void_and_released(
    client: Client, other: Client, scheduler: FakeScheduler, shelf: Shelf
) -> None:
    x = client.submit(inc, 1, key="x")
    client.publish("d", x)
    shelf.reports = [m.Restarted()]
    found = other.get_dataset("d")
    assert scheduler.wait_for(m.Release) == [m.Release(["x"])]
    other.status()
    assert found.cancelled()
    del found
    gc.collect()
    other.status()
    assert released(scheduler) == ["x"]
    assert x.status == "pending"  # The other client's: not told yet.
