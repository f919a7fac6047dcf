r"""The state alone: microseconds and bytes for each task, from its graph to its end.

The facade is driven as the server does it: events in, instructions out. A graph comes in parts, Ticks follow as
``next_deadline`` asks for them, every ComputeTasks is answered by one TasksFinished with its columns, first come,
first served, and at last the client releases what it wanted. Nothing is encoded, no socket is used; the garbage
collector is set as the server sets it. The driver's own work (a few lists for each instruction) is counted. Times are
processor time of the thread, so that what else the machine does hardly matters.

Each shape runs in processes of its own. Reported for each, as medians over repeats:

create_us, finish_us, forget_us
    of a graph that comes in running order, so that it is not ordered; forgotten by one event that releases what was
    wanted (of independent tasks: every task)
us_per_task
    their sum
order_us
    what the static order adds to create: for the same graph, sent out of order
bytes_per_task
    held after create, as tracemalloc counts it: what the state adds to the graph that the caller holds
rss_per_task
    the same as the process grows
live_fresh, live_start, live_end
    bytes of all Python objects of the state: new; when one graph was forgotten (its log of transitions is full by
    then); and when ten more were. ``live_ratio`` is the last by the one before, ``live_rise`` their difference for
    each repeat, in bytes
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from typing import Final

import psutil

from benchmarks import report
from benchmarks.micro.driving import Driver, Graph
from benchmarks.shapes import CORE
from shunter.server.scheduler import tune_gc

MEMORY_N: Final = 20_000  # tasks when bytes are counted
PEERS: Final = ("dask",)


# ---------------------------------------------------------------------------------------------- one shape


def measure_time(shape: str, n: int, n_workers: int, nthreads: int, repeats: int) -> None:
    graph = Graph(CORE[shape](n))
    tasks = len(graph.keys)
    tune_gc()
    warm_up(shape, n_workers, nthreads)
    rows: dict[str, list[float]] = {"create": [], "ordered": [], "finish": [], "forget": []}
    for _ in range(repeats):
        driver = Driver(n_workers, nthreads)
        rows["create"].append(driver.create(graph))
        rows["finish"].append(driver.finish(tasks))
        rows["forget"].append(driver.forget(graph))
        driver = Driver(n_workers, nthreads)
        rows["ordered"].append(driver.create(graph, in_order=False))
        driver.finish(tasks)
        driver.forget(graph)
    us = {name: report.median(row) / tasks * 1e6 for name, row in rows.items()}
    report.emit(
        "core",
        shape=shape,
        n=tasks,
        workers=n_workers,
        nthreads=nthreads,
        repeats=repeats,
        us_per_task=us["create"] + us["finish"] + us["forget"],
        create_us=us["create"],
        finish_us=us["finish"],
        forget_us=us["forget"],
        order_us=us["ordered"] - us["create"],
    )


def warm_up(shape: str, n_workers: int, nthreads: int) -> None:
    graph = Graph(CORE[shape](1000))
    driver = Driver(n_workers, nthreads)
    driver.create(graph)
    driver.finish(len(graph.keys))
    driver.forget(graph)


def measure_memory(shape: str, n: int, n_workers: int, nthreads: int, repeats: int) -> None:
    graph = Graph(CORE[shape](n))
    tasks = len(graph.keys)
    tune_gc()
    before = resident()
    driver = Driver(n_workers, nthreads)
    driver.create(graph)
    grown = resident() - before
    driver.finish(tasks)
    driver.forget(graph)
    del driver
    tracemalloc.start()
    driver = Driver(n_workers, nthreads)
    live = [live_bytes()]
    held = 0
    for _ in range(1 + repeats):
        driver.create(graph)
        held = max(held, live_bytes() - live[-1])
        driver.finish(tasks)
        driver.forget(graph)
        live.append(live_bytes())
    report.emit(
        "core-memory",
        shape=shape,
        n=tasks,
        workers=n_workers,
        repeats=repeats,
        bytes_per_task=held / tasks,
        rss_per_task=grown / tasks,
        live_fresh=live[0],
        live_start=live[1],
        live_end=live[-1],
        live_ratio=live[-1] / live[1],
        live_rise=(live[-1] - live[1]) / repeats,
    )


def live_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def resident() -> int:
    """Resident bytes, after what is free has gone back to the system (where the C library can do that)."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    return int(psutil.Process().memory_info().rss)


# ---------------------------------------------------------------------------------------------- all of them


def main(argv: list[str] | None = None) -> None:
    parser = report.parser(__doc__, PEERS)
    parser.add_argument("--shape", action="append", choices=list(CORE), help="default: all")
    parser.add_argument("--n", type=int, default=100_000, help="tasks, about (default: 100,000)")
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--nthreads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3, help="of the timing (default: 3)")
    parser.add_argument("--peer-n", type=int, default=20_000, help="tasks of the peer (default: 20,000)")
    parser.add_argument("--measure", choices=["time", "memory"], help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.quick:
        given.n, given.peer_n, given.repeats = given.n // 10, given.peer_n // 10, 2
    shapes = given.shape or list(CORE)
    if given.measure == "time":
        measure_time(shapes[0], given.n, given.workers, given.nthreads, given.repeats)
    elif given.measure == "memory":
        measure_memory(shapes[0], given.n, given.workers, given.nthreads, 10)
    else:
        common = ["--workers", str(given.workers), "--nthreads", str(given.nthreads)]
        for shape in shapes:
            own = [__spec__.name, "--shape", shape, "--n", str(given.n), "--repeats", str(given.repeats)]
            run([*own, *common, "--measure", "time"])
            own[own.index("--n") + 1] = str(min(given.n, MEMORY_N))  # tracemalloc is slow
            run([*own, *common, "--measure", "memory"])
            for peer in given.peer:
                run([f"benchmarks.peers.{peer}_core", "--shape", shape, "--n", str(given.peer_n), *common])


def run(arguments: list[str]) -> None:
    """One measurement, one process: what one leaves behind does not weigh on the next."""
    subprocess.run([sys.executable, "-m", *arguments], check=True, timeout=600)


if __name__ == "__main__":
    main()
