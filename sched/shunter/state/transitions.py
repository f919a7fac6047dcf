"""One function for each arrow of a task: what changes, who is told, and what that makes worth looking at.

Arrows only recommend; `engine.settle` works the recommendations off. This module is the sole writer of a task's
state, failure, retries and suspicion. The list of legal arrows is `names.ARROWS`.
"""

from __future__ import annotations

from shunter.state import assignment, backlog, groups, interest, links, replicas
from shunter.state.cluster import Cluster, note_arrow
from shunter.state.costs import note_run
from shunter.state.events import Failure
from shunter.state.model import Backlog, TaskState, WorkerState
from shunter.state.names import (
    ERRED,
    FAILED_LOST_INPUT,
    FORGOTTEN,
    MEMORY,
    NO_WORKER,
    PROCESSING,
    QUEUED,
    RELEASED,
    WAITING,
    Key,
    TaskStatus,
)


def _enter(
    cluster: Cluster, ts: TaskState, finish: TaskStatus, arrow: str, worker: int = -1, run_id: int = 0
) -> None:
    groups.moved(cluster.counts, ts.state, finish)
    ts.state = finish
    note_arrow(cluster, ts, arrow, worker, run_id)


# ---------------------------------------------------------------------------------------------- forward


def released_to_waiting(cluster: Cluster, ts: TaskState) -> None:
    """The value is needed: wait for its inputs, and have those computed that are not."""
    links.start_waiting(ts)
    _enter(cluster, ts, WAITING, "released -> waiting")
    if ts.n_waiting == 0:
        cluster.recommend(ts, QUEUED)
    else:
        _need_inputs(cluster, ts)


def _need_inputs(cluster: Cluster, ts: TaskState) -> None:
    """Have those inputs computed that are not on their way; one that has erred is to blame."""
    deps = ts.dependencies
    assert deps is not None
    for dep in deps:
        if dep.state == RELEASED:
            cluster.recommend(dep, WAITING)
        elif dep.state == ERRED:
            assert dep.failure is not None, dep.key
            cluster.recommend_erred(ts, dep.failure)


def released_to_waiting_held(cluster: Cluster, ts: TaskState) -> None:
    """As `released_to_waiting`, for a task of a graph that is coming in: `graphs` queues it later."""
    links.start_waiting(ts)
    _enter(cluster, ts, WAITING, "released -> waiting")
    if ts.n_waiting > 0:
        _need_inputs(cluster, ts)


def waiting_to_queued(cluster: Cluster, ts: TaskState, place: Backlog) -> None:
    assert ts.state == WAITING and ts.n_waiting == 0, ts.key
    backlog.push(cluster, place, ts)
    _enter(cluster, ts, QUEUED, "waiting -> queued")


def waiting_to_no_worker(cluster: Cluster, ts: TaskState) -> None:
    assert ts.state == WAITING and ts.n_waiting == 0, ts.key
    backlog.add_no_worker(cluster, ts)
    _enter(cluster, ts, NO_WORKER, "waiting -> no-worker")


def no_worker_to_queued(cluster: Cluster, ts: TaskState, place: Backlog) -> None:
    assert ts.state == NO_WORKER, ts.key
    backlog.remove_no_worker(cluster, ts)
    backlog.push(cluster, place, ts)
    _enter(cluster, ts, QUEUED, "no-worker -> queued")


def queued_to_processing(cluster: Cluster, ts: TaskState, ws: WorkerState) -> None:
    """The task is committed to a worker; `dispatch` emits the instruction."""
    assert ts.state == QUEUED, ts.key
    backlog.remove(cluster, ts)
    assignment.assign(cluster, ts, ws)
    _enter(cluster, ts, PROCESSING, "queued -> processing", ws.number, ts.run_id)


def processing_to_memory(
    cluster: Cluster,
    ts: TaskState,
    nbytes: int,
    data: object,
    start: float,
    duration: float,
    thread: int,
) -> None:
    """The run ended well: wake dependents, let go of inputs, tell the clients."""
    assert ts.state == PROCESSING, ts.key
    run_id = ts.run_id
    ws = assignment.unassign(cluster, ts)
    replicas.set_nbytes(ts, nbytes)
    replicas.add_holder(ts, ws, wanted=True)
    note_run(ts.kind, duration, nbytes)
    groups.finished(ts.kind)
    links.stop_waiting(ts)
    ts.avoid = -1
    ts.suspicion = 0
    ts.state = MEMORY
    if cluster.bereaved:
        _let_children_go(cluster, ts)
    groups.moved(cluster.counts, PROCESSING, MEMORY)
    note_arrow(cluster, ts, "processing -> memory", ws.number, run_id, (start, duration), thread)
    if ts.n_waiters > 0:
        _wake_dependents(cluster, ts)
    _look_at_inputs(cluster, ts)
    wanter = ts.wanter
    if wanter is not None:
        cluster.outbox.finished(wanter.number, ts.key, nbytes, data)
        if ts.wanters is not None:
            for cs in ts.wanters:
                cluster.outbox.finished(cs.number, ts.key, nbytes, data)
        if cluster.detached.wants and interest.unwant(ts, cluster.detached) and not interest.is_needed(ts):
            cluster.recommend(ts, RELEASED)
    elif ts.n_waiters == 0:
        cluster.recommend(ts, RELEASED)


def data_to_memory(cluster: Cluster, ts: TaskState, nbytes: int, holders: list[WorkerState]) -> None:
    """Pure data that a client has put on workers: from `released`, without a run."""
    assert ts.state == RELEASED, ts.key
    replicas.set_nbytes(ts, nbytes)
    for ws in holders:
        replicas.add_holder(ts, ws, wanted=True)
    cluster.lost_with.pop(ts, None)
    _enter(cluster, ts, MEMORY, "released -> memory", holders[0].number)


def _let_children_go(cluster: Cluster, parent: TaskState) -> None:
    """A task is done whose client had gone before: what was kept for its next run is not needed any more."""
    keeper = cluster.bereaved.pop(parent, None)
    if keeper is not None:
        for ts in list(keeper.wants):
            interest.unwant(ts, keeper)
            if not interest.is_needed(ts):
                cluster.recommend(ts, RELEASED)


def _wake_dependents(cluster: Cluster, ts: TaskState) -> None:
    first = ts.dependent
    if first is not None and first.state == WAITING and links.input_arrived(first):
        cluster.recommend(first, QUEUED)
    if ts.dependents is not None:
        for other in ts.dependents:
            if other.state == WAITING and links.input_arrived(other):
                cluster.recommend(other, QUEUED)


def _look_at_inputs(cluster: Cluster, ts: TaskState) -> None:
    """The task no longer needs its inputs; perhaps nobody does."""
    if ts.dependencies is not None:
        for dep in ts.dependencies:
            if dep.n_waiters == 0 and dep.wanter is None:
                cluster.recommend(dep, RELEASED)


# ---------------------------------------------------------------------------------------------- back


def waiting_to_released(cluster: Cluster, ts: TaskState) -> None:
    assert ts.state == WAITING, ts.key
    cluster.delayed.pop(ts, None)
    cluster.promised.pop(ts, None)
    links.stop_waiting(ts)
    _enter(cluster, ts, RELEASED, "waiting -> released")
    _look_at_inputs(cluster, ts)


def queued_to_released(cluster: Cluster, ts: TaskState) -> None:
    assert ts.state == QUEUED, ts.key
    backlog.remove(cluster, ts)
    links.stop_waiting(ts)
    _enter(cluster, ts, RELEASED, "queued -> released")
    _look_at_inputs(cluster, ts)


def no_worker_to_released(cluster: Cluster, ts: TaskState) -> None:
    assert ts.state == NO_WORKER, ts.key
    backlog.remove_no_worker(cluster, ts)
    links.stop_waiting(ts)
    _enter(cluster, ts, RELEASED, "no-worker -> released")
    _look_at_inputs(cluster, ts)


def processing_to_released(cluster: Cluster, ts: TaskState, *, tell: bool) -> None:
    """The run failed or is given up. ``tell``: the worker still has it and must hear so."""
    assert ts.state == PROCESSING, ts.key
    run_id = ts.run_id
    ws = assignment.unassign(cluster, ts)
    if tell:
        cluster.outbox.free(ws.number, ts.key)
    backlog.mark_hungry(cluster, ws)
    links.stop_waiting(ts)
    _enter(cluster, ts, RELEASED, "processing -> released", ws.number, run_id)
    _look_at_inputs(cluster, ts)


def memory_to_released(cluster: Cluster, ts: TaskState) -> None:
    """The value is dropped because nobody needs it, or its last holder is gone.

    In the second case active dependents go back to waiting, and a value that can be computed again is.
    """
    assert ts.state == MEMORY, ts.key
    holder = ts.holder
    if holder is not None and ts.holders is None:
        cluster.outbox.free(holder.number, ts.key)
        replicas.remove_holder(ts, holder)
    else:
        for ws in replicas.holders_of(ts):
            cluster.outbox.free(ws.number, ts.key)
            replicas.remove_holder(ts, ws)
    _enter(cluster, ts, RELEASED, "memory -> released")
    if cluster.complaints:
        cluster.complaints.pop(ts, None)
    if ts.wanter is None and ts.n_waiters == 0:
        if not links.has_dependents(ts):
            released_to_forgotten(cluster, ts)
        return
    if ts.spec is None:
        cluster.recommend_erred(ts, lost_data(cluster, ts))
    else:
        for cs in interest.wanters_of(ts):
            cluster.outbox.lost(cs.number, ts.key)
        cluster.recommend(ts, WAITING)
    for other in links.dependents_of(ts):
        if other.state == WAITING:
            links.input_lost(other)
        elif other.state == QUEUED or other.state == NO_WORKER or other.state == PROCESSING:
            cluster.recommend(other, WAITING)


def lost_data(cluster: Cluster, ts: TaskState) -> Failure:
    """Scattered data that no worker holds any more: its clients let it go, or its workers are gone."""
    names = cluster.lost_with.get(ts)
    if names is None:
        return no_holders(ts.key)
    return _not_again(
        ts.key, f"was lost with the workers that held it: {', '.join([repr(n) for n in names])}"
    )


def no_holders(key: Key) -> Failure:
    return _not_again(key, "has been released, or lost with every worker that held it")


def _not_again(key: Key, what: str) -> Failure:
    return Failure(
        FAILED_LOST_INPUT,
        key,
        f"{key!r} was scattered, and {what}; it cannot be computed again."
        " Scatter it again, with broadcast=True to keep more copies",
    )


# ---------------------------------------------------------------------------------------------- ends


def released_to_erred(cluster: Cluster, ts: TaskState, failure: Failure) -> None:
    """The task failed, or one that it needs did: tell the clients, and blame the dependents too."""
    assert ts.state == RELEASED, ts.key
    ts.failure = failure
    _enter(cluster, ts, ERRED, "released -> erred")
    if cluster.bereaved:
        _let_children_go(cluster, ts)
    for cs in interest.wanters_of(ts):
        cluster.outbox.erred(cs.number, ts.key, failure)
    if interest.unwant(ts, cluster.detached):
        cluster.say(
            "error", "fire-and-forget-failed", {"key": ts.key, "because": failure.key, "text": failure.text}
        )
    if ts.n_waiters > 0:
        for other in links.dependents_of(ts):
            if other.state == WAITING:
                cluster.recommend_erred(other, failure)
    if ts.wanter is None and not links.has_dependents(ts):
        cluster.recommend(ts, FORGOTTEN)


def erred_to_released(cluster: Cluster, ts: TaskState) -> None:
    """It is retried or forgotten: the failure is history."""
    assert ts.state == ERRED, ts.key
    ts.failure = None
    ts.suspicion = 0
    _enter(cluster, ts, RELEASED, "erred -> released")


def released_to_forgotten(cluster: Cluster, ts: TaskState) -> None:
    """Nobody knows the task any more: cut its links, so that no cycle of records is left."""
    assert ts.state == RELEASED and ts.wanter is None, ts.key
    deps = ts.dependencies
    links.unlink(ts)
    ts.state = FORGOTTEN
    groups.forgotten(cluster, ts)
    note_arrow(cluster, ts, "released -> forgotten", -1, 0)
    del cluster.tasks[ts.key]
    if cluster.bereaved:
        _let_children_go(cluster, ts)
    if cluster.lost_with:
        cluster.lost_with.pop(ts, None)
    if not cluster.tasks:
        cluster.tasks = {}
    if deps is not None:
        for dep in deps:
            if dep.wanter is None and dep.n_waiters == 0 and not links.has_dependents(dep):
                cluster.recommend(dep, FORGOTTEN)


# ---------------------------------------------------------------------------------------------- retries


def take_retry(ts: TaskState, failure: Failure) -> bool:
    """Use up one of the task's retries, if it has one left for such a failure."""
    if ts.retries <= 0:
        return False
    on = ts.options.retry_on
    if on is not None:
        for name in failure.types:
            if name in on:
                break
        else:
            return False
    ts.retries -= 1
    return True


def give_retries(ts: TaskState) -> None:
    """A task that is new, or retried by its client, has all of its retries."""
    ts.retries = ts.options.retries


def avoid_worker(ts: TaskState, worker: int) -> None:
    ts.avoid = worker


def suspect(ts: TaskState) -> int:
    """A worker died while the task was running there; how often that happened by now."""
    ts.suspicion += 1
    return ts.suspicion
