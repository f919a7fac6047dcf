"""Arbitrary well-typed events for the scheduler's state, most of them illegal.

A `Program` is a list of steps; a step is an event and how much time has passed, or an `Answer`: what some worker
would say to what the state has asked of it. Answers become events when the program runs, so that it gets somewhere:
events drawn blindly never finish a task. `script` writes a program down as Python that can be pasted into a file;
`any_trial` runs one.

Numbers go to 2 ** 100, far beyond what the wire lets through (2 ** 63), not to where they are no floats any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf, nan
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from shunter.state import (
    DEFAULT_OPTIONS,
    AcquireFailed,
    ClientAdded,
    ClientDesiresKeys,
    ClientReleasesKeys,
    ClientRemoved,
    DataReleased,
    DataScattered,
    DatasetPublished,
    DatasetRequested,
    DatasetUnpublished,
    Event,
    Failure,
    GraphAborted,
    GraphBegin,
    GraphCommit,
    GraphPart,
    Heartbeat,
    Key,
    KeysAdded,
    KeysCancelled,
    KeysDetached,
    KeysRetried,
    LongRunning,
    Options,
    PreferencesSet,
    PrioritySet,
    ProposalMade,
    QuestionAsked,
    RebalanceRequested,
    ReplicateRequested,
    RestartRequested,
    RetireRequested,
    TakeBackAnswered,
    TaskFailed,
    TaskRescheduled,
    TasksFinished,
    ThreadsHeld,
    Tick,
    WhoHasRequested,
    WorkerAdded,
    WorkerDied,
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
KEY_POOL: Final[list[Key]] = [
    *"x y z a-1 a-2 a-10".split(),
    "",
    ("t", 1),
    ("t", "x"),
    ("t", ("u", 2)),
    7,
    None,
]
KEYS: Final = st.sampled_from([*KEY_POOL[:3], *KEY_POOL])
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
#: What a user may mean.
_FAIR_OPTIONS: Final = st.sampled_from(
    [
        Options(resources={"GPU": 1.0}),
        Options(resources={"GPU": 0.5}),
        Options(retries=1),
        Options(retries=2, retry_delay=0.05, retry_elsewhere=True),
        Options(workers=["a"]),
        Options(workers=["i"], allow_other_workers=True),
        Options(priority=2.0),
    ]
)
OPTIONS: Final = st.sampled_from([st.just(DEFAULT_OPTIONS), _FAIR_OPTIONS, _ODD_OPTIONS]).flatmap(
    lambda each: each
)
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
    QuestionAsked: st.builds(QuestionAsked, NUMBERS, COUNTS),
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
    """What a worker says to what it was told: ``pick`` chooses among all runs (or questions) that are open.

    ``late``: among those that are over: it said so before, or has heard of it too late.
    """

    how: str
    pick: int
    nbytes: int
    seconds: float
    late: bool


ANSWERS: Final = st.builds(
    Answer,
    st.sampled_from("finish finish finish finish fail reschedule secede fetch give keep dies".split()),
    st.integers(0, 7),
    st.just(8) | SIZES,
    st.just(0.1) | SECONDS,
    st.sampled_from([False, False, False, True]),
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
