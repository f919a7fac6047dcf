"""The benchmark of the state does what it says: every shape comes, runs and goes; and the table shows its figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import shapes, table
from benchmarks.micro.driving import Driver, Graph


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("name", shapes.CORE)
def test_shape_is_driven_through_the_facade__nothing_is_left(name: str, in_order: bool) -> None:
    graph = Graph(shapes.CORE[name](1500))  # more than one part
    driver = Driver(n_workers=4, nthreads=2)

    for _ in range(2):
        assert driver.create(graph, in_order=in_order) > 0
        assert driver.state.view().counts()["tasks"] == len(graph.keys)
        driver.finish(len(graph.keys))
        driver.forget(graph)
        driver.state.validate()


@pytest.mark.parametrize("name", shapes.CORE)
def test_shape_for_n_tasks__has_about_as_many(name: str) -> None:
    shape = shapes.CORE[name](1000)

    assert 900 <= len(shape) <= 1000
    assert len(set(shape.keys)) == len(shape)
    assert all(d < task for task, needs in enumerate(shape.inputs) for d in needs)


def test_lines_of_both_builds_and_a_peer__stand_side_by_side() -> None:
    where = {"bench": "core", "shape": "tree", "python": "3.11.7", "platform": "linux", "processors": 2}
    lines = [
        {**where, "system": "shunter", "beside": "pure", "us_per_task": 12.0},
        {**where, "system": "shunter", "beside": "compiled", "us_per_task": 4.0},
        {**where, "system": "dask", "beside": "compiled", "us_per_task": 64.71},
    ]

    text = table.make_table(lines, ["pure", "compiled"], ["dask"])

    assert "| state, tree: µs a task | 12 | 4 | × 3.00 | 64.7 | ≤ 4 |" in text.splitlines()


def test_rate__gains_when_it_is_larger() -> None:
    assert table.show_gain(100.0, 150.0, more_is_better=True) == "× 1.50"
    assert table.show_gain(None, 150.0, more_is_better=True) == ""


def test_page_with_marks__keeps_what_stands_around_the_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n", encoding="utf-8")

    table.write(page, "new")

    assert page.read_text(encoding="utf-8") == f"before\n{table.BEGIN}\nnew\n{table.END}\nafter\n"
