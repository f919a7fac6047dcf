"""Events and instructions as lines of a trace."""

from __future__ import annotations

from typing import Final

from shunter.state import DEFAULT_OPTIONS, Failure, Options

#: What would only make lines longer.
LEFT_OUT: Final = frozenset(
    {"starts", "durations", "threads", "types", "kinds", "kind_names", "specs", "inline_max"}
)
WIDTH_MAX: Final = 200


def described(each: object) -> str:
    """One line that says what an event or an instruction is."""
    names = [name for name in _fields(each) if name not in LEFT_OUT]
    fields = [f"{name}={_shown(getattr(each, name))}"[:WIDTH_MAX] for name in names]
    return f"{type(each).__name__}({', '.join(fields)})"


def _shown(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, Failure):
        return f"{value.kind} of {value.key!r}: {value.text}"
    if isinstance(value, Options):
        names = [name for name in _fields(value) if getattr(value, name) != getattr(DEFAULT_OPTIONS, name)]
        return " ".join(f"{name}={getattr(value, name)!r}" for name in names) or "-"
    return repr(value)


def _fields(each: object) -> list[str]:
    """Compiled classes keep no list of their slots."""
    return [name for name in dir(each) if not name.startswith("_") and not callable(getattr(each, name))]
