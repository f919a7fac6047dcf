"""What stands in several files of the repository, and has to agree."""

from __future__ import annotations

import configparser
import re

import pytest

from tests.architecture.sources import ROOT

README_COMMANDS = [
    "python3 -m venv .venv && .venv/bin/python -m pip install '.[cloudpickle]'"
    " && .venv/bin/shunter run examples/wordcount.py",
    ".venv/bin/python -m pip install tox && .venv/bin/tox",
]


def read(name: str) -> str:
    path = ROOT / name
    if not path.exists():
        pytest.skip(f"{name} is not part of this checkout")
    return path.read_text(encoding="utf-8")


def test_readme__has_the_two_commands_that_ci_runs() -> None:
    found = [
        line.strip() for line in read("README.md").splitlines() if line.startswith("    ") and ".venv" in line
    ]
    assert found == README_COMMANDS
    assert "README.md" in read(".ci/run")


def test_pythons__are_the_same_everywhere() -> None:
    classifiers = re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', read("pyproject.toml"))
    factors = re.search(r"py\{([\d,]+)\}-\{pure,compiled\}", read("tox.ini"))
    jobs = re.search(r"python: \[([py\d, ]+)\]", read(".github/workflows/tests.yml"))
    assert factors is not None and jobs is not None
    assert [f"3{minor}" for minor in classifiers] == factors[1].split(",")
    assert [f"py3{minor}" for minor in classifiers] == jobs[1].split(", ")


def test_every_tox_environment__is_explained() -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read_string(read("tox.ini"))
    environments = [name for name in tox.sections() if name.startswith("testenv") and ":.pkg" not in name]
    assert {"testenv", "testenv:typing", "testenv:lint", "testenv:bench"} <= set(environments)
    assert not [name for name in environments if not tox[name].get("description")]


def test_compiled_pythons__each_have_a_wheel_of_their_own() -> None:
    text = read("tox.ini")
    (minors,) = re.findall(r"py\{([\d,]+)\}-\{pure,compiled\}", text)
    for factor in minors.split(","):
        assert f"py{factor}-compiled: .pkg-compiled-py{factor[0]}.{factor[1:]}\n" in text
