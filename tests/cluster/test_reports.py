"""What users of schedulers like this one have reported, on true clusters: each test names the report.

What the pure machines can show is told to them (tests/state/test_reports*.py, tests/worker/test_user_reports.py,
tests/client/test_reports.py); here is what needs sockets, threads or processes.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from shunter.client.client import Client
from shunter.client.futures import Future, wait
from shunter.client.graphs import Ref, Task
from shunter.client.threads import LoopThread
from shunter.deploy.local import LocalCluster
from shunter.errors import ConnectionLost, KilledWorker, LostInput, NoSuitableWorker
from shunter.state import Settings
from shunter.worker import context
from shunter.worker.worker import Worker
from tests.cli.processes import all_gone, family, finished

PATIENCE = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two workers with a thread each: ``local-0`` and ``local-1``, in this process."""
    with LocalCluster(2, 1, processes=False, settings=Settings(no_workers_timeout=0.2)) as found:
        yield found


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as found:
        found.wait_for_workers(2, PATIENCE)
        yield found


@pytest.fixture
def lone() -> Iterator[LocalCluster]:
    """One worker with one thread."""
    with LocalCluster(1, 1, processes=False) as found:
        yield found


class Block:
    """A task that runs until it is let go. It travels by reference: workers share this process."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.go = threading.Event()

    def __call__(self, *inputs: object) -> str:
        self.started.set()
        assert self.go.wait(PATIENCE)
        return "done"

    def __enter__(self) -> Block:
        return self

    def __exit__(self, *exc: object) -> None:
        self.go.set()

    def __reduce__(self) -> Any:
        BLOCKS[id(self)] = self
        return find_block, (id(self),)


BLOCKS: dict[int, Block] = {}


def find_block(number: int) -> Block:
    return BLOCKS[number]


RAN: list[int] = []


def inc(x: int) -> int:
    return x + 1


def note(x: int) -> int:
    RAN.append(x)
    return x


def fail(x: object) -> None:
    raise ValueError(f"no good: {x}")


class ExplodesOnArrival:
    """Can be pickled, cannot be unpickled."""

    def __reduce__(self) -> Any:
        return fail, ("exploded",)


def until(condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def row_of(client: Client, name: str) -> dict[str, Any]:
    return next(row for row in client.workers() if row["name"] == name)


# ------------------------------------------------------------------------------- A: the state machine


def test_a17_graph_of_chains_fails__an_unrelated_task_runs(client: Client) -> None:
    for _ in range(3):
        graph = {f"x{i}": Task(inc, i) for i in range(30)}
        graph |= {f"y{i}": Task(fail, Ref(f"x{i}")) for i in range(30)}
        futures = client.submit_graph(graph, [f"y{i}" for i in range(30)])
        with pytest.raises(ValueError, match="no good"):
            client.gather(futures, timeout=PATIENCE)
        assert client.submit(inc, 1).result(PATIENCE) == 2


def test_a20_cancelled_and_submitted_again_all_the_time__no_life_of_the_key_runs_twice(
    client: Client,
) -> None:
    RAN.clear()
    for n in range(300):
        future = client.submit(note, n, key="again")
        if n % 3 == 0:
            assert future.result(PATIENCE) == n
        future.cancel()
        del future  # a future that is left would share its life
    assert client.submit(note, 1_000, key="again").result(PATIENCE) == 1_000
    assert len(RAN) == len(set(RAN))
    assert sorted(RAN) == RAN


def submit_and_wait(address: str, token: str) -> int:
    context.secede()
    with Client(address, token=token) as inside:
        return inside.submit(inc, inside.submit(inc, 1)).result(PATIENCE)


def test_a34_task_secedes_and_waits_for_others_on_the_only_thread__they_run(lone: LocalCluster) -> None:
    with Client(lone) as client:
        futures = client.map(submit_and_wait, [lone.address] * 3, [lone.token] * 3)
        assert client.gather(futures, timeout=PATIENCE) == [3, 3, 3]


# ------------------------------------------------------------------------------- B: data


def test_b7_result_cannot_be_unpickled_at_a_peer__dependents_fail_with_that_error(client: Client) -> None:
    bad = client.submit(ExplodesOnArrival, workers=["local-0"])
    wait([bad], PATIENCE)
    others = [client.submit(id, bad, workers=["local-1"]) for _ in range(8)]
    for future in others:
        error = future.exception(PATIENCE)
        assert error is not None
        assert bad.key in str(error) and "no good: exploded" in str(error)
    beside = client.submit(isinstance, bad, ExplodesOnArrival, workers=["local-0"])
    assert beside.result(PATIENCE) is True  # there it need not travel


def kill_own_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_b2_o3_workers_are_killed_and_then_the_scheduler__each_error_says_what_happened() -> None:
    before = family(os.getpid())
    with LocalCluster(2, 1, settings=Settings(allowed_failures=1)) as cluster:
        mine = [process for process in family(os.getpid()) if process not in before]
        with Client(cluster, name="victim") as victim, Client(cluster, name="murderer") as murderer:
            data = victim.scatter({"d": list(range(10))}, broadcast=True)["d"]
            total = victim.submit(sum, data)
            assert total.result(PATIENCE) == 45

            murder = murderer.submit(kill_own_worker)
            with pytest.raises(KilledWorker, match=murder.key):
                murder.result(PATIENCE)
            until(lambda: data.status == "error")
            with pytest.raises(LostInput, match="'d' was scattered"):
                victim.submit(len, data).result(PATIENCE)

            victim.wait_for_workers(2, PATIENCE)
            pending = victim.submit(time.sleep, 1_000)
            (scheduler,) = [process for process in mine if "scheduler" in words_of(process)]
            scheduler.kill()
            with pytest.raises(ConnectionLost, match=f"lost the scheduler at {cluster.address}"):
                pending.result(PATIENCE)
            with pytest.raises(ConnectionLost):
                victim.submit(inc, 1)
        cluster.close()
        assert all_gone(mine) == []


def words_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


# ------------------------------------------------------------------------------- G: clients


def test_g1_scheduler_ends_for_want_of_work__clients_are_told_so() -> None:
    with LocalCluster(1, 1, processes=False, settings=Settings(idle_timeout=0.2)) as cluster:
        with Client(cluster) as client:
            assert client.submit(inc, 1).result(PATIENCE) == 2
            until(lambda: client.closed, 10.0)
            with pytest.raises(ConnectionLost, match=rf"{cluster.address}: .*idle"):
                client.submit(inc, 1)


def test_g2_cancelled_task_runs_on__its_thread_is_shown_and_nothing_waits_behind_it(client: Client) -> None:
    with Block() as block:
        future = client.submit(block, workers=["local-0"])
        assert block.started.wait(PATIENCE)
        future.cancel()
        until(lambda: row_of(client, "local-0")["given_up"] == 1)
        for n in range(10):
            assert client.submit(inc, n).result(PATIENCE) == n + 1
    until(lambda: row_of(client, "local-0")["given_up"] == 0)
    assert client.submit(inc, 1, workers=["local-0"]).result(PATIENCE) == 2


def test_g5_given_up_and_used_again_a_thousand_times__no_result_is_lost_or_stale(client: Client) -> None:
    for n in range(1_000):
        y = client.submit(inc, n, key="y")
        if n % 3 == 0:
            assert y.result(PATIENCE) == n + 1
        elif n % 3 == 1:
            y.cancel()
        del y
        futures = client.submit_graph({"y": Task(inc, n), "z": Task(inc, Ref("y"))}, ["z"])
        assert futures["z"].result(PATIENCE) == n + 2
        del futures


FAILURES: list[int] = []


def fail_at_first(x: int) -> int:
    if x not in FAILURES:
        FAILURES.append(x)
        raise OSError(f"{x} is not ready")
    return x


def test_g7_failed_tasks_are_retried_after_others_were_dropped__they_run_again(client: Client) -> None:
    FAILURES.clear()
    futures = client.map(fail_at_first, range(60))
    wait(futures, PATIENCE)
    assert all(isinstance(future.exception(), OSError) for future in futures)
    del futures[::2]
    for future in futures:
        future.retry()
    assert client.gather(futures, timeout=PATIENCE) == list(range(1, 60, 2))


def submit_fixed_key(address: str, token: str) -> int:
    context.secede()
    with Client(address, token=token) as inside:
        return inside.submit(fail_at_first, 7, key="fixed").result(PATIENCE)


def test_g8_task_fails_because_of_another_with_a_fixed_key__the_next_run_tries_that_again(
    cluster: LocalCluster, client: Client
) -> None:
    FAILURES.clear()
    first = client.submit(submit_fixed_key, cluster.address, cluster.token)
    with pytest.raises(OSError, match="not ready"):
        first.result(PATIENCE)
    del first
    assert client.submit(submit_fixed_key, cluster.address, cluster.token).result(PATIENCE) == 7


def test_g10_map_of_a_stream__the_first_task_has_run_before_the_last_item_is_drawn(client: Client) -> None:
    RAN.clear()

    def items() -> Iterator[int]:
        yield from range(2_000)
        until(lambda: 0 in RAN)
        yield from range(2_000, 3_000)

    assert client.gather(client.map(note, items()), timeout=PATIENCE) == list(range(3_000))


# ------------------------------------------------------------------------------- M, N, O


def test_m1_tasks_submitted_one_by_one__run_in_that_order(lone: LocalCluster) -> None:
    RAN.clear()
    with Client(lone) as client:
        futures = [client.submit(note, n) for n in range(200)]
        assert client.gather(futures, timeout=PATIENCE) == list(range(200))
    assert list(range(200)) == RAN


@pytest.mark.parametrize(
    ("options", "named"),
    [({"resources": {"QUANTUM": 1}}, "QUANTUM=1"), ({"workers": ["zoe"]}, "zoe")],
    ids=["resource", "worker"],
)
def test_m4_nobody_can_run_it__error_in_time_names_what_is_missing(
    client: Client, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(NoSuitableWorker, match=named):
        client.submit(inc, 1, **options).result(PATIENCE)
    assert client.submit(inc, 1).result(PATIENCE) == 2


UNGUARDED = """
import os
from shunter import Client

def square(x):
    return x * x

print("imported", flush=True)
client = Client(n_workers=2)
print(sum(client.gather(client.map(square, range(100)))), flush=True)
"""


def test_n1_script_without_a_guard_makes_its_own_cluster__it_runs_once_and_ends(tmp_path: Path) -> None:
    """No sentence about a missing guard is needed: workers never import the script."""
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)

    done = finished([str(script)])

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["imported", "328350"]


def test_o2_long_task_holds_one_thread__what_was_sent_behind_it_runs_on_the_other(client: Client) -> None:
    client.gather(client.map(inc, range(100)), timeout=PATIENCE)  # a short kind, by experience
    with Block() as block:
        long = client.submit(block)
        assert block.started.wait(PATIENCE)
        for n in (1, 7, 500):
            assert client.gather(client.map(inc, range(n)), timeout=PATIENCE) == list(range(1, n + 1))
        assert not long.done()
    assert long.result(PATIENCE) == "done"


def test_o3_only_worker_leaves_with_a_task__who_waits_is_answered() -> None:
    settings = Settings(no_workers_timeout=0.2)
    with LocalCluster(0, processes=False, settings=settings) as cluster, Client(cluster) as client:
        thread = LoopThread("a-worker")
        worker = Worker(cluster.address, token=cluster.token)
        thread.run(worker.start())
        with Block() as block:
            future: Future[str] = client.submit(block)
            assert block.started.wait(PATIENCE)
            thread.run(worker.close(reason="its user wants the machine back"))
            with pytest.raises(NoSuitableWorker, match="shunter worker"):
                future.result(PATIENCE)
        thread.stop()
