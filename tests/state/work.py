"""How much work is something? Counted, not timed: lines of the state that run. Only the pure build can be traced."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

import shunter
from shunter.state import SchedulerState

pure_only: Final = pytest.mark.skipif(shunter.COMPILED, reason="lines of compiled code are not traced")


def lines_of(act: Callable[[], object]) -> int:
    """How many lines of `shunter.state` run while ``act`` is called."""
    state = str(Path(sys.modules[SchedulerState.__module__].__file__ or "").parent)
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(state):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count
