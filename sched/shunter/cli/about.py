"""Which shunter this is, and which build of its state."""

from __future__ import annotations

import platform
import sys
from typing import Final

from shunter import __version__, _debug

#: Reasons for a pure state that somebody chose; any other is a compiled build that did not come about.
CHOSEN: Final = ("SHUNTER_DEBUG is set", "from the source tree", "built with SHUNTER_BUILD=pure")


def version_line() -> str:
    """``0.1.0 (state: compiled, CPython 3.11.7)``; says more when the state is pure and nobody chose that."""
    build = "compiled" if _debug.COMPILED else "pure"
    python = f"{sys.implementation.name} {platform.python_version()}".replace("cpython", "CPython")
    line = f"{__version__} (state: {build}, {python})"
    if not _debug.COMPILED and (reason := _debug.why_pure()) not in CHOSEN:
        line += f", slower than the compiled build: {reason}. For that one, mend this and reinstall with "
        line += "SHUNTER_BUILD=compiled"
    return line
