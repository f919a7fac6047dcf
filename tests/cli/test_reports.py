"""What users of schedulers like this one have reported of what they are shown: each test names the report."""

from __future__ import annotations

import pytest

from shunter.cli.status import TASK_STATES, lines_of

ADDRESS = "tcp://127.0.0.1:8765"


@pytest.mark.parametrize("n", [5, 6, 300])
def test_g11_many_workers__all_of_them_are_shown(n: int) -> None:
    workers = [{"name": f"worker-{i}", "status": "running"} for i in range(n)]
    lines = lines_of(ADDRESS, {"workers": workers, "counts": {"threads": n}})
    shown = [line.split()[0] for line in lines if line.startswith("worker-")]
    assert shown == [f"worker-{i}" for i in range(n)]
    assert f"workers    {n} with {n} threads" in lines


def test_o4_each_status__is_shown_under_its_own_name() -> None:
    for name in TASK_STATES:
        lines = lines_of(ADDRESS, {"counts": {"tasks": 3, name: 3}})
        assert f"tasks      3: {name} 3" in lines


def test_o4_worker_with_an_unknown_status__it_is_shown_as_it_is() -> None:
    (row,) = [
        line
        for line in lines_of(ADDRESS, {"workers": [{"name": "zoe", "status": "haywire"}]})
        if "zoe" in line
    ]
    assert "haywire" in row
