"""Run one seed again and look at it, or many seeds."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.simulation.profiles import PROFILES
from tests.simulation.search import profile_of, shrink, simulate
from tests.simulation.truth import SimulationFailed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="the one to run again")
    parser.add_argument("--steps", type=int, help="actions of people and machines (default: 120)")
    parser.add_argument("--profile", choices=list(PROFILES), help="default: seeds take turns")
    parser.add_argument("--trace", action="store_true", help="print every event and instruction")
    parser.add_argument(
        "--shrink",
        action="store_true",
        help="trace a failing seed without the actions that it can fail without",
    )
    parser.add_argument("--seeds", metavar="A:B", help="run these")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="go on behind the last seed that FILE names"
    )
    options = parser.parse_args(arguments)
    if options.seeds is not None:
        first, _, last = options.seeds.partition(":")
        return run_many(int(first), int(last), options)
    if options.seed is None:
        parser.error("say --seed N or --seeds A:B")
    return run_one(options)


def run_one(options: argparse.Namespace) -> int:
    profile = options.profile or profile_of(options.seed)
    actions = None
    if options.shrink:
        actions = shrink(options.seed, steps=options.steps, profile=profile)
    trace = print if options.trace or options.shrink else None
    try:
        stats = simulate(options.seed, steps=options.steps, profile=profile, actions=actions, trace=trace)
    except SimulationFailed as error:
        if actions is None and not options.trace:
            actions = shrink(options.seed, steps=options.steps, profile=profile)
        if actions is not None:
            print(f"{len(actions)} actions are enough:", *actions, sep="\n  ")
        print(error)
        return 1
    print(
        f"seed {options.seed} ({profile}) is fine: {stats.steps} events for the scheduler, {stats.seconds:.1f} s"
    )
    return 0


# ---------------------------------------------------------------------------------------------- many


def _try(work: tuple[int, int | None, str | None]) -> tuple[int, str]:
    seed, steps, profile = work
    try:
        simulate(seed, steps=steps, profile=profile)
    except SimulationFailed as error:
        return seed, str(error)
    return seed, ""


def run_many(first: int, last: int, options: argparse.Namespace) -> int:
    """All seeds from ``first`` up to ``last``; failures go to the file, where the next call goes on."""
    failed: set[int] = set()
    if options.resume is not None and options.resume.exists():
        for line in options.resume.read_text().splitlines():
            word, _, rest = line.partition(" ")
            if word == "done":
                first = max(first, int(rest))
            elif word == "failed":
                failed.add(int(rest.partition(" ")[0]))
    start = time.monotonic()
    work = [(seed, options.steps, options.profile) for seed in range(first, last)]
    for n, (seed, text) in enumerate(_results(work, options.jobs), 1):
        if text:
            failed.add(seed)
            print(f"\nseed {seed}: {text}", flush=True)
            _note(options.resume, f"failed {seed} {text.splitlines()[0]}")
        if n % 100 == 0 or n == len(work):
            rate = n / (time.monotonic() - start)
            left = (len(work) - n) / rate
            _note(options.resume, f"done {seed + 1}")
            print(
                f"\r{seed + 1} of {last}, {rate:.0f} a second, {len(failed)} failed, {left / 60:.0f} min left ",
                end="" if sys.stdout.isatty() else "\n",
                flush=True,
            )
    print()
    return 1 if failed else 0


def _results(work: list[tuple[int, int | None, str | None]], jobs: int) -> Iterator[tuple[int, str]]:
    if jobs < 2:
        yield from map(_try, work)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(_try, work, chunksize=20)


def _note(file: Path | None, line: str) -> None:
    if file is not None:
        with file.open("a") as out:
            print(line, file=out)


if __name__ == "__main__":
    sys.exit(main())
