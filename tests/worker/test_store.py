"""Values by key, and their sizes."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from shunter.worker.store import Store, sizeof


class Plain:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Hostile:
    @property
    def nbytes(self) -> int:
        raise RuntimeError("no")

    def __sizeof__(self) -> int:
        raise RuntimeError("no")


class Sized:
    nbytes = 5_000_000


def test_value_is_kept_and_dropped() -> None:
    store = Store()
    store.keep(["x"], [1], [28])
    entry = store.find("x")
    assert entry is not None
    assert (entry.value, entry.nbytes) == (1, 28)

    store.drop(["x", "never there"])

    assert store.find("x") is None
    assert len(store) == 0


def test_value_is_dropped_while_it_is_used__the_user_still_has_it() -> None:
    store = Store()
    store.keep(["x"], [[1, 2]], [100])
    entries = store.entries(["x"])

    store.drop(["x"])

    assert entries["x"].value == [1, 2]


@pytest.mark.parametrize("value", [b"x" * 10_000, "x" * 10_000, bytearray(10_000), 10**300, "é" * 1000])
def test_size_of_flat_value__is_exact(value: object) -> None:
    assert sizeof(value) == sys.getsizeof(value)


@pytest.mark.parametrize("value", [None, True, 1.5, 1j, 7])
def test_size_of_small_value__is_small(value: object) -> None:
    assert 0 < sizeof(value) <= 64


def test_size_of_array__is_that_of_its_data() -> None:
    numpy = pytest.importorskip("numpy")

    assert sizeof(numpy.zeros(1_000_000)) == pytest.approx(8_000_000, rel=0.01)
    assert sizeof([numpy.zeros(1000)] * 10) == pytest.approx(80_000, rel=0.1)
    assert sizeof({"a": numpy.zeros(1000)}) == pytest.approx(8_000, rel=0.1)


def test_size_of_what_tells_its_bytes__is_believed() -> None:
    assert sizeof(Sized()) == pytest.approx(5_000_000, rel=0.01)
    assert sizeof(memoryview(bytes(10_000))) == pytest.approx(10_000, rel=0.05)


def test_size_of_containers__follows_what_is_in_them() -> None:
    assert sizeof([b"x" * 1000] * 10) == pytest.approx(10_000, rel=0.1)
    assert sizeof((b"x" * 1000, [b"y" * 1000])) == pytest.approx(2_000, rel=0.2)
    assert sizeof(dict.fromkeys(range(20), b"x" * 1000)) == pytest.approx(20_000, rel=0.2)
    assert sizeof(Plain(data=b"x" * 10_000)) == pytest.approx(10_000, rel=0.1)


def test_size_of_large_container__is_estimated_by_a_sample() -> None:
    assert sizeof([b"x" * 1000] * 100_000) == pytest.approx(104_000_000, rel=0.05)


def test_size_of_nested_or_cyclic_value__ends() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    cyclic: list[Any] = []
    cyclic.append(cyclic)

    assert sizeof(deep) > 0
    assert sizeof(cyclic) > 0
    while deep:  # Taken apart by hand: its own destructor would need the stack.
        deep = deep[0]


@pytest.mark.parametrize("value", [Hostile(), [Hostile()], object(), int, threading.Lock(), sizeof])
def test_size_of_anything__never_raises(value: object) -> None:
    assert sizeof(value) > 0
