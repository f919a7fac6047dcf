"""The state of dask's scheduler alone, in process: the same shapes, the same three phases as `benchmarks.micro.core`.

A `distributed.Scheduler` that is never started gets workers through its own ``add_worker``, then three of its
handlers are called directly: the one that makes tasks of a graph, ``handle_task_finished``, and
``client_releases_keys``. Messages to workers and the client end in a list. `dask.order` is timed apart. Collector
thresholds are those of ``dask scheduler``. Tried with 2026.8.0; parts of this are not its public interface.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import importlib.util
import logging
import pickle
import sys
import time
from collections import deque
from typing import Any

from benchmarks import report
from benchmarks.micro.core import resident
from benchmarks.micro.driving import DURATION
from benchmarks.shapes import CORE, Shape


def work(*args: object) -> None:
    return None


class Outbox:
    """Stands for the stream to a worker or a client: keeps what is to be computed."""

    def __init__(self, worker: str, fifo: deque[tuple[str, Any, int]]) -> None:
        self.worker = worker
        self.fifo = fifo

    def send(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            if message["op"] == "compute-task":
                self.fifo.append((self.worker, message["key"], message["run_id"]))


class NoComm:
    async def write(self, *args: object, **kwargs: object) -> None:
        return None


async def make_scheduler(n_workers: int, nthreads: int) -> tuple[Any, deque[tuple[str, Any, int]]]:
    theirs = importlib.import_module("distributed.scheduler")

    async def read_nothing(comm: object, worker: str) -> None:
        return None

    scheduler = theirs.Scheduler(dashboard=False, dashboard_address=":0", host="127.0.0.1", validate=False)
    scheduler.handle_worker = read_nothing
    fifo: deque[tuple[str, Any, int]] = deque()
    metrics = {
        "memory": 2**27,
        "spilled_bytes": {"memory": 0, "disk": 0},
        "cpu": 0,
        "managed_bytes": 0,
        "bandwidth": {"total": 1e8, "workers": {}, "types": {}},
        "digests_total_since_heartbeat": {},
        "event_loop_interval": 0.02,
        "task_counts": {},
    }
    for i in range(n_workers):
        address = f"tcp://127.0.0.1:{20000 + i}"
        await scheduler.add_worker(
            NoComm(),
            address=address,
            status="running",
            server_id=f"worker-{i}",
            nthreads=nthreads,
            name=f"w{i}",
            resolve_address=False,
            now=time.time(),
            resources={},
            host_info=None,
            memory_limit=2**34,
            metrics=metrics,
            services={},
            local_directory="",
            versions={},
            nanny=None,
            extra={},
            stimulus_id="bench",
        )
        scheduler.stream_comms[address] = Outbox(address, fifo)
    scheduler.clients["c"] = theirs.ClientState("c")
    scheduler.client_comms["c"] = Outbox("", fifo)
    return scheduler, fifo


def make_graph(shape: Shape) -> tuple[dict[str, Any], list[str]]:
    spec = importlib.import_module("dask._task_spec")
    keys = shape.keys
    graph = {}
    for key, needs in zip(keys, shape.inputs):
        graph[key] = spec.Task(key, work, *(spec.TaskRef(keys[d]) for d in needs))
    return graph, [keys[task] for task in shape.sinks()]


async def measure(shape: str, n: int, n_workers: int, nthreads: int) -> None:
    order_of = importlib.import_module("dask.order").order
    version = importlib.import_module("distributed").__version__
    logging.disable(logging.WARNING)
    gc.set_threshold(*(3 * each for each in gc.get_threshold()))
    scheduler, fifo = await make_scheduler(n_workers, nthreads)
    graph, wanted = make_graph(CORE[shape](n))
    tasks = len(graph)
    at_order = time.perf_counter()
    order = order_of(graph)
    order_us = (time.perf_counter() - at_order) / tasks * 1e6
    before = resident()

    started = time.perf_counter()
    scheduler._create_taskstate_from_graph(
        start=time.time(),
        dsk=graph,
        keys=set(wanted),
        ordered=order,
        client="c",
        annotations_by_type={},
        global_annotations=None,
        stimulus_id="create",
        submitting_task=None,
        span_metadata={"collections": []},
        code=(),
    )
    created = time.perf_counter() - started
    grown = resident() - before

    type_of_result = pickle.dumps(int)
    done = 0
    started = time.perf_counter()
    while fifo:
        worker, key, run_id = fifo.popleft()
        begin = 1.7e9 + done
        scheduler.handle_task_finished(
            key=key,
            worker=worker,
            stimulus_id="finish",
            run_id=run_id,
            status="OK",
            nbytes=28,
            type=type_of_result,
            typename="int",
            metadata={},
            thread=1,
            startstops=[{"action": "compute", "start": begin, "stop": begin + DURATION}],
        )
        done += 1
    finished = time.perf_counter() - started
    assert done == tasks, (done, tasks)

    started = time.perf_counter()
    scheduler.client_releases_keys(keys=wanted, client="c", stimulus_id="release")
    forgotten = time.perf_counter() - started
    assert not scheduler.tasks, len(scheduler.tasks)
    us = 1e6 / tasks
    report.emit(
        "core",
        system="dask",
        version=version,
        shape=shape,
        n=tasks,
        workers=n_workers,
        nthreads=nthreads,
        repeats=1,
        us_per_task=(created + finished + forgotten) * us,
        create_us=created * us,
        finish_us=finished * us,
        forget_us=forgotten * us,
        order_us=order_us,
        rss_per_task=grown / tasks,
    )
    logging.shutdown()


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("--shape", choices=list(CORE), default="independent")
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--nthreads", type=int, default=1)
    given = parser.parse_args()
    if importlib.util.find_spec("distributed") is None:
        report.emit(
            "core", system="dask", shape=given.shape, error="not installed: pip install 'dask[distributed]'"
        )
        return
    asyncio.run(measure(given.shape, given.n, given.workers, given.nthreads))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
