"""The machine: random walks through legal and contradictory events. Nothing raises, every invariant holds, and
when the world calms down everything that is still wanted is reported and nothing is left over."""

from __future__ import annotations

import random

import pytest

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
    Input,
    PeerGone,
    PeerRested,
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
    AskWhoHas,
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
)
from shunter.worker.model import Limits
from tests.worker.script import Script

KEYS = [f"k{i}" for i in range(8)]
PEERS = [5, 6, 7]


class World:
    """Threads, peers and a scheduler that do as they please, within what they may."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        limits = Limits(fetches_max=2, fetch_bytes_max=20, ahead_max=3, functions_max=3)
        self.script = Script(nthreads=self.random.randint(1, 3), resources={"GPU": 2}, limits=limits)
        self.handed: list[int] = []  # Tickets that no thread has taken yet, in order.
        self.started: dict[int, None] = {}
        self.flying: dict[int, Fetch] = {}
        self.resting: list[int] = []
        self.revokes: list[Revoke] = []
        self.who_has: list[str] = []
        self.functions: list[int] = []
        self.asked = 0
        self.answered = 0
        self.store: set[str] = set()
        self.wanted: dict[str, int] = {}  # Runs that the scheduler waits for, by key.
        self.run_id = 0

    def step(self, event: Event) -> None:
        for each in self.script.step(event):
            self.carry_out(each)

    def carry_out(self, each: Instruction) -> None:
        if isinstance(each, Execute):
            for task in each.tasks:
                assert self.store.issuperset(task.inputs), task.key
                self.handed.append(task.run_id)
        elif isinstance(each, Fetch):
            assert each.keys
            assert each.peer not in [fetch.peer for fetch in self.flying.values()]
            self.flying[each.fetch] = each
        elif isinstance(each, RestPeer):
            self.resting.append(each.peer)
        elif isinstance(each, Revoke):
            self.revokes.append(each)
        elif isinstance(each, AskWhoHas):
            self.who_has += each.keys
        elif isinstance(each, AskFunction):
            self.functions.append(each.function)
        elif isinstance(each, Keep):
            self.store.update(each.keys)
        elif isinstance(each, Drop):
            self.store.difference_update(each.keys)
        elif isinstance(each, ReportFinished):
            for key, run_id in zip(each.keys, each.run_ids):
                assert key in self.store, key
                assert self.wanted.pop(key) == run_id
        elif isinstance(each, (ReportFailed, ReportRescheduled)):
            assert self.wanted.pop(each.key) == each.run_id
        elif isinstance(each, AnswerTakeBack):
            self.answered += 1
            for key in [key for key, run_id in self.wanted.items() if run_id in each.given]:
                del self.wanted[key]

    # ---------------------------------------------------------------------------------------- moves

    def holders(self) -> list[int]:
        return self.random.sample(PEERS, self.random.randint(0, 3))

    def compute(self) -> None:
        r = self.random
        key = r.choice(KEYS)
        self.run_id += 1
        self.wanted[key] = self.run_id
        inputs: list[Input] = [
            (name, r.randint(1, 30), self.holders(), r.choice([1, 1, 1, 2]))
            for name in r.sample(KEYS, r.randint(0, 3))
        ]
        inputs = [each for each in inputs if each[0] != key]
        resources = r.choice([None, None, {"GPU": 1.0}, {"GPU": 2.0}, {"GPU": 3.0}])
        event = ComputeAsked(
            [key],
            [self.run_id],
            [r.randint(0, 4)],
            [(float(r.randint(-1, 1)), 0.0, 0, self.run_id)],
            [inputs or None],
            [resources],
            [0],
            [r.choice([1, 1, 1, 2])],
            [r.choice([b"a", b"b"])],
        )
        self.step(event)

    def free(self) -> None:
        key = self.random.choice(KEYS)
        self.wanted.pop(key, None)
        self.step(FreeAsked([key]))

    def take_back(self) -> None:
        known = list(self.wanted.values())
        asked = [*self.random.sample(known, min(len(known), 2)), 10**6]
        self.asked += 1
        self.step(TakeBackAsked(asked))

    def odds(self) -> None:
        """Whatever else a scheduler may say, sensible or not."""
        r = self.random
        key = r.choice(KEYS)
        self.step(
            r.choice(
                [
                    RemoveAsked([key]),
                    AcquireAsked([key], [8], [r.randint(1, 2)], [self.holders()]),
                    WhoHasTold([key], [self.holders()]),
                    PeerGone(r.choice(PEERS)),
                    StatusSet(r.choice(["running", "paused"])),
                    FunctionsArrived([r.randint(0, 4)], [10]),
                    TimePassed(),
                ]
            )
        )

    def put(self) -> None:
        key = self.random.choice(KEYS)
        self.store.add(key)
        self.step(DataPut([key], [8], ["put"]))

    def thread(self, *, calm: bool = False) -> None:
        """A thread starts a task, or ends one."""
        r = self.random
        if self.handed and (r.random() < 0.5 or not self.started):
            self.started[self.handed.pop(0)] = None
        elif self.started:
            ticket = r.choice(list(self.started))
            end = "finish" if calm else r.choice(["finish", "finish", "fail", "reschedule", "secede"])
            seconds = r.choice([1e-5, 1.0])
            if end == "secede":
                self.step(RunSeceded(ticket, seconds))
                return
            del self.started[ticket]
            if end == "finish":
                self.step(RunsFinished([ticket], ["v"], [8], [0.0], [seconds], [0], ["str"], [None]))
            elif end == "fail":
                self.step(RunFailed(ticket, "boom", 0.0, seconds, 0))
            else:
                self.step(RunRescheduled(ticket))

    def revoke(self) -> None:
        if self.revokes:
            revoke = self.revokes.pop(0)
            given = [ticket for ticket in revoke.tickets if ticket in self.handed]
            self.handed = [ticket for ticket in self.handed if ticket not in given]
            self.step(RevokeAnswered(revoke.request, revoke.tickets, given))

    def fetch(self, *, calm: bool = False) -> None:
        r = self.random
        if self.flying:
            number, fetch = self.flying.popitem()
            end = "done" if calm else r.choice(["done", "done", "part", "busy", "failed", "unpicklable"])
            keys = list(fetch.keys)
            if end == "busy":
                self.step(FetchBusy(number))
            elif end == "failed":
                self.step(FetchFailed(number, "reset"))
            else:
                odd = [keys.pop()] if end in ("part", "unpicklable") else []
                failed = dict.fromkeys(odd, "no") if end == "unpicklable" else {}
                missing = odd if end == "part" else []
                self.step(FetchDone(number, keys, [8] * len(keys), ["v"] * len(keys), missing, failed))
        elif self.resting:
            self.step(PeerRested(self.resting.pop()))

    def scheduler_answers(self, *, calm: bool = False) -> None:
        if self.functions:
            self.step(FunctionsArrived([self.functions.pop()], [10]))
        if self.who_has:
            key = self.who_has.pop()
            self.step(WhoHasTold([key], [list(PEERS) if calm else self.holders()]))

    def walk(self, steps: int) -> None:
        moves = [
            self.compute,
            self.compute,
            self.thread,
            self.thread,
            self.thread,
            self.fetch,
            self.fetch,
            self.revoke,
            self.scheduler_answers,
            self.free,
            self.take_back,
            self.odds,
            self.put,
        ]
        for _ in range(steps):
            self.random.choice(moves)()

    def calm_down(self) -> None:
        """Faults end: everything is served until nothing moves any more."""
        self.step(StatusSet("running"))
        for _ in range(400):
            self.revoke()
            self.scheduler_answers(calm=True)
            self.fetch(calm=True)
            self.thread(calm=True)
            idle = not (self.handed or self.started or self.flying or self.resting or self.revokes)
            if idle and not (self.who_has or self.functions):
                if not self.wanted:
                    return
                self.step(TimePassed())


@pytest.mark.parametrize("seed", range(150))
def test_random_walk__ends_with_everything_reported_and_nothing_left(seed: int) -> None:
    world = World(seed)
    world.walk(150)

    world.calm_down()

    assert world.wanted == {}
    assert world.answered == world.asked
    world.step(RemoveAsked(KEYS))
    left = world.script.end()
    left.pop("wanted", None)  # Copies that somebody asked for.
    left.pop("unknown", None)
    assert left == {}
