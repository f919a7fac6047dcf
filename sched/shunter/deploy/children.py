"""Child processes that end when this one does.

A child's standard input is a pipe that only this process holds: when it closes, the child ends
(`shunter.cli.life`). The kernel closes it even after a kill -9. A second pipe carries one line, "I am ready";
the child's stderr comes through a third one, so that a child that does not start can be quoted in the error.
Its stdout is our own.

These are plain subprocesses: nothing of the user's script is imported by a child, so a script
without ``if __name__ == "__main__"`` does no harm.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock, Thread
from typing import IO, Final

from shunter.errors import ShunterError
from shunter.worker.exits import PYTHON, describe_exit

#: Lines of a child's stderr that an error quotes.
TAIL_LINES: Final = 15


class Child:
    """A ``python -m shunter …`` process.

    Args:
        what: what to call it in errors, such as "scheduler".
        arguments: the command line after ``shunter``.
        env: its environment.
    """

    def __init__(self, what: str, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        self.what = what
        self._ready_fd, theirs = os.pipe()
        try:
            self.process = subprocess.Popen(
                [*PYTHON, "-m", "shunter", *arguments, "--die-with-stdin", "--ready-fd", str(theirs)],
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=env,
                pass_fds=(theirs,),
                # A Ctrl-C at the terminal is for the user's code, which may go on after it (a notebook does).
                # It also makes the child the leader of a process group: `_kill` reaches its own children.
                start_new_session=True,
            )
        except BaseException:
            os.close(self._ready_fd)
            raise
        finally:
            os.close(theirs)
        assert self.process.stdin is not None and self.process.stderr is not None
        self._stdin = self.process.stdin
        self._stderr = Stderr(self.process.stderr, what)
        _all.add(self)

    def wait_ready(self, deadline: float) -> dict[str, object]:
        """Wait until the child says that it is ready, and return what it tells.

        Args:
            deadline: in ``time.monotonic`` seconds.

        Raises:
            ShunterError: it has ended instead, or is not ready in time; quotes the last lines of its stderr.
        """
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._ready_fd, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise self._error("is not ready in time")
                chunk = os.read(self._ready_fd, 4096)
                if not chunk:
                    raise self._error(self._how_it_ended())
                line += chunk
        self._stderr.show()
        told = json.loads(line)
        assert isinstance(told, dict), told
        return told

    def stop(self, grace: float) -> None:
        """End the child: ask, wait for at most ``grace`` seconds, then kill it and what it has started."""
        if self._ready_fd >= 0:
            os.close(self._ready_fd)
            self._ready_fd = -1
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(grace)
            except subprocess.TimeoutExpired:
                self._kill()
        self.let_go()
        self._stderr.join(1.0)

    def let_go(self) -> None:
        """Close its standard input: if it has not ended, it does now."""
        with suppress(OSError):
            self._stdin.close()

    def _kill(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # Not reaped yet, so this is still its own group.
        except (ProcessLookupError, PermissionError):
            self.process.kill()
        self.process.wait()

    def _how_it_ended(self) -> str:
        try:
            code = self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            return "closed its pipe without a word"
        self._stderr.join(1.0)  # Its last words.
        return f"did not start ({describe_exit(code)})"

    def _error(self, what_happened: str) -> ShunterError:
        return ShunterError(
            "\n    ".join([f"the cluster's {self.what} {what_happened}", *self._stderr.tail()])
        )


class Stderr:
    """A child's stderr. Kept back while it starts, since the error will quote it; then shown as it comes."""

    def __init__(self, pipe: IO[bytes], what: str) -> None:
        self._pipe = pipe
        self._lines: deque[bytes] = deque(maxlen=TAIL_LINES)
        self._shown = False
        self._lock = Lock()
        self._thread = Thread(target=self._pump, name=f"shunter-{what}-stderr", daemon=True)
        self._thread.start()

    def show(self) -> None:
        """Pass on what has come and what will come to this process's stderr."""
        with self._lock:
            self._shown = True
            write_stderr(b"".join(self._lines))

    def tail(self) -> list[str]:
        """The last lines."""
        with self._lock:
            return [line.decode(errors="replace").rstrip() for line in self._lines]

    def join(self, timeout: float) -> None:
        """Wait for the end of it: the child and all it has started are gone."""
        self._thread.join(timeout)

    def _pump(self) -> None:
        rest = b""
        with self._pipe:
            while chunk := self._pipe.read(65536):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(line + b"\n")
        if rest:
            self._take(rest)

    def _take(self, line: bytes) -> None:
        with self._lock:
            self._lines.append(line)
            if self._shown:
                write_stderr(line)


def write_stderr(data: bytes) -> None:
    """Write to this process's stderr, without its buffer: no thread may hold that when Python shuts down."""
    try:
        os.write(sys.stderr.fileno(), data)
    except (
        AttributeError,
        OSError,
        ValueError,
    ):  # Replaced by something that is no file (a notebook), or closed.
        with suppress(AttributeError, OSError, ValueError):
            sys.stderr.write(data.decode(errors="replace"))


#: All children of this process, for `_let_go_after_fork`.
_all: weakref.WeakSet[Child] = weakref.WeakSet()


def _let_go_after_fork() -> None:
    """In a forked copy of this process: close the pipes, or the death of the true starter goes unnoticed."""
    for child in list(_all):
        child.let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_after_fork)
