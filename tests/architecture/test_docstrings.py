"""Every module and class says what it is for; whatever users and plugin authors can name is documented in full."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeAlias

import pytest

import shunter
from tests.architecture.sources import Module, modules

Definition: TypeAlias = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
#: Modules all of whose names are for users.
FOR_USERS = (
    "shunter.errors",
    "shunter.types",
    "shunter.plugins.base",
    "shunter.state.scheduler",
    "shunter.state.views",
)


@pytest.mark.parametrize("module", modules().values(), ids=lambda m: m.name)
def test_module_and_its_classes__have_docstrings(module: Module) -> None:
    assert ast.get_docstring(module.tree), f"{module.name} has no docstring"
    missing = [
        f"{node.name} (line {node.lineno})"
        for node in _public(module.tree.body)
        if isinstance(node, ast.ClassDef) and not ast.get_docstring(node) and not _is_plain_record(node)
    ]
    assert not missing, f"{module.name}: no docstring: {', '.join(missing)}"


def test_name_for_users__has_a_docstring_and_so_have_its_methods() -> None:
    homes = {(home, name) for name, home in shunter._HOMES.items()}
    missing = []
    for module in modules().values():
        for node in _public(module.tree.body):
            if module.name in FOR_USERS or (module.name, node.name) in homes:
                methods = _public(node.body) if isinstance(node, ast.ClassDef) else ()
                missing += [f"{module.at(n)}: {n.name}" for n in (node, *methods) if not ast.get_docstring(n)]
    assert not missing, f"no docstring: {missing}"


def _public(body: list[ast.stmt]) -> Iterator[Definition]:
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.name[0] != "_":
            yield node


def _is_plain_record(node: ast.ClassDef) -> bool:
    """Name and typed fields say all there is: an event such as `ClientRemoved(client)`, a message."""
    methods = {statement.name for statement in node.body if isinstance(statement, ast.FunctionDef)}
    return bool(node.bases) and methods <= {"__init__", "frame"}
