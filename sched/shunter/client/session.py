"""One connection to a scheduler, with all that belongs to it; usable from any thread.

`Client` and `AsyncClient` are two faces of a session. Its loop reads, and settles entries of the table as messages
come; whoever submits pickles, and usually writes to the socket, in the calling thread; whoever wants a result
unpickles it in the waiting thread.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from shunter.client.failures import exception_of
from shunter.client.functions import Function, FunctionCache
from shunter.client.futures import Future
from shunter.client.graphs import Call
from shunter.client.outgoing import Columns, Outgoing
from shunter.client.table import CANCELLED, ERROR, FINISHED, PENDING, Entry, FutureTable, Gate, Watcher
from shunter.client.waiting import Deadline, wait_all, wait_all_async, wait_one
from shunter.client.writers import Writer, make_writer
from shunter.errors import ConnectionLost, ShunterError, UsageError
from shunter.serialize import digest, dump_call, load_value
from shunter.types import Buffer
from shunter.wire import link as wire_link
from shunter.wire import messages
from shunter.wire.bulk import DataPool
from shunter.wire.details import ClientDetails

__all__ = ["Session"]

log: Final = logging.getLogger("shunter.client")

#: Messages are held back only while more come so quickly: see `Session._flush_soon`.
FLUSH_S: Final = 0.001
FLUSH_COUNT: Final = 100
FLUSH_NBYTES: Final = 256 * 1024
#: Dropped futures are told about after so long, in one message.
RELEASE_S: Final = 0.010
#: Largest pickle of one task's arguments.
ARGUMENTS_MAX: Final = 32 * 1024 * 1024
#: Results up to this size (as a pickle) are kept once they were unpickled.
KEEP_MAX: Final = 1024 * 1024
#: Keys in one message.
KEYS_MAX: Final = 2000
HEARTBEAT_S: Final = 15.0
#: A scheduler that has said nothing for so long is lost.
SILENCE_S: Final = 60.0

#: The answer to a request: (ok, value), or (False, an exception) if there will be none.
Answer = Callable[[bool, object], object]


class Session:
    """See the module.

    Args:
        loop: where messages are read.
        run_callback: runs users' callbacks, in order, where they may take their time.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, run_callback: Callable[[Callable[[], object]], object]
    ) -> None:
        from shunter.client.gather import Fetcher

        self.loop: Final = loop
        self.table: Final = FutureTable()
        self.lock: Final = self.table.lock
        self.address = ""
        self.name = ""
        self.number = -1
        #: Gives the key of the running task, in a session that belongs to a worker.
        self.get_parent: Callable[[], str | None] = lambda: None
        self._run_callback = run_callback
        self._functions = FunctionCache()
        self._outgoing = Outgoing(self._functions)
        self._released: deque[Entry] = deque()
        self._release_armed = False
        self._flush_armed = False
        self._flushed_at = 0.0
        self._prefix = secrets.token_hex(5)
        self._counter = itertools.count(1)
        self._requests: dict[int, Answer] = {}
        self._request_last = 0
        self._unusable: ShunterError | None = UsageError("this client is not connected yet")
        self._last_words = ""
        self._heard = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop_thread = -1
        self._link: wire_link.Link | None = None
        self._writer: Writer | None = None
        self.pool = DataPool("")
        self.fetcher = Fetcher(self)
        _sessions.add(self)

    # ------------------------------------------------------------------------------------ life

    async def open(self, address: str, token: str, *, name: str, timeout: float) -> None:
        """Connect. In the session's loop.

        Raises:
            UsageError: a malformed address. ConnectionLost: nobody is there. PeerError: not let in.
        """
        self._loop_thread = threading.get_ident()
        self.address = address
        details = ClientDetails(name=name).as_dict()
        link = await wire_link.connect(address, "client", token, details, self, timeout=timeout)
        self._link = link
        self.number = link.number
        told = link.peer_details.get("name")
        self.name = told if isinstance(told, str) else name
        self.pool = DataPool(token)
        self._writer = make_writer(link, self.loop, self.lock)
        self._heard = self.loop.time()
        self._timer = self.loop.call_later(HEARTBEAT_S, self._beat)
        self._unusable = None

    @property
    def closed(self) -> bool:
        """Nothing can be asked any more."""
        return self._unusable is not None

    def check_usable(self) -> None:
        """Raise if the session is closed, lost, or was inherited through a fork."""
        if self._unusable is not None:
            raise type(self._unusable)(*self._unusable.args)

    def check_may_block(self) -> None:
        """Raise if waiting here would stop the loop that brings what is waited for."""
        if threading.get_ident() == self._loop_thread:
            raise UsageError("this would block the event loop of the client: use 'await'")

    def say_goodbye(self, timeout: float = 2.0) -> None:
        """Cancel what is pending, and send what is queued. Not in the loop's thread. Then comes `close`."""
        with self.lock:
            if self._unusable is not None:
                return
            self._drain_releases()
            self.flush()
            self._unusable = UsageError("this client is closed")
        if self._writer is not None and threading.get_ident() != self._loop_thread:
            self._writer.drain(timeout)

    async def close(self) -> None:
        """Close the connection. In the session's loop."""
        with self.lock:
            if self._unusable is None:
                self.flush()
                self._unusable = UsageError("this client is closed")
        if self._timer is not None:
            self._timer.cancel()
        self.table.closed("the client was closed")
        self._fail_requests(UsageError("this client was closed"))
        self.fetcher.close()
        self.pool.close()
        if self._writer is not None:
            self._writer.close()
        if self._link is not None:
            self._link.close("the client was closed")
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._link.wait_closed(), 2.0)

    def _beat(self) -> None:
        assert self._link is not None
        silence = self.loop.time() - self._heard
        if silence > SILENCE_S:
            self._last_words = f"it has been silent for {silence:.0f} s"
            self._link.abort(self._last_words)
            return
        with self.lock:
            self._outgoing.say(messages.Heartbeat())
            self.flush()
        self._timer = self.loop.call_later(HEARTBEAT_S, self._beat)

    # ------------------------------------------------------------------------------------ from the scheduler

    def on_message(self, link: wire_link.Link, header: list[object], body: bytes) -> None:
        message = messages.from_scheduler_to_client(header, body)
        if isinstance(message, messages.ClientFinished):
            self.table.finished(message.keys, message.nbytes, message.blobs)
        elif isinstance(message, messages.Erred):
            self.table.erred(message.keys, [message.failures[index] for index in message.failure_of])
        elif isinstance(message, messages.Reply):
            self._answer(message.request, message.ok, message.value)
        elif isinstance(message, messages.Relayed):
            value = dict(zip(message.keys, message.values)) if message.ok else message.error
            self._answer(message.request, message.ok, value)
        elif isinstance(message, (messages.Lost, messages.Retried)):
            self.table.pending_again(message.keys)
        elif isinstance(message, messages.Cancelled):
            self.table.cancelled(message.keys, message.reasons)
        elif isinstance(message, messages.Restarted):
            self.table.restarted()
        elif isinstance(message, messages.Closing):
            self._last_words = message.reason

    def on_batch(self, link: wire_link.Link) -> None:
        self._heard = self.loop.time()

    def on_closed(self, link: wire_link.Link, reason: str) -> None:
        reason = self._last_words or reason
        error = ConnectionLost(f"lost the scheduler at {self.address}: {reason}")
        with self.lock:
            if self._unusable is None:
                self._unusable = error
        if self._timer is not None:
            self._timer.cancel()
        if self._writer is not None:
            self._writer.close()
        self.table.disconnected(error)
        self._fail_requests(error)

    # ------------------------------------------------------------------------------------ requests

    def request(self, make: Callable[[int], Any], answer: Answer) -> int:
        """Send a message that is answered. ``answer`` is called once, in the loop; it must not block."""
        with self.lock:
            self.check_usable()
            self._request_last += 1
            number = self._request_last
            self._requests[number] = answer
            self._outgoing.say(make(number))
            self.flush()
        return number

    def ask(self, name: str, arguments: dict[str, object], deadline: Deadline) -> Any:
        """Ask the scheduler a question and wait for the answer.

        Raises:
            concurrent.futures.TimeoutError: none came. UsageError: the question was refused.
        """
        return self._ask(lambda number: messages.Query(number, name, arguments), f"query {name!r}", deadline)

    def relay(self, worker: int, keys: list[str], deadline: Deadline) -> dict[str, list[Buffer]]:
        """Fetch values through the scheduler. Raises ConnectionLost if it cannot get them."""
        try:
            found: dict[str, list[Buffer]] = self._ask(
                lambda number: messages.Relay(number, worker, keys), "relay", deadline
            )
        except UsageError as error:
            self.check_usable()
            raise ConnectionLost(str(error)) from None
        return found

    def _ask(self, make: Callable[[int], Any], what: str, deadline: Deadline) -> Any:
        self.check_may_block()
        gate = Gate()
        box: list[tuple[bool, object]] = []

        def answer(ok: bool, value: object) -> None:
            box.append((ok, value))
            gate.open()

        number = self.request(make, answer)
        if not gate.wait(deadline.remaining()) and not box:
            self._requests.pop(number, None)
            raise deadline.error(f"the scheduler did not answer ({what})")
        return _unwrap(*box[0])

    async def ask_async(self, name: str, arguments: dict[str, object]) -> Any:
        """`ask` in the session's loop."""
        waiter: asyncio.Future[tuple[bool, object]] = self.loop.create_future()

        def answer(ok: bool, value: object) -> None:
            if not waiter.done():
                waiter.set_result((ok, value))

        self.request(lambda number: messages.Query(number, name, arguments), answer)
        return _unwrap(*await waiter)

    def _answer(self, number: int, ok: bool, value: object) -> None:
        answer = self._requests.pop(number, None)
        if answer is not None:
            answer(ok, value)

    def _fail_requests(self, error: Exception) -> None:
        with self.lock:
            requests, self._requests = self._requests, {}
        for answer in requests.values():
            answer(False, error)

    # ------------------------------------------------------------------------------------ to the scheduler

    def flush(self) -> None:
        """Send what is queued, now."""
        with self.lock:
            if self._writer is None or self._unusable is not None:
                return
            if self._outgoing.is_empty:
                return
            self._writer.write(self._outgoing.take())
            self._flushed_at = time.monotonic()
            if threading.get_ident() != self._loop_thread:
                self._writer.wait_for_room()

    def say(self, message: Any) -> None:
        """Send a message, behind all that was said before. The caller has the lock."""
        self.check_usable()
        self._outgoing.say(message)
        self.flush()

    def _flush_soon(self) -> None:
        """Send at once if nothing was sent just now; else with what follows, soon. The caller has the lock.

        While this thread is busy, the loop's thread gets the GIL every 5 ms only: so this thread flushes by itself.
        """
        outgoing = self._outgoing
        if (
            time.monotonic() - self._flushed_at >= FLUSH_S
            or outgoing.count >= FLUSH_COUNT
            or outgoing.nbytes >= FLUSH_NBYTES
        ):
            self.flush()
        elif not self._flush_armed:
            self._flush_armed = True
            with suppress(RuntimeError):  # The loop is closed: so is this session, or it will be.
                self.loop.call_soon_threadsafe(self._flush_in_loop)

    def _flush_in_loop(self) -> None:
        self._flush_armed = False
        self.flush()

    def release(self, entry: Entry) -> None:
        """A future is gone. Called by ``__del__`` on any thread at any time, so no lock is taken here."""
        if self._unusable is not None:
            return
        self._released.append(entry)
        if not self._release_armed:
            self._release_armed = True
            try:
                self.loop.call_soon_threadsafe(self._arm_release)
            except RuntimeError:  # The loop is closed.
                self._unusable = ConnectionLost("the client's event loop is closed")

    def _arm_release(self) -> None:
        self.loop.call_later(RELEASE_S, self._release_in_loop)

    def _release_in_loop(self) -> None:
        self._release_armed = False  # Before draining: what comes now arms again.
        with self.lock:
            self._drain_releases()
            self.flush()

    def _drain_releases(self) -> None:
        """Tell of futures that are gone. The caller has the lock."""
        dropped = []
        while self._released:
            dropped.append(self._released.popleft())
        keys = self.table.drop(dropped)
        if keys:
            self._say_keys(messages.Release, keys)
            self._put_fence()

    def _say_keys(self, make: Callable[[list[str]], Any], keys: Sequence[str]) -> None:
        for part in _parts(keys):
            self._outgoing.say(make(part))

    def _put_fence(self) -> None:
        """See `FutureTable`. The caller has the lock."""
        fence = self.table.open_fence()
        if fence:
            self._ask_who_has([], lambda ok, value: self._look_behind(fence))

    def _look_behind(self, fence: int) -> None:
        parts = list(_parts(self.table.find_behind(fence))) or [[]]
        statuses: dict[str, tuple[str, int]] = {}
        answers = 0

        def answer(ok: bool, rows: object) -> None:
            nonlocal answers
            answers += 1
            if ok and isinstance(rows, list):
                statuses.update({key: (status, nbytes) for key, status, nbytes, holders in rows})
            if answers == len(parts):
                self.table.pass_fence(fence, statuses)

        for part in parts:
            self._ask_who_has(part, answer)

    def _ask_who_has(self, keys: list[str], answer: Answer) -> None:
        with self.lock:
            if self._unusable is None:
                self.request(lambda number: messages.Query(number, "who_has", {"keys": keys}), answer)

    # ------------------------------------------------------------------------------------ submitting

    def function(self, fn: Callable[..., object]) -> Function:
        """The function as this connection knows it; pickled the first time.

        Raises:
            UsageError: it cannot be pickled.
        """
        function = self._functions.find(fn)
        if function is None:
            blob = self._functions.dump(fn)
            with self.lock:
                function = self._functions.add(fn, blob)
        return function

    def new_key(self, name: str) -> str:
        """A key that nobody else has."""
        return f"{name}-{self._prefix}-{next(self._counter)}"

    def submit(
        self,
        fn: Callable[..., object],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        *,
        key: str | None,
        pure: bool,
        options: messages.TaskOptions | None,
    ) -> Future[Any]:
        """Submit one task."""
        self.check_usable()
        function = self.function(fn)
        data, inputs = self._dump_call(function, args, kwargs)
        unique = key is None and not pure
        if key is None:
            key = self.new_key(function.name) if unique else _pure_key(function, data)
        if len(inputs) > KEYS_MAX:
            columns = Columns()
            columns.add(key, function.number, inputs, options, data)
            columns.check()
        with self.lock:
            self.check_usable()
            entry = None if unique else self._find_live(key)
            if entry is None:
                entry = self.table.add(key, unique=unique)
                self._outgoing.submit_one(key, function.number, inputs, options, data, self.get_parent())
                self._flush_soon()
        return Future(entry, self)

    def submit_many(
        self,
        fn: Callable[..., object],
        calls: Iterator[tuple[object, ...]],
        kwargs: Mapping[str, object],
        *,
        keys: Iterator[str] | None,
        pure: bool,
        options: messages.TaskOptions | None,
    ) -> list[Future[Any]]:
        """Submit a call of one function for each tuple of arguments, in messages of up to 1,000."""
        self.check_usable()
        function = self.function(fn)
        unique = keys is None and not pure
        futures: list[Future[Any]] = []
        rows: list[tuple[str, list[str], bytes]] = []
        size = 0
        for args in calls:
            data, inputs = self._dump_call(function, args, kwargs)
            if keys is not None:
                key = next(keys)
            else:
                key = self.new_key(function.name) if unique else _pure_key(function, data)
            rows.append((key, inputs, data))
            size += len(data) + len(key) + sum(map(len, inputs))
            if len(rows) >= 1000 or size >= FLUSH_NBYTES:
                self._submit_rows(function, rows, unique, options, futures)
                rows = []
                size = 0
        if rows:
            self._submit_rows(function, rows, unique, options, futures)
        return futures

    def _submit_rows(
        self,
        function: Function,
        rows: list[tuple[str, list[str], bytes]],
        unique: bool,
        options: messages.TaskOptions | None,
        futures: list[Future[Any]],
    ) -> None:
        columns = Columns()
        number = function.number
        for key, inputs, data in rows:
            columns.add(key, number, inputs, options, data)
        columns.check()
        with self.lock:
            self.check_usable()
            if unique:
                futures += [Future(self.table.add(key, unique=True), self) for key in columns.keys]
            else:
                columns = Columns()
                for key, inputs, data in rows:
                    entry = self._find_live(key)
                    if entry is None:
                        entry = self.table.add(key)
                        columns.add(key, number, inputs, options, data)
                    futures.append(Future(entry, self))
            if len(columns):
                self._outgoing.submit(columns, self.get_parent())
                self.flush()

    def submit_graph(self, calls: Iterable[Call], wanted: Sequence[str]) -> dict[str, Future[Any]]:
        """Submit a graph, in parts while it is being pickled; as a whole or not at all.

        Returns:
            A future for each wanted key.
        """
        self.check_usable()
        with self.lock:
            graph = self._outgoing.new_graph()
            self._outgoing.say(messages.GraphBegin(graph, False, self.get_parent()))
        count = 0
        columns = Columns()
        try:
            for call in calls:
                function = self.function(call.fn)
                _check_arguments(function.name, call.data)
                columns.add(call.key, function.number, call.inputs, call.options, call.data)
                count += 1
                if columns.full:
                    self._say_part(graph, columns)
                    columns = Columns()
            if len(columns):
                self._say_part(graph, columns)
        except BaseException:
            with self.lock:
                self._outgoing.say(messages.GraphAbort(graph))
                self._flush_soon()
            raise
        return self._commit(graph, count, wanted)

    def _commit(self, graph: int, count: int, wanted: Sequence[str]) -> dict[str, Future[Any]]:
        futures: dict[str, Future[Any]] = {}
        with self.lock:
            self.check_usable()
            self._drain_releases()
            for key in wanted:
                entry = self._find_live(key)
                futures[key] = Future(self.table.add(key) if entry is None else entry, self)
            # A header holds 1 MiB: so many names do not fit. All are wanted then.
            everything = len(futures) == count or sum(map(len, futures)) + 3 * len(futures) > 500_000
            self._outgoing.say(messages.GraphCommit(graph, None if everything else list(futures)))
            self.flush()
        return futures

    def _say_part(self, graph: int, columns: Columns) -> None:
        columns.check()
        with self.lock:
            self.check_usable()
            self._outgoing.say(
                messages.GraphPart(
                    graph,
                    columns.keys,
                    columns.functions,
                    columns.inputs,
                    columns.options,
                    columns.option_of,
                    columns.blobs,
                ),
                columns.nbytes,
            )
            self.flush()

    def _find_live(self, key: str) -> Entry | None:
        """Share the live entry of a key; drops are told first, so that what is gone is not found."""
        if self._released:
            self._drain_releases()
        entry = self.table.find(key)
        if entry is not None:
            entry.count += 1
        return entry

    def _dump_call(
        self, function: Function, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> tuple[bytes, list[str]]:
        data, inputs = dump_call(args, kwargs, name=function.name, owner=self)
        if len(data) > ARGUMENTS_MAX:
            _check_arguments(function.name, data)
        return data, inputs

    # ------------------------------------------------------------------------------------ futures

    def watch(self, entry: Entry, watcher: Watcher) -> bool:
        """`FutureTable.watch`, having sent what is queued: somebody waits."""
        if entry.status != PENDING:
            return False
        self.flush()
        return self.table.watch(entry, watcher)

    def add_done_callback(
        self, future: Future[Any], entry: Entry, fn: Callable[[Future[Any]], object]
    ) -> None:
        """See `Future.add_done_callback`."""

        def call() -> None:
            try:
                fn(future)
            except Exception:
                log.exception("a callback of %r failed: %r", future.key, fn)

        if not self.watch(entry, lambda entry: self._run_callback(call)):
            call()

    def cancel(
        self, entries: Iterable[Entry], *, force: bool, reason: str = "cancelled by this client"
    ) -> None:
        """Give up; at once as far as this client is concerned."""
        with self.lock:
            self.check_usable()
            keys, tell = self.table.cancel(entries, reason)
            if keys:
                self._say_keys(lambda part: messages.Cancel(part, force), keys)
                self._put_fence()
                self.flush()
        tell()

    def retry(self, entries: Iterable[Entry]) -> None:
        """Run again what has failed."""
        with self.lock:
            self.check_usable()
            keys = self.table.retry(entries)
            if keys:
                self._say_keys(messages.Retry, keys)
                self.flush()

    def exception(self, entry: Entry, deadline: Deadline) -> BaseException | None:
        """Why there is no result; None if there is one. Raises if it was cancelled."""
        self._wait_one(entry, deadline)
        error = exception_of(entry)
        if error is not None and entry.status == CANCELLED:
            raise error
        return error

    def result(self, entry: Entry, deadline: Deadline) -> Any:
        """Wait, fetch, unpickle."""
        while True:
            self._wait_one(entry, deadline)
            if entry.status in (ERROR, CANCELLED):
                error = exception_of(entry)
                if error is not None:
                    raise error
            if entry.is_here:
                return self._load(entry)
            values = self._fetch([entry], deadline)
            if entry in values:
                return values[entry]

    def results(self, entries: Sequence[Entry], deadline: Deadline, *, skip: bool) -> dict[Entry, Any]:
        """The results of many. With ``skip`` those that failed are left out, else the first failure is raised."""
        values: dict[Entry, Any] = {}
        while True:
            self._wait_all(entries, deadline, fail_fast=not skip)
            missing = []
            for entry in entries:
                if entry in values:
                    continue
                if entry.status in (ERROR, CANCELLED):
                    error = exception_of(entry)
                    if error is not None and not skip:
                        raise error
                elif entry.status == FINISHED and entry.is_here:
                    values[entry] = self._load(entry)
                else:
                    missing.append(entry)
            if not missing:
                return values
            if all(entry.status == FINISHED for entry in missing):
                values.update(self._fetch(missing, deadline))

    async def result_async(self, entry: Entry) -> Any:
        """`result` in any loop."""
        while True:
            if entry.is_pending:
                self.flush()
                await wait_all_async(self.table, [entry], fail_fast=False)
            if entry.status in (ERROR, CANCELLED) or entry.is_here:
                return self.result(entry, Deadline(0))
            loop = asyncio.get_running_loop()
            values = await loop.run_in_executor(None, self._fetch, [entry], Deadline(None))
            if entry in values:
                return values[entry]

    async def results_async(self, entries: Sequence[Entry], *, skip: bool) -> dict[Entry, Any]:
        """`results` in any loop."""
        self.flush()
        await wait_all_async(self.table, entries, fail_fast=not skip)
        if all(entry.is_here or entry.status in (ERROR, CANCELLED) for entry in entries):
            return self.results(entries, Deadline(0), skip=skip)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, partial(self.results, entries, Deadline(None), skip=skip))

    def wait_all(self, entries: Sequence[Entry], deadline: Deadline) -> None:
        """Wait until none is pending."""
        self._wait_all(entries, deadline, fail_fast=False)

    async def wait_all_async(self, entries: Sequence[Entry]) -> None:
        """`wait_all` in any loop."""
        self.flush()
        await wait_all_async(self.table, entries, fail_fast=False)

    def _wait_one(self, entry: Entry, deadline: Deadline) -> None:
        if entry.is_pending:
            self.check_may_block()
            self.flush()
            wait_one(self.table, entry, deadline)
            self._flushed_at = 0.0  # Who waits for each result has nothing to send along with the next task.

    def _wait_all(self, entries: Sequence[Entry], deadline: Deadline, *, fail_fast: bool) -> None:
        if any(entry.status == PENDING for entry in entries):
            self.check_may_block()
            self.flush()
            wait_all(self.table, entries, deadline, fail_fast=fail_fast)

    def _load(self, entry: Entry) -> Any:
        """Unpickle a result that came along. Kept if small, so that the same object comes each time."""
        data = entry.data
        if entry.has_value or data is None:
            return entry.value
        return self._keep(entry, [data])

    def _keep(self, entry: Entry, parts: Sequence[Buffer]) -> Any:
        try:
            value = load_value(parts)
        except Exception as error:
            raise UsageError(
                f"the result of {entry.key!r} cannot be unpickled in this process: {type(error).__name__}: {error}"
            ) from error
        if sum(map(len, parts)) <= KEEP_MAX:
            with self.lock:
                if entry.has_value:
                    return entry.value  # Another thread was faster.
                entry.value = value
                entry.has_value = True
                entry.data = None
        return value

    def _fetch(self, entries: Sequence[Entry], deadline: Deadline) -> dict[Entry, Any]:
        by_key = {entry.key: entry for entry in entries}
        found = self.fetcher.fetch(list(by_key), deadline)
        return {by_key[key]: self._keep(by_key[key], parts) for key, parts in found.items()}


def _unwrap(ok: bool, value: object) -> Any:
    if ok:
        return value
    if isinstance(value, Exception):
        raise type(value)(*value.args)
    raise UsageError(str(value))


def _parts(keys: Sequence[str]) -> Iterator[list[str]]:
    """Cut keys so that each part fits into a header."""
    part: list[str] = []
    size = 0
    for key in keys:
        part.append(key)
        size += 6 * len(key) + 4  # As ASCII JSON a character takes 6 bytes at most (12 for a pair).
        if len(part) >= KEYS_MAX or size > 400_000:
            yield part
            part = []
            size = 0
    if part:
        yield part


def _pure_key(function: Function, data: bytes) -> str:
    return f"{function.name}-{digest(function.digest.encode() + data)}"


def _check_arguments(name: str, data: bytes) -> None:
    if len(data) > ARGUMENTS_MAX:
        raise UsageError(
            f"the arguments of {name!r} take {len(data):,} bytes as a pickle; {ARGUMENTS_MAX:,} are allowed. Put large "
            "data on the workers first: future = client.scatter(data), and pass the future"
        )


_sessions: Final[weakref.WeakSet[Session]] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for session in _sessions:
        session._unusable = UsageError(
            "this client was made before a fork: make another one in the child process"
        )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
