"""The loop: one settled batch for each iteration, deadlines become Tick."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import pytest

from shunter.server.turn import Question, Turn
from shunter.state import ClientAdded, ClientRemoved, Instruction, Outcome, Restarted, Tick
from tests.server.false import FalseState
from tests.server.harness import run, until


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A turn with a false state around it."""

    def __init__(self, state: FalseState | None = None) -> None:
        self.state = state if state is not None else FalseState()
        self.clock = Clock()
        self.asked: list[tuple[str, int]] = []  # name, and events stepped by then
        self.delivered: list[list[Instruction]] = []
        self.failed: list[Exception] = []
        self.turn = Turn(
            self.state, clock=self.clock, answer=self._answer, deliver=self._deliver, fail=self.failed.append
        )

    def _answer(self, question: Question) -> None:
        self.asked.append((question.name, len(self.state.events)))

    def _deliver(self, outcome: Outcome) -> None:
        self.delivered.append(outcome.instructions)


def test_several_events_in_one_iteration__are_one_settled_batch() -> None:
    async def main() -> None:
        bench = Bench(FalseState(lambda event: [Restarted(1)]))
        for number in (1, 2, 3):
            bench.turn.put(ClientAdded(number, "c"))
        assert bench.state.events == []
        await until(lambda: bool(bench.delivered))
        assert bench.state.batches == [3]
        assert [len(each) for each in bench.delivered] == [3]

    run(main())


def test_event_put_while_a_batch_settles__waits_for_the_next_iteration() -> None:
    async def main() -> None:
        bench = Bench()
        bench.state.react = lambda event: (
            bench.turn.put(ClientRemoved(1)) if len(bench.state.events) == 1 else None
        )
        bench.turn.put(ClientAdded(1, "c"))
        await until(lambda: len(bench.state.events) == 2)
        await until(lambda: len(bench.delivered) == 2)
        assert bench.state.batches == [1, 1]

    run(main())


def test_question_between_events__is_answered_in_its_turn() -> None:
    async def main() -> None:
        bench = Bench()
        bench.turn.put(ClientAdded(1, "c"))
        bench.turn.put(Question(1, 1, "status", {}))
        bench.turn.put(ClientRemoved(1))
        await until(lambda: len(bench.state.events) == 2)
        assert bench.asked == [("status", 1)]

    run(main())


def test_deadline_that_has_come__becomes_a_tick_after_the_events() -> None:
    async def main() -> None:
        bench = Bench()

        def react(event: object) -> None:
            bench.state.next_deadline = inf if isinstance(event, Tick) else bench.clock.now

        bench.state.react = react
        bench.turn.put(ClientAdded(1, "c"))
        await until(lambda: len(bench.state.events) == 2)
        assert bench.state.names() == ["ClientAdded", "Tick"]

    run(main())


def test_deadline_in_the_future__comes_by_a_timer() -> None:
    async def main() -> None:
        bench = Bench()
        bench.state.next_deadline = bench.clock.now + 0.01
        bench.turn.wake()
        await until(lambda: bench.state.drains == 1)
        assert bench.state.events == []
        bench.clock.now += 0.02

        def react(event: object) -> None:
            bench.state.next_deadline = inf

        bench.state.react = react
        await until(lambda: bool(bench.state.events))
        assert bench.state.names() == ["Tick"]
        assert bench.state.times == [bench.clock.now]

    run(main())


def test_nearer_deadline__replaces_the_timer_of_a_farther_one() -> None:
    async def main() -> None:
        bench = Bench()
        bench.state.next_deadline = bench.clock.now + 1000
        bench.turn.wake()
        await until(lambda: bench.state.drains == 1)
        bench.state.next_deadline = bench.clock.now + 0.01
        bench.turn.wake()
        await until(lambda: bench.state.drains == 2)
        bench.clock.now += 0.02
        bench.state.react = lambda event: setattr(bench.state, "next_deadline", inf)
        await until(lambda: bench.state.names() == ["Tick"])

    run(main())


def test_work_without_end__lets_others_have_their_turn_between_its_slices() -> None:
    """A deadline that is always now is how a large graph comes in."""

    async def main() -> None:
        bench = Bench()
        bench.state.next_deadline = bench.clock.now
        bench.turn.wake()
        await until(lambda: len(bench.state.events) > 3)
        bench.turn.put(ClientAdded(1, "c"))
        await until(lambda: "ClientAdded" in bench.state.names())
        bench.turn.stop()
        assert set(bench.state.batches) <= {1, 2}

    run(main())


def test_hurry_on_an_idle_loop__settles_at_once_and_only_once() -> None:
    async def main() -> None:
        bench = Bench()
        bench.turn.put(ClientAdded(1, "c"))
        bench.turn.put(ClientAdded(2, "c"))
        bench.turn.hurry()
        assert bench.state.batches == [2]
        for _ in range(3):
            await asyncio.sleep(0)  # The call that `put` had scheduled finds nothing to do.
        assert bench.state.batches == [2]

    run(main())


def test_hurry_right_after_a_turn__waits_and_merges() -> None:
    async def main() -> None:
        bench = Bench()
        bench.turn.put(ClientAdded(1, "c"))
        bench.turn.hurry()
        for number in (2, 3):
            bench.turn.put(ClientAdded(number, "c"))
            bench.turn.hurry()
        assert bench.state.batches == [1]
        await until(lambda: len(bench.delivered) == 2)
        assert bench.state.batches == [1, 2]

    run(main())


@pytest.mark.parametrize("where", ["step", "drain"])
def test_state_raises__fails_once_and_runs_nothing_more(where: str) -> None:
    async def main() -> None:
        bench = Bench()

        def broken(*args: Any) -> Any:
            raise RuntimeError("a bug")

        setattr(bench.state, where, broken)
        bench.turn.put(ClientAdded(1, "c"))
        await until(lambda: bool(bench.failed))
        bench.turn.put(ClientAdded(2, "c"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert [str(error) for error in bench.failed] == ["a bug"]
        assert bench.delivered == []

    run(main())
