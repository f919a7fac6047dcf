"""Run seeds, find one that fails, and make its story short."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from shunter.state import Settings
from tests.simulation.actions import Action, draw, new_worker, perform
from tests.simulation.ending import EVENTS_MAX, finish, what_goes_on
from tests.simulation.profiles import PROFILES, Profile
from tests.simulation.truth import SimulationFailed
from tests.simulation.wired import WiredWorld
from tests.simulation.world import World

ACTIONS = 120
LARGE_EVERY = 50
WIRED_EVERY = 8  # Of so many seeds one runs with real messages.


class Stats(NamedTuple):
    """What a run was about."""

    steps: int
    events: int
    seconds: float


def profile_of(seed: int) -> str:
    """Seeds take turns among the profiles; large graphs, which take long, come seldom."""
    if seed % LARGE_EVERY == LARGE_EVERY - 1:
        return "large"
    names = [name for name in PROFILES if name != "large"]
    return names[seed % len(names)]


def simulate(
    seed: int,
    *,
    steps: int | None = None,
    profile: str | None = None,
    actions: Sequence[Action] | None = None,
    trace: Callable[[str], None] | None = None,
) -> Stats:
    """One cluster from its first worker to its end.

    Args:
        seed: everything is drawn from it.
        steps: actions of people and machines; by default 120.
        profile: one of `PROFILES`; by default the seed's turn.
        actions: instead of those that the seed draws.
        trace: is given a line for each event and instruction.

    Raises:
        SimulationFailed: something is wrong; the message has the line that shows it again.
    """
    name = profile or profile_of(seed)
    count = steps or ACTIONS
    chosen = PROFILES[name]
    if actions is None:
        actions = draw(seed, chosen, count)
    try:
        world = _run(seed, chosen, actions, trace)
    except Exception as error:
        again = f"python -m tests.simulation --seed {seed} --steps {count} --profile {name}"
        story = getattr(error, "story", None)
        more = "\n".join(["", *story[-30:]]) if story else ""
        raise SimulationFailed(
            f"{type(error).__name__}: {error}{more}\nto see this again: {again} [--trace | --shrink]"
        ) from error
    return Stats(world.steps, world.clock.done, world.clock.now)


def _run(
    seed: int, profile: Profile, actions: Sequence[Action], trace: Callable[[str], None] | None
) -> World:
    dice = random.Random(f"{seed} settings")
    settings = Settings(
        validate=True,
        slice=profile.slice,
        no_workers_timeout=profile.no_workers_timeout,
        allowed_failures=dice.choice([0, 1, 2]),
        inline_max=dice.choice([0, 100, 4_096]),
        window_s=dice.choice([0.0, 0.002, 0.002, 0.1]),
        window_max=dice.choice([1, 256]),
        default_duration=dice.choice([0.0001, 0.5]),
        log_length=dice.choice([50, 10_000]),
        worker_ttl=dice.choice([0.0, 1.5, 30.0]),
    )
    world_class = WiredWorld if seed % WIRED_EVERY == WIRED_EVERY - 1 else World
    world = world_class(seed, settings, faults=profile.faults, trace=trace)
    world.size = profile.size
    world.slow_reports = profile.slow_reports
    world.may_fail_without_worker = profile.no_workers_timeout > 0.0
    for _ in range(profile.workers):
        new_worker(world, dice)
    world.start_client()
    start = world.clock.now
    for action in actions:
        world.clock.at(start + action.at, lambda action=action: perform(world, action))  # type: ignore[misc]
    while world.clock.next_at <= start + profile.seconds:
        world.clock.run_next()
        if world.clock.done > EVENTS_MAX:
            raise SimulationFailed(f"it goes round and round: {what_goes_on(world)}")
    finish(world)
    return world


def find(
    seeds: Iterable[int], *, steps: int | None = None, profile: str | None = None
) -> tuple[int, SimulationFailed] | None:
    """The first seed that fails."""
    for seed in seeds:
        try:
            simulate(seed, steps=steps, profile=profile)
        except SimulationFailed as error:
            return seed, error
    return None


def shrink(
    seed: int, *, steps: int | None = None, profile: str | None = None, seconds: float = 60.0
) -> list[Action]:
    """The fewest actions found with which the seed fails in the same way (delta debugging).

    Args:
        seed: one that fails; of one that does not, all actions are given.
        steps, profile: as in `simulate`.
        seconds: of real time; after that what was found so far is given.
    """
    name = profile or profile_of(seed)
    actions = draw(seed, PROFILES[name], steps or ACTIONS)
    wrong = _what_fails(seed, name, actions)
    if not wrong:
        return actions
    end = time.monotonic() + seconds
    size = max(1, len(actions) // 2)
    while time.monotonic() < end:
        before = len(actions)
        at = 0
        while at < len(actions) and time.monotonic() < end:
            fewer = actions[:at] + actions[at + size :]
            if _what_fails(seed, name, fewer) == wrong:
                actions = fewer
            else:
                at += size
        if size > 1:
            size //= 2
        elif len(actions) == before:
            break  # None of them can be left out.
    return actions


def _what_fails(seed: int, profile: str, actions: Sequence[Action]) -> str:
    """The sort of what goes wrong: its words without keys, names and numbers. "" if nothing does."""
    try:
        simulate(seed, profile=profile, actions=actions)
    except SimulationFailed as error:
        return re.sub(r"'[^']*'|[0-9]+", "", str(error).partition("\n")[0])[:40]
    return ""
