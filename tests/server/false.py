"""False things for tests of the server: a state that does as the test says, and a link that only notes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any

from shunter.state import AnswerQuestion, Change, Event, Instruction, Key, Outcome, QuestionAsked
from shunter.wire.frames import Frame

#: Answers an event with instructions.
React = Callable[[Event], Iterable[Instruction] | None]


class FalseView:
    """Answers with what it was given."""

    def __init__(self) -> None:
        self.rows: dict[Key, tuple[str, int, list[int]]] = {}
        self.broken = False

    def workers(self) -> list[dict[str, object]]:
        return [{"number": 1, "name": "a"}]

    def who_has(self, keys: list[Key]) -> list[tuple[Key, str, int, list[int]]]:
        return [(key, *self.rows.get(key, ("unknown", -1, []))) for key in keys]

    def counts(self) -> dict[str, int]:
        if self.broken:
            raise RuntimeError("a bug in the view")
        return {"tasks": len(self.rows)}

    def datasets(self) -> list[dict[str, object]]:
        return [{"name": "sales", "keys": 2}]

    def story(self, key: Key) -> list[str]:
        return [f"story of {key}"]

    def why(self, key: Key) -> str:
        return f"{key} rests"

    def status(self) -> dict[str, object]:
        return {"counts": self.counts()}


class FalseState:
    """A state without thoughts: notes events, and gives the instructions that ``react`` returns."""

    def __init__(self, react: React | None = None) -> None:
        self.react = react
        self.events: list[Event] = []
        self.times: list[float] = []
        self.drains = 0
        self.batches: list[int] = []  # how many events each drain had
        self.next_deadline = inf
        self.watched: frozenset[str] | None = None
        self.instructions: list[Instruction] = []
        self.changes: list[Change] = []
        self.the_view = FalseView()

    def step(self, event: Event, now: float) -> None:
        if isinstance(event, QuestionAsked):  # Answered in its turn, and no story's concern.
            self.instructions.append(AnswerQuestion(event.client, event.question))
            return
        self.events.append(event)
        self.times.append(now)
        if self.react is not None:
            self.instructions.extend(self.react(event) or ())

    def drain(self) -> Outcome:
        self.drains += 1
        self.batches.append(len(self.events) - sum(self.batches))
        outcome = Outcome(self.instructions, self.changes)
        self.instructions, self.changes = [], []
        return outcome

    def watch(self, finish_states: frozenset[str]) -> None:
        self.watched = finish_states

    def view(self) -> Any:
        return self.the_view

    def validate(self) -> None:
        pass

    def of(self, kind: type[Any]) -> list[Any]:
        """The events of one kind so far."""
        return [event for event in self.events if isinstance(event, kind)]

    def names(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


class FalseLink:
    """A link that notes what is done to it."""

    def __init__(self, number: int = 1) -> None:
        self.number = number
        self.queued = 0
        self.congested = False
        self.reading = True
        self.closed_for: str | None = None
        self.writes: list[list[Frame]] = []
        self.owner: Any = None
        self.on_drained: Callable[[Any], None] | None = None

    @property
    def closed(self) -> bool:
        return self.closed_for is not None

    def send(self, frames: Sequence[Frame]) -> None:
        self.writes.append(list(frames))

    def pause(self) -> None:
        assert self.reading
        self.reading = False

    def resume(self) -> None:
        assert not self.reading
        self.reading = True

    def close(self, reason: str) -> None:
        self.closed_for = self.closed_for or reason

    def frames(self) -> list[Frame]:
        """All frames of all writes."""
        return [frame for write in self.writes for frame in write]

    def ops(self) -> list[object]:
        return [header[0] for header, _ in self.frames()]


def change(
    key: str, finish: str = "memory", *, kind: str = "inc", duration: float = 0.5, worker: int = 1
) -> Change:
    """One arrow of a task."""
    return Change(
        key, kind, "processing", finish, worker, -1, 7, 8, (100.0, duration), 1, "", "TasksFinished", 1.0
    )
