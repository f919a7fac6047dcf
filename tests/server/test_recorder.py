"""The recorder: what a scheduler's state is given is in the file, and trouble with the file is no trouble for it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from shunter.errors import InternalError
from shunter.recording import LogReader, Replay
from shunter.server import recorder
from shunter.server.recorder import Recorder
from shunter.server.scheduler import Scheduler, true_state
from shunter.state import ClientAdded, ClientDesiresKeys, Event, Instruction, Settings, Tick, WorkerAdded
from tests.server.false import FalseState
from tests.server.harness import Running, run, until, with_scheduler
from tests.server.test_with_true_state import announce, run_all, submit


def recorded(path: Path) -> list[Event]:
    with LogReader(str(path)) as log:
        return [entry.event for entry in log]


def names_in(path: Path) -> list[str]:
    return [type(event).__name__ for event in recorded(path)]


def true(settings: Settings) -> dict[str, Any]:
    return {"make_state": true_state, "settings": settings}


def test_graph_runs_through_a_recorded_scheduler__its_replay_ends_alike(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    counts: list[dict[str, int]] = []

    async def story(s: Running) -> None:
        client, worker = await s.client(), await s.worker(clock=time.time())
        client.send(announce(), submit(["x", "y", "z"], [None, ["x"], ["y"]]))
        assert len(await run_all(worker, client, 3)) == 3

    with_scheduler(story, record=str(path), **true(Settings(slice=7, validate=True)))

    with LogReader(str(path)) as log:
        assert log.header.settings.slice == 7
        replay = Replay(log)
        while replay.ahead() is not None:
            replay.advance()
            counts.append(replay.view.counts())
    assert {"GraphBegin", "GraphPart", "GraphCommit", "TasksFinished"} <= set(replay.events)
    assert replay.instructions["ReportFinished"] >= 1
    assert max(each["memory"] for each in counts) >= 1
    assert replay.state.view().story("z")
    _, *lines = path.read_text().splitlines()
    assert not any("args" in line or "result" in line for line in lines)


def test_recorded_state__passes_on_everything_else() -> None:
    async def main() -> None:
        state = FalseState()
        wrapped = Recorder(state, Settings(), 0.0)
        state.next_deadline = 7.5

        wrapped.step(Tick(), 1.0)
        wrapped.watch(frozenset({"memory"}))
        wrapped.validate()

        assert (state.times, state.watched, wrapped.next_deadline) == ([1.0], frozenset({"memory"}), 7.5)
        view: object = wrapped.view()
        assert view is state.the_view
        assert wrapped.drain().instructions == []
        assert state.drains == 1
        wrapped.close()

    run(main())


def test_noted_event__in_the_file_before_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "FLUSH_S", 0.0)

    async def story(s: Running) -> None:
        await s.client()
        await s.steps(ClientAdded)
        await until(lambda: names_in(tmp_path / "run.log")[:1] == ["ClientAdded"])

    with_scheduler(story, record=str(tmp_path / "run.log"))


def test_state_breaks__event_that_broke_it_is_the_last_one_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.log"

    def react(event: Event) -> Iterable[Instruction]:
        if isinstance(event, WorkerAdded):
            assert "WorkerAdded" not in names_in(path)
            raise InternalError("a bug")
        return ()

    async def story(s: Running) -> None:
        await s.client()
        peer = await s.worker()
        assert "internal error" in await peer.closed()
        assert await s.scheduler.finished() == 70

    with_scheduler(story, FalseState(react), record=str(path))

    assert names_in(path)[-1] == "WorkerAdded"


def test_state_breaks__in_the_file_at_once(tmp_path: Path) -> None:
    """Not when the scheduler closes: it may not come to that."""

    def react(event: Event) -> Iterable[Instruction]:
        raise InternalError("a bug")

    async def main() -> None:
        wrapped = Recorder(FalseState(react), Settings(), 0.0)
        wrapped.open(str(tmp_path / "run.log"))
        with pytest.raises(InternalError):
            wrapped.step(Tick(), 1.0)
        assert names_in(tmp_path / "run.log") == ["Tick"]
        wrapped.close()

    run(main())


def test_event_that_cannot_be_written__recording_ends_with_a_warning__state_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        state = FalseState()
        wrapped = Recorder(state, Settings(), 0.0)
        wrapped.open(str(tmp_path / "run.log"))
        for event in (Tick(), ClientDesiresKeys(1, [frozenset("x")]), Tick()):
            wrapped.step(event, 1.0)
        wrapped.close()
        assert len(state.events) == 3

    with caplog.at_level(logging.WARNING, "shunter"):
        run(main())

    assert names_in(tmp_path / "run.log") == ["Tick"]
    (line,) = caplog.messages
    assert "ends here" in line and "frozenset is not JSON" in line and "run.log" in line


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_disk_is_full__recording_ends_with_a_warning__scheduler_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "FLUSH_S", 0.0)
    path = tmp_path / "run.log"

    async def story(s: Running) -> None:
        await s.client()
        await s.steps(ClientAdded)
        fill_disk_of(path)
        for name in ("a", "b"):
            await s.client(name)
        await s.steps(ClientAdded, 3)
        await until(lambda: bool(caplog.messages))

    with caplog.at_level(logging.WARNING, "shunter"):
        with_scheduler(story, record=str(path))

    (line,) = caplog.messages
    assert "ends here" in line and "No space left on device" in line


def fill_disk_of(path: Path) -> None:
    """Have whoever writes to this file in our process write to a full device."""
    theirs = next(int(fd) for fd in os.listdir("/proc/self/fd") if points_to(fd, path))
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, theirs)
    os.close(full)


def points_to(fd: str, path: Path) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{fd}") == str(path)
    except OSError:
        return False


def test_file_cannot_be_written__scheduler_does_not_start(tmp_path: Path) -> None:
    contact = tmp_path / "scheduler.json"

    async def main() -> None:
        path = str(tmp_path / "missing" / "run.log")
        scheduler = Scheduler(
            record=path, scheduler_file=str(contact), make_state=lambda s, now: FalseState()
        )
        with pytest.raises(FileNotFoundError) as caught:
            await scheduler.start()
        assert caught.value.filename == path
        assert await scheduler.finished() == 0
        assert not contact.exists()

    run(main())


def test_port_is_in_use__last_recording_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("of the last run")

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            scheduler = Scheduler(record=str(path), port=taken.getsockname()[1])
            with pytest.raises(OSError):
                await scheduler.start()
            await scheduler.close()

    run(main())

    assert path.read_text() == "of the last run"
    assert os.listdir(tmp_path) == ["run.log"]


def test_scheduler_closes__everything_is_in_the_file(tmp_path: Path) -> None:
    async def story(s: Running) -> None:
        await s.client()
        await s.steps(ClientAdded)
        await asyncio.sleep(0)

    with_scheduler(story, record=str(tmp_path / "run.log"))

    assert "ClientAdded" in names_in(tmp_path / "run.log")
