"""What people and machines do to a cluster: actions, each with a seed of its own, so that one may be left out."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, NamedTuple

from shunter.client.table import ERROR, FINISHED
from shunter.state import (
    DatasetPublished,
    DatasetRequested,
    DatasetUnpublished,
    KeysDetached,
    Options,
    RestartRequested,
)
from shunter.wire import messages
from tests.simulation.drawing import (
    FIXED,
    NAMES,
    any_client,
    any_graph,
    any_options,
    any_worker,
    behave,
    keys_of,
    people,
    some_of,
)
from tests.simulation.mischief import PERFORMERS as MISCHIEF
from tests.simulation.profiles import Profile
from tests.simulation.truth import Spec
from tests.simulation.world import World

DATASETS: Final = ("one", "two")


class Action(NamedTuple):
    """``kind`` at a time, with a seed of its own."""

    at: float
    kind: str
    seed: int


def draw(seed: int, profile: Profile, count: int) -> list[Action]:
    """The actions of a run, in order of time."""
    dice = random.Random(f"{seed} actions")
    kinds = list(profile.weights)
    weights = list(profile.weights.values())
    many = max(1, round(count * profile.share))
    times = sorted(dice.uniform(0.0, profile.seconds) for _ in range(many))
    return [Action(at, dice.choices(kinds, weights)[0], dice.getrandbits(32)) for at in times]


def perform(world: World, action: Action) -> None:
    if world.trace is not None:
        world.trace(f"{world.clock.now:.4f} === {action.kind} ({action.seed})")
    performer = _PERFORMERS.get(action.kind) or MISCHIEF[action.kind]
    performer(world, random.Random(action.seed))


# ---------------------------------------------------------------------------------------------- work


def _submit(world: World, dice: random.Random) -> None:
    client = any_client(world, dice)
    specs = any_graph(world, dice, keys_of(client))
    in_order = dice.random() < 0.5
    keys = [spec.key for spec in specs]
    wanted = None if dice.random() < 0.5 else dice.sample(keys, max(1, len(keys) // 4))
    if not in_order:
        dice.shuffle(specs)
    world.submit(
        client,
        specs,
        options=any_options(dice),
        wanted=wanted,
        in_order=in_order,
        parts=dice.choice([1, 3, 1_000]),
    )


def _fixed(world: World, dice: random.Random) -> None:
    """Keys that everybody uses again and again, each time perhaps with another function."""
    client = any_client(world, dice)
    keys = dice.sample(FIXED, dice.randint(1, 3))
    specs: list[Spec] = []
    for key in keys:
        pool = [spec.key for spec in specs] + [each for each in keys_of(client) if each not in keys]
        inputs = dice.sample(pool, min(len(pool), dice.choice([0, 1, 2])))
        spec = world.truth.new_spec(key, tuple(inputs))
        spec.payload = f"{key} {dice.randint(0, 1)} {inputs}"
        behave(dice, spec)
        specs.append(spec)
    world.submit(
        client, specs, options=any_options(dice), fixed=frozenset(keys), in_order=dice.random() < 0.5
    )


def _again(world: World, dice: random.Random) -> None:
    """A key is given up and submitted again in one breath, perhaps with another function, while it runs."""
    client = any_client(world, dice)
    keys = list(FIXED[: dice.choice([1, 2, 2])])
    entries = [entry for entry in client.held if entry.key in keys and client.table.find(entry.key) is entry]
    if dice.random() < 0.5:
        client.release(entries)
    else:
        client.cancels = world.truth.cancelled = True
        client.giving_up.cancel(list(dict.fromkeys(entries)), force=False)
    specs: list[Spec] = []
    options: list[Options] = []
    for key in keys:
        pool = [each for each in keys_of(client) if each not in keys]
        inputs = [specs[0].key] if specs and dice.random() < 0.8 else dice.sample(pool, min(len(pool), 1))
        spec = world.truth.new_spec(key, tuple(inputs))
        spec.payload = f"{key} {dice.randint(0, 1)} {inputs}"
        spec.duration = dice.choice([0.0, 0.0005, 0.01, 0.2])
        spec.fails = dice.choice([0, 0, 0, 1_000_000])
        specs.append(spec)
        options.append(Options(workers=[NAMES[len(specs) % 2]], allow_other_workers=True))
    world.submit(client, specs, options=options, fixed=frozenset(keys), in_order=True)


def _release(world: World, dice: random.Random) -> None:
    client = any_client(world, dice)
    client.release(some_of(dice, client.held))


def _cancel(world: World, dice: random.Random) -> None:
    client = any_client(world, dice)
    force = dice.random() < 0.3
    world.truth.cancelled = True
    client.cancels = True
    if force:
        world.truth.forced.add(client.name)
    entries = [entry for entry in some_of(dice, client.held) if client.table.find(entry.key) is entry]
    client.giving_up.cancel(list(dict.fromkeys(entries)), force=force)


def _retry(world: World, dice: random.Random) -> None:
    client = any_client(world, dice)
    live = [entry for entry in client.held if client.table.find(entry.key) is entry]
    erred = list(dict.fromkeys(entry for entry in live if entry.status == ERROR))
    client.pure.update(entry.key for entry in erred)  # an unknown one, of a refused graph, is answered
    client.giving_up.retry(erred)


def _desire(world: World, dice: random.Random) -> None:
    """A key of somebody else, or of nobody."""
    client = any_client(world, dice)
    others = [key for other in world.clients.values() for key in keys_of(other)]
    key = dice.choice([*others, *FIXED, "nobody"])
    client.pure.add(key)
    if client.want(key, unique=False)[1]:
        client.up.send(messages.Desire([key]))


def _priority(world: World, dice: random.Random) -> None:
    client = any_client(world, dice)
    keys = keys_of(client)
    if keys:
        client.up.send(messages.SetPriority([dice.choice(keys)], dice.choice([-5.0, 0.0, 5.0])))


def _scatter(world: World, dice: random.Random) -> None:
    client = any_client(world, dice)
    key = world.new_key("data")
    world.truth.scattered.add(key)
    alive = [worker for worker in world.workers.values() if worker.is_alive and worker.up.is_open]
    chosen = dice.sample(alive, min(len(alive), dice.choice([1, 2])))
    if not chosen:
        return
    for worker in chosen:
        worker.put(key, world.truth.data_value(key), 100)
    client.want(key, unique=True)
    client.up.send(messages.Scattered([key], [100], [[worker.number for worker in chosen]]))


def _read(world: World, dice: random.Random) -> None:
    """Fetch a result, from whoever the scheduler names."""
    client = any_client(world, dice)
    ready = [
        entry for entry in client.held if entry.status == FINISHED and client.table.find(entry.key) is entry
    ]
    if not ready:
        return
    entry = dice.choice(ready)
    since = client.since[entry]

    def answer(ok: bool, rows: object) -> None:
        assert ok and isinstance(rows, list)
        for key, _, _, holders in rows:
            for number in holders[:1]:
                worker = world.find_worker(number)
                if worker is not None and key in worker.store and client.table.find(key) is entry:
                    world.truth.check_result(client.name, key, worker.store[key], since)

    client.connection.request(lambda n: messages.Query(n, "who_has", {"keys": [entry.key]}), answer)


# ---------------------------------------------------------------------------------------------- clients


def _new_client(world: World, dice: random.Random) -> None:
    if len(people(world)) < 5:
        world.start_client()


def _client_goes(world: World, dice: random.Random) -> None:
    alive = people(world)
    if len(alive) > 1:
        world.stop_client(dice.choice(alive), polite=dice.random() < 0.5)


def _detach(world: World, dice: random.Random) -> None:
    client = any_client(world, dice)
    live = [
        entry for entry in client.held if client.table.find(entry.key) is entry
    ]  # as `GivingUp.detach` asks
    entries = some_of(dice, live)
    client.pure.update(entry.key for entry in entries)  # an unknown one is answered
    client.up.send(KeysDetached(client.number, [entry.key for entry in entries]))
    if dice.random() < 0.7:
        client.release(entries)


def _publish(world: World, dice: random.Random) -> None:
    client = any_client(world, dice)
    keys: list[object] = list(dict.fromkeys(entry.key for entry in some_of(dice, client.held)))
    name = dice.choice(DATASETS)
    client.connection.request(
        lambda n: DatasetPublished(client.number, n, name, keys, "", dice.random() < 0.5),
        lambda ok, value: None,
    )


def _unpublish(world: World, dice: random.Random) -> None:
    client = any_client(world, dice)
    name = dice.choice(DATASETS)
    client.connection.request(lambda n: DatasetUnpublished(client.number, n, name), lambda ok, value: None)


def _dataset(world: World, dice: random.Random) -> None:
    client = any_client(world, dice)

    def answer(ok: bool, value: object) -> None:
        if ok:
            assert isinstance(value, dict)
            client.receive(value["keys"], since)

    name = dice.choice(DATASETS)
    since = world.steps
    client.table.keys_may_return = True
    client.connection.request(lambda n: DatasetRequested(client.number, n, name), answer)


def _restart(world: World, dice: random.Random) -> None:
    client = any_client(world, dice)
    world.truth.restarted = True
    client.connection.request(lambda n: RestartRequested(client.number, n, 5.0), lambda ok, value: None)


# ---------------------------------------------------------------------------------------------- workers


def _kill(world: World, dice: random.Random) -> None:
    worker = any_worker(world, dice)
    if worker is not None:
        world.kill(worker)


def _break(world: World, dice: random.Random) -> None:
    worker = any_worker(world, dice)
    if worker is not None:
        world.break_link(worker)


def _leave(world: World, dice: random.Random) -> None:
    worker = any_worker(world, dice)
    if worker is not None and len(world.workers) > 1:
        world.leave(worker)


def new_worker(world: World, dice: random.Random) -> None:
    resources = dice.choice([{}, {"GPU": 1.0}, {"GPU": 1.0, "MEM": 0.3}])
    world.start_worker(
        dice.choice(NAMES), None, dice.choice([1, 1, 2, 4]), resources, has_parent=dice.random() < 0.8
    )


def _twin(world: World, dice: random.Random) -> None:
    """Another one at the address, or of the name, of one that is there."""
    worker = any_worker(world, dice)
    if worker is not None:
        world.start_worker(
            worker.name if dice.random() < 0.5 else dice.choice(NAMES),
            worker.address if dice.random() < 0.5 else None,
            dice.choice([1, 2]),
            worker.resources,
        )


def _pause(world: World, dice: random.Random) -> None:
    worker = any_worker(world, dice)
    if worker is not None:
        world.set_paused(worker, not worker.is_paused)


def _stall(world: World, dice: random.Random) -> None:
    """A link is slow for a while, in one direction."""
    worker = any_worker(world, dice)
    client = any_client(world, dice)
    pipes = [client.up, client.down, *([worker.up, worker.down] if worker is not None else [])]
    dice.choice(pipes).stall(dice.choice([0.2, 1.0]))


_PERFORMERS: Final[dict[str, Callable[[World, random.Random], None]]] = {
    "submit": _submit,
    "fixed": _fixed,
    "again": _again,
    "release": _release,
    "cancel": _cancel,
    "retry": _retry,
    "desire": _desire,
    "priority": _priority,
    "scatter": _scatter,
    "read": _read,
    "new client": _new_client,
    "client goes": _client_goes,
    "detach": _detach,
    "publish": _publish,
    "unpublish": _unpublish,
    "dataset": _dataset,
    "restart": _restart,
    "kill": _kill,
    "break": _break,
    "leave": _leave,
    "new worker": new_worker,
    "twin": _twin,
    "pause": _pause,
    "stall": _stall,
}
