"""Putting values on workers, from the client directly."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from shunter.client.waiting import Deadline
from shunter.errors import ConnectionLost, NoSuitableWorker, UsageError
from shunter.serialize import dump_value
from shunter.types import Buffer
from shunter.wire.bulk import PeerBusy

if TYPE_CHECKING:
    from shunter.client.session import Session

__all__ = ["Placed", "Target", "choose_targets", "deal", "place"]

#: How long the scheduler may take to answer a question, seconds.
QUESTION_S: Final = 30.0
#: One transfer carries about so many bytes.
NBYTES_MAX: Final = 64 * 1024 * 1024


class Target(NamedTuple):
    """A worker that may take values."""

    number: int
    address: str


class Placed(NamedTuple):
    """Where a value is now."""

    key: str
    nbytes: int
    holders: list[int]


def choose_targets(rows: Sequence[Mapping[str, object]], workers: Sequence[str] | None) -> list[Target]:
    """The running workers among those named (by name, address or host; None: all).

    Args:
        rows: the scheduler's answer to the query ``workers``.
        workers: names, addresses or hosts.
    """
    targets = []
    for row in rows:
        number, address = row["number"], row["address"]
        assert isinstance(number, int) and isinstance(address, str)
        wanted = workers is None or any(row[field] in workers for field in ("name", "address", "host"))
        if wanted and row["status"] == "running":
            targets.append(Target(number, address))
    return targets


def deal(sizes: Mapping[str, int], targets: Sequence[Target], *, broadcast: bool) -> dict[Target, list[str]]:
    """Which keys each worker gets: all of them, or an even share by bytes."""
    shares: dict[Target, list[str]] = {target: [] for target in targets}
    if broadcast:
        return {target: list(sizes) for target in targets}
    load = dict.fromkeys(targets, 0)
    for key, size in sizes.items():
        target = min(targets, key=load.__getitem__)
        shares[target].append(key)
        load[target] += size + 1024
    return {target: keys for target, keys in shares.items() if keys}


def place(
    session: Session,
    values: Mapping[str, object],
    workers: Sequence[str] | None,
    deadline: Deadline,
    *,
    broadcast: bool,
) -> list[Placed]:
    """Put values on workers and tell where they are. Blocking.

    Raises:
        UsageError: a value cannot be pickled. NoSuitableWorker: there is no running worker, or not one of those
            named, in time. ConnectionLost: a worker cannot be reached from here.
    """
    parts = {key: _dump(key, value) for key, value in values.items()}
    sizes = {key: sum(map(len, each)) for key, each in parts.items()}
    targets = _wait_for_targets(session, workers, deadline)
    holders: dict[str, list[int]] = {key: [] for key in parts}
    nbytes: dict[str, int] = {}
    for target, keys in deal(sizes, targets, broadcast=broadcast).items():
        for group in _groups(keys, sizes):
            stored = _put(session, target, {key: parts[key] for key in group}, deadline)
            for key, size in zip(group, stored):
                holders[key].append(target.number)
                nbytes[key] = size
    return [Placed(key, nbytes[key], holders[key]) for key in parts]


def _dump(key: str, value: object) -> list[Buffer]:
    try:
        return dump_value(value)
    except Exception as error:
        raise UsageError(
            f"the value for {key!r} ({type(value).__name__}) cannot be pickled: {type(error).__name__}: {error}"
        ) from error


def _groups(keys: Sequence[str], sizes: Mapping[str, int]) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    room = NBYTES_MAX
    for key in keys:
        if groups[-1] and (sizes[key] > room or len(groups[-1]) >= 1000):
            groups.append([])
            room = NBYTES_MAX
        groups[-1].append(key)
        room -= sizes[key]
    return groups


def _put(
    session: Session, target: Target, values: Mapping[str, Sequence[Buffer]], deadline: Deadline
) -> list[int]:
    pause = 0.01
    while True:
        try:
            return session.pool.put(target.address, values)
        except PeerBusy:
            remaining = deadline.remaining()
            if remaining is not None and remaining <= pause:
                raise deadline.error(f"the worker at {target.address} was too busy to take values") from None
        except ConnectionLost as error:
            session.connection.check_usable()
            raise ConnectionLost(
                f"the worker at {target.address} cannot take values from this client: {error}"
            ) from error
        time.sleep(pause)
        pause = min(2 * pause, 1.0)


def _wait_for_targets(session: Session, workers: Sequence[str] | None, deadline: Deadline) -> list[Target]:
    pause = 0.01
    while True:
        targets = choose_targets(session.connection.ask("workers", {}, Deadline(QUESTION_S)), workers)
        if targets:
            return targets
        remaining = deadline.remaining()
        if remaining is not None and remaining <= pause:
            which = f" among {list(workers)!r}" if workers is not None else ""
            raise NoSuitableWorker(
                f"no running worker{which} came within {deadline.seconds:g} s. See: shunter status"
            )
        time.sleep(pause)
        pause = min(2 * pause, 0.5)
