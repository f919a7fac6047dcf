"""The scheduler as others start and end it: options, token, scheduler file, exit code. The work is in `hub`."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Final

from shunter.errors import UsageError
from shunter.plugins.base import SchedulerPlugin
from shunter.server.facade import State, StateFactory
from shunter.server.hub import Hub
from shunter.server.recorder import Recorder
from shunter.server.versions import build, version
from shunter.state import SchedulerState, Settings
from shunter.wire import contact

logger = logging.getLogger("shunter.scheduler")

#: Exit code of a scheduler whose state has broken (EX_SOFTWARE of sysexits.h).
EXIT_INTERNAL: Final = 70


class Scheduler:
    """A scheduler in the running event loop.

    Args:
        host: where to listen. Anything but loopback needs a token.
        port: 0 lets the system choose.
        token: the cluster's secret. None: a new one is made, on loopback.
        insecure: do without a token if none is given. Whoever reaches the port can then run code on the workers.
        settings: how the state decides.
        scheduler_file: written when the scheduler listens (address and token, mode 0600), removed when it closes.
        plugins: told of changes after each batch.
        record: file in which every event is written down, for `shunter replay`.
        own_process: the process is the scheduler's alone, so its garbage collector may be tuned.
        make_state: builds the state from settings and time; tests put in a false one.
        clock: monotonic seconds, for the state.

    Raises:
        UsageError: the host can be reached from outside, and there is no token.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        insecure: bool = False,
        settings: Settings | None = None,
        scheduler_file: str | None = None,
        plugins: Sequence[SchedulerPlugin] = (),
        record: str | None = None,
        own_process: bool = False,
        make_state: StateFactory | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._port = port
        self._token = choose_token(host, token, insecure=insecure)
        self._settings = settings if settings is not None else Settings()
        self._scheduler_file = scheduler_file
        self._plugins = plugins
        self._record = record
        self._recorder: Recorder | None = None
        self._own_process = own_process
        self._make_state = make_state if make_state is not None else true_state
        self._clock = clock
        self._hub: Hub | None = None
        self._address = ""
        self._exit_code = 0
        self._closing: asyncio.Task[None] | None = None
        self._finished = asyncio.Event()

    @property
    def address(self) -> str:
        """``tcp://host:port`` by which others reach it."""
        if not self._address:
            raise UsageError("the scheduler has no address before it is started: await scheduler.start()")
        return self._address

    @property
    def token(self) -> str:
        """The cluster's token; empty on an insecure cluster."""
        return self._token

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the port is in use, the host is not here, or the scheduler file or the recording cannot be
                written.
        """
        if self._hub is not None or self._finished.is_set():
            raise UsageError("a scheduler starts once: make a new one")
        now = self._clock()
        state = self._make_state(self._settings, now)
        if self._record is not None:
            state = self._recorder = Recorder(state, self._settings, now)
        self._hub = Hub(
            state,
            self._token,
            self._plugins,
            worker_ttl=self._settings.worker_ttl,
            clock=self._clock,
            on_broken=self._on_broken,
            on_shutdown=self._on_shutdown,
        )
        await self._hub.listen(self._host, self._port)
        self._address = self._hub.address
        if self._recorder is not None:
            assert self._record is not None
            try:  # Not before it listens: a start that fails leaves the last recording alone.
                self._recorder.open(self._record)
            except BaseException:
                await self.close("the recording cannot be written")
                raise
        if self._scheduler_file is not None:
            try:
                contact.write(self._scheduler_file, contact.Contact(self._address, self._token))
            except BaseException:
                await self.close("the scheduler file cannot be written")
                raise
        logger.info("shunter %s (state: %s) listens at %s", version(), build(), self._address)
        if self._own_process:
            tune_gc()

    async def close(self, reason: str = "closed") -> None:
        """Tell every peer, let go of everything, and have `finished` return. Later calls wait for the first."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(reason))
        await asyncio.shield(self._closing)

    async def finished(self) -> int:
        """Wait until the scheduler is closed.

        Returns:
            The exit code for its process: 0, or 70 after an internal error.
        """
        await self._finished.wait()
        return self._exit_code

    async def _close(self, reason: str) -> None:
        try:
            if self._hub is not None:
                await self._hub.close(reason)
        finally:
            if self._recorder is not None:
                self._recorder.close()
            if self._scheduler_file is not None and self._address:
                remove_contact(self._scheduler_file, self._address)
            logger.info("scheduler at %s is closed: %s", self._address or "no address", reason)
            self._finished.set()

    def _on_broken(self) -> None:
        self._exit_code = EXIT_INTERNAL
        self._closing = self._closing or asyncio.ensure_future(self._close("internal error"))

    def _on_shutdown(self, reason: str) -> None:
        self._closing = self._closing or asyncio.ensure_future(self._close(reason))


def true_state(settings: Settings, now: float) -> State:
    """The state that schedules."""
    return SchedulerState(settings, now=now)


def choose_token(host: str, token: str | None, *, insecure: bool) -> str:
    """The token of the cluster, by the rules for who may reach it."""
    if token:
        return token
    if insecure:
        return ""
    if token is not None:
        raise UsageError(
            "the token is empty: give a secret, None for a new one, or insecure=True (--insecure)"
        )
    if not is_loopback(host):
        raise UsageError(
            f"{host!r} can be reached from other machines, and whoever reaches a scheduler can run code: give a "
            "token (--token-file), listen on 127.0.0.1, or say insecure=True (--insecure)"
        )
    return contact.new_token()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a port on that host."""
    parts = host.split(".")
    return host in ("localhost", "::1") or (
        len(parts) == 4 and parts[0] == "127" and all(part.isdigit() for part in parts)
    )


def remove_contact(path: str, address: str) -> None:
    """Remove the scheduler file, unless it is another scheduler's by now."""
    try:
        if contact.read(path).address == address:
            os.unlink(path)
    except (UsageError, OSError) as error:
        logger.debug("scheduler file %s is left alone: %s", path, error)


def tune_gc() -> None:
    """Hardly ever look for garbage cycles: records are made without any, and walking 500,000 takes half a second."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
