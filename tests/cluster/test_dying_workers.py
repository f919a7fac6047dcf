"""Real processes that die: what ran there runs again or is blamed, everything else goes on."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator

import psutil
import pytest

from shunter.client.client import Client
from shunter.deploy.local import LocalCluster
from shunter.errors import KilledWorker, NoSuitableWorker
from shunter.state import Settings

PATIENCE = 60.0


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with LocalCluster(2, 1, settings=Settings(no_workers_timeout=1.0)) as cluster, Client(cluster) as found:
        yield found


def slow_square(x: int) -> int:
    time.sleep(0.01)  # Long enough that some are running when the worker is killed.
    return x * x


def segfault() -> None:
    ctypes.string_at(0)


def own_pid() -> int:
    return os.getpid()


def kill_once(mark: str) -> int:
    """Kills its worker the first time it runs anywhere."""
    if not os.path.exists(mark):
        open(mark, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return 42


def test_worker_is_killed_while_tasks_run__all_results_are_right(client: Client) -> None:
    futures = client.map(slow_square, range(200))
    futures[5].result(PATIENCE)
    os.kill(client.submit(own_pid, key="victim", priority=10).result(PATIENCE), signal.SIGKILL)

    assert client.gather(futures) == [x * x for x in range(200)]
    client.wait_for_workers(2, PATIENCE)


def test_task_kills_its_worker_once__runs_again(client: Client, tmp_path: object) -> None:
    assert client.submit(kill_once, f"{tmp_path}/mark").result(PATIENCE) == 42


def test_task_that_segfaults_each_time__fails_alone_and_the_error_says_why(client: Client) -> None:
    bad = client.submit(segfault)
    good = client.map(slow_square, range(100))

    with pytest.raises(KilledWorker, match=r"SIGSEGV") as caught:
        bad.result(PATIENCE)
    assert bad.key in str(caught.value)
    assert client.gather(good) == [x * x for x in range(100)]


def test_all_workers_are_gone_and_none_comes_back__waiting_futures_fail_and_say_what_to_do() -> None:
    before = {child.pid for child in psutil.Process().children()}
    with LocalCluster(1, 1, settings=Settings(no_workers_timeout=0.5)) as cluster, Client(cluster) as client:
        assert client.submit(abs, -1).result(PATIENCE) == 1
        (parent,) = [
            child
            for child in psutil.Process().children()
            if child.pid not in before and "worker" in child.cmdline()
        ]
        parent.terminate()
        psutil.wait_procs([parent], PATIENCE)

        with pytest.raises(NoSuitableWorker, match="shunter worker"):
            client.submit(abs, -2).result(PATIENCE)
