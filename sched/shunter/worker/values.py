"""Values that are held here: sparing, dropping, and what a drop means for the runs that use one."""

from __future__ import annotations

from shunter.worker.instructions import UNKNOWN_LIFE
from shunter.worker.tables import Tables

__all__ = ["drop_value", "mark_users", "renew", "spare"]


def renew(t: Tables, key: str, life: int) -> None:
    """The scheduler speaks of this life of a key: what is here of another one is void.

    It need not have said so: it cannot free what it does not know to be here, such as an input whose fetch ended
    after the last task that needed it was given up.
    """
    known = t.lives.get(key)
    if known is not None and known != life:
        if known == UNKNOWN_LIFE:
            t.lives[key] = life
        else:
            mark_users(t, key)
            drop_value(t, key)
    want = t.fetching.wants.get(key)
    if want is not None and want.life != life:
        t.fetching.void(key)


def spare(t: Tables, key: str) -> None:
    """A copy that was to be dropped is of use again: the scheduler thinks that it is gone."""
    if key in t.doomed:
        del t.doomed[key]
        t.outbox.added(key, t.held[key], t.lives[key])


def drop_value(t: Tables, key: str) -> None:
    del t.held[key]
    del t.lives[key]
    t.doomed.pop(key, None)
    t.outbox.drop(key)


def mark_users(t: Tables, key: str) -> None:
    """The runs that use a value must not be adopted: the next value of its key may be another one."""
    if key in t.using:
        for run in t.executing.values():
            if key in run.task.inputs:
                run.intact = False
