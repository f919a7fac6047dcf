"""`LocalCluster`: it starts, does work, and leaves nothing behind, however its owner ends."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from pathlib import Path

import psutil
import pytest

from shunter import config
from shunter.client.client import Client
from shunter.deploy.local import LocalCluster, own_import_path
from shunter.errors import ShunterError, UsageError
from tests.cli.processes import PATIENCE, all_gone, family, finished, started


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_workers", -1),
        ("n_workers", 1.5),
        ("n_workers", True),
        ("threads_per_worker", 0),
        ("memory_limit", "1GB"),
    ],
)
def test_argument_that_does_not_fit__error_names_it(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"{name} must be a whole number"):
        LocalCluster(**{name: value})  # type: ignore[arg-type]


def test_unknown_log_level__error() -> None:
    with pytest.raises(UsageError, match="expected one of debug"):
        LocalCluster(1, log_level="loud")


def test_import_path_for_workers__what_the_interpreter_does_not_know_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), "", *sys.path, str(tmp_path), "/no/such/folder"])

    path = own_import_path()

    assert path[:2] == [str(tmp_path), os.getcwd()]
    assert path.count(str(tmp_path)) == 1
    assert os.path.dirname(os.__file__) not in path
    assert "/no/such/folder" not in path
    assert not any(folder.endswith("site-packages") for folder in path)


# ------------------------------------------------------------------ in this process


def test_in_process__works_and_changes_nothing_of_the_process() -> None:
    before = (gc.get_threshold(), gc.isenabled(), gc.get_freeze_count(), sys.getswitchinterval())
    handlers = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)]
    children = family(os.getpid())

    with LocalCluster(2, 1, processes=False) as cluster, Client(cluster) as client:
        assert client.submit(os.getpid).result(PATIENCE) == os.getpid()
        assert client.gather(client.map(abs, range(-50, 0))) == list(range(50, 0, -1))
        assert (gc.get_threshold(), gc.isenabled(), gc.get_freeze_count(), sys.getswitchinterval()) == before
        assert cluster.scheduler_file is None
        assert cluster.workers_expected == 2

    assert [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert family(os.getpid()) == children
    assert not [thread for thread in threading.enumerate() if thread.name == "shunter-cluster"]


def test_in_process_closed_twice__no_error() -> None:
    cluster = LocalCluster(1, 1, processes=False)
    assert "closed" not in repr(cluster)

    cluster.close()
    cluster.close()

    assert "closed" in repr(cluster)


def test_in_process_forgotten__ends_with_the_object() -> None:
    cluster = LocalCluster(0, processes=False)
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "shunter-cluster"]

    del cluster
    gc.collect()

    thread.join(PATIENCE)
    assert not thread.is_alive()


# ------------------------------------------------------------------ in processes of its own


def test_processes__workers_import_what_we_import__closing_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "helper_of_test.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import helper_of_test  # type: ignore[import-not-found]

    settings = config.settings({}, validate=True)
    with LocalCluster(2, 1, settings=settings, resources={"GPU": 1.0}) as cluster:
        everybody = family(os.getpid())
        assert cluster.scheduler_file is not None
        assert oct(os.stat(cluster.scheduler_file).st_mode)[-3:] == "600"
        assert not any(cluster.token in word for process in everybody for word in process.cmdline())
        with Client(cluster) as client:
            assert client.gather(client.map(helper_of_test.double, range(10))) == list(range(0, 20, 2))
            assert client.submit(os.getpid, resources={"GPU": 1.0}).result(PATIENCE) != os.getpid()

    assert all_gone(everybody) == []
    assert not os.path.exists(cluster.scheduler_file)
    cluster.close()


def test_child_does_not_start__error_quotes_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_SLICE", "many")
    before = family(os.getpid())

    with pytest.raises(ShunterError) as failed:
        LocalCluster(1)

    assert "the cluster's scheduler did not start (exit code 2)" in str(failed.value)
    assert "SHUNTER_SLICE: expected a whole number" in str(failed.value)
    assert all_gone([process for process in family(os.getpid()) if process not in before]) == []


def test_workers_keep_dying__error_says_so(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif 'shunter.worker' in sys.orig_argv:\n    os._exit(9)\n"
    )
    before = family(os.getpid())

    with pytest.raises(ShunterError, match=r"(?s)workers did not start \(exit code 1\).*exit code 9"):
        LocalCluster(1, python_path=[str(tmp_path), *own_import_path()])

    assert all_gone([process for process in family(os.getpid()) if process not in before]) == []


UNGUARDED = """
import os, sys
from shunter import LocalCluster
print("imported by", os.getpid(), flush=True)
cluster = LocalCluster(2)
{then}
"""


def test_script_without_main_guard_or_close__runs_once_and_leaves_nothing(tmp_path: Path) -> None:
    """Children are ``python -m shunter``, not `multiprocessing`: they never import the script, so no fork bomb."""
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED.format(then="print(cluster.scheduler_file)"))

    done = finished([str(script)])

    assert done.returncode == 0, done.stderr
    imported, file = done.stdout.splitlines()
    assert imported.startswith("imported by")
    assert not os.path.exists(file)
    assert not [p for p in psutil.process_iter() if file in _cmdline(p)]
    assert done.stderr == ""


def test_owner_is_killed__everything_ends(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    # A forked copy of the owner lives on, and must not keep the cluster alive.
    script.write_text(
        UNGUARDED.format(then="os.fork()\nprint('up', flush=True)\nimport time\ntime.sleep(600)")
    )
    with started([str(script)]) as process:
        for _ in range(3):  # The first line, and "up" twice.
            process.stdout.readline()
        everybody = family(process.pid)
        forked = [p for p in everybody if str(script) in _cmdline(p)]
        cluster = [p for p in everybody if p not in forked]
        assert len(cluster) >= 4 and len(forked) == 1

        process.kill()

        assert all_gone(cluster) == []
        forked[0].kill()


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
