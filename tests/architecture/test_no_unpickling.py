"""The scheduler never unpickles: what clients and workers send each other passes through it as bytes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

import pytest

from tests.architecture.sources import Module, modules

#: Modules that turn bytes into objects by running what the bytes say, and our own home of them.
UNPICKLERS: Final = frozenset(
    {
        "pickle",
        "_pickle",
        "cPickle",
        "cloudpickle",
        "marshal",
        "shelve",
        "dill",
        "copyreg",
        "joblib",
        "jsonpickle",
    }
)
OWN: Final = "shunter.serialize"
#: Calls that run text.
RUNNERS: Final = frozenset({"eval", "exec", "compile", "__import__"})
#: Parts that a scheduler process loads.
PARTS: Final = ("shunter.server", "shunter.wire", "shunter.state", "shunter.plugins")


def scheduler_side() -> list[Module]:
    return [
        m for name, m in modules().items() if name in PARTS or name.startswith(tuple(f"{p}." for p in PARTS))
    ]


def names_of_imports(tree: ast.Module) -> Iterator[tuple[ast.stmt, str]]:
    """Every module that is imported anywhere in a file, also inside functions, and every name from one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node, node.module
            for alias in node.names:
                yield node, f"{node.module}.{alias.name}"


def test_scheduler_side__is_not_empty() -> None:
    assert len(scheduler_side()) > 30


@pytest.mark.parametrize("module", scheduler_side(), ids=lambda m: m.name)
def test_module_of_the_scheduler__imports_no_unpickler(module: Module) -> None:
    wrong = [
        f"{module.at(node)}: {name}"
        for node, name in names_of_imports(module.tree)
        if name.partition(".")[0] in UNPICKLERS or name == OWN or name.startswith(f"{OWN}.")
    ]
    assert not wrong, f"the scheduler never unpickles: {wrong}"


@pytest.mark.parametrize("module", scheduler_side(), ids=lambda m: m.name)
def test_module_of_the_scheduler__runs_no_text(module: Module) -> None:
    wrong = [
        f"{module.at(node)}: {ast.unparse(node)}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RUNNERS
    ]
    assert not wrong


@pytest.mark.parametrize("module", scheduler_side(), ids=lambda m: m.name)
def test_module_of_the_scheduler__imports_by_name_only_plugins(module: Module) -> None:
    """`import_module` takes any name; the one place that needs it loads what the operator named at start."""
    if module.name == "shunter.server.plugin_host":
        return
    wrong = [
        f"{module.at(node)}: {name}" for node, name in names_of_imports(module.tree) if "importlib" in name
    ]
    assert not wrong
