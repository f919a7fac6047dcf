"""The worker as a whole, in this process, against a fake scheduler."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import wraps
from typing import Any, ClassVar

import pytest

from shunter import serialize
from shunter.errors import ConnectionLost, PeerError, UsageError
from shunter.wire import messages
from shunter.wire.bulk import DataPool
from shunter.worker import context
from shunter.worker.worker import Worker
from tests.worker.fake_scheduler import PATIENCE, TOKEN, FakeScheduler, Running


def in_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run an async test on a loop of its own."""

    @wraps(test)
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), 2 * PATIENCE))

    return run


class Gate:
    """Lets tests hold tasks up, by name. Tasks run in threads of this process."""

    events: ClassVar[dict[str, threading.Event]] = {}

    @classmethod
    def event(cls, name: str) -> threading.Event:
        return cls.events.setdefault(name, threading.Event())


@pytest.fixture(autouse=True)
def open_gates() -> Iterator[None]:
    Gate.events.clear()
    yield
    for event in Gate.events.values():
        event.set()


def add(*numbers: Any) -> Any:
    return sum(numbers)


def wait_at(name: str) -> str:
    Gate.event(f"{name} has started").set()
    assert Gate.event(name).wait(PATIENCE)
    return name


async def has_started(name: str) -> None:
    started = await asyncio.to_thread(Gate.event(f"{name} has started").wait, PATIENCE)
    assert started


def fail(text: str) -> None:
    raise KeyError(text)


def double(value: Any) -> Any:
    return value + value


def make_bytes(n: int) -> bytes:
    return b"x" * n


def make_lock() -> object:
    return threading.Lock()


async def wait_in_coroutine(name: str) -> str:
    Gate.event(f"{name} has started").set()
    while not Gate.event(name).is_set():
        await asyncio.sleep(0.001)
    return f"{name} {threading.current_thread().name}"


def give_slot_away(name: str) -> str:
    context.secede()
    context.secede()
    return wait_at(name)


def try_later() -> None:
    raise context.Reschedule


def who_am_i() -> tuple[str, int]:
    task = context.current_task()
    assert task is not None
    return task.key, task.run_id


def leave() -> None:
    sys.exit(5)


def refuse_to_load() -> None:
    raise ImportError("no module named 'left_at_home'")


class Counted:
    """A function that counts how often it was unpickled."""

    loaded = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return count, ()


def count() -> Callable[..., Any]:
    Counted.loaded += 1
    return add


class Unreadable:
    """Arguments, or a function, that cannot be unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return refuse_to_load, ()


# ------------------------------------------------------------------------------------------- tasks


@in_loop
async def test_task__runs_and_its_small_result_comes_along() -> None:
    async with Running() as r:
        (peer,) = r.peers
        peer.compute("x", 1, add, 1, 2)

        assert await peer.result("x") == 3
        assert peer.last["run_ids"] == 1
        assert peer.last["types"] == "builtins.int"
        assert peer.last["durations"] >= 0


@in_loop
async def test_large_result__is_not_sent_along_and_can_be_fetched() -> None:
    async with Running() as r:
        (peer,) = r.peers
        peer.compute("x", 1, make_bytes, 100_000)

        assert await peer.result("x") is None
        assert peer.last["nbytes"] >= 100_000
        assert await fetch(r.workers[0], "x") == b"x" * 100_000


@in_loop
async def test_scheduler_wants_no_result__none_is_sent_along() -> None:
    async with Running() as r:
        (peer,) = r.peers
        peer.compute("x", 1, add, 1, inline_max=0)

        assert await peer.result("x") is None


@in_loop
async def test_many_tasks__function_is_unpickled_once() -> None:
    Counted.loaded = 0
    async with Running(nthreads=2) as r:
        (peer,) = r.peers
        for i in range(50):
            peer.compute(f"x{i}", i, add, i, blob=pickle.dumps(Counted()))
        for i in range(50):
            assert await peer.result(f"x{i}") == i

    assert Counted.loaded == 1


@in_loop
async def test_inputs_are_here__the_task_gets_their_values() -> None:
    async with Running() as r:
        (peer,) = r.peers
        peer.compute("x", 1, add, 1)
        await peer.result("x")
        peer.compute("y", 2, add, arguments=call_with("x", 10), inputs=[("x", 28, [peer.number])])

        assert await peer.result("y") == 11


@in_loop
async def test_input_is_on_a_peer__is_fetched_and_reported() -> None:
    async with Running(2) as r:
        first, second = r.peers
        first.compute("x", 1, make_bytes, 2_000_000)
        await first.result("x")

        second.compute("y", 2, double, arguments=call_with("x"), inputs=[("x", 2_000_000, [first.number])])

        await second.result("y")
        assert (await second.hear(messages.Added)).keys == ["x"]
        assert await fetch(r.workers[1], "y") == b"x" * 4_000_000


@in_loop
async def test_task_fails__exception_travels_with_its_traceback() -> None:
    async with Running() as r:
        (peer,) = r.peers
        peer.compute("x", 1, fail, "lost")

        failure = await peer.failure("x")

        assert (failure.run_id, failure.kind, failure.types[0]) == (1, "exception", "builtins.KeyError")
        assert "in fail" in failure.traceback
        assert "shunter/worker" not in failure.traceback
        assert failure.data is not None
        assert isinstance(pickle.loads(failure.data), KeyError)


@in_loop
async def test_task_leaves_the_interpreter__fails_and_the_worker_goes_on() -> None:
    async with Running() as r:
        (peer,) = r.peers
        peer.compute("x", 1, leave)
        assert (await peer.failure("x")).types[0] == "builtins.SystemExit"

        peer.compute("y", 2, add, 1)
        assert await peer.result("y") == 1


@in_loop
async def test_function_cannot_be_unpickled__failure_names_function_and_task() -> None:
    async with Running() as r:
        (peer,) = r.peers
        peer.compute("x", 1, add, blob=pickle.dumps(Unreadable()))

        failure = await peer.failure("x")

        assert failure.kind == "serialization"
        assert "function add of task 'x'" in failure.text
        assert "left_at_home" in failure.text


@in_loop
async def test_arguments_cannot_be_unpickled__failure_names_the_task() -> None:
    async with Running() as r:
        (peer,) = r.peers
        peer.compute("x", 1, add, arguments=pickle.dumps(((Unreadable(),), {})))

        failure = await peer.failure("x")

        assert failure.kind == "serialization"
        assert "arguments of task 'x' (add)" in failure.text
        assert "left_at_home" in failure.text


@in_loop
async def test_result_cannot_be_pickled__task_finishes_and_who_fetches_it_is_told() -> None:
    async with Running(2) as r:
        first, second = r.peers
        first.compute("lock", 1, make_lock)
        assert await first.result("lock") is None

        with pytest.raises(UsageError, match=r"'lock' cannot be pickled.*_thread.lock"):
            await fetch(r.workers[0], "lock")
        second.compute("y", 2, double, arguments=call_with("lock"), inputs=[("lock", 8, [first.number])])
        failure = await second.failure("y")
        assert failure.kind == "serialization"
        assert "input 'lock' of task 'y'" in failure.text


@in_loop
async def test_result_cannot_be_pickled__tasks_on_this_worker_can_use_it() -> None:
    async with Running() as r:
        (peer,) = r.peers
        peer.compute("lock", 1, make_lock)
        await peer.result("lock")
        peer.compute("y", 2, repr, arguments=call_with("lock"), inputs=[("lock", 8, [peer.number])])

        assert "lock" in str(await peer.result("y"))


@in_loop
async def test_task_reschedules_itself__scheduler_is_told() -> None:
    async with Running() as r:
        (peer,) = r.peers
        peer.compute("x", 7, try_later)

        assert await peer.hear(messages.Rescheduled) == messages.Rescheduled("x", 7)


@in_loop
async def test_task_asks_who_it_is__is_told() -> None:
    async with Running() as r:
        (peer,) = r.peers
        peer.compute("x", 7, who_am_i)

        assert await peer.result("x") == ("x", 7)


def test_outside_of_tasks__there_is_no_current_task() -> None:
    assert context.current_task() is None
    with pytest.raises(UsageError, match="outside of a task"):
        context.secede()


@in_loop
async def test_task_secedes__others_run_and_it_ends_well() -> None:
    async with Running() as r:
        (peer,) = r.peers
        peer.compute("long", 1, give_slot_away, "long")
        assert (await peer.hear(messages.LongRunning)).key == "long"
        peer.compute("x", 2, add, 1)
        assert await peer.result("x") == 1

        Gate.event("long").set()
        assert await peer.result("long") == "long"


@in_loop
async def test_coroutine__runs_on_a_thread_of_its_own_and_counts_as_a_task() -> None:
    async with Running() as r:
        (peer,) = r.peers
        peer.compute("c", 1, wait_in_coroutine, "c")
        await has_started("c")
        peer.compute("x", 2, add, 1)
        peer.say(messages.TakeBack([1, 2]))
        assert (await peer.hear(messages.TakenBack)).given == [2]

        Gate.event("c").set()
        assert await peer.result("c") == "c shunter-coroutines"


@in_loop
async def test_results_are_handed_back_at_once__although_a_long_task_follows() -> None:
    async with Running() as r:
        (peer,) = r.peers
        for i in range(20):
            peer.compute(f"x{i}", i, add, i)
        peer.compute("long", 99, wait_at, "long")
        await has_started("long")

        for i in range(20):
            assert await peer.result(f"x{i}") == i
        Gate.event("long").set()
        assert await peer.result("long") == "long"


# ------------------------------------------------------------------------------------------- free, take back


@in_loop
async def test_take_back__what_has_started_goes_on_and_the_rest_is_given() -> None:
    async with Running() as r:
        (peer,) = r.peers
        peer.compute("a", 1, wait_at, "a")
        await has_started("a")
        peer.compute("b", 2, add, 1)

        peer.say(messages.TakeBack([1, 2]))

        assert await peer.hear(messages.TakenBack) == messages.TakenBack([1, 2], [2])
        Gate.event("a").set()
        assert await peer.result("a") == "a"


@in_loop
async def test_freed_while_it_runs_and_asked_for_again__is_reported_under_the_new_run() -> None:
    async with Running() as r:
        (peer,) = r.peers
        peer.compute("a", 1, wait_at, "a")
        await has_started("a")
        peer.say(messages.Free(["a"]))
        peer.compute("a", 2, wait_at, "a")
        peer.say(messages.TakeBack([404]))
        await peer.hear(messages.TakenBack)  # So it has heard all before.

        Gate.event("a").set()

        await peer.result("a")
        assert peer.last["run_ids"] == 2


@in_loop
async def test_freed_value__is_gone() -> None:
    async with Running() as r:
        (peer,) = r.peers
        peer.compute("x", 1, add, 1)
        await peer.result("x")
        peer.say(messages.Free(["x"]))
        peer.compute("y", 2, add, 1)
        await peer.result("y")

        assert await missing(r.workers[0], "x")


@in_loop
async def test_copy_is_acquired__and_removed() -> None:
    async with Running(2) as r:
        first, second = r.peers
        first.compute("x", 1, add, 5)
        await first.result("x")

        second.say(messages.Acquire(["x"], [28], [1], [[first.number]]))
        assert (await second.hear(messages.Added)).keys == ["x"]
        assert await fetch(r.workers[1], "x") == 5

        second.say(messages.Remove(["x"]))
        second.compute("y", 2, add, 1)
        await second.result("y")
        assert await missing(r.workers[1], "x")


@in_loop
async def test_holder_is_not_there__scheduler_is_asked_and_its_answer_helps() -> None:
    async with Running(2) as r:
        first, second = r.peers
        first.compute("x", 1, add, 5)
        await first.result("x")
        second.say(messages.Peers([77], ["tcp://127.0.0.1:1"]))
        second.compute("y", 2, double, arguments=call_with("x"), inputs=[("x", 28, [77])])

        wanted = await second.hear(messages.WhoHasWanted)

        assert (wanted.keys, wanted.failed) == (["x"], [77])
        second.say(messages.WhoHas(["x"], [[first.number]]))
        assert await second.result("y") == 10


@in_loop
async def test_client_puts_a_value__tasks_and_others_can_use_it() -> None:
    async with Running() as r:
        (peer,) = r.peers
        pool = DataPool(TOKEN)
        try:
            values = {"x": serialize.dump_value([1, 2, 3])}
            (nbytes,) = await asyncio.to_thread(pool.put, r.workers[0].address, values)
        finally:
            pool.close()
        assert nbytes > 0

        assert await fetch(r.workers[0], "x") == [1, 2, 3]
        peer.compute("y", 1, double, arguments=call_with("x"), inputs=[("x", nbytes, [peer.number])])
        assert await peer.result("y") == [1, 2, 3, 1, 2, 3]


@in_loop
async def test_client_puts_what_cannot_be_unpickled__is_told() -> None:
    async with Running() as r:
        pool = DataPool(TOKEN)
        try:
            with pytest.raises(PeerError, match=r"'x' cannot be unpickled on the worker.*left_at_home"):
                await asyncio.to_thread(pool.put, r.workers[0].address, {"x": [pickle.dumps(Unreadable())]})
        finally:
            pool.close()


# ------------------------------------------------------------------------------------------- life


@in_loop
async def test_heartbeats__tell_memory_and_cpu() -> None:
    async with Running() as r:
        beat = await r.peers[0].hear(messages.WorkerHeartbeat)

        assert beat.process > 1_000_000
        assert beat.spilled == 0


@in_loop
async def test_asked_whether_it_lives__answers_at_once() -> None:
    async with FakeScheduler(heartbeat=1_000.0) as scheduler:
        worker = Worker(scheduler.address, token=TOKEN)
        await worker.start()
        try:
            peer = await scheduler.worker()
            peer.say(messages.Heartbeat())
            assert (await peer.hear(messages.WorkerHeartbeat)).process > 1_000_000
        finally:
            await worker.close()


@in_loop
async def test_paused__starts_again_when_told() -> None:
    async with Running() as r:
        (peer,) = r.peers
        peer.say(messages.Status("paused"))
        peer.compute("x", 1, add, 1)
        peer.say(messages.TakeBack([404]))
        assert await peer.hear(messages.TakenBack) == messages.TakenBack([404], [])
        assert peer.said == [each for each in peer.said if isinstance(each, messages.WorkerHeartbeat)]

        peer.say(messages.Status("running"))
        assert await peer.result("x") == 1


@in_loop
async def test_closed__says_goodbye() -> None:
    async with Running() as r:
        (peer,) = r.peers
        await r.workers[0].close("that is enough")

        assert (await peer.hear(messages.Goodbye)).reason == "that is enough"
        await asyncio.wait_for(peer.is_gone.wait(), PATIENCE)
        assert await r.workers[0].finished() == "that is enough"
        assert not r.workers[0].was_lost


@in_loop
async def test_closed_while_a_task_runs__does_not_wait_for_it() -> None:
    async with Running() as r:
        r.peers[0].compute("a", 1, wait_at, "a")
        await has_started("a")

        await asyncio.wait_for(r.workers[0].close(), PATIENCE)

        assert not Gate.event("a").is_set()


@in_loop
async def test_closed_while_a_coroutine_runs__it_is_cancelled() -> None:
    async with Running() as r:
        r.peers[0].compute("c", 1, wait_in_coroutine, "c")
        await has_started("c")
        await r.workers[0].close()

    await asyncio.to_thread(join_threads, "shunter-coroutines")


@in_loop
async def test_scheduler_goes_away__the_worker_ends_and_tells_so() -> None:
    async with Running() as r:
        r.peers[0].link.abort("the plug was pulled")

        reason = await asyncio.wait_for(r.workers[0].finished(), PATIENCE)

        assert reason
        assert r.workers[0].was_lost


@in_loop
async def test_scheduler_asks_the_worker_to_leave__it_says_goodbye() -> None:
    async with Running() as r:
        r.peers[0].say(messages.Status("closed"))

        await r.peers[0].hear(messages.Goodbye)
        await asyncio.wait_for(r.workers[0].finished(), PATIENCE)
        assert not r.workers[0].was_lost


@in_loop
async def test_scheduler_is_not_there__start_raises_and_leaves_nothing_open() -> None:
    worker = Worker("tcp://127.0.0.1:1", token=TOKEN)
    with pytest.raises(ConnectionLost):
        await worker.start()
    await worker.close()


@in_loop
async def test_token_is_wrong__start_raises() -> None:
    async with FakeScheduler() as scheduler:
        with pytest.raises(PeerError):
            await Worker(scheduler.address, token="another").start()


@in_loop
async def test_scheduler_refuses__start_raises_its_reason() -> None:
    async with FakeScheduler(refuse="the name 'a' is in use") as scheduler:
        with pytest.raises(PeerError, match="the name 'a' is in use"):
            await Worker(scheduler.address, token=TOKEN, name="a").start()


@in_loop
async def test_worker_tells_about_itself() -> None:
    async with Running(nthreads=3, name="w", resources={"GPU": 2.0}, memory_limit=10**9, parent=5) as r:
        details = r.peers[0].link.peer_details

        assert details["name"] == "w"
        assert details["nthreads"] == 3
        assert details["resources"] == {"GPU": 2.0}
        assert details["memory_limit"] == 10**9
        assert details["parent"] == 5
        assert details["pid"] == os.getpid()
        assert details["address"] == r.workers[0].address


@in_loop
async def test_worker_in_this_process__leaves_the_process_alone() -> None:
    before = sys.getswitchinterval(), gc.get_freeze_count(), gc.get_threshold()
    async with Running() as r:
        r.peers[0].compute("x", 1, add, 1)
        await r.peers[0].result("x")

        assert (sys.getswitchinterval(), gc.get_freeze_count(), gc.get_threshold()) == before


@in_loop
async def test_internal_error__the_worker_ends_and_says_that_it_failed() -> None:
    async with Running() as r:
        (worker,) = r.workers
        worker._functions.get = broken  # type: ignore[method-assign]  # a bug, planted
        r.peers[0].compute("x", 1, add, 1)

        await asyncio.wait_for(worker.finished(), PATIENCE)

        assert worker.has_failed


def broken(number: int) -> Any:
    raise RuntimeError("planted by a test")


def test_no_threads__is_refused() -> None:
    with pytest.raises(UsageError, match="nthreads"):
        Worker("tcp://127.0.0.1:1", token=TOKEN, nthreads=0)


# ------------------------------------------------------------------------------------------- helpers


def call_with(key: str, *more: object) -> bytes:
    """The pickled call ``(value of key, *more)``."""
    return serialize.dump_call((Reference(key), *more), {})[0]


class Reference:
    """Stands for the value of a key, as futures do."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __reduce__(self) -> Any:
        return serialize.reference(self.key)


async def fetch(worker: Worker, key: str) -> object:
    pool = DataPool(TOKEN)
    try:
        found, _ = await asyncio.to_thread(pool.get, worker.address, [key])
        return serialize.load_value(found[key])
    finally:
        pool.close()


async def missing(worker: Worker, key: str) -> bool:
    pool = DataPool(TOKEN)
    try:
        return (await asyncio.to_thread(pool.get, worker.address, [key]))[1] == [key]
    finally:
        pool.close()


def join_threads(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(PATIENCE)
            assert not thread.is_alive()
