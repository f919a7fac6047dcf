"""Worker processes that are replaced: because a client asks for it, or because they have fallen silent."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import CancelledError
from pathlib import Path

import psutil
import pytest

from shunter.client.client import Client
from shunter.deploy.local import LocalCluster
from shunter.state import Settings
from tests.cli.processes import all_gone

PATIENCE = 30.0


def tell_pid_and_wait_for_ever(file: str) -> None:
    from threading import Event

    Path(file).write_text(str(os.getpid()))
    Event().wait()


def hold_the_interpreter_once(file: str) -> str:
    """Stop this whole process, as C code does that keeps the interpreter lock; the next time, return."""
    if Path(file).exists():
        return "done"
    Path(file).write_text(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)
    return "woken up"


def pids(client: Client) -> dict[str, int]:
    """Process ids of the workers, by name."""
    names = [str(row["name"]) for row in client.workers()]
    futures = [client.submit(os.getpid, workers=[name]) for name in names]
    return dict(zip(names, client.gather(futures, timeout=PATIENCE)))


def test_restart__other_processes_under_the_same_names_and_nobody_is_suspect(tmp_path: Path) -> None:
    with LocalCluster(2, 1, settings=Settings(allowed_failures=0)) as cluster, Client(cluster) as client:
        client.wait_for_workers(2, PATIENCE)
        for n in range(3):
            before = pids(client)
            old = [psutil.Process(pid) for pid in before.values()]
            done = client.submit(abs, -1)
            assert done.result(PATIENCE) == 1
            file = tmp_path / f"pid-{n}"
            running = client.submit(tell_pid_and_wait_for_ever, str(file), key="endless")
            deadline = time.monotonic() + PATIENCE
            while not file.exists():
                assert time.monotonic() < deadline and not running.done()
                time.sleep(0.001)

            assert client.restart(PATIENCE) == 2

            assert all_gone(old) == []
            for future in (done, running):
                with pytest.raises(CancelledError, match="the cluster was restarted"):
                    future.result(PATIENCE)
            after = pids(client)
            assert after.keys() == before.keys()
            assert not set(after.values()) & set(before.values())


def test_worker_process_stands_still__it_is_killed_and_replaced_and_its_task_runs_again(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pid"
    with LocalCluster(1, 1, settings=Settings(worker_ttl=2.0)) as cluster, Client(cluster) as client:
        assert client.submit(hold_the_interpreter_once, str(file)).result(2 * PATIENCE) == "done"
        assert not psutil.pid_exists(int(file.read_text()))
