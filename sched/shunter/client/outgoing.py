"""Everything this client says, in one order: submissions, releases, cancellations, questions.

One order matters: to drop a key and to submit it again must reach the scheduler in that order. Single submissions
that follow each other are merged into one message, because the scheduler's cost is by message. They are
merged only if none of them has inputs: a message is accepted or refused as a whole, and an input that is gone by
then must not take others with it.

The caller holds the session's lock in all methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from shunter.client.functions import FunctionCache
from shunter.wire.frames import Frame, encode
from shunter.wire.messages import Functions, Submit, TaskOptions

__all__ = ["Columns", "Outgoing", "json_size"]

#: A message is cut at so many tasks, or at about so many bytes of keys and arguments.
TASKS_MAX: Final = 1000
NBYTES_MAX: Final = 512 * 1024
#: A header longer than this (in characters, roughly) is tried before it counts on being sent: 1 MiB is allowed.
HEADER_SOFT: Final = 256 * 1024
#: New functions in one message: body bytes.
BLOBS_MAX: Final = 16 * 1024 * 1024


def json_size(text: str) -> int:
    """At most so many bytes it takes in a header, without the quotes: JSON escapes what is not ASCII."""
    return len(text) if text.isascii() else 12 * len(text)


class _Message(Protocol):
    def frame(self) -> Frame: ...


class Columns:
    """Tasks of one message. ``nbytes``: about how large it will be."""

    __slots__ = ("blobs", "functions", "header", "inputs", "keys", "nbytes", "option_of", "options")

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.functions: list[int] = []
        self.inputs: list[list[str] | None] = []
        self.options: list[TaskOptions] = []
        self.option_of: list[int] = []
        self.blobs: list[bytes] = []
        self.header = 0
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def full(self) -> bool:
        """Another task had better go into another message."""
        return len(self.keys) >= TASKS_MAX or self.nbytes >= NBYTES_MAX or self.header >= HEADER_SOFT

    def check(self) -> None:
        """Make sure, before anything depends on it, that this can be sent.

        Raises:
            UsageError: a task has too many inputs, or too long keys, for a message.
        """
        if self.header >= HEADER_SOFT:
            encode(_submit(0, None, self).frame())

    def add(
        self, key: str, function: int, inputs: Sequence[str], options: TaskOptions | None, blob: bytes
    ) -> None:
        self.keys.append(key)
        self.functions.append(function)
        self.blobs.append(blob)
        header = json_size(key) + 16
        if inputs:
            self.inputs.append(list(inputs))
            header += sum(map(json_size, inputs)) + 3 * len(inputs)
        else:
            self.inputs.append(None)
        # A map shares one object among its tasks: it is enough to look at the last one.
        if options is not None and (not self.options or self.options[-1] is not options):
            self.options.append(options)
            header += len(ascii(options))
        self.option_of.append(-1 if options is None else len(self.options) - 1)
        self.header += header
        self.nbytes += header + len(blob)


class Outgoing:
    """Messages that have not been sent yet.

    Args:
        functions: those that are new are sent ahead of everything else.
    """

    def __init__(self, functions: FunctionCache) -> None:
        self._functions = functions
        self._messages: list[_Message] = []
        self._open: Columns | None = None
        self._open_graph = 0
        self._open_parent: str | None = None
        self._graph_last = 0
        self.count = 0
        self.nbytes = 0

    @property
    def is_empty(self) -> bool:
        """There is nothing to send."""
        return not self._messages and self._open is None

    def new_graph(self) -> int:
        """A number for a graph."""
        self._graph_last += 1
        return self._graph_last

    def say(self, message: _Message, nbytes: int = 0) -> None:
        """Put a message behind all that was said before."""
        self._close()
        self._messages.append(message)
        self.count += 1
        self.nbytes += nbytes

    def submit(self, columns: Columns, parent: str | None) -> None:
        """Put tasks as one graph in running order; all of them are wanted."""
        self.say(_submit(self.new_graph(), parent, columns), columns.nbytes)

    def submit_one(
        self,
        key: str,
        function: int,
        inputs: Sequence[str],
        options: TaskOptions | None,
        blob: bytes,
        parent: str | None,
    ) -> None:
        """Put a single task, merged with its neighbours where that changes nothing."""
        if inputs:
            columns = Columns()
            columns.add(key, function, inputs, options, blob)
            self.submit(columns, parent)
            return
        if self._open is None or self._open.full or self._open_parent != parent:
            self._close()
            self._open = Columns()
            self._open_parent = parent
        before = self._open.nbytes
        self._open.add(key, function, inputs, options, blob)
        self.nbytes += self._open.nbytes - before
        self.count += 1

    def take(self) -> list[Frame]:
        """All that is to be sent now, in order."""
        self._close()
        messages: list[_Message] = list(self._new_functions())
        messages += self._messages
        self._messages = []
        self.count = 0
        self.nbytes = 0
        return [message.frame() for message in messages]

    def _close(self) -> None:
        if self._open is not None:
            self._messages.append(_submit(self.new_graph(), self._open_parent, self._open))
            self._open = None

    def _new_functions(self) -> list[Functions]:
        messages: list[Functions] = []
        room = 0
        for new in self._functions.take_new():
            if not messages or len(new.blob) > room:
                messages.append(Functions([], [], [], []))
                room = BLOBS_MAX
            room -= len(new.blob) + 200
            numbers, digests, names, blobs = messages[-1]
            numbers.append(new.number)
            digests.append(new.digest)
            names.append(new.name)
            blobs.append(new.blob)
        return messages


def _submit(graph: int, parent: str | None, columns: Columns) -> Submit:
    return Submit(
        graph,
        parent,
        columns.keys,
        columns.functions,
        columns.inputs,
        columns.options,
        columns.option_of,
        None,
        columns.blobs,
    )
