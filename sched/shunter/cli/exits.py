"""What the exit codes of ``shunter`` mean."""

from __future__ import annotations

from typing import Final

OK: Final = 0  # also a scheduler or worker that was stopped by Ctrl-C or SIGTERM
FAILED: Final = 1  # it could not be done: no scheduler there, wrong token, workers that keep dying
USAGE: Final = 2  # called wrongly: an unknown option, a bad value, a port in use
INTERNAL: Final = 70  # a bug of ours
INTERRUPTED: Final = 130  # Ctrl-C
TERMINATED: Final = 143  # SIGTERM


def of_process(returncode: int) -> int:
    """The exit code that tells how a child ended, as a shell does: 128 + the signal that killed it."""
    return returncode if returncode >= 0 else 128 - returncode
