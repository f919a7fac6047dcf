"""One task at a time: how long from ``submit`` to its result, in milliseconds?"""

from __future__ import annotations

import time
from typing import Final

from benchmarks import report
from benchmarks.cluster import systems

PEERS: Final = ("processpool", "dask")
ROUND: Final = 250  # tasks before another system has its turn


def main(argv: list[str] | None = None) -> None:
    parser = report.parser(__doc__, PEERS)
    parser.add_argument("--n", type=int, default=1000, help="tasks, one after the other (default: 1,000)")
    given = parser.parse_args(argv)
    if given.quick:
        given.n //= 5
    for found in systems.pairs("latency", given.peer):
        times: dict[str, list[float]] = {system.name: [] for system in found}
        for _ in range(max(1, given.n // ROUND)):
            for system in found:
                systems.settle()
                times[system.name] += [one(system, i) for i in range(ROUND)]
        for system in found:
            ms = times[system.name]
            report.emit(
                "latency",
                system=system.name,
                version=system.version,
                n=len(ms),
                median_ms=report.median(ms),
                p99_ms=report.quantile(ms, 0.99),
                least_ms=min(ms),
                beside_peer=next((each.name for each in found if each.name != "shunter"), None),
            )
            if system.name != "shunter":
                ratio = report.median(times["shunter"]) / report.median(ms)
                report.emit("latency-ratio", peer=system.name, median=ratio)


def one(system: systems.System, i: int) -> float:
    started = time.perf_counter()
    result = system.one(i)
    ms = (time.perf_counter() - started) * 1e3
    assert result == i + 1
    return ms


if __name__ == "__main__":
    main()
