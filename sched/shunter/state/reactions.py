"""What each event means: one function for each, named ``on_`` + the event.

A reaction checks that the event makes sense (a peer may be gone, a run stale, a key unknown), changes what it
says, and recommends; `scheduler` settles and dispatches afterwards. An event that contradicts what is known is
dropped and counted, never an exception: peers may be late, twice, or wrong.
"""

from __future__ import annotations

from shunter.state import (
    assignment,
    backlog,
    clients,
    dispatch,
    engine,
    events,
    graphs,
    idleness,
    keeping,
    membership,
    replicas,
    restart,
    transitions,
)
from shunter.state.cluster import Cluster, Timer
from shunter.state.model import ClientState, TaskState, WorkerState
from shunter.state.names import MEMORY, QUEUED, RELEASED, WAITING, Key
from shunter.state.outbox import AnswerQuestion, ClosePeer, Reply

#: A worker that cannot fetch a key so often is believed: the holder it was told does not have it.
COMPLAINTS_MAX = 3


def apply(cluster: Cluster, event: events.Event) -> None:
    """Apply one event. The most frequent come first; the ladder covers every class of `events`."""
    if isinstance(event, events.TasksFinished):
        on_tasks_finished(cluster, event)
    elif isinstance(event, events.KeysAdded):
        on_keys_added(cluster, event)
    elif isinstance(event, events.Tick):
        on_tick(cluster)
    elif isinstance(event, events.Heartbeat):
        membership.on_heartbeat(cluster, event)
    elif isinstance(event, events.ClientEvent):
        _apply_client_event(cluster, event)
    else:
        _apply_rare_event(cluster, event)


def _apply_client_event(cluster: Cluster, event: events.ClientEvent) -> None:
    """Apply it, or keep it behind a graph of the same client that is coming in."""
    cs = cluster.clients.get(event.client)
    if cs is None:
        cluster.dropped_events += 1
    elif cs.incoming is not None or cs.deferred:
        cs.deferred.append(event)
    else:
        _apply_in_order(cluster, cs, event)


def _apply_in_order(cluster: Cluster, cs: ClientState, event: events.Event) -> None:
    if isinstance(event, events.GraphPart):
        on_graph_part(cluster, cs, event)
    elif isinstance(event, events.GraphBegin):
        on_graph_begin(cluster, cs, event)
    elif isinstance(event, events.GraphCommit):
        on_graph_commit(cluster, cs, event)
    elif isinstance(event, events.ClientReleasesKeys):
        clients.on_client_releases_keys(cluster, cs, event)
    elif isinstance(event, events.ClientDesiresKeys):
        clients.on_client_desires_keys(cluster, cs, event)
    elif isinstance(event, events.KeysCancelled):
        clients.on_keys_cancelled(cluster, cs, event)
    elif isinstance(event, events.KeysRetried):
        clients.on_keys_retried(cluster, cs, event)
    elif isinstance(event, events.PrioritySet):
        clients.on_priority_set(cluster, event)
    elif isinstance(event, events.DataScattered):
        clients.on_data_scattered(cluster, cs, event)
    elif isinstance(event, events.GraphAborted):
        cs.parts.pop(event.graph, None)
    elif isinstance(event, events.QuestionAsked):
        cluster.outbox.push(AnswerQuestion(cs.number, event.question))
    elif isinstance(event, events.KeysDetached):
        keeping.on_keys_detached(cluster, cs, event)
    elif isinstance(event, events.DatasetRequested):
        keeping.on_dataset_requested(cluster, cs, event)
    elif isinstance(event, events.DatasetPublished):
        keeping.on_dataset_published(cluster, cs, event)
    elif isinstance(event, events.DatasetUnpublished):
        keeping.on_dataset_unpublished(cluster, cs, event)
    else:
        raise cluster.bug(f"no reaction to {type(event).__name__}")


def _apply_rare_event(cluster: Cluster, event: events.Event) -> None:
    if isinstance(event, events.TaskFailed):
        on_task_failed(cluster, event)
    elif isinstance(event, events.WhoHasRequested):
        on_who_has_requested(cluster, event)
    elif isinstance(event, events.TakeBackAnswered):
        on_take_back_answered(cluster, event)
    elif isinstance(event, events.LongRunning):
        on_long_running(cluster, event)
    elif isinstance(event, events.ThreadsHeld):
        on_threads_held(cluster, event)
    elif isinstance(event, events.TaskRescheduled):
        on_task_rescheduled(cluster, event)
    elif isinstance(event, events.DataReleased):
        on_data_released(cluster, event)
    elif isinstance(event, events.WorkerAdded):
        membership.on_worker_added(cluster, event)
        restart.on_worker_added(cluster)
    elif isinstance(event, events.WorkerRemoved):
        membership.on_worker_removed(cluster, event)
    elif isinstance(event, events.WorkerDied):
        membership.on_worker_died(cluster, event)
    elif isinstance(event, events.WorkerStatusChanged):
        membership.on_worker_status_changed(cluster, event)
    elif isinstance(event, events.ClientAdded):
        clients.on_client_added(cluster, event)
    elif isinstance(event, events.ClientRemoved):
        _on_client_removed(cluster, event)
    elif isinstance(event, events.AcquireFailed):
        cluster.dropped_events += 1  # nothing is acquired on request yet, so nothing can fail
    elif isinstance(event, events.RebalanceRequested):
        _not_yet(cluster, event.client, event.request, "rebalance")
    elif isinstance(event, events.ReplicateRequested):
        _not_yet(cluster, event.client, event.request, "replicate")
    elif isinstance(event, events.RetireRequested):
        _not_yet(cluster, event.client, event.request, "retire")
    elif isinstance(event, events.RestartRequested):
        _on_restart_requested(cluster, event)
    elif isinstance(event, (events.ProposalMade, events.PreferencesSet)):
        cluster.say("info", "proposal-refused", {"reason": "this version takes no proposals"})
    else:
        raise cluster.bug(f"no reaction to {type(event).__name__}")


def _not_yet(cluster: Cluster, client: int, request: int, what: str) -> None:
    if client not in cluster.clients:
        cluster.dropped_events += 1
        return
    cluster.outbox.push(Reply(client, request, False, f"this version of the scheduler cannot {what}"))


def _on_client_removed(cluster: Cluster, event: events.ClientRemoved) -> None:
    cs = cluster.clients.get(event.client)
    if cs is not None:
        _abandon_incoming(cluster, cs)
        cs.deferred.clear()
    clients.on_client_removed(cluster, event)


def _abandon_incoming(cluster: Cluster, cs: ClientState) -> None:
    """Give up the graph that is coming in. What waits behind it is left to come."""
    intake = cs.incoming
    if isinstance(intake, graphs.Intake):
        graphs.abandon(cluster, intake)
        cs.incoming = None


def _on_restart_requested(cluster: Cluster, event: events.RestartRequested) -> None:
    """Everything of everybody is given up. What a client sends before it hears of that, it releases when it does."""
    if event.client not in cluster.clients:
        cluster.dropped_events += 1
        return
    for cs in cluster.clients.values():
        _abandon_incoming(cluster, cs)
        clients.release_everything(cluster, cs)
    keeping.let_go(cluster)
    engine.settle(cluster)
    restart.replace_workers(cluster, event)


# ---------------------------------------------------------------------------------------------- time


def next_deadline(cluster: Cluster) -> float:
    """When a Tick is due; infinity if nothing waits for time."""
    if cluster.incoming:
        return cluster.now
    if cluster.timers:
        return cluster.timers[0][0]
    return float("inf")


def on_tick(cluster: Cluster) -> None:
    if cluster.incoming:
        _advance_graph(cluster)
    timer = cluster.pop_due_timer()
    while timer is not None:
        _on_timer(cluster, timer)
        timer = cluster.pop_due_timer()


def _on_timer(cluster: Cluster, timer: Timer) -> None:
    what = timer.what
    if what == "idle":
        dispatch.on_retry(cluster)
    elif what == "retry":
        ts = cluster.tasks.get(timer.key)
        if (
            ts is not None
            and ts.index == timer.number
            and cluster.delayed.get(ts, cluster.now + 1) <= cluster.now
        ):
            del cluster.delayed[ts]
            cluster.recommend(ts, QUEUED)
    elif what == "grave":
        membership.settle_grave(cluster, timer.number)
    elif what == "no-worker":
        membership.fail_without_worker(cluster)
    elif what == "ttl":
        membership.on_silence(cluster, timer.number)
    elif what == "ttl-over":
        membership.on_silence_again(cluster, timer.number)
    elif what == "parent":
        keeping.on_parent(cluster, timer.number, timer.key)
    elif what == "restart":
        restart.on_deadline(cluster, timer.number)
    elif what == "idle-timeout":
        idleness.on_deadline(cluster)
    else:
        raise cluster.bug(f"unknown timer {what!r}")


# ---------------------------------------------------------------------------------------------- graphs


def on_graph_begin(cluster: Cluster, cs: ClientState, event: events.GraphBegin) -> None:
    cs.parts[event.graph] = graphs.Intake(event)


def on_graph_part(cluster: Cluster, cs: ClientState, event: events.GraphPart) -> None:
    intake = cs.parts.get(event.graph)
    if isinstance(intake, graphs.Intake):
        intake.add(event)
    else:
        cluster.dropped_events += 1
        cluster.outbox.push(ClosePeer(cs.number, f"part of graph {event.graph}, which was not begun"))


def on_graph_commit(cluster: Cluster, cs: ClientState, event: events.GraphCommit) -> None:
    intake = cs.parts.pop(event.graph, None)
    if not isinstance(intake, graphs.Intake):
        cluster.dropped_events += 1
        cluster.outbox.push(ClosePeer(cs.number, f"commit of graph {event.graph}, which was not begun"))
        return
    graphs.commit(intake, event)
    if intake.parent is not None:
        keeping.watch_parent(cluster, cs, intake.parent)
    # A graph of one message goes through at once: 5 phases, each of them about as long as the part.
    if not graphs.advance(cluster, cs, intake, 8 * cluster.settings.slice):
        cs.incoming = intake
        cluster.incoming.append(cs)


def _advance_graph(cluster: Cluster) -> None:
    """One slice of one graph, or of what waited behind it; clients take turns."""
    cs = cluster.incoming.popleft()
    if cluster.clients.get(cs.number) is not cs:
        return  # It is gone.
    intake = cs.incoming
    if isinstance(intake, graphs.Intake):
        if not graphs.advance(cluster, cs, intake, cluster.settings.slice):
            cluster.incoming.append(cs)
            return
        cs.incoming = None
    _catch_up(cluster, cs)
    if cs.deferred and not _has_graph_coming_in(cs):  # A graph among them has put the client in line already.
        cluster.incoming.append(cs)


def _catch_up(cluster: Cluster, cs: ClientState) -> None:
    """Apply what waited behind a graph, in order: about 8 slices of it, or up to the next large graph."""
    budget = 8 * cluster.settings.slice
    while cs.deferred and budget > 0 and not _has_graph_coming_in(cs):
        event = cs.deferred.popleft()
        budget -= len(event.keys) if isinstance(event, events.GraphPart) else 10
        engine.settle(cluster)
        _apply_in_order(cluster, cs, event)


def _has_graph_coming_in(cs: ClientState) -> bool:
    return cs.incoming is not None


# ---------------------------------------------------------------------------------------------- runs


def on_tasks_finished(cluster: Cluster, event: events.TasksFinished) -> None:
    ws = cluster.workers.get(event.worker)
    if ws is None:
        cluster.dropped_events += len(event.keys)
        return
    membership.seen(cluster, ws)
    tasks = cluster.tasks
    keys = event.keys
    run_ids = event.run_ids
    for i in range(len(keys)):
        ts = tasks.get(keys[i])
        if ts is not None and ts.run_id == run_ids[i] and ts.processing_on is ws:
            transitions.processing_to_memory(
                cluster,
                ts,
                event.nbytes[i],
                event.data[i],
                event.starts[i],
                event.durations[i],
                event.threads[i],
            )
        else:
            _on_stale_result(cluster, ws, ts, keys[i])
    backlog.mark_hungry(cluster, ws)


def _on_stale_result(cluster: Cluster, ws: WorkerState, ts: TaskState | None, key: Key) -> None:
    """A result of a run that is no longer current: never a copy to count on.

    Whoever made the run stale has told the worker to free the key already, so that it is about to be dropped.
    """
    cluster.dropped_events += 1
    if ts is None or not (ts in ws.has_what or ts.processing_on is ws or _is_input_on(ws, ts)):
        cluster.outbox.free(ws.number, key)


def _is_input_on(ws: WorkerState, ts: TaskState) -> bool:
    """Some task that was sent to this worker needs it. O(the fewer of: tasks sent, dependents)."""
    first = ts.dependent
    if first is not None and first.processing_on is ws:
        return True
    others = ts.dependents
    if others is None:
        return False
    if len(others) < len(ws.processing):
        for other in others:
            if other.processing_on is ws:
                return True
        return False
    for other in ws.processing:
        if other in others:
            return True
    return False


def _current_run(cluster: Cluster, worker: int, key: Key, run_id: int) -> TaskState | None:
    """The task, if that run of it is the current one; else the event is dropped and counted."""
    ts = cluster.tasks.get(key)
    if ts is not None and run_id != 0 and ts.run_id == run_id:
        ws = ts.processing_on
        if ws is not None and ws.number == worker:
            return ts
    cluster.dropped_events += 1
    return None


def on_task_failed(cluster: Cluster, event: events.TaskFailed) -> None:
    ts = _current_run(cluster, event.worker, event.key, event.run_id)
    if ts is None:
        return
    options = ts.options
    if not transitions.take_retry(ts, event.failure):
        transitions.processing_to_released(cluster, ts, tell=False)
        cluster.recommend_erred(ts, event.failure)
        return
    if options.retry_elsewhere:
        transitions.avoid_worker(ts, event.worker)
    if options.retry_delay > 0.0:
        cluster.delayed[ts] = cluster.now + options.retry_delay
        cluster.wake_at(cluster.now + options.retry_delay, Timer("retry", ts.index, ts.key))
    _run_again(cluster, ts)


def _run_again(cluster: Cluster, ts: TaskState) -> None:
    """The run is over without a result, and its worker knows.

    Recommended first: the task must need its inputs again before the agenda finds that nobody does.
    """
    cluster.recommend(ts, WAITING)
    transitions.processing_to_released(cluster, ts, tell=False)


def on_task_rescheduled(cluster: Cluster, event: events.TaskRescheduled) -> None:
    ts = _current_run(cluster, event.worker, event.key, event.run_id)
    if ts is not None:
        _run_again(cluster, ts)


def on_long_running(cluster: Cluster, event: events.LongRunning) -> None:
    ts = _current_run(cluster, event.worker, event.key, event.run_id)
    if ts is None or ts.is_long_running:
        return
    assignment.set_long_running(cluster, ts)
    ws = ts.processing_on
    assert ws is not None, ts.key
    backlog.mark_hungry(cluster, ws)


def on_threads_held(cluster: Cluster, event: events.ThreadsHeld) -> None:
    ws = cluster.workers.get(event.worker)
    if ws is None:
        cluster.dropped_events += 1
        return
    assignment.hold_threads(cluster, ws, event.count)
    backlog.mark_hungry(cluster, ws)


def on_take_back_answered(cluster: Cluster, event: events.TakeBackAnswered) -> None:
    ws = cluster.workers.get(event.worker)
    if ws is None:
        cluster.dropped_events += 1
        return
    given = frozenset(event.given)
    for run_id in event.asked:
        answered = assignment.answered(ws, run_id)
        if answered is None or run_id not in given:
            continue
        ts, thief = answered
        cluster.promised[ts] = thief
        _run_again(cluster, ts)


# ---------------------------------------------------------------------------------------------- data


def on_keys_added(cluster: Cluster, event: events.KeysAdded) -> None:
    ws = cluster.workers.get(event.worker)
    if ws is None:
        cluster.dropped_events += 1
        return
    for i in range(len(event.keys)):
        ts = cluster.tasks.get(event.keys[i])
        if ts is not None and ts.state == MEMORY and ts.index == event.lives[i] and _is_input_on(ws, ts):
            replicas.add_holder(ts, ws, wanted=False)
        elif ts is None or not (ts in ws.has_what or ts.processing_on is ws or _is_input_on(ws, ts)):
            cluster.outbox.free(ws.number, event.keys[i])  # Fetched for a task that has been taken from it.


def on_data_released(cluster: Cluster, event: events.DataReleased) -> None:
    ws = cluster.workers.get(event.worker)
    if ws is None:
        cluster.dropped_events += 1
        return
    for key in event.keys:
        ts = cluster.tasks.get(key)
        if ts is not None and replicas.remove_holder(ts, ws) and ts.holder is None:
            cluster.recommend(ts, RELEASED)


def on_who_has_requested(cluster: Cluster, event: events.WhoHasRequested) -> None:
    """A worker could not fetch inputs: name other holders, and after some complaints believe it."""
    ws = cluster.workers.get(event.worker)
    if ws is None:
        cluster.dropped_events += 1
        return
    for key in event.keys:
        ts = cluster.tasks.get(key)
        if ts is None:
            cluster.outbox.free(ws.number, key)
            continue
        for number in event.failed:
            _complain(cluster, ts, number)
        if ts.state == MEMORY and ts.holder is None:
            cluster.recommend(ts, RELEASED)
            continue
        cluster.outbox.update_who_has(ws.number, key, replicas.some_holders(ts, 16))


def _complain(cluster: Cluster, ts: TaskState, holder: int) -> None:
    """A worker could not get the value there: after some such complaints it is not held there."""
    accused = cluster.workers.get(holder)
    if accused is None or ts not in accused.has_what:
        return
    counts = cluster.complaints.setdefault(ts, {})
    counts[holder] = counts.get(holder, 0) + 1
    if counts[holder] >= COMPLAINTS_MAX:
        del counts[holder]
        replicas.remove_holder(ts, accused)
        cluster.outbox.remove(holder, ts.key)
        cluster.say("warning", "holder-disbelieved", {"key": ts.key, "worker": accused.name})
