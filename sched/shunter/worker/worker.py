"""The shell around the worker's machine: it carries, and decides nothing.

Messages, ends of tasks and ends of fetches become events; instructions become messages, jobs for the task
threads, and fetches. Everything here runs on the event loop; threads hand back through `HandBack`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from shunter.errors import UsageError
from shunter.wire import link as control
from shunter.wire import messages
from shunter.wire.contact import parse_address
from shunter.wire.details import WorkerDetails
from shunter.wire.frames import Frame
from shunter.wire.link import Link
from shunter.worker.blame import BlameMap
from shunter.worker.events import (
    AcquireAsked,
    ComputeAsked,
    Event,
    FetchBusy,
    FetchDone,
    FetchFailed,
    FreeAsked,
    FunctionsArrived,
    PeerGone,
    PeerRested,
    Registered,
    RemoveAsked,
    RevokeAnswered,
    RunsFinished,
    StatusSet,
    TakeBackAsked,
    TimePassed,
    WhoHasTold,
)
from shunter.worker.functions import Functions
from shunter.worker.handback import HandBack
from shunter.worker.instructions import (
    Drop,
    Execute,
    Fetch,
    ForgetFunctions,
    Instruction,
    Keep,
    Rename,
    RestPeer,
    Revoke,
)
from shunter.worker.reports import frames_of
from shunter.worker.state import WorkerState
from shunter.worker.store import Store
from shunter.worker.threads import Finished, Job, Outcome, TaskThreads
from shunter.worker.transfers import FetchThreads, ValuePort

__all__ = ["Worker"]

logger = logging.getLogger("shunter.worker")

#: Seconds that a link which is closed has to get rid of what is queued.
LINGER: Final = 2.0
#: Numbers for the names of workers that were given none.
_count: Final = itertools.count()


class Worker:
    """Runs tasks for a scheduler, in this process.

    Args:
        scheduler: its address, ``tcp://host:port``.
        token: the cluster's token.
        nthreads: tasks at a time.
        name: unique in the cluster; default: made from the host's name and the process.
        host: where peers and clients fetch values from this worker.
        port: for that; 0 lets the system choose.
        resources: amounts by name that tasks may ask for.
        memory_limit: bytes that it may use; 0 for no limit. Told to the scheduler.
        blame_map: a file of `shunter.worker.blame` that a parent process reads after a death.
        parent: the number of the parent's connection, -1 for none.

    Attributes:
        address: of its data port, once started.
        name: as it is known.
        number: at the scheduler; -1 before.
        was_lost: it ended because the connection to the scheduler broke.
        has_failed: it ended because of an internal error.

    A worker ends by itself when the scheduler goes away or asks it to; see `finished`.
    """

    def __init__(
        self,
        scheduler: str,
        *,
        token: str,
        nthreads: int = 1,
        name: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        resources: Mapping[str, float] | None = None,
        memory_limit: int = 0,
        blame_map: str | None = None,
        parent: int = -1,
    ) -> None:
        if nthreads < 1:
            raise UsageError(f"nthreads must be at least 1, not {nthreads}")
        self._scheduler = scheduler
        self._token = token
        self._nthreads = nthreads
        self._host = host
        self._port = port
        self._resources = dict(resources or {})
        self._memory_limit = memory_limit
        self._blame_path = blame_map
        self._parent = parent
        self.name: str = name or f"{socket.gethostname()}-{os.getpid()}-{next(_count)}"
        self.address = ""
        self.number = -1
        self.was_lost = False
        self.has_failed = False
        self._machine = WorkerState(nthreads=nthreads, resources=self._resources)
        self._store = Store()
        self._functions = Functions()
        self._addresses: dict[int, str] = {}  # Of peers.
        self._link: Link | None = None
        self._ending: asyncio.Task[None] | None = None
        self._timers: set[asyncio.TimerHandle] = set()
        self._process: Any = None  # psutil's, made when the first heartbeat is due.

    async def start(self) -> None:
        """Listen, and join the scheduler.

        Raises:
            OSError: the port is in use.
            ConnectionLost: the scheduler is not there.
            PeerError: it does not take this worker: wrong token, wrong version, name in use.
        """
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[str] = self._loop.create_future()
        self._hand_back: HandBack[Outcome] = HandBack(self._loop, self._receive)
        self._blame = BlameMap(self._blame_path)
        self._threads = TaskThreads(
            self._nthreads,
            self._blame,
            self._hand_back.put,
            worker_name=self.name,
            scheduler=self._scheduler,
        )
        self._fetches = FetchThreads(self._token, self._hand_back.put)
        self._values = ValuePort(self._host, self._port, self._token, self._store, self._hand_back.put)
        self.address = self._values.address
        self._values.start()
        self._threads.start()
        try:
            link = await control.connect(
                self._scheduler, "worker", self._token, self._details().as_dict(), self
            )
        except BaseException:
            await self._release()
            raise
        self._link = link
        self.number = link.number
        self._blame.register(link.number)
        self._step(Registered(link.number))
        heartbeat = link.peer_details.get("heartbeat")
        self._heartbeat_s = float(heartbeat) if isinstance(heartbeat, (int, float)) else 1.0
        self._later(self._heartbeat_s, self._beat)
        logger.info("worker %s is number %d at %s", self.name, self.number, self._scheduler)

    async def close(self, reason: str = "closed") -> None:
        """Say goodbye and end. What was held is lost; running tasks are not waited for."""
        self._end(reason)
        if self._ending is not None:
            await asyncio.shield(self._ending)

    async def finished(self) -> str:
        """Wait until it has ended; why it did."""
        return await asyncio.shield(self._finished)

    def _details(self) -> WorkerDetails:
        return WorkerDetails(
            name=self.name,
            address=self.address,
            host=parse_address(self.address)[0],
            nthreads=self._nthreads,
            memory_limit=self._memory_limit,
            resources=self._resources,
            pid=os.getpid(),
            clock=time.time(),
            parent=self._parent,
        )

    def unlink_blame_map(self) -> None:
        """Remove the file: it is mapped by now, here and by the parent."""
        if self._blame_path is not None:
            try:
                os.unlink(self._blame_path)
            except FileNotFoundError:
                pass

    # ------------------------------------------------------------------------------------------ end

    def _end(self, reason: str) -> None:
        """Start to end, once."""
        if self._ending is None and hasattr(self, "_loop"):
            self._ending = self._loop.create_task(self._shut_down(reason))

    async def _shut_down(self, reason: str) -> None:
        link = self._link
        if link is not None and not link.closed:
            self._blame.depart()
            link.send([messages.Goodbye(reason).frame()])
            link.close(reason)
            try:
                await asyncio.wait_for(link.wait_closed(), LINGER)
            except asyncio.TimeoutError:
                link.abort(reason)
        await self._release()
        logger.info("worker %s has ended: %s", self.name, reason)
        if not self._finished.done():
            self._finished.set_result(reason)

    async def _release(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._threads.close()
        self._fetches.close()
        await self._loop.run_in_executor(None, self._values.close)
        self._store.clear()

    def _fail(self, what: str) -> None:
        """A bug of ours: what this worker knows cannot be trusted any more."""
        logger.exception("worker %s: internal error in %s: it ends; please report this", self.name, what)
        self.has_failed = True
        if self._link is not None:
            self._link.abort("internal error")
        self._end("internal error")

    # ------------------------------------------------------------------------------------------ link

    def on_message(self, link: Link, header: list[object], body: bytes) -> None:
        """One message of the scheduler."""
        message = messages.from_scheduler_to_worker(header, body)
        try:
            _HANDLERS[type(message)](self, message)
        except Exception:
            self._fail(type(message).__name__)

    def on_batch(self, link: Link) -> None:
        """All messages of a chunk were given."""
        self._settle()

    def on_closed(self, link: Link, reason: str) -> None:
        """The link is gone."""
        if self._ending is None:
            self.was_lost = True
            logger.warning("worker %s lost the scheduler: %s", self.name, reason)
            self._end(reason)

    def _on_functions(self, message: messages.WorkerFunctions) -> None:
        self._functions.add(message.numbers, message.names, message.blobs)
        self._step(FunctionsArrived(message.numbers, [len(blob) for blob in message.blobs]))

    def _on_peers(self, message: messages.Peers) -> None:
        self._addresses.update(zip(message.numbers, message.addresses))

    def _on_compute(self, message: messages.Compute) -> None:
        resources = [each.get("resources") if each is not None else None for each in message.options]
        self._step(
            ComputeAsked(
                message.keys,
                message.run_ids,
                message.functions,
                message.priorities,
                message.inputs,
                resources,
                message.inline_max,
                message.lives,
                message.blobs,
            )
        )

    def _on_free(self, message: messages.Free) -> None:
        self._step(FreeAsked(message.keys))

    def _on_remove(self, message: messages.Remove) -> None:
        self._step(RemoveAsked(message.keys))

    def _on_acquire(self, message: messages.Acquire) -> None:
        self._step(AcquireAsked(message.keys, message.nbytes, message.lives, message.holders))

    def _on_who_has(self, message: messages.WhoHas) -> None:
        self._step(WhoHasTold(message.keys, message.holders))

    def _on_take_back(self, message: messages.TakeBack) -> None:
        self._step(TakeBackAsked(message.run_ids))

    def _on_worker_gone(self, message: messages.WorkerGone) -> None:
        self._addresses.pop(message.number, None)
        self._step(PeerGone(message.number))

    def _on_status(self, message: messages.Status) -> None:
        self._step(StatusSet(message.status))
        if message.status == "closed":
            self._end("the scheduler asked for it")

    def _on_heartbeat(self, message: messages.Heartbeat) -> None:
        self._say_alive()  # We are asked whether we live.

    def _on_closing(self, message: messages.Closing) -> None:
        logger.info("worker %s: the scheduler closes the connection: %s", self.name, message.reason)

    # ------------------------------------------------------------------------------------------ machine

    def _step(self, event: Event) -> None:
        self._machine.step(event)

    def _settle(self) -> None:
        """Carry out what the machine says, and send all it has to tell in one write."""
        if self._ending is not None or self._link is None:
            return
        frames: list[Frame] = []
        try:
            while instructions := self._machine.drain():
                for each in instructions:
                    carry_out = _CARRIERS.get(type(each))
                    if carry_out is not None:
                        carry_out(self, each)
                    else:
                        frames += frames_of(each)
            if frames:
                self._link.send(frames)
        except Exception:
            self._fail("carrying out")

    def _receive(self, outcomes: list[Outcome]) -> None:
        """What threads have handed back."""
        if self._ending is not None:
            return
        try:
            values: list[Finished] = []
            for each in outcomes:
                if isinstance(each, Finished):
                    values.append(each)
                    continue
                if values:
                    self._step(_by_columns(values))
                    values = []
                if isinstance(each, (FetchDone, FetchBusy, FetchFailed)):
                    self._fetches.settle()
                self._step(each)
            if values:
                self._step(_by_columns(values))
        except Exception:
            self._fail("what threads handed back")
        self._settle()

    def _execute(self, instruction: Execute) -> None:
        jobs: list[Job] = []
        for task in instruction.tasks:
            inputs = self._store.entries(task.inputs) if task.inputs else None
            function = self._functions.get(task.function)
            jobs.append(Job(task.run_id, task.key, function, task.data, inputs, task.inline_max))
        self._threads.submit(jobs)

    def _revoke(self, instruction: Revoke) -> None:
        given = self._threads.revoke(instruction.tickets)
        self._step(RevokeAnswered(instruction.request, instruction.tickets, given))

    def _rename(self, instruction: Rename) -> None:
        self._threads.rename(instruction.ticket, instruction.run_id)

    def _keep(self, instruction: Keep) -> None:
        self._store.keep(instruction.keys, instruction.values, instruction.nbytes)

    def _drop(self, instruction: Drop) -> None:
        self._store.drop(instruction.keys)

    def _fetch(self, instruction: Fetch) -> None:
        address = self._addresses.get(instruction.peer)
        if address is None:  # The scheduler tells addresses before it names a peer.
            self._step(FetchFailed(instruction.fetch, f"worker {instruction.peer} is not known here"))
        else:
            self._fetches.fetch(instruction.fetch, address, instruction.keys)

    def _rest_peer(self, instruction: RestPeer) -> None:
        self._later(instruction.seconds, self._peer_rested, instruction.peer)

    def _peer_rested(self, peer: int) -> None:
        self._step(PeerRested(peer))
        self._settle()

    def _forget_functions(self, instruction: ForgetFunctions) -> None:
        self._functions.forget(instruction.functions)

    # ------------------------------------------------------------------------------------------ time

    def _later(self, seconds: float, call: Callable[..., None], *arguments: object) -> None:
        """Call something later, unless the worker has ended by then."""

        def run() -> None:
            self._timers.discard(timer)
            call(*arguments)

        timer = self._loop.call_later(seconds, run)
        self._timers.add(timer)

    def _beat(self) -> None:
        self._later(self._heartbeat_s, self._beat)
        self._say_alive()
        self._fetches.close_idle()
        self._step(TimePassed())
        self._settle()

    def _say_alive(self) -> None:
        """Tell the scheduler how this process is."""
        if self._process is None:
            import psutil  # Here, because it would be a good part of the time that a worker needs to start.

            self._process = psutil.Process()
        if self._link is not None:
            process = int(self._process.memory_info().rss)
            cpu = max(0.0, float(self._process.cpu_percent()))
            self._link.send([messages.WorkerHeartbeat(process, 0, cpu).frame()])


def _by_columns(rows: Sequence[Finished]) -> RunsFinished:
    columns = [list(column) for column in zip(*rows)]
    tickets, values, nbytes, starts, durations, threads, types, data = columns
    return RunsFinished(
        cast("list[int]", tickets),
        values,
        cast("list[int]", nbytes),
        cast("list[float]", starts),
        cast("list[float]", durations),
        cast("list[int]", threads),
        cast("list[str]", types),
        cast("list[bytes | None]", data),
    )


_HANDLERS: Final[Mapping[type, Callable[[Worker, Any], None]]] = {
    messages.WorkerFunctions: Worker._on_functions,
    messages.Peers: Worker._on_peers,
    messages.Compute: Worker._on_compute,
    messages.Free: Worker._on_free,
    messages.Remove: Worker._on_remove,
    messages.Acquire: Worker._on_acquire,
    messages.WhoHas: Worker._on_who_has,
    messages.TakeBack: Worker._on_take_back,
    messages.WorkerGone: Worker._on_worker_gone,
    messages.Status: Worker._on_status,
    messages.Heartbeat: Worker._on_heartbeat,
    messages.Closing: Worker._on_closing,
}
_CARRIERS: Final[Mapping[type[Instruction], Callable[[Worker, Any], None]]] = {
    Execute: Worker._execute,
    Revoke: Worker._revoke,
    Rename: Worker._rename,
    Keep: Worker._keep,
    Drop: Worker._drop,
    Fetch: Worker._fetch,
    RestPeer: Worker._rest_peer,
    ForgetFunctions: Worker._forget_functions,
}
