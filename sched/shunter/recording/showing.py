"""Events and instructions in one line each, for people: long fields are cut short, addresses of objects do not show."""

from __future__ import annotations

from typing import Final

from shunter.recording.rows import names_of
from shunter.recording.sorts import clipped
from shunter.state import Event, Failure, Instruction, Options

#: Entries of a column that are shown.
ENTRIES_MAX: Final = 6

_NAMES: Final = names_of()


def shown(value: object) -> str:
    """``Heartbeat(worker=3, process=1000, spilled=0, cpu=12.5)``; of `Options` what is not as by default."""
    if isinstance(value, (list, tuple)):
        brackets = "[]" if isinstance(value, list) else "()"
        return _joined(brackets, [shown(each) for each in value[:ENTRIES_MAX]], len(value))
    if isinstance(value, dict):
        some = list(value.items())[:ENTRIES_MAX]
        return _joined("{}", [f"{clipped(name)}: {shown(each)}" for name, each in some], len(value))
    if isinstance(value, (Event, Instruction, Failure, Options)):
        names = fields_of(value)
        if isinstance(value, Options):
            usual = Options()
            names = [name for name in names if getattr(value, name) != getattr(usual, name)]
        fields = ", ".join(f"{name}={shown(getattr(value, name))}" for name in names)
        return f"{type(value).__name__}({fields})"
    return clipped(value)


def fields_of(record: object) -> list[str]:
    """Names of the fields of an event, in order; of an instruction, whom it is for first."""
    found = _NAMES.get(type(record).__name__)
    if found is None:
        found = [name for name in dir(record) if not name.startswith("_")]
        found.sort(key=lambda name: (name != "peer", name != "keys", name))
        _NAMES[type(record).__name__] = found
    return found


def _joined(brackets: str, entries: list[str], count: int) -> str:
    if count > len(entries):
        entries = [*entries, f"… {count} in all"]
    return f"{brackets[0]}{', '.join(entries)}{brackets[1]}"
