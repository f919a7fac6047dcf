"""A cluster on this machine, for as long as this process lives."""

from __future__ import annotations

import os
import secrets
import site
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final

from shunter import config
from shunter.deploy.cpus import cpu_count
from shunter.errors import UsageError

if TYPE_CHECKING:
    from shunter.deploy.children import Child
    from shunter.state import Settings

#: How long workers, then the scheduler, may take to end when asked (seconds); then they are killed. They need
#: less: workers give tasks that do not stop 3 s before they are killed.
GRACE: Final = 8.0


class LocalCluster:
    """A scheduler and workers on this machine. A context manager; also ends when the interpreter does.

    Args:
        n_workers: worker processes; default: as many as this process may use processors. With
            ``processes=False`` one, with a thread for each processor.
        threads_per_worker: task threads in each worker.
        processes: run the scheduler and each worker in a process of its own. False: all of them in this
            process, in threads: for tests and debuggers, and for tasks that release the GIL.
        host: address to listen at.
        memory_limit: bytes for each worker, shown beside its use and not enforced yet; 0: unknown.
        resources: what each worker has for tasks that ask for it, such as ``{"GPU": 1}``.
        log_level: of the child processes: debug, info, warning or error.
        settings: of the scheduler; default: from the environment (`shunter.config`).
        python_path: folders for the workers' import path; default: those of this process that are not
            the interpreter's own, so that workers can import what this process can.
        timeout: seconds that all of it has to start.

    Attributes:
        address: of the scheduler.
        token: what clients and workers need to be let in.
        scheduler_file: file with both, readable by this user alone; None with ``processes=False``.
        workers_expected: how many workers there should be.

    Raises:
        UsageError: an argument does not fit.
        ShunterError: something did not start; quotes what it wrote to stderr.
    """

    address: str
    token: str
    scheduler_file: str | None
    workers_expected: int

    def __init__(
        self,
        n_workers: int | None = None,
        threads_per_worker: int | None = None,
        processes: bool = True,
        *,
        host: str = "127.0.0.1",
        memory_limit: int = 0,
        resources: Mapping[str, float] | None = None,
        log_level: str = "warning",
        settings: Settings | None = None,
        python_path: Sequence[str] | None = None,
        timeout: float = 30.0,
    ) -> None:
        if n_workers is None:
            n_workers = cpu_count() if processes else 1
        if threads_per_worker is None:
            threads_per_worker = 1 if processes else cpu_count()
        _check_count("n_workers", n_workers, 0)
        _check_count("threads_per_worker", threads_per_worker, 1)
        _check_count("memory_limit", memory_limit, 0)
        self.workers_expected = n_workers
        self.scheduler_file = None
        level = str(config.lookup("log_level", log_level))
        if not processes:
            from shunter.deploy.in_process import InProcess

            inside = InProcess(
                n_workers, threads_per_worker, host, memory_limit, dict(resources or {}), settings, timeout
            )
            self.address, self.token = inside.address, inside.token
            self._close = weakref.finalize(self, _in_this_process_only, os.getpid(), inside.close)
            return

        from shunter.deploy.children import Child
        from shunter.wire import contact

        deadline = time.monotonic() + timeout
        file = os.path.join(tempfile.gettempdir(), f"shunter-{os.getpid()}-{secrets.token_hex(8)}.json")
        children: list[Child] = []
        self._close = weakref.finalize(self, _in_this_process_only, os.getpid(), _stop_all, children, file)
        try:
            env = _environment(settings, python_path)
            common = ["--scheduler-file", file, "--log-level", level]
            scheduler = Child("scheduler", ["scheduler", "--host", host, "--port", "0", *common], env)
            children.append(scheduler)
            scheduler.wait_ready(deadline)
            self.scheduler_file = file
            self.address, self.token = contact.read(file)
            if n_workers:
                arguments = ["worker", *common, "--host", host, "--name", f"local-{os.getpid()}"]
                arguments += ["--nworkers", str(n_workers), "--nthreads", str(threads_per_worker)]
                arguments += ["--memory-limit", str(memory_limit)]
                if resources:
                    arguments += [
                        "--resources",
                        ",".join(f"{name}={amount!r}" for name, amount in resources.items()),
                    ]
                workers = Child("workers", arguments, env)
                children.insert(0, workers)
                workers.wait_ready(deadline)
        except BaseException:
            self._close()
            raise

    def close(self) -> None:
        """End all of it, in a bounded time. Safe to call more than once."""
        self._close()

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "" if self._close.alive else ", closed"
        return f"<LocalCluster {self.address}, {self.workers_expected} workers{state}>"


def _in_this_process_only(pid: int, close: object, *arguments: object) -> None:
    """Close, unless this is a forked copy of the process that owns the cluster."""
    if os.getpid() == pid:
        assert callable(close)
        close(*arguments)


def _stop_all(children: list[Child], file: str) -> None:
    """Workers first, so that none of them sees the scheduler go away."""
    for child in children:
        child.stop(GRACE)
    with suppress(OSError):
        os.unlink(file)  # The scheduler has done so, unless it was killed.


def _environment(settings: Settings | None, python_path: Sequence[str] | None) -> dict[str, str]:
    """The environment of child processes."""
    env = dict(os.environ)
    if settings is not None:
        for option in config.OPTIONS:
            if option.setting:
                env.pop(option.variable, None)
        env.update(config.environment_of(settings))
    for name in ("SHUNTER_ADDRESS", "SHUNTER_SCHEDULER_FILE", "SHUNTER_TOKEN_FILE"):
        env.pop(name, None)  # They are about another cluster.
    path = own_import_path() if python_path is None else [os.path.abspath(folder) for folder in python_path]
    if path:
        env["PYTHONPATH"] = os.pathsep.join(path)
    return env


def own_import_path() -> list[str]:
    """Folders that this process can import from and another one would not by itself.

    The interpreter's own are left out: PYTHONPATH reaches whatever a task starts, also another Python.
    """
    library = os.path.dirname(os.__file__)
    own = {os.path.realpath(folder) for folder in (*site.getsitepackages(), site.getusersitepackages())}
    found = [
        os.path.abspath(folder)  # "" is the current folder
        for folder in sys.path
        if not folder.startswith(library)
        and os.path.realpath(folder) not in own
        and os.path.exists(folder or ".")
    ]
    return list(dict.fromkeys(found))


def _check_count(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(f"{name} must be a whole number from {least}, not {value!r}")
