r"""The state alone: microseconds and bytes for each task, from its graph to its end.

The facade is driven as the server does it: events in, instructions out. A graph comes in parts, Ticks follow as
``next_deadline`` asks for them, every ComputeTasks is answered by one TasksFinished with its columns, first come,
first served, and at last the client releases what it wanted. Nothing is encoded, no socket is used; the garbage
collector is set as the server sets it. The driver's own work (a few lists for each instruction) is counted.

Each shape runs in processes of its own. Reported for each, as medians over repeats:

create_us, finish_us, forget_us
    of a graph that comes in running order, so that it is not ordered
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
import time
import tracemalloc
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import psutil

from benchmarks import report
from benchmarks.shapes import CORE, Shape
from shunter.state import (
    DEFAULT_OPTIONS,
    ClientAdded,
    ClientReleasesKeys,
    ComputeTasks,
    Event,
    GraphBegin,
    GraphCommit,
    GraphPart,
    Key,
    SchedulerState,
    Settings,
    TakeBack,
    TakeBackAnswered,
    TasksFinished,
    Tick,
    WorkerAdded,
)

CLIENT: Final = 0
PART: Final = 1000  # tasks in one GraphPart
DURATION: Final = 0.001  # seconds that every task says it took
MEMORY_N: Final = 20_000  # tasks when bytes are counted
PEERS: Final = ("dask",)


class Graph:
    """A shape as a client would send it: keys, inputs by key, and an opaque spec for each task."""

    def __init__(self, shape: Shape) -> None:
        self.keys = shape.keys
        self.inputs: list[list[Key] | None] = [
            [shape.keys[d] for d in needs] if needs else None for needs in shape.inputs
        ]
        self.specs = [b"spec"] * len(shape)
        self.kinds = [key.partition("-")[0] for key in shape.keys]
        self.wanted = [shape.keys[task] for task in shape.sinks()]

    def events(self, number: int, *, in_order: bool) -> Iterator[Event]:
        """``in_order`` false: the last task first, so the scheduler has to order them."""
        n = len(self.keys)
        names = {kind: kind for kind in self.kinds}
        yield GraphBegin(CLIENT, number, in_order, None)
        for start in range(0, n, PART):
            tasks = range(n)[start : start + PART] if in_order else range(n)[::-1][start : start + PART]
            yield GraphPart(
                CLIENT,
                number,
                [self.keys[t] for t in tasks],
                [self.specs[t] for t in tasks],
                [self.kinds[t] for t in tasks],
                [self.inputs[t] for t in tasks],
                [DEFAULT_OPTIONS] * len(tasks),
                names if start == 0 else {},
            )
        yield GraphCommit(CLIENT, number, list(self.wanted))


class Driver:
    """Stands for the server, the workers and one client."""

    def __init__(self, n_workers: int, nthreads: int) -> None:
        self.now = 100.0
        self.state = SchedulerState(Settings(), now=self.now)
        self.fifo: deque[ComputeTasks] = deque()
        self.graphs = 0
        self.state.step(ClientAdded(CLIENT, "bench"), self.now)
        for i in range(1, n_workers + 1):
            worker = WorkerAdded(i, f"tcp://127.0.0.1:{20000 + i}", f"w{i}", "127.0.0.1", nthreads, 0, {})
            self.state.step(worker, self.now)
        self._drain()

    def create(self, graph: Graph, *, in_order: bool = True) -> float:
        """Send a graph; returns the seconds it took until all of it was there."""
        events = list(graph.events(self.graphs, in_order=in_order))
        self.graphs += 1
        started = time.perf_counter()
        for event in events:
            self.state.step(event, self.now)
            self._drain()
        self._tick()
        return time.perf_counter() - started

    def finish(self, n: int) -> float:
        """Finish what is sent until nothing is; returns the seconds. All n tasks must come up."""
        done = 0
        fifo = self.fifo
        started = time.perf_counter()
        while fifo:
            sent = fifo.popleft()
            count = len(sent.keys)
            self.now += 1e-6
            self.state.step(
                TasksFinished(
                    sent.peer,
                    sent.keys,
                    sent.run_ids,
                    [28] * count,
                    [self.now] * count,
                    [DURATION] * count,
                    [1] * count,
                    ["int"] * count,
                    [None] * count,
                ),
                self.now,
            )
            done += count
            self._drain()
            if not fifo:
                self._tick()
        seconds = time.perf_counter() - started
        if done != n:
            raise AssertionError(f"{done} of {n} tasks were sent")
        return seconds

    def forget(self, graph: Graph) -> float:
        """The client releases its keys; returns the seconds until no task is left."""
        started = time.perf_counter()
        self.state.step(ClientReleasesKeys(CLIENT, list(graph.wanted)), self.now)
        self._drain()
        self._tick()
        seconds = time.perf_counter() - started
        left = self.state.view().counts()["tasks"]
        if left:
            raise AssertionError(f"{left} tasks are still there")
        return seconds

    def _tick(self) -> None:
        while self.state.next_deadline <= self.now:
            self.state.step(Tick(), self.now)
            self._drain()

    def _drain(self) -> None:
        for instruction in self.state.drain().instructions:
            if isinstance(instruction, ComputeTasks):
                self.fifo.append(instruction)
            elif isinstance(instruction, TakeBack):  # All of them have started.
                answer = TakeBackAnswered(instruction.peer, list(instruction.run_ids), [])
                self.state.step(answer, self.now)


# ---------------------------------------------------------------------------------------------- one shape


def measure_time(shape: str, n: int, n_workers: int, nthreads: int, repeats: int) -> None:
    graph = Graph(CORE[shape](n))
    tasks = len(graph.keys)
    set_gc()
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
    set_gc()
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


def set_gc() -> None:
    """As the server does after its start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


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
