"""Small value types that every part shares. Nothing here depends on another module but `shunter.errors`."""

from __future__ import annotations

import math
from mmap import mmap
from typing import TypeAlias, Union

from shunter.errors import UsageError

__all__ = ["JSON", "Buffer", "Retry", "qualified_name"]

#: Bytes that travel untouched: one part of a pickled value. Received parts are flat and writable.
Buffer: TypeAlias = bytes | bytearray | memoryview | mmap

#: What a JSON text can say.
JSON: TypeAlias = Union[bool, int, float, str, "list[JSON]", "dict[str, JSON]", None]


class Retry:
    """How often, after what and where a failed task is run again: ``submit(…, retries=Retry(3, on=OSError))``.

    Args:
        n: how many more attempts after the first one; 0 or more.
        on: exception type, or a tuple of them, worth another attempt (their subclasses count as well);
            None means any exception.
        delay: seconds to wait before the next attempt.
        elsewhere: prefer another worker than the one on which it failed.

    Raises:
        UsageError: an argument has the wrong type or range.
    """

    __slots__ = ("delay", "elsewhere", "n", "on")

    n: int
    on: tuple[type[BaseException], ...] | None
    delay: float
    elsewhere: bool

    def __init__(
        self,
        n: int,
        *,
        on: type[BaseException] | tuple[type[BaseException], ...] | None = None,
        delay: float = 0.0,
        elsewhere: bool = False,
    ) -> None:
        if type(n) is not int or n < 0:
            raise UsageError(f"Retry(n) takes a whole number of 0 or more, not {n!r}")
        if type(delay) not in (int, float) or not (math.isfinite(delay) and delay >= 0):
            raise UsageError(f"Retry(delay=) takes a finite number of seconds, 0 or more, not {delay!r}")
        self.n = n
        self.on = None if on is None else _exception_types(on)
        self.delay = float(delay)
        self.elsewhere = bool(elsewhere)

    def on_names(self) -> list[str] | None:
        """Qualified names of the exception types, as they travel; None means any."""
        return None if self.on is None else [qualified_name(each) for each in self.on]

    def __repr__(self) -> str:
        return f"Retry({self.n}, on={self.on!r}, delay={self.delay!r}, elsewhere={self.elsewhere!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Retry):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def _fields(self) -> tuple[object, ...]:
        return (self.n, self.on, self.delay, self.elsewhere)


def qualified_name(cls: type) -> str:
    """``module.Class``: how types are named in messages and in ``retry_on``."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _exception_types(on: object) -> tuple[type[BaseException], ...]:
    types = on if isinstance(on, tuple) else (on,)
    for each in types:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise UsageError(f"Retry(on=) takes exception types, not {each!r}")
    return types
