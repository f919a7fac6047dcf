"""The build hook, without compiling anything: what it asks for, when it gives up, what goes into a wheel."""

from __future__ import annotations

import runpy
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hatchling", reason="tox installs it")
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "README.md").exists(), reason="not run from a checkout")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHUNTER_BUILD", raising=False)
    monkeypatch.delenv("CC", raising=False)


def build_wheel(tmp_path: Path) -> Path:
    return Path(next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])))


def requirements() -> list[str]:
    return [str(each) for each in WheelBuilder(str(ROOT)).config.dependencies]


def test_pure_build__asks_for_no_mypy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_BUILD", "pure")
    assert not requirements()


def test_compiled_build__asks_for_mypy_and_setuptools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_BUILD", "compiled")
    assert [each.partition("[")[0].partition(">")[0] for each in requirements()] == ["mypy", "setuptools"]


def test_auto_build_without_a_compiler__asks_for_no_mypy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert not requirements()


def test_unknown_mode__is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_BUILD", "fast")
    with pytest.raises(SystemExit, match="SHUNTER_BUILD='fast': expected one of auto, compiled, pure"):
        requirements()


def test_compiled_build_without_a_compiler__is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHUNTER_BUILD", "compiled")
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(
        SystemExit, match="SHUNTER_BUILD=compiled: no working C compiler \\(no-such-compiler: "
    ):
        build_wheel(tmp_path)
    assert not list(tmp_path.iterdir())


def test_auto_build_without_a_compiler__warns_and_writes_the_reason_into_the_wheel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    wheel = build_wheel(tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        note = archive.read("shunter/_build.txt").decode()
    assert note.startswith("pure: no working C compiler (no-such-compiler")
    assert "building the pure Python wheel" in "".join(capfd.readouterr())


def test_pure_wheel__has_package_stubs_and_example_but_neither_tests_nor_the_hook(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHUNTER_BUILD", "pure")
    with zipfile.ZipFile(build_wheel(tmp_path)) as archive:
        names = archive.namelist()
        note = archive.read("shunter/_build.txt").decode().strip()
    assert note == "pure: built with SHUNTER_BUILD=pure"
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"shunter", "shunter-stubs"}
    assert {"shunter/state/names.py", "shunter/py.typed", "shunter/examples/wordcount.py"} <= set(names)
    assert not [name for name in names if name.endswith((".so", ".pyd"))]


def test_editable_install__gets_neither_stubs_nor_compiled_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("editables", reason="only editable builds need it")
    wheel = Path(next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["editable"])))
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert not {"shunter", "shunter-stubs"} & tops


def test_sdist__has_all_that_both_builds_and_the_tests_need(tmp_path: Path) -> None:
    sdist = Path(next(SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])))
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "tox.ini",
        "toxfile.py",
        "sched/hatch_build.py",
        "sched/compiler.py",
        "sched/shunter/state/names.py",
        "typings/shunter-stubs/__init__.pyi",
        "typings/generate.py",
        "examples/wordcount.py",
        "tests/conftest.py",
    }
    assert not wanted - names
    assert not [name for name in names if name.endswith((".so", ".pyd", ".pyc"))]


def test_probe__says_in_one_line_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    problem: Any = runpy.run_path(str(ROOT / "sched" / "compiler.py"))["problem"]
    monkeypatch.setenv("CC", "false")
    text = problem()
    assert text.startswith("no working C compiler (false: exit code 1")
    assert "\n" not in text
