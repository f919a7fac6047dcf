"""Submitting: calls become columns here, and entries of the table, in the calling thread."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from shunter.client.connection import Connection
from shunter.client.functions import Function
from shunter.client.futures import Future
from shunter.client.giving_up import GivingUp
from shunter.client.graphs import Call
from shunter.client.outgoing import Columns, json_size
from shunter.client.table import Entry, FutureTable
from shunter.errors import ShunterError, UsageError
from shunter.serialize import digest, dump_call
from shunter.wire import messages

__all__ = ["Submitting"]

#: Largest pickle of one task's arguments.
ARGUMENTS_MAX: Final = 32 * 1024 * 1024
#: A map is cut into messages of so many tasks, or about so many bytes.
SLICE: Final = 1000
SLICE_NBYTES: Final = 256 * 1024
#: More inputs than this may be too many for one message.
INPUTS_SOFT: Final = 2000
#: The names of a graph's wanted keys may take so many bytes of a header.
WANTED_MAX: Final = 500_000


class Submitting:
    """Submits tasks over a connection.

    Args:
        connection: where they are sent.
        table: gets their entries.
        giving_up: tells of dropped futures before their keys are used again.
        owner: whom futures must belong to that are arguments.
        make_future: wraps an entry, and takes over one count of it.

    Attributes:
        get_parent: gives the key of the running task, in a client that belongs to a worker.
    """

    def __init__(
        self,
        connection: Connection,
        table: FutureTable,
        giving_up: GivingUp,
        *,
        owner: object,
        make_future: Callable[[Entry], Future[Any]],
    ) -> None:
        self._connection = connection
        self._table = table
        self._giving_up = giving_up
        self._owner = owner
        self._make_future = make_future
        self._prefix = secrets.token_hex(5)
        self._counter = itertools.count(1)
        self.get_parent: Callable[[], str | None] = lambda: None

    def function(self, fn: Callable[..., object]) -> Function:
        """The function as this connection knows it; pickled the first time.

        Raises:
            UsageError: it cannot be pickled.
        """
        function = self._connection.functions.find(fn)
        if function is None:
            blob = self._connection.functions.dump(fn)
            with self._connection.lock:
                function = self._connection.functions.add(fn, blob)
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
        self._connection.check_usable()
        function = self.function(fn)
        restarts = self._table.restarts
        data, inputs = self._dump_call(function, args, kwargs)
        unique = key is None and not pure
        if key is None:
            key = self.new_key(function.name) if unique else _pure_key(function, data)
        if options is not None or len(inputs) > INPUTS_SOFT:  # Only these can be too large for a header.
            columns = Columns()
            columns.add(key, function.number, inputs, options, data)
            columns.check()
        with self._connection.lock:
            self._connection.check_usable()
            if inputs and self._table.restarts != restarts:  # They are void, and so is what needs them.
                return self._make_future(self._table.make_void(key))
            entry = None if unique else self._find_live(key)
            if entry is None:
                entry = self._table.add(key, unique=unique)
                self._connection.outgoing.submit_one(
                    key, function.number, inputs, options, data, self.get_parent()
                )
                self._connection.flush_soon()
        return self._make_future(entry)

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
        self._connection.check_usable()
        function = self.function(fn)
        unique = keys is None and not pure
        futures: list[Future[Any]] = []
        rows: list[tuple[str, list[str], bytes]] = []
        size = 0
        restarts = self._table.restarts
        for args in calls:
            data, inputs = self._dump_call(function, args, kwargs)
            if keys is not None:
                key = next(keys)
            else:
                key = self.new_key(function.name) if unique else _pure_key(function, data)
            rows.append((key, inputs, data))
            size += len(data) + len(key) + sum(map(len, inputs))
            if len(rows) >= SLICE or size >= SLICE_NBYTES:
                self._submit_rows(function, rows, unique, options, futures, restarts)
                rows = []
                size = 0
                restarts = self._table.restarts
        if rows:
            self._submit_rows(function, rows, unique, options, futures, restarts)
        return futures

    def _submit_rows(
        self,
        function: Function,
        rows: list[tuple[str, list[str], bytes]],
        unique: bool,
        options: messages.TaskOptions | None,
        futures: list[Future[Any]],
        restarts: int,
    ) -> None:
        columns = Columns()
        number = function.number
        for key, inputs, data in rows:
            columns.add(key, number, inputs, options, data)
        columns.check()
        with self._connection.lock:
            self._connection.check_usable()
            are_inputs_void = self._table.restarts != restarts
            if unique and not are_inputs_void:
                futures += [self._make_future(self._table.add(key, unique=True)) for key in columns.keys]
            else:
                columns = Columns()
                for key, inputs, data in rows:
                    if are_inputs_void and inputs:
                        futures.append(self._make_future(self._table.make_void(key)))
                        continue
                    entry = None if unique else self._find_live(key)
                    if entry is None:
                        entry = self._table.add(key, unique=unique)
                        columns.add(key, number, inputs, options, data)
                    futures.append(self._make_future(entry))
            if len(columns):
                self._connection.outgoing.submit(columns, self.get_parent())
                self._connection.flush()

    def submit_graph(self, calls: Iterable[Call], wanted: Sequence[str]) -> dict[str, Future[Any]]:
        """Submit a graph, in parts while it is being pickled; as a whole or not at all.

        Returns:
            A future for each wanted key.
        """
        self._connection.check_usable()
        with self._connection.lock:
            restarts = self._table.restarts
            graph = self._connection.outgoing.new_graph()
            self._connection.outgoing.say(messages.GraphBegin(graph, False, self.get_parent()))
        keys: list[str] = []
        columns = Columns()
        try:
            for call in calls:
                if self._table.restarts != restarts:
                    break
                function = self.function(call.fn)
                _check_arguments(function.name, call.data)
                columns.add(call.key, function.number, call.inputs, call.options, call.data)
                keys.append(call.key)
                if columns.full:
                    self._say_part(graph, columns)
                    columns = Columns()
            if len(columns):
                self._say_part(graph, columns)
        except BaseException as error:
            # After a restart nothing can refer to the futures of before; but then the graph is void as well.
            if not isinstance(error, ShunterError) or self._table.restarts == restarts:
                self._abort(graph)
                raise
        return self._commit(graph, keys, wanted, restarts)

    def _abort(self, graph: int) -> None:
        with self._connection.lock:
            self._connection.outgoing.say(messages.GraphAbort(graph))
            self._connection.flush_soon()

    def _commit(
        self, graph: int, keys: Sequence[str], wanted: Sequence[str], restarts: int
    ) -> dict[str, Future[Any]]:
        futures: dict[str, Future[Any]] = {}
        connection = self._connection
        with connection.lock:
            connection.check_usable()
            self._giving_up.drain()
            if self._table.restarts != restarts:  # It was begun before: void, like all that is older.
                self._abort(graph)
                return {key: self._make_future(self._table.make_void(key)) for key in wanted}
            for key in wanted:
                if key not in futures:
                    entry = self._find_live(key)
                    futures[key] = self._make_future(self._table.add(key) if entry is None else entry)
            names = list(futures)
            if len(names) == len(keys):
                connection.outgoing.say(messages.GraphCommit(graph, None))
            elif sum(map(json_size, names)) + 3 * len(names) <= WANTED_MAX:
                connection.outgoing.say(messages.GraphCommit(graph, names))
            else:  # The names do not fit into a header: want everything, and release the rest.
                connection.outgoing.say(messages.GraphCommit(graph, None))
                self._giving_up.drop([self._table.add(key) for key in keys if self._table.find(key) is None])
            connection.flush()
        return futures

    def _say_part(self, graph: int, columns: Columns) -> None:
        columns.check()
        with self._connection.lock:
            self._connection.check_usable()
            self._connection.outgoing.say(
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
            self._connection.flush()

    def _find_live(self, key: str) -> Entry | None:
        """Share the live entry of a key; drops are told first, so that what is gone is not found."""
        if self._giving_up.has_dropped:
            self._giving_up.drain()
        entry = self._table.find(key)
        if entry is not None:
            entry.count += 1
        return entry

    def _dump_call(
        self, function: Function, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> tuple[bytes, list[str]]:
        data, inputs = dump_call(args, kwargs, name=function.name, owner=self._owner)
        if len(data) > ARGUMENTS_MAX:
            _check_arguments(function.name, data)
        return data, inputs


def _pure_key(function: Function, data: bytes) -> str:
    return f"{function.name}-{digest(function.digest.encode() + data)}"


def _check_arguments(name: str, data: bytes) -> None:
    if len(data) > ARGUMENTS_MAX:
        raise UsageError(
            f"the arguments of {name!r} take {len(data):,} bytes as a pickle; {ARGUMENTS_MAX:,} are allowed. Put large "
            "data on the workers first: future = client.scatter(data), and pass the future"
        )
