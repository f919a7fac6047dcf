"""Datasets: futures and plain data under a name, for other clients and for later.

The scheduler keeps the keys, and a text that it does not look into: the pickle of what was published, compressed and in
base64, with references where the futures were. Another client gets both and puts futures of its own into their places.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from shunter.client.connection import Connection
from shunter.client.futures import Future
from shunter.client.giving_up import GivingUp
from shunter.client.options import check_key
from shunter.client.outgoing import json_size
from shunter.client.table import Entry, FutureTable
from shunter.errors import PeerError, UsageError
from shunter.serialize import dump_call, load_call
from shunter.wire import messages
from shunter.wire.frames import HEADER_MAX

__all__ = ["Datasets", "Received"]

#: Bytes that the keys may take: so that a header has room for them, for the data and for a name.
KEYS_NBYTES_MAX: Final = HEADER_MAX - messages.DATASET_DATA_MAX - 8192


class Received(NamedTuple):
    """A dataset as it came. ``futures``: of this client, by key; nothing else holds them yet."""

    futures: dict[str, Future[Any]]
    data: str


class Datasets:
    """What `Client.publish` and `Client.get_dataset` need, but for the waiting.

    Args:
        connection: where it is told that keys are wanted.
        table: gets the entries of datasets.
        giving_up: tells of dropped futures, and puts fences.
        owner: whom the futures belong to that are published.
        make_future: wraps an entry, and takes over one count of it.
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

    def publication(self, name: str, value: object, *, replace: bool) -> Callable[[int], messages.Publish]:
        """The request that publishes a value, by its number.

        Raises:
            UsageError: the name does not fit, a part of the value cannot be pickled, or all of it is too large.
        """
        check_name(name)
        pickled, keys = dump_call((value,), {}, name=f"publish({name!r})", owner=self._owner)
        if sum(map(json_size, keys)) + 3 * len(keys) > KEYS_NBYTES_MAX:
            raise UsageError(
                f"dataset {name!r} has {len(keys):,} futures: more than a message of 1 MiB can name. Publish it in "
                "parts, or one future of a task that puts them together"
            )
        # The references are much alike: of ten thousand futures a third of a megabyte becomes some 40 kB.
        data = base64.b64encode(zlib.compress(pickled)).decode("ascii")
        if len(data) > messages.DATASET_DATA_MAX:
            raise UsageError(
                f"dataset {name!r} takes {len(data):,} bytes as text; {messages.DATASET_DATA_MAX:,} are allowed. Put "
                "large data on the workers first: future = client.scatter(data), and publish the future"
            )
        return lambda number: messages.Publish(number, name, keys, data, replace)

    def removal(self, name: str) -> Callable[[int], messages.Unpublish]:
        """The request that lets a dataset go, by its number."""
        check_name(name)
        return lambda number: messages.Unpublish(number, name)

    def request(self, name: str) -> Callable[[int], messages.GetDataset]:
        """The request for a dataset, by its number. Its answer is for `receive`."""
        check_name(name)
        self._table.keys_may_return = True
        return lambda number: messages.GetDataset(number, name)

    def receive(self, value: object) -> Received:
        """Take the answer in. In the loop, before the reports behind it, which are about its keys.

        The scheduler has this client down as wanting the keys. If nobody waits for the answer any more, the futures
        die with it, and the keys are released like any others.
        """
        keys, data = _parse(value)
        with self._connection.lock:
            self._connection.check_usable()
            self._giving_up.drain()
            adopted = [self._table.adopt(key) for key in keys]
            # They may have been released after the request was sent, which was heard after it: so that the interest
            # is gone again. Said once more it changes nothing.
            fresh = [entry.key for entry, is_fresh in adopted if is_fresh]
            self._connection.say_keys(messages.Desire, fresh)
            self._giving_up.put_fence()
            self._connection.flush()
            return Received({entry.key: self._make_future(entry) for entry, _ in adopted}, data)

    def load(self, name: str, received: Received) -> Any:
        """Put a dataset together again.

        Raises:
            UsageError: something in it cannot be unpickled here; then its futures are let go.
        """
        try:
            pickled = zlib.decompress(base64.b64decode(received.data, validate=True))
            (value,), _ = load_call(pickled, received.futures)
        except Exception as error:
            received.futures.clear()  # The frames of the error would hold them.
            raise UsageError(
                f"dataset {name!r} cannot be unpickled in this process: {type(error).__name__}: {error}"
            ) from error
        return value


def check_name(name: object) -> str:
    """A dataset's name: a text of limited length. Raises UsageError."""
    name = check_key(name, "the name of a dataset")
    if len(name) > messages.DATASET_NAME_MAX:
        raise UsageError(
            f"the name of a dataset has {len(name):,} characters; {messages.DATASET_NAME_MAX} are allowed"
        )
    return name


def _parse(value: object) -> tuple[list[str], str]:
    if isinstance(value, dict):
        keys, data = value.get("keys"), value.get("data")
        if isinstance(keys, list) and all(isinstance(key, str) for key in keys) and isinstance(data, str):
            return keys, data
    raise PeerError(f"the scheduler answered with no dataset: {value!r:.100}")
