"""The task threads: they unpickle arguments, call functions, and hand back what came of it.

One queue serves all threads. It holds tickets; the jobs stand in a dict beside it. A thread that takes a ticket
takes the job out of the dict, and so does whoever wants the job back: both are one operation on a dict, so each
job is started once or taken back once, without a lock.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from types import CoroutineType
from typing import Final, NamedTuple, TypeAlias, final

from shunter import serialize
from shunter.types import qualified_name
from shunter.worker import context
from shunter.worker.blame import BlameMap
from shunter.worker.coroutines import CoroutineLoop
from shunter.worker.events import Event, RunFailed, RunRescheduled, RunSeceded
from shunter.worker.functions import Function
from shunter.worker.store import Entry, sizeof

__all__ = ["Finished", "Job", "Outcome", "TaskFailure", "TaskThreads"]

logger = logging.getLogger("shunter.worker")

#: Values estimated at more than this many times ``inline_max`` are not pickled to see whether they fit.
INLINE_FACTOR: Final = 8
#: Nothing larger is sent along, whatever was asked for.
INLINE_LIMIT: Final = 1024 * 1024


class TaskFailure(NamedTuple):
    """Why a task failed, as it travels. ``kind``: "exception" or "serialization"."""

    kind: str
    text: str
    traceback: str
    types: list[str]
    data: bytes | None


class Finished(NamedTuple):
    """A task that ended with a value. ``data``: the value pickled, if that is small enough to be sent along."""

    ticket: int
    value: object
    nbytes: int
    start: float
    duration: float
    thread: int
    type_name: str
    data: bytes | None


#: What threads hand back: values as rows (they are made into columns later), everything else as events.
Outcome: TypeAlias = Finished | Event


@final
class Job:
    """One task for a thread. ``inputs`` are this job's own hold on the values.

    ``run_id`` may change while it waits or runs: another run has adopted it. ``slot``: in the blame map, -1
    before it starts. ``began``: monotonic seconds.
    """

    __slots__ = (
        "began",
        "data",
        "function",
        "has_seceded",
        "inline_max",
        "inputs",
        "key",
        "run_id",
        "slot",
        "ticket",
    )

    def __init__(
        self,
        ticket: int,
        key: str,
        function: Function,
        data: bytes,
        inputs: dict[str, Entry] | None,
        inline_max: int,
    ) -> None:
        self.ticket: Final = ticket
        self.key: Final = key
        self.function: Final = function
        self.data: Final = data
        self.inputs: Final = inputs
        self.inline_max: Final = inline_max
        self.run_id = ticket
        self.slot = -1
        self.began = 0.0
        self.has_seceded = False


@final
class TaskThreads:
    """A number of threads, and as many more as tasks have seceded.

    Args:
        nthreads: tasks at a time.
        blame: where runs are marked that have started.
        hand_back: gets what came of each job, on the task's thread.
        worker_name: told to tasks that ask.
        scheduler: its address, told to tasks that ask.
    """

    def __init__(
        self,
        nthreads: int,
        blame: BlameMap,
        hand_back: Callable[[Outcome], None],
        *,
        worker_name: str = "",
        scheduler: str = "",
    ) -> None:
        self._nthreads = nthreads
        self._blame = blame
        self._hand_back = hand_back
        self._worker_name = worker_name
        self._scheduler = scheduler
        self._tickets: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._pending: dict[int, Job] = {}
        self._running: dict[int, Job] = {}
        self._coroutines = CoroutineLoop()
        self._is_closed = False

    def start(self) -> None:
        """Start the threads."""
        for _ in range(self._nthreads):
            self._start_thread()

    def submit(self, jobs: Iterable[Job]) -> None:
        """Queue jobs. They start in this order."""
        for job in jobs:
            self._pending[job.ticket] = job
            self._tickets.put(job.ticket)

    def revoke(self, tickets: Iterable[int]) -> list[int]:
        """Take jobs back: those that no thread had started. None will start them now."""
        return [ticket for ticket in tickets if self._pending.pop(ticket, None) is not None]

    def rename(self, ticket: int, run_id: int) -> None:
        """A job serves another run now: that one is to be blamed for it."""
        for jobs in (self._pending, self._running):
            job = jobs.get(ticket)
            if job is not None:
                job.run_id = run_id
                self._blame.rename(job.slot, run_id)

    def close(self) -> None:
        """Start nothing any more. What runs cannot be stopped: its threads are daemons, nobody waits for them."""
        self._is_closed = True
        self._pending.clear()
        for _ in range(self._nthreads):
            self._tickets.put(None)
        self._coroutines.close()

    # ------------------------------------------------------------------------------------------ in the threads

    def _start_thread(self) -> None:
        slot = self._blame.take_slot()
        name = f"shunter-task-{slot}"
        threading.Thread(target=self._work, args=(slot,), name=name, daemon=True).start()

    def _work(self, slot: int) -> None:
        """The life of a thread."""
        try:
            while (ticket := self._tickets.get()) is not None:
                job = self._pending.pop(ticket, None)
                if job is None:
                    continue  # Taken back.
                self._run(job, slot)
                if job.has_seceded:
                    return  # Another thread has taken its place.
                del job  # It holds on to values.
        finally:
            self._blame.give_slot_back(slot)

    def _run(self, job: Job, slot: int) -> None:
        self._running[job.ticket] = job
        job.slot = slot
        self._blame.start(slot, job.run_id)
        start = time.time()
        job.began = time.perf_counter()
        try:
            outcome = self._call(job, start)
        except BaseException as error:
            duration = time.perf_counter() - job.began
            outcome = _to_event(job, error, start, duration)
        finally:
            context.enter(None)
            self._blame.end(slot)
            del self._running[job.ticket]
        if not self._is_closed:
            self._hand_back(outcome)

    def _call(self, job: Job, start: float) -> Outcome:
        try:
            function = job.function.load()
        except BaseException as error:
            raise _Unreadable(f"function {job.function.name} of task {job.key!r}") from error
        try:
            inputs = {key: entry.value for key, entry in job.inputs.items()} if job.inputs else {}
            args, kwargs = serialize.load_call(job.data, inputs)
        except BaseException as error:
            raise _Unreadable(f"arguments of task {job.key!r} ({job.function.name})") from error
        del inputs
        context.enter(
            context.RunningTask(
                job.key, job.run_id, self._worker_name, self._scheduler, lambda: self._secede(job)
            )
        )
        value = function(*args, **kwargs)
        if type(value) is CoroutineType:
            value = self._coroutines.run(value)
        duration = time.perf_counter() - job.began
        nbytes = sizeof(value)
        data = _pickle_small(value, nbytes, min(job.inline_max, INLINE_LIMIT)) if job.inline_max else None
        slot = max(job.slot, 0)
        return Finished(job.ticket, value, nbytes, start, duration, slot, qualified_name(type(value)), data)

    def _secede(self, job: Job) -> None:
        """Called by the task itself."""
        if job.has_seceded or self._is_closed:
            return
        job.has_seceded = True
        self._hand_back(RunSeceded(job.ticket, time.perf_counter() - job.began))
        self._start_thread()


class _Unreadable(Exception):
    """Something that the task needs cannot be unpickled here; the cause says why."""


def _to_event(job: Job, error: BaseException, start: float, duration: float) -> Event:
    if isinstance(error, context.Reschedule):
        return RunRescheduled(job.ticket)
    try:
        failure = _to_failure(error)
    except BaseException as another:  # Out of memory, or an interrupt: the task must end all the same.
        failure = TaskFailure("exception", type(another).__name__, "", [qualified_name(type(error))], None)
    return RunFailed(job.ticket, failure, start, duration, max(job.slot, 0))


def _to_failure(error: BaseException) -> TaskFailure:
    if isinstance(error, _Unreadable) and error.__cause__ is not None:
        cause = serialize.dump_exception(error.__cause__, skip="shunter")
        text = f"{error} cannot be unpickled on the worker: {cause.types[0].rpartition('.')[2]}: {cause.text}"
        return TaskFailure("serialization", text, cause.traceback, cause.types, None)
    dumped = serialize.dump_exception(error)
    return TaskFailure("exception", dumped.text, dumped.traceback, dumped.types, dumped.data)


def _pickle_small(value: object, nbytes: int, inline_max: int) -> bytes | None:
    """The value as one pickle of at most ``inline_max`` bytes; None if it is larger or cannot be pickled.

    That it cannot be pickled is no failure: perhaps only tasks on this worker want it. Who fetches it is told.
    """
    if nbytes > INLINE_FACTOR * inline_max:
        return None
    try:
        parts = serialize.dump_value(value, inline_max=inline_max)
    except Exception:
        return None
    data = parts[0]
    if len(parts) > 1 or len(data) > inline_max:
        return None
    return data if isinstance(data, bytes) else bytes(data)
