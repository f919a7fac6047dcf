"""Failures, as they come over the wire, turned back into exceptions."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import Final

from shunter.client.table import Entry
from shunter.errors import (
    GraphError,
    KilledWorker,
    LostInput,
    NoSuitableWorker,
    RemoteError,
    SchedulingError,
    UsageError,
)
from shunter.serialize import RemoteTraceback, load_exception
from shunter.wire.messages import Failure

__all__ = ["cancelled_error", "exception_of", "to_exception"]

_SCHEDULING: Final[dict[str, type[SchedulingError]]] = {
    "killed-worker": KilledWorker,
    "no-worker": NoSuitableWorker,
    "graph": GraphError,
    "lost-input": LostInput,
}


def exception_of(entry: Entry) -> Exception | None:
    """Why an entry has no result, as a fresh exception; None if it has one.

    Fresh each time, because a raised exception refers to the frames it passed, and those to the future: kept in
    the entry, that would be a cycle which keeps the result in the cluster until the garbage collector comes.
    A cancelled entry gives a ``CancelledError`` with the reason.
    """
    error = entry.error
    if isinstance(error, Failure):
        return to_exception(error, entry.key)
    if isinstance(error, str):
        return cancelled_error(entry.key, error)
    if error is not None:
        return type(error)(*error.args)
    return None


def cancelled_error(key: str, reason: str) -> CancelledError:
    """The standard library's class, with a reason."""
    return CancelledError(f"{key!r}: {reason or 'cancelled'}")


def to_exception(failure: Failure, key: str) -> Exception:
    """The exception that ``result()`` raises for a failure.

    Args:
        failure: as it came.
        key: the task that was asked for; the failure may be that of one of its inputs.
    """
    scheduling = _SCHEDULING.get(failure.kind)
    if scheduling is not None:
        return _with_cause(scheduling(failure.text), failure.traceback)
    if failure.kind == "serialization":
        return _with_cause(UsageError(failure.text), failure.traceback)
    if failure.kind != "exception":  # a newer scheduler
        return RemoteError(failure.kind, failure.text, failure.traceback)
    traceback = failure.traceback
    if failure.key != key:
        traceback = f"{traceback.rstrip()}\n(raised by {failure.key!r}, which {key!r} needs)\n"
    type_name = failure.types[0] if failure.types else "exception"
    return load_exception(failure.data, type_name, failure.text, traceback)


def _with_cause(error: Exception, traceback: str) -> Exception:
    if traceback:
        error.__cause__ = RemoteTraceback(traceback)
    return error
