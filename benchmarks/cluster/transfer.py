"""A numpy array of 200 MB goes from one worker process to the other: gigabytes a second.

Each time the array is made on one worker and waited for; then a task on the other asks for it. Timed is that
task, from ``submit`` to its result, so connection, request and unpickling are in it. The first time, when memory is
cold and the connection new, is reported apart. ``memcpy_gb_per_s`` is what this machine does for a plain copy.
"""

from __future__ import annotations

import importlib
import time
from typing import Final

import shunter
from benchmarks import report
from benchmarks.work import last_of, make_array

PEERS: Final = ("dask",)


def main(argv: list[str] | None = None) -> None:
    parser = report.parser(__doc__, PEERS)
    parser.add_argument("--mb", type=int, default=200, help="size in 10^6 bytes (default: 200)")
    parser.add_argument("--repeats", type=int, default=10, help="after the first (default: 10)")
    given = parser.parse_args(argv)
    if given.quick:
        given.repeats = 2
    nbytes = given.mb * 1_000_000
    copy = copy_rate(nbytes)
    own = measure_shunter(nbytes, given.repeats)
    tell(own, nbytes, copy, system="shunter")
    for peer in given.peer:
        try:
            version, theirs = measure_dask(nbytes, given.repeats)
        except ImportError:
            report.emit("transfer", system=peer, error="not installed")
            continue
        tell(theirs, nbytes, copy, system=peer, version=version)
        report.emit("transfer-ratio", peer=peer, gb_per_s=report.median(theirs[1:]) / report.median(own[1:]))


def tell(seconds: list[float], nbytes: int, copy: float, **fields: object) -> None:
    rates = [nbytes / each / 1e9 for each in seconds]
    report.emit(
        "transfer",
        nbytes=nbytes,
        gb_per_s=report.median(rates[1:]),
        first_gb_per_s=rates[0],
        runs=rates[1:],
        memcpy_gb_per_s=copy,
        **fields,
    )


def copy_rate(nbytes: int) -> float:
    array = make_array(nbytes)
    target = array.copy()
    started = time.perf_counter()
    target[:] = array
    return nbytes / (time.perf_counter() - started) / 1e9


def measure_shunter(nbytes: int, repeats: int) -> list[float]:
    with shunter.LocalCluster(2, 1) as cluster, shunter.Client(cluster) as client:
        client.wait_for_workers(2, 30)
        here, there = (worker["name"] for worker in client.workers())
        seconds = []
        client.submit(last_of, [0.0], workers=there).result(60)
        for _ in range(1 + repeats):
            array = client.submit(make_array, nbytes, workers=here)
            shunter.wait([array], timeout=60)
            started = time.perf_counter()
            assert client.submit(last_of, array, workers=there).result(60) == 1.0
            seconds.append(time.perf_counter() - started)
            del array
        return seconds


def measure_dask(nbytes: int, repeats: int) -> tuple[str, list[float]]:
    distributed = importlib.import_module("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        here, there = client.scheduler_info()["workers"]
        seconds = []
        for _ in range(1 + repeats):
            array = client.submit(make_array, nbytes, workers=[here], pure=False)
            distributed.wait(array)
            started = time.perf_counter()
            assert client.submit(last_of, array, workers=[there], pure=False).result() == 1.0
            seconds.append(time.perf_counter() - started)
            del array
        return str(distributed.__version__), seconds


if __name__ == "__main__":
    main()
