"""Runnable tasks: which may start next.

Smaller priority first, first come first served among equals. Tasks that ask for resources stand in a line for
each distinct demand. A task whose resources are in use lets others go past, except those that would take any
of the same resources: else a large demand could wait for ever behind small ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Final, TypeAlias, final

from shunter.worker.events import Priority
from shunter.worker.model import Run

__all__ = ["ReadyQueue", "substantial"]

_Heap: TypeAlias = list[tuple[Priority, int, Run]]
_ROUNDING: Final = 1e-9


def substantial(demand: Mapping[str, float]) -> dict[str, float] | None:
    """A demand without the resources of which it asks for nothing; None if that leaves none."""
    return {name: amount for name, amount in demand.items() if amount > _ROUNDING} or None


@final
class ReadyQueue:
    """Ready runs and the use of resources. Runs given up meanwhile are skipped when they come up."""

    __slots__ = ("_free", "_lines", "_plain", "_total", "_users")

    def __init__(self, resources: Mapping[str, float]) -> None:
        self._total: Final = dict(resources)
        self._free = dict(resources)
        self._users = 0
        self._plain: _Heap = []
        self._lines: dict[tuple[tuple[str, float], ...], _Heap] = {}

    def lacks(self, demand: Mapping[str, float]) -> bool:
        """This worker can never give as much as that."""
        return any(amount > self._total.get(name, 0.0) + _ROUNDING for name, amount in demand.items())

    def push(self, run: Run) -> None:
        entry = (run.task.priority, run.sequence, run)
        if run.task.resources:
            heappush(self._lines.setdefault(_demand(run), []), entry)
        else:
            heappush(self._plain, entry)

    def peek(self) -> Run | None:
        """The run that should start next, of those whose resources are free."""
        best = _head(self._plain)
        if self._lines:
            best = self._better(best)
        return best[2] if best is not None else None

    def pop(self, run: Run) -> None:
        """Take out the run that `peek` gave."""
        if run.task.resources:
            demand = _demand(run)
            line = self._lines[demand]
            popped = heappop(line)
            if not line:
                del self._lines[demand]
        else:
            popped = heappop(self._plain)
        assert popped[2] is run, run.task.key

    def grant(self, run: Run) -> None:
        """Take a run's resources."""
        if run.task.resources and not run.granted:
            run.granted = True
            self._users += 1
            for name, amount in run.task.resources.items():
                self._free[name] = max(0.0, self._free[name] - amount)

    def give_back(self, run: Run) -> None:
        if not run.granted:
            return
        run.granted = False
        self._users -= 1
        if self._users == 0:
            self._free = dict(self._total)  # Exact again, whatever the fractions added up to.
            return
        for name, amount in (run.task.resources or {}).items():
            self._free[name] = min(self._total[name], self._free[name] + amount)

    def in_use(self) -> dict[str, float]:
        """Amounts in use, of resources that are."""
        return {
            name: total - self._free[name] for name, total in self._total.items() if self._free[name] != total
        }

    def _better(self, best: tuple[Priority, int, Run] | None) -> tuple[Priority, int, Run] | None:
        heads: list[tuple[Priority, int, Run]] = []
        for demand in list(self._lines):
            head = _head(self._lines[demand])
            if head is None:
                del self._lines[demand]
            else:
                heads.append(head)
        heads.sort()
        held_back: set[str] = set()
        for head in heads:
            if best is not None and best < head:
                break
            asked = head[2].task.resources or {}
            if held_back.isdisjoint(asked) and self._fits(asked):
                return head
            held_back.update(asked)
        return best

    def _fits(self, demand: Mapping[str, float]) -> bool:
        return all(amount <= self._free.get(name, 0.0) + _ROUNDING for name, amount in demand.items())


def _head(heap: _Heap) -> tuple[Priority, int, Run] | None:
    while heap:
        head = heap[0]
        if head[2].status == "ready":
            return head
        heappop(heap)
    return None


def _demand(run: Run) -> tuple[tuple[str, float], ...]:
    return tuple(sorted((run.task.resources or {}).items()))
