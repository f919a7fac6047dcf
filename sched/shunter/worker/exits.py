"""How worker processes are started, and what their ends mean."""

from __future__ import annotations

import signal
import sys
from typing import Final

#: How a process of ours is started. -P: do not import from the current folder, where a `queue.py` may lie;
#: PYTHONPATH says where from. (Python 3.10 has no such option.)
PYTHON: Final = [sys.executable, "-P"] if sys.version_info >= (3, 11) else [sys.executable]

OK: Final = 0  # it was asked to end: by its parent, by a signal, or by the scheduler
REFUSED: Final = 1  # the scheduler is not there, or does not take this worker: wrong token, name in use
USAGE: Final = 2  # the configuration cannot be read
LINK_LOST: Final = 3  # the connection to the scheduler broke; a parent starts the worker again
GIVEN_UP: Final = 1  # of the parent: its processes keep dying as soon as they start, or the scheduler is gone
INTERNAL: Final = 70  # a bug of ours


def describe_exit(code: int) -> str:
    """An exit code for people: ``exit code 2`` or ``signal 9 (SIGKILL)``."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"
