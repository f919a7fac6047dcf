"""Functions by the scheduler's numbers: which are here, who needs them, which may go.

The scheduler sends each function once. What no run needs may be evicted, least recently used first; if it is
needed again, it is asked for.
"""

from __future__ import annotations

from typing import final

from shunter.worker.instructions import AskFunction, Outbox
from shunter.worker.model import Function, Limits, Run

__all__ = ["FunctionTable"]


@final
class FunctionTable:
    """Sole writer of `Function` records.

    Attributes:
        nbytes: sum of the sizes of the functions that are here.
    """

    __slots__ = ("_by_number", "_last", "_limits", "_outbox", "nbytes")

    def __init__(self, limits: Limits, outbox: Outbox) -> None:
        self._limits = limits
        self._outbox = outbox
        self._by_number: dict[int, Function] = {}  # Least recently used first.
        self._last: Function | None = None
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._by_number)

    def use(self, number: int) -> Function:
        """The function for one more run; asked for if it is not here."""
        function = self._last
        if function is None or function.number != number:
            function = self._by_number.pop(number, None)
            if function is None:
                function = Function(number)
                self._outbox.push(AskFunction(number))
            self._by_number[number] = function  # Now the most recent one.
            self._last = function
        function.uses += 1
        return function

    def end_use(self, function: Function) -> None:
        function.uses -= 1

    def wait(self, function: Function, run: Run) -> None:
        function.waiters[run] = None

    def unwait(self, function: Function, run: Run) -> None:
        function.waiters.pop(run, None)

    def arrived(self, number: int, size: int) -> dict[Run, None]:
        """A function is here: the runs that waited for it."""
        function = self._by_number.get(number)
        if function is None:
            function = self._by_number[number] = Function(number)
        self.nbytes += size - max(function.size, 0)
        function.size = size
        waiters, function.waiters = function.waiters, {}
        return waiters

    def evict(self) -> None:
        """Forget functions that no run needs, if there are too many."""
        count, size = len(self._by_number), self.nbytes
        victims: list[Function] = []
        for function in self._by_number.values():
            if count <= self._limits.functions_max and size <= self._limits.function_bytes_max:
                break
            if function.uses == 0 and function.size >= 0:
                victims.append(function)
                count -= 1
                size -= function.size
        for function in victims:
            del self._by_number[function.number]
            self.nbytes -= function.size
            self._outbox.forget_function(function.number)
            if function is self._last:
                self._last = None

    def uses(self) -> int:
        """Runs that need a function, over all functions."""
        return sum(function.uses for function in self._by_number.values())
