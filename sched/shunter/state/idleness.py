"""The scheduler ends when nothing has run, or waited to run, for ``idle_timeout``."""

from __future__ import annotations

from shunter.state.cluster import Cluster, Timer
from shunter.state.outbox import Shutdown


def after_step(cluster: Cluster) -> None:
    """Note the time while there is work, and see that a timer looks when there was none for long enough. O(1)."""
    limit = cluster.settings.idle_timeout
    if limit <= 0.0:
        return
    is_busy = _is_busy(cluster)
    if is_busy or cluster.was_busy:  # The step that ends the last task counts: it may have run for long.
        cluster.busy_at = cluster.now
    cluster.was_busy = is_busy
    if not cluster.is_idle_timeout_armed:
        cluster.is_idle_timeout_armed = True
        cluster.wake_at(cluster.busy_at + limit, Timer("idle-timeout", 0))


def on_deadline(cluster: Cluster) -> None:
    """The timer is due: end, or (after the step) wait for what is left of the time."""
    cluster.is_idle_timeout_armed = False
    limit = cluster.settings.idle_timeout
    if _is_busy(cluster) or cluster.now < cluster.busy_at + limit:
        return
    cluster.busy_at = cluster.now  # Said once; again only if nobody has listened for as long.
    cluster.outbox.push(Shutdown(f"nothing ran or waited to run for {limit:g} s (idle time-out)"))


def _is_busy(cluster: Cluster) -> bool:
    counts = cluster.counts
    return (
        counts.processing + counts.queued + counts.waiting + counts.no_worker > 0 or len(cluster.incoming) > 0
    )
