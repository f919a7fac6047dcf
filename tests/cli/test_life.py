"""How a service's process starts and ends, with a false service in this process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from argparse import Namespace
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from shunter.cli import life

T = TypeVar("T")


class FalseService:
    """Starts unless told to fail; remembers what it was asked."""

    def __init__(self, *, fail: Exception | None = None) -> None:
        self.fail = fail
        self.asked: list[str] = []
        self.end: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        self.asked.append("start")
        if self.fail is not None:
            raise self.fail

    async def close(self, reason: str) -> None:
        self.asked.append(f"close: {reason}")

    async def finished(self) -> int:
        return await self.end

    async def never(self) -> dict[str, object]:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it in a loop whose signal handlers do not outlive it."""

    async def bounded() -> T:
        return await asyncio.wait_for(coroutine, 30)

    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        return asyncio.run(bounded())
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


async def serve(service: FalseService, ready_fd: int = -1, *, on_ready: Any = None) -> int:
    async def nothing() -> dict[str, object]:
        return {}

    options = Namespace(die_with_stdin=False, ready_fd=ready_fd)
    return await life.serve(service, options, on_ready=on_ready or nothing, finished=service.finished)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signal__service_is_closed_and_the_exit_code_is_0(signum: signal.Signals) -> None:
    async def story() -> tuple[int, list[str]]:
        service = FalseService()

        async def on_ready() -> dict[str, object]:
            os.kill(os.getpid(), signum)
            return {}

        return await serve(service, on_ready=on_ready), service.asked

    assert run(story()) == (0, ["start", f"close: stopped by {signum.name}"])


def test_signal_during_start__start_is_given_up() -> None:
    class Slow(FalseService):
        async def start(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            await self.end  # for ever

    async def story() -> tuple[int, list[str]]:
        service = Slow()
        return await serve(service), service.asked

    assert run(story()) == (0, ["close: stopped by SIGTERM"])


def test_service_ends_by_itself__its_exit_code() -> None:
    async def story() -> tuple[int, list[str]]:
        service = FalseService()
        service.end.set_result(7)
        return await serve(service), service.asked

    assert run(story()) == (7, ["start", "close: finished"])


def test_start_fails__closed_and_the_error_goes_on() -> None:
    asked: list[list[str]] = []

    async def story() -> None:
        service = FalseService(fail=OSError("port in use"))
        asked.append(service.asked)
        await serve(service)

    with pytest.raises(OSError, match="port in use"):
        run(story())
    assert asked == [["start", "close: finished"]]


def test_ready__the_starter_is_told_in_one_line() -> None:
    read_fd, write_fd = os.pipe()

    async def story() -> int:
        service = FalseService()

        async def on_ready() -> dict[str, object]:
            service.end.set_result(0)
            return {"address": "tcp://127.0.0.1:1"}

        return await serve(service, write_fd, on_ready=on_ready)

    assert run(story()) == 0
    with open(read_fd, encoding="utf-8") as file:
        assert [json.loads(line) for line in file] == [{"address": "tcp://127.0.0.1:1"}]


def test_service_ends_before_it_is_ready__its_exit_code_and_no_word_to_the_starter() -> None:
    read_fd, write_fd = os.pipe()

    async def story() -> int:
        service = FalseService()
        service.end.set_result(1)
        return await serve(service, write_fd, on_ready=service.never)

    assert run(story()) == 1
    os.close(write_fd)
    with open(read_fd, encoding="utf-8") as file:
        assert file.read() == ""
