"""A state that writes down each event before it takes it (``shunter scheduler --record``).

A recording is for finding faults, so it must not make any: when it cannot be written any more, it ends with a warning,
and the scheduler goes on. Lines are collected and written once a second, at the end, and when the state breaks: the
event that broke it is then the last one in the file.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final, final

from shunter.recording import LogWriter
from shunter.server.facade import State
from shunter.server.versions import build, version
from shunter.state import Event, Outcome, Settings, View

logger = logging.getLogger("shunter.scheduler")

#: What was noted is in the file after this time, seconds.
FLUSH_S: Final = 1.0


@final
class Recorder:
    """The state, to whoever steps it. Needs a running event loop.

    Args:
        state: what decides.
        settings: its settings.
        now: its first time.
    """

    __slots__ = ("_loop", "_path", "_state", "_timer", "_writer")

    def __init__(self, state: State, settings: Settings, now: float) -> None:
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._path = ""
        self._timer: asyncio.TimerHandle | None = None
        self._writer: LogWriter | None = LogWriter(
            settings, now=now, wall=time.time(), version=version(), build=build()
        )

    def open(self, path: str) -> None:
        """Begin the file, with what was noted until now. Raises OSError."""
        assert self._writer is not None
        self._path = path
        self._writer.open(path)

    def close(self) -> None:
        """Write the rest."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.close()
            except OSError as error:
                self._warn(error)

    # ------------------------------------------------------------------------------------- what a state does

    @property
    def next_deadline(self) -> float:
        return self._state.next_deadline

    def step(self, event: Event, now: float) -> None:
        if self._writer is not None:
            self._note(self._writer, event, now)
        try:
            self._state.step(event, now)
        except BaseException:
            self._flush()
            raise

    def drain(self) -> Outcome:
        return self._state.drain()

    def watch(self, finish_states: frozenset[str]) -> None:
        self._state.watch(finish_states)

    def view(self) -> View:
        return self._state.view()

    def validate(self) -> None:
        self._state.validate()

    # ------------------------------------------------------------------------------------- inside

    def _note(self, writer: LogWriter, event: Event, now: float) -> None:
        try:
            writer.note(event, now)
        except Exception as error:  # A full disk, or an event that JSON cannot say.
            self._give_up(writer, error)
            return
        if self._timer is None:
            self._timer = self._loop.call_later(FLUSH_S, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writer is not None:
            try:
                self._writer.flush()
            except OSError as error:
                self._give_up(self._writer, error)

    def _give_up(self, writer: LogWriter, error: Exception) -> None:
        """A recording with a hole in it would tell another story: better none from here on."""
        self._writer = None
        self._warn(error)
        try:
            writer.close()
        except OSError:
            pass  # It has been said.

    def _warn(self, error: Exception) -> None:
        logger.warning("the recording %s ends here: %s: %s", self._path, type(error).__name__, error)
