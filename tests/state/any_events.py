"""Arbitrary well-typed events for the scheduler's state, most of them illegal, and what has to hold all the same.

A `Program` is a list of steps; a step is an event and how much time has passed, or an `Answer`: what some worker
would say to what the state has asked of it. Answers become events when the program runs, so that it gets somewhere:
events drawn blindly never finish a task. `Trial` runs a program on two states, one of them validating itself, and
looks at every instruction. `script` writes down what it did as Python that can be pasted into a file.

Numbers go to 2 ** 100, far beyond what the wire lets through (2 ** 63), not to where they are no floats any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf, nan
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from shunter.state import (
    DEFAULT_OPTIONS,
    AcquireFailed,
    AcquireReplicas,
    ClientAdded,
    ClientDesiresKeys,
    ClientReleasesKeys,
    ClientRemoved,
    ClosePeer,
    ComputeTasks,
    DataReleased,
    DataScattered,
    DatasetPublished,
    DatasetRequested,
    DatasetUnpublished,
    Event,
    Failure,
    FreeKeys,
    GraphAborted,
    GraphBegin,
    GraphCommit,
    GraphPart,
    Heartbeat,
    Instruction,
    Key,
    KeysAdded,
    KeysCancelled,
    KeysDetached,
    KeysRetried,
    KillWorker,
    LongRunning,
    Options,
    PreferencesSet,
    PrioritySet,
    ProposalMade,
    RebalanceRequested,
    RemoveReplicas,
    ReplicateRequested,
    Reply,
    ReportCancelled,
    ReportErred,
    ReportFinished,
    ReportLost,
    ReportRetried,
    Restarted,
    RestartRequested,
    RetireRequested,
    SchedulerState,
    Settings,
    TakeBack,
    TakeBackAnswered,
    TaskFailed,
    TaskRescheduled,
    TasksFinished,
    ThreadsHeld,
    Tick,
    UpdateWhoHas,
    WhoHasRequested,
    WorkerAdded,
    WorkerDied,
    WorkerGone,
    WorkerRemoved,
    WorkerStatusChanged,
)

START: Final = 100.0
#: Ticks at one time after which nothing may be due any more; programs are small.
TICKS_MAX: Final = 2_000

# ---------------------------------------------------------------------------------------------- values

HUGE: Final = (2**63, 2**64 + 1, 2**100)
#: Clients and workers share the small ones, on purpose.
NUMBERS: Final = st.sampled_from([1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 0, -1, -7, *HUGE])
KEYS: Final[SearchStrategy[Key]] = st.sampled_from(
    [
        "x",
        "y",
        "z",
        "a-1",
        "a-2",
        "a-10",
        "x",
        "y",
        "z",
        "",
        ("t", 1),
        ("t", "x"),
        ("t", ("u", 2)),
        7,
        -1.5,
        None,
    ]
)
SIZES: Final = st.sampled_from([0, 1, 8, 1000, 2**21, -1, -5, -(2**64), *HUGE])
FLOATS: Final = st.sampled_from(
    [0.0, 1.0, 0.5, 1e-6, 100.0, -1.0, -0.0, 1e308, -1e308, 5e-324, inf, -inf, nan]
)
SECONDS: Final = st.sampled_from([0.0, 1e-6, 0.001, 0.1, 5.0, 1e9, -1.0, 1e308, inf, -inf, nan])
COUNTS: Final = st.sampled_from([0, 1, 2, 5, -1, -3, *HUGE])
RUN_IDS: Final = st.integers(0, 12) | st.sampled_from([-1, *HUGE])
LIVES: Final = st.integers(0, 12) | st.sampled_from([-1, *HUGE])
GRAPHS: Final = st.sampled_from([1, 2, 1, 2, 0, -1, *HUGE])
RESOURCES: Final = st.dictionaries(
    st.sampled_from(["GPU", "MEM", ""]), FLOATS | st.sampled_from([1.0, 2.0]), max_size=2
)
NAMES: Final = st.sampled_from(["a", "b", "c", ""])
ADDRESSES: Final = st.sampled_from(["tcp://a:1", "tcp://b:1", "tcp://c:1", "tcp://d:1", ""])
HOSTS: Final = st.sampled_from(["h", "i", ""])
TYPES: Final = st.lists(st.sampled_from(["builtins.ValueError", "builtins.OSError", ""]), max_size=2)
#: How far the clock goes before a step. A clock that goes back is the caller's fault, and must do no harm.
PASSED: Final = st.sampled_from([0.0, 0.0, 0.0, 0.0, 0.001, 0.06, 1.0, 3.0, 400.0, -0.5, -1e6])

T = TypeVar("T")


def keys(size: int = 4) -> SearchStrategy[list[Key]]:
    """A few, often the same twice, sometimes none."""
    return st.lists(KEYS, max_size=size)


def numbers(size: int = 3) -> SearchStrategy[list[int]]:
    return st.lists(NUMBERS, max_size=size)


def columns(rows: Sequence[Sequence[Any]], n: int) -> list[list[Any]]:
    """Rows as ``n`` columns of equal lengths."""
    return [[row[i] for row in rows] for i in range(n)]


_ODD_OPTIONS: Final = st.builds(
    Options,
    priority=FLOATS,
    retries=COUNTS,
    retry_on=st.none() | TYPES,
    retry_delay=st.just(0.0) | SECONDS,
    retry_elsewhere=st.booleans(),
    workers=st.none() | st.none() | st.lists(NAMES | ADDRESSES | HOSTS, max_size=2),
    allow_other_workers=st.booleans(),
    resources=st.none() | RESOURCES,
    stealable=st.booleans(),
    limit=st.none() | NAMES,
    timeout=st.none() | SECONDS,
    memory=SIZES,
    annotations=st.none() | st.just({"why": [1, None]}),
)
OPTIONS: Final = st.integers(0, 2).flatmap(lambda i: _ODD_OPTIONS if i else st.just(DEFAULT_OPTIONS))
FAILURES: Final = st.builds(
    Failure,
    st.sampled_from(["exception", "serialization", "killed-worker", "no-worker", "graph", "lost-input"]),
    KEYS,
    st.sampled_from(["boom", ""]),
    types=TYPES,
)

# ---------------------------------------------------------------------------------------------- events


def _part(client: int, graph: int, rows: list[tuple[Any, ...]], names: dict[str, str]) -> GraphPart:
    task_keys, specs, kinds, inputs, options = columns(rows, 5)
    return GraphPart(client, graph, task_keys, specs, kinds, inputs, options, names)


#: (key, spec, kind, inputs, options)
TASK_ROWS: Final = st.tuples(
    KEYS,
    st.sampled_from(["spec", "other spec"]),
    st.sampled_from(["f", "g", ""]),
    st.none() | keys(3),
    OPTIONS,
)
KIND_NAMES: Final = st.dictionaries(st.sampled_from(["f", "g", ""]), NAMES, max_size=2)


def _finished(worker: int, rows: list[tuple[Any, ...]]) -> TasksFinished:
    return TasksFinished(worker, *columns(rows, 8))


FINISHED_ROWS: Final = st.tuples(
    KEYS, RUN_IDS, SIZES, SECONDS, SECONDS, COUNTS, NAMES, st.none() | st.just(b"data")
)


def _added(worker: int, rows: list[tuple[Any, ...]]) -> KeysAdded:
    return KeysAdded(worker, *columns(rows, 3))


def _scattered(client: int, rows: list[tuple[Any, ...]]) -> DataScattered:
    return DataScattered(client, *columns(rows, 3))


#: One strategy for each event there is; `test_any_events` holds them against the list of events.
EVENTS: Final[dict[type[Event], SearchStrategy[Event]]] = {
    ClientAdded: st.builds(ClientAdded, NUMBERS, NAMES),
    ClientRemoved: st.builds(ClientRemoved, NUMBERS),
    GraphBegin: st.builds(GraphBegin, NUMBERS, GRAPHS, st.booleans(), st.none() | KEYS),
    GraphPart: st.builds(_part, NUMBERS, GRAPHS, st.lists(TASK_ROWS, max_size=4), KIND_NAMES),
    GraphCommit: st.builds(GraphCommit, NUMBERS, GRAPHS, st.none() | keys()),
    GraphAborted: st.builds(GraphAborted, NUMBERS, GRAPHS),
    ClientDesiresKeys: st.builds(ClientDesiresKeys, NUMBERS, keys()),
    ClientReleasesKeys: st.builds(ClientReleasesKeys, NUMBERS, keys()),
    KeysCancelled: st.builds(KeysCancelled, NUMBERS, keys(), st.booleans()),
    KeysRetried: st.builds(KeysRetried, NUMBERS, keys()),
    PrioritySet: st.builds(PrioritySet, NUMBERS, keys(), FLOATS),
    DataScattered: st.builds(_scattered, NUMBERS, st.lists(st.tuples(KEYS, SIZES, numbers()), max_size=3)),
    KeysDetached: st.builds(KeysDetached, NUMBERS, keys()),
    DatasetPublished: st.builds(
        DatasetPublished, NUMBERS, COUNTS, NAMES, keys(2), st.sampled_from(["", "[]"]), st.booleans()
    ),
    DatasetUnpublished: st.builds(DatasetUnpublished, NUMBERS, COUNTS, NAMES),
    DatasetRequested: st.builds(DatasetRequested, NUMBERS, COUNTS, NAMES),
    WorkerAdded: st.builds(
        WorkerAdded,
        NUMBERS,
        ADDRESSES,
        NAMES,
        HOSTS,
        st.sampled_from([1, 2, 3, 0, -1, *HUGE]),
        SIZES,
        RESOURCES,
        st.booleans(),
    ),
    WorkerRemoved: st.builds(WorkerRemoved, NUMBERS, st.sampled_from(["gone", ""]), st.booleans()),
    WorkerDied: st.builds(
        WorkerDied, NUMBERS, st.sampled_from(["signal 9", ""]), st.lists(RUN_IDS, max_size=3)
    ),
    WorkerStatusChanged: st.builds(
        WorkerStatusChanged, NUMBERS, st.sampled_from(["running", "paused", "retiring", "closed"])
    ),
    Heartbeat: st.builds(Heartbeat, NUMBERS, SIZES, SIZES, FLOATS),
    TasksFinished: st.builds(_finished, NUMBERS, st.lists(FINISHED_ROWS, max_size=3)),
    TaskFailed: st.builds(TaskFailed, NUMBERS, KEYS, RUN_IDS, FAILURES, SECONDS, SECONDS, COUNTS),
    TaskRescheduled: st.builds(TaskRescheduled, NUMBERS, KEYS, RUN_IDS),
    LongRunning: st.builds(LongRunning, NUMBERS, KEYS, RUN_IDS, SECONDS),
    ThreadsHeld: st.builds(ThreadsHeld, NUMBERS, COUNTS),
    KeysAdded: st.builds(_added, NUMBERS, st.lists(st.tuples(KEYS, SIZES, LIVES), max_size=3)),
    AcquireFailed: st.builds(AcquireFailed, NUMBERS, keys()),
    DataReleased: st.builds(DataReleased, NUMBERS, keys()),
    WhoHasRequested: st.builds(WhoHasRequested, NUMBERS, keys(), numbers()),
    TakeBackAnswered: st.builds(
        TakeBackAnswered, NUMBERS, st.lists(RUN_IDS, max_size=3), st.lists(RUN_IDS, max_size=3)
    ),
    RestartRequested: st.builds(RestartRequested, NUMBERS, COUNTS, SECONDS),
    RebalanceRequested: st.builds(
        RebalanceRequested, NUMBERS, COUNTS, st.none() | keys(), st.none() | numbers()
    ),
    ReplicateRequested: st.builds(ReplicateRequested, NUMBERS, COUNTS, keys(), COUNTS, st.none() | numbers()),
    RetireRequested: st.builds(RetireRequested, NUMBERS, COUNTS, numbers(), SECONDS),
    ProposalMade: st.builds(ProposalMade, NAMES, NAMES, st.just({})),
    PreferencesSet: st.builds(PreferencesSet, NAMES, st.dictionaries(NAMES, FLOATS, max_size=2), SECONDS),
    Tick: st.builds(Tick),
}

# ---------------------------------------------------------------------------------------------- programs


class Answer(NamedTuple):
    """What a worker says to what it was told: ``pick`` chooses among all runs (or questions) that are open."""

    how: str
    pick: int
    nbytes: int
    seconds: float


ANSWERS: Final = st.builds(
    Answer,
    st.sampled_from(
        [
            "finish",
            "finish",
            "finish",
            "finish",
            "fail",
            "reschedule",
            "secede",
            "fetch",
            "give",
            "keep",
            "dies",
        ]
    ),
    st.integers(0, 7),
    st.just(8) | SIZES,
    st.just(0.1) | SECONDS,
)
Step: TypeAlias = "tuple[Event | Answer, float]"


class Program(NamedTuple):
    """``settings``: keywords. Programs print themselves as a script when they fail, not by their repr."""

    settings: dict[str, Any]
    steps: list[Step]

    def __repr__(self) -> str:
        return f"<{len(self.steps)} steps, written out below>"


def _graph(client: int, graph: int, in_order: bool, rows: Any, wanted: list[Key] | None) -> list[Event]:
    """A graph that comes in whole, of tasks that are all different; it may have a cycle, or lack an input."""
    unlike = list({row[0]: row for row in rows}.values())
    return [
        GraphBegin(client, graph, in_order, None),
        _part(client, graph, unlike, {}),
        GraphCommit(client, graph, wanted),
    ]


def _chain(client: int, graph: int, names: list[Key], options: Options) -> list[Event]:
    """A graph that can be run: each task needs the one before it."""
    chain = list(dict.fromkeys(names))
    rows = [(key, "spec", "f", [chain[i - 1]] if i else None, options) for i, key in enumerate(chain)]
    return _graph(client, graph, True, rows, None)


def _fan(client: int, graph: int, width: int, options: Options) -> list[Event]:
    """Many tasks of one kind that all wait for one."""
    rows: list[tuple[Any, ...]] = [("a-0", "spec", "f", None, DEFAULT_OPTIONS)]
    rows += [(f"a-{i + 1}", "spec", "g", ["a-0"], options) for i in range(width)]
    return _graph(client, graph, True, rows, None)


_FEW: Final = st.sampled_from([1, 2, 3])
#: After these little is left to go wrong with; they come less often.
_SWEEPING: Final = (ClientRemoved, WorkerRemoved, RestartRequested)
_BLIND: Final = [each for sort, each in EVENTS.items() if sort not in _SWEEPING]
_GRAPHS: Final = st.builds(
    _graph, _FEW, GRAPHS, st.booleans(), st.lists(TASK_ROWS, max_size=5), st.none() | keys(3)
)
_CHAINS: Final = st.builds(_chain, _FEW, GRAPHS, keys(5), OPTIONS)
_FANS: Final = st.builds(_fan, _FEW, GRAPHS, st.integers(0, 12), OPTIONS)
#: What happens next: each list as often as it stands here, and each strategy in it alike.
_MOVES: Final[list[list[SearchStrategy[Any]]]] = [
    [ANSWERS],
    [ANSWERS],
    [ANSWERS],
    [ANSWERS],
    [_CHAINS, _FANS, _GRAPHS],
    _BLIND,
    _BLIND,
    _BLIND,
    _BLIND,
    [EVENTS[sort] for sort in _SWEEPING] + _BLIND,
]
SETTINGS: Final = st.fixed_dictionaries(
    {},
    optional={
        "slice": st.sampled_from([1, 3]),
        "no_workers_timeout": st.sampled_from([0.0, 0.5]),
        "worker_ttl": st.sampled_from([0.0, 2.0]),
        "idle_timeout": st.just(2.0),
        "allowed_failures": st.just(0),
        "blame_wait": st.just(0.0),
        "log_length": st.just(1),
        "window_max": st.just(1),
        "inline_max": st.just(0),
        "large_result": st.just(0),
    },
)
#: Somebody to talk to: clients 1 and 2, workers 3 and 4; else every event would be one of a stranger.
SETUP: Final[list[Event]] = [
    ClientAdded(1, "one"),
    ClientAdded(2, "two"),
    WorkerAdded(3, "tcp://a:1", "a", "h", 1, 0, {"GPU": 1.0}),
    WorkerAdded(4, "tcp://b:1", "b", "i", 2, 0, {}, True),
]


@st.composite
def programs(draw: st.DrawFn, moves_max: int = 50) -> Program:
    chosen = draw(SETTINGS)
    steps: list[Step] = [(event, 0.0) for event in SETUP if draw(st.integers(0, 19))]
    for _ in range(draw(st.integers(0, moves_max))):
        move = draw(draw(st.sampled_from(draw(st.sampled_from(_MOVES)))))
        passed = draw(PASSED)
        for each in move if isinstance(move, list) else [move]:
            steps.append((each, passed))
            passed = 0.0
    return Program(chosen, steps)


def for_all(strategy: SearchStrategy[T], check: Callable[[T], None], *, examples: int) -> None:
    """Hold ``check`` against so many examples, the same ones each time; a failing one is made small."""
    run = given(strategy)(check)
    settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )(run)()


# ---------------------------------------------------------------------------------------------- writing down

_FIELDS: Final[dict[type, list[str]]] = {}


def fields_of(sort: type) -> list[str]:
    """Names of the fields of an event or instruction; those of compiled classes are no slots."""
    found = _FIELDS.get(sort)
    if found is None:
        found = [n for n in dir(sort) if not n.startswith("_") and not callable(getattr(sort, n))]
        _FIELDS[sort] = found
    return found


def described(value: object) -> str:
    """A value as Python: events and instructions by keyword, options without what is the default."""
    sort = type(value)
    if isinstance(value, (str, bytes, int, float, type(None))):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(described, value))}]"
    if isinstance(value, tuple) and sort is tuple:
        return f"({', '.join(map(described, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{described(k)}: {described(v)}' for k, v in value.items())}}}"
    left_out = DEFAULT_OPTIONS if isinstance(value, Options) else None
    given_fields = [
        f"{name}={described(getattr(value, name))}"
        for name in fields_of(sort)
        if left_out is None or described(getattr(value, name)) != described(getattr(left_out, name))
    ]
    return f"{sort.__name__}({', '.join(given_fields)})"


def script(chosen: dict[str, Any], events: Iterable[tuple[Event, float]]) -> str:
    """What was done to a state, to be pasted into a file and run."""
    arguments = "".join(f", {name}={described(each)}" for name, each in chosen.items())
    lines = [
        "from math import inf, nan",
        "from shunter.state import *",
        f"state = SchedulerState(Settings(validate=True{arguments}), now={START!r})",
        *(f"state.step({described(event)}, {now!r})" for event, now in events),
        "state.validate()",
    ]
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------------- running

_TO_WORKERS: Final = (
    AcquireReplicas,
    ComputeTasks,
    FreeKeys,
    RemoveReplicas,
    TakeBack,
    UpdateWhoHas,
    WorkerGone,
)
_TO_CLIENTS: Final = (
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
#: Events of a peer that is not there are counted; `Tick` and what plugins say has no peer.
_ASKERS: Final = (RebalanceRequested, ReplicateRequested, RetireRequested, RestartRequested)


class Run(NamedTuple):
    """A run that a worker was sent and has not ended, as far as the trial knows."""

    worker: int
    key: Key
    run_id: int
    inputs: list[tuple[Key, int, int]]  # key, bytes, life


class Trial:
    """Runs a program, and checks what comes out of each step."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.now = START
        self.latest = START
        self.state = SchedulerState(Settings(validate=True, **program.settings), now=START)
        self.twin = SchedulerState(Settings(validate=False, **program.settings), now=START)
        self.done: list[tuple[Event, float]] = []
        self.clients: dict[int, None] = {}
        self.workers: dict[int, str] = {}  # number -> status
        self.runs: list[Run] = []
        self.latest_run: dict[Key, tuple[int, int]] = {}
        self.asked: list[tuple[int, list[int]]] = []
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
        before = self.state.view().counts()["dropped_events"]
        clients, workers = self.clients, self.workers
        is_on = (
            isinstance(event, _RUN_REPORTS) and self.state.view().who_has([event.key])[0][1] == "processing"
        )
        is_illegal = self._is_illegal(event, clients, workers, is_on)
        self.state.step(event, self.now)
        self.twin.step(event, self.now)
        self.latest = max(self.latest, self.now)
        self.state.validate()
        outcome, other = self.state.drain(), self.twin.drain()
        assert [*map(described, outcome.instructions)] == [*map(described, other.instructions)]
        assert self.state.next_deadline == self.twin.next_deadline
        if not (is_illegal and isinstance(event, ClientAdded)):
            self._note_members(event)
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
        if is_illegal:
            answers = [each for each in outcome.instructions if isinstance(each, (Reply, ClosePeer))]
            assert dropped or answers, "an illegal event is neither answered nor counted"

    def tick_out(self) -> None:
        """Nothing stays due: else the server would be in a busy loop."""
        for _ in range(TICKS_MAX):
            if self.state.next_deadline > self.latest:
                return
            self.step(Tick())
        raise AssertionError(f"still due after {TICKS_MAX} ticks at one time")

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
        rest = {name: n for name, n in counts.items() if n and name != "dropped_events"}
        assert rest == {}
        assert self.state.view().datasets() == []
        self._check_calm()

    def _check_calm(self) -> None:
        """With nobody there, time runs out of things to do (but for the idle time-out, which comes again)."""
        for _ in range(TICKS_MAX):
            due = self.state.next_deadline
            if due == inf or ("idle_timeout" in self.program.settings and due > self.latest + 1e9):
                return
            if "idle_timeout" in self.program.settings:
                return
            self.now = self.latest = max(due, self.latest)
            self.step(Tick())
        raise AssertionError("timers that never end")

    # -------------------------------------------------------------------------------------- checks

    def _check_columns(self, each: Instruction) -> None:
        lengths = {
            len(column) for name in fields_of(type(each)) if isinstance(column := getattr(each, name), list)
        }
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
            assert self.workers.get(each.peer) == "running", (
                f"to a worker that does not run: {described(each)}"
            )

    def _is_illegal(
        self, event: Event, clients: dict[int, None], workers: dict[int, str], is_on: bool
    ) -> bool:
        """Whether nobody could mean it: it is of a stranger, or about a run that is not on."""
        if isinstance(event, ClientAdded):
            return event.client in clients or event.client in workers or event.client < 0
        if isinstance(event, WorkerAdded):
            taken = event.worker in workers or event.worker in clients
            return taken or event.worker < 0 or event.nthreads < 1
        if isinstance(event, WorkerStatusChanged) and event.status == "closed":
            return True
        if isinstance(event, WorkerDied):
            return False  # of one that has just gone, most of the time
        if isinstance(event, _RUN_REPORTS):
            return not is_on or self.latest_run.get(event.key) != (event.worker, event.run_id)
        worker = getattr(event, "worker", None)
        if worker is not None:
            return worker not in workers and not (isinstance(event, TasksFinished) and not event.keys)
        client = getattr(event, "client", None)
        return client is not None and client not in clients

    # -------------------------------------------------------------------------------------- notes

    def _note_members(self, event: Event) -> None:
        """Who is there after the step. Workers come and go for many reasons: the state's word is taken."""
        if isinstance(event, ClientAdded):
            self.clients = {**self.clients, event.client: None}
        elif isinstance(event, ClientRemoved):
            self.clients = {number: None for number in self.clients if number != event.client}
        elif isinstance(event, (KeysDetached, DatasetPublished)):
            self.keeps = True
        self.workers = {}
        for row in self.state.view().workers():
            number, status = row["number"], row["status"]
            assert isinstance(number, int) and isinstance(status, str)
            self.workers[number] = status
            used, supply = row["used"], row["resources"]
            assert isinstance(used, dict) and isinstance(supply, dict)
            assert all(amount <= supply.get(name, 0.0) for name, amount in used.items()), row
        gone: list[tuple[int, Key, int]] = []
        if isinstance(event, TasksFinished):
            gone = [(event.worker, key, run_id) for key, run_id in zip(event.keys, event.run_ids)]
        elif isinstance(event, (TaskFailed, TaskRescheduled)):
            gone = [(event.worker, event.key, event.run_id)]
        self.runs = [run for run in self.runs if run.worker in self.workers and run[:3] not in gone]

    def _note_work(self, each: Instruction) -> None:
        if isinstance(each, ComputeTasks):
            for key, run_id, inputs in zip(each.keys, each.run_ids, each.inputs):
                self.runs.append(Run(each.peer, key, run_id, [(i[0], i[1], i[3]) for i in inputs or []]))
                self.latest_run[key] = (each.peer, run_id)
        elif isinstance(each, FreeKeys):
            self.runs = [run for run in self.runs if run.worker != each.peer or run.key not in each.keys]
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
        if not self.runs:
            return None
        run = self.runs[answer.pick % len(self.runs)]
        if answer.how == "finish":
            return TasksFinished(
                run.worker,
                [run.key],
                [run.run_id],
                [answer.nbytes],
                [0.0],
                [answer.seconds],
                [1],
                ["int"],
                [None],
            )
        if answer.how == "fail":
            failure = Failure("exception", run.key, "boom", types=["builtins.ValueError"])
            return TaskFailed(run.worker, run.key, run.run_id, failure, 0.0, answer.seconds, 1)
        if answer.how == "reschedule":
            return TaskRescheduled(run.worker, run.key, run.run_id)
        if answer.how == "secede":
            return LongRunning(run.worker, run.key, run.run_id, answer.seconds)
        if answer.how == "dies":
            return WorkerDied(run.worker, "signal 9", [run.run_id])
        return _added(run.worker, run.inputs)
