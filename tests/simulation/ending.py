"""The end of a run: faults stop, everything that is wanted ends, and after it is released nothing is left."""

from __future__ import annotations

from shunter.client.table import CANCELLED, ERROR, FINISHED, PENDING, Entry
from shunter.state import DatasetUnpublished
from shunter.wire import messages
from tests.simulation.actions import DATASETS
from tests.simulation.client import SimClient
from tests.simulation.drawing import NAMES
from tests.simulation.leftovers import look_at_state, look_at_worker
from tests.simulation.truth import SimulationFailed
from tests.simulation.world import World

SECONDS_MAX = 300.0
EVENTS_MAX = 300_000
QUIET_S = 3.0  # longer than anything that is still to be noticed


def finish(world: World) -> None:
    """Calm down, judge, let go, and look at what is left."""
    if not any(client.is_alive and not client.is_nested for client in world.clients.values()):
        world.start_client()
    become_calm(world)
    run_until_quiet(world, done=True)
    world.state.validate()
    for client in world.clients.values():
        for entry in client.held:
            judge(world, client, entry)
    compare_holders(world)
    let_go(world)
    run_until_quiet(world, done=False)
    world.state.validate()
    look_for_leftovers(world)


def become_calm(world: World) -> None:
    world.calm = True
    world.faults = 0.0
    for worker in world.every_worker.values():
        worker.up.calm = worker.down.calm = True
        worker.denies.clear()
        if worker.is_alive and worker.is_paused and worker.up.is_open:
            world.set_paused(worker, False)
    for client in world.clients.values():
        client.up.calm = client.down.calm = True
    for name in NAMES:  # Whatever a task asks for can be had.
        world.start_worker(name, None, 2, {"GPU": 1.0, "MEM": 0.3}, has_parent=False)


def run_until_quiet(world: World, *, done: bool) -> None:
    """Let time pass until nothing is under way. ``done``: and every future has ended."""
    clock = world.clock
    end = clock.now + SECONDS_MAX
    most = clock.done + EVENTS_MAX
    quiet_since = clock.now
    while True:
        if is_busy(world) or (done and any_pending(world)):
            quiet_since = clock.now
        elif clock.now - quiet_since >= QUIET_S:
            return
        if not clock.run_next() or clock.now > end or clock.done > most:
            raise SimulationFailed(f"it never comes to rest: {stuck(world)}; {what_goes_on(world)}")


def is_busy(world: World) -> bool:
    return (
        world.in_flight > 0
        or any(worker.busy for worker in world.workers.values())
        or any(client.busy for client in world.clients.values())
        or bool(world.state._cluster.incoming)
    )


def any_pending(world: World) -> bool:
    return any(entry.status == PENDING for client in world.clients.values() for entry in client.held)


def stuck(world: World) -> str:
    view = world.state.view()
    pending = {
        entry.key: f"{client.name}: {view.why(entry.key)}"
        for client in world.clients.values()
        for entry in client.held
        if entry.status == PENDING
    }
    return "; ".join(list(pending.values())[:5]) or "messages go on and on"


# ---------------------------------------------------------------------------------------------- judging


def judge(world: World, client: SimClient, entry: Entry) -> None:
    """What became of a future must be right."""
    if client.table.find(entry.key) is not entry and entry.status != CANCELLED:
        return  # It was given up, and nobody looks at it any more.
    if entry.status == FINISHED:
        judge_result(world, client, entry)
    elif entry.status == ERROR:
        judge_error(world, client, entry)
    else:
        judge_cancellation(world, client, entry)


def judge_result(world: World, client: SimClient, entry: Entry) -> None:
    since = client.since[entry]
    if entry.data is not None:
        world.truth.check_result(client.name, entry.key, world.unpickled(entry.data), since)
        return  # It stays, whatever becomes of the task.
    _, status, _, holders = world.state.view().who_has([entry.key])[0]
    if status != "memory":
        raise SimulationFailed(f"{client.name} was told that {entry.key!r} has finished; it is {status}")
    for number in holders:
        worker = world.find_worker(number)
        assert worker is not None
        if entry.key not in worker.store:
            raise SimulationFailed(f"{worker.name} does not hold {entry.key!r}, as the scheduler believes")
        world.truth.check_result(client.name, entry.key, worker.store[entry.key], since)


def judge_error(world: World, client: SimClient, entry: Entry) -> None:
    failure = entry.error
    assert isinstance(failure, messages.Failure)
    key = str(failure.key)
    truth = world.truth
    is_right = {
        "exception": _has_raised(world, failure, client.since[entry]),
        "killed-worker": truth.deaths.get(key, 0) > world.allowed_failures,
        "lost-input": key in truth.scattered,
        "graph": True,  # an input was not there any more: tests of graphs are elsewhere
        "serialization": any(
            spec.unsendable for name in truth.inputs_of(key) for spec in truth.specs_of(name)
        ),
        "no-worker": world.may_fail_without_worker,
    }.get(failure.kind, False)
    if not is_right:
        raise SimulationFailed(
            f"{client.name} was told wrongly that {entry.key!r} failed because of {key!r}:"
            f" {failure.kind}, {failure.text}"
        )


def _has_raised(world: World, failure: messages.Failure, since: int) -> bool:
    """That very task raised, in a life of its key that was not over when the client came to want what failed."""
    if "spec" not in failure.fields:
        return True  # Real messages carry no fields of workers.
    life = failure.fields["life"]
    assert isinstance(life, int)
    return failure.fields["spec"] in world.truth.raised and not world.truth.is_stale(life, since)


def judge_cancellation(world: World, client: SimClient, entry: Entry) -> None:
    reason = str(entry.error)
    truth = world.truth
    is_right = (
        ("by this client" in reason and client.cancels)
        or any(f"{name!r}, by force" in reason for name in truth.forced)
        or ("restarted" in reason and truth.restarted)
        or (
            "does not know" in reason
            and (entry.key in client.pure or client.cancels or truth.restarted or bool(truth.forced))
        )
    )
    if not is_right:
        raise SimulationFailed(f"{client.name} was told wrongly that {entry.key!r} is cancelled: {reason}")


def compare_holders(world: World) -> None:
    """At rest the scheduler knows who holds what."""
    for worker in world.workers.values():
        rows = world.state.view().who_has(list(worker.store))
        for key, _, _, holders in rows:
            if worker.number not in holders and str(key) not in world.truth.scattered:
                raise SimulationFailed(f"{worker.name} holds {key!r}, and the scheduler does not know it")


# ---------------------------------------------------------------------------------------------- letting go


def let_go(world: World) -> None:
    alive = [client for client in world.clients.values() if client.is_alive]
    for name in DATASETS:
        alive[0].up.send(DatasetUnpublished(alive[0].number, 0, name))
    for client in alive:
        client.release(list(client.held))


def look_for_leftovers(world: World) -> None:
    counts = world.state.view().counts()
    if counts["tasks"]:
        left = [
            f"{ts.key!r} is {ts.state}, wanted by {[cs.name for cs in (ts.wanter, *(ts.wanters or ())) if cs]}"
            for ts in world.state._cluster.tasks.values()
        ]
        raise SimulationFailed(f"{len(left)} tasks are left: {'; '.join(left[:5])}")
    look_at_state(world.state)
    for worker in world.workers.values():
        look_at_worker(worker, world.truth.scattered)


def what_goes_on(world: World) -> str:
    """For the message of a run that never comes to rest."""
    busy = [worker.name for worker in world.workers.values() if worker.busy]
    late = world.state.next_deadline - world.clock.now
    return (
        f"at {world.clock.now:.3f}, {world.clock.done} calls, busy: {busy}, to come: {world.in_flight},"
        f" deadline in {late:.4f} s"
    )
