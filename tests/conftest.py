"""What every run has: it says which build it tests, stops if that is the wrong one, and counts processes.

``SHUNTER_EXPECT=pure|compiled`` (tox sets it) names the build that must be installed. ``SHUNTER_DEBUG=1`` runs its
state from source. Each test is bounded by ``timeout`` in pyproject.toml.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from typing import Final

import pytest

import shunter
from shunter import _debug

#: At most this share of the tests may start a process; asked of runs of the whole suite.
PROCESS_SHARE_MAX: Final = 0.10
WHOLE_SUITE: Final = 200  # tests; fewer are a selection
#: Audit events that start a process.
_STARTS: Final = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})


class ProcessCount:
    """Which tests start processes, as the interpreter itself tells (an audit hook)."""

    def __init__(self) -> None:
        self.tests = 0
        self.starters: set[str] = set()
        self._running: str | None = None
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if event in _STARTS and self._running is not None:
            self.starters.add(self._running)

    @property
    def share(self) -> float:
        """Of all tests, those that started a process."""
        return len(self.starters) / max(1, self.tests)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.tests += 1
        self._running = item.nodeid
        try:
            return (yield)
        finally:
            self._running = None

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.tests >= WHOLE_SUITE and self.share > PROCESS_SHARE_MAX and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        line = f"{len(self.starters)} of {self.tests} tests started a process ({self.share:.1%})"
        if self.tests >= WHOLE_SUITE and self.share > PROCESS_SHARE_MAX:
            terminalreporter.write_line(f"FAILED: {line}; at most {PROCESS_SHARE_MAX:.0%} may:", red=True)
            for nodeid in sorted(self.starters):
                terminalreporter.write_line(f"  {nodeid}")
        else:
            terminalreporter.write_line(line)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seeds", type=int, default=20, help="runs of each test that takes a `seed` (default: 20)"
    )
    parser.addoption(
        "--sim-seeds", type=int, default=50, help="simulated clusters, all tests together (default: 50)"
    )
    parser.addoption("--rewrite", action="store_true", help="write golden stories anew instead of comparing")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with the argument `seed` runs once for each of ``--seeds``, unless it says otherwise itself."""
    own = [mark for mark in metafunc.definition.iter_markers("parametrize") if "seed" in mark.args[0]]
    if "seed" in metafunc.fixturenames and not own:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--seeds")))


def pytest_configure(config: pytest.Config) -> None:
    installed = "compiled" if _debug.INSTALLED else "pure"
    expected = os.environ.get("SHUNTER_EXPECT") or installed
    if expected != installed:
        raise pytest.UsageError(
            f"SHUNTER_EXPECT={expected}, but the shunter that is imported is {installed}: {shunter.__file__}"
        )
    for name in [name for name in os.environ if name.startswith("SHUNTER_")]:
        if name not in ("SHUNTER_DEBUG", "SHUNTER_EXPECT"):
            del os.environ[name]  # A developer's own cluster is not for tests.
    config.pluginmanager.register(ProcessCount(), "process-count")


def pytest_report_header(config: pytest.Config) -> str:
    return (
        f"shunter {shunter.__version__}, state: {_debug.describe()}, "
        f"{platform.python_implementation()} {platform.python_version()}, from {os.path.dirname(_debug.HERE)}"
    )
