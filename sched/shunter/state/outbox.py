"""Everything that can come out: instructions to peers, and the changes that plugins may watch.

Instructions are commands and reports. Those to one peer are in order; the server writes what it got for one
peer as one piece. Columns of one instruction have equal lengths. Consecutive instructions of one sort to one
peer are merged here, so that a settled batch is one message a peer.
"""

from __future__ import annotations

from typing import TypeAlias, final

from shunter.state.events import Failure, Options
from shunter.state.names import Key, LogLevel, WorkerStatus

__all__ = [
    "AcquireReplicas",
    "AnswerQuestion",
    "Change",
    "ClosePeer",
    "ComputeTasks",
    "FreeKeys",
    "Input",
    "Instruction",
    "KillWorker",
    "Log",
    "Outbox",
    "Outcome",
    "Priority",
    "RemoveReplicas",
    "Reply",
    "ReportCancelled",
    "ReportErred",
    "ReportFinished",
    "ReportLost",
    "ReportRetried",
    "Restarted",
    "SetWorkerStatus",
    "Shutdown",
    "TakeBack",
    "UpdateWhoHas",
    "WorkerGone",
]

#: An input of a task that is sent: (key, bytes, numbers of at most 4 workers that hold it, life of the key).
Input: TypeAlias = tuple[Key, int, list[int], int]
#: Smaller runs sooner: (-user priority, share, generation, order in its graph).
Priority: TypeAlias = tuple[float, float, int, int]


class Instruction:
    """Base of all instructions. ``peer``: the number of the connection it goes to; -1 for the server itself."""

    __slots__ = ("peer",)

    def __init__(self, peer: int) -> None:
        self.peer = peer


# ---------------------------------------------------------------------------------------------- to workers


@final
class ComputeTasks(Instruction):
    """Run these tasks. ``inputs`` names, for each task, what it needs with its size and holders, or is None.

    ``inline_max``: for each task, the largest result in bytes to send back along with the report (0 = none).
    ``lives``: a key that is forgotten and submitted again begins another life, with a larger number; what a worker
    still has of a former life is void.
    """

    __slots__ = ("inline_max", "inputs", "keys", "lives", "options", "priorities", "run_ids", "specs")

    def __init__(self, peer: int) -> None:
        super().__init__(peer)
        self.keys: list[Key] = []
        self.run_ids: list[int] = []
        self.specs: list[object] = []
        self.priorities: list[Priority] = []
        self.inputs: list[list[Input] | None] = []
        self.options: list[Options] = []
        self.inline_max: list[int] = []
        self.lives: list[int] = []


@final
class FreeKeys(Instruction):
    """Stop wanting these keys: drop the value, or give up the run if it has not started."""

    __slots__ = ("keys",)

    def __init__(self, peer: int) -> None:
        super().__init__(peer)
        self.keys: list[Key] = []


@final
class AcquireReplicas(Instruction):
    """Fetch copies of these keys; answered by KeysAdded or AcquireFailed. Reserved: nothing emits it yet."""

    __slots__ = ("holders", "keys", "lives", "nbytes")

    def __init__(self, peer: int) -> None:
        super().__init__(peer)
        self.keys: list[Key] = []
        self.nbytes: list[int] = []
        self.lives: list[int] = []
        self.holders: list[list[int]] = []


@final
class RemoveReplicas(Instruction):
    """Drop these copies. The worker never refuses; it waits for a running task that uses one."""

    __slots__ = ("keys",)

    def __init__(self, peer: int) -> None:
        super().__init__(peer)
        self.keys: list[Key] = []


@final
class TakeBack(Instruction):
    """Give up the runs among these that have not started; answered by TakeBackAnswered."""

    __slots__ = ("run_ids",)

    def __init__(self, peer: int) -> None:
        super().__init__(peer)
        self.run_ids: list[int] = []


@final
class UpdateWhoHas(Instruction):
    """Fresh holders of keys that the worker asked for.

    An empty list: nobody holds it now; the state will free or send the task again when it knows more.
    """

    __slots__ = ("holders", "keys")

    def __init__(self, peer: int) -> None:
        super().__init__(peer)
        self.keys: list[Key] = []
        self.holders: list[list[int]] = []


@final
class WorkerGone(Instruction):
    """A peer of this worker is gone: forget what it held."""

    __slots__ = ("gone",)

    def __init__(self, peer: int, gone: int) -> None:
        super().__init__(peer)
        self.gone = gone


@final
class SetWorkerStatus(Instruction):
    """Pause or resume. Reserved: nothing emits it yet."""

    __slots__ = ("status",)

    def __init__(self, peer: int, status: WorkerStatus) -> None:
        super().__init__(peer)
        self.status = status


@final
class KillWorker(Instruction):
    """Have the worker's parent process replace it (for the parent of worker ``peer``)."""

    __slots__ = ("reason",)

    def __init__(self, peer: int, reason: str) -> None:
        super().__init__(peer)
        self.reason = reason


# ---------------------------------------------------------------------------------------------- to clients


@final
class ReportFinished(Instruction):
    """``data``: the pickled result if it came along (opaque), else None: fetch it from a holder."""

    __slots__ = ("data", "keys", "nbytes")

    def __init__(self, peer: int) -> None:
        super().__init__(peer)
        self.keys: list[Key] = []
        self.nbytes: list[int] = []
        self.data: list[object] = []


@final
class ReportErred(Instruction):
    __slots__ = ("failures", "keys")

    def __init__(self, peer: int) -> None:
        super().__init__(peer)
        self.keys: list[Key] = []
        self.failures: list[Failure] = []


@final
class ReportLost(Instruction):
    """Values that were finished are gone and are being computed again: the keys are pending once more."""

    __slots__ = ("keys",)

    def __init__(self, peer: int) -> None:
        super().__init__(peer)
        self.keys: list[Key] = []


@final
class ReportCancelled(Instruction):
    __slots__ = ("keys", "reasons")

    def __init__(self, peer: int) -> None:
        super().__init__(peer)
        self.keys: list[Key] = []
        self.reasons: list[str] = []


@final
class ReportRetried(Instruction):
    """Keys that had erred are pending again."""

    __slots__ = ("keys",)

    def __init__(self, peer: int) -> None:
        super().__init__(peer)
        self.keys: list[Key] = []


@final
class Restarted(Instruction):
    """Everything was cancelled; the client's futures are void. It releases what it had, to be sure."""

    __slots__ = ()


# ---------------------------------------------------------------------------------------------- to any peer


@final
class ClosePeer(Instruction):
    __slots__ = ("reason",)

    def __init__(self, peer: int, reason: str) -> None:
        super().__init__(peer)
        self.reason = reason


@final
class Reply(Instruction):
    """The answer to a request. ``value`` is plain data (None, bool, int, float, str, list, dict)."""

    __slots__ = ("ok", "request", "value")

    def __init__(self, peer: int, request: int, ok: bool, value: object) -> None:
        super().__init__(peer)
        self.request = request
        self.ok = ok
        self.value = value


@final
class AnswerQuestion(Instruction):
    """Everything that the client said before its question is done: answer it, behind what was reported so far."""

    __slots__ = ("question",)

    def __init__(self, peer: int, question: int) -> None:
        super().__init__(peer)
        self.question = question


@final
class Shutdown(Instruction):
    """The scheduler should end, for this reason."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        super().__init__(-1)
        self.reason = reason


@final
class Log(Instruction):
    """A line for the server's log: a code that tests can match, and plain fields."""

    __slots__ = ("code", "fields", "level")

    def __init__(self, level: LogLevel, code: str, fields: dict[str, object]) -> None:
        super().__init__(-1)
        self.level = level
        self.code = code
        self.fields = fields


# ---------------------------------------------------------------------------------------------- changes


@final
class Change:
    """One arrow of one task, complete in itself: a forgotten task need not come back.

    ``worker``, ``client``: numbers, -1 for none. ``startstop``: (wall-clock seconds, duration) or None.
    ``cause``: the name of the event that led to it. ``at``: seconds on the state's clock.
    """

    __slots__ = (
        "at",
        "cause",
        "client",
        "error_kind",
        "finish",
        "key",
        "kind",
        "nbytes",
        "run_id",
        "start",
        "startstop",
        "thread",
        "worker",
    )

    def __init__(
        self,
        key: Key,
        kind: str,
        start: str,
        finish: str,
        worker: int,
        client: int,
        run_id: int,
        nbytes: int,
        startstop: tuple[float, float] | None,
        thread: int,
        error_kind: str,
        cause: str,
        at: float,
    ) -> None:
        self.key = key
        self.kind = kind
        self.start = start
        self.finish = finish
        self.worker = worker
        self.client = client
        self.run_id = run_id
        self.nbytes = nbytes
        self.startstop = startstop
        self.thread = thread
        self.error_kind = error_kind
        self.cause = cause
        self.at = at


@final
class Outcome:
    """What `SchedulerState.drain` hands over: instructions in order, and the changes that were watched for."""

    __slots__ = ("changes", "instructions")

    def __init__(self, instructions: list[Instruction], changes: list[Change]) -> None:
        self.instructions = instructions
        self.changes = changes


@final
class Outbox:
    """Collects instructions. The last one to each peer is kept open, so that equal sorts are merged."""

    __slots__ = ("changes", "instructions", "last")

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.last: dict[int, Instruction] = {}
        self.changes: list[Change] = []

    def push(self, instruction: Instruction) -> None:
        self.instructions.append(instruction)
        if instruction.peer >= 0:
            self.last[instruction.peer] = instruction

    def take(self) -> Outcome:
        outcome = Outcome(self.instructions, self.changes)
        self.instructions = []
        self.changes = []
        self.last = {}
        return outcome

    # One method for each instruction that merges.

    def compute(self, worker: int) -> ComputeTasks:
        """The open ComputeTasks for a worker; the caller appends to its columns."""
        last = self.last.get(worker)
        if isinstance(last, ComputeTasks):
            return last
        fresh = ComputeTasks(worker)
        self.push(fresh)
        return fresh

    def free(self, worker: int, key: Key) -> None:
        last = self.last.get(worker)
        if not isinstance(last, FreeKeys):
            last = FreeKeys(worker)
            self.push(last)
        last.keys.append(key)

    def acquire(self, worker: int, key: Key, life: int, nbytes: int, holders: list[int]) -> None:
        last = self.last.get(worker)
        if not isinstance(last, AcquireReplicas):
            last = AcquireReplicas(worker)
            self.push(last)
        last.keys.append(key)
        last.lives.append(life)
        last.nbytes.append(nbytes)
        last.holders.append(holders)

    def remove(self, worker: int, key: Key) -> None:
        last = self.last.get(worker)
        if not isinstance(last, RemoveReplicas):
            last = RemoveReplicas(worker)
            self.push(last)
        last.keys.append(key)

    def take_back(self, worker: int, run_id: int) -> None:
        last = self.last.get(worker)
        if not isinstance(last, TakeBack):
            last = TakeBack(worker)
            self.push(last)
        last.run_ids.append(run_id)

    def update_who_has(self, worker: int, key: Key, holders: list[int]) -> None:
        last = self.last.get(worker)
        if not isinstance(last, UpdateWhoHas):
            last = UpdateWhoHas(worker)
            self.push(last)
        last.keys.append(key)
        last.holders.append(holders)

    def finished(self, client: int, key: Key, nbytes: int, data: object) -> None:
        if client < 0:
            return  # a graph that is coming in pins tasks by a client without a number
        last = self.last.get(client)
        if not isinstance(last, ReportFinished):
            last = ReportFinished(client)
            self.push(last)
        last.keys.append(key)
        last.nbytes.append(nbytes)
        last.data.append(data)

    def erred(self, client: int, key: Key, failure: Failure) -> None:
        if client < 0:
            return  # a graph that is coming in pins tasks by a client without a number
        last = self.last.get(client)
        if not isinstance(last, ReportErred):
            last = ReportErred(client)
            self.push(last)
        last.keys.append(key)
        last.failures.append(failure)

    def lost(self, client: int, key: Key) -> None:
        if client < 0:
            return  # a graph that is coming in pins tasks by a client without a number
        last = self.last.get(client)
        if not isinstance(last, ReportLost):
            last = ReportLost(client)
            self.push(last)
        last.keys.append(key)

    def cancelled(self, client: int, key: Key, reason: str) -> None:
        if client < 0:
            return  # a graph that is coming in pins tasks by a client without a number
        last = self.last.get(client)
        if not isinstance(last, ReportCancelled):
            last = ReportCancelled(client)
            self.push(last)
        last.keys.append(key)
        last.reasons.append(reason)

    def retried(self, client: int, key: Key) -> None:
        if client < 0:
            return  # a graph that is coming in pins tasks by a client without a number
        last = self.last.get(client)
        if not isinstance(last, ReportRetried):
            last = ReportRetried(client)
            self.push(last)
        last.keys.append(key)
