"""Which build of ``shunter.state`` runs, and why; ``SHUNTER_DEBUG=1`` chooses the source.

A compiled wheel carries the ``.py`` files beside the compiled modules. With ``SHUNTER_DEBUG=1`` set before the first
``import shunter``, `StateFinder` loads ``shunter.state`` from those: breakpoints, stepping, coverage and profilers
work, and the state checks its invariants (`shunter.config`). Without it, `StateFinder` only lets tracebacks through
compiled code quote their source.

Everything here runs at ``import shunter`` and is kept cheap: no import of the state, no import that Python has not
done already.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from types import ModuleType
from typing import Final

PACKAGE: Final = "shunter.state"
#: Any module that a compiled build compiles; its leaf has no imports.
LEAF: Final = "names"
HERE: Final = os.path.dirname(os.path.abspath(__file__))
STATE: Final = os.path.join(HERE, "state")

#: SHUNTER_DEBUG asks for the source.
DEBUG: Final = os.environ.get("SHUNTER_DEBUG", "") not in ("", "0")
#: Compiled modules are installed that fit this interpreter. Extension modules win over source, as in Python's
#: own path finder, so this is what an import would take.
INSTALLED: Final = any(os.path.exists(os.path.join(STATE, LEAF + suffix)) for suffix in EXTENSION_SUFFIXES)
#: The state runs compiled in this process.
COMPILED: Final = INSTALLED and not DEBUG


class StateFinder:
    """Meta path finder for ``shunter.state`` and its modules."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The source of a module in debug mode; otherwise None, which leaves it to Python."""
        if fullname != PACKAGE and not fullname.startswith(PACKAGE + "."):
            return None
        if not DEBUG:
            if fullname == PACKAGE:
                show_sources()
            return None
        for entry in path or ():
            spec = FileFinder(entry, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(fullname)
            if spec is not None and spec.loader is not None:
                return spec
        return None


def install() -> None:
    """Put the finder first, if there is anything for it to do."""
    if INSTALLED and StateFinder not in sys.meta_path:
        sys.meta_path.insert(0, StateFinder)


def show_sources() -> None:
    """Let tracebacks quote the source of compiled modules.

    mypyc bakes the path that it was given ("shunter/state/x.py") into the code, and linecache gives up on it because
    the loader of an extension module has no source. A tuple of one callable is linecache's own lazy entry: the file
    is read when a traceback is printed.
    """
    import linecache

    for name in os.listdir(STATE):
        if name.endswith(".py"):
            linecache.cache[f"shunter/state/{name}"] = (_reader(os.path.join(STATE, name)),)


def _reader(path: str) -> Callable[[], str | None]:
    def read() -> str | None:
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except OSError:
            return None

    return read


def describe() -> str:
    """One line for people: ``compiled``, or ``pure (why)``."""
    if COMPILED:
        return "compiled"
    return f"pure ({why_pure()})"


def why_pure() -> str:
    """Why the state runs from source in this process: what the build wrote down, or how it was started."""
    if INSTALLED:
        return "SHUNTER_DEBUG is set"
    try:
        with open(os.path.join(HERE, "_build.txt"), encoding="utf-8") as file:
            kind, _, reason = file.read().strip().partition(": ")
    except OSError:
        return "from the source tree"
    if kind == "compiled":  # A wheel for another Python, or one that was copied without its libraries.
        return "the compiled modules do not fit this Python"
    return reason or "no reason was recorded"
