"""What the exit codes of a worker process and of its parent mean."""

from __future__ import annotations

from typing import Final

OK: Final = 0  # it was asked to end: by its parent, by a signal, or by the scheduler
REFUSED: Final = 1  # the scheduler is not there, or does not take this worker: wrong token, name in use
USAGE: Final = 2  # the configuration cannot be read
LINK_LOST: Final = 3  # the connection to the scheduler broke; a parent starts the worker again
GIVEN_UP: Final = 1  # of the parent: its processes keep dying as soon as they start, or the scheduler is gone
INTERNAL: Final = 70  # a bug of ours
