"""A recording gives the same instructions again: in the same process, in another one, in the other build."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import shunter
from shunter.errors import InternalError
from shunter.recording import LogReader, Replay
from shunter.state import ClientAdded, SchedulerState, Settings, Tick, WorkerAdded
from tests.recording.recorded import digest_of, digests_of, record, record_cluster
from tests.state.any_events import START, Program, for_all, programs
from tests.state.any_trial import Trial

ROOT = Path(__file__).parents[2]


def assert_equal(first: list[str], second: list[str], what: str) -> None:
    """Lists of digests; the first difference is named."""
    for one, other in zip(first, second):
        assert one == other, f"{what}: first difference at event {one.rpartition(' ')[0]}"
    assert len(first) == len(second), what


def test_recorded_cluster__replay_gives_the_same_instructions(seed: int, tmp_path: Path) -> None:
    said = record_cluster(tmp_path / "run.log", seed)

    assert_equal(said, digests_of(tmp_path / "run.log"), f"seed {seed}")


def test_any_recorded_events__replay_gives_the_same_instructions(tmp_path: Path) -> None:
    def check(program: Program) -> None:
        trial = Trial(program)
        trial.run()
        settings = Settings(**program.settings)
        record(tmp_path / "run.log", trial.done, settings, START)
        state = SchedulerState(settings, now=START)
        said: list[str] = []
        for event, now in trial.done:
            state.step(event, now)
            said.append(digest_of(len(said) + 1, type(event).__name__, state.drain().instructions))
        assert_equal(said, digests_of(tmp_path / "run.log"), "any events")

    for_all(programs(20), check, examples=40)


@pytest.mark.timeout(110)
def test_same_recordings_in_the_other_build__equal_instructions(tmp_path: Path) -> None:
    """A pure build has no other: there, two hash seeds."""
    paths = [tmp_path / f"{seed}.log" for seed in range(8)]
    for seed, path in enumerate(paths):
        record_cluster(path, seed, length=100)
    here = [digests_of(path) for path in paths]
    variables = (
        [{"SHUNTER_DEBUG": "1"}] if shunter.COMPILED else [{"PYTHONHASHSEED": s} for s in ("1", "4242")]
    )

    for each in variables:
        there = in_other_process([str(path) for path in paths], each)

        assert not there["compiled"]
        for seed, (one, other) in enumerate(zip(here, there["digests"])):
            assert_equal(one, other, f"seed {seed}, with {each}")


def in_other_process(paths: list[str], variables: dict[str, str]) -> Any:
    code = f"import sys; sys.path[:0] = {[str(ROOT), *sys.path]!r}; "
    code += f"from tests.recording.recorded import tell; tell({paths!r})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=90,
    )
    return json.loads(done.stdout)


def test_replay__counts_and_shows_the_state_as_it_goes(tmp_path: Path) -> None:
    worker = WorkerAdded(1, "tcp://a:1", "a", "h", 2, 0, {})
    record(tmp_path / "run.log", [(worker, 5.5), (ClientAdded(2, "c"), 6.0), (Tick(), 7.0)], Settings(), 5.0)

    with LogReader(str(tmp_path / "run.log")) as log:
        replay = Replay(log)
        assert replay.span == 0.0
        replay.advance()
        assert (replay.count, replay.span) == (1, 0.5)
        assert replay.view.counts()["threads"] == 2
        while replay.ahead() is not None:
            replay.advance()

    assert replay.events == {"WorkerAdded": 1, "ClientAdded": 1, "Tick": 1}
    assert replay.view.counts()["clients"] == 1


def test_state_breaks__replay_tells_at_which_event(tmp_path: Path) -> None:
    record(tmp_path / "run.log", [(Tick(), 1.0), (Tick(), 2.0)], Settings(), 0.0)
    with LogReader(str(tmp_path / "run.log")) as log:
        replay = Replay(log)
        replay.advance()
        replay.state = Broken()  # type: ignore[assignment]

        with pytest.raises(InternalError):
            replay.advance()

    assert replay.count == 1 and replay.is_broken
    assert replay.entry is not None and replay.entry.now == 2.0


class Broken:
    def step(self, event: object, now: float) -> None:
        raise InternalError("a bug")
