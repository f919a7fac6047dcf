"""Tasks, arguments, results and graphs that fail: only what is concerned fails, and the error says what and why."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from shunter.client.client import Client
from shunter.client.graphs import Ref, Task
from shunter.deploy.local import LocalCluster
from shunter.errors import GraphError, RemoteError, UsageError

PATIENCE = 20.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(2, 1, processes=False) as found:
        yield found


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as found:
        yield found


@pytest.fixture(autouse=True)
def others_go_on(client: Client) -> Iterator[None]:
    """Whatever a test does, the next task of the same client runs."""
    yield
    assert client.submit(abs, -7).result(PATIENCE) == 7


class NeedsTwo(Exception):
    """pickle cannot rebuild it: its arguments are not those of ``__init__``."""

    def __init__(self, code: int, place: str) -> None:
        super().__init__(f"{code} at {place}")
        self.code = code


class HoldsLock(Exception):
    def __init__(self) -> None:
        super().__init__("with a lock inside")
        self.lock = threading.Lock()


class Unpicklable:
    def __reduce__(self) -> Any:
        raise TypeError("this thing stays where it is")


class ExplodesOnArrival:
    """Can be pickled, cannot be unpickled."""

    def __reduce__(self) -> Any:
        return (fail, ())


def fail() -> None:
    raise ValueError("no good")


def fail_with_two() -> None:
    raise NeedsTwo(7, "home")


def fail_with_lock() -> None:
    raise HoldsLock


def make_lock() -> Any:
    return threading.Lock()


def add(x: int, y: int) -> int:
    return x + y


def inc(x: int) -> int:
    return x + 1


def test_function_raises__same_exception_with_the_remote_traceback(client: Client) -> None:
    with pytest.raises(ValueError, match="no good") as caught:
        client.submit(fail).result(PATIENCE)
    assert "in fail" in str(caught.value.__cause__)


def test_dependent_of_a_failed_task__gets_its_exception(client: Client) -> None:
    with pytest.raises(ValueError, match="no good"):
        client.submit(inc, client.submit(fail)).result(PATIENCE)


def test_exception_with_required_arguments__type_and_text_arrive(client: Client) -> None:
    error = client.submit(fail_with_two).exception(PATIENCE)
    assert "NeedsTwo" in f"{type(error).__name__} {error}"
    assert "7 at home" in str(error)


def test_exception_that_cannot_be_pickled__remote_error_tells_type_and_text(client: Client) -> None:
    error = client.submit(fail_with_lock).exception(PATIENCE)
    assert isinstance(error, RemoteError)
    assert "HoldsLock" in str(error) and "with a lock inside" in str(error)
    assert "fail_with_lock" in error.remote_traceback + str(error.__cause__)


def test_argument_cannot_be_pickled__error_at_once_in_the_caller(client: Client) -> None:
    with pytest.raises(TypeError, match="this thing stays where it is"):
        client.submit(inc, Unpicklable())


def test_argument_cannot_be_unpickled__that_task_fails(client: Client) -> None:
    error = client.submit(inc, ExplodesOnArrival()).exception(PATIENCE)
    assert error is not None and "no good" in str(error)


def test_result_cannot_be_pickled__gather_tells_which(client: Client) -> None:
    future = client.submit(make_lock)
    error = future.exception(PATIENCE)
    if error is None:
        with pytest.raises(Exception, match="lock") as caught:
            future.result(PATIENCE)
        error = caught.value
    assert "make_lock" in str(error) or future.key in str(error)


def test_cycle__named(client: Client) -> None:
    graph = {"a": Task(inc, Ref("b")), "b": Task(inc, Ref("a"))}
    with pytest.raises(GraphError, match=r"cycle.*'a'.*'b'|cycle.*'b'.*'a'"):
        client.get(graph, "a")


def test_unknown_input__named(client: Client) -> None:
    with pytest.raises(GraphError, match="'nowhere'"):
        client.get({"c": Task(inc, Ref("nowhere"))}, "c")


@pytest.mark.parametrize("key", [1, b"x", ("x", 1), None])
def test_key_of_the_wrong_type__usage_error_names_it(client: Client, key: Any) -> None:
    with pytest.raises(UsageError, match=type(key).__name__):
        client.get({key: Task(inc, 1)}, [key])


def test_resource_that_nobody_has__why_names_it(client: Client) -> None:
    future = client.submit(inc, 1, resources={"GPU": 1})
    assert "no worker has GPU=1" in client.why(future)
    future.cancel()


_attempts: list[int] = []


def succeed_on_third() -> int:
    _attempts.append(1)
    if len(_attempts) < 3:
        raise OSError("not yet")
    return len(_attempts)


def test_retries__used_one_by_one(client: Client) -> None:
    _attempts.clear()
    assert client.submit(succeed_on_third, retries=2).result(PATIENCE) == 3


def test_deep_chain__runs(client: Client) -> None:
    graph = {f"d-{i}": Task(inc, Ref(f"d-{i - 1}")) if i else Task(inc, 0) for i in range(2_000)}
    assert client.get(graph, "d-1999") == 2_000


def test_futures_nested_in_arguments__are_values_when_it_runs(client: Client) -> None:
    one, two = client.submit(inc, 0), client.submit(inc, 1)
    assert client.submit(lambda d: d["a"][0] + d["b"], {"a": [one], "b": two}).result(PATIENCE) == 3


def test_scattered_value__is_an_input_like_any(client: Client) -> None:
    data = client.scatter({"x": list(range(10))})
    assert client.submit(lambda d: sum(d["x"]), data).result(PATIENCE) == 45


async def wait_and_add(x: int, y: int) -> int:
    return x + y


def test_coroutine_function__is_awaited(client: Client) -> None:
    assert client.submit(wait_and_add, 1, 2).result(PATIENCE) == 3


def test_two_clients_share_a_key__one_leaves_the_other_keeps_it(
    client: Client, cluster: LocalCluster
) -> None:
    with Client(cluster) as other:
        mine = client.submit(add, 1, 2, key="shared-key")
        theirs = other.submit(add, 1, 2, key="shared-key")
        assert theirs.result(PATIENCE) == 3
    assert mine.result(PATIENCE) == 3
