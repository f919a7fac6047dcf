"""What is heard and told, on true clusters: heartbeats beside user code that blocks, failures that nobody waits for."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest

from shunter.cli.main import main
from shunter.client.client import Client
from shunter.deploy.local import LocalCluster
from shunter.state import Settings

PATIENCE = 30.0


class Gate:
    """A task waits at it until it is open; also one that is a coroutine, which blocks its loop by that."""

    made: ClassVar[dict[str, Gate]] = {}

    def __init__(self, name: str) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.made[name] = self

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *exc: object) -> None:
        self.opened.set()


def pass_gate(name: str) -> str:
    gate = Gate.made[name]
    gate.reached.set()
    assert gate.opened.wait(PATIENCE)
    return name


async def block_the_loop_of_coroutines(name: str) -> str:
    return pass_gate(name)


def fail(text: str) -> None:
    raise ValueError(text)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def row(client: Client) -> dict[str, Any]:
    """The only worker."""
    (found,) = client.workers()
    return found


def test_user_code_blocks_threads_and_loop_of_a_worker__it_is_heard_all_the_same() -> None:
    with LocalCluster(1, 2, processes=False, settings=Settings(worker_ttl=1.0)) as cluster:
        with Client(cluster) as client, Gate("thread") as thread, Gate("loop") as loop:
            client.wait_for_workers(1, PATIENCE)
            number = row(client)["number"]
            futures = [
                client.submit(pass_gate, "thread"),
                client.submit(block_the_loop_of_coroutines, "loop"),
            ]
            assert thread.reached.wait(PATIENCE) and loop.reached.wait(PATIENCE)
            silences: list[float] = [row(client)["last_seen"]]

            def heard_six_times() -> bool:
                """Longer than it may be silent: there are four heartbeats in that time."""
                silences.append(row(client)["last_seen"])
                return sum(now < before for before, now in pairwise(silences)) >= 6

            until(heard_six_times)
            assert row(client)["number"] == number
            thread.opened.set()
            loop.opened.set()
            assert client.gather(futures, timeout=PATIENCE) == ["thread", "loop"]


def test_what_nobody_waits_for_fails__the_scheduler_logs_why(caplog: pytest.LogCaptureFixture) -> None:
    with LocalCluster(1, 1, processes=False) as cluster, Client(cluster) as client:
        with Gate("first") as first:
            client.submit(pass_gate, "first")
            future = client.submit(fail, "went wrong", key="doomed")
            client.fire_and_forget(future)
            del future
            first.opened.set()
            until(lambda: "is not known" in client.why("doomed"))
    (record,) = [each for each in caplog.records if "doomed" in each.getMessage()]
    assert (record.name, record.levelname) == ("shunter.scheduler", "ERROR")
    assert "nobody waits for" in record.getMessage() and "went wrong" in record.getMessage()


def test_why_and_story__from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with LocalCluster(1, 1, processes=False) as cluster, Client(cluster) as client:
        token = tmp_path / "token"
        token.write_text(cluster.token)
        token.chmod(0o600)
        where = [cluster.address, "--token-file", str(token)]
        future = client.submit(pow, 2, 10, key="power")
        assert future.result(PATIENCE) == 1024

        assert main(["why", "power", *where]) == 0
        assert "'power' is done" in capsys.readouterr().out
        assert main(["story", "power", *where, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["key"], told["status"]) == ("power", "memory")
        assert told["story"] == client.story("power") != []

        assert main(["why", "powr", *where]) == 1
        assert "'powr' is not known" in capsys.readouterr().err
