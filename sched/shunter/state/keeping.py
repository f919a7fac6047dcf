"""What is kept though no client wants it: by pseudo clients, which want keys as others do and hear nothing of them.

Detached keys are kept until they end, published ones until they are unpublished, and what a running task has
submitted until that task is done, if the client in its process goes first.
"""

from __future__ import annotations

from shunter.state import events, graphs, interest
from shunter.state.assignment import n_sent
from shunter.state.cluster import Cluster, Dataset, Timer
from shunter.state.model import ClientState, TaskState
from shunter.state.names import ERRED, MEMORY, PROCESSING, QUEUED, RELEASED, WAITING, Key
from shunter.state.outbox import Reply

WAITS_S = 30.0  # until a task that waits for what it has submitted is warned of
CHILDREN_LOOKED_AT = 1_000


def on_keys_detached(cluster: Cluster, cs: ClientState, event: events.KeysDetached) -> None:
    """Fire and forget. What has ended already needs nobody to hold it."""
    for key in event.keys:
        ts = cluster.tasks.get(key)
        if ts is None:
            cluster.outbox.cancelled(cs.number, key, f"the scheduler does not know {key!r}; submit it again")
        elif ts.state != MEMORY and ts.state != ERRED:
            _keep(cluster, ts, cluster.detached)


def on_dataset_published(cluster: Cluster, cs: ClientState, event: events.DatasetPublished) -> None:
    """All keys or none: a dataset with a hole is of no use."""
    old = cluster.datasets.get(event.name)
    if old is not None and not event.replace:
        text = f"there is a dataset {event.name!r} already: unpublish it first, or pass replace=True"
        cluster.outbox.push(Reply(cs.number, event.request, False, text))
        return
    found: list[TaskState] = []
    for key in event.keys:
        ts = cluster.tasks.get(key)
        if ts is None:
            text = (
                f"dataset {event.name!r}: the scheduler does not know {key!r}; keep a future of it until then"
            )
            cluster.outbox.push(Reply(cs.number, event.request, False, text))
            return
        found.append(ts)
    keeper = ClientState(-1, f"dataset {event.name}")
    for ts in found:
        _keep(cluster, ts, keeper)
    cluster.datasets[event.name] = Dataset(keeper, event.data)
    if old is not None:
        _stop_keeping(cluster, old.keeper)
    cluster.outbox.push(Reply(cs.number, event.request, True, None))


def on_dataset_unpublished(cluster: Cluster, cs: ClientState, event: events.DatasetUnpublished) -> None:
    old = cluster.datasets.pop(event.name, None)
    if old is not None:
        _stop_keeping(cluster, old.keeper)
    cluster.outbox.push(Reply(cs.number, event.request, True, old is not None))


def on_dataset_requested(cluster: Cluster, cs: ClientState, event: events.DatasetRequested) -> None:
    """The reply goes first: the client must know the keys before it hears what became of them."""
    dataset = cluster.datasets.get(event.name)
    if dataset is None:
        names = ", ".join([repr(name) for name in list(cluster.datasets)[:8]]) or "none"
        text = f"there is no dataset {event.name!r}; published are: {names}"
        cluster.outbox.push(Reply(cs.number, event.request, False, text))
        return
    tasks = dataset.keeper.wants
    value: dict[str, object] = {"keys": [ts.key for ts in tasks], "data": dataset.data}
    cluster.outbox.push(Reply(cs.number, event.request, True, value))
    for ts in tasks:
        interest.want(ts, cs)
        graphs.tell_if_done(cluster, cs, ts)


def keep_children(cluster: Cluster, cs: ClientState) -> None:
    """A client goes. What a task that is not done has submitted through it is kept until that task is done.

    Most likely the task's worker died with it: the task runs again, and finds what it submits by the same keys.
    """
    if cs.children is None:
        return
    for ts, parent_key in cs.children.items():
        parent = cluster.tasks.get(parent_key)
        if parent is None or parent.state == MEMORY or parent.state == ERRED:
            continue
        keeper = cluster.bereaved.get(parent)
        if keeper is None:
            keeper = cluster.bereaved[parent] = ClientState(-1, "a task that submitted them")
        interest.want(ts, keeper)


def watch_parent(cluster: Cluster, cs: ClientState, key: Key) -> None:
    """A running task submits others: see in a while whether it waits for them on the thread that they need."""
    if key not in cluster.parents:
        cluster.parents[key] = None
        cluster.wake_at(cluster.now + WAITS_S, Timer("parent", cs.number, key))


def on_parent(cluster: Cluster, client: int, key: Key) -> None:
    """The timer of `watch_parent`. Warns once, else looks again while the task runs."""
    del cluster.parents[key]
    cs = cluster.clients.get(client)
    parent = cluster.tasks.get(key)
    if cs is None or parent is None or parent.state != PROCESSING or parent.is_long_running:
        return
    if cs.children is None:
        return
    looked_at = 0
    for child, parent_key in cs.children.items():
        looked_at += 1
        if parent_key == key and _cannot_start(parent, child):
            cluster.say(
                "warning",
                "task-waits-for-its-own",
                {"key": key, "child": child.key, "hint": "call secede() before waiting for tasks in a task"},
            )
            return
        if looked_at >= CHILDREN_LOOKED_AT:
            break
    watch_parent(cluster, cs, key)


def _cannot_start(parent: TaskState, child: TaskState) -> bool:
    """It waits for a thread, or for one of the very worker whose thread its parent keeps."""
    if child.state == QUEUED:
        return True
    ws = child.processing_on
    return ws is not None and ws is parent.processing_on and n_sent(ws) > ws.nthreads


def let_go(cluster: Cluster) -> None:
    """All of it: the cluster is restarted."""
    _stop_keeping(cluster, cluster.detached)
    for dataset in cluster.datasets.values():
        _stop_keeping(cluster, dataset.keeper)
    cluster.datasets = {}


def _keep(cluster: Cluster, ts: TaskState, keeper: ClientState) -> None:
    interest.want(ts, keeper)
    if ts.state == RELEASED:
        cluster.recommend(ts, WAITING)


def _stop_keeping(cluster: Cluster, keeper: ClientState) -> None:
    for ts in list(keeper.wants):
        interest.unwant(ts, keeper)
        if not interest.is_needed(ts):
            cluster.recommend(ts, RELEASED)
