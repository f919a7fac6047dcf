"""Everything that can happen to a worker: the only input of its machine.

The shell builds events from checked messages and from what task and fetch threads report. Columns of one
event have equal lengths. ``ticket`` is the run_id under which a task was handed to the threads; it names that
execution until it ends, even if the run has been taken over by a newer run_id since. Peers are numbers of
workers. Times are seconds, sizes bytes. Values, argument pickles and failures are opaque here.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, final

__all__ = [
    "AcquireAsked",
    "ComputeAsked",
    "DataPut",
    "Event",
    "FetchBusy",
    "FetchDone",
    "FetchFailed",
    "FreeAsked",
    "FunctionsArrived",
    "Input",
    "PeerGone",
    "PeerRested",
    "Priority",
    "Registered",
    "RemoveAsked",
    "RevokeAnswered",
    "RunFailed",
    "RunRescheduled",
    "RunSeceded",
    "RunsFinished",
    "StatusSet",
    "TakeBackAsked",
    "TimePassed",
    "WhoHasTold",
    "WorkerStatus",
]

#: Smaller runs sooner.
Priority: TypeAlias = tuple[float, float, int, int]
#: An input of a task: key, bytes, workers that hold it, and the life of the key (see `ComputeAsked`).
Input: TypeAlias = tuple[str, int, list[int], int]
WorkerStatus: TypeAlias = Literal["running", "paused", "retiring", "closed"]


class Event:
    """Base of all events."""

    __slots__ = ()


# ---------------------------------------------------------------------------------------------- scheduler


@final
class Registered(Event):
    """The scheduler has welcomed this worker under a number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


@final
class FunctionsArrived(Event):
    """Functions can be used from now on. ``sizes``: bytes of their pickles."""

    __slots__ = ("functions", "sizes")

    def __init__(self, functions: list[int], sizes: list[int]) -> None:
        self.functions = functions
        self.sizes = sizes


@final
class ComputeAsked(Event):
    """Run these tasks. ``data``: argument pickles. ``inline_max``: largest result to send along, for each.

    ``lives``: a key that was forgotten and submitted again has a larger one. What is here of another life is void.
    """

    __slots__ = (
        "data",
        "functions",
        "inline_max",
        "inputs",
        "keys",
        "lives",
        "priorities",
        "resources",
        "run_ids",
    )

    def __init__(
        self,
        keys: list[str],
        run_ids: list[int],
        functions: list[int],
        priorities: list[Priority],
        inputs: list[list[Input] | None],
        resources: list[dict[str, float] | None],
        inline_max: list[int],
        lives: list[int],
        data: list[bytes],
    ) -> None:
        self.keys = keys
        self.run_ids = run_ids
        self.functions = functions
        self.priorities = priorities
        self.inputs = inputs
        self.resources = resources
        self.inline_max = inline_max
        self.lives = lives
        self.data = data


@final
class FreeAsked(Event):
    """Nobody wants these keys: drop the values, give up their runs. A later value of the key may differ."""

    __slots__ = ("keys",)

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys


@final
class RemoveAsked(Event):
    """Drop these copies (others exist), as soon as no running task uses them."""

    __slots__ = ("keys",)

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys


@final
class AcquireAsked(Event):
    __slots__ = ("holders", "keys", "lives", "nbytes")

    def __init__(
        self, keys: list[str], nbytes: list[int], lives: list[int], holders: list[list[int]]
    ) -> None:
        self.keys = keys
        self.nbytes = nbytes
        self.lives = lives
        self.holders = holders


@final
class WhoHasTold(Event):
    """Fresh holders of keys. An empty list: nobody holds it now."""

    __slots__ = ("holders", "keys")

    def __init__(self, keys: list[str], holders: list[list[int]]) -> None:
        self.keys = keys
        self.holders = holders


@final
class TakeBackAsked(Event):
    __slots__ = ("run_ids",)

    def __init__(self, run_ids: list[int]) -> None:
        self.run_ids = run_ids


@final
class PeerGone(Event):
    __slots__ = ("peer",)

    def __init__(self, peer: int) -> None:
        self.peer = peer


@final
class StatusSet(Event):
    __slots__ = ("status",)

    def __init__(self, status: WorkerStatus) -> None:
        self.status = status


# ---------------------------------------------------------------------------------------------- task threads


@final
class RunsFinished(Event):
    """Executions ended with a value. ``data``: the pickled value if it is small enough to be sent along."""

    __slots__ = ("data", "durations", "nbytes", "starts", "threads", "tickets", "types", "values")

    def __init__(
        self,
        tickets: list[int],
        values: list[object],
        nbytes: list[int],
        starts: list[float],
        durations: list[float],
        threads: list[int],
        types: list[str],
        data: list[bytes | None],
    ) -> None:
        self.tickets = tickets
        self.values = values
        self.nbytes = nbytes
        self.starts = starts
        self.durations = durations
        self.threads = threads
        self.types = types
        self.data = data


@final
class RunFailed(Event):
    """``failure`` is opaque: the shell that made it sends it."""

    __slots__ = ("duration", "failure", "start", "thread", "ticket")

    def __init__(self, ticket: int, failure: object, start: float, duration: float, thread: int) -> None:
        self.ticket = ticket
        self.failure = failure
        self.start = start
        self.duration = duration
        self.thread = thread


@final
class RunRescheduled(Event):
    """The task asks to be run again somewhere."""

    __slots__ = ("ticket",)

    def __init__(self, ticket: int) -> None:
        self.ticket = ticket


@final
class RunSeceded(Event):
    """The task gave its slot back and goes on. ``duration``: how long it had run by then."""

    __slots__ = ("duration", "ticket")

    def __init__(self, ticket: int, duration: float) -> None:
        self.ticket = ticket
        self.duration = duration


@final
class RevokeAnswered(Event):
    """``given``: the executions among ``tickets`` that no thread had started; none will start them now."""

    __slots__ = ("given", "request", "tickets")

    def __init__(self, request: int, tickets: list[int], given: list[int]) -> None:
        self.request = request
        self.tickets = tickets
        self.given = given


# ---------------------------------------------------------------------------------------------- data


@final
class FetchDone(Event):
    """A peer answered.

    ``missing``: keys it does not hold; ``failed``: keys whose value it, or we, could not (un)pickle, with the
    reason.
    """

    __slots__ = ("failed", "fetch", "keys", "missing", "nbytes", "values")

    def __init__(
        self,
        fetch: int,
        keys: list[str],
        nbytes: list[int],
        values: list[object],
        missing: list[str],
        failed: dict[str, str],
    ) -> None:
        self.fetch = fetch
        self.keys = keys
        self.nbytes = nbytes
        self.values = values
        self.missing = missing
        self.failed = failed


@final
class FetchBusy(Event):
    __slots__ = ("fetch",)

    def __init__(self, fetch: int) -> None:
        self.fetch = fetch


@final
class FetchFailed(Event):
    """The connection failed."""

    __slots__ = ("fetch", "reason")

    def __init__(self, fetch: int, reason: str) -> None:
        self.fetch = fetch
        self.reason = reason


@final
class PeerRested(Event):
    """The time of a `RestPeer` instruction is over."""

    __slots__ = ("peer",)

    def __init__(self, peer: int) -> None:
        self.peer = peer


@final
class DataPut(Event):
    """A client has put values here. It tells the scheduler itself."""

    __slots__ = ("keys", "nbytes", "values")

    def __init__(self, keys: list[str], nbytes: list[int], values: list[object]) -> None:
        self.keys = keys
        self.nbytes = nbytes
        self.values = values


@final
class TimePassed(Event):
    """A heartbeat interval has passed: ask again for what nobody was known to hold."""

    __slots__ = ()
