"""What the machine tells, as messages that fit their frames."""

from __future__ import annotations

import pytest

from shunter.errors import InternalError
from shunter.wire import messages
from shunter.wire.frames import encode
from shunter.worker.instructions import (
    AnswerTakeBack,
    AskFunction,
    AskWhoHas,
    Drop,
    Instruction,
    ReportAcquireFailed,
    ReportAdded,
    ReportFailed,
    ReportFinished,
    ReportLongRunning,
    ReportRescheduled,
    TextFailure,
)
from shunter.worker.reports import ENTRIES_MAX, frames_of
from shunter.worker.threads import TaskFailure


def said(report: Instruction) -> list[messages.FromWorker]:
    """The messages as the scheduler reads them."""
    heard = []
    for header, parts in frames_of(report):
        encode((header, parts))  # Within the limits of frames.
        heard.append(messages.from_worker(header, b"".join(bytes(part) for part in parts)))
    return heard


def finished(n: int, *, key: str = "k", data: bytes | None = None) -> ReportFinished:
    report = ReportFinished()
    for i in range(n):
        report.keys.append(f"{key}{i}")
        report.run_ids.append(i)
        report.nbytes.append(8)
        report.starts.append(1.5)
        report.durations.append(0.25)
        report.threads.append(2)
        report.types.append("builtins.int")
        report.data.append(data)
    return report


def test_few_results__are_one_message() -> None:
    (message,) = said(finished(3, data=b"pickle"))

    assert isinstance(message, messages.WorkerFinished)
    assert message.keys == ["k0", "k1", "k2"]
    assert message.run_ids == [0, 1, 2]
    assert message.blobs == [b"pickle"] * 3


@pytest.mark.parametrize(
    ("n", "key", "data"),
    [(5_000, "k", None), (3_000, "k" * 2_000, None), (1_500, "k", b"x" * 4096), (100, "k", b"x" * 10**6)],
)
def test_many_or_large_results__are_cut_and_nothing_is_lost(n: int, key: str, data: bytes | None) -> None:
    heard = said(finished(n, key=key, data=data))

    assert len(heard) > 1
    keys = [
        each for message in heard if isinstance(message, messages.WorkerFinished) for each in message.keys
    ]
    assert keys == [f"{key}{i}" for i in range(n)]


def test_many_copies_and_questions__are_cut() -> None:
    added = ReportAdded()
    added.keys = [f"k{i}" for i in range(ENTRIES_MAX + 1)]
    added.nbytes = [1] * (ENTRIES_MAX + 1)
    added.lives = [1] * (ENTRIES_MAX + 1)
    assert len(said(added)) == 2

    assert len(said(AskWhoHas(added.keys, [7]))) == 2


def test_failure_of_a_task__travels_as_it_is() -> None:
    failure = TaskFailure("exception", "boom", "Traceback …", ["builtins.ValueError"], b"pickle")

    assert said(ReportFailed("x", 1, failure, 1.0, 2.0, 3)) == [
        messages.Failed(
            "x", 1, 1.0, 2.0, 3, "exception", "boom", "Traceback …", ["builtins.ValueError"], b"pickle"
        )
    ]


def test_failure_found_by_the_machine__has_text_that_can_travel() -> None:
    (message,) = said(
        ReportFailed("x", 1, TextFailure("serialization", "bad \udcff" + "x" * 100_000), 0, 0, 0)
    )

    assert isinstance(message, messages.Failed)
    assert message.text.startswith("bad \\udcff")
    assert len(message.text) < 10_000


def test_single_reports__are_single_messages() -> None:
    lost = ReportAcquireFailed()
    lost.keys = ["x"]
    assert said(lost) == [messages.AcquireFailed(["x"])]
    assert said(ReportRescheduled("x", 1)) == [messages.Rescheduled("x", 1)]
    assert said(ReportLongRunning("x", 1, 0.5)) == [messages.LongRunning("x", 1, 0.5)]
    assert said(AnswerTakeBack([1, 2], [2])) == [messages.TakenBack([1, 2], [2])]
    assert said(AskFunction(5)) == [messages.FunctionWanted(5)]


def test_instruction_for_the_shell__is_no_message() -> None:
    with pytest.raises(InternalError):
        frames_of(Drop())
