"""Task threads, the blame map, and handing back: without a worker around them."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shunter import serialize
from shunter.worker import context
from shunter.worker.blame import SLOTS, BlameMap, create_file
from shunter.worker.events import RunFailed, RunSeceded
from shunter.worker.functions import Function
from shunter.worker.handback import HandBack
from shunter.worker.store import Entry
from shunter.worker.threads import Finished, Job, Outcome, TaskThreads

PATIENCE = 20.0


class Pool:
    """Threads whose jobs call functions of this process."""

    def __init__(self, nthreads: int = 1) -> None:
        self.blame = BlameMap()
        self.outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self.threads = TaskThreads(nthreads, self.blame, self.outcomes.put)
        self.threads.start()

    def run(self, ticket: int, fn: Callable[..., Any], *args: object, inline_max: int = 0) -> None:
        call = serialize.dump_call((), {})[0]
        function = Function("fn", b"")
        function._callable = lambda: fn(*args)
        self.threads.submit([Job(ticket, f"key-{ticket}", function, call, None, inline_max)])

    def next(self) -> Outcome:
        return self.outcomes.get(timeout=PATIENCE)


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool()
    yield pool
    pool.threads.close()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def hold(started: threading.Event, gate: threading.Event) -> str:
    started.set()
    assert gate.wait(PATIENCE)
    return "held"


def test_jobs__end_in_order_with_their_values(pool: Pool) -> None:
    for ticket in range(5):
        pool.run(ticket, lambda ticket=ticket: ticket * 10)

    outcomes = [pool.next() for _ in range(5)]

    assert [each.value for each in outcomes if isinstance(each, Finished)] == [0, 10, 20, 30, 40]


def test_job_that_waits__can_be_taken_back_once(pool: Pool, gate: threading.Event) -> None:
    started = threading.Event()
    pool.run(1, hold, started, gate)
    pool.run(2, pytest.fail)
    assert started.wait(PATIENCE)

    assert pool.threads.revoke([1, 2, 3]) == [2]
    assert pool.threads.revoke([2]) == []

    gate.set()
    assert isinstance(pool.next(), Finished)


def test_job_taken_back_and_submitted_again__runs_once(pool: Pool, gate: threading.Event) -> None:
    started = threading.Event()
    ran: list[int] = []
    pool.run(1, hold, started, gate)
    pool.run(2, ran.append, 2)
    assert pool.threads.revoke([2]) == [2]
    pool.run(2, ran.append, 2)
    pool.run(3, ran.append, 3)

    gate.set()

    for _ in range(3):
        pool.next()
    assert ran == [2, 3]


def test_running_job__is_marked_and_the_mark_is_cleared(pool: Pool, gate: threading.Event) -> None:
    started = threading.Event()
    pool.run(7, hold, started, gate)
    assert started.wait(PATIENCE)
    assert pool.blame.started() == [7]

    gate.set()
    pool.next()

    assert pool.blame.started() == []


def test_running_job_is_renamed__the_new_run_is_marked(pool: Pool, gate: threading.Event) -> None:
    started = threading.Event()
    pool.run(7, hold, started, gate)
    assert started.wait(PATIENCE)

    pool.threads.rename(7, 8)

    assert pool.blame.started() == [8]


def test_waiting_job_is_renamed__the_new_run_is_marked_when_it_starts(
    pool: Pool, gate: threading.Event
) -> None:
    first = threading.Event()
    second = threading.Event()
    other = threading.Event()
    pool.run(1, hold, first, gate)
    pool.run(2, hold, second, other)
    assert first.wait(PATIENCE)
    pool.threads.rename(2, 9)

    gate.set()
    assert second.wait(PATIENCE)

    assert pool.blame.started() == [9]
    other.set()


def test_job_secedes__another_thread_takes_its_place(pool: Pool, gate: threading.Event) -> None:
    def long() -> str:
        context.secede()
        return hold(threading.Event(), gate)

    pool.run(1, long)
    pool.run(2, lambda: threading.current_thread().name)

    assert isinstance(pool.next(), RunSeceded)
    other = pool.next()
    assert isinstance(other, Finished)
    assert other.ticket == 2
    gate.set()
    assert pool.next().ticket == 1  # type: ignore[union-attr]  # a Finished


def test_closed_while_a_job_runs__its_end_is_not_handed_back(gate: threading.Event) -> None:
    pool = Pool()
    started = threading.Event()
    pool.run(1, hold, started, gate)
    assert started.wait(PATIENCE)
    thread = next(each for each in threading.enumerate() if each.name == "shunter-task-2")

    pool.threads.close()
    gate.set()
    thread.join(PATIENCE)

    assert not thread.is_alive()
    assert pool.outcomes.empty()


def test_small_value__is_pickled_with_the_report(pool: Pool) -> None:
    pool.run(1, lambda: "small", inline_max=100)

    outcome = pool.next()

    assert isinstance(outcome, Finished)
    assert outcome.data is not None
    assert serialize.load_value([outcome.data]) == "small"


@pytest.mark.parametrize("value", ["x" * 101, b"x" * 100_000, threading.Lock(), lambda: 1])
def test_value_too_large_or_unpicklable__is_not(pool: Pool, value: object) -> None:
    pool.run(1, lambda: value, inline_max=100)

    outcome = pool.next()

    assert isinstance(outcome, Finished)
    assert outcome.data is None or len(outcome.data) <= 100


def test_exception_that_cannot_be_formatted__ends_the_task_all_the_same(pool: Pool) -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def fail() -> None:
        raise Hostile

    pool.run(1, fail)

    assert isinstance(pool.next(), RunFailed)
    pool.run(2, lambda: 1)
    assert isinstance(pool.next(), Finished)


def test_inputs__are_the_jobs_own(pool: Pool) -> None:
    function = Function("fn", serialize.dump_function(len))
    data = serialize.dump_call(([1, 2, 3],), {})[0]
    pool.threads.submit([Job(1, "key", function, data, {"x": Entry(1, 28)}, 0)])

    outcome = pool.next()

    assert isinstance(outcome, Finished)
    assert outcome.value == 3


# ------------------------------------------------------------------------------------------- blame map


def test_blame_map_in_a_file__both_sides_see_it() -> None:
    path = create_file()
    try:
        parent, worker = BlameMap(path), BlameMap(path)
        assert (parent.number, parent.departed, parent.started()) == (-1, False, [])
        assert os.stat(path).st_mode & 0o077 == 0

        worker.register(12)
        slot = worker.take_slot()
        worker.start(slot, 2**60)
        assert (parent.number, parent.started()) == (12, [2**60])

        worker.end(slot)
        worker.depart()
        assert (parent.departed, parent.started()) == (True, [])
        parent.close()
        worker.close()
    finally:
        os.unlink(path)


def test_more_threads_than_slots__the_rest_is_not_marked_and_does_no_harm() -> None:
    blame = BlameMap()
    slots = [blame.take_slot() for _ in range(SLOTS)]
    assert -1 not in slots
    extra = blame.take_slot()
    assert extra == -1

    blame.start(extra, 5)
    blame.end(extra)
    blame.rename(extra, 6)
    blame.give_slot_back(extra)

    assert blame.started() == []
    blame.give_slot_back(slots[0])
    assert blame.take_slot() == slots[0]


def test_run_has_ended__a_late_rename_marks_nothing() -> None:
    blame = BlameMap()
    slot = blame.take_slot()
    blame.start(slot, 1)
    blame.end(slot)

    blame.rename(slot, 2)

    assert blame.started() == []


def test_other_file__is_no_blame_map(tmp_path: Any) -> None:
    path = tmp_path / "other"
    path.write_bytes(b"x" * 100)

    with pytest.raises(ValueError, match="no blame map"):
        BlameMap(str(path))


# ------------------------------------------------------------------------------------------- hand back


def test_items_from_many_threads__all_arrive_in_order_of_each_with_few_wakeups() -> None:
    n, threads = 2_000, 4
    got: list[tuple[int, int]] = []
    batches: list[int] = []

    async def run() -> None:
        done = asyncio.Event()

        def receive(items: list[tuple[int, int]]) -> None:
            batches.append(len(items))
            got.extend(items)
            if len(got) == n * threads:
                done.set()

        back: HandBack[tuple[int, int]] = HandBack(asyncio.get_running_loop(), receive)

        def put(thread: int) -> None:
            for i in range(n):
                back.put((thread, i))

        senders = [threading.Thread(target=put, args=(t,)) for t in range(threads)]
        for sender in senders:
            sender.start()
        await asyncio.wait_for(done.wait(), PATIENCE)
        for sender in senders:
            sender.join()

    asyncio.run(run())

    for thread in range(threads):
        assert [i for t, i in got if t == thread] == list(range(n))


def test_loop_is_closed__items_go_nowhere() -> None:
    loop = asyncio.new_event_loop()
    back: HandBack[int] = HandBack(loop, lambda items: pytest.fail(str(items)))
    loop.close()

    back.put(1)
