"""Runs programs of arbitrary events on the scheduler's state, and checks what has to hold whatever comes.

Two states get the same events, of which one validates itself; they must give the same instructions.
"""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

from hypothesis import note

from shunter.state import (
    AcquireReplicas,
    AnswerQuestion,
    ClientAdded,
    ClientRemoved,
    ClosePeer,
    ComputeTasks,
    DatasetPublished,
    Event,
    Failure,
    FreeKeys,
    GraphAborted,
    GraphBegin,
    GraphCommit,
    GraphPart,
    Instruction,
    Key,
    KeysAdded,
    KeysDetached,
    KillWorker,
    LongRunning,
    RemoveReplicas,
    Reply,
    ReportCancelled,
    ReportErred,
    ReportFinished,
    ReportLost,
    ReportRetried,
    Restarted,
    RestartRequested,
    SchedulerState,
    Settings,
    SetWorkerStatus,
    TakeBack,
    TakeBackAnswered,
    TaskFailed,
    TaskRescheduled,
    TasksFinished,
    Tick,
    UpdateWhoHas,
    WorkerAdded,
    WorkerDied,
    WorkerGone,
    WorkerRemoved,
    WorkerStatusChanged,
)
from tests.state.any_events import KEY_POOL, START, Answer, Program, columns, described, fields_of, script

#: Ticks at one time after which nothing may be due any more; programs are small.
TICKS_MAX: Final = 2_000
STATUSES: Final = "released waiting no-worker queued processing memory erred forgotten"

_TO_WORKERS: Final = (
    AcquireReplicas,
    ComputeTasks,
    FreeKeys,
    RemoveReplicas,
    SetWorkerStatus,
    TakeBack,
    UpdateWhoHas,
    WorkerGone,
)
_TO_CLIENTS: Final = (
    AnswerQuestion,
    ReportCancelled,
    ReportErred,
    ReportFinished,
    ReportLost,
    ReportRetried,
    Reply,
    Restarted,
)
#: To those that leave in the same step, too.
_FAREWELLS: Final = (ClosePeer, KillWorker)
_RUN_REPORTS: Final = (TaskFailed, TaskRescheduled, LongRunning)


#: So many runs that are over are remembered.
OVER_MAX: Final = 6


class Run(NamedTuple):
    """A run that a worker was sent."""

    worker: int
    key: Key
    run_id: int
    inputs: list[tuple[Key, int, int]]  # key, bytes, life


class Trial:
    """One run of a program. Raises AssertionError, or what comes out of the state."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.now = START
        self.latest = START
        self.state = SchedulerState(Settings(validate=True, **program.settings), now=START)
        self.state.watch(frozenset(STATUSES.split()))
        self.twin = SchedulerState(Settings(validate=False, **program.settings), now=START)
        self.done: list[tuple[Event, float]] = []
        self.clients: dict[int, None] = {}
        self.workers: dict[int, str] = {}  # number -> status
        self.begun: set[tuple[int, int]] = set()  # client, graph
        self.runs: list[Run] = []  # that go on, as far as the workers know
        self.over: list[Run] = []
        self.current: dict[Key, tuple[int, int]] = {}  # key -> worker and run_id that were sent last
        self.asked: list[tuple[int, list[int]]] = []  # questions of TakeBack
        self.keeps = False  # something may be kept though no client wants it

    def run(self) -> None:
        """The whole program, and the end of everything."""
        try:
            for what, passed in self.program.steps:
                self.now += passed
                event = self._event_of(what) if isinstance(what, Answer) else what
                if event is not None:
                    self.step(event)
                if passed > 0.0:
                    self.tick_out()
            self.tick_out()
            self.everybody_leaves()
        except BaseException:
            note(script(self.program.settings, self.done))
            raise

    def step(self, event: Event) -> None:
        self.done.append((event, self.now))
        clients, workers = self.clients, self.workers
        is_illegal = self._is_illegal(event)
        stale = self._stale_results(event)
        before = self.state.view().counts()["dropped_events"]
        self.state.step(event, self.now)
        self.twin.step(event, self.now)
        self.latest = max(self.latest, self.now)
        self.state.validate()
        outcome, other = self.state.drain(), self.twin.drain()
        assert [*map(described, outcome.instructions)] == [*map(described, other.instructions)]
        assert self.state.next_deadline == self.twin.next_deadline
        if not is_illegal:
            self._note_event(event)
        self._note_workers()
        dropped = self.state.view().counts()["dropped_events"] - before
        assert dropped >= 0
        told_to_go: list[int] = []
        for each in outcome.instructions:
            if isinstance(each, _TO_WORKERS):
                assert each.peer not in told_to_go, f"to one that has been closed: {described(each)}"
            self._check_columns(each)
            self._check_peer(each, event, {**clients, **self.clients}, {**workers, **self.workers})
            self._note_work(each)
            if isinstance(each, ClosePeer):
                told_to_go.append(each.peer)
        assert "memory" not in [self._status(key) for key in stale], "a stale result counts"
        if is_illegal:
            answers = [each for each in outcome.instructions if isinstance(each, (Reply, ClosePeer))]
            assert dropped or answers, "an illegal event is neither answered nor counted"

    def tick_out(self) -> None:
        """Nothing stays due, else the server would be in a busy loop; and whatever one may ask is answered."""
        for _ in range(TICKS_MAX):
            if self.state.next_deadline > self.latest:
                break
            self.step(Tick())
        else:
            raise AssertionError(f"still due after {TICKS_MAX} ticks at one time")
        view = self.state.view()
        view.status()
        for key in KEY_POOL:
            assert view.why(key)
            view.story(key)

    def everybody_leaves(self) -> None:
        """Nobody is there: nothing is left but what was detached or published, and a restart takes that too."""
        for number in list(self.clients):
            self.step(ClientRemoved(number))
        if not self.keeps:
            assert self.state.view().counts()["tasks"] == 0
        self.step(ClientAdded(99, "last"))
        self.step(RestartRequested(99, 1, 0.0))
        for number in list(self.workers):
            self.step(WorkerRemoved(number, "the end", True))
        self.step(ClientRemoved(99))
        self.tick_out()
        counts = self.state.view().counts()
        assert {name: n for name, n in counts.items() if n and name != "dropped_events"} == {}
        assert self.state.view().datasets() == []
        if "idle_timeout" not in self.program.settings:  # That one comes again and again.
            self._run_out_of_timers()

    def _run_out_of_timers(self) -> None:
        for _ in range(TICKS_MAX):
            if self.state.next_deadline == inf:
                return
            self.now = max(self.state.next_deadline, self.latest)
            self.step(Tick())
        raise AssertionError("timers that never end, though nobody is there")

    # -------------------------------------------------------------------------------------- checks

    def _check_columns(self, each: Instruction) -> None:
        lists = [getattr(each, name) for name in fields_of(type(each))]
        lengths = {len(column) for column in lists if isinstance(column, list)}
        assert len(lengths) <= 1, f"columns of unequal lengths: {described(each)}"

    def _check_peer(
        self, each: Instruction, event: Event, clients: dict[int, None], workers: dict[int, str]
    ) -> None:
        if isinstance(each, _TO_WORKERS):
            assert each.peer in workers, f"to no worker: {described(each)}"
        elif isinstance(each, _TO_CLIENTS):
            assert each.peer in clients, f"to no client: {described(each)}"
        elif isinstance(each, _FAREWELLS):
            known = each.peer in workers or each.peer in clients or each.peer == getattr(event, "worker", -1)
            assert known and each.peer >= 0, f"to a stranger: {described(each)}"
        else:
            assert each.peer == -1, described(each)
        if isinstance(each, ComputeTasks):
            assert None not in each.specs, described(each)
            assert self.workers.get(each.peer) == "running", f"to one that does not run: {described(each)}"

    def _status(self, key: Key) -> str:
        return self.state.view().who_has([key])[0][1]

    def _is_current(self, worker: int, key: Key, run_id: int) -> bool:
        return self._status(key) == "processing" and self.current.get(key) == (worker, run_id)

    def _stale_results(self, event: Event) -> list[Key]:
        """Keys that are not in memory, and that nothing in the event may bring there."""
        if not isinstance(event, TasksFinished):
            return []
        rows = list(zip(event.keys, event.run_ids))
        good = {key for key, run_id in rows if self._is_current(event.worker, key, run_id)}
        return [key for key in event.keys if key not in good and self._status(key) != "memory"]

    def _is_illegal(self, event: Event) -> bool:
        """Nobody could mean it: it is of a stranger, comes twice, or is about what is not under way."""
        clients, workers = self.clients, self.workers
        if isinstance(event, ClientAdded):
            return event.client in clients or event.client in workers or event.client < 0
        if isinstance(event, WorkerAdded):
            taken = event.worker in workers or event.worker in clients
            return taken or event.worker < 0 or event.nthreads < 1
        if isinstance(event, WorkerStatusChanged) and event.status == "closed":
            return True
        if isinstance(event, WorkerDied):
            return False  # Of one that has just gone, most of the time.
        if isinstance(event, _RUN_REPORTS):
            return not self._is_current(event.worker, event.key, event.run_id)
        if isinstance(event, TasksFinished) and not event.keys:
            return False
        worker, client = getattr(event, "worker", None), getattr(event, "client", None)
        if worker is not None:
            return worker not in workers
        if client is None:
            return False
        if client in clients and isinstance(event, (GraphPart, GraphCommit)):
            nothing_waits = self.state.next_deadline > self.latest
            return nothing_waits and (client, event.graph) not in self.begun
        return client not in clients

    # -------------------------------------------------------------------------------------- notes

    def _note_event(self, event: Event) -> None:
        if isinstance(event, ClientAdded):
            self.clients = {**self.clients, event.client: None}
        elif isinstance(event, ClientRemoved):
            self.clients = {number: None for number in self.clients if number != event.client}
            self.begun = {each for each in self.begun if each[0] != event.client}
        elif isinstance(event, GraphBegin):
            self.begun.add((event.client, event.graph))
        elif isinstance(event, (GraphCommit, GraphAborted)):
            self.begun.discard((event.client, event.graph))
        elif isinstance(event, (KeysDetached, DatasetPublished)):
            self.keeps = True
        elif isinstance(event, TasksFinished):
            ended = set(zip(event.keys, event.run_ids))
            self._note_ends([r for r in self.runs if r.worker == event.worker and (r.key, r.run_id) in ended])
        elif isinstance(event, (TaskFailed, TaskRescheduled)):
            self._note_ends([run for run in self.runs if run.run_id == event.run_id])

    def _note_ends(self, ended: list[Run]) -> None:
        self.runs = [run for run in self.runs if run not in ended]
        self.over = [*self.over, *ended][-OVER_MAX:]

    def _note_workers(self) -> None:
        """Who is there after the step. Workers go for many reasons: the state's word is taken."""
        self.workers = {}
        for row in self.state.view().workers():
            number, status, used, supply = row["number"], row["status"], row["used"], row["resources"]
            assert isinstance(number, int) and isinstance(status, str)
            assert isinstance(used, dict) and isinstance(supply, dict)
            assert all(amount <= supply.get(name, 0.0) for name, amount in used.items()), row
            self.workers[number] = status
        self._note_ends([run for run in self.runs if run.worker not in self.workers])

    def _note_work(self, each: Instruction) -> None:
        if isinstance(each, ComputeTasks):
            for key, run_id, inputs in zip(each.keys, each.run_ids, each.inputs):
                self.runs.append(Run(each.peer, key, run_id, [(i[0], i[1], i[3]) for i in inputs or []]))
                self.current[key] = (each.peer, run_id)
        elif isinstance(each, FreeKeys):
            self._note_ends([run for run in self.runs if run.worker == each.peer and run.key in each.keys])
        elif isinstance(each, TakeBack):
            self.asked.append((each.peer, each.run_ids))

    # -------------------------------------------------------------------------------------- answers

    def _event_of(self, answer: Answer) -> Event | None:
        """The event, if there is anything to answer."""
        if answer.how in ("give", "keep"):
            if not self.asked:
                return None
            worker, asked = self.asked.pop(answer.pick % len(self.asked))
            return TakeBackAnswered(worker, asked, asked if answer.how == "give" else [])
        runs = self.over if answer.late else self.runs
        if not runs:
            return None
        worker, key, run_id, inputs = runs[answer.pick % len(runs)]
        if answer.how == "finish":
            return TasksFinished(
                worker, [key], [run_id], [answer.nbytes], [0.0], [answer.seconds], [1], ["int"], [None]
            )
        if answer.how == "fail":
            failure = Failure("exception", key, "boom", types=["builtins.ValueError"])
            return TaskFailed(worker, key, run_id, failure, 0.0, answer.seconds, 1)
        if answer.how == "reschedule":
            return TaskRescheduled(worker, key, run_id)
        if answer.how == "secede":
            return LongRunning(worker, key, run_id, answer.seconds)
        if answer.how == "dies":
            return WorkerDied(worker, "signal 9", [run_id])
        names, nbytes, lives = columns(inputs, 3)
        return KeysAdded(worker, names, nbytes, lives)
