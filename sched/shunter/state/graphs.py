"""Graphs come in by parts and become tasks: checked and created as a whole, in bounded slices.

Theory of operation. An `Intake` collects the parts of one graph. At its commit it goes through phases, each
advanced by a bounded count per step, so that others are answered meanwhile (no generators: they do not compile):

    index   every key gets a place; an unknown input or a key of the graph named twice refuses the graph
    cull    walk from the wanted keys to what they need
    rank    keys in their natural order, so that the static order does not depend on how they came
    order   the static order (skipped if the client sent the graph in running order, and that is true)
    create  tasks in that order, each with its links, waiting at once but *held*: the graph counts as a waiter of
            each of its tasks, so that nothing is given up half-way
    want    the client wants its keys
    start   let go of them in that order; the runnable ones are queued

Tasks that existed before the graph are pinned by a pseudo client while it comes in. A small graph runs through all
phases in the step of its commit; a large one goes on with each Tick, and its client's later events wait for it,
since they may name its keys. The first spec of a live key wins.
"""

from __future__ import annotations

from typing import final

from shunter.state import groups, interest, links, transitions
from shunter.state.cluster import Cluster
from shunter.state.events import Failure, GraphBegin, GraphCommit, GraphPart, Options
from shunter.state.model import Backlog, ClientState, Pending, TaskState
from shunter.state.names import (
    ERRED,
    FAILED_GRAPH,
    MEMORY,
    QUEUED,
    RELEASED,
    RUNNING,
    WAITING,
    Key,
)
from shunter.state.ordering import KeyOrder, StaticOrder
from shunter.state.placement import is_limited

#: A home block holds at least so many tasks for each thread; smaller graphs use the root queue.
BLOCK_MIN = 2
#: What ranking, and ordering, costs about for each task: they do not tell how much of a budget they used.
PASSES = 4


@final
class Intake(Pending):
    """One graph on its way in. ``phase`` names what `advance` does next; ``at`` is how far it got."""

    __slots__ = (
        "at",
        "client",
        "created",
        "generation",
        "graph",
        "home",
        "home_room",
        "homes",
        "in_order",
        "inputs",
        "key_order",
        "keys",
        "kind_names",
        "kinds",
        "local_inputs",
        "needed",
        "options",
        "order",
        "parent",
        "phase",
        "pins",
        "place",
        "roots_left",
        "specs",
        "stack",
        "static_order",
        "wanted",
    )

    def __init__(self, event: GraphBegin) -> None:
        self.client = event.client
        self.graph = event.graph
        self.in_order = event.in_order
        self.parent = event.parent
        self.phase = "parts"
        self.at = 0
        self.keys: list[Key] = []
        self.specs: list[object] = []
        self.kinds: list[str] = []
        self.kind_names: dict[str, str] = {}
        self.inputs: list[list[Key] | None] = []
        self.options: list[Options] = []
        self.wanted: list[Key] = []
        self.place: dict[Key, int] = {}  # key -> position in the columns
        self.needed: list[bool] = []
        self.stack: list[int] = []
        self.order: list[int] = []  # positions, in running order
        self.local_inputs: list[list[int]] = []
        self.key_order: KeyOrder | None = None
        self.static_order: StaticOrder | None = None
        self.pins = ClientState(-1, f"graph {event.graph}")
        self.created: list[TaskState] = []
        self.generation = 0
        self.roots_left = 0
        self.homes: list[Backlog] = []  # home blocks still to fill …
        self.home_room: list[int] = []  # … and how many roots each gets
        self.home = 0

    def add(self, part: GraphPart) -> None:
        self.keys.extend(part.keys)
        self.specs.extend(part.specs)
        self.kinds.extend(part.kinds)
        self.inputs.extend(part.inputs)
        self.options.extend(part.options)
        self.kind_names.update(part.kind_names)


def commit(intake: Intake, event: GraphCommit) -> None:
    """All parts are there. None wants every key."""
    intake.wanted = intake.keys if event.wanted is None else event.wanted
    intake.needed = [event.wanted is None] * len(intake.keys)
    intake.phase = "index"
    intake.at = 0


def advance(cluster: Cluster, cs: ClientState, intake: Intake, budget: int) -> bool:
    """Work on a graph for about ``budget`` tasks and edges. True when it is done (created, or refused)."""
    while budget > 0:
        phase = intake.phase
        if phase == "index":
            budget = _index(cluster, cs, intake, budget)
        elif phase == "cull":
            budget = _cull(cluster, intake, budget)
        elif phase == "rank":
            budget = _rank(intake, budget)
        elif phase == "order":
            budget = _order(cluster, cs, intake, budget)
        elif phase == "create":
            budget = _create(cluster, cs, intake, budget)
        elif phase == "want":
            budget = _want(cluster, cs, intake, budget)
        elif phase == "start":
            budget = _start(cluster, cs, intake, budget)
        else:
            assert phase == "done", phase
            return True
    return intake.phase == "done"


def abandon(cluster: Cluster, intake: Intake) -> None:
    """The client is gone: let go of what was created."""
    for ts in intake.created[intake.at if intake.phase == "start" else 0 :]:
        links.let_go(ts)
        cluster.recommend(ts, RELEASED)
        cluster.recommend(ts, QUEUED)  # if somebody else has come to want it
    _finish(cluster, intake)


# ---------------------------------------------------------------------------------------------- phases


def _index(cluster: Cluster, cs: ClientState, intake: Intake, budget: int) -> int:
    """Give each key its place; then check that every input is known and that inputs come first."""
    keys = intake.keys
    n = len(keys)
    place = intake.place
    i = intake.at
    while i < n and budget > 0:
        key = keys[i]
        if key in place:
            _refuse(
                cluster,
                cs,
                intake,
                key,
                f"key {key!r} is twice in one graph; give each task a key of its own",
            )
            return budget
        place[key] = i
        i += 1
        budget -= 1
    while n <= i < 2 * n and budget > 0:
        at = i - n
        inputs = intake.inputs[at]
        budget -= 1
        if inputs is not None:
            budget -= len(inputs)
            for key in inputs:
                j = place.get(key, -1)
                if j >= at:
                    intake.in_order = False
                elif j < 0 and not _pin(cluster, intake, key):
                    _refuse(
                        cluster,
                        cs,
                        intake,
                        keys[at],
                        f"task {keys[at]!r} needs {key!r}, which is neither in the graph nor on the cluster;"
                        " add it, or keep a future of it until this graph is submitted",
                    )
                    return budget
        i += 1
    intake.at = i
    if i >= 2 * n:
        for key in intake.wanted:
            if key not in place and not _pin(cluster, intake, key):
                _refuse(
                    cluster, cs, intake, key, f"key {key!r} is wanted, but neither in the graph nor known"
                )
                return budget
        intake.at = 0
        intake.phase = "cull"
    return budget


def _pin(cluster: Cluster, intake: Intake, key: Key) -> bool:
    """Keep a task that exists while the graph comes in. False if there is none."""
    ts = cluster.tasks.get(key)
    if ts is None:
        return False
    interest.want(ts, intake.pins)
    if ts.state == RELEASED:
        cluster.recommend(ts, WAITING)
    return True


def _cull(cluster: Cluster, intake: Intake, budget: int) -> int:
    """Mark what the wanted keys need. Tasks that nobody asked for are not created."""
    if intake.wanted is not intake.keys:
        needed = intake.needed
        stack = intake.stack
        wanted = intake.wanted
        while budget > 0:
            budget -= 1
            if stack:
                inputs = intake.inputs[stack.pop()]
                if inputs is None:
                    continue
                budget -= len(inputs)
                for key in inputs:
                    j = intake.place.get(key, -1)
                    if j >= 0 and not needed[j]:
                        needed[j] = True
                        stack.append(j)
            elif intake.at < len(wanted):
                j = intake.place.get(wanted[intake.at], -1)
                if j >= 0 and not needed[j]:
                    needed[j] = True
                    stack.append(j)
                intake.at += 1
            else:
                break
        if stack or intake.at < len(wanted):
            return budget
    intake.at = 0
    if intake.in_order:
        intake.order = [i for i in range(len(intake.keys)) if intake.needed[i]]
        _begin_create(cluster, intake)
    else:
        intake.order = [i for i in range(len(intake.keys)) if intake.needed[i]]
        intake.key_order = KeyOrder([intake.keys[i] for i in intake.order])
        intake.phase = "rank"
    return budget


def _rank(intake: Intake, budget: int) -> int:
    """Dense ids by the natural order of keys; ``order`` becomes id -> position in the columns."""
    key_order = intake.key_order
    assert key_order is not None
    if not key_order.advance(budget):
        return 0
    by_rank = [0] * len(intake.order)
    i = 0
    for rank in key_order.ranks:
        by_rank[rank] = intake.order[i]
        i += 1
    intake.order = by_rank
    intake.key_order = None
    intake.local_inputs = []
    intake.at = 0
    intake.phase = "order"
    return budget - PASSES * len(by_rank)


def _order(cluster: Cluster, cs: ClientState, intake: Intake, budget: int) -> int:
    """The static order of the tasks, over dense ids; a cycle refuses the graph and is named."""
    static_order = intake.static_order
    if static_order is None:
        budget = _dense_inputs(intake, budget)
        if len(intake.local_inputs) == len(intake.order):
            intake.static_order = StaticOrder(intake.local_inputs)
        return budget
    if not static_order.advance(budget):
        return 0
    if static_order.cycle:
        names = [repr(intake.keys[intake.order[i]]) for i in static_order.cycle]
        if len(names) > 8:
            names = [*names[:7], f"… {len(names) - 7} more"]
        first = intake.keys[intake.order[static_order.cycle[0]]]
        _refuse(cluster, cs, intake, first, f"the graph has a cycle: {' -> '.join([*names, names[0]])}")
        return 0
    ordered = [0] * len(intake.order)
    i = 0
    for position in static_order.positions:
        ordered[position] = intake.order[i]
        i += 1
    intake.order = ordered
    intake.static_order = None
    intake.local_inputs = []
    _begin_create(cluster, intake)
    return budget - PASSES * len(ordered)


def _dense_inputs(intake: Intake, budget: int) -> int:
    """Inputs by dense id. ``stack`` serves as the map from position to id, made in the first slice."""
    if intake.at == 0 and not intake.local_inputs:
        ids = [-1] * len(intake.keys)
        i = 0
        for position in intake.order:
            ids[position] = i
            i += 1
        intake.stack = ids
    ids = intake.stack
    order = intake.order
    while intake.at < len(order) and budget > 0:
        found: list[int] = []
        inputs = intake.inputs[order[intake.at]]
        if inputs is not None:
            budget -= len(inputs)
            for key in inputs:
                j = intake.place.get(key, -1)
                if j >= 0:
                    found.append(ids[j])
            if len(found) > 1:
                found = list(dict.fromkeys(found))
        intake.local_inputs.append(found)
        intake.at += 1
        budget -= 1
    if intake.at >= len(order):
        intake.stack = []
    return budget


def _begin_create(cluster: Cluster, intake: Intake) -> None:
    generation = -1
    if intake.parent is not None:
        parent = cluster.tasks.get(intake.parent)
        if parent is not None:
            generation = parent.generation
    if generation < 0:
        cluster.generation += 1
        generation = cluster.generation
    intake.generation = generation
    intake.at = 0
    intake.phase = "create"


def _create(cluster: Cluster, cs: ClientState, intake: Intake, budget: int) -> int:
    """Create the tasks in running order, held and waiting; refresh those that exist."""
    order = intake.order
    i = intake.at
    while i < len(order) and budget > 0:
        position = order[i]
        budget -= 1
        key = intake.keys[position]
        inputs = intake.inputs[position]
        if inputs is not None:
            budget -= len(inputs)
        ts = cluster.tasks.get(key)
        if ts is None:
            ts = _new_task(cluster, intake, position, i)
        elif _differs(ts, inputs):
            cluster.say("warning", "spec-ignored", {"key": key, "status": ts.state})
        links.hold(ts)
        intake.created.append(ts)
        if ts.state == RELEASED and ts.spec is not None:
            transitions.released_to_waiting_held(cluster, ts)
            if ts.dependencies is None:
                intake.roots_left += 1
        i += 1
    intake.at = i
    if i >= len(order):
        _cut_home_blocks(cluster, intake)
        intake.at = 0
        intake.phase = "want"
    return budget


def _new_task(cluster: Cluster, intake: Intake, position: int, order: int) -> TaskState:
    options = intake.options[position]
    digest = intake.kinds[position]
    kind = groups.get_kind(cluster, digest, intake.kind_names.get(digest, digest))
    ts = TaskState(intake.keys[position], cluster.next_index, kind, intake.specs[position], options)
    cluster.next_index += 1
    ts.user_priority = options.priority
    ts.generation = intake.generation
    ts.order = order
    transitions.give_retries(ts)
    cluster.tasks[ts.key] = ts
    groups.created(cluster, ts)
    inputs = intake.inputs[position]
    if inputs:
        deps: list[TaskState] = []
        if len(inputs) == 1:
            deps.append(cluster.tasks[inputs[0]])
        else:
            for key in dict.fromkeys(inputs):
                deps.append(cluster.tasks[key])
        links.link(ts, deps)
    return ts


def _differs(ts: TaskState, inputs: list[Key] | None) -> bool:
    deps = ts.dependencies
    if deps is None:
        return bool(inputs)
    return inputs is None or {dep.key for dep in deps} != set(inputs)


def _want(cluster: Cluster, cs: ClientState, intake: Intake, budget: int) -> int:
    """Everything exists: the client wants its keys, and hears at once of those that are done."""
    wanted = intake.wanted
    i = intake.at
    while i < len(wanted) and budget > 0:
        ts = cluster.tasks[wanted[i]]
        i += 1
        budget -= 1
        if interest.want(ts, cs):
            if intake.parent is not None:
                interest.note_parent(ts, cs, intake.parent)
            tell_if_done(cluster, cs, ts)
            if ts.state == RELEASED:
                cluster.recommend(ts, WAITING)
    intake.at = i
    if i >= len(wanted):
        intake.at = 0
        intake.phase = "start"
    return budget


def _start(cluster: Cluster, cs: ClientState, intake: Intake, budget: int) -> int:
    """Let go of the tasks; those that can run are queued, roots in their home blocks."""
    created = intake.created
    i = intake.at
    while i < len(created) and budget > 0:
        ts = created[i]
        i += 1
        budget -= 1
        links.let_go(ts)
        if ts.state == WAITING:
            if ts.n_waiting == 0:
                if intake.homes and _is_free_root(cluster, ts):
                    _queue_at_home(cluster, intake, ts)
                else:
                    cluster.recommend(ts, QUEUED)
        elif ts.state == RELEASED:
            cluster.recommend(ts, WAITING)
        if not interest.is_needed(ts):
            cluster.recommend(ts, RELEASED)
    intake.at = i
    if i >= len(created):
        _finish(cluster, intake)
    return budget


def _finish(cluster: Cluster, intake: Intake) -> None:
    for ts in list(intake.pins.wants):
        interest.unwant(ts, intake.pins)
        if not interest.is_needed(ts):
            cluster.recommend(ts, RELEASED)
    intake.phase = "done"


def _refuse(cluster: Cluster, cs: ClientState, intake: Intake, blamed: Key, text: str) -> None:
    """Nothing of the graph is created; each wanted key that the client did not have is reported as erred."""
    failure = Failure(FAILED_GRAPH, blamed, text)  # One for all: it travels once.
    for key in dict.fromkeys(intake.wanted):
        ts = cluster.tasks.get(key)
        if ts is None or ts not in cs.wants:
            cluster.outbox.erred(cs.number, key, failure)
    cluster.say("info", "graph-refused", {"client": cs.name, "reason": text})
    _finish(cluster, intake)


# ---------------------------------------------------------------------------------------------- home blocks


def _cut_home_blocks(cluster: Cluster, intake: Intake) -> None:
    """Cut the roots, in running order, into one contiguous block for each worker, as large as its threads.

    Neighbours in the order feed the same tasks: they should end up together.
    """
    n = intake.roots_left
    threads = cluster.total_threads
    if threads == 0 or n < BLOCK_MIN * threads:
        return
    left_threads = threads
    for ws in cluster.worker_list:
        if ws.status != RUNNING:
            continue
        room = n * ws.nthreads // left_threads
        n -= room
        left_threads -= ws.nthreads
        intake.homes.append(ws.roots)
        intake.home_room.append(room)


def _is_free_root(cluster: Cluster, ts: TaskState) -> bool:
    """A root that may run anywhere and at once: one that existed may wait for a retry, or avoid a worker."""
    return ts.dependencies is None and ts.avoid < 0 and ts not in cluster.delayed and not is_limited(ts)


def _queue_at_home(cluster: Cluster, intake: Intake, ts: TaskState) -> None:
    """Put a root on the block that is being filled; past the last one, or if its worker left, anywhere."""
    while intake.home < len(intake.homes) and intake.home_room[intake.home] <= 0:
        intake.home += 1
    if intake.home >= len(intake.homes):
        cluster.recommend(ts, QUEUED)
        return
    intake.home_room[intake.home] -= 1
    place = intake.homes[intake.home]
    owner = place.owner
    if owner is None or owner.status != RUNNING or owner.number not in cluster.workers:
        cluster.recommend(ts, QUEUED)
        return
    transitions.waiting_to_queued(cluster, ts, place)


def tell_if_done(cluster: Cluster, cs: ClientState, ts: TaskState) -> None:
    """A client that comes to want a task hears at once if it is in memory or has erred."""
    if ts.state == MEMORY:
        cluster.outbox.finished(cs.number, ts.key, ts.nbytes, None)
    elif ts.state == ERRED:
        assert ts.failure is not None, ts.key
        cluster.outbox.erred(cs.number, ts.key, ts.failure)


def set_priority(ts: TaskState, priority: float) -> None:
    """A larger number runs sooner."""
    ts.user_priority = priority
