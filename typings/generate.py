"""Write the published stubs, ``typings/shunter-stubs``, from the sources.

    python typings/generate.py            write them (also: tox -e fresh)
    python typings/generate.py --check    exit code 1 if they are not what the sources say

What is public is decided here, by `STUBS`: names that are not listed do not exist for a type checker of somebody who
installed shunter, and neither do modules. That is the point: the rest may change. A public signature that mentions a
name which is not public is an error (list the name or change the signature); an attribute or an optional
keyword that does is left out.

The sources are fully annotated, so stubs are their syntax trees without bodies. This needs the standard library only.
mypy's own stubgen was tried: it loses ``Literal`` and recursive aliases, and the types of most attributes.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

ROOT: Final = Path(__file__).resolve().parents[1]
OUTPUT: Final = ROOT / "typings" / "shunter-stubs"

#: {module that has a stub: {module of the source: names that are defined in this stub}}. The stub of the state's door
#: defines what stands in modules behind it. ``*``: everything in the source's ``__all__``.
STUBS: Final[dict[str, dict[str, str]]] = {
    "shunter.errors": {"shunter.errors": "*"},
    "shunter.types": {"shunter.types": "Buffer JSON Retry"},
    "shunter.state": {
        "shunter.state.names": "FailureKind Key TaskStatus WorkerStatus",
        "shunter.state.outbox": "Change",
        "shunter.state.settings": "Settings",
        "shunter.state.views": "View",
    },
    "shunter.plugins.base": {"shunter.plugins.base": "ALL_STATES SchedulerPlugin"},
    "shunter.plugins": {},
    "shunter.client": {},
    "shunter.client.async_client": {"shunter.client.async_client": "AsyncClient"},
    "shunter.client.base": {"shunter.client.base": "BaseClient Cluster"},
    "shunter.client.client": {"shunter.client.client": "Client"},
    "shunter.client.futures": {
        "shunter.client.futures": "AsCompleted DoneAndNotDone Future as_completed wait"
    },
    "shunter.client.graphs": {"shunter.client.graphs": "Ref Task"},
    "shunter.deploy": {},
    "shunter.deploy.local": {"shunter.deploy.local": "LocalCluster"},
    "shunter.server": {},
    "shunter.server.scheduler": {"shunter.server.scheduler": "Scheduler"},
    "shunter.worker": {},
    "shunter.worker.worker": {"shunter.worker.worker": "Worker"},
    "shunter": {"shunter": "COMPILED __version__"},
}
#: Stubs that export the whole ``__all__`` of their module, names with another home as well.
WHOLE: Final = ("shunter", "shunter.plugins")
#: Classes that users are given and never make themselves: their constructors may mention what is not public.
GIVEN: Final = frozenset({"AsCompleted", "Future", "View"})
#: Methods that only our own parts call.
HIDDEN: Final = frozenset({"on_batch", "on_closed", "on_message"})
#: Special methods that matter to callers.
SPECIAL: Final = frozenset(
    "__init__ __call__ __enter__ __exit__ __aenter__ __aexit__ __await__ __iter__ __next__ __aiter__ __anext__ __len__ "
    "__contains__ __getitem__ __eq__ __hash__ __lt__ __bool__ __class_getitem__".split()
)
HEADER: Final = "# Generated from the sources by typings/generate.py: do not edit. To refresh: tox -e fresh\n"

Definition: TypeAlias = "ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign"


class Problem(Exception):
    """A public name cannot be described by public names. The text says which, and what to do."""


class Source:
    """One module of the sources: what it imports and what it defines at its top level."""

    def __init__(self, module: str) -> None:
        path = ROOT / "sched" / Path(*module.split("."))
        self.module = module
        self.is_package = path.is_dir()
        self.path = path / "__init__.py" if self.is_package else path.with_suffix(".py")
        self.imports: dict[str, tuple[str, str]] = {}  # local name -> (module, name there or "")
        self.definitions: dict[str, list[Definition]] = {}  # several for overloads
        self._read(ast.parse(self.path.read_text(encoding="utf-8"), str(self.path)).body)

    def names_in_all(self) -> list[str]:
        """``__all__``, as written."""
        (node,) = self.definitions["__all__"]
        assert isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
        return list(ast.literal_eval(node.value))

    def _read(self, body: Iterable[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = (node.module, alias.name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    self.imports[alias.asname or alias.name.partition(".")[0]] = (alias.name, "")
            elif isinstance(node, ast.If):
                self._read(node.body)
            elif isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                self.definitions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self.definitions[node.target.id] = [node]
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.definitions[node.targets[0].id] = [node]


@cache
def source(module: str) -> Source:
    """The source of a module, read once."""
    return Source(module)


def public_names(module: str) -> dict[tuple[str, str], str]:
    """{(module of the source, name): name} of what a stub defines."""
    found = {}
    for inner, names in STUBS[module].items():
        for name in source(inner).names_in_all() if names == "*" else names.split():
            found[inner, name] = name
    return found


@cache
def homes() -> dict[tuple[str, str], str]:
    """{(module of the source, name): the stub that defines it}."""
    return {key: module for module in STUBS for key in public_names(module)}


def defined_at(module: str, name: str) -> tuple[str, str]:
    """Where a name of ours is really defined: follows re-exports."""
    found = source(module)
    while name not in found.definitions and name in found.imports and found.imports[name][1]:
        module, name = found.imports[name]
        found = source(module)
    return module, name


class Stub:
    """One stub file in the making."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.imports: dict[str, set[str]] = {}  # module -> names as written
        self.body: dict[str, str] = {}  # name -> text

    def text(self) -> str:
        """The whole file."""
        for inner, name in public_names(self.module):
            self._define(source(inner), name)
        exported: list[str] = []
        if self.module in WHOLE:
            exported = source(self.module).names_in_all()
            for name in exported:
                if name not in self.body:
                    home = homes().get(defined_at(self.module, name))
                    if home is None:
                        raise Problem(f"{self.module}.{name} is exported but stands nowhere in STUBS")
                    self.imports.setdefault(home, set()).add(f"{name} as {name}")
        lines = [HEADER]
        for module in sorted(self.imports):
            names = self.imports[module]
            if "" in names:
                lines.append(f"import {module}\n")
            if names - {""}:
                lines.append(f"from {module} import {', '.join(sorted(names - {''}))}\n")
        if exported:
            lines.append("\n__all__ = [\n" + "".join(f'    "{name}",\n' for name in exported) + "]\n")
        return "".join(lines) + "\n" + "\n".join(self.body.values())

    # ------------------------------------------------------------------------------------------ definitions

    def _define(self, origin: Source, name: str) -> None:
        if name in self.body:
            return
        self.body[name] = ""  # It may mention itself.
        nodes = origin.definitions.get(name)
        if nodes is None:
            raise Problem(f"{origin.module} does not define {name}")
        overloads = [node for node in nodes if _is_overload(node)]
        parts = []
        for node in overloads or nodes:
            if isinstance(node, ast.ClassDef):
                parts.append(self._class(origin, node))
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                parts.append(self._function(origin, node, "", "") + "\n")
            else:
                parts.append(self._variable(origin, node) + "\n")
        text = "".join(parts)
        del self.body[name]  # So that what it needs stands before it.
        self.body[name] = text

    def _variable(self, origin: Source, node: ast.Assign | ast.AnnAssign) -> str:
        target = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
        annotation = node.annotation if isinstance(node, ast.AnnAssign) else None
        kind = ast.unparse(annotation) if annotation is not None else ""
        assert node.value is not None, target
        if kind == "TypeAlias":
            self._require(origin, target, [annotation, node.value])
            quoted = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
            value = ast.literal_eval(node.value) if quoted else ast.unparse(node.value)
            return f"{target}: TypeAlias = {value}"
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in ("TypeVar", "ParamSpec"):
            self._require(origin, target, [node.value])
            return f"{target} = {ast.unparse(node.value)}"
        if annotation is None or kind == "Final":
            literal = _literal_type(node.value)
            if not literal:
                raise Problem(f"{origin.module}.{target} is public: annotate it")
            if kind == "Final":
                self._require(origin, target, [annotation])
                return f"{target}: Final[{literal}]"
            return f"{target}: {literal}"
        self._require(origin, target, [annotation])
        return f"{target}: {kind}"

    def _function(
        self, origin: Source, node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str, indent: str
    ) -> str:
        name = f"{origin.module}.{owner}{node.name}"
        if node.returns is None:
            raise Problem(f"{name} is public: annotate what it returns")
        arguments = self._public_arguments(origin, name, node.args)
        everyone = [
            argument
            for argument in ast.walk(arguments)
            if isinstance(argument, ast.arg) and argument.arg not in ("self", "cls")
        ]
        for argument in everyone:
            if argument.annotation is None:
                raise Problem(f"{name}: annotate the argument {argument.arg}")
        self._require(origin, name, [*(a.annotation for a in everyone), node.returns, *node.decorator_list])
        decorators = "".join(f"{indent}@{ast.unparse(each)}\n" for each in node.decorator_list)
        word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        signature = f"{node.name}({_arguments(arguments)}) -> {ast.unparse(node.returns)}"
        return f"{decorators}{indent}{word} {signature}: ..."

    def _public_arguments(self, origin: Source, name: str, given: ast.arguments) -> ast.arguments:
        """Without the keywords that are for our own tests: optional, and of a type that is not public.

        stubtest is told of them by tests/typing/stubtest_allowed.txt.
        """
        pairs = []
        for argument, default in zip(given.kwonlyargs, given.kw_defaults):
            try:
                self._require(origin, name, [argument.annotation])
            except Problem:
                if default is None:
                    raise
                continue
            pairs.append((argument, default))
        return ast.arguments(
            given.posonlyargs,
            given.args,
            given.vararg,
            [argument for argument, _ in pairs],
            [default for _, default in pairs],
            given.kwarg,
            given.defaults,
        )

    def _class(self, origin: Source, node: ast.ClassDef) -> str:
        name = f"{origin.module}.{node.name}"
        self._require(origin, name, [*node.bases, *node.decorator_list])
        attributes: dict[str, str] = {}
        methods: list[str] = []
        overloaded = {f.name for f in node.body if isinstance(f, ast.FunctionDef) and _is_overload(f)}
        for child in node.body:
            if isinstance(child, (ast.Assign, ast.AnnAssign)):
                self._attribute(origin, child, None, attributes)
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if isinstance(child, ast.FunctionDef) and child.name == "__init__":
                    for statement in ast.walk(child):
                        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
                            self._attribute(origin, statement, child, attributes)
                if child.name in HIDDEN or (child.name[0] == "_" and child.name not in SPECIAL):
                    continue
                if child.name in overloaded and not _is_overload(child):
                    continue
                try:
                    methods.append(self._function(origin, child, node.name + ".", "    "))
                except Problem:
                    if child.name != "__init__" or node.name not in GIVEN:
                        raise
        bases = [ast.unparse(base) for base in node.bases] + [ast.unparse(word) for word in node.keywords]
        head = "".join(f"@{ast.unparse(each)}\n" for each in node.decorator_list)
        head += f"class {node.name}({', '.join(bases)}):" if bases else f"class {node.name}:"
        body = [f"    {attribute}: {text}" for attribute, text in attributes.items()] + methods
        return head + ("\n" + "\n".join(body) if body else " ...") + "\n"

    def _attribute(
        self,
        origin: Source,
        node: ast.Assign | ast.AnnAssign,
        init: ast.FunctionDef | None,
        found: dict[str, str],
    ) -> None:
        """Add what an assignment in a class, or to ``self`` in its ``__init__``, says about an attribute."""
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        if isinstance(target, ast.Tuple):
            for part in target.elts:
                self._attribute(origin, ast.Assign([part], ast.Constant(None)), init, found)
            return
        if init is None and isinstance(target, ast.Name):
            name = target.id
        elif init is not None and isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
            name = target.attr
        else:
            return
        if name[0] == "_" or name in found:
            return
        annotation = node.annotation if isinstance(node, ast.AnnAssign) else None
        is_final = annotation is not None and ast.unparse(annotation) == "Final"
        meant = annotation
        if annotation is None or is_final:
            meant = self._type_of(origin, node.value, _argument_types(init.args) if init is not None else {})
        if meant is None:
            raise Problem(f"{origin.module}: the attribute {name} of a public class has no declared type")
        try:
            self._require(origin, f"{origin.module}.{name}", [annotation, meant])
        except Problem:
            return
        found[name] = f"Final[{ast.unparse(meant)}]" if is_final else ast.unparse(meant)

    def _type_of(
        self, origin: Source, value: ast.expr | None, arguments: dict[str, ast.expr]
    ) -> ast.expr | None:
        """The type of a value: of an argument, of what a function of ours returns, of a literal."""
        if isinstance(value, ast.Name):
            return arguments.get(value.id)
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            module, name = origin.module, value.func.id
            if origin.imports.get(name, ("", ""))[0].startswith("shunter"):
                module, name = defined_at(module, name)
            function = source(module).definitions.get(name, [None])[0]
            return function.returns if isinstance(function, ast.FunctionDef) else None
        literal = _literal_type(value) if value is not None else ""
        return ast.Name(literal) if literal else None

    # ------------------------------------------------------------------------------------------ names

    def _require(self, origin: Source, user: str, expressions: Iterable[ast.expr | None]) -> None:
        """See that every name in some expressions means something in the stub."""
        needed = {name for expression in expressions if expression is not None for name in _names(expression)}
        imports: list[tuple[str, str]] = []
        helpers: list[str] = []
        for name in sorted(needed):
            if name in origin.definitions:
                place = (origin.module, name)
            elif name in origin.imports:
                module, inner = origin.imports[name]
                if not module.startswith("shunter"):
                    imports.append(
                        (module, inner if name in (inner, "") or not inner else f"{inner} as {name}")
                    )
                    continue
                place = defined_at(module, inner)
            elif hasattr(builtins, name):
                continue
            else:
                raise Problem(f"{user} mentions {name}, which {origin.module} does not know")
            home = homes().get(place)
            if home is not None and home != self.module:
                imports.append((home, name))
            elif home is None:
                if not _is_helper(source(place[0]).definitions[place[1]]):
                    raise Problem(f"{user} is public but mentions {'.'.join(place)}, which is not")
                helpers.append(name)
        for module, name in imports:
            self.imports.setdefault(module, set()).add(name)
        for name in helpers:
            self._define(
                origin if name in origin.definitions else source(defined_at(origin.module, name)[0]), name
            )


def _names(node: ast.expr) -> Iterator[str]:
    """The names that an annotation mentions, those in quotes too; not the texts of a ``Literal``."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from _names(ast.parse(node.value, mode="eval").body)
    elif isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("Literal", "typing.Literal"):
        yield from _names(node.value)
    elif isinstance(node, ast.Call):  # TypeVar("T", bound=X), a decorator
        yield from _names(node.func)
        for value in [*node.args[1:], *(keyword.value for keyword in node.keywords)]:
            yield from _names(value)
    else:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from _names(child)


def _is_overload(node: ast.AST) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and any(
        ast.unparse(each) in ("overload", "typing.overload") for each in node.decorator_list
    )


def _is_helper(nodes: list[Definition]) -> bool:
    """Type variables and aliases come along with whatever needs them."""
    node = nodes[0]
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.annotation) == "TypeAlias"
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) in ("TypeVar", "ParamSpec")
    )


def _argument_types(arguments: ast.arguments) -> dict[str, ast.expr]:
    """What a function's arguments are inside it."""
    found = {}
    for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        if each.annotation is not None:
            found[each.arg] = each.annotation
    for rest, text in ((arguments.vararg, "tuple[{}, ...]"), (arguments.kwarg, "dict[str, {}]")):
        if rest is not None and rest.annotation is not None:
            found[rest.arg] = ast.parse(text.format(ast.unparse(rest.annotation)), mode="eval").body
    return found


def _arguments(arguments: ast.arguments) -> str:
    """The arguments of a function as text, with plain defaults only."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + [*arguments.defaults]
    parts = [_argument(each, default) for each, default in zip(positional, defaults)]
    if arguments.posonlyargs:
        parts.insert(len(arguments.posonlyargs), "/")
    if arguments.vararg is not None:
        parts.append("*" + _argument(arguments.vararg, None))
    elif arguments.kwonlyargs:
        parts.append("*")
    parts += [_argument(each, default) for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    if arguments.kwarg is not None:
        parts.append("**" + _argument(arguments.kwarg, None))
    return ", ".join(parts)


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = ast.unparse(argument)
    if default is None:
        return text
    return f"{text}{' = ' if argument.annotation else '='}{ast.unparse(_default(default))}"


def _default(value: ast.expr) -> ast.expr:
    """Plain defaults are shown, others are ``...``."""
    plain = isinstance(value, ast.Constant) or (
        isinstance(value, ast.UnaryOp) and isinstance(value.operand, ast.Constant)
    )
    return value if plain else ast.Constant(...)


def _literal_type(value: ast.expr) -> str:
    if isinstance(value, ast.UnaryOp):
        value = value.operand
    if isinstance(value, ast.Constant) and isinstance(value.value, (bool, int, float, str, bytes)):
        return type(value.value).__name__
    return ""


def generate() -> dict[Path, str]:
    """All files of the stub package, by path."""
    files = {}
    for module in STUBS:
        inner = Path(*module.split(".")[1:])
        path = (
            OUTPUT / inner / "__init__.pyi"
            if source(module).is_package
            else OUTPUT / inner.with_suffix(".pyi")
        )
        files[path] = Stub(module).text()
    return files


def main(arguments: list[str]) -> int:
    """Write the stubs, or compare them (``--check``)."""
    try:
        files = generate()
    except Problem as problem:
        print(f"typings/generate.py: {problem}", file=sys.stderr)
        return 1
    present = set(OUTPUT.rglob("*.pyi")) if OUTPUT.exists() else set()
    if arguments == ["--check"]:
        stale = sorted(
            str(path.relative_to(ROOT))
            for path in present | set(files)
            if path not in files or path not in present or path.read_text(encoding="utf-8") != files[path]
        )
        if stale:
            print(f"stale stubs: {', '.join(stale)}. To refresh: python typings/generate.py", file=sys.stderr)
        return 1 if stale else 0
    for path in present - set(files):
        path.unlink()
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
