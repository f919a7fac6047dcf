"""Values that are held here: sparing, dropping, and what a drop means for the runs that use one."""

from __future__ import annotations

from shunter.worker.tables import Tables

__all__ = ["drop_value", "mark_users", "spare"]


def spare(t: Tables, key: str) -> None:
    """A copy that was to be dropped is of use again: the scheduler thinks that it is gone."""
    if key in t.doomed:
        del t.doomed[key]
        t.outbox.added(key, t.held[key])


def drop_value(t: Tables, key: str) -> None:
    del t.held[key]
    t.doomed.pop(key, None)
    t.outbox.drop(key)


def mark_users(t: Tables, key: str) -> None:
    """The runs that use a value must not be adopted: the next value of its key may be another one."""
    if key in t.using:
        for run in t.executing.values():
            if key in run.task.inputs:
                run.intact = False
