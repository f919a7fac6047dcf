"""What the machine tells the scheduler, as messages. Large reports are cut, so that each fits a frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, cast

from shunter.errors import InternalError
from shunter.wire import messages
from shunter.wire.frames import Frame
from shunter.worker.instructions import (
    AnswerTakeBack,
    AskFunction,
    AskWhoHas,
    Instruction,
    ReportAcquireFailed,
    ReportAdded,
    ReportFailed,
    ReportFinished,
    ReportHeld,
    ReportLongRunning,
    ReportRescheduled,
    TextFailure,
)
from shunter.worker.threads import TaskFailure

__all__ = ["frames_of"]

#: Entries, characters of keys, and bytes of data in one message.
ENTRIES_MAX: Final = 1_000
WEIGHT_MAX: Final = 256 * 1024
TEXT_MAX: Final = 8 * 1024


def frames_of(report: Instruction) -> list[Frame]:
    """The messages for one instruction that goes to the scheduler."""
    if isinstance(report, ReportFinished):
        return [_finished(report, part).frame() for part in _parts(report.keys, report.data)]
    if isinstance(report, ReportAdded):
        return [
            messages.Added(report.keys[part], report.nbytes[part], report.lives[part]).frame()
            for part in _parts(report.keys)
        ]
    if isinstance(report, ReportFailed):
        return [_failed(report).frame()]
    if isinstance(report, AnswerTakeBack):
        return [messages.TakenBack(report.asked, report.given).frame()]
    if isinstance(report, AskWhoHas):
        return [
            messages.WhoHasWanted(report.keys[part], report.failed).frame() for part in _parts(report.keys)
        ]
    if isinstance(report, AskFunction):
        return [messages.FunctionWanted(report.function).frame()]
    if isinstance(report, ReportHeld):
        return [messages.Held(report.count).frame()]
    if isinstance(report, ReportLongRunning):
        return [messages.LongRunning(report.key, report.run_id, report.duration).frame()]
    if isinstance(report, ReportRescheduled):
        return [messages.Rescheduled(report.key, report.run_id).frame()]
    if isinstance(report, ReportAcquireFailed):
        return [messages.AcquireFailed(report.keys[part]).frame() for part in _parts(report.keys)]
    raise InternalError(f"no message for {report!r}")


def _finished(report: ReportFinished, part: slice) -> messages.WorkerFinished:
    return messages.WorkerFinished(
        report.keys[part],
        report.run_ids[part],
        report.nbytes[part],
        report.starts[part],
        report.durations[part],
        report.threads[part],
        report.types[part],
        report.data[part],
    )


def _failed(report: ReportFailed) -> messages.Failed:
    failure = report.failure
    if isinstance(failure, TextFailure):
        text = failure.text.encode("utf-8", "backslashreplace").decode()
        failure = TaskFailure(failure.kind, text[:TEXT_MAX], "", [], None)
    assert isinstance(failure, TaskFailure)
    return messages.Failed(
        report.key,
        report.run_id,
        report.start,
        report.duration,
        report.thread,
        cast("messages.FailureKind", failure.kind),  # The machine and the threads use these words only.
        failure.text,
        failure.traceback,
        failure.types,
        failure.data,
    )


def _parts(keys: Sequence[str], data: Sequence[bytes | None] = ()) -> Iterator[slice]:
    """Slices of a report that each make one message."""
    total = sum(map(len, keys)) + sum([len(each) for each in data if each is not None])
    if len(keys) <= ENTRIES_MAX and total <= WEIGHT_MAX:
        yield slice(0, len(keys))  # Nearly always.
        return
    start = weight = 0
    for i, key in enumerate(keys):
        size = len(key) + (len(data[i] or b"") if data else 0)
        if i > start and (i - start >= ENTRIES_MAX or weight + size > WEIGHT_MAX):
            yield slice(start, i)
            start, weight = i, 0
        weight += size
    yield slice(start, len(keys))
