"""The published stubs are what the sources say, and say no more than the list of public names."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path
from typing import Any

import pytest

import shunter

ROOT = Path(__file__).parents[2]
STUBS = ROOT / "typings" / "shunter-stubs"


@pytest.fixture(scope="module")
def generator() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "typings" / "generate.py"))


def test_stubs__are_fresh(generator: dict[str, Any]) -> None:
    files = generator["generate"]()
    stale = [
        path.name for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text
    ]
    assert not stale, f"stale: {stale}. To refresh: python typings/generate.py"
    assert {*STUBS.rglob("*.pyi")} == {*files}


def test_stub_of_the_package__exports_what_the_package_does() -> None:
    tree = ast.parse((STUBS / "__init__.pyi").read_text("utf-8"))
    (exported,) = (
        n for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"
    )
    assert set(ast.literal_eval(exported.value)) == set(shunter.__all__)


@pytest.mark.parametrize("path", sorted(STUBS.rglob("*.pyi")), ids=lambda p: p.relative_to(STUBS).as_posix())
def test_stub__has_no_private_names_and_no_gaps(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        assert not (isinstance(node, ast.Name) and node.id == "Incomplete")
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            assert node.name[0] != "_" or node.name.endswith("__"), node.name
