"""The tables of the state, its agenda, clock and outbox: what every verb is given as its first argument.

No decisions here. `Agenda` is the list of recommendations that `engine.settle` works off; transitions write to
it and never call the engine, which keeps the imports acyclic.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Final, final

from shunter.errors import InternalError
from shunter.state.events import Failure
from shunter.state.model import Backlog, ClientState, Kind, TaskState, WorkerState
from shunter.state.names import Key, LogLevel, TaskStatus
from shunter.state.outbox import Change, Log, Outbox
from shunter.state.settings import Settings


@final
class Agenda:
    """Recommendations (task, the status to try for, the failure if that is `erred`), first in first out.

    A recommendation is a hint, not a command: the engine looks at the task again when its turn comes.
    """

    __slots__ = ("at", "failures", "targets", "tasks")

    def __init__(self) -> None:
        self.tasks: list[TaskState] = []
        self.targets: list[TaskStatus] = []
        self.failures: list[Failure | None] = []
        self.at = 0

    def push(self, ts: TaskState, target: TaskStatus, failure: Failure | None = None) -> None:
        self.tasks.append(ts)
        self.targets.append(target)
        self.failures.append(failure)

    def reset(self) -> None:
        """Forget what was worked off. A large agenda must give its memory back."""
        self.at = 0
        if len(self.tasks) < 1000:
            self.tasks.clear()
            self.targets.clear()
            self.failures.clear()
            return
        self.tasks = []
        self.targets = []
        self.failures = []


PARTS: Final = 16  # of the transition log


@final
class TransitionLog:
    """The last arrows, by columns: no object is made for an entry, and nothing is moved to drop the old.

    Entries are appended to the newest of some parts; when that is full another is begun, and the oldest is dropped
    once the others have ``length`` entries. (Ten thousand entries at once would take a millisecond to free.)
    """

    __slots__ = ("older", "part", "recent")

    def __init__(self, length: int) -> None:
        self.part: Final = (length + PARTS - 1) // PARTS
        self.recent = LogColumns()
        self.older: deque[LogColumns] = deque()

    def add(self, key: Key, arrow: str, worker: int, run_id: int, step: StepStamp) -> None:
        columns = self.recent
        columns.keys.append(key)
        columns.arrows.append(arrow)
        columns.steps.append(step)
        columns.runs.append((worker, run_id) if run_id else None)
        if len(columns.keys) >= self.part:
            self.older.append(columns)
            self.recent = LogColumns()
            if len(self.older) > PARTS:
                self.older.popleft()

    def story(self, key: Key) -> list[str]:
        """The entries of one key, oldest first, as lines for people. O(length)."""
        lines: list[str] = []
        for columns in self.older:
            lines.extend(columns.story(key))
        return lines + self.recent.story(key)


@final
class StepStamp:
    """Which event caused an arrow, and when: one for each step, shared by its entries."""

    __slots__ = ("at", "cause")

    def __init__(self, cause: str, at: float) -> None:
        self.cause: Final = cause
        self.at: Final = at


@final
class LogColumns:
    """One part of the transition log."""

    __slots__ = ("arrows", "keys", "runs", "steps")

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.arrows: list[str] = []
        self.steps: list[StepStamp] = []
        self.runs: list[tuple[int, int] | None] = []  # worker, run_id

    def story(self, key: Key) -> list[str]:
        lines: list[str] = []
        for i in range(len(self.keys)):
            if self.keys[i] != key:
                continue
            step = self.steps[i]
            run = self.runs[i]
            where = f", run {run[1]} on worker {run[0]}" if run is not None else ""
            lines.append(f"{step.at:.6f} {self.arrows[i]} ({step.cause}{where})")
        return lines


@final
class Counts:
    """How many tasks are in each status."""

    __slots__ = ("erred", "memory", "no_worker", "processing", "queued", "released", "waiting")

    def __init__(self) -> None:
        # groups
        self.released = 0
        self.waiting = 0
        self.no_worker = 0
        self.queued = 0
        self.processing = 0
        self.memory = 0
        self.erred = 0


@final
class LoadIndex:
    """Workers by load, in buckets of powers of two: finds one of the most loaded in O(1).

    A worker's place (bucket and slot) is kept by the caller; removal swaps the last one into the gap.
    """

    __slots__ = ("buckets", "mask")

    def __init__(self) -> None:
        self.buckets: list[list[WorkerState]] = [[] for _ in range(64)]
        self.mask = 0  # bit b is set while bucket b has a worker

    def heaviest(self, besides: WorkerState, most: int, turn: int) -> list[WorkerState]:
        """At most ``most`` other workers, from the highest buckets down: the first has over half of the largest load.

        ``turn`` rotates where a bucket is entered, so that nobody hides the others for ever.
        """
        found: list[WorkerState] = []
        mask = self.mask
        while mask and len(found) < most:
            b = mask.bit_length() - 1
            mask &= ~(1 << b)
            bucket = self.buckets[b]
            n = len(bucket)
            for i in range(n):
                ws = bucket[(turn + i) % n]
                if ws is not besides:
                    found.append(ws)
                    if len(found) >= most:
                        break
        return found


def bucket_of(load: int) -> int:
    """-1 for no load, else floor(log2(load)), at most 63."""
    b = load.bit_length() - 1
    return b if b < 63 else 63


@final
class Timer:
    """Something to do at a time: ``what`` names it, ``number`` and ``key`` say to what.

    No record: a task that is forgotten meanwhile must not be kept by its timer.
    """

    __slots__ = ("key", "number", "what")

    def __init__(self, what: str, number: int, key: Key = None) -> None:
        self.what: Final = what
        self.number: Final = number
        self.key: Final = key


@final
class Grave:
    """A worker that went without goodbye: the runs it had, until it is known which had started."""

    __slots__ = ("name", "nthreads", "reason", "run_ids", "tasks")

    def __init__(
        self, name: str, nthreads: int, reason: str, run_ids: list[int], tasks: list[TaskState]
    ) -> None:
        self.name: Final = name
        self.nthreads: Final = nthreads
        self.reason: Final = reason
        self.run_ids: Final = run_ids
        self.tasks: Final = tasks


@final
class Dataset:
    """Published keys: ``keeper`` wants them, ``data`` is handed back with them (opaque text)."""

    __slots__ = ("data", "keeper")

    def __init__(self, keeper: ClientState, data: str) -> None:
        self.keeper: Final = keeper
        self.data: Final = data


@final
class Restart:
    """A request to restart that is to be answered when ``wanted`` workers are there."""

    __slots__ = ("client", "request", "timeout", "wanted")

    def __init__(self, client: int, request: int, timeout: float, wanted: int) -> None:
        self.client: Final = client
        self.request: Final = request
        self.timeout: Final = timeout
        self.wanted: Final = wanted


@final
class Cluster:
    """All tables. One instance is the whole state; verbs get it as their first argument."""

    __slots__ = (
        "agenda",
        "bereaved",
        "busy_at",
        "clients",
        "complaints",
        "counts",
        "datasets",
        "delayed",
        "detached",
        "dropped_events",
        "generation",
        "graves",
        "had_workers",
        "hungry",
        "idle",
        "idle_kinds",
        "incoming",
        "is_idle_timeout_armed",
        "is_no_worker_armed",
        "is_retry_armed",
        "kinds",
        "log",
        "lost_with",
        "marks",
        "next_index",
        "next_restart",
        "next_run_id",
        "next_serial",
        "no_worker",
        "now",
        "outbox",
        "parents",
        "promised",
        "restarts",
        "roots",
        "running",
        "settings",
        "stamp",
        "steps",
        "suppliers",
        "tasks",
        "timers",
        "total_threads",
        "touched",
        "unsent",
        "was_busy",
        "watched",
        "worker_list",
        "workers",
        "workers_by_address",
        "workers_by_backlog",
        "workers_by_host",
        "workers_by_name",
        "workers_by_sent",
    )

    def __init__(self, settings: Settings, now: float) -> None:
        self.settings: Final = settings
        self.now = now
        self.stamp = StepStamp("", now)  # the event being applied
        self.steps = 0
        self.dropped_events = 0  # of unknown peers, or contradicting what is known
        self.outbox: Final = Outbox()
        self.agenda: Final = Agenda()
        self.log: Final = TransitionLog(settings.log_length)
        self.watched: frozenset[str] = frozenset()
        self.touched: dict[TaskState, None] = {}  # by this step; filled only when validating

        self.tasks: dict[Key, TaskState] = {}
        self.kinds: dict[str, Kind] = {}
        self.idle_kinds: deque[Kind] = deque()
        self.counts: Final = Counts()
        self.clients: dict[int, ClientState] = {}
        self.incoming: deque[ClientState] = deque()  # clients with a committed graph on its way in
        self.no_worker: dict[TaskState, float] = {}  # task -> since when
        self.complaints: dict[
            TaskState, dict[int, int]
        ] = {}  # how often it could not be got from which holder
        self.delayed: dict[TaskState, float] = {}  # retries that wait -> until when
        self.promised: dict[TaskState, WorkerState] = {}  # taken back for the idle thread of …
        self.detached: Final = ClientState(-1, "fire and forget")
        self.datasets: dict[str, Dataset] = {}
        self.parents: dict[
            Key, None
        ] = {}  # running tasks that have submitted others, while a timer looks at them
        self.bereaved: dict[
            TaskState, ClientState
        ] = {}  # task whose client is gone -> keeper of what it submitted
        self.lost_with: dict[
            TaskState, list[str]
        ] = {}  # data that cannot be recomputed: workers lost with it
        self.restarts: dict[int, Restart] = {}
        self.graves: dict[int, Grave] = {}
        self.timers: list[tuple[float, int, Timer]] = []

        self.workers: dict[int, WorkerState] = {}
        self.worker_list: list[WorkerState] = []
        self.workers_by_address: dict[str, WorkerState] = {}
        self.workers_by_name: dict[str, WorkerState] = {}
        self.workers_by_host: dict[str, dict[WorkerState, None]] = {}
        self.suppliers: dict[str, list[WorkerState]] = {}  # resource -> running workers, most first
        self.workers_by_backlog: Final = LoadIndex()
        self.workers_by_sent: Final = LoadIndex()
        self.idle: deque[WorkerState] = deque()  # workers with idle threads, each at most once
        self.hungry: list[WorkerState] = []  # workers whose window may have room
        self.roots: Final = Backlog(None)  # tasks without inputs and without a home
        self.unsent = 0  # queued tasks, anywhere
        self.total_threads = 0  # of running workers
        self.running = 0  # workers
        self.had_workers = False
        self.is_retry_armed = False  # a timer will look again for idle threads and unsent work
        self.busy_at = now  # when there was something to do
        self.was_busy = False  # after the last step
        self.is_idle_timeout_armed = False
        self.is_no_worker_armed = False  # a timer will look for tasks without a worker for too long

        self.next_index = 0
        self.next_run_id = 1
        self.next_serial = 1
        self.next_restart = 0
        self.generation = 0
        self.marks = 0

    # ------------------------------------------------------------------------------------------ agenda

    def recommend(self, ts: TaskState, target: TaskStatus) -> None:
        self.agenda.push(ts, target)

    def recommend_erred(self, ts: TaskState, failure: Failure) -> None:
        self.agenda.push(ts, "erred", failure)

    # ------------------------------------------------------------------------------------------ timers

    def wake_at(self, when: float, timer: Timer) -> None:
        self.next_serial += 1
        heappush(self.timers, (when, self.next_serial, timer))

    def pop_due_timer(self) -> Timer | None:
        if not self.timers or self.timers[0][0] > self.now:
            return None
        return heappop(self.timers)[2]

    # ------------------------------------------------------------------------------------------ errors

    def bug(self, text: str, ts: TaskState | None = None) -> InternalError:
        """An InternalError with the task's story, for the caller to raise."""
        if ts is None:
            return InternalError(text)
        return InternalError(f"{text}: task {ts.key!r} is {ts.state}", self.log.story(ts.key))

    def say(self, level: LogLevel, code: str, fields: dict[str, object]) -> None:
        self.outbox.push(Log(level, code, fields))


def note_arrow(
    cluster: Cluster,
    ts: TaskState,
    arrow: str,
    worker: int,
    run_id: int,
    startstop: tuple[float, float] | None = None,
    thread: int = -1,
) -> None:
    """Log the arrow ("waiting -> queued") that was just made; record a Change if its end is watched for."""
    cluster.log.add(ts.key, arrow, worker, run_id, cluster.stamp)
    if cluster.settings.validate:
        cluster.touched[ts] = None
    if cluster.watched and ts.state in cluster.watched:
        failure = ts.failure
        wanter = ts.wanter
        cluster.outbox.changes.append(
            Change(
                ts.key,
                ts.kind.name,
                arrow.partition(" ")[0],
                ts.state,
                worker,
                wanter.number if wanter is not None else -1,
                run_id,
                ts.nbytes,
                startstop,
                thread,
                failure.kind if failure is not None else "",
                cluster.stamp.cause,
                cluster.now,
            )
        )
