"""What tasks do in the benchmarks. Workers import it, so nothing depends on cloudpickle."""

from __future__ import annotations

from typing import Any


def inc(x: int) -> int:
    return x + 1


def make_array(nbytes: int) -> Any:
    """An array whose pages are all touched, so that memory is there before anybody measures."""
    import numpy

    return numpy.ones(nbytes // 8)


def last_of(array: Any) -> float:
    return float(array[-1])


def passed_on(*values: object) -> int:
    return 1
