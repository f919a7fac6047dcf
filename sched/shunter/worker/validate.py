"""Every invariant of the worker's machine, each a small function. For tests and debugging."""

from __future__ import annotations

from shunter.worker.model import Run
from shunter.worker.tables import Tables

__all__ = ["validate"]


def validate(t: Tables) -> None:
    """Raise AssertionError if anything is wrong."""
    check_runs(t)
    check_executing(t)
    check_slots(t)
    check_values(t)
    check_wants(t)
    check_peers(t)
    check_functions(t)


def check_runs(t: Tables) -> None:
    assert len(t.runs) == len(t.by_run_id)
    for key, run in t.runs.items():
        assert run.task.key == key
        assert run.wanted, key
        assert t.by_run_id[run.task.run_id] is run, key
        if run.status == "waiting":
            assert run.missing == count_missing(t, run) > 0, (key, run.missing)
        elif run.status == "ready":
            assert run.missing == 0, key
            assert key not in t.held, key
        else:
            assert t.executing.get(run.ticket) is run, (key, run.status)


def count_missing(t: Tables, run: Run) -> int:
    """Inputs, and the function, that a run waits for."""
    wants = [t.fetching.wants.get(key) for key in dict.fromkeys(run.task.inputs)]
    return sum(want is not None and run in want.waiters for want in wants) + (run in run.function.waiters)


def check_executing(t: Tables) -> None:
    for ticket, run in t.executing.items():
        assert run.ticket == ticket
        assert run.status in ("executing", "long-running"), (ticket, run.status)
        assert (t.runs.get(run.task.key) is run) == run.wanted, ticket
    for key, run in t.orphans.items():
        assert not run.wanted, key
        assert t.executing.get(run.ticket) is run, key


def check_slots(t: Tables) -> None:
    occupying = [run for run in t.executing.values() if run.status == "executing"]
    assert t.occupied == len(occupying)
    assert t.unwanted == sum(not run.wanted for run in occupying)
    assert abs(t.ahead - sum(run.estimate for run in occupying)) < 1e-6
    assert t.occupied <= t.nthreads + t.limits.ahead_max
    used: dict[str, float] = {}
    for run in t.executing.values():
        assert run.granted == bool(run.task.resources), run.task.key
        for name, amount in (run.task.resources or {}).items():
            used[name] = used.get(name, 0.0) + amount
    in_use = t.ready.in_use()
    for name in used.keys() | in_use.keys():
        assert abs(used.get(name, 0.0) - in_use.get(name, 0.0)) < 1e-6, name


def check_values(t: Tables) -> None:
    users: dict[str, int] = {}
    for run in t.executing.values():
        for key in run.task.inputs:
            users[key] = users.get(key, 0) + 1
    assert users == t.using
    assert t.lives.keys() == t.held.keys()
    for key in t.doomed:
        assert key in t.held, key
        assert key in t.using, key


def check_wants(t: Tables) -> None:
    for key, want in t.fetching.wants.items():
        assert key not in t.held, key
        assert want.waiters or want.acquired, key
        assert (want.status == "flight") == (want.flight >= 0), key
        if want.status == "flight":
            assert key in t.fetching.flights[want.flight].keys, key
        elif want.status == "fetch":
            assert want.holders, key
            for number in want.holders:
                assert any(entry[2] == key for entry in t.fetching.peers[number].heap), (key, number)
        else:
            assert not want.holders, key
            assert not want.acquired, key
        for run in want.waiters:
            assert run.status == "waiting", (key, run.task.key)
            assert key in run.task.inputs, (key, run.task.key)


def check_peers(t: Tables) -> None:
    for number, peer in t.fetching.peers.items():
        assert number != t.fetching.number
        assert peer.heap or peer.flight >= 0 or peer.resting or peer.failures, number
        if peer.flight >= 0:
            assert t.fetching.flights[peer.flight].peer == number
    assert len(t.fetching.flights) <= t.limits.fetches_max


def check_functions(t: Tables) -> None:
    in_use = [run for run in t.runs.values() if run.wanted]
    in_use += [run for run in t.executing.values() if not run.wanted]
    assert t.functions.uses() == len(in_use)
    for run in in_use:
        assert (run in run.function.waiters) <= (run.function.size < 0), run.task.key
