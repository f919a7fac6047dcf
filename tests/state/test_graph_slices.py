"""A large graph comes in by slices: no Tick does more because the graph is larger, at the ends of phases neither."""

from __future__ import annotations

import random

import pytest

from tests.state.script import Graph, Script, chain, keys_of, roots
from tests.state.work import lines_of, pure_only

SLICE = 50


def shuffled(graph: Graph) -> list[tuple[str, list[str]]]:
    rows = [(key, list(inputs)) for key, inputs in graph.items()]
    random.Random(1).shuffle(rows)
    return rows


def most_lines_of_a_tick(graph: Graph, *, in_order: bool) -> int:
    s = Script(workers={"a": 1}, slice=SLICE, validate=False)
    number = s.begin(in_order=in_order)
    s.part(graph if in_order else shuffled(graph), number)
    s.commit(number)
    most = 0
    while s.state.next_deadline <= s.now:
        most = max(most, lines_of(s.tick))
    assert s.count("tasks") == len(graph)
    return most


def of_shape(name: str, n: int) -> Graph:
    if name == "roots":
        return roots("x", n)
    if name == "chain":
        return chain(n)
    keys = keys_of("x", n)  # pairs, and pairs of pairs
    return {key: [keys[i - (1 << bit)] for bit in range(2) if i >> bit & 1] for i, key in enumerate(keys)}


@pure_only
@pytest.mark.parametrize(("shape", "in_order"), [("roots", True), ("chain", True), ("pairs", False)])
def test_graph_of_four_times_the_size__its_longest_tick_is_no_longer(shape: str, in_order: bool) -> None:
    def work(n: int) -> int:
        return most_lines_of_a_tick(of_shape(shape, n), in_order=in_order)

    assert work(2_400) < 1.3 * work(600)


@pure_only
def test_graph_that_needs_what_exists__is_let_go_of_bit_by_bit() -> None:
    def work(n: int) -> int:
        s = Script(workers={"a": 1}, slice=SLICE, validate=False)
        s.submit(roots("x", n))
        number = s.begin()
        s.part({f"y-{i}": [f"x-{i}"] for i in range(n)}, number)
        s.commit(number)
        most = 0
        while s.state.next_deadline <= s.now:
            most = max(most, lines_of(s.tick))
        assert s.count("tasks") == 2 * n
        return most

    assert work(2_400) < 1.3 * work(600)
