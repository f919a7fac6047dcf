"""Who writes which field? Finds assignments to fields of records, and changes of the containers in them.

Types are inferred as far as annotations, constructors and plain loops tell; ``ts``, ``ws`` and ``cs`` are tasks,
workers and clients everywhere. Where the type of a record stays unknown, the name of the field alone counts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.architecture.sources import Module

#: Methods that change a list, dict, set, deque or heap.
MUTATORS: Final = frozenset(
    "add append appendleft clear discard extend extendleft insert move_to_end pop popitem popleft remove reverse "
    "rotate setdefault sort update".split()
)
#: Functions that change their first argument.
MUTATING_FUNCTIONS: Final = frozenset(
    {"heappush", "heappop", "heapify", "heapreplace", "heappushpop", "insort"}
)
CONVENTION: Final = {"ts": "TaskState", "ws": "WorkerState", "cs": "ClientState", "cluster": "Cluster"}

#: {class: {field: annotation as text}}
Fields = dict[str, dict[str, str]]


class Write(NamedTuple):
    """A field that is written: ``record`` is the class, "" if it is not known."""

    record: str
    field: str
    where: str
    in_init: bool


def fields_of(module: Module) -> Fields:
    """The slots of each class of a module, with the types that its ``__init__`` gives them."""
    found: Fields = {}
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef):
            fields = dict.fromkeys(_slots(node), "")
            for statement in ast.walk(node):
                target, text = _typed_target(statement)
                if isinstance(target, ast.Attribute) and target.attr in fields:
                    fields[target.attr] = fields[target.attr] or text
            found[node.name] = fields
    return found


def writes(module: Module, fields: Fields) -> Iterator[Write]:
    """All writes in a module to fields of the classes given."""
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield from _Function(module, fields, inner, node.name).run()
        elif isinstance(node, ast.FunctionDef):
            yield from _Function(module, fields, node, "").run()


def _slots(node: ast.ClassDef) -> list[str]:
    for statement in node.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__slots__":
            value = ast.literal_eval(statement.value)
            return [value] if isinstance(value, str) else list(value)
    return []


def _typed_target(node: ast.AST) -> tuple[ast.expr | None, str]:
    """The target of an assignment and the type of its value, as far as it is written there."""
    if isinstance(node, ast.AnnAssign):
        text = ast.unparse(node.annotation)
        if text == "Final" and node.value is not None:
            text = _constructed(node.value)
        return node.target, text
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        return node.targets[0], _constructed(node.value)
    return None, ""


def _constructed(value: ast.expr) -> str:
    return value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""


def _class_in(text: str) -> str:
    """``Final[TaskState | None]`` → ``TaskState``; "" unless it is one plain class."""
    text = re.sub(r"^Final\[(.*)\]$", r"\1", text.strip("'\""))
    parts = [part.strip() for part in text.split("|") if part.strip() != "None"]
    return parts[0] if len(parts) == 1 and parts[0].isidentifier() else ""


def _first_argument(text: str) -> str:
    """``dict[TaskState, None] | None`` → ``TaskState``: what a loop over it yields."""
    match = re.search(r"\w+\[(\w+)", text)
    return match[1] if match else ""


class _Function:
    """One function: what its names refer to, and what it writes."""

    def __init__(self, module: Module, fields: Fields, node: ast.FunctionDef, owner: str) -> None:
        self.module = module
        self.fields = fields
        self.node = node
        self.in_init = node.name == "__init__"
        self.types: dict[str, str] = {}  # name -> annotation
        self.aliases: dict[str, ast.Attribute] = {}  # name -> the field that it is another name for
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for argument in arguments:
            if argument.annotation is not None:
                self.types[argument.arg] = ast.unparse(argument.annotation)
        if owner and arguments and arguments[0].arg == "self":
            self.types["self"] = owner
        for child in ast.walk(node):
            self._learn(child)

    def run(self) -> Iterator[Write]:
        for node in ast.walk(self.node):
            for target in _targets(node):
                yield from self._write(target)
            if isinstance(node, ast.Call):
                yield from self._call(node)

    def _learn(self, node: ast.AST) -> None:
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            self.types.setdefault(node.target.id, _first_argument(self._annotation(_iterated(node.iter))))
            return
        target, text = _typed_target(node)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.expr):
            if isinstance(value, ast.Attribute):
                self.aliases[target.id] = value
                text = text or self._annotation(value)
            if text:
                self.types.setdefault(target.id, text)

    def _annotation(self, node: ast.expr) -> str:
        """The type of an expression as text, "" if it is not known."""
        if isinstance(node, ast.Name):
            return self.types.get(node.id) or CONVENTION.get(node.id, "")
        if isinstance(node, ast.Attribute):
            return self.fields.get(_class_in(self._annotation(node.value)), {}).get(node.attr, "")
        if isinstance(node, ast.Subscript):
            return _first_argument(self._annotation(node.value))
        return ""

    def _call(self, node: ast.Call) -> Iterator[Write]:
        name = ast.unparse(node.func).rpartition(".")[2]
        if isinstance(node.func, ast.Attribute) and name in MUTATORS:
            if _class_in(self._annotation(node.func.value)):
                return  # A method of one of our own classes.
            yield from self._container(node.func.value)
        elif name in MUTATING_FUNCTIONS and node.args:
            yield from self._container(node.args[0])

    def _write(self, target: ast.expr) -> Iterator[Write]:
        if isinstance(target, ast.Attribute):
            yield self._field(target)
        elif isinstance(target, ast.Subscript):
            yield from self._container(target.value)

    def _container(self, node: ast.expr) -> Iterator[Write]:
        if isinstance(node, ast.Subscript):  # a container in a container
            yield from self._container(node.value)
        elif isinstance(node, ast.Attribute):
            yield self._field(node)
        elif isinstance(node, ast.Name) and node.id in self.aliases:
            yield self._field(self.aliases[node.id])

    def _field(self, node: ast.Attribute) -> Write:
        record = _class_in(self._annotation(node.value))
        return Write(record, node.attr, self.module.at(node), self.in_init)


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, (ast.Assign, ast.Delete)):
        for target in node.targets:
            yield from target.elts if isinstance(target, ast.Tuple) else [target]
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.For)):
        yield node.target


def _iterated(node: ast.expr) -> ast.expr:
    """``list(x)``, ``sorted(x)``, ``reversed(x)`` and ``x.keys()`` yield what ``x`` does."""
    if isinstance(node, ast.Call):
        if (
            isinstance(node.func, ast.Name)
            and node.func.id in ("list", "reversed", "sorted", "tuple")
            and node.args
        ):
            return node.args[0]
        if isinstance(node.func, ast.Attribute) and node.func.attr == "keys":
            return node.func.value
    return node
