"""The base of plugins that watch the scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shunter.state import Change, View

#: Every state that a task can come to.
ALL_STATES: Final[frozenset[str]] = frozenset(
    {"released", "waiting", "no-worker", "queued", "processing", "memory", "erred", "forgotten"}
)


class SchedulerPlugin:
    """Watches what happens to tasks. Subclass it and override what you need; what you do not costs nothing.

    Hooks run in the scheduler's event loop, between two batches of work: keep them short (write to a buffer or a
    file, never wait for anything). What a hook raises is logged with the plugin's name; a plugin that fails ten
    times is switched off. The scheduler goes on in any case.

    Start a scheduler with one by ``shunter scheduler --plugin module:Class``; the module must be importable there.
    """

    #: Told in logs. The default is the name of the class.
    name: str = ""
    #: Only changes that end in one of these states are recorded for this plugin (``memory``: a task finished).
    finish_states: frozenset[str] = ALL_STATES

    def start(self) -> None:
        """The scheduler listens. Called once, before any change."""

    def on_changes(self, changes: Sequence[Change], view: View) -> None:
        """A batch has settled.

        Args:
            changes: what happened, oldest first; each record is complete in itself and is yours to keep.
            view: questions about the state as it is now, answered by fresh plain data. Do not keep it.
        """

    def close(self) -> None:
        """The scheduler stops. Called once, after the last change."""
