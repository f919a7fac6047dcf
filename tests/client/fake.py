"""A false scheduler for clients: real links, no state. It can run tasks by itself, at once and in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from shunter import serialize
from shunter.client.threads import LoopThread
from shunter.wire import link as wire_link
from shunter.wire import messages as m

TIMEOUT = 30.0
TOKEN = "5ec3e7"

M = TypeVar("M")


class FakeScheduler:
    """Serves clients on a port of its own until it is closed.

    Attributes:
        runs_tasks: whether tasks that are submitted are run and reported at once.
        inline_max: results up to this size go along with the report.
        said: every message of clients, in order, but for heartbeats and for queries that `answers` has.
        answers: by the name of a query; called with its arguments.
        results: pickled results by key, of tasks it has run.
        held: what `who_has` says of a key: status, bytes, holders.
        late: said just before the next release or cancellation is heard.
        reactions: by the class of a message; called with it, for messages to answer.
    """

    def __init__(self, *, runs_tasks: bool = True, inline_max: int = 1 << 40) -> None:
        self.runs_tasks = runs_tasks
        self.inline_max = inline_max
        self.said: list[Any] = []
        self.functions: dict[int, bytes] = {}
        self.function_count = 0
        self.results: dict[str, bytes] = {}
        self.failures: dict[str, m.Failure] = {}
        self.held: dict[str, tuple[str, int, list[tuple[int, str]]]] = {}
        self.values: dict[str, object] = {}
        self.answers: dict[str, Callable[[dict[str, object]], object]] = {
            "who_has": self._who_has,
            "interest": self._interest,
            "workers": lambda arguments: [],
            "status": lambda arguments: {"tasks": 0},
            "story": lambda arguments: [f"the story of {arguments['key']}"],
            "why": lambda arguments: f"because of {arguments['key']}",
        }
        self.relays: Callable[[m.Relay], m.Relayed] | None = None
        self.late: list[Any] = []
        self.reactions: dict[type, Callable[[Any], list[Any]]] = {}
        self.batches = 0
        self._graphs: dict[int, list[m.GraphPart]] = {}
        self._news = threading.Condition()
        self._links: list[wire_link.Link] = []
        self._thread = LoopThread("fake-scheduler")
        self._listener = self._thread.run(self._serve())
        self.address = self._listener.address
        self.token = TOKEN

    async def _serve(self) -> wire_link.Listener:
        return await wire_link.serve("127.0.0.1", 0, TOKEN, self._accept)

    def _accept(
        self, link: wire_link.Link, role: str, details: dict[str, object]
    ) -> tuple[int, dict[str, object]]:
        link.owner = self
        self._links.append(link)
        return len(self._links), {"clock": 0.0, "name": details["name"] or f"client-{len(self._links)}"}

    def __enter__(self) -> FakeScheduler:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._thread.run(self._close())
        self._thread.stop()

    async def _close(self) -> None:
        self._listener.close()
        for link in self._links:
            link.abort("closed")
        await asyncio.sleep(0)
        await self._listener.wait_closed()

    # -------------------------------------------------------------------------------- for tests

    def tell(self, *messages: Any) -> None:
        """Say something to the client that came last."""
        self._thread.loop.call_soon_threadsafe(self._links[-1].send, [each.frame() for each in messages])

    def cut_off(self, reason: str = "") -> None:
        """End the connection: politely if there is a reason."""
        link = self._links[-1]
        self._thread.loop.call_soon_threadsafe(*((link.close, reason) if reason else (link.abort, "cut")))

    def wait_for(self, kind: type[M], n: int = 1) -> list[M]:
        """The messages of one kind, once there are ``n``."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.of(kind)) >= n, TIMEOUT), self.said
            return self.of(kind)

    def of(self, kind: type[M]) -> list[M]:
        return [each for each in self.said if isinstance(each, kind)]

    def wait_until_gone(self) -> None:
        """Until the last client has disconnected."""
        with self._news:
            assert self._news.wait_for(lambda: self._links[-1].closed, TIMEOUT)

    def submitted(self) -> list[str]:
        return [key for each in self.of(m.Submit) for key in each.keys]

    def call(self, key: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Function and arguments of a task that was submitted."""
        for each in self.of(m.Submit) + self.of(m.GraphPart):
            if key in each.keys:
                at = each.keys.index(key)
                inputs = {k: f"<{k}>" for k in each.inputs[at] or ()}
                fn = serialize.load_function(self.functions[each.functions[at]])
                return (fn, *serialize.load_call(each.blobs[at], inputs))
        raise KeyError(key)

    # -------------------------------------------------------------------------------- the link's owner

    def on_message(self, link: wire_link.Link, header: list[object], body: bytes) -> None:
        message = m.from_client(header, body)
        answer: list[Any] = []
        if isinstance(message, m.Functions):
            self.functions.update(zip(message.numbers, message.blobs))
            self.function_count += len(message.blobs)
        if isinstance(message, m.Query) and message.name in self.answers:
            try:
                answer = [m.Reply(message.request, True, self.answers[message.name](message.arguments))]
            except Exception as error:
                answer = [m.Reply(message.request, False, str(error))]
        elif isinstance(message, m.Heartbeat):
            answer = [message]
        elif isinstance(message, m.Relay) and self.relays is not None:
            answer = [self.relays(message)]
        elif isinstance(message, (m.Release, m.Cancel)):
            answer = self.late
        if type(message) in self.reactions:
            answer = self.reactions[type(message)](message)
        if self.runs_tasks:
            answer = answer + self._run(message)
        with self._news:
            if not isinstance(message, m.Heartbeat) and not (answer and isinstance(message, m.Query)):
                self.said.append(message)
            self._news.notify_all()
        link.send([each.frame() for each in answer])

    def on_batch(self, link: wire_link.Link) -> None:
        self.batches += 1

    def on_closed(self, link: wire_link.Link, reason: str) -> None:
        with self._news:
            self._news.notify_all()

    # -------------------------------------------------------------------------------- running tasks

    def _run(self, message: Any) -> list[Any]:
        answers: list[Any] = []
        if isinstance(message, m.Submit):
            for at, key in enumerate(message.keys):
                answers += self._execute(
                    key, message.functions[at], message.inputs[at], message.blobs[at], True
                )
        elif isinstance(message, m.GraphBegin):
            self._graphs[message.graph] = []
        elif isinstance(message, m.GraphPart):
            self._graphs[message.graph].append(message)
        elif isinstance(message, m.GraphAbort):
            del self._graphs[message.graph]
        elif isinstance(message, m.GraphCommit):
            answers = self._run_graph(self._graphs.pop(message.graph), message.wanted)
        elif isinstance(message, m.Scattered):
            for key, nbytes, workers in zip(message.keys, message.nbytes, message.workers):
                self.held[key] = (
                    "memory",
                    nbytes,
                    [(number, f"tcp://worker:{number}") for number in workers],
                )
            answers = [m.ClientFinished(message.keys, message.nbytes, [None] * len(message.keys))]
        return answers

    def _run_graph(self, parts: list[m.GraphPart], wanted: list[str] | None) -> list[Any]:
        rows = {
            key: (part.functions[at], part.inputs[at], part.blobs[at])
            for part in parts
            for at, key in enumerate(part.keys)
        }
        answers: list[Any] = []
        left = list(rows)
        while left:
            for key in left:
                if not any(each in left for each in rows[key][1] or ()):
                    answers += self._execute(key, *rows[key], wanted is None or key in wanted)
                    left.remove(key)
                    break
            else:
                raise AssertionError(f"cannot run {left}")
        return answers

    def _execute(
        self, key: str, function: int, inputs: list[str] | None, blob: bytes, tell: bool
    ) -> list[Any]:
        failure = next((self.failures[each] for each in inputs or () if each in self.failures), None)
        if failure is None:
            try:
                fn = serialize.load_function(self.functions[function])
                args, kwargs = serialize.load_call(blob, self.values)
                self.values[key] = value = fn(*args, **kwargs)
                (data,) = serialize.dump_value(value, inline_max=1 << 40)
                self.results[key] = bytes(data)
                inline = bytes(data) if len(data) <= self.inline_max else None
                return [m.ClientFinished([key], [len(data)], [inline])] if tell else []
            except Exception as error:
                dumped = serialize.dump_exception(error)
                failure = m.Failure(
                    "exception", key, dumped.text, dumped.traceback, dumped.types, {}, dumped.data
                )
        self.failures[key] = failure
        return [m.Erred([key], [0], [failure])] if tell else []

    def _interest(self, arguments: dict[str, object]) -> object:
        """What was submitted and has no end yet is on its way."""
        rows = self.answers["who_has"](arguments)
        assert isinstance(rows, list)
        on_their_way = set(self.submitted())
        return [
            [key, "queued", -1] if status == "unknown" and key in on_their_way else [key, status, nbytes]
            for key, status, nbytes, *_ in rows
        ]

    def _who_has(self, arguments: dict[str, object]) -> object:
        keys = arguments["keys"]
        assert isinstance(keys, list)
        return [[key, *self._held(key)] for key in keys]

    def _held(self, key: str) -> tuple[object, ...]:
        if key in self.held:
            status, nbytes, holders = self.held[key]
            return status, nbytes, [list(each) for each in holders]
        if key in self.results:
            return "memory", len(self.results[key]), []
        return "unknown", 0, []
