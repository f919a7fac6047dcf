"""The static order: valid, the same every time, low in what it holds, and made in bounded steps."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import shapes
from shunter.state.ordering import WINDOW, KeyOrder, StaticOrder

Inputs = list[list[int]]


def static_order_of(inputs: Inputs) -> StaticOrder:
    return StaticOrder([len(needs) for needs in inputs], [d for needs in inputs for d in needs])


def advance(order: StaticOrder, budgets: Sequence[int] = (1000,)) -> int:
    """Advance to the end; returns how many calls it took."""
    calls = 0
    while not order.advance(budgets[calls % len(budgets)]):
        calls += 1
    return calls + 1


def order_of(inputs: Inputs, budgets: Sequence[int] = (1000,)) -> list[int]:
    """The tasks in running order, which is checked to be one."""
    order = static_order_of(inputs)
    advance(order, budgets)
    assert order.cycle == []
    assert sorted(order.order) == list(range(len(inputs)))
    positions = {task: position for position, task in enumerate(order.order)}
    for task, needs in enumerate(inputs):
        assert all(positions[d] < positions[task] for d in needs)
    return order.order


def peak_of(inputs: Inputs, order: list[int]) -> int:
    """The most results held at once; the last consumer lets go, and what nobody needs is not held."""
    waits = [0] * len(inputs)
    for needs in inputs:
        for d in needs:
            waits[d] += 1
    held = peak = 0
    for task in order:
        held += 1
        peak = max(peak, held)
        for d in inputs[task]:
            waits[d] -= 1
            held -= waits[d] == 0
        held -= waits[task] == 0
    return peak


def least_peak(inputs: Inputs) -> int:
    """By trying everything: for small graphs."""
    n = len(inputs)
    needs = [sum(1 << d for d in row) for row in inputs]
    consumers = [sum(1 << task for task in range(n) if d in inputs[task]) for d in range(n)]

    @cache
    def best(done: int) -> int:
        held = sum(1 for d in range(n) if done >> d & 1 and consumers[d] & ~done)
        found = n if done != (1 << n) - 1 else 0
        for task in range(n):
            if not done >> task & 1 and not needs[task] & ~done:
                found = min(found, max(held + 1, best(done | 1 << task)))
        return found

    return best(0)


def naturally(shape: shapes.Shape) -> Inputs:
    """The inputs by ids that are the natural ranks of the keys, as the scheduler makes them."""
    keys = KeyOrder(list(shape.keys))
    while not keys.advance(1000):
        pass
    ranks = {task: rank for rank, task in enumerate(keys.order)}
    return [[ranks[d] for d in shape.inputs[task]] for task in keys.order]


@st.composite
def graphs(draw: st.DrawFn, most: int = 30) -> Inputs:
    """Any graph without cycles, under any numbering."""
    n = draw(st.integers(0, most))
    number = draw(st.permutations(range(n)))
    inputs: Inputs = [[] for _ in range(n)]
    for task in range(1, n):
        needs = draw(st.lists(st.integers(0, task - 1), unique=True, max_size=4))
        inputs[number[task]] = [number[d] for d in needs]
    return inputs


@st.composite
def trees(draw: st.DrawFn, most: int = 9) -> Inputs:
    """Each task has one consumer, except for the last."""
    n = draw(st.integers(1, most))
    number = draw(st.permutations(range(n)))
    inputs: Inputs = [[] for _ in range(n)]
    for task in range(n - 1):
        inputs[number[draw(st.integers(task + 1, n - 1))]].append(number[task])
    return inputs


# ---------------------------------------------------------------------------------------------- valid


@given(graphs())
def test_any_graph__every_task_comes_after_its_inputs(inputs: Inputs) -> None:
    order_of(inputs)


def test_empty_graph__finishes_at_once() -> None:
    order = static_order_of([])

    assert order.advance(1)
    assert order.order == [] and order.cycle == []


def test_nothing_left_of_the_budget__nothing_is_done() -> None:
    order = static_order_of([[], [0]])

    assert not order.advance(0)
    assert order.advance(1000)
    assert order.order == [0, 1]


# ---------------------------------------------------------------------------------------------- the same


@given(graphs(), st.lists(st.integers(1, 60), min_size=1, max_size=5))
def test_budget_is_cut_in_any_way__order_is_the_same(inputs: Inputs, budgets: list[int]) -> None:
    assert order_of(inputs, budgets) == order_of(inputs, (10**9,))


@pytest.mark.parametrize("family", shapes.FAMILIES)
def test_budget_of_one__order_is_the_same(family: str) -> None:
    inputs = naturally(shapes.FAMILIES[family]())

    assert order_of(inputs, (1,)) == order_of(inputs, (10**9,)) == order_of(inputs, (1000, 1, 77))


@given(graphs(), st.randoms(use_true_random=False))
def test_inputs_are_listed_in_another_order__order_is_the_same(inputs: Inputs, rng: random.Random) -> None:
    shuffled = [rng.sample(needs, len(needs)) for needs in inputs]

    assert order_of(shuffled) == order_of(inputs)


@pytest.mark.parametrize("family", ["cholesky", "climatology", "layered_random"])
def test_graph_is_inserted_in_another_order__keys_run_in_the_same_order(family: str) -> None:
    shape = shapes.FAMILIES[family]()
    number = random.Random(3).sample(range(len(shape)), len(shape))
    shuffled = shapes.Shape()
    shuffled.keys = [""] * len(shape)
    shuffled.inputs = [[] for _ in shape.keys]
    for task, other in enumerate(number):
        shuffled.keys[other] = shape.keys[task]
        shuffled.inputs[other] = [number[d] for d in shape.inputs[task]]

    assert order_of(naturally(shuffled)) == order_of(naturally(shape))


# ---------------------------------------------------------------------------------------------- cycles


@given(graphs(most=12).filter(lambda inputs: len(inputs) > 1), st.data())
def test_an_edge_closes_a_cycle__one_cycle_is_named(inputs: Inputs, data: st.DataObject) -> None:
    order = order_of(inputs)
    first = data.draw(st.integers(0, len(order) - 1))
    last = data.draw(st.integers(first, len(order) - 1))
    path = order[first : last + 1]
    for task, d in zip(path[1:], path):
        if d not in inputs[task]:
            inputs[task].append(d)
    inputs[path[0]].append(path[-1])
    static_order = static_order_of(inputs)
    advance(static_order, (3,))

    cycle = static_order.cycle
    assert static_order.order == []
    assert cycle and cycle[0] == min(cycle) and len(set(cycle)) == len(cycle)
    for task, d in zip(cycle, [*cycle[1:], cycle[0]]):
        assert d in inputs[task]


def test_cycle_with_tasks_before_and_after__only_the_cycle_is_named() -> None:
    order = static_order_of([[3], [0], [], [5, 2], [1], [0], [4]])
    advance(order)

    assert order.cycle == [0, 3, 5]


def test_task_needs_itself__it_is_the_cycle() -> None:
    order = static_order_of([[], [1, 0]])
    advance(order)

    assert order.cycle == [1]


def test_cycle_of_100000_tasks__is_found() -> None:
    n = 100_000
    order = static_order_of([[(task + 1) % n] for task in range(n)])
    advance(order)

    assert order.cycle == list(range(n))


# ---------------------------------------------------------------------------------------------- what is held

#: The peaks of the prototype on which the algorithm was chosen.
PEAKS = {
    "tree_reduce": 14,
    "shuffle": 41,
    "stencil": 42,
    "cholesky": 67,
    "matmul": 81,
    "rechunk": 11,
    "climatology": 157,
    "map_overlap": 63,
    "cross_validation": 46,
    "etl": 19,
    "layered_random": 55,
    "layered_local": 43,
    "wide_narrow": 26,
    "two_datasets": 31,
    "chains_join": 14,
    "tsqr": 81,
}


@pytest.mark.parametrize("family", shapes.FAMILIES)
def test_family_of_graphs__holds_no_more_than_the_prototype(family: str) -> None:
    inputs = naturally(shapes.FAMILIES[family]())

    assert peak_of(inputs, order_of(inputs)) <= PEAKS[family]


@given(trees())
def test_tree__holds_as_little_as_can_be(inputs: Inputs) -> None:
    assert peak_of(inputs, order_of(inputs)) == least_peak(inputs)


@given(graphs(most=8))
def test_small_graph__holds_little_more_than_can_be(inputs: Inputs) -> None:
    assert least_peak(inputs) <= peak_of(inputs, order_of(inputs)) <= least_peak(inputs) + 2


# ---------------------------------------------------------------------------------------------- how much work


def wide_fan_in(n: int) -> Inputs:
    return [*([] for _ in range(n - 1)), list(range(n - 1))]


def wide_fan_out(n: int) -> Inputs:
    return [[], *([0] for _ in range(n - 1))]


def waist(n: int) -> Inputs:
    """Half of the tasks feed one, which feeds the other half."""
    half = n // 2
    return [*([] for _ in range(half)), list(range(half)), *([half] for _ in range(half))]


def joins_with_one(n: int) -> Inputs:
    """Half of the tasks join one of the others each with the first, which is needed to the end."""
    half = n // 2
    return [[], *([] for _ in range(half)), *([0, 1 + i] for i in range(half))]


def chain_from_the_end(n: int) -> Inputs:
    return [*([task + 1] for task in range(n - 1)), []]


def all_pairs(n: int) -> Inputs:
    inputs: Inputs = []
    while len(inputs) ** 2 < 2 * n:
        inputs.append([])
    return inputs + [[i, j] for i in range(len(inputs)) for j in range(i)]


@pytest.mark.parametrize(
    "make", [wide_fan_in, wide_fan_out, waist, joins_with_one, chain_from_the_end, all_pairs]
)
def test_extreme_graph__takes_a_bounded_number_of_steps(make: object) -> None:
    assert callable(make)
    inputs = make(20_000)
    size = len(inputs) + sum(len(needs) for needs in inputs)
    order = static_order_of(inputs)

    steps = advance(order, (1000,))

    # Some ten stages look once at each task and edge; whoever picks an input looks at a window of them.
    assert steps <= size * (20 + WINDOW) / 1000
    assert sorted(order.order) == list(range(len(inputs)))


def test_chain_of_100000_tasks__is_ordered_without_recursion() -> None:
    n = 100_000

    assert order_of(chain_from_the_end(n)) == list(range(n - 1, -1, -1))


@pytest.mark.parametrize("budget", [10, 100])
def test_small_budget__each_call_ends_soon(budget: int) -> None:
    inputs = naturally(shapes.matmul())
    widest = max(len(needs) for needs in inputs) + 8  # an input has so many consumers
    size = len(inputs) + sum(len(needs) for needs in inputs)

    calls = advance(static_order_of(inputs), (budget,))

    # Ten stages at least; a call that did more than its budget and one task's edges would show here.
    assert calls >= 10 * size / (budget + widest) / 2
