"""What a running task may ask for: who it is, and to be taken out of its slot.

    from shunter.worker import context

    def supervise(jobs):
        context.secede()          # this task only waits from here on: let others use its thread
        ...

    def poll(path):
        if not os.path.exists(path):
            raise context.Reschedule   # run me again later, anywhere

Works in plain functions and in coroutines.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, NamedTuple

from shunter.errors import UsageError

__all__ = ["Reschedule", "RunningTask", "current_task", "secede"]


class Reschedule(Exception):
    """Raised by a task that wants to be run again, on any worker. Not a failure; no retry is used up."""


class RunningTask(NamedTuple):
    """The task that runs here.

    Attributes:
        key: its key.
        run_id: the number of this run.
        worker_name: the name of the worker.
        scheduler: the scheduler's address.
    """

    key: str
    run_id: int
    worker_name: str
    scheduler: str
    leave_slot: Callable[[], None]


_current: Final[ContextVar[RunningTask | None]] = ContextVar("shunter_task", default=None)


def current_task() -> RunningTask | None:
    """The task in which this is called; None outside of tasks."""
    return _current.get()


def secede() -> None:
    """Give this task's slot to others; the task goes on. The second time nothing happens.

    For tasks that wait for others most of the time. The task keeps its resources.

    Raises:
        UsageError: called outside of a task.
    """
    task = _current.get()
    if task is None:
        raise UsageError("secede() was called outside of a task")
    task.leave_slot()


def enter(task: RunningTask | None) -> None:
    """Say which task runs in this thread, or context, from now on."""
    _current.set(task)
