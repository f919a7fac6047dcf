"""What users of schedulers like this one have reported of clients: each test names the report.

The list, with its letters and numbers, is in the project's case collection; the right outcome is what is tested.
"""

from __future__ import annotations

import ast
import asyncio
import concurrent.futures
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import shunter
from shunter.client import connection
from shunter.client.async_client import AsyncClient
from shunter.client.client import Client
from shunter.client.futures import Future, as_completed, wait
from shunter.client.graphs import Ref, Task
from shunter.client.session import _after_fork_in_child
from shunter.errors import ConnectionLost, UsageError
from shunter.wire import messages as m
from tests.cli.processes import finished as finished_process
from tests.client.fake import TIMEOUT, FakeScheduler

SOURCES = sorted(Path(shunter.__file__).parent.rglob("*.py"))


def inc(x: int) -> int:
    return x + 1


@pytest.fixture
def scheduler() -> Iterator[FakeScheduler]:
    with FakeScheduler() as scheduler:
        yield scheduler


@pytest.fixture
def client(scheduler: FakeScheduler) -> Iterator[Client]:
    with Client(scheduler.address, token=scheduler.token) as client:
        yield client


@pytest.fixture
def idle(scheduler: FakeScheduler, client: Client) -> FakeScheduler:
    """The client's scheduler, which runs nothing by itself."""
    scheduler.runs_tasks = False
    return scheduler


# ------------------------------------------------------------------------------- G1: the scheduler is gone

WAYS: dict[str, Callable[[Client, Future[int]], object]] = {
    "result": lambda client, future: future.result(TIMEOUT),
    "gather": lambda client, future: client.gather([future], timeout=TIMEOUT),
    "as_completed": lambda client, future: next(as_completed([future], timeout=TIMEOUT)).result(),
    "wait": lambda client, future: next(iter(wait([future], TIMEOUT).done)).result(),
    "submit": lambda client, future: (wait([future], TIMEOUT), client.submit(inc, 1)),
    "graph": lambda client, future: (wait([future], TIMEOUT), client.get({"x": Task(inc, 1)}, "x")),
    "question": lambda client, future: (wait([future], TIMEOUT), client.status()),
}


@pytest.mark.parametrize("reason", ["idle for 600 s (idle_timeout)", "SIGTERM", ""])
@pytest.mark.parametrize("way", WAYS)
def test_g1_scheduler_ends_or_breaks_off__error_names_it_and_why_and_nothing_says_cancelled(
    client: Client, idle: FakeScheduler, way: str, reason: str
) -> None:
    future = client.submit(inc, 1)
    idle.wait_for(m.Submit)
    idle.cut_off(reason)
    with pytest.raises(ConnectionLost) as caught:
        WAYS[way](client, future)
    assert idle.address in str(caught.value)
    assert str(caught.value).endswith(reason)
    assert len(str(caught.value)) > len(f"lost the scheduler at {idle.address}: ")
    assert (future.status, future.cancelled()) == ("error", False)
    assert isinstance(future.exception(), ConnectionLost)


def test_g1_scheduler_is_silent__is_lost_with_that_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mute(FakeScheduler):
        def on_message(self, link: Any, header: list[object], body: bytes) -> None:
            pass

    monkeypatch.setattr(connection, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(connection, "SILENCE_S", 0.03)
    with Mute() as scheduler, Client(scheduler.address, token=scheduler.token) as client:
        with pytest.raises(ConnectionLost, match="silent"):
            client.submit(inc, 1).result(TIMEOUT)


def test_g1_scheduler_ends__asynchronous_client_is_told_the_same(scheduler: FakeScheduler) -> None:
    scheduler.runs_tasks = False

    async def run() -> None:
        async with AsyncClient(scheduler.address, token=scheduler.token) as client:
            future = client.submit(inc, 1)
            scheduler.cut_off("idle for 600 s")
            with pytest.raises(ConnectionLost, match=rf"{scheduler.address}: .*idle for 600 s"):
                await future

    asyncio.run(asyncio.wait_for(run(), TIMEOUT))


# ------------------------------------------------------------------------------- G4: locks and the garbage collector


def without_waiting(call: Callable[[], object]) -> None:
    """The call ends although another thread has the client's lock."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    assert not thread.is_alive()


def test_g4_future_is_dropped_while_another_thread_has_the_lock__nobody_waits(client: Client) -> None:
    futures = [client.submit(inc, n) for n in range(3)]
    client.gather(futures)
    with client._session.table.lock:
        without_waiting(futures.clear)


def test_g4_collected_in_a_cycle_while_another_thread_has_the_lock__nobody_waits(client: Client) -> None:
    cycle: list[Any] = [client.submit(inc, n) for n in range(3)]
    cycle.append(cycle)
    del cycle
    with client._session.table.lock:
        without_waiting(gc.collect)


def test_g4_collected_in_the_midst_of_a_submit__both_are_told_in_order(
    client: Client, idle: FakeScheduler
) -> None:
    class CollectsWhenPickled:
        def __reduce__(self) -> tuple[object, ...]:
            gc.collect()
            return (int, ())

    cycle: list[Any] = [client.submit(inc, n, key=f"x{n}") for n in range(3)]
    cycle.append(cycle)
    del cycle
    with client._session.table.lock:  # re-entrant: the collector may run anywhere below
        future = client.submit(inc, CollectsWhenPickled(), key="y")
        gc.collect()
    said = idle.wait_for(m.Release)
    assert sorted(key for each in said for key in each.keys) == ["x0", "x1", "x2"]
    client.status()  # behind all that was said
    assert idle.submitted() == ["x0", "x1", "x2", future.key]


def test_g4_future_is_dropped_in_the_loops_own_thread__is_released(
    client: Client, idle: FakeScheduler
) -> None:
    futures = [client.submit(inc, 1, key="x")]
    client._session.connection.loop.call_soon_threadsafe(futures.clear)
    assert idle.wait_for(m.Release) == [m.Release(["x"])]


# ------------------------------------------------------------------------------- G5, G7, G10, G11


def test_g5_given_up_and_used_again__all_goes_over_one_connection_in_the_order_of_the_calls(
    client: Client, idle: FakeScheduler
) -> None:
    idle.held = dict.fromkeys("yz", ("processing", -1, []))
    for n in range(500):
        future = client.submit(inc, n, key="y")
        if n % 2:
            future.cancel()
        del future
        graph = client.submit_graph({"y": Task(inc, n), "z": Task(inc, Ref("y"))}, ["z"])
        del graph
    client.status()
    life = [each for each in idle.said if not isinstance(each, (m.Functions, m.Query))]
    wanted: set[str] = set()
    for each in life:
        if isinstance(each, m.Submit):
            assert not wanted & set(each.keys)  # told to be given up before it is submitted again
            wanted.update(each.keys)
        elif isinstance(each, m.GraphCommit):
            wanted.update(each.wanted or ["y", "z"])
        elif isinstance(each, (m.Release, m.Cancel)):
            wanted.difference_update(each.keys)
    assert sum(isinstance(each, m.Cancel) for each in life) == 250


def test_g10_map_of_an_endless_stream__the_first_tasks_run_before_the_last_are_drawn(
    client: Client, scheduler: FakeScheduler
) -> None:
    ran: list[int] = []

    def items() -> Iterator[int]:
        for n in range(5_000):
            if n == 2_500:  # of two messages of a thousand, the first has been run by now, or will be
                ran.append(len(scheduler.wait_for(m.Submit)))
                assert scheduler.submitted()
            yield n

    futures = client.map(inc, items())
    assert ran and ran[0] >= 1
    assert client.gather(futures, timeout=TIMEOUT) == list(range(1, 5_001))


def test_g10_map_with_large_items__leaves_long_before_a_thousand_are_drawn(
    client: Client, scheduler: FakeScheduler
) -> None:
    def items() -> Iterator[bytes]:
        for n in range(20):
            if n == 10:
                scheduler.wait_for(m.Submit)
            yield bytes(100_000)

    assert client.gather(client.map(len, items()), timeout=TIMEOUT) == [100_000] * 20


def test_g11_answer_with_many_rows__nothing_is_cut_off(client: Client, scheduler: FakeScheduler) -> None:
    rows = [{"name": f"worker-{n}", "status": "running"} for n in range(3_000)]
    scheduler.answers["workers"] = lambda arguments: rows
    scheduler.answers["status"] = lambda arguments: {"workers": rows}
    scheduler.answers["story"] = lambda arguments: [f"line {n}" for n in range(3_000)]
    assert client.workers() == rows
    assert client.status() == {"workers": rows}
    assert len(client.story("x")) == 3_000
    futures = [client.submit(inc, n) for n in range(3_000)]
    client.gather(futures)
    for future in futures:
        scheduler.held[future.key] = ("memory", 3, [(4, "tcp://w:1")])
    assert len(client.who_has(futures)) == 3_000


# ------------------------------------------------------------------------------- N: systems


def calls_in(path: Path) -> Iterator[str]:
    """What is called in a source file, as it is written."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


#: N2: limited to 1,024 descriptors (512 on Windows). N3: what a fork inherits half-way. N4: deadlocks of profilers.
FORBIDDEN = {
    "select.select": "N2",
    "selectors.SelectSelector": "N2",
    "os.fork": "N3",
    "os.forkpty": "N3",
    "multiprocessing.Process": "N3",
    "sys._current_frames": "N4",
    "sys.setprofile": "N4",
    "threading.setprofile": "N4",
}


def test_n2_n3_n4_select_forks_and_profilers__are_nowhere_in_the_package() -> None:
    found = [f"{path.name}: {call}" for path in SOURCES for call in calls_in(path) if call in FORBIDDEN]
    assert SOURCES and found == []


@pytest.mark.skipif(sys.platform == "win32", reason="there the loop of a client is tested by its users")
def test_n2_more_descriptors_than_select_can_watch__clients_work(scheduler: FakeScheduler) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1_024 + 200
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"no more than {hard} descriptors are allowed here")
    raised = soft != resource.RLIM_INFINITY and soft < wanted
    if raised:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while taken[-1] < 1_024:
            taken.append(os.dup(taken[0]))
        with Client(scheduler.address, token=scheduler.token) as client:
            assert client.gather(client.map(inc, range(2_000)), timeout=TIMEOUT) == list(range(1, 2_001))
            assert client.submit(len, bytes(5_000_000)).result(TIMEOUT) == 5_000_000
    finally:
        for descriptor in taken:
            os.close(descriptor)
        if raised:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def run_script(tmp_path: Path, text: str, arguments: Sequence[str] = ()) -> list[str]:
    """A script in a process of its own: what it has printed. It ends well, and quietly."""
    script = tmp_path / "script.py"
    script.write_text(text)
    path = os.pathsep.join([str(Path(shunter.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = finished_process(["-W", "ignore", str(script), *arguments], env={**os.environ, "PYTHONPATH": path})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


FORKS = """
import gc, os, signal, sys, threading
from shunter import Client
from shunter.errors import UsageError

address, token = sys.argv[1:]
client = Client(address, token=token)
futures = client.map(abs, range(100))
held, go = threading.Event(), threading.Event()

def hold():
    with client._session.table.lock:  # in the child nobody will ever let go of it
        held.set()
        go.wait()

thread = threading.Thread(target=hold)
thread.start()
held.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(20)  # it hangs: let it fail
    for call in (lambda: client.submit(abs, 1), client.status, lambda: futures[0].cancel()):
        try:
            call()
        except UsageError as error:
            assert "before a fork" in str(error)
    futures.clear()
    gc.collect()
    client.close()
    with Client(address, token=token) as own:
        print(own.submit(abs, -5).result(30), flush=True)
    os._exit(0)
status = os.waitpid(pid, 0)[1]
go.set()
thread.join()
assert status == 0
print(sum(client.gather(futures)), flush=True)
client.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_n3_fork_while_a_thread_has_the_lock__child_is_told_or_works_and_the_parent_goes_on(
    scheduler: FakeScheduler, tmp_path: Path
) -> None:
    assert run_script(tmp_path, FORKS, [scheduler.address, scheduler.token]) == ["5", "4950"]


def test_n3_future_that_was_pending_at_the_fork__waiting_for_it_in_the_child_raises(
    client: Client, idle: FakeScheduler
) -> None:
    future = client.submit(inc, 1)
    _after_fork_in_child()  # what runs in the child
    for wait_for in (future.result, lambda timeout: client.gather([future], timeout=timeout)):
        with pytest.raises(UsageError, match="before a fork"):
            wait_for(0.01)


IMPORTS = """
import threading

def work():
    import shunter
    for name in shunter.__all__:
        getattr(shunter, name)
    with shunter.LocalCluster(1, 1, processes=False) as cluster, shunter.Client(cluster) as client:
        print(client.submit(pow, 2, 10).result(30), flush=True)

threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60)
"""


def test_n5_imported_and_used_by_background_threads_only__works(tmp_path: Path) -> None:
    assert run_script(tmp_path, IMPORTS) == ["1024", "1024"]


# ------------------------------------------------------------------------------- O4: unknown words


def test_o4_unknown_kind_of_failure__is_an_error_that_names_it(client: Client, idle: FakeScheduler) -> None:
    future = client.submit(inc, 1)
    idle.tell(m.Erred([future.key], [0], [m.Failure("eclipse", future.key, "no sun", "", [], {}, None)]))  # type: ignore[arg-type]
    with pytest.raises(ConnectionLost, match="eclipse"):
        future.result(TIMEOUT)


def test_o4_unknown_status_of_a_key_that_came_back__is_an_error_and_not_taken_for_pending(
    client: Client, idle: FakeScheduler
) -> None:
    idle.held["x"] = ("haywire", -1, [])
    with client._session.table.lock:  # so that it has come back when the loop looks behind the fence
        client.submit(inc, 1, key="x").cancel()
        future = client.submit(inc, 1, key="x")
    with pytest.raises(concurrent.futures.CancelledError, match="haywire"):
        future.result(TIMEOUT)
