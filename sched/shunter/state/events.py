"""Everything that can happen: the only input of the state.

Events are past tense or requests. The server builds them from checked messages, so their types are right;
their content may still be illegal (unknown keys, dead workers, stale runs), which the state answers or counts.
Columns of one event have equal lengths. Peers are the numbers of their connections: a worker that comes back
at the same address has another number. Times are seconds on the state's own clock, sizes are bytes.
"""

from __future__ import annotations

from typing import Final, final

from shunter.state.names import FailureKind, Key, LogLevel, WorkerStatus

__all__ = [
    "DEFAULT_OPTIONS",
    "AcquireFailed",
    "ClientAdded",
    "ClientDesiresKeys",
    "ClientReleasesKeys",
    "ClientRemoved",
    "DataReleased",
    "DataScattered",
    "DatasetPublished",
    "DatasetRequested",
    "DatasetUnpublished",
    "Event",
    "Failure",
    "GraphAborted",
    "GraphBegin",
    "GraphCommit",
    "GraphPart",
    "Heartbeat",
    "KeysAdded",
    "KeysCancelled",
    "KeysDetached",
    "KeysRetried",
    "LogLevel",
    "LongRunning",
    "Options",
    "PreferencesSet",
    "PrioritySet",
    "ProposalMade",
    "QuestionAsked",
    "RebalanceRequested",
    "ReplicateRequested",
    "RestartRequested",
    "RetireRequested",
    "TakeBackAnswered",
    "TaskFailed",
    "TaskRescheduled",
    "TasksFinished",
    "ThreadsHeld",
    "Tick",
    "WhoHasRequested",
    "WorkerAdded",
    "WorkerDied",
    "WorkerRemoved",
    "WorkerStatusChanged",
]


class Event:
    """Base of all events."""

    __slots__ = ()


class ClientEvent(Event):
    """What a client says about keys: kept in order behind a graph of the same client that is coming in."""

    __slots__ = ("client",)

    def __init__(self, client: int) -> None:
        self.client = client


@final
class Options:
    """How a task wants to be run. One record serves all tasks of a submission that share it; never mutated.

    ``workers`` holds names, addresses or hosts as text, resolved whenever a worker is chosen.
    ``retry_on`` holds qualified names of exception types (``builtins.OSError``); None means any exception.
    ``limit``, ``timeout`` (seconds) and ``memory`` (bytes; 0 = not declared) are recorded for later use.
    ``annotations`` is opaque to the state.
    """

    __slots__ = (
        "allow_other_workers",
        "annotations",
        "limit",
        "memory",
        "priority",
        "resources",
        "retries",
        "retry_delay",
        "retry_elsewhere",
        "retry_on",
        "stealable",
        "timeout",
        "workers",
    )

    def __init__(
        self,
        *,
        priority: float = 0.0,
        retries: int = 0,
        retry_on: list[str] | None = None,
        retry_delay: float = 0.0,
        retry_elsewhere: bool = False,
        workers: list[str] | None = None,
        allow_other_workers: bool = False,
        resources: dict[str, float] | None = None,
        stealable: bool = True,
        limit: str | None = None,
        timeout: float | None = None,
        memory: int = 0,
        annotations: dict[str, object] | None = None,
    ) -> None:
        self.priority = priority
        self.retries = retries
        self.retry_on = retry_on
        self.retry_delay = retry_delay
        self.retry_elsewhere = retry_elsewhere
        self.workers = workers
        self.allow_other_workers = allow_other_workers
        self.resources = resources
        self.stealable = stealable
        self.limit = limit
        self.timeout = timeout
        self.memory = memory
        self.annotations = annotations


DEFAULT_OPTIONS: Final = Options()


@final
class Failure:
    """Why a task failed, as data: a kind and fields, never an exception.

    ``key`` is the task that really failed (the one to blame), ``text`` one line for people, ``traceback`` the
    remote traceback as text ("" if there is none), ``data`` the pickled exception (opaque; None if there is
    none), ``fields`` plain values by name (``workers``, ``deaths``, ``resources`` …) that the text speaks of.
    """

    __slots__ = ("data", "fields", "key", "kind", "text", "traceback", "types")

    def __init__(
        self,
        kind: FailureKind,
        key: Key,
        text: str,
        *,
        traceback: str = "",
        types: list[str] | None = None,
        data: object = None,
        fields: dict[str, object] | None = None,
    ) -> None:
        self.kind = kind
        self.key = key
        self.text = text
        self.traceback = traceback
        self.types: list[str] = types if types is not None else []
        self.data = data
        self.fields: dict[str, object] = fields if fields is not None else {}


# ---------------------------------------------------------------------------------------------- clients


@final
class GraphBegin(ClientEvent):
    """A client starts to send a graph. ``graph`` is its own number for it.

    ``in_order``: the tasks come in the order in which they should run (inputs first), so no static order is
    computed. ``parent``: the running task that submits, whose generation its children inherit.
    """

    __slots__ = ("graph", "in_order", "parent")

    def __init__(self, client: int, graph: int, in_order: bool, parent: Key | None) -> None:
        super().__init__(client)
        self.graph = graph
        self.in_order = in_order
        self.parent = parent


@final
class GraphPart(ClientEvent):
    """Tasks by columns. ``specs`` are opaque (never None); ``kinds`` are digests of their functions.

    ``inputs``: for each task the keys it needs, or None. Keys may belong to a later part or to an earlier
    graph. ``kind_names`` gives the display names of digests that are new.
    """

    __slots__ = ("graph", "inputs", "keys", "kind_names", "kinds", "options", "specs")

    def __init__(
        self,
        client: int,
        graph: int,
        keys: list[Key],
        specs: list[object],
        kinds: list[str],
        inputs: list[list[Key] | None],
        options: list[Options],
        kind_names: dict[str, str],
    ) -> None:
        super().__init__(client)
        self.graph = graph
        self.keys = keys
        self.specs = specs
        self.kinds = kinds
        self.inputs = inputs
        self.options = options
        self.kind_names = kind_names


@final
class GraphCommit(ClientEvent):
    """The graph is complete: check, order and start it as a whole, or refuse it as a whole.

    ``wanted``: the keys this client wants; None means every key of the graph. Tasks that no wanted key needs
    are not created.
    """

    __slots__ = ("graph", "wanted")

    def __init__(self, client: int, graph: int, wanted: list[Key] | None) -> None:
        super().__init__(client)
        self.graph = graph
        self.wanted = wanted


@final
class GraphAborted(ClientEvent):
    """The client gives up a graph that it has not committed."""

    __slots__ = ("graph",)

    def __init__(self, client: int, graph: int) -> None:
        super().__init__(client)
        self.graph = graph


@final
class ClientAdded(Event):
    __slots__ = ("client", "name")

    def __init__(self, client: int, name: str) -> None:
        self.client = client
        self.name = name


@final
class ClientRemoved(Event):
    __slots__ = ("client",)

    def __init__(self, client: int) -> None:
        self.client = client


@final
class ClientDesiresKeys(ClientEvent):
    """The client wants keys that exist already. Unknown ones are answered with ReportCancelled."""

    __slots__ = ("keys",)

    def __init__(self, client: int, keys: list[Key]) -> None:
        super().__init__(client)
        self.keys = keys


@final
class ClientReleasesKeys(ClientEvent):
    __slots__ = ("keys",)

    def __init__(self, client: int, keys: list[Key]) -> None:
        super().__init__(client)
        self.keys = keys


@final
class KeysCancelled(ClientEvent):
    """Give up keys and what depends on them. ``force``: even if another client wants them."""

    __slots__ = ("force", "keys")

    def __init__(self, client: int, keys: list[Key], force: bool) -> None:
        super().__init__(client)
        self.keys = keys
        self.force = force


@final
class KeysRetried(ClientEvent):
    __slots__ = ("keys",)

    def __init__(self, client: int, keys: list[Key]) -> None:
        super().__init__(client)
        self.keys = keys


@final
class PrioritySet(ClientEvent):
    """A larger number runs sooner."""

    __slots__ = ("keys", "priority")

    def __init__(self, client: int, keys: list[Key], priority: float) -> None:
        super().__init__(client)
        self.keys = keys
        self.priority = priority


@final
class DataScattered(ClientEvent):
    """The client has put values on workers itself. ``holders``: worker numbers, for each key."""

    __slots__ = ("holders", "keys", "nbytes")

    def __init__(self, client: int, keys: list[Key], nbytes: list[int], holders: list[list[int]]) -> None:
        super().__init__(client)
        self.keys = keys
        self.nbytes = nbytes
        self.holders = holders


@final
class QuestionAsked(ClientEvent):
    """The client has a question that its earlier words bear on: give the sign to answer it when those are done.

    ``question``: the server's number for it, handed back with `AnswerQuestion`.
    """

    __slots__ = ("question",)

    def __init__(self, client: int, question: int) -> None:
        super().__init__(client)
        self.question = question


@final
class KeysDetached(ClientEvent):
    """Fire and forget: these run to their end even if nobody wants them, and are released then."""

    __slots__ = ("keys",)

    def __init__(self, client: int, keys: list[Key]) -> None:
        super().__init__(client)
        self.keys = keys


@final
class DatasetPublished(ClientEvent):
    """Keep keys under a name until it is unpublished, whoever comes and goes. Answered by a Reply.

    ``data``: text that is handed back with the dataset (opaque: how its clients put the keys together).
    ``replace``: in place of what has the name; else a name in use is refused.
    """

    __slots__ = ("data", "keys", "name", "replace", "request")

    def __init__(
        self, client: int, request: int, name: str, keys: list[Key], data: str, replace: bool
    ) -> None:
        super().__init__(client)
        self.request = request
        self.name = name
        self.keys = keys
        self.data = data
        self.replace = replace


@final
class DatasetUnpublished(ClientEvent):
    """Let a dataset go. Answered by a Reply: True, or False if there was none."""

    __slots__ = ("name", "request")

    def __init__(self, client: int, request: int, name: str) -> None:
        super().__init__(client)
        self.request = request
        self.name = name


@final
class DatasetRequested(ClientEvent):
    """The client gets a dataset and wants its keys from then on, in one step: nothing is lost in between.

    Answered by a Reply: ``{"keys": …, "data": …}``, or not ok if there is none of that name.
    """

    __slots__ = ("name", "request")

    def __init__(self, client: int, request: int, name: str) -> None:
        super().__init__(client)
        self.request = request
        self.name = name


# ---------------------------------------------------------------------------------------------- workers


@final
class WorkerAdded(Event):
    """``memory_limit`` 0 means none. ``host`` is compared with restrictions that name hosts.

    ``has_parent``: a process watches over it, and can replace it on `KillWorker`.
    """

    __slots__ = ("address", "has_parent", "host", "memory_limit", "name", "nthreads", "resources", "worker")

    def __init__(
        self,
        worker: int,
        address: str,
        name: str,
        host: str,
        nthreads: int,
        memory_limit: int,
        resources: dict[str, float],
        has_parent: bool = False,
    ) -> None:
        self.worker = worker
        self.address = address
        self.name = name
        self.host = host
        self.nthreads = nthreads
        self.memory_limit = memory_limit
        self.resources = resources
        self.has_parent = has_parent


@final
class WorkerRemoved(Event):
    """The link is gone. ``expected``: it said goodbye, so nobody is to blame."""

    __slots__ = ("expected", "reason", "worker")

    def __init__(self, worker: int, reason: str, expected: bool) -> None:
        self.worker = worker
        self.reason = reason
        self.expected = expected


@final
class WorkerDied(Event):
    """What the worker's parent process found after the death: the cause, and which runs had started."""

    __slots__ = ("cause", "started", "worker")

    def __init__(self, worker: int, cause: str, started: list[int]) -> None:
        self.worker = worker
        self.cause = cause
        self.started = started


@final
class WorkerStatusChanged(Event):
    __slots__ = ("status", "worker")

    def __init__(self, worker: int, status: WorkerStatus) -> None:
        self.worker = worker
        self.status = status


@final
class Heartbeat(Event):
    """``process``: resident bytes, ``spilled``: bytes on disk, ``cpu``: percent of one core."""

    __slots__ = ("cpu", "process", "spilled", "worker")

    def __init__(self, worker: int, process: int, spilled: int, cpu: float) -> None:
        self.worker = worker
        self.process = process
        self.spilled = spilled
        self.cpu = cpu


@final
class TasksFinished(Event):
    """Results are stored on the worker. All columns have one entry a task.

    ``starts``: seconds on the worker's wall clock, corrected by the skew the server measured; ``durations``:
    seconds; ``threads``: thread numbers; ``types``: qualified type names; ``data``: the pickled result if it is
    small enough to be passed on (opaque), else None.
    """

    __slots__ = (
        "data",
        "durations",
        "keys",
        "nbytes",
        "run_ids",
        "starts",
        "threads",
        "types",
        "worker",
    )

    def __init__(
        self,
        worker: int,
        keys: list[Key],
        run_ids: list[int],
        nbytes: list[int],
        starts: list[float],
        durations: list[float],
        threads: list[int],
        types: list[str],
        data: list[object],
    ) -> None:
        self.worker = worker
        self.keys = keys
        self.run_ids = run_ids
        self.nbytes = nbytes
        self.starts = starts
        self.durations = durations
        self.threads = threads
        self.types = types
        self.data = data


@final
class TaskFailed(Event):
    __slots__ = ("duration", "failure", "key", "run_id", "start", "thread", "worker")

    def __init__(
        self,
        worker: int,
        key: Key,
        run_id: int,
        failure: Failure,
        start: float,
        duration: float,
        thread: int,
    ) -> None:
        self.worker = worker
        self.key = key
        self.run_id = run_id
        self.failure = failure
        self.start = start
        self.duration = duration
        self.thread = thread


@final
class TaskRescheduled(Event):
    """The task itself asks to be run again, on any worker."""

    __slots__ = ("key", "run_id", "worker")

    def __init__(self, worker: int, key: Key, run_id: int) -> None:
        self.worker = worker
        self.key = key
        self.run_id = run_id


@final
class LongRunning(Event):
    """The task gave its thread back and goes on; ``duration`` is how long it had run by then."""

    __slots__ = ("duration", "key", "run_id", "worker")

    def __init__(self, worker: int, key: Key, run_id: int, duration: float) -> None:
        self.worker = worker
        self.key = key
        self.run_id = run_id
        self.duration = duration


@final
class ThreadsHeld(Event):
    """So many of the worker's threads run tasks that were given up: nothing can stop them. Said when it changes."""

    __slots__ = ("count", "worker")

    def __init__(self, worker: int, count: int) -> None:
        self.worker = worker
        self.count = count


@final
class KeysAdded(Event):
    """The worker now holds copies of these keys (fetched as inputs, or acquired on request).

    ``lives``: of which life of its key each copy is, as `ComputeTasks` or `AcquireReplicas` named it.
    """

    __slots__ = ("keys", "lives", "nbytes", "worker")

    def __init__(self, worker: int, keys: list[Key], nbytes: list[int], lives: list[int]) -> None:
        self.worker = worker
        self.keys = keys
        self.nbytes = nbytes
        self.lives = lives


@final
class AcquireFailed(Event):
    """An acquisition that the state asked for did not succeed from any holder it named."""

    __slots__ = ("keys", "worker")

    def __init__(self, worker: int, keys: list[Key]) -> None:
        self.worker = worker
        self.keys = keys


@final
class DataReleased(Event):
    """The worker no longer holds these keys, and was not asked to drop them."""

    __slots__ = ("keys", "worker")

    def __init__(self, worker: int, keys: list[Key]) -> None:
        self.worker = worker
        self.keys = keys


@final
class WhoHasRequested(Event):
    """The worker could fetch these keys from none of the holders it knows.

    ``failed``: peers that did not answer or did not have them, as worker numbers.
    """

    __slots__ = ("failed", "keys", "worker")

    def __init__(self, worker: int, keys: list[Key], failed: list[int]) -> None:
        self.worker = worker
        self.keys = keys
        self.failed = failed


@final
class TakeBackAnswered(Event):
    """``given``: the runs among ``asked`` that the worker had not started and has given up."""

    __slots__ = ("asked", "given", "worker")

    def __init__(self, worker: int, asked: list[int], given: list[int]) -> None:
        self.worker = worker
        self.asked = asked
        self.given = given


# ---------------------------------------------------------------------------------------------- requests
# ``request`` is the peer's own number for it; the answer is a Reply instruction that carries it.


@final
class RestartRequested(Event):
    """Give up everything, of all clients, and have every worker that has a parent replaced.

    Answered by a Reply when as many workers are there as before, or not ok after ``timeout`` seconds.
    """

    __slots__ = ("client", "request", "timeout")

    def __init__(self, client: int, request: int, timeout: float) -> None:
        self.client = client
        self.request = request
        self.timeout = timeout


# Reserved: no server builds these yet, and a state that is given one refuses it.


@final
class RebalanceRequested(Event):
    __slots__ = ("client", "keys", "request", "workers")

    def __init__(self, client: int, request: int, keys: list[Key] | None, workers: list[int] | None) -> None:
        self.client = client
        self.request = request
        self.keys = keys
        self.workers = workers


@final
class ReplicateRequested(Event):
    __slots__ = ("client", "copies", "keys", "request", "workers")

    def __init__(
        self, client: int, request: int, keys: list[Key], copies: int, workers: list[int] | None
    ) -> None:
        self.client = client
        self.request = request
        self.keys = keys
        self.copies = copies
        self.workers = workers


@final
class RetireRequested(Event):
    __slots__ = ("client", "deadline", "request", "workers")

    def __init__(self, client: int, request: int, workers: list[int], deadline: float) -> None:
        self.client = client
        self.request = request
        self.workers = workers
        self.deadline = deadline


@final
class ProposalMade(Event):
    """A plugin proposes; the state may refuse with a reason."""

    __slots__ = ("arguments", "plugin", "proposal")

    def __init__(self, plugin: str, proposal: str, arguments: dict[str, object]) -> None:
        self.plugin = plugin
        self.proposal = proposal
        self.arguments = arguments


@final
class PreferencesSet(Event):
    """Weights by worker name for one kind of task, until ``expires``."""

    __slots__ = ("expires", "kind", "weights")

    def __init__(self, kind: str, weights: dict[str, float], expires: float) -> None:
        self.kind = kind
        self.weights = weights
        self.expires = expires


@final
class Tick(Event):
    """``next_deadline`` has come."""

    __slots__ = ()
