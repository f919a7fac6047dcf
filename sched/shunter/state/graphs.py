"""Graphs come in by parts and become tasks: checked and created as a whole, in bounded slices.

Theory of operation. An `Intake` collects the parts of one graph. At its commit it goes through phases, each
advanced by a bounded count per step, so that others are answered meanwhile (no generators: they do not compile):

    index   every key gets a place
    check   an unknown input or wanted key refuses the graph, and so did a key of the graph named twice
    cull    walk from the wanted keys to what they need
    pick    list what is needed
    rank    keys in their natural order, so that the static order does not depend on how they came
    number  ids by that order
    edges   the inputs of each task, by id
    order   the static order (these four are skipped if the client sent the graph in running order, and that is true)
    create  tasks in that order, each with its links, waiting at once but *held*: the graph counts as a waiter of
            each of its tasks, so that nothing is given up half-way
    want    the client wants its keys
    start   let go of them in that order; the runnable ones are queued
    unpin   let go of the tasks that existed before
    sweep   let go of the columns

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
#: Positions that are copied or let go of at the price of one task that is created.
BULK = 8
#: The columns of a graph of so many tasks are let go of at once.
SWEEP_MIN = 500


@final
class Intake(Pending):
    """One graph on its way in. ``phase`` names what `advance` does next; ``at`` is how far it got."""

    __slots__ = (
        "at",
        "by_id",
        "client",
        "created",
        "edges",
        "fan_in",
        "generation",
        "graph",
        "home",
        "home_room",
        "homes",
        "ids",
        "in_order",
        "inputs",
        "key_order",
        "keys",
        "kind_names",
        "kinds",
        "natural",
        "needed",
        "options",
        "order",
        "parent",
        "phase",
        "picked",
        "pinned",
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
        self.picked: list[int] = []  # positions of what is needed
        self.key_order: KeyOrder | None = None
        self.natural: list[int] = []  # places in ``picked``, in the natural order of the keys
        self.by_id: list[int] = []  # id -> position
        self.ids: list[int] = []  # position -> id
        self.fan_in: list[int] = []  # how many inputs each id has in the graph,
        self.edges: list[int] = []  # and which, one after the other
        self.static_order: StaticOrder | None = None
        self.order: list[int] = []  # running order: ids if the graph was ordered, else positions
        self.pins = ClientState(-1, f"graph {event.graph}")
        self.pinned: list[TaskState] = []
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
    intake.wanted = intake.keys if event.wanted is None else list(event.wanted)
    intake.needed = [event.wanted is None] * len(intake.keys)
    _enter(intake, "index")


def advance(cluster: Cluster, cs: ClientState, intake: Intake, budget: int) -> bool:
    """Work on a graph for about ``budget`` tasks and edges. True when it is done (created, or refused)."""
    while budget > 0:
        phase = intake.phase
        if phase == "index":
            budget = _index(cluster, cs, intake, budget)
        elif phase == "check":
            budget = _check(cluster, cs, intake, budget)
        elif phase == "cull":
            budget = _cull(intake, budget)
        elif phase == "pick":
            budget = _pick(cluster, intake, budget)
        elif phase == "create":
            budget = _create(cluster, intake, budget)
        elif phase == "want":
            budget = _want(cluster, cs, intake, budget)
        elif phase == "start":
            budget = _start(cluster, intake, budget)
        elif phase == "unpin":
            budget = _unpin(cluster, intake, budget)
        elif phase == "sweep":
            budget = _sweep(intake, budget)
        elif phase == "done":
            return True
        else:
            budget = _advance_order(cluster, cs, intake, budget)
    return intake.phase == "done"


def _advance_order(cluster: Cluster, cs: ClientState, intake: Intake, budget: int) -> int:
    """The phases of a graph that did not come in running order."""
    phase = intake.phase
    if phase == "rank":
        return _rank(intake, budget)
    if phase == "number":
        return _number(intake, budget)
    if phase == "edges":
        return _collect_edges(intake, budget)
    assert phase == "order", phase
    return _order(cluster, cs, intake, budget)


def abandon(cluster: Cluster, intake: Intake) -> None:
    """The client is gone: let go of what was created."""
    first = len(intake.created)
    if intake.phase == "create" or intake.phase == "want":
        first = 0
    elif intake.phase == "start":
        first = intake.at
    for ts in intake.created[first:]:
        links.let_go(ts)
        cluster.recommend(ts, RELEASED)
        cluster.recommend(ts, QUEUED)  # if somebody else has come to want it
    for ts in list(intake.pins.wants):
        _unpin_one(cluster, intake, ts)
    _enter(intake, "done")


def _enter(intake: Intake, phase: str) -> None:
    intake.phase = phase
    intake.at = 0


# ---------------------------------------------------------------------------------------------- phases


def _index(cluster: Cluster, cs: ClientState, intake: Intake, budget: int) -> int:
    """Give each key its place."""
    keys = intake.keys
    place = intake.place
    i = intake.at
    end = min(i + budget, len(keys))
    budget -= end - i
    while i < end:
        key = keys[i]
        if key in place:
            text = f"key {key!r} is twice in one graph; give each task a key of its own"
            _refuse(cluster, cs, intake, key, text)
            return budget
        place[key] = i
        i += 1
    intake.at = i
    if i == len(keys):
        _enter(intake, "check")
    return budget


def _check(cluster: Cluster, cs: ClientState, intake: Intake, budget: int) -> int:
    """Is every input known, and every wanted key, and do inputs come first? What exists already is pinned."""
    keys = intake.keys
    n = len(keys)
    place = intake.place
    i = intake.at
    while i < n and budget > 0:
        inputs = intake.inputs[i]
        budget -= 1
        if inputs is not None:
            budget -= len(inputs)
            for key in inputs:
                j = place.get(key, -1)
                if j >= i:
                    intake.in_order = False
                elif j < 0 and not _pin(cluster, intake, key):
                    _refuse(
                        cluster,
                        cs,
                        intake,
                        keys[i],
                        f"task {keys[i]!r} needs {key!r}, which is neither in the graph nor on the cluster;"
                        " add it, or keep a future of it until this graph is submitted",
                    )
                    return budget
        i += 1
    wanted = intake.wanted
    end = n if wanted is keys else n + len(wanted)
    while n <= i < end and budget > 0:
        key = wanted[i - n]
        budget -= 1
        if key not in place and not _pin(cluster, intake, key):
            _refuse(cluster, cs, intake, key, f"key {key!r} is wanted, but neither in the graph nor known")
            return budget
        i += 1
    intake.at = i
    if i == end:
        _enter(intake, "cull")
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


def _cull(intake: Intake, budget: int) -> int:
    """Mark what the wanted keys need. Tasks that nobody asked for are not created."""
    wanted = intake.wanted
    if wanted is not intake.keys:
        needed = intake.needed
        stack = intake.stack
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
    _enter(intake, "pick")
    return budget


def _pick(cluster: Cluster, intake: Intake, budget: int) -> int:
    """List the positions of what is needed."""
    needed = intake.needed
    picked = intake.picked
    start = intake.at
    end = min(start + budget * BULK, len(needed))
    for i in range(start, end):
        if needed[i]:
            picked.append(i)
    intake.at = end
    if end == len(needed):
        if intake.in_order:
            intake.order = picked
            _begin_create(cluster, intake)
        else:
            intake.key_order = KeyOrder(intake.keys, picked)
            _enter(intake, "rank")
    return budget - (end - start + BULK - 1) // BULK


def _rank(intake: Intake, budget: int) -> int:
    key_order = intake.key_order
    assert key_order is not None
    if key_order.advance(budget):
        intake.natural = key_order.order
        intake.key_order = None
        intake.ids = [-1] * len(intake.keys)
        _enter(intake, "number")
    return key_order.left


def _number(intake: Intake, budget: int) -> int:
    """Ids by the natural order of keys, so that they do not depend on how the keys came."""
    natural = intake.natural
    picked = intake.picked
    by_id = intake.by_id
    ids = intake.ids
    start = intake.at
    end = min(start + 2 * budget, len(natural))
    for i in range(start, end):
        position = picked[natural[i]]
        by_id.append(position)
        ids[position] = i
    intake.at = end
    if end == len(natural):
        _enter(intake, "edges")
    return budget - (end - start + 1) // 2


def _collect_edges(intake: Intake, budget: int) -> int:
    """The inputs of each task that are in the graph, each once, by id."""
    by_id = intake.by_id
    ids = intake.ids
    place = intake.place
    fan_in = intake.fan_in
    edges = intake.edges
    i = intake.at
    while i < len(by_id) and budget > 0:
        inputs = intake.inputs[by_id[i]]
        before = len(edges)
        if inputs is not None:
            budget -= len(inputs)
            found: list[int] = []
            for key in inputs:
                j = place.get(key, -1)
                if j >= 0:
                    found.append(ids[j])
            edges.extend(found if len(found) < 2 else list(dict.fromkeys(found)))
        fan_in.append(len(edges) - before)
        i += 1
        budget -= 1
    intake.at = i
    if i == len(by_id):
        intake.static_order = StaticOrder(fan_in, edges)
        _enter(intake, "order")
    return budget


def _order(cluster: Cluster, cs: ClientState, intake: Intake, budget: int) -> int:
    """The static order of the tasks, over dense ids; a cycle refuses the graph and is named."""
    static_order = intake.static_order
    assert static_order is not None
    if not static_order.advance(budget):
        return static_order.left
    budget = static_order.left
    intake.static_order = None
    if static_order.cycle:
        names = [repr(intake.keys[intake.by_id[i]]) for i in static_order.cycle[:8]]
        if len(static_order.cycle) > 8:
            names = [*names[:7], f"… {len(static_order.cycle) - 7} more"]
        first = intake.keys[intake.by_id[static_order.cycle[0]]]
        _refuse(cluster, cs, intake, first, f"the graph has a cycle: {' -> '.join([*names, names[0]])}")
        return budget
    intake.order = static_order.order
    _begin_create(cluster, intake)
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
    _enter(intake, "create")


def _create(cluster: Cluster, intake: Intake, budget: int) -> int:
    """Create the tasks in running order, held and waiting; refresh those that exist.

    What the graph's columns refer to is let go of on the way, as long as it is at hand: see `_sweep`.
    """
    order = intake.order
    by_id = intake.by_id
    i = intake.at
    while i < len(order) and budget > 0:
        position = by_id[order[i]] if by_id else order[i]
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
        del intake.place[key]
        intake.specs[position] = None
        intake.inputs[position] = None
        i += 1
    intake.at = i
    if i >= len(order):
        _cut_home_blocks(cluster, intake)
        _enter(intake, "want")
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
        _enter(intake, "start")
    return budget


def _start(cluster: Cluster, intake: Intake, budget: int) -> int:
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
        _begin_unpin(intake)
    return budget


def _begin_unpin(intake: Intake) -> None:
    intake.pinned = list(intake.pins.wants)
    _enter(intake, "unpin")


def _unpin(cluster: Cluster, intake: Intake, budget: int) -> int:
    """Let go of the tasks that existed before."""
    pinned = intake.pinned
    start = intake.at
    end = min(start + budget, len(pinned))
    for i in range(start, end):
        _unpin_one(cluster, intake, pinned[i])
    intake.at = end
    if end == len(pinned):
        _enter(intake, "sweep")
    return budget - (end - start)


def _unpin_one(cluster: Cluster, intake: Intake, ts: TaskState) -> None:
    if interest.unwant(ts, intake.pins) and not interest.is_needed(ts):
        cluster.recommend(ts, RELEASED)


def _sweep(intake: Intake, budget: int) -> int:
    """Let go of the columns: that takes milliseconds for a hundred thousand tasks, so it is done bit by bit, too."""
    left = len(intake.keys)
    if left <= SWEEP_MIN:
        _enter(intake, "done")
        return budget
    count = min(left, 2 * budget)
    left -= count
    place = intake.place  # of what was not created
    for _ in range(min(count, len(place))):
        place.popitem()
    if intake.wanted is not intake.keys:
        del intake.wanted[left:]
    del intake.keys[left:]
    del intake.specs[left:]
    del intake.kinds[left:]
    del intake.inputs[left:]
    del intake.options[left:]
    del intake.needed[left:]
    del intake.picked[left:]
    del intake.natural[left:]
    del intake.by_id[left:]
    del intake.ids[left:]
    del intake.order[left:]
    del intake.created[left:]
    del intake.pinned[left:]
    return budget - (count + 1) // 2


def _refuse(cluster: Cluster, cs: ClientState, intake: Intake, blamed: Key, text: str) -> None:
    """Nothing of the graph is created; each wanted key that the client did not have is reported as erred."""
    failure = Failure(FAILED_GRAPH, blamed, text)  # One for all: it travels once.
    for key in dict.fromkeys(intake.wanted):
        ts = cluster.tasks.get(key)
        if ts is None or ts not in cs.wants:
            cluster.outbox.erred(cs.number, key, failure)
    cluster.say("info", "graph-refused", {"client": cs.name, "reason": text})
    _begin_unpin(intake)


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
