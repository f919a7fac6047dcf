"""Runs the events of a recording through a fresh state, one after the other."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from shunter.recording.log import Entry, LogReader, settings_of, values_of
from shunter.state import Instruction, SchedulerState, View

#: Long enough for every arrow of a recording, where the whole story of a task is asked for.
WHOLE_LOG = 1 << 40


class Replay:
    """A state that relives what another one went through.

    The instructions are those that the recorded state gave; only their grouping may differ, since a scheduler drains
    its state once after many events, and a replay after each.

    Args:
        log: what to run.
        validate: check the invariants after each event, even if the recorded scheduler did not.
        whole_story: keep every state change for `View.story`, not just the last ones.
    """

    def __init__(self, log: LogReader, *, validate: bool = False, whole_story: bool = False) -> None:
        header = log.header
        changes: dict[str, float] = {}
        if validate:
            changes["validate"] = True
        if whole_story:
            changes["log_length"] = WHOLE_LOG
        self.log = log
        self.state = SchedulerState(settings_of(values_of(header.settings), **changes), now=header.now)
        #: Events that were run.
        self.count = 0
        #: The one that was run last, or in which the state broke.
        self.entry: Entry | None = None
        self.events: Counter[str] = Counter()
        self.instructions: Counter[str] = Counter()
        #: Seconds that the state took.
        self.seconds = 0.0
        #: The state raised: it must not be used any further, only be looked at.
        self.is_broken = False
        self._entries: Iterator[Entry] = iter(log)
        self._ahead: Entry | None = None

    @property
    def view(self) -> View:
        """Questions to the state as it is now."""
        return self.state.view()

    @property
    def span(self) -> float:
        """Seconds of the recorded scheduler that were run."""
        return self.entry.now - self.log.header.now if self.entry is not None else 0.0

    def ahead(self) -> Entry | None:
        """The event that `advance` will run; None at the end. Raises UsageError: a line cannot be read."""
        if self._ahead is None:
            self._ahead = next(self._entries, None)
        return self._ahead

    def advance(self) -> list[Instruction]:
        """Run the next event, which must be there.

        Returns:
            What the state says to it.

        Raises:
            InternalError: the state broke, as it may have done when this was recorded.
        """
        entry = self.entry = self.ahead()
        assert entry is not None, "the recording is at its end"
        self._ahead = None
        start = time.perf_counter()
        self.is_broken = True
        self.state.step(entry.event, entry.now)
        found = self.state.drain().instructions
        self.is_broken = False
        self.seconds += time.perf_counter() - start
        self.count += 1
        self.events[type(entry.event).__name__] += 1
        self.instructions.update(type(each).__name__ for each in found)
        return found
