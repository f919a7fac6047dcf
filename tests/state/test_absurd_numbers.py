"""Finite numbers that no one means: the wire lets them through, the state must live with them."""

from __future__ import annotations

import pytest

from shunter.state import Options
from tests.state.script import Script


@pytest.mark.parametrize("amount", [1e303, 1.7e308, 5e-324, 0.0, -1e303])
def test_absurd_resources__no_error_out_of_step(amount: float) -> None:
    s = Script(workers={"a": 1})
    s.worker("b", 1, resources={"GPU": amount, "MEM": 1e300})
    s.submit({"x": []}, options=Options(resources={"GPU": amount}))
    assert s.status("x") in ("processing", "no-worker")


@pytest.mark.parametrize("seconds", [1e303, 1.7e308, 5e-324, -1.0])
def test_absurd_duration__no_error_out_of_step(seconds: float) -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": [], "y": ["x"]})
    s.finish("x", seconds=seconds)
    s.finish("y", seconds=seconds)
    assert s.status("y") == "memory"
