"""The connection to a scheduler: opens, reads, writes, asks, beats; usable from any thread.

Its loop reads, and settles entries of the table as messages come. Whoever has something to say writes it, usually
in the calling thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from shunter.client.functions import FunctionCache
from shunter.client.outgoing import Outgoing, json_size
from shunter.client.table import FutureTable, Gate
from shunter.client.waiting import Deadline
from shunter.client.writers import Writer, make_writer
from shunter.errors import ConnectionLost, ShunterError, UsageError
from shunter.types import Buffer
from shunter.wire import link as wire_link
from shunter.wire import messages
from shunter.wire.details import ClientDetails

__all__ = ["Answer", "Connection", "Receive", "cut_keys"]

#: Messages are held back only while more come so quickly: see `Connection.flush_soon`.
FLUSH_S: Final = 0.001
FLUSH_COUNT: Final = 100
FLUSH_NBYTES: Final = 256 * 1024
#: Keys in one message.
KEYS_MAX: Final = 2000
HEARTBEAT_S: Final = 15.0
#: A scheduler that has said nothing for so long is lost.
SILENCE_S: Final = 60.0

#: Takes the answer to a request: (ok, value), or (False, an exception) if there will be none.
Answer: TypeAlias = Callable[[bool, object], object]
#: Takes the value of an answer in the loop, before the messages behind it, even if nobody waits any more; what it
#: returns is handed to whoever asked. May raise a ShunterError, which is raised there.
Receive: TypeAlias = Callable[[object], object]


class Connection:
    """See the module.

    Args:
        loop: where messages are read.
        table: what they settle. Its lock guards this connection as well.

    Attributes:
        address, name, number: the scheduler's address; this client's name and number there.
        functions: those that the scheduler has been told of.
        outgoing: what will be sent next; whoever puts something in holds the lock, and then flushes.
        unusable: why nothing can be said any more, or not yet; None while it can.
        on_restarted: called in the loop when the cluster was restarted.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, table: FutureTable) -> None:
        self.loop: Final = loop
        self.table: Final = table
        self.lock: Final = table.lock
        self.functions: Final = FunctionCache()
        self.outgoing: Final = Outgoing(self.functions)
        self.address = ""
        self.name = ""
        self.number = -1
        self.unusable: ShunterError | None = UsageError("this client is not connected yet")
        self.on_restarted: Callable[[], object] = lambda: None
        self._flush_armed = False
        self._flushed_at = 0.0
        self._requests: dict[int, Answer] = {}
        self._request_last = 0
        self._last_words = ""
        self._heard = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop_thread = -1
        self._link: wire_link.Link | None = None
        self._writer: Writer | None = None

    async def open(self, address: str, token: str, *, name: str, timeout: float) -> None:
        """Connect. In the connection's loop.

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
        self._writer = make_writer(link, self.loop, self.lock)
        self._heard = self.loop.time()
        self._timer = self.loop.call_later(HEARTBEAT_S, self._beat)
        self.unusable = None

    def check_usable(self) -> None:
        """Raise if the connection is closed, lost, or was inherited through a fork."""
        if self.unusable is not None:
            raise type(self.unusable)(*self.unusable.args)

    def check_may_block(self) -> None:
        """Raise if waiting here would stop the loop that brings what is waited for."""
        if threading.get_ident() == self._loop_thread:
            raise UsageError("this would block the event loop of the client: use 'await'")

    def say_goodbye(self, timeout: float = 2.0) -> None:
        """Send what is queued, then nothing any more. Not in the loop's thread. Then comes `close`."""
        if self._fall_silent() and self._writer is not None:
            self._writer.drain(timeout)

    async def say_goodbye_in_loop(self, timeout: float = 2.0) -> None:
        """`say_goodbye` in the connection's loop."""
        if self._fall_silent() and self._writer is not None:
            await self._writer.drain_in_loop(timeout)

    def _fall_silent(self) -> bool:
        """Send what is queued, then nothing any more. False if that is so already."""
        with self.lock:
            if self.unusable is not None:
                return False
            self.flush()
            self.unusable = UsageError("this client is closed")
            return True

    async def close(self) -> None:
        """Close the connection. In the connection's loop."""
        self._fall_silent()
        if self._timer is not None:
            self._timer.cancel()
        self.table.closed("the client was closed")
        self._fail_requests(UsageError("this client was closed"))
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
            self.outgoing.say(messages.Heartbeat())
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
            self.on_restarted()
        elif isinstance(message, messages.Closing):
            self._last_words = message.reason

    def on_batch(self, link: wire_link.Link) -> None:
        self._heard = self.loop.time()

    def on_closed(self, link: wire_link.Link, reason: str) -> None:
        reason = self._last_words or reason
        error = ConnectionLost(f"lost the scheduler at {self.address}: {reason}")
        with self.lock:
            if self.unusable is None:
                self.unusable = error
        if self._timer is not None:
            self._timer.cancel()
        if self._writer is not None:
            self._writer.close()
        self.table.disconnected(error)
        self._fail_requests(error)

    # ------------------------------------------------------------------------------------ requests

    def request(self, make: Callable[[int], Any], answer: Answer) -> None:
        """Send a message that is answered. ``answer`` is called once, in the loop; it must not block."""
        with self.lock:
            self.check_usable()
            self._request_last += 1
            number = self._request_last
            self._requests[number] = answer
            self.outgoing.say(make(number))
            self.flush()

    def ask(self, name: str, arguments: dict[str, object], deadline: Deadline) -> Any:
        """Ask the scheduler a question and wait for the answer.

        Raises:
            concurrent.futures.TimeoutError: none came. UsageError: the question was refused.
        """
        return self.call(lambda number: messages.Query(number, name, arguments), f"query {name!r}", deadline)

    def relay(self, worker: int, keys: list[str], deadline: Deadline) -> dict[str, list[Buffer]]:
        """Fetch values through the scheduler. Raises ConnectionLost if it cannot get them."""
        try:
            found: dict[str, list[Buffer]] = self.call(
                lambda number: messages.Relay(number, worker, keys), "relay", deadline
            )
        except UsageError as error:
            self.check_usable()
            raise ConnectionLost(str(error)) from None
        return found

    def call(
        self,
        make: Callable[[int], Any],
        what: str,
        deadline: Deadline,
        *,
        receive: Receive | None = None,
        refused: type[Exception] = UsageError,
    ) -> Any:
        """Send a request and wait for its answer. Not in the loop's thread.

        Args:
            make: the message, by its number.
            what: the request, for the error.
            deadline: how long to wait.
            receive: see `Receive`.
            refused: what to raise if the answer is no, with the scheduler's text.

        Raises:
            concurrent.futures.TimeoutError: no answer came. ConnectionLost: there will be none.
        """
        self.check_may_block()
        gate = Gate()
        box: list[tuple[bool, object]] = []

        def answer(ok: bool, value: object) -> None:
            box.append(_receive(receive, ok, value))
            gate.open()

        self.request(make, answer)
        if not gate.wait(deadline.remaining()) and not box:
            raise deadline.error(f"the scheduler did not answer ({what})")
        return _unwrap(*box[0], refused)

    async def call_async(
        self,
        make: Callable[[int], Any],
        *,
        receive: Receive | None = None,
        refused: type[Exception] = UsageError,
    ) -> Any:
        """`call` in the connection's loop."""
        waiter: asyncio.Future[tuple[bool, object]] = self.loop.create_future()

        def answer(ok: bool, value: object) -> None:
            received = _receive(receive, ok, value)
            if not waiter.done():
                waiter.set_result(received)

        self.request(make, answer)
        return _unwrap(*await waiter, refused)

    async def ask_async(self, name: str, arguments: dict[str, object]) -> Any:
        """`ask` in the connection's loop."""
        return await self.call_async(lambda number: messages.Query(number, name, arguments))

    def _answer(self, number: int, ok: bool, value: object) -> None:
        answer = self._requests.pop(number, None)
        if answer is not None:
            answer(ok, value)

    def _fail_requests(self, error: Exception) -> None:
        with self.lock:
            requests, self._requests = self._requests, {}
        for answer in requests.values():
            answer(False, error)

    def flush(self) -> None:
        """Send what is queued, now."""
        with self.lock:
            if self._writer is None or self.unusable is not None:
                return
            if self.outgoing.is_empty:
                return
            self._writer.write(self.outgoing.take())
            self._flushed_at = time.monotonic()
            if threading.get_ident() != self._loop_thread:
                self._writer.wait_for_room()

    def say(self, message: Any) -> None:
        """Send a message, behind all that was said before. The caller has the lock."""
        self.check_usable()
        self.outgoing.say(message)
        self.flush()

    def say_keys(self, make: Callable[[list[str]], Any], keys: Sequence[str]) -> None:
        """Put a message with many keys, or several. The caller has the lock, and flushes."""
        for part in cut_keys(keys):
            self.outgoing.say(make(part))

    def flush_soon(self) -> None:
        """Send at once if nothing was sent just now; else with what follows, soon. The caller has the lock.

        While this thread is busy, the loop's thread gets the GIL every 5 ms only: so this thread flushes by itself.
        """
        outgoing = self.outgoing
        if (
            time.monotonic() - self._flushed_at >= FLUSH_S
            or outgoing.count >= FLUSH_COUNT
            or outgoing.nbytes >= FLUSH_NBYTES
        ):
            self.flush()
        elif not self._flush_armed:
            self._flush_armed = True
            with suppress(RuntimeError):  # The loop is closed: so is this connection, or it will be.
                self.loop.call_soon_threadsafe(self._flush_in_loop)

    def expect_lone_task(self) -> None:
        """Who waits for each result has nothing to send along with the next task: send that at once."""
        self._flushed_at = 0.0

    def _flush_in_loop(self) -> None:
        self._flush_armed = False
        self.flush()


def _receive(receive: Receive | None, ok: bool, value: object) -> tuple[bool, object]:
    if receive is None or not ok:
        return ok, value
    try:
        return True, receive(value)
    except ShunterError as error:  # It is for whoever asked; the loop goes on.
        return False, error


def _unwrap(ok: bool, value: object, refused: type[Exception]) -> Any:
    if ok:
        return value
    if isinstance(value, Exception):
        raise type(value)(*value.args)
    raise refused(str(value))


def cut_keys(keys: Sequence[str]) -> Iterator[list[str]]:
    """Cut keys so that each part fits into a header, with as much again for each key."""
    part: list[str] = []
    size = 0
    for key in keys:
        part.append(key)
        size += json_size(key) + 4
        if len(part) >= KEYS_MAX or size > 400_000:
            yield part
            part = []
            size = 0
    if part:
        yield part
