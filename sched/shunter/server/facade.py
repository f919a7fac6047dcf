"""What the server uses of the state: five methods and one property. The true one is `SchedulerState`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from shunter.state import Event, Outcome, Settings, View


class State(Protocol):
    """The narrow interface, so that the server can be tested against a small false state."""

    @property
    def next_deadline(self) -> float: ...

    def step(self, event: Event, now: float) -> None: ...

    def drain(self) -> Outcome: ...

    def watch(self, finish_states: frozenset[str]) -> None: ...

    def view(self) -> View: ...

    def validate(self) -> None: ...


#: Builds a state from settings and the time on its clock.
StateFactory: TypeAlias = Callable[[Settings, float], State]
