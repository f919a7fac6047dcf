"""Rarer things that people and machines do: graphs that must be refused, data put twice, processes that stand still."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from shunter.state import DEFAULT_OPTIONS, GraphAborted, GraphBegin, GraphPart
from shunter.wire import messages
from tests.simulation.drawing import any_client, any_graph, any_worker, keys_of
from tests.simulation.scheduler import KINDS
from tests.simulation.truth import Spec
from tests.simulation.world import World

#: Longer than `worker_ttl` where there is one.
FROZEN_S: Final = 3.0


def refused_graph(world: World, dice: random.Random) -> None:
    """A cycle, an input that nobody knows, or a key twice: all of it must fail, and leave nothing."""
    client = any_client(world, dice)
    specs = any_graph(world, dice, keys_of(client))
    broken = dice.choice(specs)
    fault = dice.randrange(3)
    if fault == 0:
        broken.inputs = (*broken.inputs, world.new_key("nowhere"))
    elif fault == 1:
        specs[0].inputs = (*specs[0].inputs, specs[-1].key)
        specs[-1].inputs = (*specs[-1].inputs, specs[0].key)
    else:
        specs.insert(dice.randrange(len(specs)), broken)
    world.truth.refused.update(spec.key for spec in specs)
    wanted = (
        [broken.key]
        if fault != 1 and dice.random() < 0.3
        else list(dict.fromkeys(spec.key for spec in specs))
    )
    world.submit(client, specs, wanted=wanted, in_order=dice.random() < 0.3)


def aborted_graph(world: World, dice: random.Random) -> None:
    """A client begins to send a graph, and thinks better of it."""
    client = any_client(world, dice)
    specs = any_graph(world, dice, keys_of(client))
    client.graphs += 1
    client.up.send(GraphBegin(client.number, client.graphs, False, None))
    some: list[Spec] = specs[: dice.randint(0, len(specs))]
    if some:
        client.up.send(
            GraphPart(
                client.number,
                client.graphs,
                [spec.key for spec in some],
                list(some),
                [f"kind {spec.number % KINDS}" for spec in some],
                [list(spec.inputs) or None for spec in some],
                [DEFAULT_OPTIONS] * len(some),
                {},
            )
        )
    client.up.send(GraphAborted(client.number, client.graphs))


def scatter_again(world: World, dice: random.Random) -> None:
    """Data that may have been lost, or be there still, is put on another worker under its key."""
    client = any_client(world, dice)
    worker = any_worker(world, dice)
    if not world.truth.scattered or worker is None:
        return
    key = dice.choice(sorted(world.truth.scattered))
    worker.put(key, world.truth.data_value(key), 100)
    client.want(key, unique=False)
    client.up.send(messages.Scattered([key], [100], [[worker.number]]))


def freeze(world: World, dice: random.Random) -> None:
    """A process stands still: nothing it says arrives for a while, and it hears nothing."""
    worker = any_worker(world, dice)
    if worker is not None:
        worker.up.stall(FROZEN_S)
        worker.down.stall(FROZEN_S)


def forget_values(world: World, dice: random.Random) -> None:
    """A worker says for a while that it does not hold some of what it holds."""
    worker = any_worker(world, dice)
    if worker is not None and worker.store:
        keys = list(worker.store)
        worker.denies.update(dice.sample(keys, min(len(keys), dice.choice([1, 3, 100]))))
        world.clock.after(dice.choice([0.5, 6.0]), worker.denies.clear)


PERFORMERS: Final[dict[str, Callable[[World, random.Random], None]]] = {
    "refused graph": refused_graph,
    "aborted graph": aborted_graph,
    "scatter again": scatter_again,
    "freeze": freeze,
    "forget values": forget_values,
}
