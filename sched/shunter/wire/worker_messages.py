"""Messages between a worker, or a parent of worker processes, and the scheduler. See `client_messages` first."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from shunter.wire.fields import INT_MAX, INT_MIN, Fields
from shunter.wire.frames import Frame
from shunter.wire.options import RunOptions, parse_run_options
from shunter.wire.shared_messages import (
    FAILURE_KINDS,
    FailureKind,
    Priority,
    TaskInput,
    blob_parts,
    collapse,
    column_or_none,
    lengths,
)

__all__ = [
    "Acquire",
    "AcquireFailed",
    "Added",
    "Compute",
    "Died",
    "Failed",
    "Free",
    "FunctionWanted",
    "Goodbye",
    "Held",
    "Kill",
    "LongRunning",
    "Peers",
    "Released",
    "Remove",
    "Rescheduled",
    "TakeBack",
    "TakenBack",
    "WhoHas",
    "WhoHasWanted",
    "WorkerFinished",
    "WorkerFunctions",
    "WorkerGone",
    "WorkerHeartbeat",
]

# ------------------------------------------------------------------------------------- scheduler → worker


class WorkerFunctions(NamedTuple):
    """Functions by the scheduler's numbers, sent once a connection before the first task that uses them."""

    numbers: list[int]
    names: list[str]
    blobs: list[bytes]

    def frame(self) -> Frame:
        return ["functions", self.numbers, self.names, lengths(self.blobs)], self.blobs

    @classmethod
    def parse(cls, fields: Fields) -> WorkerFunctions:
        return cls(fields.integers("f"), fields.keys("name"), fields.blobs())


class Peers(NamedTuple):
    """Where workers can be reached, sent before their first mention."""

    numbers: list[int]
    addresses: list[str]

    def frame(self) -> Frame:
        return ["peers", self.numbers, self.addresses], ()

    @classmethod
    def parse(cls, fields: Fields) -> Peers:
        return cls(fields.integers("number"), fields.keys("address"))


class Compute(NamedTuple):
    """Run these tasks. All fields have one entry a task.

    ``inline_max``: the largest result, in bytes, to send back along with the report; 0 for none. ``lives``: a key that
    is submitted again after it was forgotten has a larger one. ``blobs``: argument pickles.
    """

    keys: list[str]
    run_ids: list[int]
    functions: list[int]
    priorities: list[Priority]
    inputs: list[list[TaskInput] | None]
    options: list[RunOptions | None]
    inline_max: list[int]
    lives: list[int]
    blobs: list[bytes]

    def frame(self) -> Frame:
        header = [
            "compute",
            self.keys,
            self.run_ids,
            self.functions,
            [collapse(each) for each in zip(*self.priorities)] or [[], [], [], []],
            column_or_none(self.inputs),
            column_or_none(self.options),
            collapse(self.inline_max),
            self.lives,
            lengths(self.blobs),
        ]
        return header, self.blobs

    @classmethod
    def parse(cls, fields: Fields) -> Compute:
        return cls(
            fields.keys("key"),
            fields.integers("run_id"),
            fields.integers("f"),
            _priorities(fields),
            _inputs(fields),
            parse_run_options(fields, "options"),
            fields.constant_or_integers("inline_max"),
            fields.integers("life"),
            fields.blobs(),
        )


class Free(NamedTuple):
    """Stop wanting these keys: drop the value, or give up the run if it has not started."""

    keys: list[str]

    def frame(self) -> Frame:
        return ["free", self.keys], ()

    @classmethod
    def parse(cls, fields: Fields) -> Free:
        return cls(fields.keys("key"))


class Remove(NamedTuple):
    """Drop these copies. Never refused; the worker waits for a running task that uses one."""

    keys: list[str]

    def frame(self) -> Frame:
        return ["remove", self.keys], ()

    @classmethod
    def parse(cls, fields: Fields) -> Remove:
        return cls(fields.keys("key"))


class Acquire(NamedTuple):
    """Fetch copies of these keys; answered by `Added` or `AcquireFailed`."""

    keys: list[str]
    nbytes: list[int]
    lives: list[int]
    holders: list[list[int]]

    def frame(self) -> Frame:
        return ["acquire", self.keys, self.nbytes, self.lives, self.holders], ()

    @classmethod
    def parse(cls, fields: Fields) -> Acquire:
        return cls(
            fields.keys("key"),
            fields.integers("nbytes"),
            fields.integers("life"),
            fields.integer_lists("holder"),
        )


class WhoHas(NamedTuple):
    """Fresh holders of keys that the worker asked for; an empty list: nobody holds it now."""

    keys: list[str]
    holders: list[list[int]]

    def frame(self) -> Frame:
        return ["who-has", self.keys, self.holders], ()

    @classmethod
    def parse(cls, fields: Fields) -> WhoHas:
        return cls(fields.keys("key"), fields.integer_lists("holder"))


class TakeBack(NamedTuple):
    """Give up the runs among these that have not started; answered by `TakenBack`."""

    run_ids: list[int]

    def frame(self) -> Frame:
        return ["take-back", self.run_ids], ()

    @classmethod
    def parse(cls, fields: Fields) -> TakeBack:
        return cls(fields.integers("run_id"))


class WorkerGone(NamedTuple):
    """A peer of this worker is gone: forget what it held."""

    number: int

    def frame(self) -> Frame:
        return ["worker-gone", self.number], ()

    @classmethod
    def parse(cls, fields: Fields) -> WorkerGone:
        return cls(fields.integer("number"))


# ------------------------------------------------------------------------------------- worker → scheduler


class WorkerFinished(NamedTuple):
    """Results are stored.

    ``starts``: the worker's wall clock, seconds; ``durations``: seconds; ``threads``: numbers; ``types``:
    qualified type names; ``blobs``: the pickled result if it is small enough, else None.
    """

    keys: list[str]
    run_ids: list[int]
    nbytes: list[int]
    starts: list[float]
    durations: list[float]
    threads: list[int]
    types: list[str]
    blobs: list[bytes | None]

    def frame(self) -> Frame:
        header: list[object] = [
            "finished",
            self.keys,
            self.run_ids,
            self.nbytes,
            self.starts,
            self.durations,
            self.threads,
            self.types,
            lengths(self.blobs),
        ]
        return header, blob_parts(self.blobs)

    @classmethod
    def parse(cls, fields: Fields) -> WorkerFinished:
        return cls(
            fields.keys("key"),
            fields.integers("run_id"),
            fields.integers("nbytes"),
            fields.numbers("start"),
            fields.numbers("duration", low=0),
            fields.integers("thread"),
            fields.keys("type name"),
            fields.blobs_or_none(),
        )


class Failed(NamedTuple):
    """A task failed. ``types``: qualified names of the exception's classes by MRO; ``data``: its pickle."""

    key: str
    run_id: int
    start: float
    duration: float
    thread: int
    kind: FailureKind
    text: str
    traceback: str
    types: list[str]
    data: bytes | None

    def frame(self) -> Frame:
        failure = [self.kind, self.text, self.traceback, self.types]
        header = ["failed", self.key, self.run_id, self.start, self.duration, self.thread, failure]
        return [*header, lengths([self.data])], blob_parts([self.data])

    @classmethod
    def parse(cls, fields: Fields) -> Failed:
        key, run_id = fields.key("key"), fields.integer("run_id")
        start, duration = fields.number("start"), fields.number("duration", 0)
        thread = fields.integer("thread")
        failure = fields.inner(fields.items("failure"))
        kind = cast("FailureKind", failure.word("failure.kind", FAILURE_KINDS))
        text, traceback = failure.text("failure.text"), failure.text("failure.traceback")
        types = failure.key_list("failure.types")
        blobs = fields.blobs_or_none()
        if len(blobs) != 1:
            fields.fail("lens", "one length", blobs)
        return cls(key, run_id, start, duration, thread, kind, text, traceback, types, blobs[0])


class Rescheduled(NamedTuple):
    """The task itself asks to be run again, on any worker."""

    key: str
    run_id: int

    def frame(self) -> Frame:
        return ["rescheduled", self.key, self.run_id], ()

    @classmethod
    def parse(cls, fields: Fields) -> Rescheduled:
        return cls(fields.key("key"), fields.integer("run_id"))


class LongRunning(NamedTuple):
    """The task gave its thread back and goes on; ``duration``: seconds it had run by then."""

    key: str
    run_id: int
    duration: float

    def frame(self) -> Frame:
        return ["long-running", self.key, self.run_id, self.duration], ()

    @classmethod
    def parse(cls, fields: Fields) -> LongRunning:
        return cls(fields.key("key"), fields.integer("run_id"), fields.number("duration", 0))


class Held(NamedTuple):
    """So many threads run tasks that were given up; nothing can stop them."""

    threads: int

    def frame(self) -> Frame:
        return ["held", self.threads], ()

    @classmethod
    def parse(cls, fields: Fields) -> Held:
        return cls(fields.integer("threads"))


class Added(NamedTuple):
    """The worker now holds copies of these keys, fetched as inputs or acquired on request."""

    keys: list[str]
    nbytes: list[int]
    lives: list[int]

    def frame(self) -> Frame:
        return ["added", self.keys, self.nbytes, self.lives], ()

    @classmethod
    def parse(cls, fields: Fields) -> Added:
        return cls(fields.keys("key"), fields.integers("nbytes"), fields.integers("life"))


class AcquireFailed(NamedTuple):
    """These could be fetched from none of the holders that `Acquire` named."""

    keys: list[str]

    def frame(self) -> Frame:
        return ["acquire-failed", self.keys], ()

    @classmethod
    def parse(cls, fields: Fields) -> AcquireFailed:
        return cls(fields.keys("key"))


class Released(NamedTuple):
    """The worker no longer holds these keys, and was not asked to drop them."""

    keys: list[str]

    def frame(self) -> Frame:
        return ["released", self.keys], ()

    @classmethod
    def parse(cls, fields: Fields) -> Released:
        return cls(fields.keys("key"))


class WhoHasWanted(NamedTuple):
    """The worker could fetch these keys from none of the holders it knows.

    ``failed``: numbers of the peers that did not answer, as many as there are.
    """

    keys: list[str]
    failed: list[int]

    def frame(self) -> Frame:
        return ["who-has", self.keys, self.failed], ()

    @classmethod
    def parse(cls, fields: Fields) -> WhoHasWanted:
        return cls(fields.keys("key"), fields.integer_list("failed peer"))


class TakenBack(NamedTuple):
    """``given``: the runs among ``asked`` that had not started and will not."""

    asked: list[int]
    given: list[int]

    def frame(self) -> Frame:
        return ["taken-back", self.asked, self.given], ()

    @classmethod
    def parse(cls, fields: Fields) -> TakenBack:
        return cls(fields.integers("asked run_id"), fields.integer_list("given run_id"))


class FunctionWanted(NamedTuple):
    """Send a function again (it was evicted)."""

    number: int

    def frame(self) -> Frame:
        return ["function", self.number], ()

    @classmethod
    def parse(cls, fields: Fields) -> FunctionWanted:
        return cls(fields.integer("f"))


class WorkerHeartbeat(NamedTuple):
    """``process``: resident bytes; ``spilled``: bytes on disk; ``cpu``: percent of one core."""

    process: int
    spilled: int
    cpu: float

    def frame(self) -> Frame:
        return ["heartbeat", self.process, self.spilled, self.cpu], ()

    @classmethod
    def parse(cls, fields: Fields) -> WorkerHeartbeat:
        return cls(fields.integer("process"), fields.integer("spilled"), fields.number("cpu", 0))


class Goodbye(NamedTuple):
    """The departure that follows is expected."""

    reason: str

    def frame(self) -> Frame:
        return ["goodbye", self.reason], ()

    @classmethod
    def parse(cls, fields: Fields) -> Goodbye:
        return cls(fields.text("reason"))


# ------------------------------------------------------------------------------------- parent ↔ scheduler


class Died(NamedTuple):
    """Parent → scheduler: a worker process has ended.

    ``cause``: text (``signal 9 (SIGKILL)``, ``exit code 3``). ``started``: the runs that had started and not
    finished.
    """

    worker: int
    cause: str
    started: list[int]

    def frame(self) -> Frame:
        return ["died", self.worker, self.cause, self.started], ()

    @classmethod
    def parse(cls, fields: Fields) -> Died:
        return cls(fields.integer("worker"), fields.text("cause"), fields.integer_list("run_id"))


class Kill(NamedTuple):
    """Scheduler → parent: replace this worker's process."""

    worker: int
    reason: str

    def frame(self) -> Frame:
        return ["kill", self.worker, self.reason], ()

    @classmethod
    def parse(cls, fields: Fields) -> Kill:
        return cls(fields.integer("worker"), fields.text("reason"))


# ------------------------------------------------------------------------------------------------- parts


def _priorities(fields: Fields) -> list[Priority]:
    """Four columns, each perhaps collapsed to one number."""
    columns = fields.items("priority")
    if len(columns) != 4:
        fields.fail("priority", "four columns", columns)
    inner = fields.inner([[None] * fields.rows, *columns])
    inner.column("key")  # The columns are as long as this one.
    user, share = inner.constant_or_numbers("priority.user"), inner.constant_or_numbers("priority.share")
    generation = inner.constant_or_integers("priority.generation", INT_MIN)
    order = inner.constant_or_integers("priority.order", INT_MIN)
    return list(zip(user, share, generation, order))


def _inputs(fields: Fields) -> list[list[TaskInput] | None]:
    """A column of null or lists of (key, bytes, holders, life), or null for a column of nulls."""
    if fields.peek() is None:
        fields.take("inputs")
        return [None] * fields.rows
    inputs: list[list[TaskInput] | None] = []
    for rows in fields.column("inputs"):
        if rows is None:
            inputs.append(None)
        elif type(rows) is list:
            inputs.append([_input(fields, each) for each in rows])
        else:
            fields.fail("inputs", "a column of null or lists", rows)
    return inputs


def _input(fields: Fields, row: Any) -> TaskInput:
    if type(row) is not list or len(row) != 4:
        fields.fail("inputs", "made of [key, nbytes, [holder], life]", row)
    key, nbytes, holders, life = row
    if type(key) is not str or not key.isascii():
        fields.check_keys("inputs.key", [key])
    if type(nbytes) is not int or not 0 <= nbytes <= INT_MAX:
        fields.fail("inputs.nbytes", "an integer from 0 to 2**63-1", nbytes)
    if type(holders) is not list:
        fields.fail("inputs.holders", "a list", holders)
    if type(life) is not int or not 0 <= life <= INT_MAX:
        fields.fail("inputs.life", "an integer from 0 to 2**63-1", life)
    return key, nbytes, fields.check_integers("inputs.holders", holders, 0), life
