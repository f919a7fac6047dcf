"""What is drawn for an action: whom it concerns, shapes of graphs, options, and how tasks behave."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from shunter.client.table import Entry
from shunter.state import Options
from tests.simulation.client import SimClient
from tests.simulation.scheduler import KINDS
from tests.simulation.truth import Spec
from tests.simulation.worker import SimWorker
from tests.simulation.world import World

NAMES: Final = ("w0", "w1", "w2", "w3", "w4")
FIXED: Final = tuple(f"fixed-{n}" for n in range(6))
#: How long tasks of a kind mostly run: short ones are sent and handed out ahead.
_USUAL_S: Final = ((0.0, 0.00001), (0.0001, 0.0003), (0.0005, 0.002), (0.01, 0.05), (0.2, 0.5))


def any_client(world: World, dice: random.Random) -> SimClient:
    alive = people(world)
    return dice.choice(alive) if alive else world.start_client()


def people(world: World) -> list[SimClient]:
    """Clients, but for those of tasks."""
    return [client for client in world.clients.values() if client.is_alive and not client.is_nested]


def any_worker(world: World, dice: random.Random) -> SimWorker | None:
    alive = [worker for worker in world.workers.values() if worker.is_alive and worker.up.is_open]
    return dice.choice(alive) if alive else None


def some_of(dice: random.Random, entries: Sequence[Entry]) -> list[Entry]:
    return dice.sample(list(entries), min(len(entries), dice.choice([1, 1, 3, 10, 100])))


def behave(dice: random.Random, spec: Spec) -> None:
    """What the task will be like."""
    usual = _USUAL_S[spec.number % KINDS]
    spec.duration = dice.choice([*usual, *usual, *usual, 0.0, 0.01, 1.0])
    spec.nbytes = dice.choice([0, 8, 8, 2_000, 2_000_000])
    fate = dice.random()
    if fate < 0.05:
        spec.fails = 1_000_000
    elif fate < 0.12:
        spec.fails = dice.choice([1, 2])
    elif fate < 0.16:
        spec.reschedules = dice.choice([1, 3])
    elif fate < 0.22:
        spec.secedes = True
    elif fate < 0.25:
        spec.starts_killing = dice.choice([1, 2, 9])
    elif fate < 0.27:
        spec.unsendable = True
    elif fate < 0.31:
        spec.children = dice.choice([1, 5])
        spec.waits = dice.random() < 0.5


def any_options(dice: random.Random) -> Options:
    return dice.choice(
        [
            Options(),
            Options(),
            Options(),
            Options(retries=2),
            Options(retries=2, retry_on=["builtins.OSError"]),
            Options(retries=1, retry_delay=0.2, retry_elsewhere=True),
            Options(resources={"GPU": 0.5}),
            Options(resources={"GPU": 1.0, "MEM": 0.3}),
            Options(workers=[dice.choice(NAMES), "h1"]),
            Options(workers=["w1"], allow_other_workers=True),
            Options(priority=dice.choice([-1.0, 2.0])),
            Options(stealable=False),
        ]
    )


def any_graph(world: World, dice: random.Random, known: list[str]) -> list[Spec]:
    """Tasks in a random shape; some need keys that the client has already."""
    shape = dice.choice(["one", "roots", "chain", "tree", "fan", "shuffle", "random", "random"])
    n = dice.choice([1, 2, 4, 9, 25]) * world.size
    new_key = world.new_key
    rows: list[tuple[str, list[str]]] = []
    if shape == "one":
        rows = [(new_key(), [])]
    elif shape == "roots":
        rows = [(new_key(), []) for _ in range(n)]
    elif shape == "chain":
        for _ in range(n):
            rows.append((new_key(), [rows[-1][0]] if rows else []))
    elif shape == "tree":
        level = [new_key() for _ in range(n)]
        rows = [(key, []) for key in level]
        while len(level) > 1:
            pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
            level = [new_key() for _ in pairs]
            rows += list(zip(level, pairs))
    elif shape == "fan":
        root = new_key()
        leaves = [new_key() for _ in range(n)]
        rows = [(root, []), *((key, [root]) for key in leaves), (new_key(), leaves)]
    elif shape == "shuffle":
        m = min(n, 5)
        first = [new_key() for _ in range(m)]
        rows = [(key, []) for key in first] + [(new_key(), list(first)) for _ in range(m)]
    else:
        for _ in range(n):
            pool = [key for key, _ in rows[-8:]] + dice.sample(known, min(2, len(known)))
            picked = dice.sample(pool, min(len(pool), dice.choice([0, 1, 1, 2, 3])))
            rows.append((new_key(), picked))
    specs = [world.truth.new_spec(key, tuple(inputs)) for key, inputs in rows]
    for spec in specs:
        behave(dice, spec)
    return specs


def keys_of(client: SimClient) -> list[str]:
    """Keys that it has futures of."""
    return list(dict.fromkeys(entry.key for entry in client.held if client.table.find(entry.key) is entry))
