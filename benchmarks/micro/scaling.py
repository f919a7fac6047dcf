r"""Does the cost of one event depend on how many tasks and workers there are?

The same events, one task or worker each, happen in the middle of a run: with 10,000 tasks that are alive and 50
workers, and with 1,000,000 and 5,000. Half of the tasks are roots, each with one dependent; every worker has work.

Reported for each event:

us_small, us_large, time_ratio
    processor time of the step, median; the large one costs more where the processor's caches miss
instructions_small, instructions_large, instructions_ratio
    on the compiled build, where there is Valgrind: instructions of the step, median

and for the event "worst" the largest ratios.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from benchmarks import report
from benchmarks.micro.driving import CLIENT, DURATION, Driver, Graph
from benchmarks.shapes import Shape
from shunter.server.scheduler import tune_gc
from shunter.state import (
    DEFAULT_OPTIONS,
    ClientAdded,
    ClientDesiresKeys,
    ClientReleasesKeys,
    ComputeTasks,
    DataReleased,
    Event,
    Failure,
    FreeKeys,
    GraphBegin,
    GraphCommit,
    GraphPart,
    Heartbeat,
    Instruction,
    Key,
    KeysAdded,
    KeysCancelled,
    KeysRetried,
    LongRunning,
    Options,
    PrioritySet,
    TakeBack,
    TakeBackAnswered,
    TaskFailed,
    TaskRescheduled,
    TasksFinished,
    Tick,
    WhoHasRequested,
    WorkerStatusChanged,
)

Events: TypeAlias = Generator[Event, None, None]
SMALL: Final = (10_000, 50)
LARGE: Final = (1_000_000, 5_000)
TIMES: Final = 200  # of each event …
BATCH: Final = 25  # … of which so many are prepared at once
OTHER: Final = 1  # a second client
FIRST: Final = (
    1_000  # number of the first worker: CPython finds numbers up to 256, which it has only once, sooner
)
#: The name that mypyc gives to `SchedulerState.step`: what happens inside is counted.
STEP: Final = "CPyDef_scheduler___SchedulerState___step"
#: The C function behind `sys.getallocatedblocks`, which nothing else calls: Callgrind dumps its counts there.
MARK: Final = "_Py_GetAllocatedBlocks"


class Sent(NamedTuple):
    """A run that a worker was told of."""

    worker: int
    run_id: int
    inputs: list[tuple[Key, int, list[int], int]]


class Bag:
    """Keys of which any one can be drawn in O(1)."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.places: dict[str, int] = {}

    def add(self, key: str) -> None:
        self.places[key] = len(self.keys)
        self.keys.append(key)

    def discard(self, key: str) -> None:
        place = self.places.pop(key, -1)
        if place >= 0:
            last = self.keys.pop()
            if last != key:
                self.keys[place] = last
                self.places[last] = place


class Run(Driver):
    """A run in its middle. Samples are drawn from everywhere, so that nothing is in a cache by chance."""

    def __init__(self, tasks: int, workers: int) -> None:
        self.random = random.Random(1)
        self.sent: dict[str, Sent] = {}
        self.bags = {"root": Bag(), "next": Bag(), "more": Bag()}  # of what is sent
        self.done = Bag()
        self.by_worker: dict[int, dict[str, None]] = {}  # what is sent to it
        self.asked: dict[int, list[int]] = {}  # worker -> runs it was asked to give back
        super().__init__(0, 1)
        self.workers = FIRST - 1
        for _ in range(workers):
            self.add_worker(1)
        self.step(ClientAdded(OTHER, "other"))
        shape = Shape()
        for i in range(tasks // 2):
            shape.add(f"next-{i}", [shape.add(f"root-{i}")])
        graph = Graph(shape)
        graph.wanted = list(graph.keys)  # Nothing is let go of: it stays in the middle.
        self.create(graph)
        self.graphs = 100
        while len(self.done.keys) < tasks // 4:
            for key in list(self.sent):
                self.finish_one(key)

    # ------------------------------------------------------------------------------------------ bookkeeping

    def receive(self, instruction: Instruction) -> None:
        if isinstance(instruction, ComputeTasks):
            for key, run_id, inputs in zip(instruction.keys, instruction.run_ids, instruction.inputs):
                self.note(str(key), Sent(instruction.peer, run_id, inputs or []))
        elif isinstance(instruction, FreeKeys):
            for key in instruction.keys:
                if str(key) in self.by_worker.get(instruction.peer, {}):
                    self.drop(str(key))
        elif isinstance(instruction, TakeBack):
            self.asked.setdefault(instruction.peer, []).extend(instruction.run_ids)

    def note(self, key: str, sent: Sent) -> None:
        self.sent[key] = sent
        self.bags[key[:4]].add(key)
        self.by_worker.setdefault(sent.worker, {})[key] = None

    def drop(self, key: str) -> Sent:
        sent = self.sent.pop(key)
        self.bags[key[:4]].discard(key)
        del self.by_worker[sent.worker][key]
        return sent

    def some_sent(self, kind: str) -> str:
        """A key that is being worked on; if there is none of this kind, others are finished until there is."""
        keys = self.bags[kind].keys
        while not keys:
            for key in list(self.sent):
                self.finish_one(key)
        return self.random.choice(keys)

    def some_done(self) -> str:
        return self.random.choice(self.done.keys)

    def some_worker(self) -> int:
        return self.random.randint(FIRST, self.workers)

    def report_of(self, key: str) -> TasksFinished:
        sent = self.drop(key)
        self.done.add(key)
        return TasksFinished(
            sent.worker, [key], [sent.run_id], [28], [self.now], [DURATION], [1], ["int"], [None]
        )

    def finish_one(self, key: str) -> None:
        self.now += 1e-6
        self.step(self.report_of(key))

    def timed(self, events: list[Event], mark: Callable[[], object]) -> list[int]:
        """Apply them; the nanoseconds that each took. ``mark`` is called before and after each."""
        state = self.state
        now = self.now
        found = []
        instructions: list[Instruction] = []
        for event in events:
            mark()
            started = time.thread_time_ns()
            state.step(event, now)
            found.append(time.thread_time_ns() - started)
            mark()
            instructions += state.drain().instructions
        for instruction in instructions:
            self.receive(instruction)
        return found

    def pause(self, worker: int) -> None:
        self.step(WorkerStatusChanged(worker, "paused"))

    def resume(self, worker: int) -> None:
        self.step(WorkerStatusChanged(worker, "running"))

    def given_back(self, worker: int, most: int = sys.maxsize) -> TakeBackAnswered:
        """Its answer: none had started of the first runs that it was asked for."""
        run_ids = self.asked.get(worker, [])
        self.asked[worker] = run_ids[most:]
        run_ids = run_ids[:most]
        for key in [key for key in self.by_worker.get(worker, {}) if self.sent[key].run_id in run_ids]:
            self.drop(key)
        return TakeBackAnswered(worker, run_ids, run_ids)

    def submit(self, inputs: list[Key], options: Options = DEFAULT_OPTIONS) -> list[Event]:
        """The three events of a graph of one task."""
        self.graphs += 1
        key = f"more-{self.graphs}"
        part = GraphPart(CLIENT, self.graphs, [key], [b"spec"], ["more"], [inputs or None], [options], {})
        return [GraphBegin(CLIENT, self.graphs, True, None), part, GraphCommit(CLIENT, self.graphs, None)]

    # ------------------------------------------------------------------------------------------ events
    # Each yields the events that are measured; what has to happen before is stepped when the next one is asked for.

    def tasks_finished(self) -> Events:
        """One task that has one dependent, which can run then."""
        while True:
            yield self.report_of(self.some_sent("root"))

    def task_failed(self) -> Events:
        while True:
            key = self.some_sent("next")
            sent = self.drop(key)
            failure = Failure("exception", key, "it failed")
            yield TaskFailed(sent.worker, key, sent.run_id, failure, 1.0, 0.1, 1)

    def keys_retried(self) -> Events:
        for event in self.task_failed():
            self.step(event)
            assert isinstance(event, TaskFailed)
            yield KeysRetried(CLIENT, [event.key])

    def task_rescheduled(self) -> Events:
        while True:
            key = self.some_sent("next")
            sent = self.drop(key)
            yield TaskRescheduled(sent.worker, key, sent.run_id)

    def long_running(self) -> Events:
        while True:
            key = self.some_sent("next")
            sent = self.drop(key)
            yield LongRunning(sent.worker, key, sent.run_id, 0.1)

    def graph_begin(self) -> Events:
        while True:
            yield self.submit([])[0]

    def graph_part(self) -> Events:
        while True:
            begin, part, _ = self.submit([])
            self.step(begin)
            yield part

    def graph_commit(self) -> Events:
        """One task without inputs."""
        while True:
            begin, part, commit = self.submit([])
            self.step(begin)
            self.step(part)
            yield commit

    def graph_commit_on_old(self) -> Events:
        """One task that needs two that are done."""
        while True:
            begin, part, commit = self.submit([self.some_done(), self.some_done()])
            self.step(begin)
            self.step(part)
            yield commit

    def keys_added(self) -> Events:
        """One input of a task that was sent elsewhere."""
        urgent = Options(priority=1.0)
        while True:
            inputs: list[Key] = [self.some_done(), self.some_done()]
            for event in self.submit(inputs, urgent):
                self.step(event)
            key = f"more-{self.graphs}"
            for worker in [holder for name in inputs for holder in self.holders_of(name)]:
                if key not in self.sent and self.by_worker[worker]:
                    self.finish_one(next(iter(self.by_worker[worker])))
            sent = self.sent.get(key)
            for name, _, holders, life in sent.inputs if sent is not None else []:
                assert sent is not None
                if sent.worker not in holders:
                    yield KeysAdded(sent.worker, [name], [28], [life])

    def client_releases_keys(self) -> Events:
        while True:
            key = self.some_done()
            if key.startswith("next"):
                self.done.discard(key)
                yield ClientReleasesKeys(CLIENT, [key])

    def client_desires_keys(self) -> Events:
        while True:
            yield ClientDesiresKeys(OTHER, [self.some_done()])

    def keys_cancelled(self) -> Events:
        while True:
            key = self.some_sent("next")
            self.drop(key)
            yield KeysCancelled(CLIENT, [key], False)

    def priority_set(self) -> Events:
        while True:
            yield PrioritySet(CLIENT, [self.some_sent("root").replace("root", "next")], 1.0)

    def heartbeat(self) -> Events:
        while True:
            yield Heartbeat(self.some_worker(), 10**8, 0, 50.0)

    def data_released(self) -> Events:
        """The only copy of what a client wants: it is computed again."""
        while True:
            key = self.some_done()
            if key.startswith("root"):
                self.done.discard(key)
                yield DataReleased(self.holders_of(key)[0], [key])

    def who_has_requested(self) -> Events:
        while True:
            yield WhoHasRequested(self.some_worker(), [self.some_done()], [self.some_worker()])

    def worker_resumes(self) -> Events:
        """It has nothing then, and is sent something."""
        while True:
            worker = self.some_worker()
            self.pause(worker)
            self.step(self.given_back(worker))
            yield WorkerStatusChanged(worker, "running")

    def worker_retires(self) -> Events:
        """It has nothing."""
        while True:
            worker = self.some_worker()
            self.pause(worker)
            self.step(self.given_back(worker))
            yield WorkerStatusChanged(worker, "retiring")
            self.resume(worker)

    def take_back_answered(self) -> Events:
        """One task is given back, and sent elsewhere."""
        while True:
            worker = self.some_worker()
            self.pause(worker)
            yield self.given_back(worker, 1)
            self.step(self.given_back(worker))
            self.resume(worker)

    def nothing_due(self) -> Events:
        while True:
            yield Tick()

    def holders_of(self, key: Key) -> list[int]:
        return self.state.view().who_has([key])[0][3]


#: name -> what yields the events
EVENTS: Final[dict[str, Callable[[Run], Events]]] = {
    "TasksFinished": Run.tasks_finished,
    "GraphBegin": Run.graph_begin,
    "GraphPart": Run.graph_part,
    "GraphCommit": Run.graph_commit,
    "GraphCommit, on old": Run.graph_commit_on_old,
    "ClientReleasesKeys": Run.client_releases_keys,
    "ClientDesiresKeys": Run.client_desires_keys,
    "PrioritySet": Run.priority_set,
    "Heartbeat": Run.heartbeat,
    "KeysAdded": Run.keys_added,
    "TakeBackAnswered": Run.take_back_answered,
    "worker retires": Run.worker_retires,
    "worker resumes": Run.worker_resumes,
    "WhoHasRequested": Run.who_has_requested,
    "DataReleased": Run.data_released,
    "TaskFailed": Run.task_failed,
    "KeysRetried": Run.keys_retried,
    "TaskRescheduled": Run.task_rescheduled,
    "LongRunning": Run.long_running,
    "KeysCancelled": Run.keys_cancelled,
    "Tick": Run.nothing_due,
}
#: The others happen one after the other without anything between them, so that the processor's caches have what the
#: state uses, not what this module does.
ONE_BY_ONE: Final = ("TakeBackAnswered", "worker retires", "worker resumes")


# ---------------------------------------------------------------------------------------------- measuring


def measure(tasks: int, workers: int, times: int, *, wait: bool) -> None:
    """In this process: for each event a line with its name and the nanoseconds that each took.

    ``wait``: when the run has come to its middle, a line on stdin says when to go on, under Callgrind.
    """
    mark = sys.getallocatedblocks if wait else nothing
    run = Run(tasks, workers)
    tune_gc()
    if wait:
        print("ready", flush=True)
        sys.stdin.readline()
    for name, events in EVENTS.items():
        batch = 1 if name in ONE_BY_ONE else BATCH
        source = events(run)
        ns: list[int] = []
        while len(ns) < times:
            ns += run.timed(list(islice(source, batch)), mark)
        source.close()
        print(json.dumps([name, ns]), flush=True)


def nothing() -> None:
    pass


def command(tasks: int, workers: int, times: int) -> list[str]:
    numbers = [str(number) for number in (tasks, workers, times)]
    return [sys.executable, "-m", __spec__.name, "--measure", *numbers]


def time_of_each(tasks: int, workers: int) -> dict[str, float]:
    """Microseconds, median."""
    done = subprocess.run(
        command(tasks, workers, TIMES), check=True, timeout=900, stdout=subprocess.PIPE, text=True
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: report.median(ns) / 1000 for name, ns in rows}


def instructions_of_each(tasks: int, workers: int, times: int) -> dict[str, float]:
    """Instructions, median. Callgrind starts to count when the run has come to its middle."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        options = ["--instr-atstart=no", f"--toggle-collect={STEP}", f"--dump-before={MARK}"]
        with subprocess.Popen(
            [
                *("valgrind", "--quiet", "--tool=callgrind", *options, f"--callgrind-out-file={out}"),
                *(*command(tasks, workers, times), "--wait"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdin is not None and child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            turn_on = ["callgrind_control", "--instr=on", str(child.pid)]
            subprocess.run(turn_on, check=True, timeout=300, capture_output=True)
            child.stdin.write("go\n")
            child.stdin.close()
            rows = [json.loads(line) for line in child.stdout]
        dump = 0
        found = {}
        for name, ns in rows:
            counts = []
            for _ in ns:
                dump += 2  # The one before has what came between two events.
                counts.append(count_in(Path(f"{out}.{dump}")))
            found[name] = report.median(counts)
    return found


def can_count() -> bool:
    return report.build() == "compiled" and bool(
        shutil.which("valgrind") and shutil.which("callgrind_control")
    )


def count_in(dump: Path) -> int:
    """The sum that a dump of Callgrind ends with."""
    for line in reversed(dump.read_text(encoding="utf-8").splitlines()):
        if line.startswith("totals:"):
            total = int(line.split()[1])
            if not total:
                raise RuntimeError(f"nothing was counted: is this the compiled build, and is there a {STEP}?")
            return total
    raise RuntimeError(f"{dump}: no totals")


def main(argv: list[str] | None = None) -> None:
    parser = report.parser(__doc__)
    parser.add_argument("--measure", type=int, nargs=3, metavar="N", help=argparse.SUPPRESS)
    parser.add_argument("--wait", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.measure:
        measure(*given.measure, wait=given.wait)
        return
    large = (LARGE[0] // 10, LARGE[1] // 10) if given.quick else LARGE
    us = [time_of_each(*size) for size in (SMALL, large)]
    counts = [instructions_of_each(*size, 50) for size in (SMALL, large)] if can_count() else []
    ratios: dict[str, list[float]] = {"time_ratio": [], "instructions_ratio": []}
    for name in EVENTS:
        fields = {"us_small": us[0][name], "us_large": us[1][name], "time_ratio": us[1][name] / us[0][name]}
        if counts:
            fields["instructions_small"] = counts[0][name]
            fields["instructions_large"] = counts[1][name]
            fields["instructions_ratio"] = counts[1][name] / counts[0][name]
        for ratio, values in ratios.items():
            if ratio in fields:
                values.append(fields[ratio])
        report.emit("scaling", event=name, small=SMALL, large=large, **fields)
    report.emit(
        "scaling", event="worst", **{ratio: max(values) for ratio, values in ratios.items() if values}
    )


if __name__ == "__main__":
    main()
