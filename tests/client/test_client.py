"""`Client` against a false scheduler, over a real link in this process."""

from __future__ import annotations

import concurrent.futures
import copy
import gc
import pickle
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from shunter import serialize
from shunter.client.client import Client
from shunter.client.futures import Future, as_completed, wait
from shunter.client.graphs import Ref, Task
from shunter.errors import (
    ConnectionLost,
    GraphError,
    KilledWorker,
    LostInput,
    NoSuitableWorker,
    PeerError,
    RemoteError,
    UsageError,
)
from shunter.types import Retry
from shunter.wire import messages as m
from tests.client.fake import TIMEOUT, FakeScheduler


def inc(x: int) -> int:
    return x + 1


def add(x: Any, y: Any) -> Any:
    return x + y


def fail(text: str) -> None:
    raise ValueError(text)


class Unpicklable:
    def __reduce__(self) -> tuple[object, ...]:
        raise ZeroDivisionError("not me")


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


def finished(key: str, value: object) -> m.ClientFinished:
    data = pickle.dumps(value)
    return m.ClientFinished([key], [len(data)], [data])


def erred(*keys: str, kind: Any = "exception", text: str = "bad", root: str = "", **more: Any) -> m.Erred:
    types = more.pop("types", ["builtins.ValueError"])
    failure = m.Failure(
        kind, root or keys[0], text, more.pop("traceback", ""), types, {}, more.pop("data", None)
    )
    return m.Erred(list(keys), [0] * len(keys), [failure])


def released(scheduler: FakeScheduler, n: int) -> list[str]:
    """The keys that were released, once there are ``n``."""
    messages = 1
    while True:
        said = scheduler.wait_for(m.Release, messages)
        keys = [key for each in said for key in each.keys]
        if len(keys) >= n:
            return keys
        messages = len(said) + 1


# ------------------------------------------------------------------------------------------- submit


def test_submit__result_comes_back(client: Client) -> None:
    future = client.submit(inc, 1)
    assert future.result(TIMEOUT) == 2
    assert future.done() and not future.cancelled() and not future.running()
    assert future.exception() is None


def test_future_as_argument__stands_for_its_result(client: Client, scheduler: FakeScheduler) -> None:
    x = client.submit(inc, 1)
    y = client.submit(add, {"x": x}["x"], y=10)
    z = client.submit(sum, [[x, y]][0])
    assert z.result(TIMEOUT) == 14
    assert scheduler.of(m.Submit)[-1].inputs == [[x.key, y.key]]


def test_keys__are_unique_and_tell_the_function(client: Client) -> None:
    one, two = client.submit(inc, 1), client.submit(inc, 1)
    assert one.key != two.key
    assert one.key.startswith("inc-")


def test_function_used_often__travels_once(client: Client, scheduler: FakeScheduler) -> None:
    client.gather([client.submit(inc, n) for n in range(20)] + client.map(inc, range(20)))
    assert scheduler.function_count == 1


def test_options__go_with_the_task(client: Client, scheduler: FakeScheduler) -> None:
    client.submit(inc, 1, retries=Retry(2, delay=1), priority=5, workers=["a"], resources={"GPU": 1}).result(
        TIMEOUT
    )
    (submit,) = scheduler.of(m.Submit)
    assert submit.options == [
        {"retries": 2, "retry_delay": 1, "priority": 5, "workers": ["a"], "resources": {"GPU": 1}}
    ]


def test_wrong_option__raised_in_the_caller(client: Client, scheduler: FakeScheduler) -> None:
    with pytest.raises(UsageError, match="retries="):
        client.submit(inc, 1, retries=-1)
    with pytest.raises(UsageError, match="key must be a str, not tuple"):
        client.submit(inc, 1, key=("x", 1))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="must be callable, not int"):
        client.submit(3)  # type: ignore[arg-type]
    assert client.submit(inc, 1).result(TIMEOUT) == 2
    assert len(scheduler.submitted()) == 1


@pytest.mark.parametrize("bad", [Unpicklable(), threading.Lock(), (i for i in ())])
def test_unpicklable_argument__raised_in_the_caller_and_nothing_sent(
    client: Client, scheduler: FakeScheduler, bad: object
) -> None:
    before = client.submit(inc, 1)
    with pytest.raises(UsageError, match="argument 1 of 'add'"):
        client.submit(add, 1, bad)
    after = client.submit(inc, 2)
    assert client.gather([before, after], timeout=TIMEOUT) == [2, 3]
    assert scheduler.submitted() == [before.key, after.key]


def test_huge_argument__refused_with_the_way_out(client: Client) -> None:
    with pytest.raises(UsageError, match=r"arguments of 'len' take .* bytes.*scatter"):
        client.submit(len, b"x" * (33 << 20))


def test_large_arguments__arrive(client: Client) -> None:
    blocks = [bytes([n]) * 5_000_000 for n in range(6)]
    assert client.gather(client.map(len, blocks), timeout=TIMEOUT) == [5_000_000] * 6


def test_explicit_key__futures_share_one_task(client: Client, idle: FakeScheduler) -> None:
    one = client.submit(inc, 1, key="x")
    two = client.submit(inc, 5, key="x")
    idle.wait_for(m.Submit)
    idle.tell(finished("x", "shared"))
    assert one.result(TIMEOUT) == two.result(TIMEOUT) == "shared"
    assert idle.submitted() == ["x"]


def test_pure__same_call_same_key(client: Client, scheduler: FakeScheduler) -> None:
    one, two, other = (client.submit(add, *args, pure=True) for args in [(1, 2), (1, 2), (1, 3)])
    assert one.key == two.key != other.key
    assert client.gather([one, two, other], timeout=TIMEOUT) == [3, 3, 4]
    assert len(scheduler.submitted()) == 2


def test_future_of_another_client__refused(client: Client, scheduler: FakeScheduler) -> None:
    with Client(scheduler.address, token=scheduler.token) as other:
        foreign = other.submit(inc, 1)
        with pytest.raises(UsageError, match="another client"):
            client.submit(inc, foreign)


def test_cancelled_future_as_argument__refused(client: Client, idle: FakeScheduler) -> None:
    future = client.submit(inc, 1)
    future.cancel()
    with pytest.raises(UsageError, match="was cancelled"):
        client.submit(inc, future)


def test_future__cannot_be_pickled_otherwise(client: Client) -> None:
    future = client.submit(inc, 1)
    with pytest.raises(UsageError, match="can only travel as an argument"):
        pickle.dumps(future)
    assert copy.copy(future) is future and copy.deepcopy([future])[0] is future


def test_submit_from_many_threads__all_arrive(client: Client) -> None:
    results: list[int] = []

    def work(n: int) -> None:
        results.extend(client.gather([client.submit(inc, n) for _ in range(50)], timeout=TIMEOUT))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert sorted(results) == sorted([n + 1 for n in range(4) for _ in range(50)])


def test_burst_of_submits__few_messages_in_order(client: Client, scheduler: FakeScheduler) -> None:
    futures = [client.submit(inc, n) for n in range(2000)]
    assert client.gather(futures, timeout=TIMEOUT) == list(range(1, 2001))
    assert scheduler.submitted() == [future.key for future in futures]
    assert len(scheduler.of(m.Submit)) < 1000


# ------------------------------------------------------------------------------------------- map


def test_map__one_future_an_item_in_order(client: Client) -> None:
    assert client.gather(client.map(add, range(5), [10] * 3), timeout=TIMEOUT) == [10, 11, 12]
    assert client.gather(client.map(pow, [2, 3], exp=2), timeout=TIMEOUT) == [4, 9]
    assert client.map(inc, []) == []


def test_map_of_many__messages_of_a_thousand(client: Client, scheduler: FakeScheduler) -> None:
    futures = client.map(inc, range(2500))
    assert client.gather(futures, timeout=TIMEOUT) == list(range(1, 2501))
    assert [len(each.keys) for each in scheduler.of(m.Submit)] == [1000, 1000, 500]
    assert scheduler.function_count == 1


def test_map_with_keys__prefix_or_list(client: Client) -> None:
    assert [each.key for each in client.map(inc, [1, 2], key="load")] == ["load-0", "load-1"]
    assert [each.key for each in client.map(inc, [1, 2], key=["a", "b"])] == ["a", "b"]
    with pytest.raises(UsageError, match="fewer keys"):
        client.map(inc, [1, 2], key=["c"])
    with pytest.raises(UsageError, match="must be a str, not int"):
        client.map(inc, [1, 2], key=[1, 2])  # type: ignore[list-item]


def test_map_pure__equal_items_share(client: Client, scheduler: FakeScheduler) -> None:
    futures = client.map(inc, [1, 1, 2], pure=True)
    assert client.gather(futures, timeout=TIMEOUT) == [2, 2, 3]
    assert len(scheduler.submitted()) == 2


def test_map_over_futures__uses_their_results(client: Client) -> None:
    assert client.gather(client.map(inc, client.map(inc, [1, 2])), timeout=TIMEOUT) == [3, 4]


def test_map_with_a_bad_item__raised_and_earlier_slices_given_up(
    client: Client, scheduler: FakeScheduler
) -> None:
    items = [*range(1500), Unpicklable()]
    with pytest.raises(UsageError, match="argument 0 of 'inc'"):
        client.map(inc, items)
    scheduler.wait_for(m.Submit)
    assert len(scheduler.submitted()) == 1000
    gc.collect()
    assert set(released(scheduler, 1000)) == set(scheduler.submitted())


def test_map_whose_iterable_raises__that_is_raised(client: Client) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        client.map(inc, items())


def test_map_of_nothing_iterable__usage_error(client: Client) -> None:
    with pytest.raises(UsageError, match="iterables, not int"):
        client.map(inc, 3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="at least one iterable"):
        client.map(inc)


# ------------------------------------------------------------------------------------------- results


def test_result_twice__the_same_object(client: Client) -> None:
    future = client.submit(list, "ab")
    assert future.result(TIMEOUT) is future.result()


def test_result_not_there_in_time__timeout_of_concurrent_futures(client: Client, idle: FakeScheduler) -> None:
    future = client.submit(inc, 1)
    with pytest.raises(concurrent.futures.TimeoutError, match=f"'{future.key}' did not finish within 0"):
        future.result(timeout=0)
    with pytest.raises(concurrent.futures.TimeoutError):
        future.exception(timeout=0.001)
    with pytest.raises(concurrent.futures.TimeoutError, match="1 of 1 tasks"):
        client.gather([future], timeout=0.001)
    idle.tell(finished(future.key, 2))
    assert future.result(TIMEOUT) == 2


def test_task_raises__same_exception_with_the_remote_traceback(client: Client) -> None:
    future = client.submit(fail, "mine")
    with pytest.raises(ValueError, match=r"^mine$") as caught:
        future.result(TIMEOUT)
    assert isinstance(caught.value.__cause__, serialize.RemoteTraceback)
    assert "in fail" in str(caught.value.__cause__)
    assert isinstance(future.exception(), ValueError)
    assert future.status == "error" and future.done() and not future.cancelled()


def test_failed_task__raises_each_time_without_growing(client: Client) -> None:
    future = client.submit(fail, "mine")
    depths = []
    for _ in range(3):
        with pytest.raises(ValueError) as caught:
            future.result(TIMEOUT)
        depths.append(len(caught.traceback))
    assert len(set(depths)) == 1


def test_failure_of_an_input__tells_whose_it_is(client: Client) -> None:
    x = client.submit(fail, "mine", key="x")
    y = client.submit(inc, x, key="y")
    with pytest.raises(ValueError) as caught:
        y.result(TIMEOUT)
    assert "raised by 'x', which 'y' needs" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("killed-worker", KilledWorker),
        ("no-worker", NoSuitableWorker),
        ("graph", GraphError),
        ("lost-input", LostInput),
        ("serialization", UsageError),
    ],
)
def test_failure_kind__has_its_exception(
    client: Client, idle: FakeScheduler, kind: str, error: type[Exception]
) -> None:
    future = client.submit(inc, 1)
    idle.tell(erred(future.key, kind=kind, text="what and what next", traceback="Traceback: there"))
    with pytest.raises(error, match=r"^what and what next$") as caught:
        future.result(TIMEOUT)
    assert "Traceback: there" in str(caught.value.__cause__)


def test_exception_that_cannot_be_rebuilt__remote_error(client: Client, idle: FakeScheduler) -> None:
    future = client.submit(inc, 1)
    idle.tell(
        erred(future.key, text="boo", types=["there.Strange"], data=b"garbage", traceback="Traceback …")
    )
    with pytest.raises(RemoteError, match=r"^there\.Strange: boo$") as caught:
        future.result(TIMEOUT)
    assert caught.value.remote_traceback == "Traceback …"


def test_result_that_cannot_be_unpickled_here__error_names_the_key(
    client: Client, idle: FakeScheduler
) -> None:
    future = client.submit(inc, 1)
    idle.tell(m.ClientFinished([future.key], [3], [b"cno_such_module\nname\n."]))
    with pytest.raises(UsageError, match=rf"result of '{future.key}' cannot be unpickled.*no_such_module"):
        future.result(TIMEOUT)


def test_gather__keeps_the_shape(client: Client) -> None:
    class Pair(NamedTuple):
        left: Any
        right: Any

    a, b = client.submit(inc, 1), client.submit(inc, 2)
    nest = {"list": [a, (b, 0)], "set": {a}, "pair": Pair(a, [b]), "text": "x"}
    assert client.gather(nest, timeout=TIMEOUT) == {
        "list": [2, (3, 0)],
        "set": {2},
        "pair": Pair(2, [3]),
        "text": "x",
    }
    assert client.gather(a) == 2
    assert client.gather([]) == []


def test_gather_with_a_failure__raises_it_without_waiting_for_the_rest(
    client: Client, idle: FakeScheduler
) -> None:
    slow, bad = client.submit(inc, 1), client.submit(inc, 2)
    idle.tell(erred(bad.key, kind="graph"))
    with pytest.raises(GraphError):
        client.gather([bad, slow], timeout=TIMEOUT)
    assert not slow.done()


def test_gather_skip__leaves_failures_out(client: Client, idle: FakeScheduler) -> None:
    good, bad, dropped = (client.submit(inc, n, key=f"k{n}") for n in range(3))
    dropped.cancel()
    idle.tell(finished("k0", 1), erred("k1"))
    assert client.gather({"a": [good, bad], "b": dropped}, errors="skip", timeout=TIMEOUT) == {"a": [1]}
    assert client.gather(bad, errors="skip") is None
    with pytest.raises(UsageError, match="errors="):
        client.gather([good], errors="ignore")  # type: ignore[arg-type]


def test_lost_result__is_waited_for_again(client: Client, idle: FakeScheduler) -> None:
    future = client.submit(inc, 1)
    idle.tell(m.ClientFinished([future.key], [9], [None]), m.Lost([future.key]), finished(future.key, 2))
    assert future.result(TIMEOUT) == 2


# ------------------------------------------------------------------------------------------- futures


def test_cancel__done_at_once_with_a_reason(client: Client, idle: FakeScheduler) -> None:
    future = client.submit(inc, 1)
    assert future.cancel() and future.cancelled() and future.done()
    with pytest.raises(concurrent.futures.CancelledError, match=f"'{future.key}': cancelled by this client"):
        future.result()
    with pytest.raises(concurrent.futures.CancelledError):
        future.exception()
    assert idle.wait_for(m.Cancel) == [m.Cancel([future.key], False)]
    assert future.cancel()


def test_cancel_what_is_done__false(client: Client, scheduler: FakeScheduler) -> None:
    future = client.submit(inc, 1)
    future.result(TIMEOUT)
    assert not future.cancel()
    assert scheduler.of(m.Cancel) == []


def test_cancel_by_force__says_so(client: Client, idle: FakeScheduler) -> None:
    futures = client.map(inc, [1, 2])
    client.cancel({"x": futures}, force=True)
    assert idle.wait_for(m.Cancel) == [m.Cancel([each.key for each in futures], True)]


def test_cancelled_by_others__reason_is_theirs(client: Client, idle: FakeScheduler) -> None:
    future = client.submit(inc, 1)
    idle.tell(m.Cancelled([future.key], ["cancelled by client 'bob', by force"]))
    with pytest.raises(concurrent.futures.CancelledError, match="bob"):
        future.result(TIMEOUT)


def test_restart__everything_is_cancelled(client: Client, idle: FakeScheduler) -> None:
    future = client.submit(inc, 1)
    idle.tell(m.Restarted())
    with pytest.raises(concurrent.futures.CancelledError, match="restarted"):
        future.result(TIMEOUT)


def test_retry__pending_at_once(client: Client, idle: FakeScheduler) -> None:
    future = client.submit(inc, 1)
    idle.tell(erred(future.key))
    assert future.exception(TIMEOUT) is not None
    future.retry()
    assert not future.done()
    assert idle.wait_for(m.Retry) == [m.Retry([future.key])]
    idle.tell(m.Retried([future.key]), finished(future.key, 2))
    assert future.result(TIMEOUT) == 2


def test_dropped_future__is_released(client: Client, scheduler: FakeScheduler) -> None:
    future = client.submit(inc, 1)
    future.result(TIMEOUT)
    key = future.key
    del future
    assert scheduler.wait_for(m.Release) == [m.Release([key])]


def test_many_dropped_at_once__one_message(client: Client, scheduler: FakeScheduler) -> None:
    futures = client.map(inc, range(500))
    client.gather(futures, timeout=TIMEOUT)
    keys = [each.key for each in futures]
    while futures:
        futures.pop()
    assert set(released(scheduler, 500)) == set(keys)
    assert len(scheduler.of(m.Release)) < 10


def test_shared_key__released_with_the_last_future(client: Client, scheduler: FakeScheduler) -> None:
    one, two = client.submit(inc, 1, key="x"), client.submit(inc, 1, key="x")
    del one
    other = client.submit(inc, 2)
    other.result(TIMEOUT)
    other_key = other.key
    del other
    assert scheduler.wait_for(m.Release) == [m.Release([other_key])]
    assert two.result() == 2


def test_key_dropped_and_submitted_again_at_once__release_comes_first(
    client: Client, idle: FakeScheduler
) -> None:
    idle.held["x"] = ("processing", -1, [])
    idle.late = [m.Cancelled(["x"], ["late news of the first one"])]
    future = client.submit(inc, 1, key="x")
    del future
    future = client.submit(inc, 5, key="x")
    idle.wait_for(m.Submit, 2)
    kinds = [type(each).__name__ for each in idle.said if not isinstance(each, m.Functions)]
    assert kinds == ["Submit", "Release", "Submit"]
    for _ in range(3):
        client.status()  # The fence is passed by now.
    idle.tell(finished("x", "new"))
    assert future.result(TIMEOUT) == "new"


def test_key_cancelled_and_submitted_again_over_and_over__newcomer_always_lives(
    client: Client, idle: FakeScheduler
) -> None:
    idle.held["x"] = ("processing", -1, [])
    idle.late = [m.Cancelled(["x"], ["cancelled by this client"])]
    for n in range(50):
        future = client.submit(inc, n, key="x")
        future.cancel()
    future = client.submit(inc, 1, key="x")
    for _ in range(3):
        client.status()
    assert not future.done()
    idle.tell(finished("x", "new"))
    assert future.result(TIMEOUT) == "new"


def test_key_in_memory_of_another_client__found_although_reported_behind_the_fence(
    client: Client, idle: FakeScheduler
) -> None:
    idle.held["x"] = ("memory", 3, [])
    del_me = client.submit(inc, 1, key="x")
    del del_me
    future = client.submit(inc, 1, key="x")
    done: queue.SimpleQueue[Future[int]] = queue.SimpleQueue()
    future.add_done_callback(done.put)
    assert done.get(timeout=TIMEOUT) is future  # Though the scheduler has sent no `finished` at all.


def test_callbacks__called_once_each_and_may_block(client: Client, idle: FakeScheduler) -> None:
    calls: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
    x, y = client.submit(inc, 1), client.submit(inc, 2)
    x.add_done_callback(lambda future: calls.put(("x", y.result(TIMEOUT))))  # Waits for another future.
    y.add_done_callback(lambda future: calls.put(("y", future.result())))
    idle.tell(finished(x.key, 1), finished(y.key, 2))
    assert [calls.get(timeout=TIMEOUT) for _ in range(2)] == [("x", 2), ("y", 2)]
    x.add_done_callback(lambda future: calls.put(("late", 0)))
    assert calls.get_nowait() == ("late", 0)


def test_callback_raises__is_logged_and_others_run(
    client: Client, idle: FakeScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    ran = threading.Event()
    future = client.submit(inc, 1)
    future.add_done_callback(lambda future: 1 // 0)
    future.add_done_callback(lambda future: ran.set())
    idle.tell(finished(future.key, 1))
    assert ran.wait(TIMEOUT)
    assert "ZeroDivisionError" in caplog.text


def test_callback_of_a_future_that_is_not_kept__still_called(client: Client, idle: FakeScheduler) -> None:
    keys: queue.SimpleQueue[str] = queue.SimpleQueue()
    client.submit(inc, 1, key="x").add_done_callback(lambda future: keys.put(future.key))
    gc.collect()
    idle.wait_for(m.Submit)
    idle.tell(finished("x", 1))
    assert keys.get(timeout=TIMEOUT) == "x"
    assert idle.wait_for(m.Release) == [m.Release(["x"])]


def test_repr__tells_key_and_status(client: Client) -> None:
    future = client.submit(inc, 1, key="x")
    future.result(TIMEOUT)
    assert repr(future).startswith("<Future 'x' finished, ")
    assert repr(client).startswith("<Client of tcp://127.0.0.1:")


def test_as_completed__in_the_order_in_which_they_are_done(client: Client, idle: FakeScheduler) -> None:
    x, y, z = (client.submit(inc, n, key=key) for n, key in enumerate("xyz"))
    idle.tell(finished("y", "Y"))
    arrivals = as_completed([x, y, z, y], timeout=TIMEOUT)
    assert {next(arrivals), next(arrivals)} == {y}
    idle.tell(erred("z"), finished("x", "X"))
    assert list(arrivals) == [z, x]


def test_as_completed_with_results__pairs(client: Client) -> None:
    futures = client.map(inc, range(5))
    found = dict(as_completed(futures, with_results=True, timeout=TIMEOUT))
    assert found == {future: n + 1 for n, future in enumerate(futures)}


def test_as_completed_that_grows(client: Client) -> None:
    arrivals = as_completed([client.submit(inc, 0)], with_results=True, timeout=TIMEOUT)
    seen = []
    for _future, value in arrivals:
        seen.append(value)
        if value < 5:
            arrivals.add(client.submit(inc, value))
    assert seen == [1, 2, 3, 4, 5]


def test_as_completed_takes_too_long__timeout(client: Client, idle: FakeScheduler) -> None:
    future = client.submit(inc, 1)
    with pytest.raises(concurrent.futures.TimeoutError, match="1 futures were not done"):
        next(as_completed([future], timeout=0.001))


def test_wait__for_all_for_one_and_for_a_failure(client: Client, idle: FakeScheduler) -> None:
    x, y, z = futures = [client.submit(inc, n, key=key) for n, key in enumerate("xyz")]
    assert wait(futures, timeout=0.001) == (set(), {x, y, z})
    idle.tell(finished("x", 1))
    assert wait(futures, TIMEOUT, return_when="FIRST_COMPLETED") == ({x}, {y, z})
    idle.tell(erred("y"))
    assert wait(futures, TIMEOUT, return_when="FIRST_EXCEPTION") == ({x, y}, {z})
    z.cancel()
    assert wait(futures, TIMEOUT).done == {x, y, z}
    with pytest.raises(UsageError, match="return_when"):
        wait(futures, return_when="NOW")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected futures"):
        wait([1])  # type: ignore[list-item]


# ------------------------------------------------------------------------------------------- graphs


def test_graph__results_of_what_is_wanted(client: Client, scheduler: FakeScheduler) -> None:
    graph = {
        "a": Task(inc, 1),
        "b": Task(add, Ref("a"), 10),
        "c": Task(sum, [Ref("a"), Ref("b")]),
        "d": Task(fail, ""),
    }
    assert client.get(graph, "c", timeout=TIMEOUT) == 14
    assert client.get(graph, iter(["b", "a", "b"]), timeout=TIMEOUT) == [12, 2, 12]
    assert {key for each in scheduler.of(m.GraphPart) for key in each.keys} == {"a", "b", "c"}
    assert [each.wanted for each in scheduler.of(m.GraphCommit)] == [["c"], None]
    assert not any(each.in_order for each in scheduler.of(m.GraphBegin))


def test_graph__futures_of_it_and_in_it(client: Client) -> None:
    outside = client.submit(inc, 0)
    futures = client.submit_graph({"a": Task(inc, outside), "b": Task(inc, Ref("a"))})
    assert client.gather(futures, timeout=TIMEOUT) == {"a": 2, "b": 3}


def test_graph_with_a_ref_to_a_live_future(client: Client) -> None:
    x = client.submit(inc, 0, key="x")
    assert client.get({"y": Task(inc, Ref("x"))}, "y", timeout=TIMEOUT) == 2
    assert x.result() == 1


def test_graph_options__for_tasks_without_their_own(client: Client, scheduler: FakeScheduler) -> None:
    graph = {"a": Task(inc, 1), "b": Task(inc, 2).with_options(retries=1)}
    client.gather(client.submit_graph(graph, priority=7), timeout=TIMEOUT)
    (part,) = scheduler.of(m.GraphPart)
    found = {key: part.options[at] for key, at in zip(part.keys, part.option_of)}
    assert found == {"a": {"priority": 7}, "b": {"retries": 1}}
    with pytest.raises(UsageError, match="colour"):
        client.submit_graph(graph, colour="red")


def test_large_graph__comes_in_parts(client: Client, scheduler: FakeScheduler) -> None:
    graph = {f"k{n}": Task(inc, n) for n in range(2500)}
    client.gather(client.submit_graph(graph), timeout=TIMEOUT)
    assert [len(each.keys) for each in scheduler.of(m.GraphPart)] == [1000, 1000, 500]


def test_graph_with_more_wanted_names_than_fit__rest_is_released(
    client: Client, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shunter.client.submitting.WANTED_MAX", 5)
    graph = {"a": Task(inc, 1), "b": Task(inc, Ref("a")), "c": Task(add, Ref("a"), Ref("b"))}
    assert client.get(graph, ["b", "c"], timeout=TIMEOUT) == [3, 5]
    assert [each.wanted for each in scheduler.of(m.GraphCommit)] == [None]
    assert m.Release(["a"]) in scheduler.wait_for(m.Release)


@pytest.mark.parametrize(
    ("graph", "error"),
    [
        ({"a": Task(inc, Ref("b")), "b": Task(inc, Ref("a"))}, GraphError),
        ({"a": Task(inc, Ref("?"))}, GraphError),
        ({"a": Task(add, 1, Unpicklable())}, UsageError),
    ],
)
def test_bad_graph__given_up_as_a_whole(
    client: Client, scheduler: FakeScheduler, graph: dict[str, Task], error: type[Exception]
) -> None:
    with pytest.raises(error):
        client.submit_graph(graph)
    scheduler.wait_for(m.GraphAbort)
    assert scheduler.of(m.GraphCommit) == []
    assert client.submit(inc, 1).result(TIMEOUT) == 2


def test_graph_submitted_again__keys_are_free_again(client: Client) -> None:
    for n in range(20):
        assert client.get({"x": Task(inc, n), "y": Task(inc, Ref("x"))}, "y", timeout=TIMEOUT) == n + 2


def test_graph_without_tasks__nothing_is_said(client: Client, scheduler: FakeScheduler) -> None:
    assert client.submit_graph({}) == {}
    assert client.get({"a": Task(inc, 1)}, []) == []
    assert scheduler.said == []


# ------------------------------------------------------------------------------------------- questions


def test_questions__answered(client: Client, scheduler: FakeScheduler) -> None:
    future = client.submit(inc, 1, key="x")
    future.result(TIMEOUT)
    scheduler.held["x"] = ("memory", 3, [(4, "tcp://w:1")])
    assert client.status() == {"tasks": 0}
    assert client.story(future) == ["the story of x"]
    assert client.why("x") == "because of x"
    assert client.who_has([future]) == {"x": ["tcp://w:1"]}
    assert client.workers() == []
    with pytest.raises(UsageError, match="future or a key, not int"):
        client.story(3)


def test_question_refused__its_text_is_raised(client: Client, scheduler: FakeScheduler) -> None:
    def refuse(arguments: dict[str, object]) -> object:
        raise ValueError("not today")

    scheduler.answers["status"] = refuse
    with pytest.raises(UsageError, match="not today"):
        client.status()


def test_wait_for_workers__until_there_are_enough(client: Client, scheduler: FakeScheduler) -> None:
    asked = []

    def workers(arguments: dict[str, object]) -> object:
        asked.append(1)
        return [{"status": "running"}, {"status": "paused"}] + [{"status": "running"}] * (len(asked) > 2)

    scheduler.answers["workers"] = workers
    client.wait_for_workers(2, timeout=TIMEOUT)
    assert len(asked) == 3
    with pytest.raises(NoSuitableWorker, match="2 of 9 workers"):
        client.wait_for_workers(9, timeout=0)


# ------------------------------------------------------------------------------------------- the connection


def test_scheduler_goes_away__what_is_pending_fails_with_the_reason(
    client: Client, idle: FakeScheduler
) -> None:
    pending, done = client.submit(inc, 1), client.submit(inc, 2)
    idle.tell(finished(done.key, 3))
    assert wait([done], TIMEOUT).done
    idle.cut_off("the operator wants it so")
    with pytest.raises(
        ConnectionLost, match=rf"lost the scheduler at {idle.address}: .*the operator wants it so"
    ):
        pending.result(TIMEOUT)
    assert done.result() == 3
    for call in (lambda: client.submit(inc, 1), client.status, lambda: client.map(inc, [1])):
        with pytest.raises(ConnectionLost, match="operator"):
            call()
    assert client.closed


def test_connection_breaks_while_threads_wait__all_of_them_wake_up(
    client: Client, idle: FakeScheduler
) -> None:
    futures = client.map(inc, range(3))
    idle.wait_for(m.Submit)
    idle.answers = {}
    waits: list[Callable[[], object]] = [
        lambda: futures[0].result(),
        lambda: client.gather(futures),
        lambda: [each.result() for each in as_completed(futures)],
        lambda: client.status(),
    ]
    found: list[object] = []

    def work(call: Callable[[], object]) -> None:
        try:
            call()
        except ConnectionLost as error:
            found.append(error)

    threads = [threading.Thread(target=work, args=(call,)) for call in waits]
    for thread in threads:
        thread.start()
    idle.wait_for(m.Query)
    idle.cut_off()
    for thread in threads:
        thread.join(TIMEOUT)
    assert len(found) == 4


def test_scheduler_talks_nonsense__connection_is_lost_with_the_reason(
    client: Client, idle: FakeScheduler
) -> None:
    class Nonsense(NamedTuple):
        def frame(self) -> tuple[list[object], tuple[()]]:
            return ["finished", 3], ()

    future = client.submit(inc, 1)
    idle.wait_for(m.Submit)
    idle.tell(Nonsense())
    with pytest.raises(ConnectionLost, match="finished"):
        future.result(TIMEOUT)


def test_closed__pending_futures_are_cancelled(scheduler: FakeScheduler) -> None:
    scheduler.runs_tasks = False
    with Client(scheduler.address, token=scheduler.token) as client:
        future = client.submit(inc, 1)
    with pytest.raises(concurrent.futures.CancelledError, match="client was closed"):
        future.result()
    with pytest.raises(UsageError, match="closed"):
        client.submit(inc, 1)
    client.close()
    assert client.closed
    scheduler.wait_until_gone()
    del future  # Nobody to tell.


def test_closed__what_was_said_before_arrives(scheduler: FakeScheduler) -> None:
    scheduler.runs_tasks = False
    with Client(scheduler.address, token=scheduler.token) as client:
        futures = [client.submit(len, bytes(1_000_000)) for _ in range(20)]
    scheduler.wait_until_gone()
    assert scheduler.submitted() == [each.key for each in futures]


def test_current__is_the_open_client_made_last(scheduler: FakeScheduler) -> None:
    with Client(scheduler.address, token=scheduler.token) as one:
        with Client(scheduler.address, token=scheduler.token) as two:
            assert Client.current() is two
        assert Client.current() is one
    with pytest.raises(UsageError, match="no open client"):
        Client.current()


def test_name__is_told_and_shown(scheduler: FakeScheduler) -> None:
    with Client(scheduler.address, token=scheduler.token, name="bob") as client:
        assert client.name == "bob" and client.address == scheduler.address


def test_wrong_token__peer_error(scheduler: FakeScheduler) -> None:
    with pytest.raises(PeerError, match="token"):
        Client(scheduler.address, token="wrong")


def test_nobody_there__connection_lost_names_the_address(scheduler: FakeScheduler) -> None:
    address = scheduler.address
    scheduler._thread.loop.call_soon_threadsafe(scheduler._listener.close)
    scheduler._thread.run(scheduler._listener.wait_closed())
    with pytest.raises(ConnectionLost, match=address):
        Client(address, token="")


@pytest.mark.parametrize("address", ["tcp://", "localhost", "http://x:1", "tcp://x:port"])
def test_malformed_address__usage_error(address: str) -> None:
    with pytest.raises(UsageError):
        Client(address, token="x")


def test_client_of_a_cluster__takes_address_and_token_from_it(scheduler: FakeScheduler) -> None:
    with Client(scheduler) as client:
        assert client.submit(inc, 1).result(TIMEOUT) == 2
        assert client.cluster is None
    assert scheduler.batches  # It is not closed with the client.
    with pytest.raises(UsageError, match="not float"):
        Client(1.5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="n_workers="):
        Client(scheduler, n_workers=2)


def test_address_and_token_in_the_environment__used(
    scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "token").write_text(scheduler.token)
    monkeypatch.setenv("SHUNTER_ADDRESS", scheduler.address)
    monkeypatch.setenv("SHUNTER_TOKEN_FILE", str(tmp_path / "token"))
    with Client() as client:
        assert client.submit(inc, 1).result(TIMEOUT) == 2


def test_scheduler_file__has_both(
    scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from shunter.wire import contact

    path = str(tmp_path / "scheduler.json")
    contact.write(path, contact.Contact(scheduler.address, scheduler.token))
    with Client(scheduler_file=path) as client:
        assert client.address == scheduler.address
    monkeypatch.setenv("SHUNTER_SCHEDULER_FILE", path)
    with Client() as client:
        assert client.address == scheduler.address


def test_after_a_fork__the_childs_copy_says_so(client: Client) -> None:
    from shunter.client.session import _after_fork_in_child

    _after_fork_in_child()  # What runs in the child; a real fork would count as a process.
    for call in (lambda: client.submit(inc, 1), client.status):
        with pytest.raises(UsageError, match="before a fork"):
            call()


def test_client_in_its_own_loop_thread__refuses_to_block(client: Client, idle: FakeScheduler) -> None:
    future = client.submit(inc, 1)
    found: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def block() -> None:
        for call in (
            future.result,
            client.status,
            lambda: wait([future]),
            lambda: next(as_completed([future])),
        ):
            try:
                call()
            except UsageError as error:
                found.put(error)

    client._session.connection.loop.call_soon_threadsafe(block)
    for _ in range(4):
        assert "would block the event loop" in str(found.get(timeout=TIMEOUT))


def test_futures_collected_on_any_thread_while_submitting__no_deadlock(client: Client) -> None:
    stop = time.monotonic() + 0.3

    def churn() -> None:
        while time.monotonic() < stop:
            cycle: list[Any] = [client.submit(inc, n) for n in range(20)]
            cycle.append(cycle)  # Only the garbage collector ends this.
            del cycle
            gc.collect(0)

    threads = [threading.Thread(target=churn) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    gc.collect()
    assert client.submit(inc, 1).result(TIMEOUT) == 2
