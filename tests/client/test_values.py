"""Values between client and workers: plans (pure), and transfers with real data ports in this process."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from shunter.client.client import Client
from shunter.client.gather import Holding, plan
from shunter.client.scatter import Target, choose_targets, deal
from shunter.errors import ConnectionLost, LostInput, NoSuitableWorker, UsageError
from shunter.serialize import dump_value, load_value
from shunter.types import Buffer
from shunter.wire import messages as m
from shunter.wire.bulk import DataServer
from tests.client.fake import TIMEOUT, TOKEN, FakeScheduler

MIB = 1024 * 1024


class Store:
    """A worker as far as data goes."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.values: dict[str, list[Buffer]] = {}
        self.asked: list[list[str]] = []
        self.server = DataServer("127.0.0.1", 0, TOKEN, get=self.get, put=self.put)
        self.server.start()
        self.address = self.server.address

    def get(self, keys: list[str]) -> tuple[dict[str, list[Buffer]], list[str]]:
        self.asked.append(keys)
        return (
            {key: self.values[key] for key in keys if key in self.values},
            [key for key in keys if key not in self.values],
        )

    def put(self, values: dict[str, list[Buffer]]) -> list[int]:
        self.values.update(values)
        return [sum(map(len, parts)) for parts in values.values()]

    def row(self, **more: object) -> dict[str, object]:
        """As the query ``workers`` tells."""
        number = self.number
        return {
            "number": number,
            "address": self.address,
            "name": f"w{number}",
            "host": "127.0.0.1",
            "status": "running",
        } | more


@pytest.fixture
def stores() -> Iterator[list[Store]]:
    stores = [Store(1), Store(2)]
    yield stores
    for store in stores:
        store.server.close()


@pytest.fixture
def scheduler(stores: list[Store]) -> Iterator[FakeScheduler]:
    with FakeScheduler(runs_tasks=False) as scheduler:
        scheduler.answers["workers"] = lambda arguments: [store.row() for store in stores]
        yield scheduler


@pytest.fixture
def client(scheduler: FakeScheduler) -> Iterator[Client]:
    with Client(scheduler.address, token=scheduler.token) as client:
        yield client


def hold(
    scheduler: FakeScheduler, key: str, value: object, *stores: Store, told: list[Store] | None = None
) -> None:
    """Workers have a value; the scheduler says that ``told`` have it."""
    parts = dump_value(value)
    nbytes = sum(map(len, parts))
    for store in stores:
        store.values[key] = parts
    holders = [(store.number, store.address) for store in (told if told is not None else stores)]
    scheduler.held[key] = ("memory", nbytes, holders)
    scheduler.tell(m.ClientFinished([key], [nbytes], [None]))


# ------------------------------------------------------------------------------------------- plans


def at(key: str, nbytes: int, *workers: int, status: str = "memory") -> Holding:
    return Holding(key, status, nbytes, [(each, f"tcp://w:{each}") for each in workers])


def test_plan__shares_the_load_among_holders() -> None:
    transfers = plan([at("a", 100, 1, 2), at("b", 100, 1, 2), at("c", 10, 1), at("d", 50, 2)])
    assert {each.worker: each.keys for each in transfers} == {1: ["a", "c"], 2: ["b", "d"]}
    assert all(each.direct for each in transfers)


def test_plan__avoids_who_cannot_be_reached_if_another_has_it() -> None:
    transfers = plan([at("a", 1, 1, 2), at("b", 1, 1)], {"tcp://w:1"})
    assert [(each.worker, each.direct, each.keys) for each in transfers] == [
        (2, True, ["a"]),
        (1, False, ["b"]),
    ]


def test_plan__leaves_out_what_nobody_holds() -> None:
    assert plan([at("a", -1, status="processing")]) == []


def test_plan__cuts_by_bytes_and_smaller_through_the_scheduler() -> None:
    holdings = [at(f"k{n}", 20 * MIB, 1) for n in range(7)]
    assert [len(each.keys) for each in plan(holdings)] == [3, 3, 1]
    assert [len(each.keys) for each in plan(holdings, {"tcp://w:1"})] == [1] * 7


def test_plan__cuts_by_number() -> None:
    assert [len(each.keys) for each in plan([at(f"k{n}", 1, 1) for n in range(2500)])] == [1000, 1000, 500]


def test_deal__even_by_bytes_or_all_to_each() -> None:
    one, two = targets = [Target(1, "a"), Target(2, "b")]
    assert deal({"x": 5000, "y": 10, "z": 10}, targets, broadcast=False) == {one: ["x"], two: ["y", "z"]}
    assert deal({"x": 1, "y": 1}, targets, broadcast=True) == {one: ["x", "y"], two: ["x", "y"]}
    assert deal({"x": 1}, targets, broadcast=False) == {one: ["x"]}


def test_choose_targets__running_and_among_those_named() -> None:
    rows: list[dict[str, object]] = [
        {"number": n, "address": f"a{n}", "name": f"w{n}", "host": "h", "status": status}
        for n, status in enumerate(["running", "running", "paused"])
    ]
    assert [each.number for each in choose_targets(rows, None)] == [0, 1]
    assert [each.number for each in choose_targets(rows, ["w1", "w2"])] == [1]
    assert [each.number for each in choose_targets(rows, ["a0"])] == [0]
    assert [each.number for each in choose_targets(rows, ["h"])] == [0, 1]


# ------------------------------------------------------------------------------------------- fetching


def test_answer_too_large_for_one_message__asked_by_fewer_keys(
    client: Client, scheduler: FakeScheduler
) -> None:
    find = scheduler.answers["who_has"]

    def who_has(arguments: dict[str, object]) -> object:
        if len(arguments["keys"]) > 100:  # type: ignore[arg-type]
            raise ValueError("the answer would be too long")
        return find(arguments)

    scheduler.answers["who_has"] = who_has
    futures = client.map(len, ["x"] * 700, key="k")
    for future in futures:
        scheduler.held[future.key] = ("memory", 1, [(1, "tcp://w:1")])
    found = client.who_has(futures)
    assert list(found) == [future.key for future in futures]
    assert set(map(tuple, found.values())) == {("tcp://w:1",)}


def test_result_at_a_worker__fetched_directly(
    client: Client, scheduler: FakeScheduler, stores: list[Store]
) -> None:
    np = pytest.importorskip("numpy")
    future = client.submit(len, "x", key="x")
    hold(scheduler, "x", np.arange(1000_000), stores[0])
    assert future.result(TIMEOUT).sum() == 499999500000
    assert stores[0].asked == [["x"]]


def test_small_result__fetched_once_large_one_each_time(
    client: Client, scheduler: FakeScheduler, stores: list[Store]
) -> None:
    small, large = client.submit(len, "x", key="small"), client.submit(len, "x", key="large")
    hold(scheduler, "small", [1, 2], stores[0])
    hold(scheduler, "large", bytes(2 * MIB), stores[1])
    for _ in range(2):
        assert small.result(TIMEOUT) == [1, 2] and len(large.result(TIMEOUT)) == 2 * MIB
    assert stores[0].asked == [["small"]]
    assert stores[1].asked == [["large"]] * 2


def test_gather_from_two_workers__one_request_each(
    client: Client, scheduler: FakeScheduler, stores: list[Store]
) -> None:
    futures = client.map(len, ["x"] * 10, key="k")
    for n in range(10):
        hold(scheduler, f"k-{n}", n, stores[n % 2])
    assert client.gather(futures, timeout=TIMEOUT) == list(range(10))
    assert [len(store.asked) for store in stores] == [1, 1]


def test_holder_cannot_be_reached__fetched_through_the_scheduler(
    client: Client, scheduler: FakeScheduler, stores: list[Store]
) -> None:
    future = client.submit(len, "x", key="x")
    hold(scheduler, "x", "value", stores[0])
    stores[0].server.close()

    def relay(message: m.Relay) -> m.Relayed:
        assert (message.worker, message.keys) == (1, ["x"])
        return m.Relayed(message.request, True, "", ["x"], [[bytes(stores[0].values["x"][0])]])

    scheduler.relays = relay
    assert future.result(TIMEOUT) == "value"


def test_holder_cannot_be_reached_at_all__timeout_says_why(
    client: Client, scheduler: FakeScheduler, stores: list[Store]
) -> None:
    future = client.submit(len, "x", key="x")
    hold(scheduler, "x", "value", stores[0])
    stores[0].server.close()
    scheduler.relays = lambda message: m.Relayed(message.request, False, "worker 1 is gone", [], [])
    with pytest.raises(
        concurrent.futures.TimeoutError, match=r"'x', could not be fetched \(.*worker 1 is gone"
    ):
        future.result(timeout=0.3)


def test_holder_does_not_have_it_any_more__asked_again_where_it_is(
    client: Client, scheduler: FakeScheduler, stores: list[Store]
) -> None:
    future = client.submit(len, "x", key="x")
    hold(scheduler, "x", "value", stores[1], told=[stores[0]])
    asked = threading.Event()
    find = scheduler.answers["who_has"]

    def who_has(arguments: dict[str, object]) -> object:
        if asked.is_set():
            scheduler.held["x"] = ("memory", 1, [(2, stores[1].address)])
        asked.set()
        return find(arguments)

    scheduler.answers["who_has"] = who_has
    assert future.result(TIMEOUT) == "value"
    assert stores[0].asked == [["x"]]


def test_result_computed_again_meanwhile__waited_for(
    client: Client, scheduler: FakeScheduler, stores: list[Store]
) -> None:
    future = client.submit(len, "x", key="x")
    hold(scheduler, "x", "value", stores[0])
    scheduler.held["x"] = ("processing", -1, [])
    asked = iter(range(3))
    find = scheduler.answers["who_has"]

    def who_has(arguments: dict[str, object]) -> object:
        if next(asked) == 2:
            scheduler.held["x"] = ("memory", 1, [(1, stores[0].address)])
        return find(arguments)

    scheduler.answers["who_has"] = who_has
    assert future.result(TIMEOUT) == "value"


def test_result_gone_for_good__lost_input_names_the_key(client: Client, scheduler: FakeScheduler) -> None:
    future = client.submit(len, "x", key="x")
    scheduler.tell(m.ClientFinished(["x"], [1], [None]))
    with pytest.raises(LostInput, match="'x' is gone"):
        future.result(TIMEOUT)


@pytest.mark.parametrize(
    ("news", "reason"),
    [(m.Restarted(), "restarted"), (m.Cancelled(["x"], ["cancelled by client 'b', by force"]), "by force")],
)
@pytest.mark.parametrize("several", [False, True])
def test_given_up_by_another_client_while_it_is_located__cancelled_although_the_answer_came_first(
    client: Client, scheduler: FakeScheduler, news: Any, reason: str, several: bool
) -> None:
    future = client.submit(len, "x", key="x")
    scheduler.tell(m.ClientFinished(["x"], [1], [None]))
    find = scheduler.answers["who_has"]

    def who_has(arguments: dict[str, object]) -> object:
        scheduler.tell(news)
        return find(arguments)

    scheduler.answers["who_has"] = who_has
    with pytest.raises(concurrent.futures.CancelledError, match=reason):
        client.gather([future, future], timeout=TIMEOUT) if several else future.result(TIMEOUT)


def test_task_failed_when_its_lost_result_was_computed_again__that_is_raised(
    client: Client, scheduler: FakeScheduler
) -> None:
    future = client.submit(len, "x", key="x")
    scheduler.held["x"] = ("erred", -1, [])
    scheduler.tell(m.ClientFinished(["x"], [1], [None]))
    find = scheduler.answers["who_has"]

    def who_has(arguments: dict[str, object]) -> object:
        failure = m.Failure("exception", "x", "second time", "", ["builtins.OSError"], {}, None)
        scheduler.tell(m.Erred(["x"], [0], [failure]))
        return find(arguments)

    scheduler.answers["who_has"] = who_has
    with pytest.raises(Exception, match="second time"):
        future.result(TIMEOUT)


def test_scheduler_goes_away_while_fetching__connection_lost(
    client: Client, scheduler: FakeScheduler, stores: list[Store]
) -> None:
    future = client.submit(len, "x", key="x")
    hold(scheduler, "x", "value", stores[0], told=[])
    find = scheduler.answers["who_has"]

    def who_has(arguments: dict[str, object]) -> object:
        scheduler.cut_off("bye")
        return find(arguments)

    scheduler.answers["who_has"] = who_has
    with pytest.raises(ConnectionLost, match="bye"):
        future.result(TIMEOUT)


# ------------------------------------------------------------------------------------------- scattering


@pytest.fixture
def accepting(scheduler: FakeScheduler) -> FakeScheduler:
    """A scheduler that confirms scattered values."""
    scheduler.runs_tasks = True
    return scheduler


def values_of(store: Store) -> dict[str, Any]:
    return {key: load_value(parts) for key, parts in store.values.items()}


def test_scatter_a_list__dealt_to_the_workers(
    client: Client, accepting: FakeScheduler, stores: list[Store]
) -> None:
    futures = client.scatter([[1], [2], [3], [4]])
    assert [future.status for future in futures] == ["finished"] * 4
    assert sorted(len(store.values) for store in stores) == [2, 2]
    (message,) = accepting.of(m.Scattered)
    assert message.keys == [each.key for each in futures]
    found = {**values_of(stores[0]), **values_of(stores[1])}
    assert [found[future.key] for future in futures] == [[1], [2], [3], [4]]
    assert all(nbytes > 0 for nbytes in message.nbytes)


def test_scatter_one_value_and_a_dict__same_shape(
    client: Client, accepting: FakeScheduler, stores: list[Store]
) -> None:
    one = client.scatter("text")
    assert one.key.startswith("str-")
    futures = client.scatter({"a": 1, "b": 2})
    assert futures["b"].key == "b"
    assert client.scatter([]) == [] and client.scatter({}) == {}


def test_scatter_to_all__each_has_it(client: Client, accepting: FakeScheduler, stores: list[Store]) -> None:
    future = client.scatter("text", broadcast=True)
    assert [values_of(store) for store in stores] == [{future.key: "text"}] * 2
    assert accepting.of(m.Scattered)[0].workers == [[1, 2]]


def test_scatter_to_a_named_worker(client: Client, accepting: FakeScheduler, stores: list[Store]) -> None:
    client.scatter([1, 2, 3], workers="w2")
    assert (len(stores[0].values), len(stores[1].values)) == (0, 3)


def test_scatter_an_array__its_buffer_travels_apart(
    client: Client, accepting: FakeScheduler, stores: list[Store]
) -> None:
    np = pytest.importorskip("numpy")
    future = client.scatter(np.arange(100_000), workers=["w1"])
    parts = stores[0].values[future.key]
    assert [len(parts), len(parts[1])] == [2, 800_000]


def test_scatter_what_cannot_be_pickled__error_names_the_type(
    client: Client, accepting: FakeScheduler
) -> None:
    with pytest.raises(UsageError, match=r"value for 'x' \(lock\) cannot be pickled"):
        client.scatter({"x": threading.Lock()})
    future = client.submit(len, "x")
    with pytest.raises(UsageError, match="scatter its result"):
        client.scatter([future])
    with pytest.raises(UsageError, match="key of a future"):
        client.scatter({future.key: 1})
    assert accepting.of(m.Scattered) == []


def test_scatter_without_workers__error_after_the_timeout(client: Client, accepting: FakeScheduler) -> None:
    with pytest.raises(NoSuitableWorker, match=r"no running worker among \['x'\] came within 0 s"):
        client.scatter(1, workers="x", timeout=0)


def test_scatter_to_a_worker_out_of_reach__error_names_it(
    client: Client, accepting: FakeScheduler, stores: list[Store]
) -> None:
    stores[0].server.close()
    with pytest.raises(ConnectionLost, match=f"{stores[0].address} cannot take values"):
        client.scatter(1, workers="w1")


def test_scatter_whose_worker_left__error_of_the_scheduler(client: Client, scheduler: FakeScheduler) -> None:
    found: list[BaseException] = []

    def work() -> None:
        try:
            client.scatter({"x": 1})
        except LostInput as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    scheduler.wait_for(m.Scattered)
    scheduler.tell(m.Erred(["x"], [0], [m.Failure("lost-input", "x", "its worker left", "", [], {}, None)]))
    thread.join(TIMEOUT)
    assert [str(error) for error in found] == ["its worker left"]
