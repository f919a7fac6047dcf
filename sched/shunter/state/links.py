"""Sole writer of the links between tasks: dependencies, dependents, and the counts of what waits.

``n_waiting`` counts the inputs of a waiting task that are not in memory. ``n_waiters`` counts the dependents of
a task that are active (waiting, queued, no-worker or processing): while it is above zero, the value is needed.
"""

from __future__ import annotations

from shunter.state.model import TaskState
from shunter.state.names import MEMORY


def link(ts: TaskState, dependencies: list[TaskState]) -> None:
    """Make a new task depend on others; each of them is named once."""
    ts.dependencies = dependencies
    for dep in dependencies:
        if dep.dependent is None:
            dep.dependent = ts
        elif dep.dependents is None:
            dep.dependents = {ts: None}
        else:
            dep.dependents[ts] = None


def unlink(ts: TaskState) -> None:
    """Take a task that is being forgotten out of its dependencies' dependents."""
    if ts.dependencies is None:
        return
    for dep in ts.dependencies:
        if dep.dependent is ts:
            dep.dependent = None
        elif dep.dependents is not None:
            dep.dependents.pop(ts, None)
            if not dep.dependents:
                dep.dependents = None
    ts.dependencies = None


def has_dependents(ts: TaskState) -> bool:
    return ts.dependent is not None or ts.dependents is not None


def dependents_of(ts: TaskState) -> list[TaskState]:
    """A fresh list, in an order that depends on history only."""
    found: list[TaskState] = []
    if ts.dependent is not None:
        found.append(ts.dependent)
    if ts.dependents is not None:
        found.extend(ts.dependents)
    return found


def start_waiting(ts: TaskState) -> None:
    """The task becomes active: its inputs get a waiter, and those not in memory are counted."""
    n = 0
    if ts.dependencies is not None:
        for dep in ts.dependencies:
            dep.n_waiters += 1
            if dep.state != MEMORY:  # one that has just lost its last holder says so itself
                n += 1
    ts.n_waiting = n


def stop_waiting(ts: TaskState) -> None:
    """The task is no longer active (done, erred or given up): its inputs lose a waiter."""
    ts.n_waiting = 0
    if ts.dependencies is not None:
        for dep in ts.dependencies:
            dep.n_waiters -= 1


def input_arrived(ts: TaskState) -> bool:
    """One input of a waiting task is in memory now; True if it was the last."""
    ts.n_waiting -= 1
    return ts.n_waiting == 0


def input_lost(ts: TaskState) -> None:
    ts.n_waiting += 1


def hold(ts: TaskState) -> None:
    """Count a graph that is coming in as a waiter, so that nothing of it is given up half-way."""
    ts.n_waiters += 1
    ts.n_holds += 1


def let_go(ts: TaskState) -> None:
    ts.n_waiters -= 1
    ts.n_holds -= 1
