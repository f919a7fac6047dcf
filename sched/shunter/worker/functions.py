"""Functions by the scheduler's numbers. Each is unpickled once, by the thread that needs it first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, final

from shunter import serialize
from shunter.errors import InternalError

__all__ = ["Function", "Functions"]


@final
class Function:
    """A function that tasks call. ``name`` is for people."""

    __slots__ = ("_blob", "_callable", "_lock", "name")

    def __init__(self, name: str, blob: bytes) -> None:
        self.name = name
        self._blob: bytes | None = blob
        self._callable: Callable[..., Any] | None = None
        self._lock = threading.Lock()

    def load(self) -> Callable[..., Any]:
        """The callable. Raises whatever unpickling raises, each time."""
        loaded = self._callable
        if loaded is not None:
            return loaded
        with self._lock:
            if self._callable is None:
                assert self._blob is not None
                self._callable = serialize.load_function(self._blob)
                self._blob = None
            return self._callable


@final
class Functions:
    """What the machine knows by number, with the pickles."""

    def __init__(self) -> None:
        self._by_number: dict[int, Function] = {}

    def add(self, numbers: Iterable[int], names: Iterable[str], blobs: Iterable[bytes]) -> None:
        """They have arrived."""
        for number, name, blob in zip(numbers, names, blobs):
            self._by_number[number] = Function(name, blob)

    def forget(self, numbers: Iterable[int]) -> None:
        """No task needs them."""
        for number in numbers:
            self._by_number.pop(number, None)

    def get(self, number: int) -> Function:
        """The function, which the machine knows to be here."""
        function = self._by_number.get(number)
        if function is None:
            raise InternalError(f"the machine executes function {number}, which is not here")
        return function
