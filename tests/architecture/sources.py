"""The sources as syntax trees, for the tests of the architecture. Nothing here imports shunter."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
SCHED: Final = ROOT / "sched"
PACKAGE: Final = SCHED / "shunter"


class Module(NamedTuple):
    """One source file: its dotted name, its path, its tree."""

    name: str
    path: Path
    tree: ast.Module
    is_package: bool

    @property
    def leaf(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]

    def at(self, node: ast.stmt | ast.expr) -> str:
        """Where a node is, for messages."""
        return f"{self.path.relative_to(ROOT)}:{node.lineno}"


class Import(NamedTuple):
    """One imported module. ``lazy``: inside a function. ``typing``: under ``if TYPE_CHECKING``."""

    target: str
    line: int
    lazy: bool
    typing: bool


@cache
def modules() -> dict[str, Module]:
    """All modules of the package by name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(SCHED).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8"), str(path)), is_package)
    return found


def state_modules() -> list[Module]:
    """The modules behind the door."""
    return [module for name, module in modules().items() if name.startswith("shunter.state.")]


def imports(module: Module) -> list[Import]:
    """What a module imports of shunter, as names of modules (never of what is in them)."""
    return [
        Import(target, node.lineno, lazy, typing)
        for node, lazy, typing in _import_nodes(module.tree, lazy=False, typing=False)
        for target in _targets(module, node)
        if target == "shunter" or target.startswith("shunter.")
    ]


def foreign_imports(module: Module) -> set[str]:
    """The top-level names of all other packages that a module imports anywhere."""
    return {
        target.partition(".")[0]
        for node, _, _ in _import_nodes(module.tree, lazy=False, typing=False)
        for target in _targets(module, node)
    } - {"shunter"}


def _import_nodes(
    node: ast.AST, *, lazy: bool, typing: bool
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, lazy, typing
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from _import_nodes(child, lazy=True, typing=typing)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for part in child.body:
                yield from _import_nodes(ast.Module([part], []), lazy=lazy, typing=True)
            for part in child.orelse:
                yield from _import_nodes(ast.Module([part], []), lazy=lazy, typing=typing)
        else:
            yield from _import_nodes(child, lazy=lazy, typing=typing)


def _targets(module: Module, node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        parts = module.name.split(".")
        parts = parts[: len(parts) - node.level + module.is_package]
        base = ".".join([*parts, *([node.module] if node.module else [])])
    # `from shunter.state import events` imports a module, `from shunter.state import Change` a name of one.
    return [f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules() else base for alias in node.names]
