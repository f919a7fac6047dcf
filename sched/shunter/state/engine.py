"""Move one task by one arrow; settle the agenda. All other modules recommend, only this one moves.

A recommendation is looked at again when its turn comes: by then the task may have moved, be needed again, or be
gone. What no longer makes sense is dropped, which is what makes the order of events harmless. The legal
arrows are `names.ARROWS`; each function of `transitions` asserts where its arrow starts.
"""

from __future__ import annotations

from shunter.state import links, transitions
from shunter.state.backlog import backlog_for
from shunter.state.cluster import Cluster
from shunter.state.events import Failure
from shunter.state.interest import is_needed
from shunter.state.model import Backlog, TaskState
from shunter.state.names import (
    ERRED,
    FORGOTTEN,
    MEMORY,
    NO_WORKER,
    PROCESSING,
    QUEUED,
    RELEASED,
    RUNNING,
    WAITING,
    TaskStatus,
)
from shunter.state.placement import choose_backlog


def settle(cluster: Cluster) -> None:
    """Work off every recommendation, and those that follow from them."""
    agenda = cluster.agenda
    tasks = agenda.tasks
    targets = agenda.targets
    failures = agenda.failures
    if not tasks:
        return
    i = 0
    while i < len(tasks):
        move(cluster, tasks[i], targets[i], failures[i])
        i += 1
    agenda.reset()


def move(cluster: Cluster, ts: TaskState, target: TaskStatus, failure: Failure | None) -> None:
    """Take a task one arrow towards a status, if that still makes sense."""
    if ts.state == FORGOTTEN:
        return
    if target == QUEUED:
        _towards_queued(cluster, ts)
    elif target == RELEASED:
        _towards_released(cluster, ts)
    elif target == WAITING:
        _towards_waiting(cluster, ts)
    elif target == FORGOTTEN:
        _towards_forgotten(cluster, ts)
    elif target == ERRED:
        assert failure is not None, ts.key
        _towards_erred(cluster, ts, failure)
    else:
        raise cluster.bug(f"nothing recommends {target!r}", ts)


def leave(cluster: Cluster, ts: TaskState) -> None:
    """From any active status to `released`."""
    state = ts.state
    if state == WAITING:
        transitions.waiting_to_released(cluster, ts)
    elif state == QUEUED:
        transitions.queued_to_released(cluster, ts)
    elif state == PROCESSING:
        transitions.processing_to_released(cluster, ts, tell=True)
    elif state == NO_WORKER:
        transitions.no_worker_to_released(cluster, ts)
    else:
        raise cluster.bug("only an active task can be left", ts)


def _towards_queued(cluster: Cluster, ts: TaskState) -> None:
    if ts.state == WAITING:
        if ts.n_waiting > 0 or ts in cluster.delayed:
            return
        place = _promised(cluster, ts)
        if place is None:
            place = choose_backlog(cluster, ts)
        if place is None:
            transitions.waiting_to_no_worker(cluster, ts)
        else:
            transitions.waiting_to_queued(cluster, ts, place)
    elif ts.state == NO_WORKER:
        place = choose_backlog(cluster, ts)
        if place is not None:
            transitions.no_worker_to_queued(cluster, ts, place)


def _promised(cluster: Cluster, ts: TaskState) -> Backlog | None:
    """A task that was taken back goes to the idle thread it was taken back for, else it would return."""
    if not cluster.promised:
        return None
    thief = cluster.promised.pop(ts, None)
    if thief is None or thief.status != RUNNING:
        return None
    return backlog_for(thief, ts)


def _towards_released(cluster: Cluster, ts: TaskState) -> None:
    state = ts.state
    if state == MEMORY:
        if ts.holder is None or not is_needed(ts):
            transitions.memory_to_released(cluster, ts)
    elif is_needed(ts):
        return
    elif state == RELEASED or state == ERRED:
        _towards_forgotten(cluster, ts)
    else:
        leave(cluster, ts)
        _towards_forgotten(cluster, ts)


def _towards_waiting(cluster: Cluster, ts: TaskState) -> None:
    state = ts.state
    if state == WAITING or state == MEMORY or state == ERRED:
        return  # only its client brings an erred task back, by KeysRetried
    if state != RELEASED:
        leave(cluster, ts)
    if not is_needed(ts):
        _towards_forgotten(cluster, ts)
    elif ts.spec is None:  # scattered data that was let go: there is nothing to run
        transitions.released_to_erred(cluster, ts, transitions.lost_data(cluster, ts))
    else:
        transitions.released_to_waiting(cluster, ts)


def _towards_erred(cluster: Cluster, ts: TaskState, failure: Failure) -> None:
    state = ts.state
    if state == MEMORY or state == ERRED:
        return
    if state != RELEASED:
        leave(cluster, ts)
    transitions.released_to_erred(cluster, ts, failure)


def _towards_forgotten(cluster: Cluster, ts: TaskState) -> None:
    if is_needed(ts) or links.has_dependents(ts):
        return
    state = ts.state
    if state == MEMORY:
        transitions.memory_to_released(cluster, ts)
        return
    if state == ERRED:
        transitions.erred_to_released(cluster, ts)
    elif state != RELEASED:
        leave(cluster, ts)
    transitions.released_to_forgotten(cluster, ts)
