"""Fire and forget, retry, cancel: what clients say, and what they refuse to. And both clients can do the same."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shunter.client.async_client import AsyncClient
from shunter.client.client import Client
from shunter.client.futures import Future
from shunter.errors import ConnectionLost, UsageError
from shunter.wire import messages as m
from tests.client.fake import TIMEOUT, FakeScheduler
from tests.client.test_client import erred, finished, inc


@pytest.fixture
def scheduler() -> Iterator[FakeScheduler]:
    with FakeScheduler() as scheduler:
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


# ------------------------------------------------------------------------------------------- parity


def public_methods(cls: type) -> dict[str, list[str]]:
    """Names and parameters."""
    return {
        name: list(inspect.signature(method).parameters)
        for name, method in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    }


def test_both_clients__have_the_same_methods_with_the_same_arguments() -> None:
    plain, asynchronous = public_methods(Client), public_methods(AsyncClient)
    assert set(plain) - set(asynchronous) == set()
    assert set(asynchronous) - set(plain) == {"start", "wait"}
    timeless = {"gather", "get"}  # asyncio.wait_for is for that.
    for name, parameters in plain.items():
        expected = [each for each in parameters if each != "timeout" or name not in timeless]
        assert asynchronous[name] == expected, name


@pytest.mark.parametrize("cls", [Client, AsyncClient, Future])
def test_public_methods__say_what_they_do(cls: type) -> None:
    for name in public_methods(cls):
        assert inspect.getdoc(getattr(cls, name)), name


# ------------------------------------------------------------------------------------------- fire and forget


def test_fire_and_forget__said_after_the_submission_and_before_the_release(
    client: Client, idle: FakeScheduler
) -> None:
    futures = {"x": client.submit(inc, 1, key="x"), "more": [client.submit(inc, n) for n in range(2)]}
    client.fire_and_forget(futures)
    del futures
    idle.wait_for(m.Release)
    kinds = [type(each) for each in idle.said if isinstance(each, (m.Submit, m.Detach, m.Release))]
    assert kinds == [*[m.Submit] * kinds.count(m.Submit), m.Detach, m.Release]
    assert idle.of(m.Detach)[0].keys == idle.submitted()


def test_fire_and_forget_and_leave__it_has_arrived(scheduler: FakeScheduler) -> None:
    scheduler.runs_tasks = False
    with Client(scheduler.address, token=scheduler.token) as client:
        client.fire_and_forget(client.submit(len, bytes(5_000_000), key="x"))
    scheduler.wait_until_gone()
    assert scheduler.of(m.Detach) == [m.Detach(["x"])]
    assert scheduler.of(m.Cancel) == []


def test_fire_and_forget_and_leave_a_loop__it_has_arrived(scheduler: FakeScheduler) -> None:
    async def run() -> None:
        async with AsyncClient(scheduler.address, token=scheduler.token) as client:
            client.fire_and_forget([client.submit(len, bytes(5_000_000)) for _ in range(4)])

    scheduler.runs_tasks = False
    asyncio.run(asyncio.wait_for(run(), TIMEOUT))
    scheduler.wait_until_gone()
    assert [len(each.keys) for each in scheduler.of(m.Detach)] == [4]


def test_fire_and_forget_what_is_done__nothing_to_say(client: Client, scheduler: FakeScheduler) -> None:
    future = client.submit(inc, 1)
    future.result(TIMEOUT)
    client.fire_and_forget([future])
    client.status()
    assert scheduler.of(m.Detach) == []


def test_fire_and_forget_what_was_cancelled__usage_error(client: Client, idle: FakeScheduler) -> None:
    futures = client.map(inc, range(2))
    futures[1].cancel()
    with pytest.raises(UsageError, match="was cancelled: submit it again"):
        client.fire_and_forget(futures)
    assert idle.of(m.Detach) == []


# ------------------------------------------------------------------------------------------- what all of them refuse

CALLS: dict[str, Callable[[Client, Any], None]] = {
    "cancel": Client.cancel,
    "retry": Client.retry,
    "fire_and_forget": Client.fire_and_forget,
}


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_future__usage_error_names_the_type(client: Client, name: str) -> None:
    with pytest.raises(UsageError, match=rf"{name}\(\) takes a future.*not str"):
        CALLS[name](client, "x")
    with pytest.raises(UsageError, match="not generator"):
        CALLS[name](client, (each for each in [client.submit(inc, 1)]))


@pytest.mark.parametrize("name", CALLS)
def test_no_futures_at_all__nothing_happens(client: Client, scheduler: FakeScheduler, name: str) -> None:
    CALLS[name](client, [])
    CALLS[name](client, {"x": ()})
    assert scheduler.said == []


@pytest.mark.parametrize("name", CALLS)
def test_future_of_another_client__usage_error_and_it_stays_as_it_is(
    client: Client, scheduler: FakeScheduler, name: str
) -> None:
    scheduler.runs_tasks = False
    with Client(scheduler.address, token=scheduler.token) as other:
        future = other.submit(inc, 1)
        with pytest.raises(UsageError, match=f"another client: use {name}"):
            CALLS[name](client, future)
        assert future.status == "pending"


@pytest.mark.parametrize("name", CALLS)
def test_scheduler_is_gone__connection_lost(client: Client, idle: FakeScheduler, name: str) -> None:
    future = client.submit(inc, 1)
    idle.wait_for(m.Submit)
    idle.cut_off("it is late")
    with pytest.raises(ConnectionLost):
        future.result(TIMEOUT)
    with pytest.raises(ConnectionLost, match=f"{idle.address}.*it is late"):
        CALLS[name](client, future)


# ------------------------------------------------------------------------------------------- retry, cancel


def test_retry_several__one_message_and_all_pending(client: Client, idle: FakeScheduler) -> None:
    futures = client.map(inc, range(3))
    idle.tell(*[erred(each.key) for each in futures])
    assert all(each.exception(TIMEOUT) is not None for each in futures)
    client.retry([futures[0], {"x": futures[1]}, futures[2], futures[0]])
    assert idle.wait_for(m.Retry) == [m.Retry([each.key for each in futures])]
    assert not any(each.done() for each in futures)
    idle.tell(*[finished(each.key, 7) for each in futures])
    assert client.gather(futures, timeout=TIMEOUT) == [7, 7, 7]


@pytest.mark.parametrize("state", ["pending", "finished", "cancelled"])
def test_retry_what_has_not_failed__usage_error_says_what_to_do(
    client: Client, idle: FakeScheduler, state: str
) -> None:
    future = client.submit(inc, 1, key="x")
    if state == "finished":
        idle.tell(finished("x", 2))
        future.result(TIMEOUT)
    elif state == "cancelled":
        future.cancel()
    text = "was cancelled: submit it again" if state == "cancelled" else f"has not failed: it is {state}"
    with pytest.raises(UsageError, match=text):
        future.retry()
    with pytest.raises(UsageError, match=text):
        client.retry([future])
    assert future.status == state
    assert idle.of(m.Retry) == []


def test_cancel_what_has_failed__stays_failed_and_its_key_is_free(
    client: Client, idle: FakeScheduler
) -> None:
    future = client.submit(inc, 1, key="x")
    idle.tell(erred("x"))
    assert future.exception(TIMEOUT) is not None
    client.cancel(future)
    assert future.status == "error"
    assert idle.wait_for(m.Cancel) == [m.Cancel(["x"], False)]
    again = client.submit(inc, 1, key="x")
    assert again.status == "pending"
    assert len(idle.wait_for(m.Submit, 2)) == 2


# ------------------------------------------------------------------------------------------- lost links


def test_finished_but_not_fetched_when_the_link_is_lost__result_says_so_at_once(
    client: Client, idle: FakeScheduler
) -> None:
    here, there = client.submit(inc, 1), client.submit(inc, 2)
    idle.tell(finished(here.key, 2), m.ClientFinished([there.key], [1 << 30], [None]))
    assert here.result(TIMEOUT) == 2
    client.status()
    assert there.status == "finished"
    idle.cut_off("SIGTERM")
    with pytest.raises(ConnectionLost):
        while True:
            client.status()
    for ask in (there.result, lambda: client.gather([there]), lambda: client.get_dataset("d")):
        with pytest.raises(ConnectionLost, match=f"{idle.address}.*SIGTERM"):
            ask()
    assert isinstance(there.exception(), ConnectionLost)
    assert here.result() == 2
