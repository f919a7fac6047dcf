"""Which shunter this is. The package's root knows; nothing inside imports it, so it is looked up when it is needed."""

from __future__ import annotations

import sys


def version() -> str:
    """The version, such as ``0.1.0``."""
    return str(getattr(sys.modules.get("shunter"), "__version__", "unknown"))


def build() -> str:
    """How the state runs: ``compiled`` or ``pure``."""
    return "compiled" if getattr(sys.modules.get("shunter"), "COMPILED", False) else "pure"
