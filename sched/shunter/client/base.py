"""What both clients share: all that only says something and waits for nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from shunter.client.futures import Future
from shunter.client.graphs import Task, check_graph, walk
from shunter.client.nested import find_futures
from shunter.client.options import build_options, check_key
from shunter.client.scatter import Placed
from shunter.client.session import Session
from shunter.client.table import Entry
from shunter.errors import ShunterError, UsageError
from shunter.serialize import display_name
from shunter.types import Retry
from shunter.wire.messages import Restart, Scattered, TaskOptions

__all__ = ["BaseClient", "Cluster", "Keys", "Where", "names_of", "restarting", "shape_like"]

T = TypeVar("T")

#: Keys to ask for: one, or several.
Keys: TypeAlias = str | Iterable[str]


class Cluster(Protocol):
    """What `LocalCluster` and others offer to a client."""

    @property
    def address(self) -> str: ...

    @property
    def token(self) -> str: ...

    def close(self) -> None: ...


#: The first argument of a client.
Where: TypeAlias = str | Cluster | None


class BaseClient:
    """See `Client` and `AsyncClient`."""

    _session: Session

    @property
    def address(self) -> str:
        """The scheduler's, ``tcp://host:port``."""
        return self._session.connection.address

    @property
    def name(self) -> str:
        """This client's, as ``shunter status`` shows it."""
        return self._session.connection.name

    @property
    def closed(self) -> bool:
        """It was closed, or has lost its scheduler."""
        return self._session.connection.unusable is not None

    def submit(
        self,
        fn: Callable[..., T],
        /,
        *args: Any,
        key: str | None = None,
        workers: str | Iterable[str] | None = None,
        allow_other_workers: bool = False,
        resources: Mapping[str, float] | None = None,
        retries: int | Retry = 0,
        priority: float = 0,
        pure: bool = False,
        annotations: Mapping[str, object] | None = None,
        **kwargs: Any,
    ) -> Future[T]:
        """Run ``fn(*args, **kwargs)`` on a worker.

        Arguments are pickled here and now. Futures among them, at any depth, stand for their results, which
        workers pass among themselves. To pass keywords that are named like an option, use ``functools.partial``.

        Args:
            fn: a function (plain or ``async``) or another callable. One that cannot be imported by the workers (a
                lambda, one from ``__main__``) needs the extra ``shunter[cloudpickle]``.
            args: its arguments.
            key: name of the task; submitted again while a future of it lives, it shares that one's result. Default:
                a new name.
            workers: names, addresses or hosts of workers that may run it; default: any.
            allow_other_workers: take ``workers`` as a wish.
            resources: what a worker must have free for it, such as ``{"GPU": 1}``.
            retries: how often it is run again after it failed, or a `Retry` for more say.
            priority: larger runs sooner.
            pure: same function and same arguments give the same key, so the result is shared.
            annotations: whatever plugins may want to know of it; plain data.
            kwargs: keyword arguments of ``fn``.

        Raises:
            UsageError: an option does not fit, or function or arguments cannot be pickled; nothing was sent.
            ConnectionLost: the scheduler is gone.
        """
        options = build_options(
            workers=workers,
            allow_other_workers=allow_other_workers,
            resources=resources,
            retries=retries,
            priority=priority,
            annotations=annotations,
        )
        if key is not None:
            key = check_key(key)
        return self._session.submitting.submit(fn, args, kwargs, key=key, pure=pure, options=options)

    def map(
        self,
        fn: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        key: str | Iterable[str] | None = None,
        workers: str | Iterable[str] | None = None,
        allow_other_workers: bool = False,
        resources: Mapping[str, float] | None = None,
        retries: int | Retry = 0,
        priority: float = 0,
        pure: bool = False,
        annotations: Mapping[str, object] | None = None,
        **kwargs: Any,
    ) -> list[Future[T]]:
        """Run ``fn`` for each item of an iterable, or of several in step (the shortest ends it).

        Tasks are sent while the iterables are read, up to 1,000 in one message, which the scheduler accepts or refuses
        as a whole. If an item cannot be pickled, the error is raised and what was sent before is given up.

        Args:
            fn: see `submit`.
            iterables: where the arguments come from.
            key: prefix of the keys (``"load"`` gives ``load-0``, ``load-1`` …), or one key for each item.
            workers: of each task, as all that follow: see `submit`.
            allow_other_workers: see `submit`.
            resources: see `submit`.
            retries: see `submit`.
            priority: see `submit`.
            pure: see `submit`.
            annotations: see `submit`.
            kwargs: keyword arguments of each call.

        Returns:
            One future for each item, in order.
        """
        if not iterables:
            raise UsageError("map needs at least one iterable after the function")
        for iterable in iterables:
            if not isinstance(iterable, Iterable):
                raise UsageError(f"map takes iterables, not {type(iterable).__name__}: {iterable!r:.100}")
        options = build_options(
            workers=workers,
            allow_other_workers=allow_other_workers,
            resources=resources,
            retries=retries,
            priority=priority,
            annotations=annotations,
        )
        keys = None if key is None else _keys_of_map(key)
        return self._session.submitting.submit_many(
            fn, zip(*iterables), kwargs, keys=keys, pure=pure, options=options
        )

    def submit_graph(
        self, graph: Mapping[str, Task], keys: Keys | None = None, **options: Any
    ) -> dict[str, Future[Any]]:
        """Submit a graph ``{key: Task(fn, *args)}``, with ``Ref(key)`` where results of other tasks belong.

        It is accepted or refused as a whole. Tasks that no wanted key needs are left out. Keys that are known to the
        cluster already keep their task.

        Args:
            graph: the tasks.
            keys: whose results are wanted; default: all.
            options: as in `submit`, for every task that has none of its own (`Task.with_options`).

        Returns:
            A future for each wanted key.

        Raises:
            GraphError: a cycle, an unknown input or wanted key. UsageError: a key that is no ``str``.
            UsageError: something cannot be pickled.
        """
        return self._submit_graph(graph, _one_or_many(graph if keys is None else keys), options)

    def cancel(self, futures: Any, *, force: bool = False) -> None:
        """Give up futures (one, or any nest of them), and what depends on them.

        Those that are pending are cancelled at once, those that are done stay as they are; the key of either can be
        used again. Tasks that run are not interrupted, their results are dropped.

        Args:
            futures: what to give up.
            force: for all other clients that want the same keys, too. Default: what others want goes on for them.

        Raises:
            UsageError: no futures, or another client's. ConnectionLost: the scheduler is gone.
        """
        self._session.giving_up.cancel(self._entries_of(futures, "cancel"), force=force)

    def retry(self, futures: Any) -> None:
        """Run failed tasks (one, or any nest of them) again, with what they need that failed as well.

        They are pending again at once, and get as many retries as they had at first.

        Args:
            futures: futures that have failed.

        Raises:
            UsageError: one has not failed, or was cancelled: then none is retried. No futures, or another client's.
            ConnectionLost: the scheduler is gone.
        """
        self._session.giving_up.retry(self._entries_of(futures, "retry"))

    def fire_and_forget(self, futures: Any) -> None:
        """Have tasks (one, or any nest of them) run to their end, though their futures are dropped or this client goes.

        Their results are released then, unless somebody wants them. `cancel` gives them up after all.

        Args:
            futures: what must run. Nothing is done for those that are done already.

        Raises:
            UsageError: one was cancelled. No futures, or another client's.
            ConnectionLost: the scheduler is gone.
        """
        self._session.giving_up.detach(self._entries_of(futures, "fire_and_forget"))

    # ------------------------------------------------------------------------------------ for the faces

    def _entries_of(self, futures: Any, what: str) -> list[Entry]:
        """The entries of all futures in a nest, each once."""
        found = find_futures(futures)
        if not found and not isinstance(futures, (list, tuple, dict, set, frozenset)):
            raise UsageError(
                f"{what}() takes a future, or a list, tuple, dict or set of them, not {type(futures).__name__}"
            )
        for future in found:
            if future._session is not self._session:
                raise UsageError(f"{future.key!r} is a future of another client: use {what}() of that one")
        return list(dict.fromkeys(future._entry for future in found))

    def _submit_graph(
        self, graph: Mapping[str, Task], wanted: Sequence[str], options: Mapping[str, Any]
    ) -> dict[str, Future[Any]]:
        session = self._session
        check_graph(graph)
        shared = _graph_options(options)
        if not wanted:
            return {}
        calls = walk(
            graph,
            wanted,
            is_known=lambda key: session.table.find(key) is not None,
            owner=session,
            name_of=display_name,
        )
        if shared is not None:
            calls = (each if each.options is not None else each._replace(options=shared) for each in calls)
        return session.submitting.submit_graph(calls, wanted)

    def _name_values(self, data: Any) -> dict[str, object]:
        """Keys for the values to scatter."""
        if isinstance(data, Mapping):
            values: dict[str, object] = {check_key(key): value for key, value in data.items()}
            for key in values:
                if self._session.table.find(key) is not None:
                    raise UsageError(f"{key!r} is the key of a future of this client: choose another one")
            return values
        if isinstance(data, (list, tuple)):
            return {self._session.submitting.new_key(type(value).__name__): value for value in data}
        return {self._session.submitting.new_key(type(data).__name__): data}

    def _announce(self, placed: Sequence[Placed]) -> dict[str, Future[Any]]:
        """Tell the scheduler what was scattered; it confirms by ``finished``."""
        session = self._session
        futures: dict[str, Future[Any]] = {}
        with session.table.lock:
            for each in placed:
                futures[each.key] = session.make_future(session.table.add(each.key))
            for start in range(
                0, len(placed), 250
            ):  # 250 keys of any length fit into a header, with holders.
                part = placed[start : start + 250]
                session.connection.say(
                    Scattered(
                        [each.key for each in part],
                        [each.nbytes for each in part],
                        [each.holders for each in part],
                    )
                )
        return futures


def shape_like(data: Any, futures: Mapping[str, Future[Any]]) -> Any:
    """Futures of scattered values in the shape of what was given: a dict, a list, or one."""
    if isinstance(data, Mapping):
        return dict(futures)
    if isinstance(data, (list, tuple)):
        return list(futures.values())
    return next(iter(futures.values()))


def restarting(timeout: float) -> Callable[[int], Restart]:
    """The request to restart the cluster, by its number. Raises UsageError if the timeout is no time."""
    is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    if not is_number or not 0 <= timeout < math.inf:
        raise UsageError(f"restart(timeout=) takes seconds, 0 or more, not {timeout!r:.100}")
    return lambda number: Restart(number, float(timeout))


def names_of(rows: Any) -> list[str]:
    """The names in the answer to the query ``datasets``."""
    return [row["name"] for row in rows]


def _one_or_many(keys: Keys) -> list[str]:
    return [keys] if isinstance(keys, str) else list(keys)


def _keys_of_map(key: str | Iterable[str]) -> Iterator[str]:
    if isinstance(key, str):
        prefix = check_key(key)
        number = 0
        while True:
            yield f"{prefix}-{number}"
            number += 1
    if not isinstance(key, Iterable):
        raise UsageError(f"map(key=) takes a prefix or one key for each item, not {key!r:.100}")
    for each in key:
        yield check_key(each)
    raise UsageError("map(key=) has fewer keys than there are items")


def _graph_options(options: Mapping[str, Any]) -> TaskOptions | None:
    try:
        return build_options(**options)
    except TypeError as error:
        if isinstance(error, ShunterError):
            raise
        raise UsageError(f"submit_graph: {error}") from None
