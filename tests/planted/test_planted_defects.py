"""Each defect, planted in a process of its own, is found by the simulator within a fixed number of seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shunter import _debug
from tests.planted.defects import DEFECTS

ROOT = Path(__file__).parents[2]
SEEDS = 300
SECONDS_MAX = 110


@pytest.mark.skipif(
    _debug.INSTALLED, reason="planted in the pure build: a compiled one would be told the same again"
)
@pytest.mark.parametrize("name", list(DEFECTS))
def test_defect__is_found_by_the_simulator(name: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--sim-seeds") < 100:
        pytest.skip("planted where many clusters are simulated: --sim-seeds 100 or more")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "SHUNTER_DEBUG": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.planted", name, "--seeds", str(SEEDS)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert done.stdout.startswith("seed "), done.stdout


def test_there_are_enough_of_them() -> None:
    assert len(DEFECTS) >= 15
