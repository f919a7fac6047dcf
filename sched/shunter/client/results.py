"""Results: waiting for entries, fetching what is elsewhere, unpickling in the thread that waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from shunter.client.connection import Connection
from shunter.client.failures import exception_of
from shunter.client.gather import Fetcher
from shunter.client.table import CANCELLED, ERROR, FINISHED, PENDING, Entry, FutureTable, Watcher
from shunter.client.waiting import Deadline, wait_all, wait_all_async, wait_one
from shunter.errors import LostInput, UsageError
from shunter.serialize import load_value
from shunter.types import Buffer

__all__ = ["Results"]

#: Results up to this size (as a pickle) are kept once they were unpickled.
KEEP_MAX: Final = 1024 * 1024


class Results:
    """Waits for entries of the table and gives their results."""

    def __init__(self, connection: Connection, table: FutureTable, fetcher: Fetcher) -> None:
        self._connection = connection
        self._table = table
        self._fetcher = fetcher

    def watch(self, entry: Entry, watcher: Watcher) -> bool:
        """`FutureTable.watch`, having sent what is queued: somebody waits."""
        if entry.status != PENDING:
            return False
        self._connection.flush()
        return self._table.watch(entry, watcher)

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
                self._connection.flush()
                await wait_all_async(self._table, [entry], fail_fast=False)
            if entry.status in (ERROR, CANCELLED) or entry.is_here:
                return self.result(entry, Deadline(0))
            loop = asyncio.get_running_loop()
            values = await loop.run_in_executor(None, self._fetch, [entry], Deadline(None))
            if entry in values:
                return values[entry]

    async def results_async(self, entries: Sequence[Entry], *, skip: bool) -> dict[Entry, Any]:
        """`results` in any loop."""
        self._connection.flush()
        await wait_all_async(self._table, entries, fail_fast=not skip)
        if all(entry.is_here or entry.status in (ERROR, CANCELLED) for entry in entries):
            return self.results(entries, Deadline(0), skip=skip)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, partial(self.results, entries, Deadline(None), skip=skip))

    def confirm(self, entries: Sequence[Entry], deadline: Deadline) -> None:
        """Wait until all have finished. Raises if one did not."""
        self._wait_all(entries, deadline, fail_fast=True)
        _raise_first(entries)

    async def confirm_async(self, entries: Sequence[Entry]) -> None:
        """`confirm` in any loop."""
        self._connection.flush()
        await wait_all_async(self._table, entries, fail_fast=True)
        _raise_first(entries)

    def _wait_one(self, entry: Entry, deadline: Deadline) -> None:
        if entry.is_pending:
            self._connection.check_may_block()
            self._connection.flush()
            wait_one(self._table, entry, deadline)
            self._connection.expect_lone_task()

    def _wait_all(self, entries: Sequence[Entry], deadline: Deadline, *, fail_fast: bool) -> None:
        if any(entry.status == PENDING for entry in entries):
            self._connection.check_may_block()
            self._connection.flush()
            wait_all(self._table, entries, deadline, fail_fast=fail_fast)

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
            with self._connection.lock:
                if entry.has_value:
                    return entry.value  # Another thread was faster.
                entry.value = value
                entry.has_value = True
                entry.data = None
        return value

    def _fetch(self, entries: Sequence[Entry], deadline: Deadline) -> dict[Entry, Any]:
        by_key = {entry.key: entry for entry in entries}
        try:
            found = self._fetcher.fetch(list(by_key), deadline)
        except LostInput:
            if all(entry.status == FINISHED for entry in entries):
                raise
            return {}  # It was cancelled, or fails again: its entry tells.
        return {by_key[key]: self._keep(by_key[key], parts) for key, parts in found.items()}


def _raise_first(entries: Iterable[Entry]) -> None:
    for entry in entries:
        error = exception_of(entry)
        if error is not None:
            raise error
