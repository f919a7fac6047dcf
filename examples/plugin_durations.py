"""A plugin that counts how long each kind of task takes, and writes a table when the scheduler stops.

    shunter scheduler --plugin plugin_durations:Durations='{"path": "durations.jsonl"}'

(from this folder, so that the scheduler can import it). Each line of the file is one kind:
``{"kind": "square", "runs": 1000, "seconds": 1.7, "longest": 0.02}``, the costliest first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from shunter.plugins import Change, SchedulerPlugin, View


class Kind:
    """What is known of one kind of task."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.runs = 0
        self.seconds = 0.0
        self.longest = 0.0


class Durations(SchedulerPlugin):
    """Adds up the run times of tasks by kind.

    Args:
        path: the file that is written, as JSON lines, when the scheduler stops.
    """

    name = "durations"
    finish_states = frozenset({"memory"})  # Only tasks that have finished; nothing else is recorded for it.

    def __init__(self, path: str = "durations.jsonl") -> None:
        self.path = path
        self.kinds: dict[str, Kind] = {}

    def on_changes(self, changes: Sequence[Change], view: View) -> None:
        for change in changes:
            if change.startstop is None:
                continue  # Data that a client has scattered: nothing ran.
            seconds = change.startstop[1]
            kind = self.kinds.setdefault(change.kind, Kind(change.kind))
            kind.runs += 1
            kind.seconds += seconds
            kind.longest = max(kind.longest, seconds)

    def close(self) -> None:
        costliest_first = sorted(self.kinds.values(), key=lambda kind: kind.seconds, reverse=True)
        with open(self.path, "w", encoding="utf-8") as file:
            for kind in costliest_first:
                row = {
                    "kind": kind.name,
                    "runs": kind.runs,
                    "seconds": round(kind.seconds, 6),
                    "longest": round(kind.longest, 6),
                }
                file.write(json.dumps(row) + "\n")
