"""10,000 tasks that do nothing, on two worker processes: how many a second, from the call to the last result?

Two ways: ``map`` (one call, then gather) and ``submit`` (one by one). shunter and a peer take turns, repeat by
repeat, with a pause between them, so that what else the machine does weighs on both; several peers come one after
the other. One JSON line for each system and way, with the median; then
the ratios of shunter's medians to the peers'.
"""

from __future__ import annotations

import time
from typing import Final

from benchmarks import report
from benchmarks.cluster import systems

PEERS: Final = ("processpool", "dask")
WAYS: Final = ("map", "submit")


def main(argv: list[str] | None = None) -> None:
    parser = report.parser(__doc__, PEERS)
    parser.add_argument("--n", type=int, default=10_000, help="tasks (default: 10,000)")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args(argv)
    if given.quick:
        given.n, given.repeats = given.n // 10, 2
    for found in systems.pairs("throughput", given.peer):
        compare(found, given.n, given.repeats)


def compare(found: list[systems.System], n: int, repeats: int) -> None:
    medians: dict[tuple[str, str], float] = {}
    for way in WAYS:
        rates: dict[str, list[float]] = {system.name: [] for system in found}
        for _ in range(repeats):
            for system in found:
                systems.settle()
                rates[system.name].append(rate(system, way, n))
        for system in found:
            row = rates[system.name]
            medians[system.name, way] = report.median(row)
            report.emit(
                "throughput",
                system=system.name,
                version=system.version,
                way=way,
                n=n,
                tasks_per_s=report.median(row),
                runs=row,
                beside_peer=next((each.name for each in found if each.name != "shunter"), None),
            )
    for system in found:
        if system.name != "shunter":
            ratios = {way: medians["shunter", way] / medians[system.name, way] for way in WAYS}
            report.emit("throughput-ratio", peer=system.name, n=n, **ratios)


def rate(system: systems.System, way: str, n: int) -> float:
    run = system.map_all if way == "map" else system.submit_all
    started = time.perf_counter()
    results = run(n)
    seconds = time.perf_counter() - started
    if sum(results) != n * (n + 1) // 2:
        raise AssertionError(f"{system.name} gave wrong results")
    return n / seconds


if __name__ == "__main__":
    main()
