"""What does it cost to import shunter, to start a scheduler, and to keep one that has nothing to do?

import_s
    of ``import shunter`` (and of the name ``Client``), above a bare interpreter; medians
listen_s
    from the start of the process until a connection to the scheduler is accepted; median
idle_mb, idle_cpu_percent
    resident memory of the scheduler alone, and what share of one processor it uses with two workers connected
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import psutil

from benchmarks import report

PEERS: Final = ("dask",)
What = dict[str, list[str]]  # the arguments of an interpreter, by what is started

OWN: Final[What] = {
    "import": ["-c", "import shunter"],
    "import_client": ["-c", "from shunter import Client"],
    "scheduler": ["-m", "shunter", "scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file"],
    "workers": ["-m", "shunter", "worker", "--nworkers", "2", "--nthreads", "1", "--scheduler-file"],
}
DASK: Final[What] = {
    "import": ["-c", "import distributed"],
    "import_client": ["-c", "from distributed import Client"],
    "scheduler": [
        *("-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"),
        *("--no-dashboard", "--dashboard-address", ":0", "--scheduler-file"),
    ],
    "workers": [
        *("-m", "distributed.cli.dask_worker", "--nworkers", "2", "--nthreads", "1", "--no-dashboard"),
        *("--dashboard-address", ":0", "--scheduler-file"),
    ],
}


def main(argv: list[str] | None = None) -> None:
    parser = report.parser(__doc__, PEERS)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--idle", type=float, default=10.0, help="seconds to watch it idle (default: 10)")
    given = parser.parse_args(argv)
    if given.quick:
        given.repeats, given.idle = 2, 2.0
    measure(OWN, given.repeats, given.idle, system="shunter")
    for peer in given.peer:
        try:
            distributed = importlib.import_module("distributed")
        except ImportError:
            report.emit("startup", system=peer, error="not installed")
            continue
        measure(DASK, given.repeats, given.idle, system=peer, version=distributed.__version__)


def measure(what: What, repeats: int, idle: float, **fields: object) -> None:
    bare, package, client, listen = [], [], [], []
    for _ in range(repeats):
        bare.append(seconds_of(["-c", "pass"]))
        package.append(seconds_of(what["import"]))
        client.append(seconds_of(what["import_client"]))
        with scheduler(what["scheduler"]) as (_process, _file, seconds):
            listen.append(seconds)
    memory, cpu = watch_idle(what, idle)
    report.emit(
        "startup",
        repeats=repeats,
        import_s=report.median(package) - report.median(bare),
        import_client_s=report.median(client) - report.median(bare),
        bare_s=report.median(bare),
        listen_s=report.median(listen),
        idle_mb=memory / 2**20,
        idle_cpu_percent=cpu,
        **fields,
    )


def seconds_of(arguments: list[str]) -> float:
    """From the start of an interpreter to its end.

    Waited for without a timeout: with one, `subprocess` polls, ever more slowly, and that is what would be measured.
    """
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments])
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        code = process.wait()
        seconds = time.perf_counter() - started
    finally:
        watchdog.cancel()
    if code:
        raise RuntimeError(f"{arguments} ended with {code}")
    return seconds


@contextmanager
def scheduler(arguments: Sequence[str]) -> Iterator[tuple[psutil.Popen, str, float]]:
    """Start one, and tell how long it took until it accepted a connection."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "scheduler.json")
        started = time.perf_counter()
        with child([*arguments, file]) as process:
            while not accepts(file):
                if process.poll() is not None or time.perf_counter() - started > 60:
                    raise RuntimeError("the scheduler did not start")
                time.sleep(0.001)
            yield process, file, time.perf_counter() - started


def accepts(file: str) -> bool:
    try:
        with open(file, encoding="utf-8") as stream:
            host, port = json.load(stream)["address"].removeprefix("tcp://").rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=5):
            return True
    except (OSError, ValueError):
        return False


@contextmanager
def child(arguments: Sequence[str]) -> Iterator[psutil.Popen]:
    process = psutil.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(20)


def watch_idle(what: What, seconds: float) -> tuple[int, float]:
    """Resident bytes of a scheduler alone; percent of a processor that it uses with two workers."""
    with scheduler(what["scheduler"]) as (process, file, _seconds):
        time.sleep(2)  # to come to rest
        memory = process.memory_info().rss
        with child([*what["workers"], file]):
            time.sleep(5)  # for the workers to come, and to come to rest
            before = busy(process)
            time.sleep(seconds)
            cpu = (busy(process) - before) / seconds * 100
    return memory, cpu


def busy(process: psutil.Popen) -> float:
    """Seconds of processor time of a process: by the nanosecond where Linux tells, else by its clock ticks."""
    try:
        total = 0
        for thread in process.threads():
            with open(f"/proc/{process.pid}/task/{thread.id}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
        return total / 1e9
    except (OSError, ValueError):
        times = process.cpu_times()
        return float(times.user + times.system)


if __name__ == "__main__":
    main()
