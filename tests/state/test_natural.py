"""Keys in their natural order: what people expect, and a total order that depends on nothing but the keys."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Hashable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.state.natural import RUN, KeyOrder


def in_order(keys: Sequence[Hashable], budgets: Sequence[int] = (1000,)) -> list[Hashable]:
    order = KeyOrder(list(keys))
    calls = 0
    while not order.advance(budgets[calls % len(budgets)]):
        calls += 1
    assert sorted(order.order) == list(range(len(keys)))
    return [keys[place] for place in order.order]


def by_pieces(text: str) -> list[tuple[int, int, str]]:
    """A plain reading of "natural": pieces of text, and numbers by value, which stand where their digits do."""
    pieces = []
    for piece in re.findall(r"[0-9]+|[^0-9]", text):
        if piece[0] in "0123456789":
            pieces.append((ord("0"), int(piece), ""))
        else:
            pieces.append((ord(piece), 0, piece))
    return pieces


#: Few letters, so that keys have beginnings in common; a letter on either side of the digits; beyond Latin; NUL.
texts = st.text(alphabet="ab-0129_\u00e9\u4e2d\0", max_size=12)
tuples = st.recursive(
    st.one_of(texts, st.integers(-300, 300)), lambda inner: st.tuples(inner, inner), max_leaves=4
).filter(lambda key: isinstance(key, tuple))


@pytest.mark.parametrize(
    "keys",
    [
        ["x-1", "x-2", "x-10", "x-100", "y-1"],
        ["a-1-2", "a-1-10", "a-2-1", "a-10-1", "ab-1"],
        ["load", "load-1", "load-1-x", "load-2"],
        ["x2", "x9", "x10", "x99999999", "x100000000", "x" + "1" * 50],
        ["x-2", "x-2-a", "x-02", "x-3"],
        [("x", 2), ("x", 2, 0), ("x", 10), ("x-1", 0), ("x-10", 0), ("y",)],
        [-20, -3, 0, 5, 12, 10**40],
        [("x", -300), ("x", -2), ("x", 3), ("x", "a"), ("x", ("a", 1)), ("x", ("a", 2))],
        [7, "x-1", ("x", 1)],
        [],
    ],
)
def test_keys_of_one_family__come_in_natural_order(keys: list[Hashable]) -> None:
    shuffled = keys.copy()
    random.Random(1).shuffle(shuffled)

    assert in_order(shuffled) == keys


def test_keys_of_other_types__come_last_as_they_were_given() -> None:
    keys: list[Hashable] = [2.5, "x", None, ("x", 1.5), b"q", ("x", 0.5), ("x", 1)]

    assert in_order(keys) == ["x", ("x", 1), ("x", 1.5), ("x", 0.5), 2.5, None, b"q"]


def test_tuples_nested_very_deep__are_told_apart_by_creation() -> None:
    deep: Hashable = 1
    deeper: Hashable = 0
    for _ in range(50):
        deep, deeper = (deep,), (deeper,)

    assert in_order([deep, deeper]) == [deep, deeper]


@given(st.lists(texts, unique=True, max_size=30))
def test_texts__are_sorted_as_a_plain_reading_of_natural_says(keys: list[str]) -> None:
    found = in_order(keys)

    # Numbers with zeros in front are equal to others in the plain reading: those may lie either way.
    stripped = [re.sub(r"0+(?=[0-9])", "", str(key)) for key in found]
    if all(str(key) == plain for key, plain in zip(found, stripped)):
        assert found == sorted(keys, key=by_pieces)


@given(
    st.lists(st.one_of(texts, tuples, st.integers()), unique=True, max_size=30),
    st.randoms(use_true_random=False),
)
def test_order_of_insertion_changes__order_of_keys_does_not(keys: list[Hashable], rng: random.Random) -> None:
    shuffled = keys.copy()
    rng.shuffle(shuffled)

    assert in_order(shuffled) == in_order(keys)


@pytest.mark.parametrize("n", [1, RUN - 1, RUN, RUN + 1, 5 * RUN + 7])
@pytest.mark.parametrize("budgets", [(1,), (1000,), (1, 700, 3), (10**9,)])
def test_budget_is_cut_in_any_way__ranks_are_the_same(n: int, budgets: tuple[int, ...]) -> None:
    keys = [f"x-{i}" for i in range(n)]
    shuffled = keys.copy()
    random.Random(n).shuffle(shuffled)

    assert in_order(shuffled, budgets) == keys
    assert in_order(keys, budgets) == keys
    assert in_order(keys[::-1], budgets) == keys


def test_large_lists__are_advanced_in_bounded_steps() -> None:
    keys = [f"x-{i}" for i in range(20_000)]
    random.Random(2).shuffle(keys)
    order = KeyOrder(list(keys))

    steps = 1
    while not order.advance(1000):
        steps += 1

    # Each key is sorted and merged in six rounds (40 runs): about 7 units each.
    assert 20_000 / 1000 * 4 < steps < 20_000 / 1000 * 12


def test_hashing_has_another_seed__order_is_the_same() -> None:
    program = (
        "from shunter.state.natural import KeyOrder\n"
        "keys = [f'{a}-{i}' for a in 'xyz' for i in range(40)] + [('t', i) for i in range(40)]\n"
        "order = KeyOrder(list(set(keys)))\n"
        "assert order.advance(10**6)\n"
        "print([order.keys[place] for place in order.order])"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
            text=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(told) == 1 and len(told.pop()) > 100
