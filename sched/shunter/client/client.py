"""`Client`: the synchronous face. Its event loop runs on a thread of its own."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Literal

from shunter import config
from shunter.client.base import BaseClient, Cluster, Keys, Where, names_of, restarting, shape_like
from shunter.client.connection import Receive
from shunter.client.gather import locate
from shunter.client.graphs import Task
from shunter.client.nested import find_futures, replace_futures
from shunter.client.scatter import place
from shunter.client.session import Session
from shunter.client.threads import CallbackThread, LoopThread
from shunter.client.waiting import Deadline
from shunter.errors import NoSuitableWorker, UsageError

__all__ = ["Client", "find_scheduler", "is_skip", "key_of"]


class Client(BaseClient):
    """Connects to a cluster, or starts one on this machine. A context manager; usable from any thread.

    Args:
        address: ``"tcp://host:port"``, a `LocalCluster`, or None: where ``SHUNTER_ADDRESS`` or
            ``SHUNTER_SCHEDULER_FILE`` points to, else a `LocalCluster` of its own that ends with it.
        token: the cluster's token; default: from the scheduler file, or ``SHUNTER_TOKEN_FILE``.
        scheduler_file: file that ``shunter scheduler`` has written: address and token in one.
        n_workers, threads_per_worker, processes: of the cluster of its own; see `LocalCluster`.
        timeout: seconds that connecting may take, and an answer of the scheduler later on.
        name: shown by ``shunter status``.

    Raises:
        UsageError: an argument does not fit, or a file that is named cannot be read.
        ConnectionLost: nobody is there, or not any more.
        PeerError: wrong token, wrong version, or not shunter's port.
    """

    def __init__(
        self,
        address: Where = None,
        *,
        token: str | None = None,
        scheduler_file: str | None = None,
        n_workers: int | None = None,
        threads_per_worker: int | None = None,
        processes: bool = True,
        timeout: float = 10.0,
        name: str | None = None,
    ) -> None:
        self._closed = False
        self._pid = os.getpid()
        self._timeout = timeout
        self._cluster: Cluster | None = None
        found = find_scheduler(address, token, scheduler_file)
        if found is None:
            from shunter.deploy.local import LocalCluster

            self._cluster = LocalCluster(n_workers, threads_per_worker, processes)
            found = (self._cluster.address, self._cluster.token)
        elif n_workers is not None or threads_per_worker is not None or not processes:
            raise UsageError(
                f"n_workers=, threads_per_worker= and processes= are for a new cluster, but there is one: {found[0]}"
            )
        try:
            self._loop_thread = LoopThread("shunter-client")
            self._callbacks = CallbackThread("shunter-callbacks")
            try:
                self._session = Session(self._loop_thread.loop, self._callbacks.run)
                self._loop_thread.run(self._session.open(*found, name=name or "", timeout=timeout))
            except BaseException:
                self._loop_thread.stop()
                raise
        except BaseException:
            if self._cluster is not None:
                self._cluster.close()
            raise
        _open_clients.append(weakref.ref(self))

    @classmethod
    def current(cls) -> Client:
        """The open client of this process that was made last.

        Raises:
            UsageError: there is none.
        """
        for reference in reversed(_open_clients):
            client = reference()
            if client is not None and not client.closed:
                return client
        raise UsageError("there is no open client: make one by shunter.Client()")

    @property
    def cluster(self) -> Cluster | None:
        """The cluster that this client has started, if it has."""
        return self._cluster

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what is pending, disconnect, and end the cluster that it has started. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        _open_clients[:] = [each for each in _open_clients if each() not in (None, self)]
        if os.getpid() != self._pid:
            return  # Inherited through a fork: connection, threads and cluster are the parent's.
        self._session.say_goodbye()
        with suppress(RuntimeError):  # The loop has ended.
            self._loop_thread.run(self._session.close())
        self._loop_thread.stop()
        self._callbacks.stop()
        if self._cluster is not None:
            self._cluster.close()

    def __repr__(self) -> str:
        return f"<Client of {self.address}{' closed' if self._closed else ''}>"

    # ------------------------------------------------------------------------------------ results

    def gather(
        self, futures: Any, *, errors: Literal["raise", "skip"] = "raise", timeout: float | None = None
    ) -> Any:
        """The results of futures in any nest of lists, tuples, dicts and sets, in the same shape.

        Args:
            futures: the nest; what is no future stays as it is.
            errors: ``"raise"``: raise the first failure as soon as there is one. ``"skip"``: leave failed and
                cancelled ones out.
            timeout: seconds to wait; None: without end.

        Raises:
            Exception: as `Future.result` does.
        """
        skip = is_skip(errors)
        entries = list(dict.fromkeys(each._entry for each in find_futures(futures)))
        values = self._session.results.results(entries, Deadline(timeout), skip=skip)
        return replace_futures(futures, values, skip=skip)

    def get(
        self, graph: Mapping[str, Task], keys: Keys, *, timeout: float | None = None, **options: Any
    ) -> Any:
        """Run a graph and give the results: of one key, or a list for several. See `submit_graph`."""
        keys = keys if isinstance(keys, str) else list(keys)
        futures = self.submit_graph(graph, keys, **options)
        if isinstance(keys, str):
            return futures[keys].result(timeout)
        return self.gather([futures[key] for key in keys], timeout=timeout)

    def scatter(
        self,
        data: Any,
        *,
        workers: str | Iterable[str] | None = None,
        broadcast: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Put values on workers, for tasks that get the futures as arguments.

        Such data cannot be recomputed: if its workers go, it is lost. ``broadcast`` puts a copy on each.

        Args:
            data: a list or tuple of values (gives a list of futures), a dict of values by key (gives a dict), or one
                value (gives one future).
            workers: names, addresses or hosts of the workers to use; default: all.
            broadcast: put each value on each of these workers.
            timeout: seconds to wait for a worker; default: the client's.

        Raises:
            UsageError: a value cannot be pickled. NoSuitableWorker: no worker came in time.
            ConnectionLost: a worker cannot be reached from here.
        """
        values = self._name_values(data)
        deadline = Deadline(self._timeout if timeout is None else timeout)
        names = None if workers is None else [workers] if isinstance(workers, str) else list(workers)
        placed = place(self._session, values, names, deadline, broadcast=broadcast) if values else []
        futures = self._announce(placed)
        self._session.results.confirm([each._entry for each in futures.values()], deadline)
        return shape_like(data, futures)

    # ------------------------------------------------------------------------------------ datasets and restart

    def publish(self, name: str, value: Any, *, replace: bool = False) -> None:
        """Keep futures under a name until it is unpublished, whoever comes and goes. See `get_dataset`.

        Args:
            name: up to 256 characters.
            value: a future, or whatever can be pickled and has futures in it, at any depth. The pickle without the
                results may take some 190 kB, compressed.
            replace: in place of what has the name. Default: an error if there is something.

        Raises:
            UsageError: the name is in use or does not fit; the value is too large, cannot be pickled, or has a future
                that was cancelled, belongs to another client or is not known to the scheduler.
            ConnectionLost: the scheduler is gone.
        """
        make = self._session.datasets.publication(name, value, replace=replace)
        self._call(make, f"publish {name!r}")

    def get_dataset(self, name: str) -> Any:
        """What was published under a name, with futures of this client in the places of those that were published.

        Raises:
            UsageError: there is no such dataset, or something in it cannot be unpickled here.
            ConnectionLost: the scheduler is gone.
        """
        datasets = self._session.datasets
        make = datasets.request(name)
        return datasets.load(name, self._call(make, f"get_dataset {name!r}", receive=datasets.receive))

    def unpublish(self, name: str) -> bool:
        """Let a dataset go; its results are released unless somebody wants them. False if there was none.

        Raises:
            UsageError: the name is none. ConnectionLost: the scheduler is gone.
        """
        found: bool = self._call(self._session.datasets.removal(name), f"unpublish {name!r}")
        return found

    def list_datasets(self) -> list[str]:
        """The names of what is published, the oldest first."""
        return names_of(self._ask("datasets", {}))

    def restart(self, timeout: float = 30.0) -> int:
        """Give up everything, of all clients, and replace the worker processes.

        All futures of all clients are cancelled, also those that are done; datasets are gone. Blocks until as many
        workers are there as before. Workers without a parent process (those of ``processes=False``, a `Worker` of your
        own) stay.

        Args:
            timeout: seconds to wait for the workers.

        Returns:
            How many workers there are.

        Raises:
            concurrent.futures.TimeoutError: some workers were not back in time; the work was given up nevertheless.
            UsageError: the timeout is none. ConnectionLost: the scheduler is gone.
        """
        make = restarting(timeout)
        deadline = Deadline(timeout + max(self._timeout, 30.0))
        count: int = self._session.connection.call(make, "restart", deadline, refused=FutureTimeoutError)
        return count

    # ------------------------------------------------------------------------------------ questions

    def workers(self) -> list[dict[str, Any]]:
        """The workers, as ``shunter status`` shows them."""
        found: list[dict[str, Any]] = self._ask("workers", {})
        return found

    def wait_for_workers(self, n: int, timeout: float | None = None) -> None:
        """Block until at least ``n`` workers are running.

        Raises:
            NoSuitableWorker: they were not after ``timeout`` seconds.
        """
        deadline = Deadline(timeout)
        pause = 0.01
        while True:
            running = sum(each["status"] == "running" for each in self.workers())
            if running >= n:
                return
            remaining = deadline.remaining()
            if remaining is not None and remaining <= pause:
                raise NoSuitableWorker(
                    f"{running} of {n} workers were there after {timeout:g} s. See: shunter status"
                )
            time.sleep(pause)
            pause = min(2 * pause, 0.2)

    def status(self) -> dict[str, Any]:
        """What the scheduler knows about itself, its workers, tasks and clients."""
        found: dict[str, Any] = self._ask("status", {})
        return found

    def who_has(self, futures: Any) -> dict[str, list[str]]:
        """Addresses of the workers that hold each result (of one future, or any nest of them)."""
        keys = list(dict.fromkeys(each.key for each in find_futures(futures)))
        holdings = locate(self._session.connection, keys, Deadline(max(self._timeout, 30.0)))
        return {each.key: [address for _, address in each.holders] for each in holdings}

    def story(self, future: Any) -> list[str]:
        """What happened to a task and why, as far as the scheduler remembers: one line an event, the oldest first.

        Args:
            future: a future, or a key.

        Raises:
            UsageError: neither of both. ConnectionLost: the scheduler is gone.
        """
        found: list[str] = self._ask("story", {"key": key_of(future)})
        return found

    def why(self, future: Any) -> str:
        """Why a task is not done yet, or what became of it, in one sentence.

        Args:
            future: a future, or a key.

        Raises:
            UsageError: neither of both. ConnectionLost: the scheduler is gone.
        """
        found: str = self._ask("why", {"key": key_of(future)})
        return found

    def _ask(self, name: str, arguments: dict[str, object]) -> Any:
        return self._session.connection.ask(name, arguments, Deadline(max(self._timeout, 30.0)))

    def _call(self, make: Callable[[int], Any], what: str, *, receive: Receive | None = None) -> Any:
        deadline = Deadline(max(self._timeout, 30.0))
        return self._session.connection.call(make, what, deadline, receive=receive)


def find_scheduler(address: Where, token: str | None, scheduler_file: str | None) -> tuple[str, str] | None:
    """Address and token of the scheduler that the arguments or the environment name; None if they name none."""
    if address is not None and not isinstance(address, str):
        try:
            return address.address, address.token if token is None else token
        except AttributeError:
            raise UsageError(
                f"Client takes an address or a LocalCluster first, not {type(address).__name__}"
            ) from None
    if address is None and scheduler_file is None:
        if not any(os.environ.get(name) for name in ("SHUNTER_ADDRESS", "SHUNTER_SCHEDULER_FILE")):
            return None
    found = config.find_contact(address, scheduler_file=scheduler_file)
    return found.address, found.token if token is None else token


def is_skip(errors: str) -> bool:
    """Read ``gather(errors=)``."""
    if errors not in ("raise", "skip"):
        raise UsageError(f"gather(errors=) takes 'raise' or 'skip', not {errors!r}")
    return errors == "skip"


def key_of(future: Any) -> str:
    """The key of a future, or the key itself."""
    key = getattr(future, "key", future)
    if not isinstance(key, str):
        raise UsageError(f"expected a future or a key, not {type(future).__name__}")
    return key


_open_clients: Final[list[weakref.ref[Client]]] = []


@atexit.register
def _close_all() -> None:
    for reference in list(_open_clients):
        client = reference()
        if client is not None:
            client.close()
