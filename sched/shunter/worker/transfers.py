"""Values on their way: threads that fetch from peers, and the data port that serves peers and clients.

The machine bounds how many fetches run, and each is with another peer; a thread is started when all others are
busy. Values are unpickled here when they come, and pickled here each time they are asked for.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, final

from shunter import serialize
from shunter.errors import ConnectionLost, PeerError, UsageError
from shunter.types import Buffer
from shunter.wire.bulk import DataPool, DataServer, PeerBusy
from shunter.worker.events import DataPut, Event, FetchBusy, FetchDone, FetchFailed
from shunter.worker.store import Store, sizeof
from shunter.worker.unsendable import Unsendable

__all__ = ["FetchThreads", "ValuePort"]

logger = logging.getLogger("shunter.worker")


class _Order(NamedTuple):
    fetch: int
    address: str
    keys: list[str]


@final
class FetchThreads:
    """Fetches values from peers.

    Args:
        token: the cluster's token.
        hand_back: gets one event for each fetch, on its thread.
    """

    def __init__(self, token: str, hand_back: Callable[[Event], None]) -> None:
        self._hand_back = hand_back
        self._pool = DataPool(token)
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._threads = 0
        self._open = 0  # Orders that were not handed back. Only the loop counts up; see `settle`.

    def fetch(self, fetch: int, address: str, keys: list[str]) -> None:
        """Fetch keys from a peer. Called by the loop only."""
        self._open += 1
        if self._open > self._threads:
            self._threads += 1
            name = f"shunter-fetch-{self._threads}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._orders.put(_Order(fetch, address, keys))

    def settle(self) -> None:
        """The loop has received the end of a fetch."""
        self._open -= 1

    def close_idle(self) -> None:
        """Close connections that were not used for a while."""
        self._pool.close_idle()

    def close(self) -> None:
        """Break all fetches off."""
        for _ in range(self._threads):
            self._orders.put(None)
        self._pool.close()

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            self._hand_back(self._fetch(order))

    def _fetch(self, order: _Order) -> Event:
        try:
            found, missing = self._pool.get(order.address, order.keys)
            return _unpickle(order.fetch, found, missing)
        except PeerBusy:
            return FetchBusy(order.fetch)
        except (ConnectionLost, PeerError) as error:
            logger.info("fetching %d values failed: %s", len(order.keys), error)
            return FetchFailed(order.fetch, str(error))
        except BaseException as error:  # Out of memory, for one. The machine must hear of it in any case.
            logger.exception("fetching %d values from %s failed", len(order.keys), order.address)
            return FetchFailed(order.fetch, repr(error))


def _unpickle(fetch: int, found: dict[str, list[Buffer]], missing: list[str]) -> FetchDone:
    done = FetchDone(fetch, [], [], [], missing, {})
    for key, parts in found.items():
        try:
            value = serialize.load_value(parts)
        except UsageError as error:  # What an `Unsendable` raises.
            done.failed[key] = str(error)
        except Exception as error:
            done.failed[key] = f"cannot be unpickled on the worker that needs it: {_reason(error)}"
        else:
            done.keys.append(key)
            done.values.append(value)
            done.nbytes.append(sizeof(value))
    return done


@final
class ValuePort:
    """The data port: peers and clients get values from the store and put values into it.

    Args:
        host: where to listen.
        port: 0 lets the system choose.
        token: the cluster's token.
        store: the values.
        hand_back: gets an event for what was put, on the connection's thread.

    Raises:
        OSError: the port is in use, or the host is not here.
    """

    def __init__(
        self, host: str, port: int, token: str, store: Store, hand_back: Callable[[Event], None]
    ) -> None:
        self._store = store
        self._hand_back = hand_back
        self._server = DataServer(host, port, token, get=self._get, put=self._put)

    @property
    def address(self) -> str:
        """``tcp://host:port`` by which others reach it."""
        return self._server.address

    def start(self) -> None:
        """Start to serve."""
        self._server.start()

    def close(self) -> None:
        """Break all connections. Blocks for a few seconds at most."""
        self._server.close()

    def _get(self, keys: list[str]) -> tuple[dict[str, list[Buffer]], list[str]]:
        found: dict[str, list[Buffer]] = {}
        missing: list[str] = []
        for key in dict.fromkeys(keys):
            entry = self._store.find(key)
            if entry is None:
                missing.append(key)
            else:
                found[key] = _pickle(key, entry.value)
        return found, missing

    def _put(self, values: dict[str, list[Buffer]]) -> list[int]:
        loaded: list[object] = []
        for key, parts in values.items():
            loaded.append(_load_put(key, parts))
        nbytes = [sizeof(value) for value in loaded]
        keys = list(values)
        self._store.keep(keys, loaded, nbytes)  # At once: who put it may ask for it the next moment.
        self._hand_back(DataPut(keys, nbytes, loaded))
        return nbytes


def _pickle(key: str, value: object) -> list[Buffer]:
    try:
        return serialize.dump_value(value)
    except Exception as error:
        text = f"the value of {key!r} cannot be pickled, so it cannot leave its worker: {_reason(error)}"
        return serialize.dump_value(Unsendable(text))


def _load_put(key: str, parts: Sequence[Buffer]) -> object:
    try:
        return serialize.load_value(parts)
    except Exception as error:
        raise UsageError(f"{key!r} cannot be unpickled on the worker: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # A user's __str__.
        return type(error).__name__
