"""What each event means: one function for each, named ``on_`` + the event.

A reaction checks that the event makes sense (a peer may be gone, a run stale, a key unknown), changes what it
says, and recommends; `scheduler` settles and dispatches afterwards. An event that contradicts what is known is
dropped and counted, never an exception: peers may be late, twice, or wrong.
"""

from __future__ import annotations

from shunter.state import (
    assignment,
    backlog,
    dispatch,
    engine,
    events,
    graphs,
    interest,
    links,
    membership,
    replicas,
    transitions,
)
from shunter.state.cluster import Cluster, Timer
from shunter.state.events import DEFAULT_OPTIONS
from shunter.state.groups import created as count_created
from shunter.state.groups import get_kind
from shunter.state.model import ClientState, TaskState, WorkerState
from shunter.state.names import (
    ERRED,
    MEMORY,
    QUEUED,
    RELEASED,
    WAITING,
    Key,
)
from shunter.state.outbox import ClosePeer, Reply

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
        on_client_releases_keys(cluster, cs, event)
    elif isinstance(event, events.ClientDesiresKeys):
        on_client_desires_keys(cluster, cs, event)
    elif isinstance(event, events.KeysCancelled):
        on_keys_cancelled(cluster, cs, event)
    elif isinstance(event, events.KeysRetried):
        on_keys_retried(cluster, cs, event)
    elif isinstance(event, events.PrioritySet):
        on_priority_set(cluster, event)
    elif isinstance(event, events.DataScattered):
        on_data_scattered(cluster, cs, event)
    elif isinstance(event, events.GraphAborted):
        cs.parts.pop(event.graph, None)
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
    elif isinstance(event, events.TaskRescheduled):
        on_task_rescheduled(cluster, event)
    elif isinstance(event, events.DataReleased):
        on_data_released(cluster, event)
    elif isinstance(event, events.WorkerAdded):
        membership.on_worker_added(cluster, event)
    elif isinstance(event, events.WorkerRemoved):
        membership.on_worker_removed(cluster, event)
    elif isinstance(event, events.WorkerDied):
        membership.on_worker_died(cluster, event)
    elif isinstance(event, events.WorkerStatusChanged):
        membership.on_worker_status_changed(cluster, event)
    elif isinstance(event, events.ClientAdded):
        on_client_added(cluster, event)
    elif isinstance(event, events.ClientRemoved):
        on_client_removed(cluster, event)
    elif isinstance(event, events.AcquireFailed):
        cluster.dropped_events += 1  # nothing is acquired on request yet, so nothing can fail
    elif isinstance(event, events.RebalanceRequested):
        _not_yet(cluster, event.client, event.request, "rebalance")
    elif isinstance(event, events.ReplicateRequested):
        _not_yet(cluster, event.client, event.request, "replicate")
    elif isinstance(event, events.RetireRequested):
        _not_yet(cluster, event.client, event.request, "retire")
    elif isinstance(event, events.RestartRequested):
        _not_yet(cluster, event.client, event.request, "restart")
    elif isinstance(event, (events.ProposalMade, events.PreferencesSet)):
        cluster.say("info", "proposal-refused", {"reason": "this version takes no proposals"})
    else:
        raise cluster.bug(f"no reaction to {type(event).__name__}")


def _not_yet(cluster: Cluster, client: int, request: int, what: str) -> None:
    cluster.outbox.push(Reply(client, request, False, f"this version of the scheduler cannot {what}"))


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


# ---------------------------------------------------------------------------------------------- clients


def on_client_added(cluster: Cluster, event: events.ClientAdded) -> None:
    if event.client in cluster.clients:
        cluster.dropped_events += 1
        return
    cluster.clients[event.client] = ClientState(event.client, event.name)


def on_client_removed(cluster: Cluster, event: events.ClientRemoved) -> None:
    cs = cluster.clients.pop(event.client, None)
    if cs is None:
        cluster.dropped_events += 1
        return
    intake = cs.incoming
    if isinstance(intake, graphs.Intake):
        graphs.abandon(cluster, intake)
        cs.incoming = None
        cs.deferred.clear()
    for ts in list(cs.wants):
        _stop_wanting(cluster, cs, ts)


def on_client_desires_keys(cluster: Cluster, cs: ClientState, event: events.ClientDesiresKeys) -> None:
    for key in event.keys:
        ts = cluster.tasks.get(key)
        if ts is None:
            cluster.outbox.cancelled(cs.number, key, f"the scheduler does not know {key!r}; submit it again")
        elif interest.want(ts, cs):
            graphs.tell_if_done(cluster, cs, ts)
            if ts.state == RELEASED:
                cluster.recommend(ts, WAITING)


def on_client_releases_keys(cluster: Cluster, cs: ClientState, event: events.ClientReleasesKeys) -> None:
    tasks = cluster.tasks
    for key in event.keys:
        ts = tasks.get(key)
        if ts is not None:
            _stop_wanting(cluster, cs, ts)


def _stop_wanting(cluster: Cluster, cs: ClientState, ts: TaskState) -> None:
    if interest.unwant(ts, cs) and not interest.is_needed(ts):
        cluster.recommend(ts, RELEASED)


def on_keys_cancelled(cluster: Cluster, cs: ClientState, event: events.KeysCancelled) -> None:
    """Give up keys and everything that depends on them, as far as nobody else wants it (or all of it, forced)."""
    found: dict[TaskState, None] = {}
    stack: list[TaskState] = []
    for key in event.keys:
        ts = cluster.tasks.get(key)
        if ts is None:
            cluster.outbox.cancelled(cs.number, key, "cancelled by this client")
            continue
        if ts not in found:
            found[ts] = None
            stack.append(ts)
    while stack:
        ts = stack.pop()
        if not event.force and _is_wanted_by_others(ts, cs):
            continue  # it stays, so what depends on it may stay too
        for other in links.dependents_of(ts):
            if other not in found:
                found[other] = None
                stack.append(other)
    for ts in found:
        wanters = interest.wanters_of(ts) if event.force else [cs]
        for wanter in wanters:
            if wanter.number >= 0 and interest.unwant(ts, wanter):  # what a graph on its way in pins stays
                who = "this client" if wanter is cs else f"client {cs.name!r}, by force"
                cluster.outbox.cancelled(wanter.number, ts.key, f"cancelled by {who}")
        if not interest.is_needed(ts):
            cluster.recommend(ts, RELEASED)


def _is_wanted_by_others(ts: TaskState, cs: ClientState) -> bool:
    return ts.wanters is not None or (ts.wanter is not None and ts.wanter is not cs)


def on_keys_retried(cluster: Cluster, cs: ClientState, event: events.KeysRetried) -> None:
    """Run erred tasks again, from the tasks that really failed."""
    found: dict[TaskState, None] = {}
    stack: list[TaskState] = []
    for key in event.keys:
        ts = cluster.tasks.get(key)
        if ts is not None and ts.state == ERRED and ts not in found:
            found[ts] = None
            stack.append(ts)
    while stack:
        ts = stack.pop()
        if ts.dependencies is not None:
            for dep in ts.dependencies:
                if dep.state == ERRED and dep not in found:
                    found[dep] = None
                    stack.append(dep)
    # The roots last: the agenda takes them in this order, and a dependent must not meet an erred input.
    for ts in reversed(found):
        transitions.give_retries(ts)
        transitions.erred_to_released(cluster, ts)
        for wanter in interest.wanters_of(ts):
            cluster.outbox.retried(wanter.number, ts.key)
    for ts in found:
        if ts.spec is None:
            cluster.recommend_erred(ts, transitions.lost_data(ts.key))
        else:
            cluster.recommend(ts, WAITING)


def on_priority_set(cluster: Cluster, event: events.PrioritySet) -> None:
    for key in event.keys:
        ts = cluster.tasks.get(key)
        if ts is not None:
            graphs.set_priority(ts, event.priority)
            if ts.state == QUEUED:
                place = ts.backlog
                assert place is not None, ts.key
                backlog.remove(cluster, ts)
                backlog.push(cluster, place, ts)


def on_data_scattered(cluster: Cluster, cs: ClientState, event: events.DataScattered) -> None:
    for i in range(len(event.keys)):
        key = event.keys[i]
        holders: list[WorkerState] = []
        for number in event.holders[i]:
            ws = cluster.workers.get(number)
            if ws is not None and ws not in holders:
                holders.append(ws)
        ts = cluster.tasks.get(key)
        if ts is None:
            if not holders:
                cluster.outbox.erred(cs.number, key, transitions.lost_data(key))
                continue
            ts = TaskState(key, cluster.next_index, get_kind(cluster, "data", "data"), None, DEFAULT_OPTIONS)
            cluster.next_index += 1
            cluster.tasks[key] = ts
            count_created(cluster, ts)
            interest.want(ts, cs)
            transitions.data_to_memory(cluster, ts, event.nbytes[i], holders)
            cluster.outbox.finished(cs.number, key, event.nbytes[i], None)
            continue
        if ts.spec is None and ts.state != MEMORY and holders:
            _scatter_again(cluster, cs, ts, event.nbytes[i], holders)
            continue
        if interest.want(ts, cs):
            graphs.tell_if_done(cluster, cs, ts)
        if ts.state == MEMORY:
            for ws in holders:
                replicas.add_holder(ts, ws, wanted=True)
        else:  # the first spec wins: it will be computed, not taken from here
            for ws in holders:
                if ts.processing_on is not ws:  # the run that is to give the value must go on
                    cluster.outbox.free(ws.number, key)
            if ts.state == RELEASED:
                cluster.recommend(ts, WAITING)


def _scatter_again(
    cluster: Cluster, cs: ClientState, ts: TaskState, nbytes: int, holders: list[WorkerState]
) -> None:
    """Data that was lost or let go is there again. What failed for want of it can be retried."""
    if ts.state == ERRED:
        transitions.erred_to_released(cluster, ts)
        for wanter in interest.wanters_of(ts):
            cluster.outbox.retried(wanter.number, ts.key)
    interest.want(ts, cs)
    transitions.data_to_memory(cluster, ts, nbytes, holders)
    for wanter in interest.wanters_of(ts):
        cluster.outbox.finished(wanter.number, ts.key, nbytes, None)


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
    """Some task that was sent to this worker needs it. O(tasks sent × their inputs)."""
    for other in ws.processing:
        if other.dependencies is not None and ts in other.dependencies:
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
