"""Clients: they come and go, and want, release, cancel, retry and scatter keys.

One that goes stops wanting everything. See `reactions` for the rules.
"""

from __future__ import annotations

from shunter.state import (
    backlog,
    engine,
    events,
    graphs,
    interest,
    keeping,
    links,
    replicas,
    restart,
    transitions,
)
from shunter.state.cluster import Cluster
from shunter.state.events import DEFAULT_OPTIONS
from shunter.state.groups import created as count_created
from shunter.state.groups import get_kind
from shunter.state.model import ClientState, TaskState, WorkerState
from shunter.state.names import ERRED, MEMORY, QUEUED, RELEASED, WAITING

#: Keys that are released together before what follows is looked at.
SETTLED_AT_ONCE = 100


def on_client_added(cluster: Cluster, event: events.ClientAdded) -> None:
    if event.client < 0 or event.client in cluster.clients or event.client in cluster.workers:
        cluster.dropped_events += 1
        return
    cluster.clients[event.client] = ClientState(event.client, event.name)


def on_client_removed(cluster: Cluster, event: events.ClientRemoved) -> None:
    cs = cluster.clients.pop(event.client, None)
    if cs is None:
        cluster.dropped_events += 1
        return
    keeping.keep_children(cluster, cs)
    release_everything(cluster, cs)
    restart.forget_client(cluster, cs.number)


def release_everything(cluster: Cluster, cs: ClientState) -> None:
    for ts in list(cs.wants):
        _stop_wanting(cluster, cs, ts)


def on_client_desires_keys(cluster: Cluster, cs: ClientState, event: events.ClientDesiresKeys) -> None:
    for key in event.keys:
        ts = cluster.tasks.get(key)
        if ts is None:
            cluster.outbox.cancelled(cs.number, key, f"the scheduler does not know {key!r}; submit it again")
        elif interest.want(ts, cs):
            _tell_of(cluster, cs, ts)


def _tell_of(cluster: Cluster, cs: ClientState, ts: TaskState) -> None:
    """The client has come to want a task: it hears of it if it is done, and it is computed if it is not on its way."""
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
    """Settled every now and then: what was just looked at is still in the processor's caches."""
    if interest.unwant(ts, cs) and not interest.is_needed(ts):
        cluster.recommend(ts, RELEASED)
        if len(cluster.agenda.tasks) >= SETTLED_AT_ONCE:
            engine.settle(cluster)


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
        if not event.force and _is_wanted_by_others(cluster, ts, cs):
            continue  # it stays, so what depends on it may stay too
        interest.unwant(ts, cluster.detached)
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


def _is_wanted_by_others(cluster: Cluster, ts: TaskState, cs: ClientState) -> bool:
    """By another client, a dataset or a graph on its way in. What was detached has nobody to speak for it."""
    for wanter in interest.wanters_of(ts):
        if wanter is not cs and wanter is not cluster.detached:
            return True
    return False


def on_keys_retried(cluster: Cluster, cs: ClientState, event: events.KeysRetried) -> None:
    """Run erred tasks again, from the tasks that really failed.

    The client may know a key as erred that was never its task here, because its graph was refused: it wants it now.
    """
    found: dict[TaskState, None] = {}
    stack: list[TaskState] = []
    for key in event.keys:
        ts = cluster.tasks.get(key)
        if ts is None:
            cluster.outbox.cancelled(cs.number, key, f"the scheduler does not know {key!r}; submit it again")
            continue
        if interest.want(ts, cs) and ts.state != ERRED:
            _tell_of(cluster, cs, ts)
        if ts.state == ERRED and ts not in found:
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
            cluster.recommend_erred(ts, transitions.lost_data(cluster, ts))
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
                cluster.outbox.erred(cs.number, key, transitions.no_holders(key))
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
