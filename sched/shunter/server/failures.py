"""Failures as they travel to clients. Many tasks often share one (the task that they depend on): it is told once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from shunter.server.columns import as_text, weight
from shunter.state import Failure, ReportErred
from shunter.wire import messages

#: Most keys in one message.
KEYS_MAX: Final = 1_000


def erred_messages(report: ReportErred, cut_at: int) -> Iterator[messages.Erred]:
    """The report, cut into messages of about ``cut_at`` bytes; each repeats the failures that it speaks of."""
    keys: list[str] = []
    failure_of: list[int] = []
    told: dict[Failure, int] = {}
    nbytes = 0
    for key, failure in zip(as_text(report.keys), report.failures):
        size = weight(key) + 8 + (0 if failure in told else size_of(failure))
        if keys and (nbytes + size > cut_at or len(keys) >= KEYS_MAX):
            yield messages.Erred(keys, failure_of, [as_message(each) for each in told])
            keys, failure_of, told, nbytes = [], [], {}, 0
            size = weight(key) + 8 + size_of(failure)
        keys.append(key)
        failure_of.append(told.setdefault(failure, len(told)))
        nbytes += size
    if keys:
        yield messages.Erred(keys, failure_of, [as_message(each) for each in told])


def as_message(failure: Failure) -> messages.Failure:
    return messages.Failure(
        failure.kind,
        cast("str", failure.key),
        failure.text,
        failure.traceback,
        failure.types,
        failure.fields,
        cast("bytes | None", failure.data),
    )


def size_of(failure: Failure) -> int:
    """About how many bytes a failure takes in a message."""
    texts = weight(failure.text) + weight(failure.traceback) + sum(map(weight, failure.types))
    data = cast("bytes | None", failure.data)
    return texts + weight(repr(failure.fields)) + (0 if data is None else len(data)) + 64
