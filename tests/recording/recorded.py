"""Recordings of random clusters, and digests of what came out of each step, to be compared between interpreters.

``python -c "from tests.recording.recorded import tell; tell([…])"`` prints the digests of replays as JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import shunter
from shunter.recording import LogReader, LogWriter, Replay
from shunter.state import Event, Instruction, Outcome, SchedulerState, Settings
from tests.state import random_cluster
from tests.state.script import described


class RecordedState:
    """The true state; writes a recording, and keeps a digest of what came out of each step."""

    def __init__(self, settings: Settings, *, now: float) -> None:
        self.state = SchedulerState(settings, now=now)
        self.writer = writer_of(settings, now)
        self.digests: list[str] = []
        self._event = ""

    def step(self, event: Event, now: float) -> None:
        self._event = type(event).__name__
        self.writer.note(event, now)
        self.state.step(event, now)

    def drain(self) -> Outcome:
        outcome = self.state.drain()
        self.digests.append(digest_of(len(self.digests) + 1, self._event, outcome.instructions))
        return outcome

    def __getattr__(self, name: str) -> Any:
        return getattr(self.state, name)


def writer_of(settings: Settings, now: float = 0.0) -> LogWriter:
    build = "compiled" if shunter.COMPILED else "pure"
    return LogWriter(settings, now=now, wall=0.0, version=shunter.__version__, build=build)


def record(path: Path, events: Iterable[tuple[Event, float]], settings: Settings, now: float) -> None:
    """Write a recording of these events."""
    writer = writer_of(settings, now)
    writer.open(str(path))
    for event, at in events:
        writer.note(event, at)
    writer.close()


def record_cluster(path: Path, seed: int, length: int = 150) -> list[str]:
    """Record a random cluster; the digests of what it gave."""
    with mock.patch.object(random_cluster, "SchedulerState", RecordedState):
        story = random_cluster.Story(seed)
    state: Any = story.state
    story.run(length)
    story.finish()
    state.writer.open(str(path))
    state.writer.close()
    digests: list[str] = state.digests
    return digests


def digest_of(number: int, event: str, instructions: Iterable[Instruction]) -> str:
    """``12 TasksFinished 0123456789abcdef``: what was said to an event."""
    text = repr([without_opaque(described(each)) for each in instructions])
    return f"{number} {event} {hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:16]}"


def without_opaque(value: Any) -> Any:
    """What `described` says, without what a recording has the sizes of only."""
    if isinstance(value, tuple) and len(value) == 2 and value[0] in ("specs", "data", "annotations"):
        return None
    if isinstance(value, (list, tuple)):
        return [without_opaque(each) for each in value]
    if isinstance(value, dict):
        return [without_opaque(item) for item in value.items()]
    return value


def digests_of(path: Path) -> list[str]:
    """Run a recording again: the digests of what the state gives."""
    found = []
    with LogReader(str(path)) as log:
        replay = Replay(log)
        while (entry := replay.ahead()) is not None:
            found.append(digest_of(replay.count + 1, type(entry.event).__name__, replay.advance()))
    return found


def tell(paths: list[str]) -> None:
    """For another process: whether the state is compiled here, and the digests of these recordings."""
    print(json.dumps({"compiled": shunter.COMPILED, "digests": [digests_of(Path(path)) for path in paths]}))
