"""Arbitrary well-typed events in arbitrary orders: nothing raises, every invariant holds, nobody is left behind.

``--seeds N`` runs more of them. A failing program is made small, and written out as a script to paste.
"""

from __future__ import annotations

import pytest

from shunter import state
from shunter.state import Event
from tests.state.any_events import EVENTS, Program, for_all, programs
from tests.state.any_trial import Trial


@pytest.mark.timeout(400)  # When it fails, most of it goes into making the program small.
def test_any_events_in_any_order__state_lives_with_them(request: pytest.FixtureRequest) -> None:
    def check(program: Program) -> None:
        Trial(program).run()

    for_all(programs(), check, examples=15 * request.config.getoption("--seeds"))


def test_every_event_there_is__is_among_them() -> None:
    found = {each for each in vars(state).values() if isinstance(each, type) and issubclass(each, Event)}

    assert found - {Event} == set(EVENTS)
