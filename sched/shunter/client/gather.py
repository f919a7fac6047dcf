"""Fetching results, from the workers that hold them or, where they cannot be reached, through the scheduler."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from shunter.client.connection import Connection, cut_keys
from shunter.client.waiting import Deadline
from shunter.errors import ConnectionLost, LostInput, PeerError, UsageError
from shunter.types import Buffer
from shunter.wire.bulk import DataPool, PeerBusy

__all__ = ["Fetcher", "Holding", "Transfer", "locate", "plan"]

#: The scheduler is asked about so many keys at a time.
ASKED_MAX: Final = 500
#: One transfer carries at most so many keys, and about so many bytes.
KEYS_MAX: Final = 1000
NBYTES_MAX: Final = 64 * 1024 * 1024
#: The same through the scheduler.
RELAY_MAX: Final = 8 * 1024 * 1024
#: Transfers at a time.
THREADS: Final = 8
#: A worker that could not be reached directly is not tried again for so long, seconds.
SHUN_S: Final = 30.0


class Holding(NamedTuple):
    """Where a value is, as the scheduler sees it. ``holders``: (number, address) of workers."""

    key: str
    status: str
    nbytes: int
    holders: list[tuple[int, str]]


class Transfer(NamedTuple):
    """One request to one worker; ``direct`` or through the scheduler."""

    worker: int
    address: str
    direct: bool
    keys: list[str]


def plan(holdings: Sequence[Holding], shunned: frozenset[str] | set[str] = frozenset()) -> list[Transfer]:
    """Choose a holder for each value, so that each worker has about as much to send, and cut into transfers.

    Args:
        holdings: where the values are.
        shunned: addresses that cannot be reached from here.
    """
    load: dict[int, int] = {}
    chosen: dict[tuple[int, str, bool], list[Holding]] = {}
    for holding in holdings:
        direct = [each for each in holding.holders if each[1] not in shunned]
        candidates = direct or holding.holders
        if not candidates:
            continue
        worker, address = min(candidates, key=lambda each: load.get(each[0], 0))
        load[worker] = load.get(worker, 0) + holding.nbytes + 1024
        chosen.setdefault((worker, address, bool(direct)), []).append(holding)
    transfers = []
    for (worker, address, is_direct), group in chosen.items():
        nbytes_max = NBYTES_MAX if is_direct else RELAY_MAX
        keys: list[str] = []
        nbytes = 0
        for holding in group:
            if keys and (len(keys) >= KEYS_MAX or nbytes + holding.nbytes > nbytes_max):
                transfers.append(Transfer(worker, address, is_direct, keys))
                keys = []
                nbytes = 0
            keys.append(holding.key)
            nbytes += holding.nbytes
        transfers.append(Transfer(worker, address, is_direct, keys))
    return transfers


def locate(connection: Connection, keys: Sequence[str], deadline: Deadline) -> list[Holding]:
    """Ask the scheduler where values are. Blocking."""
    holdings = []
    waiting = [part for each in cut_keys(keys) for part in _slices(each, ASKED_MAX)]
    waiting.reverse()
    while waiting:
        part = waiting.pop()
        try:
            rows = connection.ask("who_has", {"keys": part}, deadline)
        except UsageError:
            if len(part) == 1:
                raise
            waiting += [part[len(part) // 2 :], part[: len(part) // 2]]  # Too many holders for one answer.
            continue
        for key, status, nbytes, holders in rows:
            holdings.append(Holding(key, status, nbytes, [(number, address) for number, address in holders]))
    return holdings


def _slices(keys: list[str], n: int) -> list[list[str]]:
    return [keys[start : start + n] for start in range(0, len(keys), n)]


class Fetcher:
    """Fetches values, of a client's tasks. Blocking, from any thread but the loop's."""

    def __init__(self, connection: Connection, get_pool: Callable[[], DataPool]) -> None:
        self._connection = connection
        self._get_pool = get_pool
        self._shunned: dict[str, float] = {}
        self._threads: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Give up what is under way."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    def fetch(self, keys: Sequence[str], deadline: Deadline) -> dict[str, list[Buffer]]:
        """Fetch values that the scheduler has reported as finished.

        Returns:
            The parts of each value. Keys are missing whose task has failed meanwhile: their entry will tell.

        Raises:
            concurrent.futures.TimeoutError, ConnectionLost; LostInput: the scheduler knows a key no longer.
        """
        self._connection.check_may_block()
        found: dict[str, list[Buffer]] = {}
        missing = list(keys)
        pause = 0.005
        problem = ""
        while missing:
            holdings = self._locate(missing, deadline)
            missing = [each.key for each in holdings if each.status != "erred"]
            for values, text in self._run(plan(holdings, self._shunned_now()), deadline):
                found.update(values)
                problem = text or problem
            missing = [key for key in missing if key not in found]
            if missing:
                self._pause(pause, missing, problem, deadline)
                pause = min(pause * 2, 1.0)
        return found

    def _locate(self, keys: Sequence[str], deadline: Deadline) -> list[Holding]:
        holdings = locate(self._connection, keys, deadline)
        if any(holding.status == "unknown" for holding in holdings):
            # An answer may come just before the reports of the same batch (of a restart, a cancellation by force).
            # A second one comes behind them, so that the entry tells what became of the key, if anything did.
            holdings = locate(self._connection, keys, deadline)
        for holding in holdings:
            if holding.status == "unknown":
                raise LostInput(
                    f"{holding.key!r} is gone: the scheduler does not know it any more; submit it again"
                )
        return holdings

    def _run(
        self, transfers: Sequence[Transfer], deadline: Deadline
    ) -> list[tuple[dict[str, list[Buffer]], str]]:
        if len(transfers) <= 1:
            return [self._transfer(each, deadline) for each in transfers]
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="shunter-fetch")
        return list(self._threads.map(lambda each: self._transfer(each, deadline), transfers))

    def _transfer(self, transfer: Transfer, deadline: Deadline) -> tuple[dict[str, list[Buffer]], str]:
        """What came of one transfer, and what went wrong with it. What is missing is located again."""
        try:
            if transfer.direct:
                values, missing = self._get_pool().get(transfer.address, transfer.keys)
                return values, f"{transfer.address} does not hold it" if missing else ""
            return self._connection.relay(transfer.worker, transfer.keys, deadline), ""
        except PeerBusy:
            return {}, f"{transfer.address} is busy"
        except (ConnectionLost, PeerError) as error:
            self._connection.check_usable()
            if transfer.direct:
                self._shunned[transfer.address] = time.monotonic() + SHUN_S
            return {}, f"{type(error).__name__}: {error}"

    def _shunned_now(self) -> set[str]:
        now = time.monotonic()
        for address in [address for address, until in list(self._shunned.items()) if until <= now]:
            self._shunned.pop(address, None)
        return set(self._shunned)

    def _pause(self, seconds: float, missing: Sequence[str], problem: str, deadline: Deadline) -> None:
        remaining = deadline.remaining()
        if remaining is not None and remaining <= seconds:
            why = f" ({problem})" if problem else ""
            raise deadline.error(
                f"{len(missing):,} results, such as {missing[0]!r}, could not be fetched{why}"
            )
        time.sleep(seconds)
