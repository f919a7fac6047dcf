"""The parent, with real processes. Few, because each costs a process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import pytest

from shunter.errors import ConnectionLost, UsageError
from shunter.wire import messages
from shunter.worker import exits
from shunter.worker.parent import Parent
from tests.worker.fake_scheduler import PATIENCE, TOKEN, FakeScheduler

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and process groups")


def in_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), 3 * PATIENCE))

    return run


class Family:
    """A fake scheduler and a parent with its children."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    async def __aenter__(self) -> Family:
        self.scheduler = await FakeScheduler().__aenter__()
        self.parent = Parent(self.scheduler.address, token=TOKEN, **self.options)
        await self.parent.start()
        self.peer = await self.scheduler.parent()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await asyncio.wait_for(self.parent.close(), PATIENCE)
        await self.scheduler.__aexit__(None, None, None)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def is_gone(pid: int) -> None:
    """Wait until a process has ended and its parent, or init, has taken notice."""
    deadline = time.monotonic() + PATIENCE
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} still lives"
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return  # A zombie, if this container's init takes no notice.
        except OSError:
            pass  # Gone just now, or no such file on this system.
        await asyncio.sleep(0.01)


async def run_and_start(peer: Any, key: str, run_id: int, fn: Callable[..., Any], *args: object) -> None:
    """Have a worker run something that never ends, and wait until it has started."""
    given = [run_id]
    while given:  # Taken back before a thread had started it: once more.
        peer.compute(key, run_id, fn, *args)
        await asyncio.sleep(0)
        peer.say(messages.TakeBack([run_id]))
        given = (await peer.hear(messages.TakenBack)).given


@in_loop
async def test_worker_is_killed__cause_and_started_runs_are_told_and_another_comes() -> None:
    async with Family(nthreads=2, name="w") as family:
        worker = await family.scheduler.worker()
        assert worker.link.peer_details["parent"] == family.peer.number
        worker.compute("done", 1, abs, -1)
        await worker.result("done")
        await run_and_start(worker, "long", 2, time.sleep, 1000)
        worker.compute("waits", 3, time.sleep, 1000)
        (pid,) = family.parent.pids

        os.kill(pid, signal.SIGKILL)

        died = await family.peer.hear(messages.Died)
        assert died.cause == "signal 9 (SIGKILL)"
        assert died.worker == worker.number
        assert set(died.started) <= {2, 3}
        assert 2 in died.started
        again = await family.scheduler.worker(1)
        assert again.link.peer_details["name"] == "w"
        again.compute("x", 9, abs, -5)
        assert await again.result("x") == 5
        assert len(family.parent.pids) == 1


@in_loop
async def test_worker_segfaults__the_task_that_ran_is_told() -> None:
    import ctypes

    async with Family() as family:
        worker = await family.scheduler.worker()
        worker.compute("crash", 7, ctypes.string_at, 0)

        died = await family.peer.hear(messages.Died)

        assert died == messages.Died(worker.number, "signal 11 (SIGSEGV)", [7])


@in_loop
async def test_task_ends_its_process__exit_code_is_told() -> None:
    async with Family() as family:
        worker = await family.scheduler.worker()
        worker.compute("leave", 7, os._exit, 0)

        assert await family.peer.hear(messages.Died) == messages.Died(worker.number, "exit code 0", [7])


@in_loop
async def test_scheduler_has_a_worker_killed__the_reason_is_told() -> None:
    async with Family(nworkers=2) as family:
        worker = await family.scheduler.worker(0)
        await family.scheduler.worker(1)

        family.peer.say(messages.Kill(worker.number, "it uses too much memory"))

        died = await family.peer.hear(messages.Died)
        assert died.worker == worker.number
        assert died.cause == "signal 9 (SIGKILL): it uses too much memory"


@in_loop
async def test_worker_is_replaced_more_often_than_the_parent_bears_bad_starts__another_comes_at_once() -> (
    None
):
    async with Family(give_up=2) as family:
        for n in range(5):  # With pauses that double, the last one would be 1.6 s.
            worker = await family.scheduler.worker(n)
            family.peer.say(messages.Kill(worker.number, ""))
            assert (await family.peer.hear(messages.Died)).worker == worker.number
        await family.scheduler.worker(5)


@in_loop
async def test_worker_says_goodbye_while_it_is_to_be_replaced__another_comes() -> None:
    async with Family() as family:
        worker = await family.scheduler.worker()
        family.peer.say(messages.Kill(worker.number, "restart"))
        worker.say(messages.Status("closed"))
        await family.scheduler.worker(1)


@in_loop
async def test_closed_while_a_task_runs__all_processes_end_and_no_death_is_told() -> None:
    async with Family(nworkers=2) as family:
        workers = [await family.scheduler.worker(i) for i in range(2)]
        await run_and_start(workers[0], "long", 1, time.sleep, 1000)
        pids = family.parent.pids
        assert len(pids) == 2

    for pid in pids:
        assert not is_alive(pid)
    assert [type(each) for each in family.peer.said if isinstance(each, messages.Died)] == []
    assert [type(each) for each in workers[0].said if isinstance(each, messages.Goodbye)] == [
        messages.Goodbye
    ]


@in_loop
async def test_scheduler_says_that_it_ends__the_parent_ends() -> None:
    async with Family() as family:
        await family.scheduler.worker()

        family.peer.say(messages.Closing("shut down"))

        assert await asyncio.wait_for(family.parent.finished(), PATIENCE) == exits.OK


@in_loop
async def test_all_workers_are_asked_to_leave__the_parent_ends_without_deaths() -> None:
    async with Family() as family:
        worker = await family.scheduler.worker()

        worker.say(messages.Status("closed"))

        assert await asyncio.wait_for(family.parent.finished(), PATIENCE) == exits.OK
        assert [each for each in family.peer.said if isinstance(each, messages.Died)] == []


@in_loop
async def test_workers_die_as_soon_as_they_start__the_parent_gives_up_with_one_line() -> None:
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.ERROR:
                lines.append(record.getMessage())

    handler = Lines()
    logging.getLogger("shunter.parent").addHandler(handler)
    try:
        # Workers that cannot listen: 192.0.2.1 is nobody's address.
        async with Family(host="192.0.2.1", give_up=2) as family:
            assert await asyncio.wait_for(family.parent.finished(), PATIENCE) == exits.GIVEN_UP
    finally:
        logging.getLogger("shunter.parent").removeHandler(handler)
    (line,) = lines
    assert "giving up: worker (not joined yet) died 2 times in a row" in line
    assert "exit code 1" in line


@in_loop
async def test_parent_is_killed__its_child_ends_although_a_task_runs() -> None:
    async with FakeScheduler() as scheduler:
        code = (
            "import asyncio, sys\n"
            "from shunter.worker.parent import Parent\n"
            "async def main():\n"
            "    parent = Parent(sys.argv[1], token=sys.argv[2])\n"
            "    await parent.start()\n"
            "    await parent.finished()\n"
            "asyncio.run(main())\n"
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, scheduler.address, TOKEN, stdin=subprocess.DEVNULL
        )
        worker = await scheduler.worker()
        await run_and_start(worker, "long", 1, time.sleep, 1000)
        pid = worker.link.peer_details["pid"]
        assert isinstance(pid, int)

        process.kill()
        await process.wait()

        await worker.hear(messages.Goodbye)
        await asyncio.wait_for(is_gone(pid), PATIENCE)


@in_loop
async def test_worker_process_without_configuration__says_what_to_use_instead() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shunter.worker", stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    )

    _, text = await asyncio.wait_for(process.communicate(), PATIENCE)

    assert process.returncode == exits.USAGE
    assert b"shunter worker" in text
    assert len(text.splitlines()) == 1


# ------------------------------------------------------------------------------------------- without processes


@in_loop
async def test_scheduler_is_not_there__start_raises() -> None:
    with pytest.raises(ConnectionLost):
        await Parent("tcp://127.0.0.1:1", token=TOKEN).start()


def test_one_port_for_two_workers__is_refused() -> None:
    with pytest.raises(UsageError, match="one worker only"):
        Parent("tcp://127.0.0.1:1", token=TOKEN, nworkers=2, port=5)


@pytest.mark.parametrize("options", [{"nworkers": 0}, {"nthreads": 0}])
def test_nothing_to_run__is_refused(options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        Parent("tcp://127.0.0.1:1", token=TOKEN, **options)  # type: ignore[arg-type]  # rows of the table
