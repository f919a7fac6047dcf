"""``shunter run``: run a script against a cluster on this machine, which lives as long as the script."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final

from shunter.cli import about, exits, options
from shunter.errors import UsageError

if TYPE_CHECKING:
    from shunter.deploy.local import LocalCluster

#: A script may take this long to end after a SIGTERM (seconds); then it is killed.
GRACE: Final = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_cluster(parser)
    options.add_log_level(parser)
    parser.add_argument("script", metavar="SCRIPT", help="Python file; a Client() in it uses the cluster")
    parser.add_argument("args", nargs=argparse.REMAINDER, metavar="ARGS", help="passed on to the script")


def run(given: argparse.Namespace) -> int:
    if not os.path.isfile(given.script):
        raise UsageError(f"there is no file {given.script!r}")
    folder = os.path.dirname(os.path.abspath(given.script))
    return run_command([sys.executable, given.script, *given.args], given, folder)


def run_command(command: Sequence[str], given: argparse.Namespace, folder: str) -> int:
    """Run a command against a new cluster.

    Args:
        command: the program and its arguments.
        given: the options of `options.add_cluster` and the log level.
        folder: where the command imports from; workers do as well.

    Returns:
        The exit code of the command, 128 + n if signal n ended it.
    """
    from shunter import config
    from shunter.deploy.local import LocalCluster, own_import_path

    print(f"shunter {about.version_line()}", file=sys.stderr, flush=True)  # stdout belongs to the script.
    script = Script()
    try:
        with (
            script.signals_handled(),
            LocalCluster(
                given.nworkers,
                given.nthreads,
                memory_limit=given.memory_limit,
                resources=given.resources,
                log_level=str(config.lookup("log_level", given.log_level)),
                python_path=[folder, *own_import_path()],
            ) as cluster,
        ):
            return exits.of_process(script.run(command, environment_for(cluster)))
    except Stopped as stopped:
        return 128 + stopped.signum


def environment_for(cluster: LocalCluster) -> dict[str, str]:
    """By these variables a Client() in the script finds the cluster. The token is in the file, not here."""
    assert cluster.scheduler_file is not None
    env = {**os.environ, "SHUNTER_ADDRESS": cluster.address, "SHUNTER_SCHEDULER_FILE": cluster.scheduler_file}
    env.pop("SHUNTER_TOKEN_FILE", None)
    return env


class Stopped(BaseException):
    """A signal came while no script was running to pass it on to."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class Script:
    """The user's script as a child process, to which signals are passed on."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = False
        self._early: list[int] = []  # Signals that came while the process was being made.
        self._interrupts = 0

    @contextmanager
    def signals_handled(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM within."""
        before = {
            signum: signal.signal(signum, self._on_signal) for signum in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)

    def run(self, command: Sequence[str], env: Mapping[str, str]) -> int:
        """Start it and wait for its end; returns Popen's return code."""
        self._starting = True
        self._process = subprocess.Popen(command, env=env)
        for signum in self._early:
            self._pass_on(self._process, signum)
        return self._process.wait()

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        if self._process is not None:
            self._pass_on(self._process, signum)
        elif self._starting:
            self._early.append(signum)
        else:
            raise Stopped(signum)

    def _pass_on(self, process: subprocess.Popen[bytes], signum: int) -> None:
        if signum == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts == 1 and _in_foreground():
                return  # The terminal has told the script as well. A second Ctrl-C is passed on.
        process.send_signal(signum)  # Does nothing once it has ended.
        if signum == signal.SIGTERM:
            timer = threading.Timer(GRACE, process.kill)
            timer.daemon = True
            timer.start()


def _in_foreground() -> bool:
    """Whether a Ctrl-C at the terminal reaches our process group, which is the script's too."""
    try:
        terminal = os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False  # There is no terminal: somebody sent the signal to us alone.
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
