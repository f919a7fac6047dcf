"""All messages of the protocol, and one function a direction that reads and checks them.

Sending is ``link.send([message.frame()])``. Reading is, for what a client says, ``from_client(header, body)``: it
returns one of the classes below with fields that can be relied on, or raises PeerError naming the operation,
the field and what was found. Unknown trailing columns are ignored; an unknown operation is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, cast

from shunter.errors import PeerError
from shunter.wire.client_messages import (
    Cancel,
    Cancelled,
    ClientFinished,
    Desire,
    Detach,
    Erred,
    Failure,
    Functions,
    GraphAbort,
    GraphBegin,
    GraphCommit,
    GraphPart,
    Lost,
    Relay,
    Relayed,
    Release,
    Restarted,
    Retried,
    Retry,
    Scattered,
    SetPriority,
    Submit,
)
from shunter.wire.data_messages import Busy, Data, Get, Put, PutFailed, Stored
from shunter.wire.fields import Fields, excerpt
from shunter.wire.options import RunOptions, TaskOptions
from shunter.wire.request_messages import (
    DATASET_DATA_MAX,
    DATASET_NAME_MAX,
    GetDataset,
    Publish,
    Query,
    Reply,
    Restart,
    Unpublish,
)
from shunter.wire.shared_messages import (
    Closing,
    FailureKind,
    Heartbeat,
    Priority,
    Status,
    TaskInput,
    WorkerStatus,
)
from shunter.wire.worker_messages import (
    Acquire,
    AcquireFailed,
    Added,
    Compute,
    Died,
    Failed,
    Free,
    FunctionWanted,
    Goodbye,
    Held,
    Kill,
    LongRunning,
    Peers,
    Released,
    Remove,
    Rescheduled,
    TakeBack,
    TakenBack,
    WhoHas,
    WhoHasWanted,
    WorkerFinished,
    WorkerFunctions,
    WorkerGone,
    WorkerHeartbeat,
)

__all__ = [
    "DATASET_DATA_MAX",
    "DATASET_NAME_MAX",
    "Acquire",
    "AcquireFailed",
    "Added",
    "Busy",
    "Cancel",
    "Cancelled",
    "ClientFinished",
    "Closing",
    "Compute",
    "Data",
    "DataAnswer",
    "DataRequest",
    "Desire",
    "Detach",
    "Died",
    "Erred",
    "Failed",
    "Failure",
    "FailureKind",
    "Free",
    "FromClient",
    "FromParent",
    "FromWorker",
    "FunctionWanted",
    "Functions",
    "Get",
    "GetDataset",
    "Goodbye",
    "GraphAbort",
    "GraphBegin",
    "GraphCommit",
    "GraphPart",
    "Heartbeat",
    "Held",
    "Kill",
    "LongRunning",
    "Lost",
    "Peers",
    "Priority",
    "Publish",
    "Put",
    "PutFailed",
    "Query",
    "Relay",
    "Relayed",
    "Release",
    "Released",
    "Remove",
    "Reply",
    "Rescheduled",
    "Restart",
    "Restarted",
    "Retried",
    "Retry",
    "RunOptions",
    "Scattered",
    "SetPriority",
    "Status",
    "Stored",
    "Submit",
    "TakeBack",
    "TakenBack",
    "TaskInput",
    "TaskOptions",
    "ToClient",
    "ToParent",
    "ToWorker",
    "Unpublish",
    "WhoHas",
    "WhoHasWanted",
    "WorkerFinished",
    "WorkerFunctions",
    "WorkerGone",
    "WorkerHeartbeat",
    "WorkerStatus",
    "data_answer",
    "data_request",
    "from_client",
    "from_parent",
    "from_scheduler_to_client",
    "from_scheduler_to_worker",
    "from_worker",
    "to_parent",
]

FromClient: TypeAlias = (
    Functions
    | Submit
    | GraphBegin
    | GraphPart
    | GraphCommit
    | GraphAbort
    | Desire
    | Release
    | Detach
    | Cancel
    | Retry
    | SetPriority
    | Scattered
    | Query
    | Restart
    | Publish
    | Unpublish
    | GetDataset
    | Relay
    | Heartbeat
)
ToClient: TypeAlias = (
    ClientFinished | Erred | Lost | Retried | Cancelled | Restarted | Reply | Relayed | Heartbeat | Closing
)
ToWorker: TypeAlias = (
    WorkerFunctions
    | Peers
    | Compute
    | Free
    | Remove
    | Acquire
    | WhoHas
    | TakeBack
    | WorkerGone
    | Status
    | Heartbeat
    | Closing
)
FromWorker: TypeAlias = (
    WorkerFinished
    | Failed
    | Rescheduled
    | LongRunning
    | Held
    | Added
    | AcquireFailed
    | Released
    | WhoHasWanted
    | TakenBack
    | FunctionWanted
    | Status
    | WorkerHeartbeat
    | Goodbye
)
FromParent: TypeAlias = Died | Heartbeat
ToParent: TypeAlias = Kill | Heartbeat | Closing
DataRequest: TypeAlias = Get | Put
DataAnswer: TypeAlias = Data | Busy | Stored | PutFailed

_Table: TypeAlias = Mapping[str, Callable[[Fields], object]]

_FROM_CLIENT: Final[_Table] = {
    "functions": Functions.parse,
    "submit": Submit.parse,
    "graph-begin": GraphBegin.parse,
    "graph-part": GraphPart.parse,
    "graph-commit": GraphCommit.parse,
    "graph-abort": GraphAbort.parse,
    "desire": Desire.parse,
    "release": Release.parse,
    "detach": Detach.parse,
    "cancel": Cancel.parse,
    "retry": Retry.parse,
    "priority": SetPriority.parse,
    "scattered": Scattered.parse,
    "query": Query.parse,
    "restart": Restart.parse,
    "publish": Publish.parse,
    "unpublish": Unpublish.parse,
    "get-dataset": GetDataset.parse,
    "relay": Relay.parse,
    "heartbeat": Heartbeat.parse,
}
_TO_CLIENT: Final[_Table] = {
    "finished": ClientFinished.parse,
    "erred": Erred.parse,
    "lost": Lost.parse,
    "retried": Retried.parse,
    "cancelled": Cancelled.parse,
    "restarted": Restarted.parse,
    "reply": Reply.parse,
    "relayed": Relayed.parse,
    "heartbeat": Heartbeat.parse,
    "closing": Closing.parse,
}
_TO_WORKER: Final[_Table] = {
    "functions": WorkerFunctions.parse,
    "peers": Peers.parse,
    "compute": Compute.parse,
    "free": Free.parse,
    "remove": Remove.parse,
    "acquire": Acquire.parse,
    "who-has": WhoHas.parse,
    "take-back": TakeBack.parse,
    "worker-gone": WorkerGone.parse,
    "status": Status.parse,
    "heartbeat": Heartbeat.parse,
    "closing": Closing.parse,
}
_FROM_WORKER: Final[_Table] = {
    "finished": WorkerFinished.parse,
    "failed": Failed.parse,
    "rescheduled": Rescheduled.parse,
    "long-running": LongRunning.parse,
    "held": Held.parse,
    "added": Added.parse,
    "acquire-failed": AcquireFailed.parse,
    "released": Released.parse,
    "who-has": WhoHasWanted.parse,
    "taken-back": TakenBack.parse,
    "function": FunctionWanted.parse,
    "status": Status.parse,
    "heartbeat": WorkerHeartbeat.parse,
    "goodbye": Goodbye.parse,
}
_FROM_PARENT: Final[_Table] = {"died": Died.parse, "heartbeat": Heartbeat.parse}
_TO_PARENT: Final[_Table] = {"kill": Kill.parse, "heartbeat": Heartbeat.parse, "closing": Closing.parse}
_DATA_REQUEST: Final[_Table] = {"get": Get.parse, "put": Put.parse}
_DATA_ANSWER: Final[_Table] = {
    "data": Data.parse,
    "busy": Busy.parse,
    "stored": Stored.parse,
    "failed": PutFailed.parse,
}


def from_client(header: list[object], body: bytes) -> FromClient:
    """Read what a client says to the scheduler."""
    return cast("FromClient", _parse(_FROM_CLIENT, header, body))


def from_scheduler_to_client(header: list[object], body: bytes) -> ToClient:
    """Read what the scheduler says to a client."""
    return cast("ToClient", _parse(_TO_CLIENT, header, body))


def from_worker(header: list[object], body: bytes) -> FromWorker:
    """Read what a worker says to the scheduler."""
    return cast("FromWorker", _parse(_FROM_WORKER, header, body))


def from_scheduler_to_worker(header: list[object], body: bytes) -> ToWorker:
    """Read what the scheduler says to a worker."""
    return cast("ToWorker", _parse(_TO_WORKER, header, body))


def from_parent(header: list[object], body: bytes) -> FromParent:
    """Read what the parent of worker processes says to the scheduler."""
    return cast("FromParent", _parse(_FROM_PARENT, header, body))


def to_parent(header: list[object], body: bytes) -> ToParent:
    """Read what the scheduler says to the parent of worker processes."""
    return cast("ToParent", _parse(_TO_PARENT, header, body))


def data_request(header: list[object]) -> DataRequest:
    """Read a request on a data connection."""
    return cast("DataRequest", _parse(_DATA_REQUEST, header, b""))


def data_answer(header: list[object]) -> DataAnswer:
    """Read an answer on a data connection."""
    return cast("DataAnswer", _parse(_DATA_ANSWER, header, b""))


def _parse(table: _Table, header: list[object], body: bytes) -> object:
    op = header[0] if header else None
    parse = table.get(op) if type(op) is str else None
    if parse is None:
        raise PeerError(f"unknown operation {excerpt(op)}; known here: {', '.join(table)}")
    fields = Fields(header, body)
    message = parse(fields)
    fields.finish()
    return message
