"""Run one seed again and look at it, or many seeds."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.simulation.campaign import run_many
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
        seeds = range(int(first), int(last))
        is_fine = run_many(
            seeds, steps=options.steps, profile=options.profile, jobs=options.jobs, file=options.resume
        )
        return 0 if is_fine else 1
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


if __name__ == "__main__":
    sys.exit(main())
