"""Drives the state as the server does: events in, instructions out, without a socket or a process.

A graph comes in parts, Ticks follow as ``next_deadline`` asks for them, every ComputeTasks is answered by one
TasksFinished with its columns, first come, first served.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from benchmarks.shapes import Shape
from shunter.state import (
    DEFAULT_OPTIONS,
    ClientAdded,
    ClientReleasesKeys,
    ComputeTasks,
    Event,
    GraphBegin,
    GraphCommit,
    GraphPart,
    Instruction,
    Key,
    Options,
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


class Graph:
    """A shape as a client would send it: keys, inputs by key, and an opaque spec for each task.

    Attributes:
        options: of every task.
        wanted: the keys that the client wants: those that nobody else needs.
    """

    def __init__(self, shape: Shape, options: Options = DEFAULT_OPTIONS) -> None:
        self.keys = shape.keys
        self.inputs: list[list[Key] | None] = [
            [shape.keys[d] for d in needs] if needs else None for needs in shape.inputs
        ]
        self.specs = [b"spec"] * len(shape)
        self.kinds = [key.partition("-")[0] for key in shape.keys]
        self.wanted = [shape.keys[task] for task in shape.sinks()]
        self.options = options

    def events(
        self, number: int, *, in_order: bool, order: Sequence[int] | None = None, client: int = CLIENT
    ) -> Iterator[Event]:
        """``in_order`` false: the scheduler has to order them. ``order``: how they are sent, if not last first."""
        n = len(self.keys)
        names = {kind: kind for kind in self.kinds}
        if order is None:
            order = range(n) if in_order else range(n)[::-1]
        yield GraphBegin(client, number, in_order, None)
        for start in range(0, n, PART):
            tasks = order[start : start + PART]
            yield GraphPart(
                client,
                number,
                [self.keys[t] for t in tasks],
                [self.specs[t] for t in tasks],
                [self.kinds[t] for t in tasks],
                [self.inputs[t] for t in tasks],
                [self.options] * len(tasks),
                names if start == 0 else {},
            )
        yield GraphCommit(client, number, list(self.wanted))


class Driver:
    """Stands for the server, the workers and one client. Every event passes through `apply`."""

    def __init__(self, n_workers: int, nthreads: int, settings: Settings | None = None) -> None:
        self.now = 100.0
        self.state = SchedulerState(settings if settings is not None else Settings(), now=self.now)
        self.fifo: deque[ComputeTasks] = deque()
        self.graphs = 0
        self.workers = 0
        self.step(ClientAdded(CLIENT, "bench"))
        for _ in range(n_workers):
            self.add_worker(nthreads)

    def add_worker(self, nthreads: int, resources: Mapping[str, float] | None = None) -> int:
        """Another worker joins; its number."""
        self.workers += 1
        i = self.workers
        address = f"tcp://127.0.0.1:{20000 + i}"
        self.step(WorkerAdded(i, address, f"w{i}", "127.0.0.1", nthreads, 0, dict(resources or {})))
        return i

    # ------------------------------------------------------------------------------------------ in and out

    def step(self, event: Event) -> None:
        """Apply one event and see to what comes out."""
        self.apply(event)
        for instruction in self.state.drain().instructions:
            self.receive(instruction)

    def apply(self, event: Event) -> None:
        self.state.step(event, self.now)

    def receive(self, instruction: Instruction) -> None:
        """What a peer does with an instruction, as far as it matters here."""
        if isinstance(instruction, ComputeTasks):
            self.fifo.append(instruction)
        elif isinstance(instruction, TakeBack):  # All of them have started. What follows comes out next time.
            self.apply(TakeBackAnswered(instruction.peer, list(instruction.run_ids), []))

    def tick(self) -> None:
        """As often as the state asks for it."""
        while self.state.next_deadline <= self.now:
            self.step(Tick())

    # ------------------------------------------------------------------------------------------ a graph's life

    def create(self, graph: Graph, *, in_order: bool = True) -> float:
        """Send a graph; returns the seconds (of this thread's processor time) until all of it was there."""
        events = list(graph.events(self.graphs, in_order=in_order))
        self.graphs += 1
        started = time.thread_time()
        for event in events:
            self.step(event)
        self.tick()
        return time.thread_time() - started

    def finish(self, n: int) -> float:
        """Finish what is sent until nothing is; returns the seconds. All n tasks must come up."""
        done = 0
        fifo = self.fifo
        started = time.thread_time()
        while fifo:
            sent = fifo.popleft()
            self.now += 1e-6
            self.step(finished(sent, self.now))
            done += len(sent.keys)
            if not fifo:
                self.tick()
        seconds = time.thread_time() - started
        if done != n:
            raise AssertionError(f"{done} of {n} tasks were sent")
        return seconds

    def forget(self, graph: Graph) -> float:
        """The client releases its keys; returns the seconds until no task is left."""
        started = time.thread_time()
        self.step(ClientReleasesKeys(CLIENT, list(graph.wanted)))
        self.tick()
        seconds = time.thread_time() - started
        left = self.state.view().counts()["tasks"]
        if left:
            raise AssertionError(f"{left} tasks are still there")
        return seconds


def finished(sent: ComputeTasks, now: float, runs: dict[int, None] | None = None) -> TasksFinished:
    """The worker's report that all of these ran. With ``runs``: only those, which are taken out of it."""
    keys, run_ids = sent.keys, sent.run_ids
    if runs is not None:
        left = [(key, run) for key, run in zip(keys, run_ids) if run in runs]
        keys = [key for key, _ in left]
        run_ids = [run for _, run in left]
        for run in run_ids:
            del runs[run]
    n = len(keys)
    return TasksFinished(
        sent.peer,
        keys,
        run_ids,
        [28] * n,
        [now] * n,
        [DURATION] * n,
        [1] * n,
        ["int"] * n,
        [None] * n,
    )
