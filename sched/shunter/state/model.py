"""The records of the state: slots only, no behaviour. Read this first.

Each field is written by one module (named in the comment beside its group) and may be read by any; a test holds
that list. Records hash by identity. ``_us`` are whole microseconds and resources are whole millionths, so that
sums return to exactly zero. What only few tasks have lives in side tables of `cluster.Cluster`, not here.

A first element beside a dict of further ones (``holder``/``holders``, ``dependent``/``dependents``, ``wanter``/
``wanters``) is there because almost every task has exactly one: a dict costs 200 bytes and 60 ns.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias, final

from shunter.state.names import RELEASED, RUNNING, Key, TaskStatus, WorkerStatus

if TYPE_CHECKING:
    from shunter.state.events import Event, Failure, Options

#: An entry of a heap of tasks. Smaller runs sooner:
#: (-user priority, share, generation, order in the graph, creation index, serial of the entry, the task).
HeapItem: TypeAlias = "tuple[float, float, int, int, int, int, TaskState]"


@final
class Kind:
    """A function that tasks run, known by its digest; estimates go by kind."""

    __slots__ = (
        "alive",
        "digest",
        "duration_us",
        "finished",
        "idle",
        "name",
        "nbytes",
        "samples",
    )

    def __init__(self, digest: str, name: str) -> None:
        self.digest: Final = digest
        self.name: Final = name
        # groups
        self.alive = 0  # tasks in the table
        self.finished = 0  # runs that ended well, ever
        self.idle = False  # listed as a kind that no task uses
        # costs
        self.duration_us = -1  # running mean; -1 until a task of this kind has finished
        self.nbytes = -1  # running mean of the results' sizes
        self.samples = 0


@final
class Backlog:
    """Tasks in state `queued` that are not sent, in priority order.

    Most come in order: they make a run, a sorted list that is used up from its front (``at``). Those that do not
    go on a heap. Both delete lazily: an entry is live while its task belongs here and carries the same serial.
    """

    __slots__ = ("at", "count", "heap", "owner", "run", "serials", "work_us")

    def __init__(self, owner: WorkerState | None) -> None:
        # backlog
        self.owner = owner  # None: the cluster's root queue, or its worker has left
        self.run: list[TaskState] = []
        self.serials: list[int] = []  # of the entries of ``run``
        self.at = 0
        self.heap: list[HeapItem] = []
        self.count = 0  # live entries
        self.work_us = 0  # their estimated duration


@final
class TaskState:
    """A task: what it is, where it stands, what it is linked to."""

    __slots__ = (
        "avoid",
        "backlog",
        "dependencies",
        "dependent",
        "dependents",
        "estimate_us",
        "failure",
        "generation",
        "holder",
        "holders",
        "index",
        "is_long_running",
        "key",
        "kind",
        "n_holds",
        "n_waiters",
        "n_waiting",
        "nbytes",
        "options",
        "order",
        "processing_on",
        "retries",
        "run_id",
        "run_work_us",
        "serial",
        "share",
        "spec",
        "state",
        "suspicion",
        "user_priority",
        "wanter",
        "wanters",
    )

    def __init__(self, key: Key, index: int, kind: Kind, spec: object, options: Options) -> None:
        self.key: Final = key
        self.index: Final = index  # creation index, the last word in every tie
        # graphs
        self.kind = kind
        self.spec = spec  # opaque; None = pure data, cannot be recomputed
        self.options = options
        self.user_priority = 0.0  # larger runs sooner
        self.share = 0.0
        self.generation = 0
        self.order = 0
        # transitions
        self.state: TaskStatus = RELEASED
        self.retries = 0
        self.suspicion = 0  # deaths of workers on which it had started
        self.failure: Failure | None = None
        self.avoid = -1  # number of a worker it asked to leave, on a retry elsewhere
        # links
        self.dependencies: list[TaskState] | None = None
        self.dependent: TaskState | None = None
        self.dependents: dict[TaskState, None] | None = None
        self.n_waiting = 0  # inputs that are not in memory; counted while waiting
        self.n_waiters = 0  # dependents that are waiting, queued, no-worker or processing, and …
        self.n_holds = 0  # … graphs coming in that have the task
        # assignment
        self.processing_on: WorkerState | None = None
        self.run_id = 0  # handle of the current assignment; 0 = none
        self.run_work_us = 0  # what it adds to the occupancy of its worker
        self.is_long_running = False
        # replicas
        self.holder: WorkerState | None = None
        self.holders: dict[WorkerState, None] | None = None
        self.nbytes = -1  # size of the value; -1 = unknown
        # interest
        self.wanter: ClientState | None = None
        self.wanters: dict[ClientState, None] | None = None
        # backlog
        self.backlog: Backlog | None = None
        self.serial = 0  # of its live entry
        self.estimate_us = 0  # what it adds to the work of its backlog


@final
class WorkerState:
    """One incarnation of a worker: ``number`` is its connection; ``address`` and ``name`` are attributes."""

    __slots__ = (
        "address",
        "asked_back",
        "backlog_bucket",
        "backlog_floor",
        "backlog_slot",
        "cpu",
        "death",
        "demands",
        "has_parent",
        "has_what",
        "host",
        "in_clock",
        "index",
        "last_seen",
        "link_bandwidth",
        "listed_hungry",
        "listed_idle",
        "memory_limit",
        "n_expected",
        "n_held",
        "n_long_running",
        "name",
        "nbytes",
        "nthreads",
        "number",
        "occupancy_us",
        "out_clock",
        "process",
        "processing",
        "progress_at",
        "ready",
        "roots",
        "sent_bucket",
        "sent_floor",
        "sent_slot",
        "spilled",
        "status",
        "supply",
        "tally",
        "tally_mark",
        "used",
    )

    def __init__(
        self,
        number: int,
        index: int,
        address: str,
        name: str,
        host: str,
        nthreads: int,
        memory_limit: int,
        supply: dict[str, int],
        has_parent: bool,
        now: float,
    ) -> None:
        self.number: Final = number
        self.index: Final = index
        self.address: Final = address
        self.name: Final = name
        self.host: Final = host
        self.nthreads: Final = nthreads
        self.memory_limit: Final = memory_limit
        self.supply: Final = supply  # resources, in millionths
        self.has_parent: Final = has_parent  # a process that can replace it
        # assignment
        self.processing: dict[TaskState, None] = {}  # in the order in which they were sent
        self.n_long_running = 0
        self.n_held = 0  # threads that run tasks which were given up
        self.occupancy_us = 0
        self.used: dict[str, int] = {}
        # TakeBack under way: run_id -> task, and the worker with an idle thread that it is for
        self.asked_back: dict[int, tuple[TaskState, WorkerState]] = {}
        self.n_expected = 0  # tasks asked back from others for this worker, not answered yet
        self.progress_at = now  # when a run ended here, or came to an idle thread
        self.sent_floor = 0  # 2 ** sent_bucket
        self.sent_bucket = -1
        self.sent_slot = -1
        # replicas
        self.has_what: dict[TaskState, bool] = {}  # True = wanted here, False = came as an input
        self.nbytes = 0
        # backlog
        self.ready = Backlog(self)  # tasks with inputs that prefer this worker
        self.roots = Backlog(self)  # its home block of tasks without inputs
        self.demands: dict[str, Backlog] | None = None  # tasks with resources, by their signature
        self.listed_hungry = False
        self.backlog_floor = 0  # 2 ** backlog_bucket
        self.backlog_bucket = -1
        self.backlog_slot = -1
        # costs
        self.in_clock = 0.0  # when the scheduler believes the incoming link is free
        self.out_clock = 0.0
        self.link_bandwidth = 0.0  # 0 = not measured
        # placement
        self.tally = 0  # bytes of a task's inputs held here …
        self.tally_mark = -1  # … for the placement with this number
        # dispatch
        self.listed_idle = False
        # reactions
        self.status: WorkerStatus = RUNNING
        self.last_seen = now
        self.process = 0
        self.spilled = 0
        self.cpu = 0.0
        self.death: tuple[str, list[int]] | None = None  # what its parent said before the link broke


class Pending:
    """Base of a graph on its way in: `graphs.Intake`."""

    __slots__ = ()


@final
class ClientState:
    """A connected client: what it wants, and its graphs on their way in."""

    __slots__ = ("children", "deferred", "incoming", "name", "number", "parts", "wants")

    def __init__(self, number: int, name: str) -> None:
        self.number: Final = number
        self.name: Final = name
        # interest
        self.wants: dict[TaskState, None] = {}
        self.children: dict[TaskState, Key] | None = None  # of those, what a running task submitted: by which
        # reactions
        self.parts: dict[int, Pending] = {}  # graphs that are not committed, by the client's number
        self.incoming: Pending | None = None  # the committed graph that is being worked on …
        self.deferred: deque[Event] = deque()  # … and the client's events that wait for it
