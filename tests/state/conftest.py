"""Every story that a test told is validated when it ends: nobody has to remember."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.state.script import Script


@pytest.fixture(autouse=True)
def _validate_every_script() -> Iterator[None]:
    Script.told.clear()
    yield
    try:
        for script in Script.told:
            script.state.validate()
    finally:
        Script.told.clear()
