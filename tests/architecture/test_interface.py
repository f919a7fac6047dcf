"""The narrow interface: what the server may ask of the state, and what the state must not grow."""

from __future__ import annotations

import ast
from typing import Final

from tests.architecture.sources import Module, modules, state_modules

#: Five methods and one property; the server knows nothing else of a `SchedulerState`.
FACADE: Final = frozenset({"step", "drain", "watch", "next_deadline", "view", "validate"})
#: What the server calls the state.
STATE_NAMES: Final = frozenset({"state", "_state"})


def parts(prefix: str) -> list[Module]:
    return [module for name, module in modules().items() if name.startswith(f"shunter.{prefix}.")]


def test_facade__has_five_methods_and_one_property() -> None:
    module = modules().get("shunter.state.scheduler")
    assert module is not None
    facade = next(n for n in module.tree.body if isinstance(n, ast.ClassDef) and n.name == "SchedulerState")
    functions = [node for node in facade.body if isinstance(node, ast.FunctionDef)]
    public = {node.name for node in functions if not node.name.startswith("_")}
    properties = {
        node.name for node in functions if any("property" in ast.unparse(d) for d in node.decorator_list)
    }
    assert public == FACADE
    assert properties == {"next_deadline"}


def test_server__uses_only_the_facade_of_the_state() -> None:
    wrong = []
    for module in parts("server"):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and node.attr not in FACADE:
                receiver = node.value
                name = receiver.attr if isinstance(receiver, ast.Attribute) else getattr(receiver, "id", "")
                if name in STATE_NAMES and ast.unparse(receiver) != "shunter.state":
                    wrong.append(f"{module.at(node)}: {ast.unparse(node)}")
    assert not wrong, f"past the facade: {wrong}"


def test_server__hands_the_state_on_to_nobody_who_is_not_of_the_server() -> None:
    """Plugins, clients and workers get a `View` or plain data."""
    for prefix in ("client", "worker", "wire", "cli", "deploy"):
        for module in parts(prefix):
            names = {node.id for node in ast.walk(module.tree) if isinstance(node, ast.Name)}
            assert "SchedulerState" not in names, module.name


def test_state__has_no_functions_that_only_hand_out_an_attribute() -> None:
    """A pass-through getter hides the record and says nothing: read the attribute."""
    wrong = []
    for module in state_modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef) and _returns_only_an_attribute(node):
                wrong.append(f"{module.at(node)}: {node.name}")
    assert not wrong, f"pass-through getters: {wrong}"


def test_state__has_no_any() -> None:
    wrong = [
        module.at(node)
        for module in state_modules()
        for node in ast.walk(module.tree)
        if isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) in ("Any", "typing.Any")
    ]
    assert not wrong, f"Any in shunter.state: {wrong}"


def test_records_of_the_state__have_slots() -> None:
    """So the pure build refuses a mistyped attribute just as the compiled one does."""
    wrong = []
    for module in state_modules():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base).partition("[")[0] for base in node.bases}
                names = [ast.unparse(s.targets[0]) for s in node.body if isinstance(s, ast.Assign)]
                if "__slots__" not in names and not bases & {"NamedTuple", "TypedDict", "Exception"}:
                    wrong.append(f"{module.at(node)}: {node.name}")
    assert not wrong, f"without __slots__: {wrong}"


def _returns_only_an_attribute(node: ast.FunctionDef) -> bool:
    body = node.body
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]  # the docstring
    if len(body) != 1 or not isinstance(body[0], ast.Return) or not isinstance(body[0].value, ast.Attribute):
        return False
    value: ast.expr = body[0].value
    while isinstance(value, ast.Attribute):
        value = value.value
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return isinstance(value, ast.Name) and value.id in {argument.arg for argument in arguments}
