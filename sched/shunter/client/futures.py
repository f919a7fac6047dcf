"""`Future`, `as_completed` and `wait`, as in ``concurrent.futures``."""

from __future__ import annotations

import queue
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from shunter.client.table import CANCELLED, ERROR, FINISHED, PENDING, Entry, Status
from shunter.client.waiting import Deadline, LoopGate
from shunter.errors import UsageError
from shunter.serialize import reference

if TYPE_CHECKING:
    from shunter.client.session import Session

__all__ = ["AsCompleted", "DoneAndNotDone", "Future", "as_completed", "wait"]

T = TypeVar("T")


class Future(Generic[T]):
    """The result of a task, there already or still to come. Made by `Client.submit` and its like.

    The cluster keeps the result as long as a future of it exists somewhere. Futures with the same key share one
    result. Pass a future as an argument (at any depth) to use its result in another task without fetching it.
    """

    __slots__ = ("__weakref__", "_entry", "_session")

    def __init__(self, entry: Entry, session: Session) -> None:
        # Takes over one count of the entry, from whoever made or found it.
        self._entry = entry
        self._session = session

    def __del__(self) -> None:
        try:
            session = self._session
        except AttributeError:  # never initialized
            return
        session.giving_up.release(self._entry)

    @property
    def key(self) -> str:
        """The task's name in the whole cluster."""
        return self._entry.key

    @property
    def status(self) -> Status:
        """One of ``"pending"``, ``"finished"``, ``"error"`` and ``"cancelled"``."""
        return self._entry.status

    def result(self, timeout: float | None = None) -> T:
        """The task's result; waits for it and fetches it.

        Results up to 1 MiB are unpickled once and then kept: the same object comes each time, and a change of it shows
        to all who have it. Larger ones are fetched anew each time.

        Args:
            timeout: seconds to wait; None: without end.

        Raises:
            concurrent.futures.TimeoutError: it took too long.
            concurrent.futures.CancelledError: the task was cancelled; says why.
            ConnectionLost: the scheduler is gone.
            Exception: what the task raised, with the remote traceback as ``__cause__``. An exception that cannot
                be rebuilt here comes as a `RemoteError`.
            SchedulingError: the cluster could not run it.
        """
        value: T = self._session.results.result(self._entry, Deadline(timeout))
        return value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the task raised, or None if it finished. Waits for either, and raises if there will be neither."""
        return self._session.results.exception(self._entry, Deadline(timeout))

    def done(self) -> bool:
        """It has finished, failed or been cancelled."""
        return self._entry.status != PENDING

    def running(self) -> bool:
        """It is not done yet. A client is not told when a worker starts a task; see `Client.story`."""
        return self._entry.status == PENDING

    def cancelled(self) -> bool:
        """It was cancelled."""
        return self._entry.status == CANCELLED

    def cancel(self) -> bool:
        """Give the task up, for all futures of this client with its key. False if it is done already.

        A task that runs is not interrupted, its result is dropped. Other clients that want it are not disturbed: see
        `Client.cancel` for ``force``.
        """
        if self._entry.status != PENDING:
            return self._entry.status == CANCELLED
        self._session.giving_up.cancel([self._entry], force=False)
        return True

    def retry(self) -> None:
        """Run the task again, and what it needs that failed as well. See `Client.retry`.

        Raises:
            UsageError: it has not failed, or it was cancelled. ConnectionLost: the scheduler is gone.
        """
        self._session.giving_up.retry([self._entry])

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Call ``fn(future)`` when it is done, at once if it is already.

        Callbacks of a `Client` run one after the other on a thread of their own and may block; those of an
        `AsyncClient` run in its loop. What they raise is logged.
        """
        self._session.add_done_callback(self, self._entry, fn)

    def __await__(self) -> Generator[Any, None, T]:
        return self._wait().__await__()

    async def _wait(self) -> T:
        # A coroutine of this object: in ``await client.submit(f)`` nothing else keeps the future, and so the task.
        value: T = await self._session.results.result_async(self._entry)
        return value

    def __repr__(self) -> str:
        entry = self._entry
        more = f", {entry.nbytes:,} bytes" if entry.status == FINISHED and entry.nbytes >= 0 else ""
        return f"<Future {entry.key!r} {entry.status}{more}>"

    def __copy__(self) -> Future[T]:
        return self

    def __deepcopy__(self, memo: object) -> Future[T]:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        if self._entry.status == CANCELLED:
            raise UsageError(
                f"future {self.key!r} was cancelled: it cannot be an argument of a task or part of a dataset"
            )
        found = reference(self._entry.key, self._session)
        if found is None:
            raise UsageError(
                f"future {self.key!r} can only travel as an argument of a task: pass, return or scatter its result()"
            )
        return found


class DoneAndNotDone(NamedTuple):
    """What `wait` returns."""

    done: set[Future[Any]]
    not_done: set[Future[Any]]


def wait(
    futures: Iterable[Future[Any]],
    timeout: float | None = None,
    return_when: Literal["ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION"] = "ALL_COMPLETED",
) -> DoneAndNotDone:
    """Block until all futures are done, or one, or one has failed (which a cancelled one has).

    Args:
        futures: what to wait for.
        timeout: seconds after which it returns anyway; None: without end.
        return_when: see ``concurrent.futures.wait``.
    """
    if return_when not in (ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION):
        raise UsageError(
            f"return_when must be one of the constants of concurrent.futures, not {return_when!r}"
        )
    futures = _check(futures)
    for future in futures:
        if not future.done():
            future._session.connection.check_may_block()
    deadline = Deadline(timeout)
    arrivals: queue.SimpleQueue[Entry] = queue.SimpleQueue()
    watched = _watch(futures, arrivals.put)
    try:
        missing = len(watched)
        failed = any(future.status in (ERROR, CANCELLED) for future in futures)
        while missing:
            if return_when == FIRST_COMPLETED and missing < len(futures):
                break
            if return_when == FIRST_EXCEPTION and failed:
                break
            try:
                entry = arrivals.get(timeout=deadline.remaining())
            except queue.Empty:
                break
            missing -= 1
            failed = failed or entry.status in (ERROR, CANCELLED)
    finally:
        _unwatch(watched, arrivals.put)
    done = {future for future in futures if future.done()}
    return DoneAndNotDone(done, set(futures) - done)


def as_completed(
    futures: Iterable[Future[T]], *, with_results: bool = False, timeout: float | None = None
) -> AsCompleted[T]:
    """Iterate over futures in the order in which they are done, by ``for`` or by ``async for``.

    Args:
        futures: what to iterate over.
        with_results: give pairs ``(future, result)``; the exception of a task is raised from the loop.
        timeout: seconds from now after which ``concurrent.futures.TimeoutError`` is raised.
    """
    return AsCompleted(_check(futures), with_results, Deadline(timeout))


class AsCompleted(Generic[T]):
    """The iterator of `as_completed`. ``add`` puts another future in while it runs."""

    def __init__(self, futures: list[Future[T]], with_results: bool, deadline: Deadline) -> None:
        self._with_results = with_results
        self._deadline = deadline
        self._arrived: queue.SimpleQueue[Future[T]] = queue.SimpleQueue()
        self._left = 0
        self._sessions: set[Session] = set()
        self._gate: LoopGate | None = None
        for future in futures:
            self.add(future)

    def add(self, future: Future[T]) -> None:
        """Have another future in the iteration."""
        self._left += 1
        self._sessions.add(future._session)

        def arrive(entry: Entry) -> None:
            self._arrived.put(future)
            gate = self._gate
            if gate is not None:
                gate.open()

        if not future._session.results.watch(future._entry, arrive):
            arrive(future._entry)

    def count(self) -> int:
        """How many have not been given out yet."""
        return self._left

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self._left:
            raise StopIteration
        for session in self._sessions:
            session.connection.check_may_block()
        try:
            future = self._arrived.get(timeout=self._deadline.remaining())
        except queue.Empty:
            raise self._deadline.error(f"{self._left:,} futures were not done") from None
        self._left -= 1
        return (future, future.result()) if self._with_results else future

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if not self._left:
            raise StopAsyncIteration
        future = await self._next_async()
        self._left -= 1
        return (future, await future) if self._with_results else future

    async def _next_async(self) -> Future[T]:
        import asyncio

        if self._gate is None:
            self._gate = LoopGate()
        while True:
            try:
                return self._arrived.get_nowait()
            except queue.Empty:
                pass
            try:
                await asyncio.wait_for(self._gate.wait(), self._deadline.remaining())
            except (asyncio.TimeoutError, TimeoutError):
                raise self._deadline.error(f"{self._left:,} futures were not done") from None


def _check(futures: Iterable[Future[T]]) -> list[Future[T]]:
    found = list(futures)
    for future in found:
        if not isinstance(future, Future):
            raise UsageError(f"expected futures of shunter, not {type(future).__name__}: {future!r:.100}")
    return found


def _watch(futures: Iterable[Future[Any]], watcher: Callable[[Entry], object]) -> list[Future[Any]]:
    return [future for future in futures if future._session.results.watch(future._entry, watcher)]


def _unwatch(futures: Iterable[Future[Any]], watcher: Callable[[Entry], object]) -> None:
    for future in futures:
        future._session.table.unwatch(future._entry, watcher)
