"""Restart: all work is given up (by `reactions`), workers that have a parent are replaced, the answer waits.

A worker that is replaced leaves at once, so that nothing new is sent to it; its parent kills it and starts
another. The request is answered when as many workers are there as before.
"""

from __future__ import annotations

from shunter.state import membership
from shunter.state.cluster import Cluster, Restart, Timer
from shunter.state.events import RestartRequested
from shunter.state.outbox import KillWorker, Reply, Restarted


def replace_workers(cluster: Cluster, event: RestartRequested) -> None:
    """Tell the clients, have the workers replaced, and wait for them."""
    cs = cluster.clients[event.client]
    for other in cluster.clients.values():
        cluster.outbox.push(Restarted(other.number))
    cluster.say("info", "restarted", {"client": cs.name, "workers": len(cluster.workers)})
    wanted = len(cluster.workers)
    for earlier in cluster.restarts.values():  # Its workers have not come back yet, and are wanted as much.
        wanted = max(wanted, earlier.wanted)
    for ws in list(cluster.workers.values()):
        if ws.has_parent:
            cluster.outbox.push(KillWorker(ws.number, "the cluster is restarted"))
            membership.remove_worker(cluster, ws, "the cluster is restarted", expected=True)
    cluster.next_restart += 1
    cluster.restarts[cluster.next_restart] = Restart(event.client, event.request, event.timeout, wanted)
    cluster.wake_at(cluster.now + max(0.0, event.timeout), Timer("restart", cluster.next_restart))
    on_worker_added(cluster)


def on_worker_added(cluster: Cluster) -> None:
    """Answer those who have waited for so many workers."""
    if not cluster.restarts:
        return
    for number, restart in list(cluster.restarts.items()):
        if len(cluster.workers) >= restart.wanted:
            del cluster.restarts[number]
            cluster.outbox.push(Reply(restart.client, restart.request, True, len(cluster.workers)))


def on_deadline(cluster: Cluster, number: int) -> None:
    restart = cluster.restarts.pop(number, None)
    if restart is not None:
        text = (
            f"{len(cluster.workers)} of {restart.wanted} workers were back after {restart.timeout:g} s; all work has"
            " been given up. Look at the logs of their parent processes"
        )
        cluster.outbox.push(Reply(restart.client, restart.request, False, text))


def forget_client(cluster: Cluster, client: int) -> None:
    """Nobody waits for the answer any more."""
    if cluster.restarts:
        for number in [n for n, restart in cluster.restarts.items() if restart.client == client]:
            del cluster.restarts[number]
