"""Many seeds, one after the other or in several processes: progress, and a file from which the next call goes on.

The file has a line ``done N`` now and then (all seeds below N were run) and ``failed N …`` for each that failed.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.simulation.search import simulate
from tests.simulation.truth import SimulationFailed

#: Progress is shown, and noted, each time so many seeds are done.
PROGRESS_EVERY: Final = 100
#: Seeds that a process takes at a time.
CHUNK: Final = 20


class Trial(NamedTuple):
    """One seed to run: see `simulate`."""

    seed: int
    steps: int | None
    profile: str | None


def run_many(
    seeds: range,
    *,
    steps: int | None = None,
    profile: str | None = None,
    jobs: int = 1,
    file: Path | None = None,
) -> bool:
    """Run all seeds of a range.

    Args:
        seeds: those that the file says are done are left out.
        steps, profile: as in `simulate`.
        jobs: processes.
        file: where it is noted what is done and what failed; None: nowhere.

    Returns:
        Whether none has failed, in this call or those before it.
    """
    first, failed = _read(file)
    first = max(first, seeds.start)
    start = time.monotonic()
    trials = [Trial(seed, steps, profile) for seed in range(first, seeds.stop)]
    for n, (seed, text) in enumerate(_outcomes(trials, jobs), 1):
        if text:
            failed.add(seed)
            print(f"\nseed {seed}: {text}", flush=True)
            _note(file, f"failed {seed} {text.splitlines()[0]}")
        if n % PROGRESS_EVERY == 0 or n == len(trials):
            _note(file, f"done {seed + 1}")
            rate = n / (time.monotonic() - start)
            minutes = (len(trials) - n) / rate / 60
            line = f"{seed + 1} of {seeds.stop}, {rate:.0f} a second, {len(failed)} failed, {minutes:.0f} min left "
            print(f"\r{line}", end="" if sys.stdout.isatty() else "\n", flush=True)
    print(f"\n{len(failed)} failed{': ' if failed else ''}{' '.join(map(str, sorted(failed)))}")
    return not failed


def run_trial(trial: Trial) -> tuple[int, str]:
    """One seed, and what went wrong; "" if nothing did."""
    try:
        simulate(trial.seed, steps=trial.steps, profile=trial.profile)
    except SimulationFailed as error:
        return trial.seed, str(error)
    return trial.seed, ""


def _outcomes(trials: list[Trial], jobs: int) -> Iterator[tuple[int, str]]:
    if jobs < 2:
        yield from map(run_trial, trials)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(run_trial, trials, chunksize=CHUNK)


def _read(file: Path | None) -> tuple[int, set[int]]:
    """The first seed that is not done, and those that failed."""
    first = 0
    failed: set[int] = set()
    if file is not None and file.exists():
        for line in file.read_text().splitlines():
            word, number, *_ = line.split()
            if word == "done":
                first = max(first, int(number))
            elif word == "failed":
                failed.add(int(number))
    return first, failed


def _note(file: Path | None, line: str) -> None:
    if file is not None:
        with file.open("a") as out:
            print(line, file=out)
