"""Functions travel once: pickled once for each identity, sent once over each connection under a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from shunter.errors import UsageError
from shunter.serialize import digest, display_name, dump_function

__all__ = ["Function", "FunctionCache", "NewFunction"]

#: A function's pickle may have this many bytes. Data belongs into arguments, or into `scatter`.
BLOB_MAX: Final = 32 * 1024 * 1024


class Function(NamedTuple):
    """``number``: this client's own for it."""

    number: int
    name: str
    digest: str


class NewFunction(NamedTuple):
    """A function that the scheduler has not been told of yet."""

    number: int
    digest: str
    name: str
    blob: bytes


class FunctionCache:
    """Functions of one connection.

    A function is looked up by identity, and kept alive so that the identity stays its own; the least recently added
    ones are forgotten beyond ``size``. A function that is pickled by value (a lambda, one from ``__main__``) goes with
    the global values it had when it was first used.
    """

    def __init__(self, size: int = 1000) -> None:
        self._size = size
        self._known: dict[int, tuple[Callable[..., object], Function]] = {}
        self._numbers: dict[str, int] = {}  # by digest, for the life of the connection
        self._new: list[NewFunction] = []

    def find(self, fn: Callable[..., object]) -> Function | None:
        """The function, if this very object is known."""
        known = self._known.get(id(fn))
        return None if known is None else known[1]

    def add(self, fn: Callable[..., object], blob: bytes) -> Function:
        """Make a function known by its pickle. The caller holds the session's lock."""
        sha = digest(blob)
        name = display_name(fn)
        number = self._numbers.get(sha)
        if number is None:
            number = self._numbers[sha] = len(self._numbers) + 1
            self._new.append(NewFunction(number, sha, name, blob))
        if len(self._known) >= self._size:
            del self._known[next(iter(self._known))]
        function = Function(number, name, sha)
        self._known[id(fn)] = (fn, function)
        return function

    def take_new(self) -> list[NewFunction]:
        """What must be sent before the next task. The caller holds the session's lock."""
        if not self._new:
            return []
        new = self._new
        self._new = []
        return new

    @staticmethod
    def dump(fn: Callable[..., object]) -> bytes:
        """Pickle a function. Raises UsageError."""
        blob = dump_function(fn)
        if len(blob) > BLOB_MAX:
            raise UsageError(
                f"function {display_name(fn)!r} takes {len(blob):,} bytes as a pickle; {BLOB_MAX:,} are allowed. "
                "It probably refers to large data: pass that as an argument, after client.scatter(data)"
            )
        return blob
