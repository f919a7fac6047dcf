"""Tells stories to the scheduler's state, in events, and reads in plain words what came out.

Peers have names here ("a", "b" are workers, "c", "d" clients), keys are text, the kind of a task is what stands
before the first "-" of its key. Everything is validated after each step, and by the fixture once more at the end.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from shunter.state import (
    DEFAULT_OPTIONS,
    Change,
    ClientAdded,
    ClientDesiresKeys,
    ClientReleasesKeys,
    ClientRemoved,
    ClosePeer,
    ComputeTasks,
    DataReleased,
    DataScattered,
    Event,
    Failure,
    FailureKind,
    FreeKeys,
    GraphBegin,
    GraphCommit,
    GraphPart,
    Instruction,
    KeysAdded,
    KeysCancelled,
    KeysRetried,
    Log,
    LongRunning,
    Options,
    PrioritySet,
    ReportCancelled,
    ReportErred,
    ReportFinished,
    ReportLost,
    ReportRetried,
    SchedulerState,
    Settings,
    TakeBack,
    TakeBackAnswered,
    TaskFailed,
    TaskRescheduled,
    TasksFinished,
    Tick,
    UpdateWhoHas,
    View,
    WhoHasRequested,
    WorkerAdded,
    WorkerDied,
    WorkerRemoved,
    WorkerStatus,
    WorkerStatusChanged,
)

Graph = Mapping[str, Sequence[str]]
Report = tuple[str, str]
InstructionT = TypeVar("InstructionT", bound=Instruction)

_WORDS = {
    ReportFinished: "finished",
    ReportErred: "erred",
    ReportLost: "lost",
    ReportCancelled: "cancelled",
    ReportRetried: "retried",
}


class Script:
    """A state, its clock, and everything that came out since the last look.

    Args:
        workers: threads by name.
        graph: inputs by key; the first client submits it, once the workers are there.
        want: the keys of ``graph`` that it wants; None means all.
        clients: names.
        options: of all tasks of ``graph``, or by key.
        settings: keywords of `Settings`.
    """

    #: Those of the running test, for the fixture.
    told: ClassVar[list[Script]] = []

    def __init__(
        self,
        workers: Mapping[str, int] | None = None,
        graph: Graph | None = None,
        *,
        want: Sequence[str] | None = None,
        clients: Sequence[str] = ("c",),
        options: Options | Mapping[str, Options] = DEFAULT_OPTIONS,
        **settings: Any,
    ) -> None:
        self.now = 100.0
        self.state = SchedulerState(
            Settings(**{"validate": True, "worker_ttl": 0.0, **settings}), now=self.now
        )
        self.out: list[Instruction] = []
        self.changes: list[Change] = []
        self.numbers: dict[str, int] = {}  # of the latest peer of that name
        self.names: dict[int, str] = {}
        self.threads: dict[int, int] = {}
        self.runs: dict[int, dict[int, str]] = {}  # worker -> run_id -> key, in the order they were sent
        self.latest: dict[str, tuple[int, int]] = {}  # key -> worker, run_id
        self.lives: dict[str, int] = {}  # of the keys that workers were told of
        self.asked: dict[int, list[int]] = {}  # worker -> runs that it was asked to give back
        self.failures: dict[tuple[str, str], Failure] = {}  # client, key
        self.graphs = 0
        Script.told.append(self)
        for name in clients:
            self.client(name)
        for name, threads in (workers or {}).items():
            self.worker(name, threads)
        if graph is not None:
            self.submit(graph, want=want, options=options)

    # -------------------------------------------------------------------------------------- time

    def step(self, *events: Event) -> None:
        for event in events:
            self.state.step(event, self.now)
            outcome = self.state.drain()
            self.changes += outcome.changes
            for instruction in outcome.instructions:
                self.out.append(instruction)
                self._note(instruction)

    def _note(self, instruction: Instruction) -> None:
        if isinstance(instruction, ComputeTasks):
            for key, life, inputs in zip(instruction.keys, instruction.lives, instruction.inputs):
                self.lives[str(key)] = life
                self.lives.update((str(each[0]), each[3]) for each in inputs or [])
            for key, run_id in zip(instruction.keys, instruction.run_ids):
                self.runs[instruction.peer][run_id] = str(key)
                self.latest[str(key)] = (instruction.peer, run_id)
        elif isinstance(instruction, FreeKeys):
            runs = self.runs[instruction.peer]
            for run_id in [r for r, key in runs.items() if key in instruction.keys]:
                del runs[run_id]
        elif isinstance(instruction, TakeBack):
            self.asked.setdefault(instruction.peer, []).extend(instruction.run_ids)
        elif isinstance(instruction, ReportErred):
            for key, failure in zip(instruction.keys, instruction.failures):
                self.failures[self.names[instruction.peer], str(key)] = failure

    def tick(self, *, to: float | None = None) -> None:
        """One Tick, now or at the time ``to``."""
        if to is not None:
            self.now = max(self.now, to)
        self.step(Tick())

    def wait(self, seconds: float) -> None:
        """Let time pass, with a Tick at every deadline on the way."""
        end = self.now + seconds
        while self.state.next_deadline <= end:
            self.tick(to=self.state.next_deadline)
        self.now = end

    def take_in(self) -> int:
        """Tick until no graph is coming in; how many it took."""
        ticks = 0
        while self.state.next_deadline <= self.now:
            self.tick()
            ticks += 1
            assert ticks < 1_000_000
        return ticks

    # -------------------------------------------------------------------------------------- clients

    def client(self, name: str) -> int:
        number = self._number(name)
        self.step(ClientAdded(number, name))
        return number

    def client_leaves(self, name: str = "c") -> None:
        self.step(ClientRemoved(self.numbers[name]))

    def submit(
        self,
        graph: Graph,
        *,
        by: str = "c",
        want: Sequence[str] | None = None,
        options: Options | Mapping[str, Options] = DEFAULT_OPTIONS,
        kind: str | None = None,
        in_order: bool = False,
        parent: str | None = None,
        part: int = 1_000_000,
    ) -> None:
        """A whole graph: begin, parts of ``part`` tasks, commit, and Ticks until it is in."""
        graph_number = self.begin(by=by, in_order=in_order, parent=parent)
        keys = list(graph)
        for at in range(0, len(keys), part):
            some = {key: graph[key] for key in keys[at : at + part]}
            self.part(some, graph_number, by=by, options=options, kind=kind)
        self.commit(graph_number, by=by, want=want)
        self.take_in()

    def begin(self, *, by: str = "c", in_order: bool = False, parent: str | None = None) -> int:
        self.graphs += 1
        self.step(GraphBegin(self.numbers[by], self.graphs, in_order, parent))
        return self.graphs

    def part(
        self,
        tasks: Graph | Sequence[tuple[str, Sequence[str]]],
        graph: int,
        *,
        by: str = "c",
        options: Options | Mapping[str, Options] = DEFAULT_OPTIONS,
        kind: str | None = None,
    ) -> None:
        rows = list(tasks.items()) if isinstance(tasks, Mapping) else list(tasks)
        keys = [key for key, _ in rows]
        kinds = [kind or key.partition("-")[0] for key in keys]
        each = [options if isinstance(options, Options) else options.get(k, DEFAULT_OPTIONS) for k in keys]
        self.step(
            GraphPart(
                self.numbers[by],
                graph,
                list(keys),
                [f"spec of {key}, graph {graph}" for key in keys],
                [f"digest of {each}" for each in kinds],
                [list(inputs) or None for _, inputs in rows],
                each,
                {f"digest of {each}": each for each in kinds},
            )
        )

    def commit(self, graph: int, *, by: str = "c", want: Sequence[str] | None = None) -> None:
        self.step(GraphCommit(self.numbers[by], graph, None if want is None else list(want)))

    def desire(self, *keys: str, by: str = "c") -> None:
        self.step(ClientDesiresKeys(self.numbers[by], list(keys)))

    def release(self, *keys: str, by: str = "c") -> None:
        self.step(ClientReleasesKeys(self.numbers[by], list(keys)))

    def cancel(self, *keys: str, by: str = "c", force: bool = False) -> None:
        self.step(KeysCancelled(self.numbers[by], list(keys), force))

    def retry(self, *keys: str, by: str = "c") -> None:
        self.step(KeysRetried(self.numbers[by], list(keys)))

    def set_priority(self, priority: float, *keys: str, by: str = "c") -> None:
        self.step(PrioritySet(self.numbers[by], list(keys), priority))

    def scatter(self, key: str, *, to: Sequence[str], by: str = "c", nbytes: int = 8) -> None:
        holders = [self.numbers[name] for name in to]
        self.step(DataScattered(self.numbers[by], [key], [nbytes], [holders]))

    # -------------------------------------------------------------------------------------- workers

    def worker(
        self,
        name: str,
        threads: int = 1,
        *,
        address: str | None = None,
        host: str = "h",
        resources: dict[str, float] | None = None,
        has_parent: bool = False,
    ) -> int:
        number = self._number(name)
        self.threads[number] = threads
        self.runs[number] = {}
        where = address or f"tcp://{name}:1"
        self.step(WorkerAdded(number, where, name, host, threads, 0, resources or {}, has_parent))
        return number

    def set_status(self, worker: str, status: WorkerStatus) -> None:
        self.step(WorkerStatusChanged(self.numbers[worker], status))

    def pause(self, worker: str) -> None:
        self.set_status(worker, "paused")

    def resume(self, worker: str) -> None:
        self.set_status(worker, "running")

    def leaves(self, worker: str) -> None:
        """It said goodbye."""
        self.step(WorkerRemoved(self.numbers[worker], "closed", True))

    def link_breaks(self, worker: str) -> None:
        self.step(WorkerRemoved(self.numbers[worker], "link broke", False))

    def parent_tells(self, worker: str, *, started: Sequence[str], cause: str = "signal 9") -> None:
        """Its parent process says which of the runs sent to it had started."""
        number = self.numbers[worker]
        run_ids = [run_id for run_id, key in self.runs[number].items() if key in started]
        self.step(WorkerDied(number, cause, run_ids))

    def kill(self, worker: str, *, started: Sequence[str] | None = None) -> None:
        """Its link breaks, then its parent tells; by default, as many as it has threads had started."""
        number = self.numbers[worker]
        if started is None:
            started = list(self.runs[number].values())[: self.threads[number]]
        self.link_breaks(worker)
        self.parent_tells(worker, started=started)

    def finish(
        self,
        *keys: str,
        on: str | None = None,
        nbytes: int = 8,
        seconds: float = 0.1,
        data: object = None,
        run_id: int | None = None,
    ) -> None:
        """These runs end well, in one event for each worker; by default the latest run of each key."""
        by_worker: dict[int, list[tuple[str, int]]] = {}
        for key in keys:
            number, latest = self.latest[key]
            if on is not None:
                number = self.numbers[on]
                latest = self._run_on(number, key)
            run = latest if run_id is None else run_id
            by_worker.setdefault(number, []).append((key, run))
        for number, done in by_worker.items():
            self.finished(number, done, nbytes=nbytes, seconds=seconds, data=data)

    def finished(
        self,
        number: int,
        done: Sequence[tuple[str, int]],
        *,
        nbytes: int = 8,
        seconds: float = 0.1,
        data: object = None,
    ) -> None:
        """A worker says that runs (key, run_id) ended well."""
        n = len(done)
        for _, run in done:
            self.runs.get(number, {}).pop(run, None)
        self.step(
            TasksFinished(
                number,
                [key for key, _ in done],
                [run for _, run in done],
                [nbytes] * n,
                [self.now] * n,
                [seconds] * n,
                [7] * n,
                ["builtins.int"] * n,
                [data] * n,
            )
        )

    def fail(
        self,
        key: str,
        *,
        on: str | None = None,
        kind: FailureKind = "exception",
        types: Sequence[str] = ("builtins.ValueError", "builtins.Exception"),
        text: str = "boom",
    ) -> None:
        number, run_id = self.latest[key]
        if on is not None:
            number = self.numbers[on]
            run_id = self._run_on(number, key)
        self.runs[number].pop(run_id, None)
        failure = Failure(kind, key, text, types=list(types))
        self.step(TaskFailed(number, key, run_id, failure, self.now, 0.1, 7))

    def reschedule(self, key: str) -> None:
        number, run_id = self.latest[key]
        self.runs[number].pop(run_id, None)
        self.step(TaskRescheduled(number, key, run_id))

    def long_running(self, key: str) -> None:
        number, run_id = self.latest[key]
        self.step(LongRunning(number, key, run_id, 0.1))

    def holds(self, worker: str, *keys: str, nbytes: int = 8) -> None:
        """The worker has copies: of what is in memory another client has put them there, else it just says so."""
        for key in keys:
            if self.status(key) != "memory":
                life = self.lives.get(key, 0)
                self.step(KeysAdded(self.numbers[worker], [key], [nbytes], [life]))
                continue
            copier = self.numbers["copier"] if "copier" in self.numbers else self.client("copier")
            self.step(DataScattered(copier, [key], [nbytes], [[self.numbers[worker]]]))
            self.step(ClientReleasesKeys(copier, [key]))

    def loses(self, worker: str, *keys: str) -> None:
        """The worker says that it has lost values."""
        self.step(DataReleased(self.numbers[worker], list(keys)))

    def complain(self, worker: str, key: str, *, about: Sequence[str]) -> None:
        """The worker could not fetch a key from these."""
        self.step(WhoHasRequested(self.numbers[worker], [key], [self.numbers[name] for name in about]))

    def answer(self, worker: str, *, given: Sequence[str] | None = None) -> list[str]:
        """The worker answers every TakeBack; by default it gives what is not among its first runs."""
        number = self.numbers[worker]
        asked = self.asked.pop(number, [])
        runs = self.runs[number]
        started = list(runs)[: self.threads[number]]
        if given is None:
            gives = [run_id for run_id in asked if run_id in runs and run_id not in started]
        else:
            gives = [run_id for run_id in asked if runs.get(run_id) in given]
        given_keys = [runs.pop(run_id) for run_id in gives]
        self.step(TakeBackAnswered(number, asked, gives))
        return given_keys

    def play(
        self, *, seconds: float = 0.1, nbytes: int = 8, rounds: int = 10_000, but: Iterable[str] = ()
    ) -> dict[str, list[str]]:
        """Workers run what they are sent, each on all of its threads, until nothing is left; who ran what.

        One round takes ``seconds``; in it, every thread ends one task. Workers in ``but`` end none.
        """
        ran: dict[str, list[str]] = {}
        stuck = {self.numbers[name] for name in but}
        for _ in range(rounds):
            idle = True
            for number in [n for n in self.runs if n not in stuck]:
                name = self.names[number]
                if self.numbers[name] != number:
                    continue
                if number in self.asked:
                    self.answer(name)
                done = [(key, run) for run, key in self.runs[number].items()][: self.threads[number]]
                if done:
                    idle = False
                    ran.setdefault(name, []).extend(key for key, _ in done)
                    self.finished(number, done, nbytes=nbytes, seconds=seconds)
            if idle and not self.asked:
                return ran
            for number in [n for n in self.asked if n in stuck]:
                self.answer(self.names[number])
            self.wait(seconds)
        return ran

    # -------------------------------------------------------------------------------------- looking

    @property
    def view(self) -> View:
        return self.state.view()

    def take(self, wanted: type[InstructionT]) -> list[InstructionT]:
        """The instructions of one sort since the last look at them."""
        found = [each for each in self.out if isinstance(each, wanted)]
        self.out = [each for each in self.out if not isinstance(each, wanted)]
        return found

    def sent(self) -> list[tuple[str, str]]:
        """What was sent since the last look, in order: (key, worker)."""
        found = self.take(ComputeTasks)
        return [(str(key), self.names[each.peer]) for each in found for key in each.keys]

    def freed(self) -> list[tuple[str, str]]:
        """What workers were told to free since the last look: (key, worker)."""
        found = self.take(FreeKeys)
        return [(str(key), self.names[each.peer]) for each in found for key in each.keys]

    def asked_back(self) -> list[tuple[str, str]]:
        """What workers were asked to give back since the last look: (key, worker)."""
        found: list[tuple[str, str]] = []
        for each in self.take(TakeBack):
            runs = self.runs[each.peer]
            found += [(runs[run_id], self.names[each.peer]) for run_id in each.run_ids]
        return found

    def holders_told(self) -> list[tuple[str, str, list[str]]]:
        """Answers to complaints since the last look: (worker, key, holders)."""
        found: list[tuple[str, str, list[str]]] = []
        for each in self.take(UpdateWhoHas):
            for key, holders in zip(each.keys, each.holders):
                found.append((self.names[each.peer], str(key), [self.names[n] for n in holders]))
        return found

    def reports(self, client: str = "c") -> list[Report]:
        """What the client heard since the last look, in order: (word, key)."""
        number = self.numbers[client]
        found: list[Report] = []
        rest: list[Instruction] = []
        for each in self.out:
            word = _WORDS.get(type(each))
            if word is None or each.peer != number:
                rest.append(each)
            else:
                found += [(word, str(key)) for key in each.keys]  # type: ignore[attr-defined]
        self.out = rest
        return found

    def failure(self, key: str, *, client: str = "c") -> Failure:
        """Why the client was told that the task failed."""
        return self.failures[client, key]

    def closed(self) -> list[str]:
        """Peers that the server was told to close since the last look."""
        return [self.names[each.peer] for each in self.take(ClosePeer)]

    def logged(self) -> list[str]:
        """Codes of log lines since the last look."""
        return [each.code for each in self.take(Log)]

    def status(self, key: str) -> str:
        return self.view.who_has([key])[0][1]

    def statuses(self, *keys: str) -> list[str]:
        return [row[1] for row in self.view.who_has(list(keys))]

    def holders(self, key: str) -> list[str]:
        return [self.names[number] for number in self.view.who_has([key])[0][3]]

    def where(self, key: str) -> str:
        """The worker to which it was sent last."""
        return self.names[self.latest[key][0]]

    def run_id(self, key: str) -> int:
        return self.latest[key][1]

    def row(self, worker: str) -> dict[str, object]:
        """The worker's row of the view."""
        number = self.numbers[worker]
        return next(row for row in self.view.workers() if row["number"] == number)

    def count(self, name: str) -> int:
        return self.view.counts()[name]

    # -------------------------------------------------------------------------------------- inside

    def _number(self, name: str) -> int:
        number = len(self.names) + 1
        self.numbers[name] = number
        self.names[number] = name
        return number

    def _run_on(self, number: int, key: str) -> int:
        """The run of a key that a worker was sent."""
        for run_id, other in self.runs[number].items():
            if other == key:
                return run_id
        worker, run_id = self.latest[key]
        assert worker == number, f"{key!r} was never sent to {self.names[number]!r}"
        return run_id


def keys_of(prefix: str, n: int) -> list[str]:
    return [f"{prefix}-{i}" for i in range(n)]


def roots(prefix: str, n: int) -> dict[str, list[str]]:
    """A graph of ``n`` tasks without inputs."""
    return {key: [] for key in keys_of(prefix, n)}


def chain(n: int, prefix: str = "x") -> dict[str, list[str]]:
    """x-0 <- x-1 <- … : each needs the one before."""
    return {f"{prefix}-{i}": [f"{prefix}-{i - 1}"] if i else [] for i in range(n)}


def described(value: object) -> object:
    """Plain data that says all of an instruction, failure or set of options."""
    if isinstance(value, (Instruction, Failure, Options, Change)):
        fields: dict[str, object] = {}
        for name in dir(value):
            if name.startswith("_"):
                continue
            field = getattr(value, name)
            if not inspect.isroutine(field):
                fields[name] = described(field)
        return (type(value).__name__, fields)
    if isinstance(value, (list, tuple)):
        return [described(each) for each in value]
    if isinstance(value, dict):
        return [(described(k), described(v)) for k, v in value.items()]
    assert isinstance(value, (str, int, float, bool, type(None))), value
    return value
