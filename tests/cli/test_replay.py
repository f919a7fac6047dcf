"""``shunter replay``: what it prints, where it stops, and how it ends."""

from __future__ import annotations

import builtins
import io
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shunter
from shunter.cli import replay as command
from shunter.cli.main import main
from shunter.errors import InternalError
from shunter.recording import replay as replaying
from shunter.state import (
    DEFAULT_OPTIONS,
    ClientAdded,
    Event,
    GraphBegin,
    GraphCommit,
    GraphPart,
    SchedulerState,
    Settings,
    TasksFinished,
    WorkerAdded,
)
from tests.cli.processes import finished
from tests.recording.recorded import record
from tests.server.harness import Running, with_scheduler
from tests.server.test_recorder import true
from tests.server.test_with_true_state import announce, run_all, submit

#: A client, a worker, and two tasks of which the second needs the first; one of them is done.
EVENTS: list[Event] = [
    ClientAdded(1, "c"),
    WorkerAdded(2, "tcp://a:1", "a", "h", 1, 0, {}),
    GraphBegin(1, 1, True, None),
    GraphPart(
        1, 1, ["x", "y"], [b"1", b"2"], ["f", "f"], [None, ["x"]], [DEFAULT_OPTIONS] * 2, {"f": "increment"}
    ),
    GraphCommit(1, 1, None),
    TasksFinished(2, ["x"], [1], [8], [0.0], [0.1], [0], ["int"], [None]),
]


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "run.log"
    record(path, [(event, 10.0 + i / 8) for i, event in enumerate(EVENTS, 1)], Settings(), 10.0)
    return str(path)


@pytest.fixture
def tracer() -> Iterator[None]:
    """The debugger takes the place of whoever traces, such as coverage."""
    before = sys.gettrace()
    yield
    assert sys.gettrace() is before


def replay(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """The output of ``shunter replay``, which must end with ``code``."""
    assert main(["replay", *arguments]) == code
    captured = capfd.readouterr()
    if code == 0:
        assert captured.err == ""
    return captured.out + captured.err


def test_recording__summed_up(log: str, capfd: pytest.CaptureFixture[str]) -> None:
    out = replay(capfd, log)

    assert f"by shunter {shunter.__version__}" in out
    assert "events        6: ClientAdded 1, WorkerAdded 1" in out
    assert "time          0.750 s recorded" in out
    assert "instructions  3: ComputeTasks 2, ReportFinished 1" in out
    assert "tasks         2: processing 1, memory 1" in out
    assert "peers         1 workers with 1 threads, 1 clients" in out


def test_until__stops_there(log: str, capfd: pytest.CaptureFixture[str]) -> None:
    out = replay(capfd, log, "--until", "5")

    assert "events        5" in out
    assert "tasks         2: waiting 1, processing 1" in out
    assert "events        0\n" in replay(capfd, log, "--until", "0")
    assert "events        6" in replay(capfd, log, "--until", "99")


def test_trace__each_event_and_instruction_in_a_line(log: str, capfd: pytest.CaptureFixture[str]) -> None:
    lines = replay(capfd, log, "--trace").splitlines()

    assert lines[0] == "1 +0.125000 ClientAdded(client=1, name='c')"
    place = next(i for i, line in enumerate(lines) if line.startswith("5 +0.625000 GraphCommit(client=1, "))
    assert lines[place + 1].startswith("    ComputeTasks(peer=2, ")
    assert "keys=['x']" in lines[place + 1] and "<1 bytes>" in lines[place + 1]
    assert lines[place + 2].startswith("6 +0.750000 TasksFinished(worker=2, ")


def test_story__what_happened_to_a_task_and_why_it_waits(log: str, capfd: pytest.CaptureFixture[str]) -> None:
    out = replay(capfd, log, "--story", "x", "--story", "nobody", "--until", "5")

    assert "\nx:\n" in out
    assert "'x' was sent to worker 'a'" in out
    assert "'nobody' is not known" in out


def test_story__longer_than_the_recorded_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    record(tmp_path / "run.log", [(event, 1.0) for event in EVENTS], Settings(log_length=1), 1.0)

    out = replay(capfd, str(tmp_path / "run.log"), "--story", "x")

    assert out.count("GraphCommit") + out.count("TasksFinished") > 3


def test_validate__checks_the_state(
    log: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[bool] = []

    def make(settings: Settings, *, now: float) -> SchedulerState:
        given.append(settings.validate)
        return SchedulerState(settings, now=now)

    monkeypatch.setattr(replaying, "SchedulerState", make)
    replay(capfd, log)
    replay(capfd, log, "--validate")

    assert given == [False, True]


# ---------------------------------------------------------------------------------------------- bad input


def test_file_is_missing__one_line_and_exit_code_2(capfd: pytest.CaptureFixture[str]) -> None:
    assert replay(capfd, "no-such.log", code=2) == (
        "shunter replay: cannot read no-such.log: No such file or directory\n"
    )


def test_file_is_no_recording__one_line_and_exit_code_2(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("hello\n")

    out = replay(capfd, str(tmp_path / "file"), code=2)

    assert "is not a recording" in out and out.count("\n") == 1


def test_line_is_damaged__its_number_and_exit_code_2__what_stands_before_it_can_be_run(
    log: str, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = Path(log).read_bytes().splitlines(keepends=True)
    lines[3] = b"[10.375,\x00\n"
    Path(log).write_bytes(b"".join(lines))

    out = replay(capfd, log, code=2)

    assert f"{log}, line 4: " in out and out.endswith("--until 2\n")
    assert "events        2" in replay(capfd, log, "--until", "2")


def test_last_line_is_cut_off__said_in_a_word(log: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path(log).write_bytes(Path(log).read_bytes()[:-9])

    out = replay(capfd, log)

    assert "events        5" in out
    assert "the last line is cut off" in out


def test_until_is_no_number__refused(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["replay", "x.log", "--until", "-1"])
    assert caught.value.code == 2


# ---------------------------------------------------------------------------------------------- broken state, debugger


class BrokenState:
    """A state that breaks at the third event."""

    def __init__(self, settings: Settings, *, now: float) -> None:
        self.true = SchedulerState(settings, now=now)
        self.left = 2

    def step(self, event: Event, now: float) -> None:
        self.left -= 1
        if self.left < 0:
            raise InternalError("a bug", ["x: waiting -> queued"])
        self.true.step(event, now)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.true, name)


def test_state_breaks__at_which_event__exit_code_70(
    log: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "SchedulerState", BrokenState)

    out = replay(capfd, log, code=70)

    assert "the state breaks at event 3 +0.375000 GraphBegin(client=1, " in out
    assert "internal error, please report it: a bug\n  x: waiting -> queued" in out


def test_invariant_does_not_hold_at_the_end__told_with_validate_alone(
    log: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bad(BrokenState):
        def __init__(self, settings: Settings, *, now: float) -> None:
            super().__init__(settings, now=now)
            self.left = 99

        def validate(self) -> None:
            raise InternalError("an invariant")

    monkeypatch.setattr(replaying, "SchedulerState", Bad)

    replay(capfd, log)
    assert "an invariant" in replay(capfd, log, "--validate", code=70)


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


@pytest.mark.usefixtures("tracer")
def test_pdb_at_a_broken_state__looks_at_what_broke_it(
    log: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "SchedulerState", BrokenState)
    typed(monkeypatch, "p event.graph + 1000", "p view.counts()['workers']", "p self.left", "q")

    assert main(["replay", log, "--pdb"]) == 70

    out = capsys.readouterr().out
    assert "InternalError: a bug" in out
    assert "1001" in out and "-1" in out
    assert not hasattr(builtins, "state") and not hasattr(builtins, "event")


@pytest.mark.usefixtures("tracer")
def test_pdb_in_the_middle__step_goes_into_the_next_event(
    log: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(monkeypatch, "p type(event).__name__", "p view.counts()['tasks']", *["step"] * 4, "where", "c")

    assert main(["replay", log, "--until", "4", "--pdb"]) == 0

    out = capsys.readouterr().out
    assert "the next event: GraphCommit(client=1, " in out
    assert "'GraphPart'" in out
    if not shunter.COMPILED:  # A process that has the compiled state keeps it; the command itself never has.
        assert "state/scheduler.py" in out


@pytest.mark.usefixtures("tracer")
@pytest.mark.parametrize("words", [["p type(event).__name__", "q"], ["p type(event).__name__", "c"], []])
def test_pdb_at_the_end__looks_at_the_state(
    words: list[str], log: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(monkeypatch, *words)

    assert main(["replay", log, "--pdb"]) == 0

    out = capsys.readouterr().out
    assert "the next event: none" in out
    assert ("'TasksFinished'" in out) == bool(words)


# ---------------------------------------------------------------------------------------------- the outer world


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal__shows_how_far_it_is_and_wipes_it_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[Event, float]] = [(ClientAdded(i, "c"), float(i)) for i in range(200)]
    record(tmp_path / "run.log", events, Settings(), 0.0)
    monkeypatch.setattr(command, "PROGRESS_S", -1.0)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())

    assert main(["replay", str(tmp_path / "run.log")]) == 0

    assert "%  128 events" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert "events        200" in capfd.readouterr().out


def test_recording_of_a_scheduler__replayed_from_source_in_a_process(tmp_path: Path) -> None:
    path = str(tmp_path / "run.log")

    async def story(s: Running) -> None:
        client, worker = await s.client(), await s.worker(clock=time.time())
        client.send(announce(), submit(["x", "y", "z"], [None, ["x"], ["y"]]))
        await run_all(worker, client, 3)

    with_scheduler(story, record=path, **true(Settings()))

    done = finished(["-m", "shunter", "replay", path, "--trace", "--validate", "--story", "z"])

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "in the state (pure)" in done.stdout
    assert "TasksFinished" in done.stdout and "ReportFinished(" in done.stdout
    assert "\nz:\n" in done.stdout


def test_record_where_nothing_can_be_written__one_line_and_exit_code_2(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "missing" / "run.log"

    assert main(["scheduler", "--port", "0", "--record", str(file)]) == 2

    captured = capfd.readouterr()
    assert captured.err == f"shunter scheduler: cannot write --record {file}: No such file or directory\n"
    assert captured.out == ""
