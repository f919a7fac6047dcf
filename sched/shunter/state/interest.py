"""Sole writer of who wants what: ``ts.wanter``, ``ts.wanters``, ``cs.wants`` and ``cs.children``."""

from __future__ import annotations

from shunter.state.model import ClientState, TaskState
from shunter.state.names import Key


def want(ts: TaskState, cs: ClientState) -> bool:
    """The client wants the task's value. False if it did already."""
    if ts in cs.wants:
        return False
    cs.wants[ts] = None
    if ts.wanter is None:
        ts.wanter = cs
    elif ts.wanters is None:
        ts.wanters = {cs: None}
    else:
        ts.wanters[cs] = None
    return True


def note_parent(ts: TaskState, cs: ClientState, parent: Key) -> None:
    """The client wants it because a task that runs has submitted it."""
    if cs.children is None:
        cs.children = {}
    cs.children[ts] = parent


def unwant(ts: TaskState, cs: ClientState) -> bool:
    """The client no longer wants it. False if it did not."""
    if ts.wanter is not cs and (ts.wanters is None or cs not in ts.wanters):
        return False
    del cs.wants[ts]
    if not cs.wants:
        cs.wants = {}  # a dict never shrinks by itself
    if cs.children is not None:
        cs.children.pop(ts, None)
        if not cs.children:
            cs.children = None
    if ts.wanter is cs:
        ts.wanter = None
        if ts.wanters is not None:  # keep the invariant: no first wanter, no others
            for other in ts.wanters:
                ts.wanter = other
                break
            if ts.wanter is not None:
                del ts.wanters[ts.wanter]
            if not ts.wanters:
                ts.wanters = None
    elif ts.wanters is not None:
        del ts.wanters[cs]
        if not ts.wanters:
            ts.wanters = None
    return True


def wanters_of(ts: TaskState) -> list[ClientState]:
    found: list[ClientState] = []
    if ts.wanter is not None:
        found.append(ts.wanter)
    if ts.wanters is not None:
        found.extend(ts.wanters)
    return found


def is_needed(ts: TaskState) -> bool:
    """Some client wants it, or some active task waits for it or uses it."""
    return ts.wanter is not None or ts.n_waiters > 0
