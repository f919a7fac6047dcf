"""Sole writer of who holds what: ``ts.holder``, ``ts.holders``, ``ts.nbytes``, ``ws.has_what`` and ``ws.nbytes``.

A worker is a holder only after it said so.
"""

from __future__ import annotations

from shunter.state.model import TaskState, WorkerState


def add_holder(ts: TaskState, ws: WorkerState, *, wanted: bool) -> bool:
    """The worker holds the value, as a wanted copy or as an input that came along. False if known."""
    if ts.holder is ws or (ts.holders is not None and ws in ts.holders):
        return False
    ws.has_what[ts] = wanted
    if ts.nbytes > 0:
        ws.nbytes += ts.nbytes
    if ts.holder is None:
        ts.holder = ws
    elif ts.holders is None:
        ts.holders = {ws: None}
    else:
        ts.holders[ws] = None
    return True


def remove_holder(ts: TaskState, ws: WorkerState) -> bool:
    """The worker no longer holds the value. False if it did not."""
    if ts.holder is not ws and (ts.holders is None or ws not in ts.holders):
        return False
    del ws.has_what[ts]
    if not ws.has_what:
        ws.has_what = {}
    if ts.nbytes > 0:
        ws.nbytes -= ts.nbytes
    if ts.holder is ws:
        ts.holder = None
        if ts.holders is not None:
            for other in ts.holders:
                ts.holder = other
                break
            if ts.holder is not None:
                del ts.holders[ts.holder]
            if not ts.holders:
                ts.holders = None
    elif ts.holders is not None:
        del ts.holders[ws]
        if not ts.holders:
            ts.holders = None
    return True


def set_nbytes(ts: TaskState, nbytes: int) -> None:
    """The size of the value is known, or has changed; the sums of its holders follow."""
    if nbytes == ts.nbytes:
        return
    old = ts.nbytes if ts.nbytes > 0 else 0
    ts.nbytes = nbytes
    delta = (nbytes if nbytes > 0 else 0) - old
    if ts.holder is not None:
        ts.holder.nbytes += delta
        if ts.holders is not None:
            for ws in ts.holders:
                ws.nbytes += delta


def holders_of(ts: TaskState) -> list[WorkerState]:
    found: list[WorkerState] = []
    if ts.holder is not None:
        found.append(ts.holder)
        if ts.holders is not None:
            found.extend(ts.holders)
    return found


def some_holders(ts: TaskState, most: int) -> list[int]:
    """Numbers of at most ``most`` workers that hold the value."""
    found: list[int] = []
    if ts.holder is not None:
        found.append(ts.holder.number)
        if ts.holders is not None:
            for ws in ts.holders:
                if len(found) >= most:
                    break
                found.append(ws.number)
    return found
