"""Simulated clusters: ``--sim-seeds N`` of them (default 50), and the simulator's own promises."""

from __future__ import annotations

from pathlib import Path

import pytest

import shunter
from tests.simulation import SimulationFailed, simulate
from tests.simulation.__main__ import main
from tests.simulation.actions import Action, draw
from tests.simulation.profiles import PROFILES
from tests.simulation.search import find, profile_of, shrink
from tests.simulation.truth import Truth, Value

CHUNK = 25  # Seeds of one test: some seconds at most.


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Both builds of a Python have seeds of their own."""
    if "seeds" in metafunc.fixturenames:
        count = metafunc.config.getoption("--sim-seeds")
        first = count if shunter.COMPILED else 0
        starts = range(first, first + count, CHUNK)
        chunks = [range(start, min(start + CHUNK, first + count)) for start in starts]
        metafunc.parametrize("seeds", chunks, ids=[f"{chunk.start}:{chunk.stop}" for chunk in chunks])


def test_whatever_happens__all_ends_rightly_and_nothing_is_left(seeds: range) -> None:
    for seed in seeds:
        simulate(seed)


@pytest.mark.parametrize("seed", [7, 11, 16])  # The first of them with real messages.
def test_same_seed_again__same_story(seed: int) -> None:
    stories: list[list[str]] = [[], []]
    for story in stories:
        simulate(seed, trace=story.append)

    assert _without_addresses(stories[0]) == _without_addresses(stories[1])


def test_something_is_wrong__message_has_the_line_that_shows_it_again() -> None:
    with pytest.raises(
        SimulationFailed, match=r"python -m tests.simulation --seed 3 --steps 40 --profile calm"
    ):
        simulate(3, steps=40, profile="calm", actions=[Action(0.1, "no such action", 1)])


def test_failing_seed__shrinks_to_few_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    check = Truth.check_inputs

    def check_or_fail(self: Truth, run_id: int, values: dict[str, Value]) -> None:
        assert len(values) < 3, "three inputs are too many"
        check(self, run_id, values)

    monkeypatch.setattr(Truth, "check_inputs", check_or_fail)
    found = find(range(100), steps=60, profile="calm")
    assert found is not None
    seed = found[0]
    few = shrink(seed, steps=60, profile="calm")

    assert 0 < len(few) <= 5
    with pytest.raises(SimulationFailed, match="too many"):
        simulate(seed, profile="calm", actions=few)


def test_seeds__take_turns_among_the_profiles() -> None:
    assert {profile_of(seed) for seed in range(100)} == set(PROFILES)


def test_actions__are_drawn_from_seeds_of_their_own() -> None:
    actions = draw(5, PROFILES["calm"], 100)

    assert draw(5, PROFILES["calm"], 100) == actions
    assert len({action.seed for action in actions}) == 100
    assert [action.at for action in actions] == sorted(action.at for action in actions)


def _without_addresses(story: list[str]) -> list[str]:
    return [line.partition(" object at 0x")[0] for line in story]


def test_many_seeds__go_on_where_the_file_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "seeds.txt"
    assert main(["--seeds", "0:3", "--steps", "5", "--resume", str(file)]) == 0
    assert main(["--seeds", "0:5", "--steps", "5", "--resume", str(file)]) == 0

    assert file.read_text().splitlines() == ["done 3", "done 5"]
    assert "5 of 5" in capsys.readouterr().out


def test_some_seed_fails__the_file_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "seeds.txt"
    monkeypatch.setattr(Truth, "check_result", lambda *arguments: 1 / 0)
    assert main(["--seeds", "0:2", "--profile", "calm", "--resume", str(file)]) == 1

    assert file.read_text().splitlines()[0].startswith("failed 0 ZeroDivisionError")


def test_two_processes__run_what_one_does(tmp_path: Path) -> None:
    file = tmp_path / "seeds.txt"
    assert main(["--seeds", "0:4", "--steps", "5", "--jobs", "2", "--resume", str(file)]) == 0

    assert file.read_text() == "done 4\n"
