"""Tells stories to the worker's machine, in events, and checks its invariants after each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shunter.worker.events import (
    ComputeAsked,
    Event,
    FetchDone,
    FreeAsked,
    FunctionsArrived,
    Input,
    Priority,
    Registered,
    RevokeAnswered,
    RunFailed,
    RunsFinished,
)
from shunter.worker.instructions import (
    AnswerTakeBack,
    AskWhoHas,
    Drop,
    Execute,
    Fetch,
    Instruction,
    Keep,
    ReportAdded,
    ReportFailed,
    ReportFinished,
    ReportHeld,
    Revoke,
)
from shunter.worker.model import Limits
from shunter.worker.state import WorkerState

#: The number of the worker that is told stories.
SELF = 1


class Script:
    """A machine, and everything that came out of it since the last look."""

    def __init__(
        self, nthreads: int = 1, resources: Mapping[str, float] | None = None, limits: Limits | None = None
    ) -> None:
        self.machine = WorkerState(nthreads=nthreads, resources=resources, limits=limits)
        self.out: list[Instruction] = []
        self.step(Registered(SELF), FunctionsArrived([0, 1, 2], [10, 10, 10]))

    def step(self, *events: Event) -> list[Instruction]:
        """Apply events as one batch; what came out of it."""
        for event in events:
            self.machine.step(event)
        out = self.machine.drain()
        self.machine.validate()
        self.out += out
        return out

    def compute(
        self,
        key: str,
        run_id: int,
        inputs: Sequence[Input] = (),
        *,
        function: int = 0,
        priority: float = 0.0,
        resources: dict[str, float] | None = None,
        data: bytes = b"args",
        inline_max: int = 0,
    ) -> list[Instruction]:
        return self.step(
            compute(
                key,
                run_id,
                inputs,
                function=function,
                priority=priority,
                resources=resources,
                data=data,
                inline_max=inline_max,
            )
        )

    def finish(self, *tickets: int, nbytes: int = 8, seconds: float = 1.0) -> list[Instruction]:
        n = len(tickets)
        values: list[object] = [f"value {ticket}" for ticket in tickets]
        return self.step(
            RunsFinished(
                list(tickets),
                values,
                [nbytes] * n,
                [0.0] * n,
                [seconds] * n,
                [0] * n,
                ["str"] * n,
                [None] * n,
            )
        )

    def fail(self, ticket: int, failure: object = "boom") -> list[Instruction]:
        return self.step(RunFailed(ticket, failure, 0.0, 1.0, 0))

    def free(self, *keys: str) -> list[Instruction]:
        return self.step(FreeAsked(list(keys)))

    def got(
        self,
        fetch: Fetch,
        *,
        missing: Sequence[str] = (),
        failed: Mapping[str, str] | None = None,
    ) -> list[Instruction]:
        """A peer sends what was asked for, except for some keys."""
        failed = failed or {}
        keys = [key for key in fetch.keys if key not in missing and key not in failed]
        values: list[object] = [f"fetched {key}" for key in keys]
        return self.step(FetchDone(fetch.fetch, keys, [8] * len(keys), values, list(missing), dict(failed)))

    def revoked(self, out: Sequence[Instruction], *given: int) -> list[Instruction]:
        """The threads answer the only Revoke among ``out``."""
        (revoke,) = [each for each in out if isinstance(each, Revoke)]
        return self.step(RevokeAnswered(revoke.request, revoke.tickets, list(given)))

    def end(self) -> dict[str, int]:
        """What is left, without what is zero; functions and values apart."""
        counts = self.machine.counts()
        return {name: n for name, n in counts.items() if n and name not in ("functions", "held")}


def compute(
    key: str,
    run_id: int,
    inputs: Sequence[tuple[str, int, list[int]] | Input] = (),
    *,
    function: int = 0,
    priority: float = 0.0,
    resources: dict[str, float] | None = None,
    data: bytes = b"args",
    inline_max: int = 0,
    life: int = 1,
) -> ComputeAsked:
    """One task to run. A smaller priority runs sooner. Inputs are in life 1, unless they say otherwise."""
    rank: Priority = (priority, 0.0, 0, 0)
    full = [(each[0], each[1], each[2], each[3] if len(each) > 3 else 1) for each in inputs]
    return ComputeAsked(
        [key], [run_id], [function], [rank], [full or None], [resources], [inline_max], [life], [data]
    )


def compute_many(keys: Sequence[str], first_run_id: int = 0, *, priority: float = 0.0) -> ComputeAsked:
    n = len(keys)
    rank: Priority = (priority, 0.0, 0, 0)
    return ComputeAsked(
        list(keys),
        list(range(first_run_id, first_run_id + n)),
        [0] * n,
        [rank] * n,
        [None] * n,
        [None] * n,
        [0] * n,
        [1] * n,
        [b"args"] * n,
    )


# ------------------------------------------------------------------------------------------- reading what came out


def executed(out: Sequence[Instruction]) -> list[str]:
    return [task.key for each in out if isinstance(each, Execute) for task in each.tasks]


def finished(out: Sequence[Instruction]) -> list[tuple[str, int]]:
    return [pair for each in out if isinstance(each, ReportFinished) for pair in zip(each.keys, each.run_ids)]


def held(out: Sequence[Instruction]) -> list[int]:
    """How many threads were said to be held, each time."""
    return [each.count for each in out if isinstance(each, ReportHeld)]


def failed(out: Sequence[Instruction]) -> list[tuple[str, int]]:
    return [(each.key, each.run_id) for each in out if isinstance(each, ReportFailed)]


def kept(out: Sequence[Instruction]) -> list[str]:
    return [key for each in out if isinstance(each, Keep) for key in each.keys]


def dropped(out: Sequence[Instruction]) -> list[str]:
    return [key for each in out if isinstance(each, Drop) for key in each.keys]


def added(out: Sequence[Instruction]) -> list[str]:
    return [key for each in out if isinstance(each, ReportAdded) for key in each.keys]


def asked(out: Sequence[Instruction]) -> list[str]:
    return [key for each in out if isinstance(each, AskWhoHas) for key in each.keys]


def fetches(out: Sequence[Instruction]) -> list[Fetch]:
    return [each for each in out if isinstance(each, Fetch)]


def fetched(out: Sequence[Instruction]) -> list[tuple[int, list[str]]]:
    return [(each.peer, each.keys) for each in fetches(out)]


def answers(out: Sequence[Instruction]) -> list[tuple[list[int], list[int]]]:
    return [(each.asked, each.given) for each in out if isinstance(each, AnswerTakeBack)]
