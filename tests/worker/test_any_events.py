"""The worker's machine under arbitrary well-typed events, most of them illegal: it lives with all of them.

`test_machine_walk` plays by the rules; here the scheduler, the threads and the peers say anything at any time, and
now and then what is true. A failing program is made small, and written out as a script to paste.
"""

from __future__ import annotations

from math import inf, nan
from typing import Any, Final, NamedTuple, TypeAlias

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from shunter.worker import events as worker_events
from shunter.worker.events import (
    AcquireAsked,
    ComputeAsked,
    DataPut,
    Event,
    FetchBusy,
    FetchDone,
    FetchFailed,
    FreeAsked,
    FunctionsArrived,
    PeerGone,
    PeerRested,
    Registered,
    RemoveAsked,
    RevokeAnswered,
    RunFailed,
    RunRescheduled,
    RunSeceded,
    RunsFinished,
    StatusSet,
    TakeBackAsked,
    TimePassed,
    WhoHasTold,
)
from shunter.worker.instructions import (
    AnswerTakeBack,
    AskFunction,
    Drop,
    Execute,
    Fetch,
    Instruction,
    Keep,
    ReportFailed,
    ReportFinished,
    ReportRescheduled,
    RestPeer,
    Revoke,
    Task,
)
from shunter.worker.model import Limits
from shunter.worker.state import WorkerState
from tests.state.any_events import columns, described, fields_of, for_all

SELF: Final = 1
HUGE: Final = (2**63 - 1, 2**63)

KEYS: Final = st.sampled_from(["x", "y", "z", "w", "x", "y", ""])
PEERS: Final = st.sampled_from([5, 6, SELF, -1, 0, *HUGE])
HOLDERS: Final = st.lists(PEERS, max_size=3)
SIZES: Final = st.sampled_from([8, 0, 1, 30, -5, *HUGE])
SECONDS: Final = st.sampled_from([0.1, 0.0, 1e-6, -1.0, 1e308, inf, nan])
IDS: Final = st.integers(0, 12) | st.sampled_from([-1, *HUGE])
LIVES: Final = st.sampled_from([1, 1, 1, 2, 0, -1, *HUGE])
FUNCTIONS: Final = st.sampled_from([0, 1, 2, 3, -1, *HUGE])
NUMBERS: Final = st.sampled_from([0.0, 1.0, -1.0, 1e308, inf, -inf])
PRIORITIES: Final = st.tuples(NUMBERS, NUMBERS, st.integers(-1, 2), st.integers(-1, 2))
INPUTS: Final = st.none() | st.lists(st.tuples(KEYS, SIZES, HOLDERS, LIVES), max_size=3)
RESOURCES: Final = st.none() | st.dictionaries(
    st.sampled_from(["GPU", "MEM", ""]),
    st.sampled_from([1.0, 2.0, 3.0, 0.0, 0.5, -1.0, 1e308, inf]),
    max_size=2,
)
TEXTS: Final = st.sampled_from(["", "why"])


def _lists(strategy: SearchStrategy[Any], size: int = 3) -> SearchStrategy[list[Any]]:
    return st.lists(strategy, max_size=size)


def _rows(sort: Any, *strategies: SearchStrategy[Any], most: int = 3) -> SearchStrategy[Event]:
    """An event of columns of equal lengths."""
    n = len(strategies)
    return _lists(st.tuples(*strategies), most).map(lambda rows: sort(*columns(rows, n)))


COMPUTE: Final = _rows(
    ComputeAsked,
    KEYS,
    IDS,
    FUNCTIONS,
    PRIORITIES,
    INPUTS,
    RESOURCES,
    SIZES,
    LIVES,
    st.sampled_from([b"a", b"b"]),
)
EVENTS: Final[dict[type[Event], SearchStrategy[Any]]] = {
    ComputeAsked: COMPUTE,
    FunctionsArrived: _rows(FunctionsArrived, FUNCTIONS, SIZES),
    FreeAsked: st.builds(FreeAsked, _lists(KEYS)),
    RemoveAsked: st.builds(RemoveAsked, _lists(KEYS)),
    AcquireAsked: _rows(AcquireAsked, KEYS, SIZES, LIVES, HOLDERS),
    WhoHasTold: _rows(WhoHasTold, KEYS, HOLDERS),
    TakeBackAsked: st.builds(TakeBackAsked, _lists(IDS)),
    PeerGone: st.builds(PeerGone, PEERS),
    StatusSet: st.builds(StatusSet, st.sampled_from(["running", "paused", "retiring", "closed"])),
    RunsFinished: _rows(
        RunsFinished,
        IDS,
        st.just("v"),
        SIZES,
        SECONDS,
        SECONDS,
        IDS,
        TEXTS,
        st.none() | st.just(b"v"),
        most=2,
    ),
    RunFailed: st.builds(RunFailed, IDS, TEXTS, SECONDS, SECONDS, IDS),
    RunRescheduled: st.builds(RunRescheduled, IDS),
    RunSeceded: st.builds(RunSeceded, IDS, SECONDS),
    RevokeAnswered: st.builds(RevokeAnswered, IDS, _lists(IDS), _lists(IDS)),
    FetchDone: st.builds(
        FetchDone,
        IDS,
        st.just(["x"]),
        st.just([8]),
        st.just(["v"]),
        _lists(KEYS),
        st.dictionaries(KEYS, TEXTS, max_size=2),
    ),
    FetchBusy: st.builds(FetchBusy, IDS),
    FetchFailed: st.builds(FetchFailed, IDS, TEXTS),
    PeerRested: st.builds(PeerRested, PEERS),
    DataPut: _rows(DataPut, KEYS, SIZES, st.just("put")),
    Registered: st.builds(Registered, st.just(SELF)),
    TimePassed: st.builds(TimePassed),
}


class Answer(NamedTuple):
    """What threads, peers or the scheduler say to what they were told; ``pick`` chooses among what is open."""

    how: str
    pick: int
    seconds: float


ANSWERS: Final = st.builds(
    Answer,
    st.sampled_from(
        "finish finish fail reschedule secede give keep function bring bring miss spoil break busy rest".split()
    ),
    st.integers(0, 5),
    SECONDS,
)
Step: TypeAlias = "Event | Answer"
#: What happens next: each strategy as often as it stands here, those of a list alike.
MOVES: Final[list[list[SearchStrategy[Any]]]] = [
    [ANSWERS],
    [ANSWERS],
    [ANSWERS],
    [COMPUTE],
    [*EVENTS.values()],
]


class Program(NamedTuple):
    """Prints itself as a script when it fails, not by its repr."""

    nthreads: int
    limits: dict[str, Any]
    steps: list[Step]

    def __repr__(self) -> str:
        return f"<{len(self.steps)} steps, written out below>"


@st.composite
def programs(draw: st.DrawFn) -> Program:
    limits = {
        "fetches_max": 2,
        "fetch_bytes_max": 20,
        "ahead_max": draw(st.integers(0, 2)),
        "functions_max": 2,
    }
    nthreads = draw(st.integers(1, 2))
    n = draw(st.integers(0, 50))
    steps = [draw(draw(st.sampled_from(draw(st.sampled_from(MOVES))))) for _ in range(n)]
    return Program(nthreads, limits, steps)


def script(program: Program, done: list[Event]) -> str:
    """What was done to the machine, to be pasted into a file and run."""
    limits = ", ".join(f"{name}={n}" for name, n in program.limits.items())
    lines = [
        "from math import inf, nan",
        "from shunter.worker.events import *",
        "from shunter.worker.model import Limits",
        "from shunter.worker.state import WorkerState",
        f"machine = WorkerState(nthreads={program.nthreads}, resources={{'GPU': 2.0}}, limits=Limits({limits}))",
    ]
    for event in done:
        lines += [f"machine.step({described(event)})", "machine.drain()", "machine.validate()"]
    return "\n".join(lines)


class Trial:
    """Runs a program, and checks what comes out of each step."""

    def __init__(self, program: Program) -> None:
        self.program = program
        limits = Limits(**program.limits)
        self.machine = WorkerState(nthreads=program.nthreads, resources={"GPU": 2.0}, limits=limits)
        self.slots_max = program.nthreads + limits.ahead_max
        self.done: list[Event] = []
        self.store: set[str] = set()
        self.handed: dict[int, Task] = {}  # by ticket, until it ends
        self.open_runs: list[tuple[str, int]] = []  # asked for, and not reported
        self.flights: dict[int, Fetch] = {}
        self.revokes: list[Revoke] = []
        self.functions: list[int] = []
        self.resting: list[int] = []
        self.take_backs = 0

    def run(self) -> None:
        try:
            self.step(Registered(SELF))
            for what in self.program.steps:
                event = self._event_of(what) if isinstance(what, Answer) else what
                if event is not None:
                    self.step(event)
            self.end()
        except BaseException:
            note(script(self.program, self.done))
            raise

    def end(self) -> None:
        """Everything is freed, and everything that is under way ends: nothing is left."""
        self.step(StatusSet("running"))
        self.step(FreeAsked(["x", "y", "z", "w", ""]))
        for how in ("give", "finish", "break", "rest", "function"):
            while (event := self._event_of(Answer(how, 0, 0.1))) is not None:
                self.step(event)
        counts = self.machine.counts()
        left = {name: n for name, n in counts.items() if n and name not in ("functions", "unknown")}
        assert left == {}
        assert self.take_backs == 0, "a take-back was never answered"
        assert not self.store

    def step(self, event: Event) -> None:
        self.done.append(event)
        if isinstance(event, ComputeAsked):
            self.open_runs += zip(event.keys, event.run_ids)
        elif isinstance(event, TakeBackAsked):
            self.take_backs += 1
        self._note_end(event)
        self.machine.step(event)
        out = self.machine.drain()
        self.machine.validate()
        for each in out:
            self._check(each)
        assert self.machine.counts()["occupied"] <= self.slots_max

    def _note_end(self, event: Event) -> None:
        """Threads and fetches that are no longer under way, whoever says so."""
        if isinstance(event, RunsFinished):
            for ticket in event.tickets:
                self.handed.pop(ticket, None)
        elif isinstance(event, (RunFailed, RunRescheduled)):
            self.handed.pop(event.ticket, None)
        elif isinstance(event, RevokeAnswered):
            for ticket in event.given:
                self.handed.pop(ticket, None)
            self.revokes = [
                each for each in self.revokes if each.request != event.request or each.request < 0
            ]
        elif isinstance(event, (FetchDone, FetchBusy, FetchFailed)):
            self.flights.pop(event.fetch, None)

    def _check(self, each: Instruction) -> None:
        lists = [getattr(each, name) for name in fields_of(type(each))]
        lengths = {len(column) for column in lists if isinstance(column, list)}
        assert len(lengths) <= 1 or isinstance(each, AnswerTakeBack) or "failed" in fields_of(type(each))
        if isinstance(each, Execute):
            for task in each.tasks:
                assert task.run_id not in self.handed, "handed out twice"
                assert self.store.issuperset(task.inputs), f"{task.key!r} lacks an input"
                self.handed[task.run_id] = task
        elif isinstance(each, Keep):
            self.store.update(each.keys)
        elif isinstance(each, Drop):
            assert self.store.issuperset(each.keys)
            self.store.difference_update(each.keys)
        elif isinstance(each, Fetch):
            assert each.keys and len(set(each.keys)) == len(each.keys)
            assert each.peer != SELF
            assert each.peer not in [fetch.peer for fetch in self.flights.values()]
            self.flights[each.fetch] = each
        elif isinstance(each, Revoke):
            self.revokes.append(each)
        elif isinstance(each, AskFunction):
            self.functions.append(each.function)
        elif isinstance(each, RestPeer):
            self.resting.append(each.peer)
        elif isinstance(each, AnswerTakeBack):
            self.take_backs -= 1
            assert self.take_backs >= 0, "a take-back was answered twice"
            assert set(each.given) <= set(each.asked)
        elif isinstance(each, ReportFinished):
            for key, run_id in zip(each.keys, each.run_ids):
                assert key in self.store, "reported and not held"
                self.open_runs.remove((key, run_id))  # Raises if it was not asked for, or reported before.
        elif isinstance(each, (ReportFailed, ReportRescheduled)):
            self.open_runs.remove((each.key, each.run_id))

    # -------------------------------------------------------------------------------------- answers

    def _event_of(self, answer: Answer) -> Event | None:
        """The event, if there is anything to answer."""
        how, pick = answer.how, answer.pick
        if how in ("finish", "fail", "reschedule", "secede"):
            tickets = list(self.handed)
            return _end_of_run(how, tickets[pick % len(tickets)], answer.seconds) if tickets else None
        if how in ("give", "keep"):
            if not self.revokes:
                return None
            revoke = self.revokes.pop(pick % len(self.revokes))
            given = [ticket for ticket in revoke.tickets if ticket in self.handed] if how == "give" else []
            return RevokeAnswered(revoke.request, revoke.tickets, given)
        if how == "function":
            if not self.functions:
                return None
            return FunctionsArrived([self.functions.pop(pick % len(self.functions))], [10])
        if how == "rest":
            return PeerRested(self.resting.pop(pick % len(self.resting))) if self.resting else None
        if not self.flights:
            return None
        return _end_of_fetch(how, list(self.flights.values())[pick % len(self.flights)])


def _end_of_run(how: str, ticket: int, seconds: float) -> Event:
    if how == "finish":
        return RunsFinished([ticket], ["v"], [8], [0.0], [seconds], [1], ["str"], [None])
    if how == "fail":
        return RunFailed(ticket, "boom", 0.0, seconds, 1)
    if how == "reschedule":
        return RunRescheduled(ticket)
    return RunSeceded(ticket, seconds)


def _end_of_fetch(how: str, fetch: Fetch) -> Event:
    keys = fetch.keys
    if how == "bring":
        return FetchDone(fetch.fetch, keys, [8] * len(keys), ["v"] * len(keys), [], {})
    if how == "miss":
        return FetchDone(fetch.fetch, [], [], [], keys, {})
    if how == "spoil":
        return FetchDone(
            fetch.fetch, keys[1:], [8] * (len(keys) - 1), ["v"] * (len(keys) - 1), [], {keys[0]: "no"}
        )
    return FetchBusy(fetch.fetch) if how == "busy" else FetchFailed(fetch.fetch, "reset")


@pytest.mark.timeout(400)  # When it fails, most of it goes into making the program small.
def test_any_events_in_any_order__machine_lives_with_them(request: pytest.FixtureRequest) -> None:
    def check(program: Program) -> None:
        Trial(program).run()

    for_all(programs(), check, examples=20 * request.config.getoption("--seeds"))


def test_every_event_there_is__is_among_them() -> None:
    found = {getattr(worker_events, name) for name in worker_events.__all__}

    assert {each for each in found if type(each) is type and each is not Event} == set(EVENTS)
