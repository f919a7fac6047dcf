"""Everything that can come out of a worker's machine, in the order in which it is to be carried out.

First what the shell does itself, then what it sends to the scheduler. `Outbox` merges an instruction into the
last one if both are of one sort, so that a batch of results leaves as one message.
"""

from __future__ import annotations

from typing import Final, final

from shunter.worker.events import Priority

__all__ = [
    "AnswerTakeBack",
    "AskFunction",
    "AskWhoHas",
    "Drop",
    "Execute",
    "Fetch",
    "ForgetFunctions",
    "Instruction",
    "Keep",
    "Outbox",
    "Rename",
    "ReportAcquireFailed",
    "ReportAdded",
    "ReportFailed",
    "ReportFinished",
    "ReportHeld",
    "ReportLongRunning",
    "ReportRescheduled",
    "RestPeer",
    "Revoke",
    "Task",
    "TextFailure",
]


#: The life of a value that a client has put here, until the scheduler speaks of its key.
UNKNOWN_LIFE: Final = -1


@final
class Task:
    """What the scheduler asked for: facts of one run, never changed after it was made.

    ``life``: of its key; ``lives``: of the keys of ``inputs``.
    """

    __slots__ = (
        "data",
        "function",
        "inline_max",
        "inputs",
        "key",
        "life",
        "lives",
        "priority",
        "resources",
        "run_id",
    )

    def __init__(
        self,
        key: str,
        run_id: int,
        function: int,
        priority: Priority,
        inputs: tuple[str, ...],
        resources: dict[str, float] | None,
        inline_max: int,
        data: bytes,
        life: int = UNKNOWN_LIFE,
        lives: tuple[int, ...] = (),
    ) -> None:
        self.key = key
        self.run_id = run_id
        self.function = function
        self.priority = priority
        self.inputs = inputs
        self.resources = resources
        self.inline_max = inline_max
        self.data = data
        self.life = life
        self.lives = lives


@final
class TextFailure:
    """A failure that the machine found itself, as data."""

    __slots__ = ("kind", "text")

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        self.text = text


class Instruction:
    """Base of all instructions."""

    __slots__ = ()


# ---------------------------------------------------------------------------------------------- shell


@final
class Execute(Instruction):
    """Hand tasks to the threads, in this order. Their tickets are their run_ids; inputs are in the store."""

    __slots__ = ("tasks",)

    def __init__(self) -> None:
        self.tasks: list[Task] = []


@final
class Revoke(Instruction):
    """Take executions back that no thread has started; answered by RevokeAnswered with ``request``."""

    __slots__ = ("request", "tickets")

    def __init__(self, request: int, tickets: list[int]) -> None:
        self.request = request
        self.tickets = tickets


@final
class Rename(Instruction):
    """An execution serves another run_id now: blame that one, should the process die."""

    __slots__ = ("run_id", "ticket")

    def __init__(self, ticket: int, run_id: int) -> None:
        self.ticket = ticket
        self.run_id = run_id


@final
class Keep(Instruction):
    """Put values into the store."""

    __slots__ = ("keys", "nbytes", "values")

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.values: list[object] = []
        self.nbytes: list[int] = []


@final
class Drop(Instruction):
    """Forget values. Running tasks that use them have their own hold on them."""

    __slots__ = ("keys",)

    def __init__(self) -> None:
        self.keys: list[str] = []


@final
class Fetch(Instruction):
    """Get keys from a peer; answered by FetchDone, FetchBusy or FetchFailed with this number."""

    __slots__ = ("fetch", "keys", "nbytes", "peer")

    def __init__(self, fetch: int, peer: int, keys: list[str], nbytes: int) -> None:
        self.fetch = fetch
        self.peer = peer
        self.keys = keys
        self.nbytes = nbytes


@final
class RestPeer(Instruction):
    """Say PeerRested after ``seconds``."""

    __slots__ = ("peer", "seconds")

    def __init__(self, peer: int, seconds: float) -> None:
        self.peer = peer
        self.seconds = seconds


@final
class ForgetFunctions(Instruction):
    __slots__ = ("functions",)

    def __init__(self) -> None:
        self.functions: list[int] = []


# ---------------------------------------------------------------------------------------------- scheduler


@final
class ReportFinished(Instruction):
    """``durations`` 0 and type "": the value was there already, nothing ran."""

    __slots__ = ("data", "durations", "keys", "nbytes", "run_ids", "starts", "threads", "types")

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.run_ids: list[int] = []
        self.nbytes: list[int] = []
        self.starts: list[float] = []
        self.durations: list[float] = []
        self.threads: list[int] = []
        self.types: list[str] = []
        self.data: list[bytes | None] = []


@final
class ReportFailed(Instruction):
    """``failure``: what RunFailed brought, or a TextFailure of the machine's own."""

    __slots__ = ("duration", "failure", "key", "run_id", "start", "thread")

    def __init__(
        self, key: str, run_id: int, failure: object, start: float, duration: float, thread: int
    ) -> None:
        self.key = key
        self.run_id = run_id
        self.failure = failure
        self.start = start
        self.duration = duration
        self.thread = thread


@final
class ReportRescheduled(Instruction):
    __slots__ = ("key", "run_id")

    def __init__(self, key: str, run_id: int) -> None:
        self.key = key
        self.run_id = run_id


@final
class ReportLongRunning(Instruction):
    __slots__ = ("duration", "key", "run_id")

    def __init__(self, key: str, run_id: int, duration: float) -> None:
        self.key = key
        self.run_id = run_id
        self.duration = duration


@final
class ReportHeld(Instruction):
    """So many threads run tasks that nobody wants any more. Nothing can stop them."""

    __slots__ = ("count",)

    def __init__(self, count: int) -> None:
        self.count = count


@final
class ReportAdded(Instruction):
    __slots__ = ("keys", "lives", "nbytes")

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.nbytes: list[int] = []
        self.lives: list[int] = []


@final
class ReportAcquireFailed(Instruction):
    __slots__ = ("keys",)

    def __init__(self) -> None:
        self.keys: list[str] = []


@final
class AskWhoHas(Instruction):
    """``failed``: peers that did not answer."""

    __slots__ = ("failed", "keys")

    def __init__(self, keys: list[str], failed: list[int]) -> None:
        self.keys = keys
        self.failed = failed


@final
class AnswerTakeBack(Instruction):
    __slots__ = ("asked", "given")

    def __init__(self, asked: list[int], given: list[int]) -> None:
        self.asked = asked
        self.given = given


@final
class AskFunction(Instruction):
    __slots__ = ("function",)

    def __init__(self, function: int) -> None:
        self.function = function


# ---------------------------------------------------------------------------------------------- collecting


@final
class Outbox:
    """Collects instructions; equal sorts in a row are merged."""

    __slots__ = ("instructions",)

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []

    def push(self, instruction: Instruction) -> None:
        self.instructions.append(instruction)

    def take(self) -> list[Instruction]:
        instructions = self.instructions
        self.instructions = []
        return instructions

    def _last(self) -> Instruction | None:
        return self.instructions[-1] if self.instructions else None

    def execute(self, task: Task) -> None:
        last = self._last()
        if not isinstance(last, Execute):
            last = Execute()
            self.push(last)
        last.tasks.append(task)

    def keep(self, key: str, value: object, nbytes: int) -> None:
        last = self._last()
        if not isinstance(last, Keep):
            last = Keep()
            self.push(last)
        last.keys.append(key)
        last.values.append(value)
        last.nbytes.append(nbytes)

    def drop(self, key: str) -> None:
        last = self._last()
        if not isinstance(last, Drop):
            last = Drop()
            self.push(last)
        last.keys.append(key)

    def forget_function(self, function: int) -> None:
        last = self._last()
        if not isinstance(last, ForgetFunctions):
            last = ForgetFunctions()
            self.push(last)
        last.functions.append(function)

    def finished(
        self,
        key: str,
        run_id: int,
        nbytes: int,
        *,
        start: float = 0.0,
        duration: float = 0.0,
        thread: int = 0,
        type_name: str = "",
        data: bytes | None = None,
    ) -> None:
        last = self._last()
        if not isinstance(last, ReportFinished):
            last = ReportFinished()
            self.push(last)
        last.keys.append(key)
        last.run_ids.append(run_id)
        last.nbytes.append(nbytes)
        last.starts.append(start)
        last.durations.append(duration)
        last.threads.append(thread)
        last.types.append(type_name)
        last.data.append(data)

    def added(self, key: str, nbytes: int, life: int) -> None:
        last = self._last()
        if not isinstance(last, ReportAdded):
            last = ReportAdded()
            self.push(last)
        last.keys.append(key)
        last.nbytes.append(nbytes)
        last.lives.append(life)

    def acquire_failed(self, key: str) -> None:
        last = self._last()
        if not isinstance(last, ReportAcquireFailed):
            last = ReportAcquireFailed()
            self.push(last)
        last.keys.append(key)
