"""Deep and wide graphs: no recursion, no step that grows with what it does not touch."""

from __future__ import annotations

import sys

import pytest

from shunter.state import Options
from tests.state.script import Script, chain, keys_of

N = 20_000
assert sys.getrecursionlimit() < N


def fan_out(n: int) -> dict[str, list[str]]:
    return {"x": [], **{key: ["x"] for key in keys_of("y", n)}}


def fan_in(n: int) -> dict[str, list[str]]:
    keys = keys_of("y", n)
    return {**{key: [] for key in keys}, "z": keys}


@pytest.mark.parametrize("in_order", [True, False])
def test_deep_chain__comes_in_and_is_cancelled_through_and_through(in_order: bool) -> None:
    s = Script(workers={"a": 1})
    s.submit(chain(N), in_order=in_order)
    assert s.count("waiting") == N - 1
    s.cancel("x-0")
    assert s.count("tasks") == 0
    assert len(s.reports()) == N


def test_deep_chain__fails_through_and_through_and_is_retried() -> None:
    s = Script(workers={"a": 1})
    s.submit(chain(N))
    s.fail("x-0")
    assert s.count("erred") == N
    assert s.failure(f"x-{N - 1}").key == "x-0"
    s.retry(f"x-{N - 1}")
    assert s.count("waiting") == N - 1
    s.client_leaves()
    assert s.count("tasks") == 0


def test_deep_chain_of_which_the_end_is_wanted__is_released_through_and_through() -> None:
    s = Script(workers={"a": 1})
    s.submit(chain(N), want=[f"x-{N - 1}"])
    s.release(f"x-{N - 1}")
    assert s.count("tasks") == 0


def test_deep_chain__runs_to_its_end_and_is_computed_again_when_that_is_lost() -> None:
    s = Script(workers={"a": 1}, validate=False)
    n = 3_000
    s.submit(chain(n), want=[f"x-{n - 1}"])
    assert len(s.play()["a"]) == n
    s.state.validate()
    assert s.count("released") == n - 1
    s.loses("a", f"x-{n - 1}")  # everything before it was let go long ago
    s.state.validate()
    assert s.statuses("x-0", f"x-{n - 1}") == ["processing", "waiting"]


def test_wide_fan_out__all_wake_at_once_and_are_cancelled() -> None:
    s = Script(workers={"a": 1, "b": 1})
    s.submit(fan_out(N))
    s.finish("x")
    assert s.count("waiting") == 0
    assert s.count("queued") + s.count("processing") == N
    s.cancel("x")
    assert s.count("tasks") == 0


def test_wide_fan_out__fails_all_at_once() -> None:
    s = Script(workers={"a": 1})
    s.submit(fan_out(N))
    s.fail("x")
    assert s.count("erred") == N + 1
    s.client_leaves()
    assert s.count("tasks") == 0


def test_wide_fan_out_whose_input_is_lost__all_wait_again() -> None:
    s = Script(workers={"a": 1, "b": 1})
    s.submit(fan_out(N))
    s.finish("x")
    s.link_breaks(s.holders("x")[0])
    assert s.count("waiting") == N
    assert s.status("x") == "processing"


def test_wide_fan_in__waits_for_the_last_and_is_released() -> None:
    s = Script(workers={"a": N})
    s.submit(fan_in(N), want=["z"])
    s.finish(*keys_of("y", N - 1))
    assert s.status("z") == "waiting"
    s.finish(f"y-{N - 1}")
    assert s.status("z") == "processing"
    s.release("z")
    assert s.count("tasks") == 0


def test_wide_fan_in__one_failure_is_enough() -> None:
    s = Script(workers={"a": 1})
    s.submit(fan_in(N), want=["z"])
    s.fail("y-0")
    assert s.reports() == [("erred", "z")]
    assert s.count("processing") + s.count("queued") == 0
    s.release("z")
    assert s.count("tasks") == 0


def test_many_tasks_without_a_worker__fail_all_at_once() -> None:
    s = Script(workers={"a": 1}, no_workers_timeout=10.0)
    s.submit({key: [] for key in keys_of("x", N)}, options=Options(workers=["nowhere"]))
    assert s.count("no-worker") == N
    s.wait(11.0)
    assert s.count("erred") == N


# ---------------------------------------------------------------------------------------------- slices


def test_graph_of_many_slices__each_tick_creates_a_bounded_number() -> None:
    s = Script(workers={"a": 1}, slice=100)
    graph = s.begin()
    s.part(chain(5_000), graph)
    s.commit(graph)
    most = 0
    ticks = 0
    while s.state.next_deadline <= s.now:
        before = s.count("tasks")
        s.tick()
        most = max(most, s.count("tasks") - before)
        ticks += 1
    assert ticks >= 5_000 / 100 * 3
    assert 0 < most <= 100


def test_graph_of_many_slices__another_client_is_served_meanwhile() -> None:
    s = Script(workers={"a": 1}, clients=("c", "d"), slice=100)
    graph = s.begin(by="c")
    s.part(chain(5_000), graph, by="c")
    s.commit(graph, by="c")
    served = 0
    while s.state.next_deadline <= s.now:
        s.tick()
        key = f"y-{served}"
        one = s.begin(by="d")
        s.part({key: []}, one, by="d")
        s.commit(one, by="d")
        if s.latest.get(key) is not None:
            s.finish(key)
            s.release(key, by="d")
            served += 1
    assert served >= 100
    assert s.count("waiting") == 4_999
