"""Options of a task as they travel, and their check. Unknown names are dropped, as unknown columns are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypedDict, cast

from shunter.wire.fields import Fields

__all__ = ["RunOptions", "TaskOptions", "parse_run_options", "parse_task_options", "resources"]


class TaskOptions(TypedDict, total=False):
    """How a task wants to be run; a name that is absent has its default.

    Same names and types as the keyword arguments of ``shunter.state.Options``: ``Options(**task_options)``.
    """

    priority: float
    retries: int
    retry_on: list[str] | None
    retry_delay: float
    retry_elsewhere: bool
    workers: list[str] | None
    allow_other_workers: bool
    resources: dict[str, float] | None
    stealable: bool
    limit: str | None
    timeout: float | None
    memory: int
    annotations: dict[str, object] | None


class RunOptions(TypedDict, total=False):
    """What a worker has to know to run a task."""

    resources: dict[str, float] | None
    timeout: float | None


def parse_task_options(fields: Fields, name: str) -> list[TaskOptions]:
    """Read a list of objects of any length; each one checked."""
    return [cast("TaskOptions", _checked(fields, name, each, _TASK)) for each in fields.items(name)]


def parse_run_options(fields: Fields, name: str) -> list[RunOptions | None]:
    """Read a column of null or objects, or null for a column of nulls."""
    if fields.peek() is None:
        fields.take(name)
        return [None] * fields.rows
    return [
        None if each is None else cast("RunOptions", _checked(fields, name, each, _RUN))
        for each in fields.column(name)
    ]


def resources(fields: Fields, name: str) -> dict[str, float]:
    """Read an object of finite, non-negative amounts by name."""
    amounts = fields.mapping(name)
    fields.check_keys(name, list(amounts))
    fields.check_numbers(name, list(amounts.values()), 0.0)
    return amounts


_Check = Callable[[Fields, str], object]


def _or_none(check: _Check) -> _Check:
    def checked(fields: Fields, name: str) -> object:
        return None if fields.peek() is None else check(fields, name)

    return checked


def _seconds(fields: Fields, name: str) -> float:
    return fields.number(name, 0)


_TASK: Final[Mapping[str, _Check]] = {
    "priority": Fields.number,
    "retries": Fields.integer,
    "retry_on": _or_none(Fields.key_list),
    "retry_delay": _seconds,
    "retry_elsewhere": Fields.flag,
    "workers": _or_none(Fields.key_list),
    "allow_other_workers": Fields.flag,
    "resources": _or_none(resources),
    "stealable": Fields.flag,
    "limit": _or_none(Fields.key),
    "timeout": _or_none(_seconds),
    "memory": Fields.integer,
    "annotations": _or_none(Fields.plain_mapping),
}
_RUN: Final[Mapping[str, _Check]] = {name: _TASK[name] for name in RunOptions.__annotations__}


def _checked(fields: Fields, name: str, value: Any, checks: Mapping[str, _Check]) -> dict[str, object]:
    if type(value) is not dict:
        fields.fail(name, "a list of objects", value)
    return {
        each: checks[each](fields.inner([found]), f"{name}.{each}")
        for each, found in value.items()
        if each in checks
    }
