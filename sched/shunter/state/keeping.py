"""What is kept though no client wants it: by pseudo clients, which want keys as others do and hear nothing of them.

Detached keys are kept until they end, published ones until they are unpublished, and what a running task has
submitted until that task is done, if the client in its process goes first.
"""

from __future__ import annotations

from shunter.state import events, graphs, interest
from shunter.state.cluster import Cluster, Dataset
from shunter.state.model import ClientState, TaskState
from shunter.state.names import ERRED, MEMORY, RELEASED, WAITING
from shunter.state.outbox import Reply


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
