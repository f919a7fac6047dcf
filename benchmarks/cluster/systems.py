"""shunter and its peers behind one face: what the benchmarks ask of a cluster of two worker processes."""

from __future__ import annotations

import importlib
import importlib.util
import platform
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Protocol

import shunter
from benchmarks import report
from benchmarks.work import inc

WORKERS: Final = 2
SETTLE: Final = 1.5  # seconds


class System(Protocol):
    """A running cluster."""

    name: str
    version: str

    def map_all(self, n: int) -> list[int]:
        """Run n tasks, submitted by one call, and collect their results."""

    def submit_all(self, n: int) -> list[int]:
        """The same, submitted one by one."""

    def one(self, i: int) -> int:
        """Run one task, and wait for its result."""


class Shunter:
    name = "shunter"
    version = shunter.__version__

    def __init__(self, client: shunter.Client) -> None:
        self.client = client

    def map_all(self, n: int) -> list[int]:
        found: list[int] = self.client.gather(self.client.map(inc, range(n)))
        return found

    def submit_all(self, n: int) -> list[int]:
        submit = self.client.submit
        return [future.result() for future in [submit(inc, i) for i in range(n)]]

    def one(self, i: int) -> int:
        return self.client.submit(inc, i).result()


class ProcessPool:
    name = "processpool"
    version = platform.python_version()

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self.pool = pool

    def map_all(self, n: int) -> list[int]:
        return list(self.pool.map(inc, range(n), chunksize=1))

    def submit_all(self, n: int) -> list[int]:
        submit = self.pool.submit
        return [future.result() for future in [submit(inc, i) for i in range(n)]]

    def one(self, i: int) -> int:
        return self.pool.submit(inc, i).result()


class Dask:
    name = "dask"

    def __init__(self, client: Any, version: str) -> None:
        self.client = client
        self.version = version

    def map_all(self, n: int) -> list[int]:
        found: list[int] = self.client.gather(self.client.map(inc, range(n), pure=False))
        return found

    def submit_all(self, n: int) -> list[int]:
        submit = self.client.submit
        return [future.result() for future in [submit(inc, i, pure=False) for i in range(n)]]

    def one(self, i: int) -> int:
        found: int = self.client.submit(inc, i, pure=False).result()
        return found


@contextmanager
def running(name: str) -> Iterator[System]:
    """A system with two worker processes of one thread each, warmed up."""
    with _STARTERS[name]() as system:
        system.map_all(100)
        system.one(1)
        yield system


def pairs(bench: str, peers: Sequence[str]) -> Iterator[list[System]]:
    """shunter beside one peer after the other, both running; shunter alone if there is none.

    Never more than one peer at a time: what one leaves behind (dask goes on cleaning up for seconds) would weigh on
    the next, and flatter shunter's ratio to it. A peer that is not installed is reported as such.
    """
    installed: list[str | None] = [peer for peer in peers if is_installed(peer)]
    for peer in peers:
        if peer not in installed:
            report.emit(bench, system=peer, error="not installed")
    for other in installed or [None]:
        with ExitStack() as stack:
            # In this order: a pool forks its workers, and had better do so before there are threads.
            names = [name for name in _STARTERS if name in ("shunter", other)]
            yield [stack.enter_context(running(name)) for name in names]


def settle() -> None:
    """Between two turns: let the last system finish what it does behind its results."""
    time.sleep(SETTLE)


def is_installed(name: str) -> bool:
    return name != "dask" or importlib.util.find_spec("distributed") is not None


@contextmanager
def _shunter() -> Iterator[System]:
    with shunter.LocalCluster(WORKERS, 1) as cluster, shunter.Client(cluster) as client:
        client.wait_for_workers(WORKERS, 30)
        yield Shunter(client)


@contextmanager
def _process_pool() -> Iterator[System]:
    with ProcessPoolExecutor(WORKERS) as pool:
        yield ProcessPool(pool)


@contextmanager
def _dask() -> Iterator[System]:
    distributed = importlib.import_module("distributed")
    with (
        distributed.LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield Dask(client, distributed.__version__)


_STARTERS: Final = {"processpool": _process_pool, "shunter": _shunter, "dask": _dask}
