"""Imports run one way. The two lists here are the map of the code: read them top down."""

from __future__ import annotations

import ast
from typing import Final

import pytest

from tests.architecture.sources import SCHED, Module, foreign_imports, imports, modules, state_modules

#: shunter.state, from the records at the bottom to the facade on top. A module may import what stands before it;
#: modules that share a line do not import each other.
STATE_ORDER: Final = (
    "names",
    "model",
    "settings",
    "events",
    "outbox",
    "cluster",
    "costs natural topology",
    "links replicas assignment interest backlog limits groups ordering rebalance_plan",
    "placement",
    "transitions",
    "engine",
    "dispatch",
    "graphs movement",
    "rebalance replication retirement",
    "membership",
    "restart keeping idleness",
    "clients",
    "reactions",
    "validate views",
    "scheduler",
)
#: What the state may import of the rest of shunter.
STATE_USES: Final = ("errors", "types")

#: Every other part, and what it may import besides itself. "state" is the door, never a module behind it.
PARTS: Final = {
    "errors": "",
    "types": "errors",
    "_debug": "",
    "wire": "types errors",
    "plugins.base": "state",
    "plugins": "plugins.base state types errors",
    "config": "state wire errors types",  # how to reach a scheduler is read from files that `wire` defines
    "serialize": "types errors",
    "recording": "state errors",
    "server": "recording state wire plugins.base errors config types",
    "client": "serialize wire errors config types",
    "worker": "wire serialize plugins.base errors config types",
    "deploy": "server worker client wire errors config types",
    "cli": "recording server worker client deploy wire plugins plugins.base config errors types _debug",
    "__main__": "cli",
}
#: Imports inside functions that cross parts against that order, each with its reason.
LAZY: Final = {
    ("client", "deploy"): "Client() without an address starts a LocalCluster",
    ("worker", "client"): "get_client() inside a task",
}
#: Modules that unpickle. The scheduler's side imports none of them.
UNPICKLERS: Final = {"pickle", "cloudpickle", "marshal", "shelve", "dill", "copyreg", "_pickle"}


def part_of(name: str) -> str:
    """The part that a module belongs to: the longest entry of `PARTS`, else its first name in the package."""
    inner = name.partition(".")[2]
    if not inner:
        return "root"
    for part in sorted(PARTS, key=len, reverse=True):
        if inner == part or inner.startswith(part + "."):
            return part
    return inner.partition(".")[0]


def outside_state() -> list[Module]:
    return [m for m in modules().values() if part_of(m.name) not in ("state", "root")]


@pytest.mark.parametrize("module", state_modules(), ids=lambda m: m.leaf)
def test_module_of_state__imports_only_what_stands_before_it(module: Module) -> None:
    level = {name: i for i, line in enumerate(STATE_ORDER) for name in line.split()}
    assert module.leaf in level, f"{module.name} has no place in STATE_ORDER: give it one"
    wrong = []
    for each in imports(module):
        inner = each.target.removeprefix("shunter.state.")
        if inner == each.target:
            ok = each.target.removeprefix("shunter.") in STATE_USES
        else:  # Types alone may refer upwards: nothing is imported when it runs.
            ok = each.typing or level.get(inner, len(STATE_ORDER)) < level[module.leaf]
        if not ok:
            wrong.append(f"line {each.line}: {each.target}")
    assert not wrong, f"{module.name} imports what stands beside or after it: {wrong}"


@pytest.mark.parametrize("module", outside_state(), ids=lambda m: m.name)
def test_part__imports_only_the_parts_below_it(module: Module) -> None:
    part = part_of(module.name)
    assert part in PARTS, f"{module.name} belongs to no part: add it to PARTS"
    wrong = []
    for each in imports(module):
        target = part_of(each.target)
        if target == part or target in PARTS[part].split():
            continue
        if each.lazy and (part, target) in LAZY:
            continue
        if target == "root" and imports_only_facts(module, each.line):
            continue
        if not each.typing:
            wrong.append(f"line {each.line}: {each.target}")
    assert not wrong, f"{module.name} imports parts that it may not know: {wrong}"


def imports_only_facts(module: Module, line: int) -> bool:
    """Whether an import of the package root takes nothing but facts that are there without a lazy import."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.lineno == line:
            return {alias.name for alias in node.names} <= {"COMPILED", "__version__", "_debug"}
    return False


@pytest.mark.parametrize("module", outside_state(), ids=lambda m: m.name)
def test_outsider__knows_only_the_door_of_the_state(module: Module) -> None:
    past = [f"line {i.line}: {i.target}" for i in imports(module) if i.target.startswith("shunter.state.")]
    assert not past, f"{module.name} goes past the door: {past}"


def test_package_root__imports_eagerly_only_the_debug_finder() -> None:
    eager = [i.target for i in imports(modules()["shunter"]) if not i.typing and not i.lazy]
    assert eager == ["shunter._debug"]


@pytest.mark.parametrize("part", ["server", "recording", "wire", "state"])
def test_scheduler_side__imports_no_unpickler(part: str) -> None:
    found = {
        module.name: sorted(foreign_imports(module) & UNPICKLERS)
        for module in modules().values()
        if part_of(module.name) == part and foreign_imports(module) & UNPICKLERS
    }
    assert not found


def test_state__imports_nothing_that_waits_reads_clocks_draws_or_logs() -> None:
    forbidden = {
        "asyncio",
        "datetime",
        "logging",
        "os",
        "random",
        "secrets",
        "socket",
        "subprocess",
        "threading",
        "time",
    }
    found = {
        module.name: sorted(foreign_imports(module) & forbidden)
        for module in state_modules()
        if foreign_imports(module) & forbidden
    }
    assert not found


def test_sources__have_no_package_named_like_the_standard_library() -> None:
    assert not (SCHED / "__init__.py").exists(), "the standard library owns the name `sched`"
