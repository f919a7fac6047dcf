"""Running ``python -m shunter`` in tests: bounded, and with an eye on what stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import psutil


class Process(subprocess.Popen[str]):
    """A child with three pipes."""

    stdin: IO[str]
    stdout: IO[str]
    stderr: IO[str]


#: No wait in these tests is longer (seconds); none is meant to come near it.
PATIENCE = 60


@contextmanager
def started(arguments: Sequence[str], **options: Any) -> Iterator[Process]:
    """A running ``python ARGUMENTS`` with pipes, in a session of its own: no terminal sends it signals."""
    process = Process(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # With a script that has outlived `shunter run`, for one.
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()
        process.wait(PATIENCE)


@contextmanager
def started_and_ready(arguments: Sequence[str]) -> Iterator[Process]:
    """The same, after it has said that it is ready in the way in which `LocalCluster` is told."""
    ready_fd, theirs = os.pipe()
    with open(ready_fd, encoding="utf-8") as ready:
        with started([*arguments, "--ready-fd", str(theirs)], pass_fds=(theirs,)) as process:
            os.close(theirs)
            assert ready.readline().startswith("{"), "it has ended instead"
            yield process


def finished(arguments: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """``python ARGUMENTS``, after it has ended."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        **options,
    )


def family(pid: int) -> list[psutil.Process]:
    """The processes that descend from this one; empty if it has ended."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def all_gone(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Wait for the end of these; returns those that live on (none, in a test that passes)."""
    return psutil.wait_procs(processes, timeout=PATIENCE)[1]


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    """The environment for a child that must not find a real user's scheduler."""
    return {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), **more}
