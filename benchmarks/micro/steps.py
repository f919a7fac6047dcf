r"""How long does one step hold the interpreter?

No step may take more than 1 ms and 1 µs for each task or edge that it touches.

A compiled call holds the GIL: nobody else is answered meanwhile. So every step of the state is measured in processor
time of its thread (the garbage collector, set as the server sets it, counts when it happens to run then), and compared
with what it is allowed. Its share of that is above 1 if it took too long.

What is touched is counted low, by hand, for each event:

* a part of a graph, a result, a key that is wanted or given another priority: the task, its inputs and its dependents;
* keys that are released: the same, or the tasks that are forgotten and their edges, if those are more;
* a commit: the tasks and edges of the graph, 8,000 at most; a Tick while a graph comes in: 1,000, at most its size;
* cancelling, retrying, failing: the tasks that follow from it, and their edges;
* a worker that comes or goes, a timer: the tasks it has, holds or lets run.

Reported for each scene and event, and for each event over all scenes:

steps
    how many were measured
share_p999, share_most
    the 99.9th percentile and the largest share of what is allowed
us_p999, us_most
    the same in microseconds; ``touched`` is what the step with the largest share touched
own_share_p999, own_share_most
    without the garbage collector
gc_us_most
    the longest time that a step spent in the garbage collector, and ``gc_steps`` in how many that ran
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import subprocess
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from benchmarks import report
from benchmarks.micro.driving import CLIENT, Driver, Graph, finished
from benchmarks.shapes import Shape, all_to_all, chains, independent, layered_random, tree
from shunter.server.scheduler import tune_gc
from shunter.state import (
    DEFAULT_OPTIONS,
    ClientAdded,
    ClientDesiresKeys,
    ClientReleasesKeys,
    ClientRemoved,
    ComputeTasks,
    DataReleased,
    Event,
    Failure,
    GraphCommit,
    GraphPart,
    Heartbeat,
    Instruction,
    KeysAdded,
    KeysCancelled,
    KeysRetried,
    Options,
    PrioritySet,
    RestartRequested,
    Settings,
    TakeBack,
    TakeBackAnswered,
    TaskFailed,
    TasksFinished,
    Tick,
    WhoHasRequested,
    WorkerRemoved,
    WorkerStatusChanged,
)

SLICE: Final = 1_000  # tasks and edges that a Tick handles while a graph comes in
AT_COMMIT: Final = 8 * SLICE
OTHER: Final = 1  # a second client


class Step(NamedTuple):
    """One measured step."""

    us: float
    gc_us: float
    touched: int

    @property
    def share(self) -> float:
        """Of what is allowed."""
        return self.us / (1000 + self.touched)

    @property
    def own_share(self) -> float:
        """Without the garbage collector."""
        return (self.us - self.gc_us) / (1000 + self.touched)


class Timed(Driver):
    """Measures each step, by the name of its event.

    Attributes:
        weights: of the keys of all graphs that were sent: a task, its inputs and its dependents.
        steps: by the name of the event.
    """

    def __init__(self, n_workers: int, nthreads: int, settings: Settings | None = None) -> None:
        self.steps: defaultdict[str, list[Step]] = defaultdict(list)
        self.weights: dict[object, int] = {}
        self.coming_in = 0  # tasks and edges of the graph that is on its way
        self.edges_each = 0.0  # mean number of inputs of a task
        self.touched = -1  # what the next step touches, if it does not follow from its event
        self.gc_ns = 0
        self.gc_started = 0
        self.threads: dict[int, int] = {}
        self.runs: defaultdict[int, dict[int, None]] = defaultdict(dict)  # of each worker, as they were sent
        self.answers: deque[Event] = deque()
        gc.callbacks.append(self._on_gc)
        super().__init__(n_workers, nthreads, settings)
        self.step(ClientAdded(OTHER, "other"))

    def apply(self, event: Event) -> None:
        touched = self.touched if self.touched >= 0 else self._touched_by(event)
        self.touched = -1
        self.gc_ns = 0
        state, now = self.state, self.now
        before = self.left()
        started = time.thread_time_ns()
        state.step(event, now)
        ns = time.thread_time_ns() - started
        touched = max(touched, round((before - self.left()) * (1 + self.edges_each)))
        self.steps[type(event).__name__].append(Step(ns / 1000, self.gc_ns / 1000, touched))

    def step(self, event: Event) -> None:
        super().step(event)
        while self.answers:
            super().step(self.answers.popleft())

    def step_touching(self, touched: int, event: Event) -> None:
        """A step of which the scene says what it touches."""
        self.touched = touched
        self.step(event)

    def _touched_by(self, event: Event) -> int:
        if isinstance(event, Tick):
            return min(SLICE, self.coming_in)
        if isinstance(event, GraphPart):
            return sum(1 + len(inputs or ()) for inputs in event.inputs)
        if isinstance(event, GraphCommit):
            return min(AT_COMMIT, self.coming_in)
        if isinstance(
            event,
            (
                TasksFinished,
                ClientReleasesKeys,
                ClientDesiresKeys,
                PrioritySet,
                KeysAdded,
                WhoHasRequested,
                DataReleased,
            ),
        ):
            return sum(self.weights.get(key, 1) for key in event.keys)
        if isinstance(event, TakeBackAnswered):
            return len(event.asked)
        return 0

    def _on_gc(self, phase: str, info: object) -> None:
        if phase == "start":
            self.gc_started = time.thread_time_ns()
        else:
            self.gc_ns += time.thread_time_ns() - self.gc_started

    # ------------------------------------------------------------------------------------------ workers

    def add_worker(self, nthreads: int, resources: Mapping[str, float] | None = None) -> int:
        self.threads[self.workers + 1] = nthreads
        return super().add_worker(nthreads, resources)

    def receive(self, instruction: Instruction) -> None:
        """Workers run what was sent to them first, and give back what has not started."""
        if isinstance(instruction, ComputeTasks):
            self.runs[instruction.peer].update(dict.fromkeys(instruction.run_ids))
            self.fifo.append(instruction)
        elif isinstance(instruction, TakeBack):
            runs = self.runs[instruction.peer]
            started = set(islice(runs, self.threads[instruction.peer]))
            given = [run for run in instruction.run_ids if run in runs and run not in started]
            for run in given:
                del runs[run]
            self.answers.append(TakeBackAnswered(instruction.peer, list(instruction.run_ids), given))

    def play(self, most: int = sys.maxsize, *, fetch: bool = False) -> int:
        """Finish up to so many tasks of what is sent, first come, first served; how many it was.

        ``fetch``: workers say first that they have copies of the inputs that they did not have.
        """
        done = 0
        while self.fifo and done < most:
            sent = self.fifo.popleft()
            self.now += 1e-4
            if fetch:
                self._fetch(sent)
            report = finished(sent, self.now, self.runs[sent.peer])
            if report.keys:
                self.step(report)
                done += len(report.keys)
            if not self.fifo:
                self.tick()
        return done

    def _fetch(self, sent: ComputeTasks) -> None:
        lives = {
            key: life
            for inputs in sent.inputs
            for key, _, holders, life in inputs or ()
            if sent.peer not in holders
        }
        if lives:
            n = len(lives)
            self.step(KeysAdded(sent.peer, list(lives), [28] * n, list(lives.values())))

    # ------------------------------------------------------------------------------------------ acts

    def send(self, graph: Graph, *, in_order: bool = True, order: Sequence[int] | None = None) -> None:
        """A graph comes in, until all of it is there."""
        weights = dict.fromkeys(graph.keys, 1)
        for key, inputs in zip(graph.keys, graph.inputs):
            weights[key] += len(inputs or ())
            for other in inputs or ():
                weights[str(other)] += 1
        self.weights.update(weights)
        edges = sum(len(inputs or ()) for inputs in graph.inputs)
        self.coming_in = len(graph.keys) + edges
        self.edges_each = edges / len(graph.keys)
        for event in graph.events(self.graphs, in_order=in_order, order=order):
            self.step(event)
        self.graphs += 1
        self.tick()
        self.coming_in = 0

    def release(self, keys: Sequence[str], at_once: int) -> None:
        for start in range(0, len(keys), at_once):
            self.step(ClientReleasesKeys(CLIENT, list(keys[start : start + at_once])))

    def load_of(self, number: int) -> int:
        """How many tasks wait for a worker, were sent to it, or are held there."""
        for row in self.state.view().workers():
            if row["number"] == number:
                return sum(int(str(row[name])) for name in ("queued", "processing", "held"))
        raise KeyError(number)

    def settle_blame(self, touched: int) -> None:
        """Let the time pass after which the tasks of removed workers are blamed."""
        self.now += 5
        while self.state.next_deadline <= self.now:
            self.step_touching(touched, Tick())

    def left(self) -> int:
        """Tasks that are known."""
        return self.state.view().counts()["tasks"]


# ---------------------------------------------------------------------------------------------- scenes


def random_dag(n: int) -> Shape:
    """Layers of 2,000; each task needs one to four of the layer before."""
    width = max(4, min(2_000, n // 10))
    return layered_random(width, max(2, n // width))


def shuffle(n: int) -> Shape:
    """300 × 300 if n is 200,000."""
    return all_to_all(n * 9 // 20 + 600)


SHAPES: Final[dict[str, Callable[[int], Shape]]] = {
    "independent": independent,
    "chains": chains,
    "tree": tree,
    "shuffle": shuffle,
    "random": random_dag,
}


def whole_life(make: Callable[[int], Shape], how: str, n: int) -> Timed:
    """A graph of its own comes in, runs on 32 workers while others ask, and is released; half of it at once."""
    graph = Graph(make(n))
    driver = Timed(32, 1)
    order = list(range(len(graph.keys)))
    if how == "shuffled":
        random.Random(1).shuffle(order)
    elif how == "last first":
        order.reverse()
    driver.send(graph, in_order=how == "in order", order=order)
    some = graph.keys[:: max(1, len(graph.keys) // 200)]
    turn = 0
    while driver.play(500, fetch=True):
        turn += 1
        worker = 1 + turn % 32
        driver.step(Heartbeat(worker, 10**8, 0, 50.0))
        driver.step(ClientDesiresKeys(OTHER, [some[turn % len(some)]]))
        driver.step(WhoHasRequested(worker, [some[(turn + 7) % len(some)]], [1 + (turn + 1) % 32]))
    half = len(graph.wanted) // 2
    driver.release(graph.wanted[:half], 1_000)
    driver.release(graph.wanted[half:], half + 1)
    touched = sum(driver.weights[key] for key in some)
    driver.step_touching(touched + driver.left(), ClientRemoved(OTHER))
    assert driver.left() == 0, driver.left()
    return driver


def many_workers(n: int) -> Timed:
    """1,000 workers with queued, sent and held tasks: some pause, resume, leave and join."""
    driver = Timed(1_000, 2)
    driver.send(named("a", independent(n // 2)))
    driver.play(n // 4)
    for number in range(1, 1_001, 20):
        driver.step_touching(driver.load_of(number), WorkerStatusChanged(number, "paused"))
        driver.step_touching(0, WorkerStatusChanged(number, "running"))
        driver.step_touching(driver.load_of(number), WorkerRemoved(number, "gone", False))
        driver.add_worker(2)
        driver.play(50)
    driver.settle_blame(100)
    for number in range(2, 1_001, 20):
        driver.step(DataReleased(number, []))
        driver.step(Heartbeat(number, 10**8, 0, 50.0))
    return driver


def one_large_worker(n: int) -> Timed:
    """Among 1,000 workers, one that n // 20 tasks were sent to and that holds as many results, and more: it leaves."""
    driver = Timed(1_000, 1)
    large = driver.add_worker(n // 20)
    driver.send(named("a", independent(n // 4)))
    driver.play(n // 8)
    driver.send(named("b", shuffle(n // 4)))
    driver.play(n // 8, fetch=True)
    load = driver.load_of(large)
    driver.step_touching(load, WorkerStatusChanged(large, "paused"))
    driver.step_touching(load, WorkerStatusChanged(large, "running"))
    driver.play(n // 40)
    driver.step_touching(driver.load_of(large), WorkerRemoved(large, "gone", False))
    driver.settle_blame(n // 20)
    driver.step_touching(n // 2, RestartRequested(CLIENT, 1, 10.0))
    return driver


def no_worker(n: int) -> Timed:
    """n // 20 tasks ask for more than any of 1,000 workers has; unsuitable workers join; most give up; one is found."""
    driver = Timed(1_000, 1)
    for _ in range(1_000):
        driver.add_worker(1, {"GPU": 2.0})
    driver.send(named("a", independent(n // 20), Options(resources={"GPU": 3.0})))
    for _ in range(20):
        driver.touched = n // 20
        driver.add_worker(1, {"GPU": 2.0})
    for _ in range(10):
        driver.step(Heartbeat(1, 10**8, 0, 50.0))
    driver.now += 70
    driver.step_touching(n // 20, Tick())
    driver.tick()
    driver.send(named("b", independent(n // 20), Options(resources={"GPU": 3.0})))
    driver.touched = n // 20
    driver.add_worker(100, {"GPU": 100.0})
    driver.play()
    return driver


def wide(n: int) -> Timed:
    """One task with n // 2 dependents: failed, retried, wanted, given priorities, cancelled, let go by a client."""
    driver = Timed(32, 1)
    shape = Shape()
    root = shape.add("root")
    for i in range(n // 2):
        shape.add(f"leaf-{i}", [root])
    graph = Graph(shape)
    all_of_it = 2 * len(graph.keys)
    for _ in range(3):
        driver.send(graph)
        for _ in range(3):
            sent = driver.fifo.popleft()
            failure = Failure("exception", "root", "it failed")
            driver.step_touching(
                all_of_it, TaskFailed(sent.peer, "root", sent.run_ids[0], failure, 1.0, 0.1, 1)
            )
            driver.step_touching(all_of_it, KeysRetried(CLIENT, list(graph.wanted)))
        driver.play(1)
        for start in range(0, 20_000, 1_000):
            some = graph.wanted[start : start + 1_000]
            driver.step(ClientDesiresKeys(OTHER, list(some)))
            driver.step(PrioritySet(CLIENT, list(some), 1.0))
            driver.step(ClientReleasesKeys(OTHER, list(some)))
        driver.play(n // 8)
        driver.fifo.clear()
        driver.step_touching(all_of_it, KeysCancelled(CLIENT, ["root"], False))
        driver.tick()
        assert driver.left() == 0, driver.left()
    driver.send(graph)
    driver.play(n // 4)
    driver.step_touching(all_of_it, ClientRemoved(CLIENT))
    return driver


def named(prefix: str, shape: Shape, options: Options = DEFAULT_OPTIONS) -> Graph:
    """Keys of different graphs must differ."""
    shape.keys = [prefix + key for key in shape.keys]
    return Graph(shape, options)


#: name -> what to do with about n tasks
SCENES: Final[dict[str, Callable[[int], Timed]]] = {
    **{
        f"{name}, {how}": partial(whole_life, make, how)
        for name, make in SHAPES.items()
        for how in ("in order", "last first", "shuffled")
    },
    "many workers": many_workers,
    "one large worker": one_large_worker,
    "no worker": no_worker,
    "wide": wide,
}


# ---------------------------------------------------------------------------------------------- all of them


def tell(scene: str, event: str, steps: Sequence[Step]) -> None:
    worst = max(steps, key=lambda step: step.share)
    report.emit(
        "steps",
        scene=scene,
        event=event,
        steps=len(steps),
        share_p999=report.quantile([step.share for step in steps], 0.999),
        share_most=worst.share,
        own_share_p999=report.quantile([step.own_share for step in steps], 0.999),
        own_share_most=max(step.own_share for step in steps),
        us_p999=report.quantile([step.us for step in steps], 0.999),
        us_most=max(step.us for step in steps),
        touched=worst.touched,
        gc_us_most=max(step.gc_us for step in steps),
        gc_steps=sum(1 for step in steps if step.gc_us),
    )


def measure(scene: str, n: int) -> None:
    """Run one scene in this process; its steps go to stdout, one line for each event."""
    tune_gc()
    driver = SCENES[scene](n)
    for event, steps in driver.steps.items():
        print(json.dumps([event, steps]), flush=True)


def main(argv: list[str] | None = None) -> None:
    parser = report.parser(__doc__)
    parser.add_argument("--scene", action="append", choices=list(SCENES), help="default: all")
    parser.add_argument("--n", type=int, default=200_000, help="tasks, about (default: 200,000)")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.quick:
        given.n //= 10
    scenes = given.scene or list(SCENES)
    if given.measure:
        measure(scenes[0], given.n)
        return
    total: defaultdict[str, list[Step]] = defaultdict(list)
    for scene in scenes:
        command = [sys.executable, "-m", __spec__.name, "--measure", "--scene", scene, "--n", str(given.n)]
        done = subprocess.run(command, check=True, timeout=900, stdout=subprocess.PIPE, text=True)
        for line in done.stdout.splitlines():
            event, rows = json.loads(line)
            steps = [Step(*row) for row in rows]
            tell(scene, event, steps)
            total[event] += steps
    for event, steps in total.items():
        tell("all", event, steps)
    tell("all", "all", [step for steps in total.values() for step in steps])


if __name__ == "__main__":
    main()
