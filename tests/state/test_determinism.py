"""The same events give the same instructions: in one process, and under any hash seed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shunter.state import Instruction
from tests.state.random_cluster import Story
from tests.state.script import described

ROOT = Path(__file__).parents[2]


class Transcript(Story):
    """A random cluster that keeps everything that came out, as text."""

    def __init__(self, seed: int) -> None:
        self.digest = hashlib.sha256()
        self.lines = 0
        super().__init__(seed)

    def note(self, instruction: Instruction) -> None:
        self.digest.update(repr(described(instruction)).encode())
        self.lines += 1


def transcript_of(seeds: range) -> str:
    parts = []
    for seed in seeds:
        story = Transcript(seed)
        story.run(200)
        story.finish()
        parts.append(f"{seed} {story.lines} {story.digest.hexdigest()}")
    return "\n".join(parts)


def test_same_events_twice__give_the_same_instructions() -> None:
    assert transcript_of(range(8)) == transcript_of(range(8))


def test_other_events__give_other_instructions() -> None:
    assert transcript_of(range(1)) != transcript_of(range(1, 2))


@pytest.mark.timeout(100)
def test_same_events_under_other_hash_seeds__give_the_same_instructions() -> None:
    code = f"import sys; sys.path[:0] = {[str(ROOT), *sys.path]!r}; "
    code += "from tests.state.test_determinism import transcript_of; print(transcript_of(range(8)))"
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=90,
        ).stdout.strip()
        for seed in ("1", "4242")
    ]
    assert outputs[0] == outputs[1] == transcript_of(range(8))
