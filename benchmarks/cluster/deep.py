"""Large graphs: a chain 100,000 deep, and 200,000 tasks at once. How long, and does the scheduler answer others?

While a graph is sent and runs, another client, in a process of its own, asks the scheduler a small question again
and again; its answer times tell for how long others had to wait.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import Final

import shunter
from benchmarks import report
from benchmarks.shapes import Shape, chain, merge
from benchmarks.work import passed_on

GRAPHS: Final = {"chain": (chain, 100_000), "merge": (merge, 200_000)}
PAUSE: Final = 0.005  # seconds between two questions
TIMEOUT: Final = 300.0


def main(argv: list[str] | None = None) -> None:
    parser = report.parser(__doc__)
    parser.add_argument("--ask", metavar="FILE", help="be the other client")
    given = parser.parse_args(argv)
    if given.ask:
        ask(given.ask)
        return
    for name, (make, n) in GRAPHS.items():
        shape = make(n // 10 if given.quick else n)
        measure(name, shape)


def measure(name: str, shape: Shape) -> None:
    graph = {
        key: shunter.Task(passed_on, *(shunter.Ref(shape.keys[d]) for d in needs))
        for key, needs in zip(shape.keys, shape.inputs)
    }
    wanted = [shape.keys[task] for task in shape.sinks()]
    with shunter.LocalCluster(2, 1) as cluster, shunter.Client(cluster) as client:
        client.wait_for_workers(2, 30)
        client.submit(passed_on).result(30)
        assert cluster.scheduler_file is not None
        with subprocess.Popen(
            [sys.executable, "-m", str(__spec__.name), "--ask", cluster.scheduler_file],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other:
            assert other.stdin is not None and other.stdout is not None
            other.stdout.readline()  # It is ready.
            started = time.perf_counter()
            futures = client.submit_graph(graph, wanted)
            submitted = time.perf_counter() - started
            results = client.gather(list(futures.values()), timeout=TIMEOUT)
            total = time.perf_counter() - started
            other.stdin.close()
            ms = json.loads(other.stdout.readline())
    assert results == [1] * len(wanted)
    report.emit(
        "deep",
        graph=name,
        n=len(shape),
        seconds=total,
        submit_s=submitted,
        tasks_per_s=len(shape) / total,
        answers=len(ms),
        answer_ms_median=report.median(ms),
        answer_ms_p99=report.quantile(ms, 0.99),
        answer_ms_most=max(ms),
    )


def ask(scheduler_file: str) -> None:
    """Ask until stdin is closed, then tell how many milliseconds each answer took."""
    closed = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        closed.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    ms = []
    with shunter.Client(scheduler_file=scheduler_file, timeout=60) as client:
        client.why("nothing")
        print("ready", flush=True)
        while not closed.wait(PAUSE):
            started = time.perf_counter()
            client.why("nothing")
            ms.append((time.perf_counter() - started) * 1e3)
    print(json.dumps(ms), flush=True)


if __name__ == "__main__":
    main()
