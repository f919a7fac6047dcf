"""Records of the worker's machine, and its limits. Plain data; the verbs are elsewhere."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, final

from shunter.worker.events import Priority
from shunter.worker.instructions import Task

__all__ = ["Flight", "Function", "Limits", "Peer", "Run", "RunStatus", "Want", "WantStatus"]

RunStatus: TypeAlias = Literal["waiting", "ready", "executing", "long-running", "ended"]
WantStatus: TypeAlias = Literal["fetch", "flight", "missing"]

#: Guess for a function that has not run yet, seconds: long enough to hand nothing out ahead of it.
UNKNOWN_S: Final = 1.0
#: Whatever runs longer is not handed out ahead of anyway, and sums stay exact enough.
ESTIMATE_MAX_S: Final = 1e6


@final
class Limits:
    """How much a worker does at a time. Times are seconds, sizes bytes.

    Args:
        fetches_max: fetches at a time, each from another peer.
        fetch_bytes_max: bytes asked for in one fetch; one larger value is fetched alone.
        busy_rest: how long a busy peer is left alone.
        failed_rest_max: longest time an unreachable peer is left alone; it starts at ``busy_rest``
            and doubles.
        ahead_s: seconds of work for each thread up to which more is handed out than the threads can run at a
            time, by mean durations. Short tasks need not wait for the loop, long ones stay easy to take back.
        ahead_max: most tasks handed out beyond the threads.
        functions_max, function_bytes_max: functions kept although no task needs them.
    """

    __slots__ = (
        "ahead_max",
        "ahead_s",
        "busy_rest",
        "failed_rest_max",
        "fetch_bytes_max",
        "fetches_max",
        "function_bytes_max",
        "functions_max",
    )

    def __init__(
        self,
        *,
        fetches_max: int = 8,
        fetch_bytes_max: int = 50_000_000,
        busy_rest: float = 0.15,
        failed_rest_max: float = 5.0,
        ahead_s: float = 0.002,
        ahead_max: int = 256,
        functions_max: int = 10_000,
        function_bytes_max: int = 256_000_000,
    ) -> None:
        self.fetches_max: Final = fetches_max
        self.fetch_bytes_max: Final = fetch_bytes_max
        self.busy_rest: Final = busy_rest
        self.failed_rest_max: Final = failed_rest_max
        self.ahead_s: Final = ahead_s
        self.ahead_max: Final = ahead_max
        self.functions_max: Final = functions_max
        self.function_bytes_max: Final = function_bytes_max


@final
class Function:
    """A function by the scheduler's number.

    Attributes:
        size: bytes, -1 while it is not here.
        uses: runs that need it.
        mean: seconds that it runs, quick to rise and slow to fall; -1 if it has not run.
        waiters: runs that wait for it.
    """

    __slots__ = ("mean", "number", "size", "uses", "waiters")

    def __init__(self, number: int) -> None:
        self.number = number
        self.size = -1
        self.uses = 0
        self.mean = -1.0
        self.waiters: dict[Run, None] = {}

    def estimate(self) -> float:
        return self.mean if self.mean >= 0.0 else UNKNOWN_S

    def note(self, duration: float) -> None:
        duration = min(duration, ESTIMATE_MAX_S)
        mean = self.mean
        self.mean = duration if duration > mean else mean + (duration - mean) / 8


@final
class Run:
    """One run of a task, until it has ended.

    Attributes:
        task: what was asked; after an adoption the newer asking, so that it gives the run_id to report.
        ticket: the run_id under which it was handed to the threads.
        wanted: False once it was freed while it executes; its end is not reported then.
        intact: no input was dropped since it started, so that the same task asked for anew may adopt it.
        missing: how many inputs (or its function) are not here.
        estimate: seconds for which it counts while it is with the threads.
        granted: its resources are in use.
    """

    __slots__ = (
        "estimate",
        "function",
        "granted",
        "intact",
        "missing",
        "sequence",
        "status",
        "task",
        "ticket",
        "wanted",
    )

    def __init__(self, task: Task, function: Function, sequence: int) -> None:
        self.task = task
        self.ticket = -1
        self.function: Final = function
        self.sequence: Final = sequence
        self.status: RunStatus = "waiting"
        self.wanted = True
        self.intact = True
        self.missing = 0
        self.estimate = 0.0
        self.granted = False


@final
class Want:
    """A value that is not here and should be.

    Attributes:
        waiters: runs that need it.
        acquired: the scheduler asked for a copy.
        life: of the key; a value of another life is not wanted.
        holders: peers that have it, as far as is known.
        denied: peers that said they do not have it although the scheduler named them; not asked for a while.
        flight: number of the fetch that is to bring it, -1 for none.
        asked: the scheduler was asked who holds it, since it was last known.
    """

    __slots__ = (
        "acquired",
        "asked",
        "denied",
        "flight",
        "holders",
        "key",
        "life",
        "nbytes",
        "priority",
        "status",
        "waiters",
    )

    def __init__(self, key: str, life: int, nbytes: int, priority: Priority) -> None:
        self.key: Final = key
        self.life = life
        self.nbytes = nbytes
        self.priority = priority
        self.status: WantStatus = "missing"
        self.holders: dict[int, None] = {}
        self.denied: dict[int, None] = {}
        self.waiters: dict[Run, None] = {}
        self.acquired = False
        self.flight = -1
        self.asked = False


@final
class Peer:
    """A worker that holds something we want.

    Attributes:
        heap: (priority, sequence, key) of wanted keys; entries may be stale.
        flight: the running fetch, -1 for none.
        resting: it was busy or could not be reached; PeerRested will come.
        failures: fetches that failed in a row.
    """

    __slots__ = ("failures", "flight", "heap", "number", "resting")

    def __init__(self, number: int) -> None:
        self.number: Final = number
        self.heap: list[tuple[Priority, int, str]] = []
        self.flight = -1
        self.resting = False
        self.failures = 0


@final
class Flight:
    """A running fetch."""

    __slots__ = ("keys", "peer")

    def __init__(self, peer: int, keys: list[str]) -> None:
        self.peer: Final = peer
        self.keys: Final = keys
