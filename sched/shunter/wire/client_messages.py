"""Messages between a client and the scheduler.

Each class is a message: its fields have the types that the receiver may rely on, ``frame()`` lays it out to
be sent, ``parse`` reads it, checked. Columns of one message have equal lengths unless the docstring says
otherwise. Requests that are answered by `Reply` stand in `request_messages`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from shunter.wire.fields import Fields
from shunter.wire.frames import Frame
from shunter.wire.options import TaskOptions, parse_task_options
from shunter.wire.shared_messages import (
    FAILURE_KINDS,
    FailureKind,
    blob_parts,
    column_or_none,
    lengths,
)

__all__ = [
    "Cancel",
    "Cancelled",
    "ClientFinished",
    "Desire",
    "Detach",
    "Erred",
    "Failure",
    "Functions",
    "GraphAbort",
    "GraphBegin",
    "GraphCommit",
    "GraphPart",
    "Lost",
    "Relay",
    "Relayed",
    "Release",
    "Restarted",
    "Retried",
    "Retry",
    "Scattered",
    "SetPriority",
    "Submit",
]


# ------------------------------------------------------------------------------------- client → scheduler


class Functions(NamedTuple):
    """Functions by the client's own small numbers, sent once a connection before their first use."""

    numbers: list[int]
    digests: list[str]
    names: list[str]
    blobs: list[bytes]

    def frame(self) -> Frame:
        return ["functions", self.numbers, self.digests, self.names, lengths(self.blobs)], self.blobs

    @classmethod
    def parse(cls, fields: Fields) -> Functions:
        return cls(fields.integers("f"), fields.keys("digest"), fields.keys("name"), fields.blobs())


class Submit(NamedTuple):
    """A whole graph in running order (inputs first): begun, sent and committed in one.

    ``graph``: the client's number for it. ``parent``: key of the running task that submits. ``functions``:
    number of each task's function. ``option_of``: index into ``options`` for each task, −1 for none.
    ``wanted``: keys, as many as there are; None for all. ``blobs``: argument pickles.
    """

    graph: int
    parent: str | None
    keys: list[str]
    functions: list[int]
    inputs: list[list[str] | None]
    options: list[TaskOptions]
    option_of: list[int]
    wanted: list[str] | None
    blobs: list[bytes]

    def frame(self) -> Frame:
        header = [
            "submit",
            self.graph,
            self.parent,
            self.keys,
            self.functions,
            column_or_none(self.inputs),
            self.options,
            self.option_of if self.options else None,
            self.wanted,
            lengths(self.blobs),
        ]
        return header, self.blobs

    @classmethod
    def parse(cls, fields: Fields) -> Submit:
        graph = fields.integer("graph")
        parent = _key_or_none(fields, "parent")
        keys = fields.keys("key")
        functions = fields.integers("f")
        inputs = fields.key_lists("inputs")
        options = parse_task_options(fields, "options")
        option_of = _option_of(fields, len(options))
        wanted = _keys_or_none(fields, "wanted")
        return cls(graph, parent, keys, functions, inputs, options, option_of, wanted, fields.blobs())


class GraphBegin(NamedTuple):
    """``in_order``: the tasks come in the order in which they should run, so the scheduler computes none."""

    graph: int
    in_order: bool
    parent: str | None

    def frame(self) -> Frame:
        return ["graph-begin", self.graph, self.in_order, self.parent], ()

    @classmethod
    def parse(cls, fields: Fields) -> GraphBegin:
        return cls(fields.integer("graph"), fields.flag("in_order"), _key_or_none(fields, "parent"))


class GraphPart(NamedTuple):
    """Tasks of a graph that was begun. Fields as in `Submit`."""

    graph: int
    keys: list[str]
    functions: list[int]
    inputs: list[list[str] | None]
    options: list[TaskOptions]
    option_of: list[int]
    blobs: list[bytes]

    def frame(self) -> Frame:
        header = [
            "graph-part",
            self.graph,
            self.keys,
            self.functions,
            column_or_none(self.inputs),
            self.options,
            self.option_of if self.options else None,
            lengths(self.blobs),
        ]
        return header, self.blobs

    @classmethod
    def parse(cls, fields: Fields) -> GraphPart:
        graph = fields.integer("graph")
        keys = fields.keys("key")
        functions = fields.integers("f")
        inputs = fields.key_lists("inputs")
        options = parse_task_options(fields, "options")
        return cls(graph, keys, functions, inputs, options, _option_of(fields, len(options)), fields.blobs())


class GraphCommit(NamedTuple):
    """The graph is complete. ``wanted``: keys, or None for all."""

    graph: int
    wanted: list[str] | None

    def frame(self) -> Frame:
        return ["graph-commit", self.graph, self.wanted], ()

    @classmethod
    def parse(cls, fields: Fields) -> GraphCommit:
        return cls(fields.integer("graph"), _keys_or_none(fields, "wanted"))


class GraphAbort(NamedTuple):
    """The client gives up a graph that it has not committed."""

    graph: int

    def frame(self) -> Frame:
        return ["graph-abort", self.graph], ()

    @classmethod
    def parse(cls, fields: Fields) -> GraphAbort:
        return cls(fields.integer("graph"))


class Desire(NamedTuple):
    """The client wants keys that exist already."""

    keys: list[str]

    def frame(self) -> Frame:
        return ["desire", self.keys], ()

    @classmethod
    def parse(cls, fields: Fields) -> Desire:
        return cls(fields.keys("key"))


class Release(NamedTuple):
    """The client wants these keys no longer."""

    keys: list[str]

    def frame(self) -> Frame:
        return ["release", self.keys], ()

    @classmethod
    def parse(cls, fields: Fields) -> Release:
        return cls(fields.keys("key"))


class Detach(NamedTuple):
    """Fire and forget: these keys run to their end even if nobody wants them."""

    keys: list[str]

    def frame(self) -> Frame:
        return ["detach", self.keys], ()

    @classmethod
    def parse(cls, fields: Fields) -> Detach:
        return cls(fields.keys("key"))


class Cancel(NamedTuple):
    """Give up keys and what depends on them. ``force``: even if another client wants them."""

    keys: list[str]
    force: bool

    def frame(self) -> Frame:
        return ["cancel", self.keys, self.force], ()

    @classmethod
    def parse(cls, fields: Fields) -> Cancel:
        return cls(fields.keys("key"), fields.flag("force"))


class Retry(NamedTuple):
    """Run keys again that have erred."""

    keys: list[str]

    def frame(self) -> Frame:
        return ["retry", self.keys], ()

    @classmethod
    def parse(cls, fields: Fields) -> Retry:
        return cls(fields.keys("key"))


class SetPriority(NamedTuple):
    """A larger number runs sooner."""

    keys: list[str]
    priority: float

    def frame(self) -> Frame:
        return ["priority", self.keys, self.priority], ()

    @classmethod
    def parse(cls, fields: Fields) -> SetPriority:
        return cls(fields.keys("key"), fields.number("number"))


class Scattered(NamedTuple):
    """Values that the client has put on workers itself. ``workers``: numbers of the holders, for each key."""

    keys: list[str]
    nbytes: list[int]
    workers: list[list[int]]

    def frame(self) -> Frame:
        return ["scattered", self.keys, self.nbytes, self.workers], ()

    @classmethod
    def parse(cls, fields: Fields) -> Scattered:
        return cls(fields.keys("key"), fields.integers("nbytes"), fields.integer_lists("workers"))


class Relay(NamedTuple):
    """Fetch values of a worker that the client cannot reach through the scheduler; answered by `Relayed`."""

    request: int
    worker: int
    keys: list[str]

    def frame(self) -> Frame:
        return ["relay", self.request, self.worker, self.keys], ()

    @classmethod
    def parse(cls, fields: Fields) -> Relay:
        return cls(fields.integer("request"), fields.integer("worker"), fields.keys("key"))


# ------------------------------------------------------------------------------------- scheduler → client


class ClientFinished(NamedTuple):
    """``blobs``: the pickled result, or None if it was not sent along: fetch it from a holder."""

    keys: list[str]
    nbytes: list[int]
    blobs: list[bytes | None]

    def frame(self) -> Frame:
        return ["finished", self.keys, self.nbytes, lengths(self.blobs)], blob_parts(self.blobs)

    @classmethod
    def parse(cls, fields: Fields) -> ClientFinished:
        return cls(fields.keys("key"), fields.integers("nbytes"), fields.blobs_or_none())


class Failure(NamedTuple):
    """Why a task failed.

    ``key``: the task to blame. ``types``: qualified names of the exception's classes by MRO. ``fields``: plain
    values that the text speaks of. ``data``: the pickled exception, or None.
    """

    kind: FailureKind
    key: str
    text: str
    traceback: str
    types: list[str]
    fields: dict[str, object]
    data: bytes | None


class Erred(NamedTuple):
    """``failure_of``: for each key an index into ``failures`` (whose number is another)."""

    keys: list[str]
    failure_of: list[int]
    failures: list[Failure]

    def frame(self) -> Frame:
        blobs = [each.data for each in self.failures]
        failures = [list(each[:-1]) for each in self.failures]
        return ["erred", self.keys, self.failure_of, failures, lengths(blobs)], blob_parts(blobs)

    @classmethod
    def parse(cls, fields: Fields) -> Erred:
        keys, failure_of = fields.keys("key"), fields.integers("failure index")
        fields.group()
        rows = fields.column("failure")
        blobs = fields.blobs_or_none()
        if failure_of and max(failure_of) >= len(rows):
            fields.fail("failure index", f"below {len(rows)}, the number of failures", max(failure_of))
        return cls(keys, failure_of, [_failure(fields, row, data) for row, data in zip(rows, blobs)])


class Lost(NamedTuple):
    """Finished values are gone and are being computed again: the keys are pending once more."""

    keys: list[str]

    def frame(self) -> Frame:
        return ["lost", self.keys], ()

    @classmethod
    def parse(cls, fields: Fields) -> Lost:
        return cls(fields.keys("key"))


class Retried(NamedTuple):
    """Keys that had erred are pending again."""

    keys: list[str]

    def frame(self) -> Frame:
        return ["retried", self.keys], ()

    @classmethod
    def parse(cls, fields: Fields) -> Retried:
        return cls(fields.keys("key"))


class Cancelled(NamedTuple):
    """These keys will not be computed; one reason each, for people."""

    keys: list[str]
    reasons: list[str]

    def frame(self) -> Frame:
        return ["cancelled", self.keys, self.reasons], ()

    @classmethod
    def parse(cls, fields: Fields) -> Cancelled:
        return cls(fields.keys("key"), fields.texts("reason"))


class Restarted(NamedTuple):
    """Everything was cancelled; the client's futures are void."""

    def frame(self) -> Frame:
        return ["restarted"], ()

    @classmethod
    def parse(cls, fields: Fields) -> Restarted:
        return cls()


class Relayed(NamedTuple):
    """The answer to a `Relay`. ``values``: the parts of each value. ``error``: text, "" if ``ok``."""

    request: int
    ok: bool
    error: str
    keys: list[str]
    values: list[list[bytes]]

    def frame(self) -> Frame:
        lens = [[len(part) for part in value] for value in self.values]
        parts = [part for value in self.values for part in value]
        return ["relayed", self.request, self.ok, self.error, self.keys, lens], parts

    @classmethod
    def parse(cls, fields: Fields) -> Relayed:
        request, ok, error = fields.integer("request"), fields.flag("ok"), fields.text("error")
        return cls(request, ok, error, fields.keys("key"), fields.blob_lists())


# ------------------------------------------------------------------------------------------------- parts


def _key_or_none(fields: Fields, name: str) -> str | None:
    return fields.take(name) if fields.peek() is None else fields.key(name)


def _keys_or_none(fields: Fields, name: str) -> list[str] | None:
    return fields.take(name) if fields.peek() is None else fields.key_list(name)


def _option_of(fields: Fields, options: int) -> list[int]:
    if fields.peek() is None:
        fields.take("option_of")
        return [-1] * fields.rows
    column = fields.integers("option_of", low=-1)
    if column and max(column) >= options:
        fields.fail("option_of", f"below {options}, the number of options", max(column))
    return column


def _failure(fields: Fields, row: Any, data: bytes | None) -> Failure:
    if type(row) is not list:
        fields.fail("failure", "a list of lists", row)
    inner = fields.inner(row)
    return Failure(
        cast("FailureKind", inner.word("failure.kind", FAILURE_KINDS)),
        inner.key("failure.key"),
        inner.text("failure.text"),
        inner.text("failure.traceback"),
        inner.key_list("failure.types"),
        inner.plain_mapping("failure.fields"),
        data,
    )
