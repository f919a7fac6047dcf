"""Events as rows of plain data, and back: ``["TasksFinished", 3, ["x-1"], …]``.

A row is the name of the event and its fields in the order of `EVENTS`, which is the order of its constructor. A test
holds this table against the classes, so an event that gains a field cannot be forgotten here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast, get_args

from shunter.recording.sorts import (
    BOOL,
    FACTS,
    INT,
    KEY,
    NOTES,
    OPAQUE,
    REAL,
    TEXT,
    Malformed,
    Sort,
    as_list,
    clipped,
    column,
    dict_of,
    list_of,
    maybe,
    record,
    shared_column,
    word,
)
from shunter.state import (
    AcquireFailed,
    ClientAdded,
    ClientDesiresKeys,
    ClientReleasesKeys,
    ClientRemoved,
    DataReleased,
    DataScattered,
    DatasetPublished,
    DatasetRequested,
    DatasetUnpublished,
    Event,
    Failure,
    FailureKind,
    GraphAborted,
    GraphBegin,
    GraphCommit,
    GraphPart,
    Heartbeat,
    KeysAdded,
    KeysCancelled,
    KeysDetached,
    KeysRetried,
    LongRunning,
    Options,
    PreferencesSet,
    PrioritySet,
    ProposalMade,
    QuestionAsked,
    RebalanceRequested,
    ReplicateRequested,
    RestartRequested,
    RetireRequested,
    TakeBackAnswered,
    TaskFailed,
    TaskRescheduled,
    TasksFinished,
    ThreadsHeld,
    Tick,
    WhoHasRequested,
    WorkerAdded,
    WorkerDied,
    WorkerRemoved,
    WorkerStatus,
    WorkerStatusChanged,
)

__all__ = ["EVENTS", "FAILURE", "OPTIONS", "RECORDS_IN", "Malformed", "from_row", "names_of", "to_row"]

KEYS: Final = list_of(KEY)
INTS: Final = list_of(INT)
TEXTS: Final = list_of(TEXT)
AMOUNTS: Final = dict_of(REAL)

OPTIONS: Final = {
    "priority": REAL,
    "retries": INT,
    "retry_on": maybe(TEXTS),
    "retry_delay": REAL,
    "retry_elsewhere": BOOL,
    "workers": maybe(TEXTS),
    "allow_other_workers": BOOL,
    "resources": maybe(AMOUNTS),
    "stealable": BOOL,
    "limit": maybe(TEXT),
    "timeout": maybe(REAL),
    "memory": INT,
    "annotations": maybe(NOTES),
}
FAILURE: Final = {
    "kind": word(get_args(FailureKind)),
    "key": KEY,
    "text": TEXT,
    "traceback": TEXT,
    "types": TEXTS,
    "data": maybe(OPAQUE),
    "fields": FACTS,
}
KEYS_OF_CLIENT: Final = {"client": INT, "keys": KEYS}
KEYS_OF_WORKER: Final = {"worker": INT, "keys": KEYS}

#: The fields of each event.
EVENTS: Final[Mapping[type[Event], Mapping[str, Sort]]] = {
    GraphBegin: {"client": INT, "graph": INT, "in_order": BOOL, "parent": KEY},
    GraphPart: {
        "client": INT,
        "graph": INT,
        "keys": column(KEY),
        "specs": column(OPAQUE),
        "kinds": shared_column(TEXT),
        "inputs": column(maybe(KEYS)),
        "options": shared_column(record(Options, OPTIONS)),
        "kind_names": dict_of(TEXT),
    },
    GraphCommit: {"client": INT, "graph": INT, "wanted": maybe(KEYS)},
    GraphAborted: {"client": INT, "graph": INT},
    ClientAdded: {"client": INT, "name": TEXT},
    ClientRemoved: {"client": INT},
    ClientDesiresKeys: KEYS_OF_CLIENT,
    ClientReleasesKeys: KEYS_OF_CLIENT,
    KeysCancelled: {**KEYS_OF_CLIENT, "force": BOOL},
    KeysRetried: KEYS_OF_CLIENT,
    PrioritySet: {**KEYS_OF_CLIENT, "priority": REAL},
    DataScattered: {"client": INT, "keys": column(KEY), "nbytes": column(INT), "holders": column(INTS)},
    KeysDetached: KEYS_OF_CLIENT,
    DatasetPublished: {
        "client": INT,
        "request": INT,
        "name": TEXT,
        "keys": KEYS,
        "data": OPAQUE,
        "replace": BOOL,
    },
    DatasetUnpublished: {"client": INT, "request": INT, "name": TEXT},
    DatasetRequested: {"client": INT, "request": INT, "name": TEXT},
    QuestionAsked: {"client": INT, "question": INT},
    WorkerAdded: {
        "worker": INT,
        "address": TEXT,
        "name": TEXT,
        "host": TEXT,
        "nthreads": INT,
        "memory_limit": INT,
        "resources": AMOUNTS,
        "has_parent": BOOL,
    },
    WorkerRemoved: {"worker": INT, "reason": TEXT, "expected": BOOL},
    WorkerDied: {"worker": INT, "cause": TEXT, "started": INTS},
    WorkerStatusChanged: {"worker": INT, "status": word(get_args(WorkerStatus))},
    Heartbeat: {"worker": INT, "process": INT, "spilled": INT, "cpu": REAL},
    TasksFinished: {
        "worker": INT,
        "keys": column(KEY),
        "run_ids": column(INT),
        "nbytes": column(INT),
        "starts": column(REAL),
        "durations": column(REAL),
        "threads": column(INT),
        "types": shared_column(TEXT),
        "data": column(maybe(OPAQUE)),
    },
    TaskFailed: {
        "worker": INT,
        "key": KEY,
        "run_id": INT,
        "failure": record(Failure, FAILURE),
        "start": REAL,
        "duration": REAL,
        "thread": INT,
    },
    TaskRescheduled: {"worker": INT, "key": KEY, "run_id": INT},
    LongRunning: {"worker": INT, "key": KEY, "run_id": INT, "duration": REAL},
    ThreadsHeld: {"worker": INT, "count": INT},
    KeysAdded: {"worker": INT, "keys": column(KEY), "nbytes": column(INT), "lives": column(INT)},
    AcquireFailed: KEYS_OF_WORKER,
    DataReleased: KEYS_OF_WORKER,
    WhoHasRequested: {**KEYS_OF_WORKER, "failed": INTS},
    TakeBackAnswered: {"worker": INT, "asked": INTS, "given": INTS},
    RestartRequested: {"client": INT, "request": INT, "timeout": REAL},
    RebalanceRequested: {"client": INT, "request": INT, "keys": maybe(KEYS), "workers": maybe(INTS)},
    ReplicateRequested: {
        "client": INT,
        "request": INT,
        "keys": KEYS,
        "copies": INT,
        "workers": maybe(INTS),
    },
    RetireRequested: {"client": INT, "request": INT, "workers": INTS, "deadline": REAL},
    ProposalMade: {"plugin": TEXT, "proposal": TEXT, "arguments": FACTS},
    PreferencesSet: {"kind": TEXT, "weights": AMOUNTS, "expires": REAL},
    Tick: {},
}

#: Records that are fields of events.
RECORDS_IN: Final = {"Options": "GraphPart", "Failure": "TaskFailed"}

_Write = Callable[[Any], object] | None

_WRITERS: Final[dict[type[Event], tuple[str, tuple[tuple[str, _Write], ...]]]] = {
    cls: (cls.__name__, tuple((name, sort.write) for name, sort in fields.items()))
    for cls, fields in EVENTS.items()
}
_READERS: Final = {cls.__name__: record(cls, fields) for cls, fields in EVENTS.items()}


def names_of() -> dict[str, list[str]]:
    """The fields of each sort of row, and of the records inside: this goes into the header of a recording."""
    names = {cls.__name__: list(fields) for cls, fields in EVENTS.items()}
    return {**names, "Options": list(OPTIONS), "Failure": list(FAILURE)}


def to_row(event: Event) -> list[object]:
    """An event as plain data that JSON can say.

    Raises:
        KeyError: an event that is not in the table.
    """
    cls, fields = _WRITERS[type(event)]
    row: list[object] = [cls]
    for name, write in fields:
        value = getattr(event, name)
        row.append(value if write is None else write(value))
    return row


def from_row(row: object) -> Event:
    """The event that a row stands for.

    Raises:
        Malformed: it stands for none; the text names the field.
    """
    name, *values = as_list(row) or [None]
    reader = _READERS.get(name) if isinstance(name, str) else None
    if reader is None:
        raise Malformed(f"there is no event {clipped(name)}")
    try:
        return cast("Event", reader.read(values))
    except Malformed as error:
        raise Malformed(f"{name}: {error}") from None
