"""The process above the workers: it starts them, tells the scheduler how they died, and starts them again.

    parent ── stdin: one line of JSON, then held open ──▶ python -m shunter.worker
           ◀── blame map: who it is, what had started ──

A child ends when its stdin ends, so none outlives its parent, however that died. Each child is a process group
and session of its own: Ctrl-C in a terminal reaches the parent alone, and a child is killed with all that its
tasks have started.

When a child is dead, the scheduler is told the cause and the runs that had started, before the next one starts.
(It is told the same of a child that it had killed: whether anybody is to blame is for its state to say.)
Restarts are spaced out more and more while lives are short. A child that dies young without having started a
task fails by itself, not by somebody's task: after ``give_up`` of these in a row the parent gives up. A child that the
scheduler wants replaced is started again at once, and counts for neither. A child that said goodbye is not started
again; when all have, the parent ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import time
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from shunter.errors import ConnectionLost, PeerError, UsageError
from shunter.wire import link as control
from shunter.wire import messages
from shunter.wire.details import ParentDetails
from shunter.wire.link import Link
from shunter.worker import exits
from shunter.worker.blame import BlameMap, create_file

__all__ = ["Parent"]

logger = logging.getLogger("shunter.parent")

#: Seconds that children have to end by themselves before they are killed.
GRACE: Final = 3.0
#: A child that lived this long was not a bad start, seconds.
YOUNG: Final = 10.0
#: Shortest and longest wait before a restart, seconds; it doubles with each short life.
PAUSE_MIN: Final = 0.1
PAUSE_MAX: Final = 10.0
#: Seconds between looks, and how many, for a child that is to be killed and has not said who it is.
KILL_LOOK_EVERY: Final = 0.05
KILL_LOOKS: Final = 100
HEARTBEAT: Final = 5.0


class Parent:
    """Keeps a number of worker processes running.

    Args:
        scheduler: its address.
        token: the cluster's token.
        nworkers: processes.
        nthreads: tasks at a time in each.
        name: of the workers; with several of them, a number is added. Default: they name themselves.
        host: where others fetch values from the workers.
        port: for that, with one worker only; 0 lets the system choose.
        resources: amounts by name that tasks may ask for, for each worker.
        memory_limit: bytes for each worker; 0 for no limit.
        log_level: of the workers.
        give_up: deaths of a child in a row, soon after its start and without having run anything, after which
            the parent gives up; also how often it tries to reach a scheduler that is gone.
    """

    def __init__(
        self,
        scheduler: str,
        *,
        token: str,
        nworkers: int = 1,
        nthreads: int = 1,
        name: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        resources: Mapping[str, float] | None = None,
        memory_limit: int = 0,
        log_level: str = "warning",
        give_up: int = 5,
    ) -> None:
        if nworkers < 1 or nthreads < 1:
            raise UsageError(f"nworkers and nthreads must be at least 1, not {nworkers} and {nthreads}")
        if port and nworkers > 1:
            raise UsageError("a port can be given to one worker only")
        self.scheduler: Final = scheduler
        self.nworkers: Final = nworkers
        self.nthreads: Final = nthreads
        self._token = token
        self._name = name
        self._host = host
        self._port = port
        self._resources = dict(resources or {})
        self._memory_limit = memory_limit
        self._log_level = log_level
        self._give_up = give_up
        self._link: Link | None = None
        self._children = [_Child(self._name_of(i)) for i in range(nworkers)]
        self._to_kill: set[int] = set()  # Numbers of workers that no child has owned to yet.
        self._is_linked = asyncio.Event()
        self._keepers: list[asyncio.Task[None]] = []
        self._others: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    # ------------------------------------------------------------------------------------------ life

    async def start(self) -> None:
        """Reach the scheduler and start the children. They join it soon afterwards.

        Raises:
            ConnectionLost: the scheduler is not there.
            PeerError: it does not take this parent: wrong token, wrong version.
        """
        self._finished: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        await self._connect()
        self._keepers = [asyncio.create_task(self._keep(child)) for child in self._children]
        self._others += [asyncio.create_task(self._beat()), asyncio.create_task(self._end_with_children())]

    async def close(self, reason: str = "closed") -> None:
        """End the children, within a few seconds, and leave the scheduler."""
        self._stopping.set()
        await self._end_children()
        for task in self._others:
            task.cancel()
        await asyncio.gather(*self._others, return_exceptions=True)
        if self._link is not None:
            self._link.close(reason)
            await self._link.wait_closed()
        self._finish(exits.OK)

    async def finished(self) -> int:
        """Wait until it ends by itself; the exit code."""
        return await asyncio.shield(self._finished)

    @property
    def pids(self) -> list[int]:
        """Process ids of the children that run."""
        return [child.process.pid for child in self._children if child.process is not None]

    def _finish(self, code: int) -> None:
        if hasattr(self, "_finished") and not self._finished.done():
            self._finished.set_result(code)

    def _fail(self, text: str) -> None:
        """Give up, with one line that says why."""
        if not self._finished.done():
            logger.error("%s", text)
            self._finish(exits.GIVEN_UP)

    async def _end_with_children(self) -> None:
        """End when all children have left for good."""
        results = await asyncio.gather(*self._keepers, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                logger.error("internal error while keeping a worker: please report this", exc_info=result)
                self._finish(exits.INTERNAL)
        self._finish(exits.OK)

    # ------------------------------------------------------------------------------------------ children

    async def _keep(self, child: _Child) -> None:
        """Keep one child running."""
        while await self._wait(self._is_linked.wait()):
            link = self._link
            assert link is not None
            began = time.monotonic()
            try:
                await child.start(self._config(child, link.number))
                if self._stopping.is_set():
                    child.ask_to_end()
                code = await child.wait()
            except OSError as error:  # No process, memory or disk left: that may pass.
                logger.error("%s cannot be started: %s", child.title(-1), error)
                code = exits.USAGE
            finally:
                death = child.bury()
            is_replaced = child.kill_reason is not None or death.number in self._to_kill
            if self._stopping.is_set() or (death.departed and not is_replaced):
                return
            lived = time.monotonic() - began
            cause = exits.describe_exit(code) + (f": {child.kill_reason}" if child.kill_reason else "")
            level = logging.INFO if is_replaced else logging.WARNING
            logger.log(level, "%s died: %s", child.title(death.number), cause)
            is_linked = link is self._link and not link.closed
            if is_linked and death.number >= 0:
                # Another incarnation of the scheduler would take the number for another worker.
                started = [] if code in (exits.LINK_LOST, exits.INTERNAL) else death.started
                link.send([messages.Died(death.number, cause, started).frame()])
            if is_replaced:
                continue
            is_bad_start = lived < YOUNG and not death.started and (is_linked or code != exits.LINK_LOST)
            if child.is_hopeless(is_bad_start, self._give_up):
                self._fail(
                    f"giving up: {child.title(death.number)} died {child.bad_starts} times in a row as soon as "
                    f"it was started, the last time with {cause}"
                )
                return
            await self._wait(asyncio.sleep(child.pause(lived)))

    async def _wait(self, what: Coroutine[Any, Any, object]) -> bool:
        """Wait for something, or until this parent is to stop; whether it goes on."""
        if self._stopping.is_set():
            what.close()
            return False
        waiting = asyncio.ensure_future(what)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((waiting, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            stopping.cancel()
        return not self._stopping.is_set()

    async def _end_children(self) -> None:
        """Ask them to end; kill those that do not in time."""
        for child in self._children:
            child.ask_to_end()
        if self._keepers:
            _, late = await asyncio.wait(self._keepers, timeout=GRACE)
            for child in self._children:
                child.kill("it did not end in time")
            if late:
                await asyncio.wait(late, timeout=GRACE)

    def _name_of(self, i: int) -> str | None:
        if self._name is None or self.nworkers == 1:
            return self._name
        return f"{self._name}-{i}"

    def _config(self, child: _Child, parent: int) -> dict[str, object]:
        return {
            "scheduler": self.scheduler,
            "token": self._token,
            "nthreads": self.nthreads,
            "name": child.name,
            "host": self._host,
            "port": self._port,
            "resources": self._resources,
            "memory_limit": self._memory_limit,
            "parent": parent,
            "log_level": self._log_level,
        }

    # ------------------------------------------------------------------------------------------ scheduler

    async def _connect(self) -> None:
        details = ParentDetails(self._name or f"parent-{os.getpid()}", os.getpid()).as_dict()
        self._link = await control.connect(self.scheduler, "parent", self._token, details, self)
        self._is_linked.set()

    async def _reconnect(self) -> None:
        """The connection broke without a word: the scheduler may be back soon."""
        pause = PAUSE_MIN
        error: Exception | None = None
        for _ in range(self._give_up):
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX)
            try:
                await self._connect()
                return
            except (ConnectionLost, PeerError) as failure:
                error = failure
        self._fail(f"giving up: the scheduler cannot be reached any more: {error}")

    def on_message(self, link: Link, header: list[object], body: bytes) -> None:
        """One message of the scheduler."""
        message = messages.to_parent(header, body)
        if isinstance(message, messages.Kill):
            if not self._kill(message):
                self._others.append(asyncio.get_running_loop().create_task(self._kill_soon(message)))
        elif isinstance(message, messages.Closing):
            logger.info("the scheduler has ended: %s", message.reason)
            self._stopping.set()
            self._finish(exits.OK)

    def _kill(self, message: messages.Kill) -> bool:
        """Kill the child that is this worker; False if there is none, or none that has said so yet."""
        for child in self._children:
            if child.number == message.worker:
                child.kill(message.reason)
                return True
        return False

    async def _kill_soon(self, message: messages.Kill) -> None:
        """A child notes its number a moment after the scheduler knows it: look again for a while."""
        self._to_kill.add(message.worker)  # It may also end by itself before it is found.
        for _ in range(KILL_LOOKS):
            await asyncio.sleep(KILL_LOOK_EVERY)
            if self._kill(message):
                break
        self._to_kill.discard(message.worker)

    def on_batch(self, link: Link) -> None:
        """Nothing is merged here."""

    def on_closed(self, link: Link, reason: str) -> None:
        """The connection is gone."""
        self._is_linked.clear()
        if not self._stopping.is_set() and not self._finished.done():
            logger.warning("lost the scheduler: %s", reason)
            self._others.append(asyncio.get_running_loop().create_task(self._reconnect()))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT)
            if self._link is not None:
                self._link.send([messages.Heartbeat().frame()])


class _Death:
    """What the blame map told."""

    def __init__(self, number: int, departed: bool, started: list[int]) -> None:
        self.number = number
        self.departed = departed
        self.started = started


class _Child:
    """One worker process after the other.

    Attributes:
        name: of the worker, None if it names itself.
        process: while it runs.
        kill_reason: why it was killed by us, None if it was not.
        bad_starts: deaths in a row that were its own fault.
    """

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.process: asyncio.subprocess.Process | None = None
        self._blame_path = ""
        self.kill_reason: str | None = None
        self.bad_starts = 0
        self._short_lives = 0
        self._blame: BlameMap | None = None

    @property
    def number(self) -> int:
        """Of the worker that runs; -1 if it has not joined."""
        return self._blame.number if self._blame is not None and self.process is not None else -1

    def title(self, number: int) -> str:
        """For logs."""
        return f"worker {self.name or (number if number >= 0 else '(not joined yet)')}"

    async def start(self, config: dict[str, object]) -> None:
        """Start a process and tell it all it needs. The token is not on its command line."""
        self.kill_reason = None
        self._blame_path = create_file()
        self._blame = BlameMap(self._blame_path)
        self.process = process = await asyncio.create_subprocess_exec(
            *exits.PYTHON,
            "-m",
            "shunter.worker",
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps({**config, "blame_map": self._blame_path}).encode() + b"\n")
        try:
            await process.stdin.drain()
        except ConnectionError:
            pass  # Dead already; its exit code tells.

    async def wait(self) -> int:
        """Wait for the end of the process; its exit code, negative for a signal."""
        assert self.process is not None
        return await self.process.wait()

    def bury(self) -> _Death:
        """Read the blame map of a dead process, and clean up behind it."""
        self._signal()  # What its tasks may have started.
        self.process = None
        blame, self._blame = self._blame, None
        if blame is None:
            return _Death(-1, False, [])
        death = _Death(blame.number, blame.departed, blame.started())
        blame.close()
        try:
            os.unlink(self._blame_path)
        except FileNotFoundError:
            pass  # The worker has done it.
        return death

    def ask_to_end(self) -> None:
        """Close its stdin."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()

    def kill(self, reason: str) -> None:
        """Kill the process, and all that its tasks have started."""
        if self.process is not None:
            self.kill_reason = reason
            self._signal()

    def _signal(self) -> None:
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def is_hopeless(self, is_bad_start: bool, give_up: int) -> bool:
        """Count a death; True if there were too many bad starts in a row."""
        self.bad_starts = self.bad_starts + 1 if is_bad_start else 0
        return self.bad_starts >= give_up

    def pause(self, lived: float) -> float:
        """How long to wait before the next start."""
        self._short_lives = self._short_lives + 1 if lived < YOUNG else 0
        return float(min(PAUSE_MIN * 2 ** max(0, self._short_lives - 1), PAUSE_MAX))
