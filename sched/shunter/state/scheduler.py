"""The facade: five methods and one property. This is all that the server knows of the state."""

from __future__ import annotations

from typing import Final, final

from shunter.state import dispatch, engine, idleness, membership, reactions, validate
from shunter.state.cluster import Cluster, StepStamp
from shunter.state.events import Event
from shunter.state.outbox import Outcome
from shunter.state.settings import Settings
from shunter.state.views import View


@final
class SchedulerState:
    """All that the scheduler knows, and every decision it takes.

    Args:
        settings: every knob, resolved once.
        now: seconds on the caller's monotonic clock.
    """

    __slots__ = ("_cluster",)

    def __init__(self, settings: Settings, *, now: float) -> None:
        self._cluster: Final = Cluster(settings, now)
        idleness.after_step(self._cluster)  # the time without work begins with us

    def step(self, event: Event, now: float) -> None:
        """Apply one event, settle what follows from it, and dispatch; never raises for a peer's fault.

        Raises:
            InternalError: our bug; the state must not be used any further.
        """
        cluster = self._cluster
        if now > cluster.now:
            cluster.now = now
        cluster.stamp = StepStamp(type(event).__name__, cluster.now)
        cluster.steps += 1
        reactions.apply(cluster, event)
        engine.settle(cluster)
        dispatch.run(cluster)
        if cluster.no_worker:
            membership.arm_no_worker(cluster)
        idleness.after_step(cluster)
        if cluster.settings.validate:
            validate.after_step(cluster)

    def drain(self) -> Outcome:
        """Hand over the instructions and changes since the last drain, in order."""
        return self._cluster.outbox.take()

    def watch(self, finish_states: frozenset[str]) -> None:
        """Record a Change for each arrow that ends in one of these states. None by default."""
        self._cluster.watched = finish_states

    @property
    def next_deadline(self) -> float:
        """When ``step(Tick(), now)`` is due, on the caller's clock; infinity if nothing waits for time."""
        return reactions.next_deadline(self._cluster)

    def view(self) -> View:
        """Read-only questions about the live state."""
        return View(self._cluster)

    def validate(self) -> None:
        """Check every invariant of every record. O(everything).

        Raises:
            InternalError: one does not hold; the message names the record, and the task's story follows.
        """
        validate.everything(self._cluster)
