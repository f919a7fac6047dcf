"""The build that is installed: it says what it is, and only the state is compiled."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import traceback
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, SourceFileLoader
from pathlib import Path

import pytest

import shunter
from shunter import _debug
from shunter.state import ClientAdded, SchedulerState, Settings

HERE = Path(_debug.HERE)
STATE_MODULES = sorted(path.stem for path in (HERE / "state").glob("*.py") if path.stem != "__init__")
#: What `import shunter` may bring along.
ROOT_MODULES = {"shunter", "shunter._debug"}

only_compiled = pytest.mark.skipif(not shunter.COMPILED, reason="the state runs from source")
only_installed = pytest.mark.skipif(
    _debug.why_pure() == "from the source tree", reason="shunter is not installed"
)


def libraries(folder: Path) -> set[Path]:
    return {path for suffix in (".so", ".pyd") for path in folder.rglob(f"*{suffix}")}


@pytest.mark.parametrize("name", STATE_MODULES)
def test_module_of_state__is_what_compiled_says(name: str) -> None:
    module = importlib.import_module(f"shunter.state.{name}")
    assert module.__spec__ is not None
    assert isinstance(module.__spec__.loader, ExtensionFileLoader if shunter.COMPILED else SourceFileLoader)
    assert module.__name__ == f"shunter.state.{name}"


def test_package__has_compiled_files_only_for_the_state() -> None:
    found = {path.relative_to(HERE).as_posix() for path in libraries(HERE)}
    wanted = {f"state/{name}{EXTENSION_SUFFIXES[0]}" for name in STATE_MODULES} if _debug.INSTALLED else set()
    assert found == wanted


@only_installed
def test_install__adds_no_library_but_the_group_of_the_state() -> None:
    from importlib.metadata import files

    shipped = files("shunter")
    assert shipped is not None
    outside = {
        path.as_posix()
        for path in shipped
        if path.suffix in (".so", ".pyd") and path.parts[:2] != ("shunter", "state")
    }
    assert outside == ({f"shunter__mypyc{EXTENSION_SUFFIXES[0]}"} if _debug.INSTALLED else set())


@only_installed
def test_install__ships_sources_stubs_example_and_the_reason_for_its_build() -> None:
    for name in STATE_MODULES:
        assert (HERE / "state" / f"{name}.py").exists()
    assert (HERE / "py.typed").exists()
    assert (HERE / "examples" / "wordcount.py").exists()
    assert (HERE.parent / "shunter-stubs" / "__init__.pyi").exists()
    note = (HERE / "_build.txt").read_text(encoding="utf-8").strip()
    assert note == "compiled" if _debug.INSTALLED else note.startswith("pure: ")


def test_source_tree__holds_no_compiled_file() -> None:
    assert not libraries(Path(__file__).parents[2] / "sched")


def test_description__names_the_build_and_why() -> None:
    if shunter.COMPILED:
        assert _debug.describe() == "compiled"
    elif _debug.INSTALLED:
        assert _debug.describe() == "pure (SHUNTER_DEBUG is set)"
    else:
        assert _debug.describe().startswith("pure (")


def test_public_names__all_resolve_and_are_listed() -> None:
    for name in shunter.__all__:
        assert getattr(shunter, name) is not None
    assert set(shunter.__all__) <= set(dir(shunter))
    assert set(shunter._HOMES) == set(shunter.__all__) - {"COMPILED", "__version__"}


def test_unknown_name__is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'shunter' has no attribute 'Cleint'"):
        shunter.Cleint  # noqa: B018  # type: ignore[attr-defined]


def test_traceback_through_the_state__quotes_its_source() -> None:
    state = SchedulerState(Settings(), now=0.0)
    try:
        state.step(object(), 0.0)  # type: ignore[arg-type]  # on purpose
    except Exception:
        text = traceback.format_exc()
    else:
        pytest.fail("step took something that is no event")
    if not shunter.COMPILED or "shunter/state/" in text:
        last = [line for line in text.splitlines() if "/state/" in line][-1]
        quoted = text.splitlines()[text.splitlines().index(last) + 1]
        assert quoted.startswith("    "), text


@only_compiled
def test_wrong_type__is_a_type_error_where_it_happens() -> None:
    with pytest.raises(TypeError, match="int object expected; got str"):
        ClientAdded("1", "name")  # type: ignore[arg-type]  # on purpose


def test_fresh_interpreter__imports_shunter_lazily_and_debug_mode_takes_the_source() -> None:
    """One process for what only a fresh one can show."""
    code = (
        "import sys, json, shunter\n"
        "early = sorted(m for m in sys.modules if m.partition('.')[0] in ('shunter', 'asyncio', 'pickle', 'psutil'))\n"
        "import shunter.state as s\n"
        "from shunter import config\n"
        "state = [m.__file__ for n, m in sys.modules.items() if n.startswith('shunter.state')]\n"
        "files = sorted({f.rpartition('.')[2] for f in state})\n"
        "print(json.dumps([early, files, shunter.COMPILED, shunter._debug.why_pure(), config.settings().validate]))\n"
    )
    env = {**os.environ, "SHUNTER_DEBUG": "1", "PYTHONPATH": str(HERE.parent)}
    out = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    early, files, compiled, why, validates = json.loads(out.stdout)
    assert set(early) == ROOT_MODULES
    assert files == ["py"]
    assert compiled is False
    assert why == ("SHUNTER_DEBUG is set" if _debug.INSTALLED else _debug.why_pure())
    assert validates is True
