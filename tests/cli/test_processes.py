"""The commands as processes: how they start, end, and what they leave behind (nothing)."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
from pathlib import Path

import psutil
import pytest

from shunter.cli.main import main
from tests.cli.processes import PATIENCE, all_gone, environment, family, finished, started, started_and_ready

SCHEDULER = ["-m", "shunter", "scheduler", "--port", "0"]


def test_port_in_use__one_line_and_exit_code_2(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

        code = main(["scheduler", "--port", port])

    assert code == 2
    captured = capfd.readouterr()
    assert captured.err.count("\n") == 1
    assert f"port {port} of 127.0.0.1 is in use" in captured.err
    assert captured.out == ""


def test_plugin_that_is_not_there__one_line_and_exit_code_2(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["scheduler", "--port", "0", "--plugin", "no_such_module:Plugin"]) == 2

    captured = capfd.readouterr()
    assert captured.err.count("\n") == 1
    assert "no_such_module" in captured.err


def test_open_host_without_token__refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["scheduler", "--port", "0", "--host", "0.0.0.0"]) == 2
    assert "--insecure" in capfd.readouterr().err


def test_folder_of_scheduler_file_is_missing__one_line_that_names_the_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "missing" / "scheduler.json"

    assert main(["scheduler", "--port", "0", "--scheduler-file", str(file)]) == 2

    captured = capfd.readouterr()
    assert captured.err.count("\n") == 1
    assert f"cannot write --scheduler-file {file}: No such file" in captured.err


def test_no_place_for_a_new_token__one_line_that_says_what_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    assert main(["scheduler", "--port", "0"]) == 2

    captured = capfd.readouterr()
    assert captured.err.count("\n") == 1
    assert "give --scheduler-file or --token-file" in captured.err


def test_status_without_scheduler__one_line_and_exit_code_1(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    assert main(["status", f"tcp://127.0.0.1:{port}"]) == 1

    captured = capfd.readouterr()
    assert captured.err.count("\n") == 1
    assert f"127.0.0.1:{port}" in captured.err


def test_scheduler__tells_where_it_is__ends_on_sigterm_with_0(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "scheduler.json"
    with started([*SCHEDULER, "--scheduler-file", str(file)]) as process:
        assert process.stdout.readline().startswith("shunter 0.")
        told = process.stdout.readline()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        contact = json.loads(file.read_text())
        assert contact["address"] in told
        assert contact["token"] not in told
        assert not any(contact["token"] in word for word in psutil.Process(process.pid).cmdline())

        assert main(["status", "--scheduler-file", str(file)]) == 0
        assert contact["address"] in capfd.readouterr().out
        assert main(["status", "--scheduler-file", str(file), "--json"]) == 0
        assert json.loads(capfd.readouterr().out)["workers"] == []

        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        assert process.stderr.read() == ""
    assert not file.exists()


def test_scheduler_without_work__ends_by_itself_with_0_when_its_time_is_over(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    with started([*SCHEDULER, "--scheduler-file", str(file), "--idle-timeout", "0.2"]) as process:
        assert process.wait(PATIENCE) == 0
        assert process.stderr.read() == ""
    assert not file.exists()


def test_scheduler_of_a_user__found_without_options__wrong_token_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with started(SCHEDULER, env=environment(tmp_path)) as process:
        process.stdout.readline()
        (file,) = (tmp_path / "shunter").iterdir()
        address = json.loads(file.read_text())["address"]
        assert str(file) in process.stdout.readline()

        assert main(["status", address]) == 0

        (tmp_path / "wrong").write_text("0" * 64)
        assert main(["status", address, "--token-file", str(tmp_path / "wrong")]) == 1
        captured = capfd.readouterr()
        assert "token" in captured.err and captured.err.count("\n") == 1

        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    assert not file.exists()


def test_starter_is_gone__scheduler_and_workers_end(tmp_path: Path) -> None:
    common = ["--die-with-stdin", "--scheduler-file", str(tmp_path / "scheduler.json")]
    with started_and_ready([*SCHEDULER, *common]) as scheduler:
        with started_and_ready(["-m", "shunter", "worker", *common, "--nworkers", "2"]) as worker:
            children = family(worker.pid)
            assert len(children) == 2

            worker.stdin.close()

            assert worker.wait(PATIENCE) == 0
            assert all_gone(children) == []
        scheduler.stdin.close()
        assert scheduler.wait(PATIENCE) == 0


SCRIPT = """
import os, sys
from shunter import Client
with Client() as client:
    print(client.submit(pow, 2, int(sys.argv[1])).result())
print(os.environ["SHUNTER_ADDRESS"], flush=True)
sys.exit(3)
"""


def test_run__script_uses_the_cluster__its_output_and_exit_code_are_passed_on(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    done = finished(["-m", "shunter", "run", "--nworkers", "1", str(script), "10"])

    assert done.returncode == 3, done.stderr
    result, address = done.stdout.split()
    assert result == "1024"
    assert address.startswith("tcp://127.0.0.1:")
    assert done.stderr.startswith("shunter 0.") and "state: " in done.stderr.splitlines()[0]
    assert done.stderr.count("\n") == 1


WAITING = """
import signal, sys
print("ready", flush=True)
signal.pause()
"""


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_run_is_stopped__script_gets_the_signal_and_nothing_stays(
    tmp_path: Path, signum: signal.Signals, code: int
) -> None:
    script = tmp_path / "script.py"
    script.write_text(WAITING)
    with started(["-m", "shunter", "run", "--nworkers", "1", str(script)]) as process:
        assert process.stdout.readline() == "ready\n"
        everybody = family(process.pid)
        assert len(everybody) >= 4  # script, scheduler, parent, worker

        process.send_signal(signum)

        assert process.wait(PATIENCE) == code
        assert all_gone(everybody) == []


def test_run_is_killed__cluster_ends(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(WAITING)
    with started(["-m", "shunter", "run", "--nworkers", "1", str(script)]) as process:
        assert process.stdout.readline() == "ready\n"
        cluster = [child for child in family(process.pid) if str(script) not in child.cmdline()]
        scripts = [child for child in family(process.pid) if str(script) in child.cmdline()]

        process.kill()

        assert all_gone(cluster) == []
        for each in scripts:
            os.kill(each.pid, signal.SIGKILL)


def test_demo__counts_as_one_process_does() -> None:
    done = finished(["-m", "shunter", "demo", "--check", "--nworkers", "2"])

    assert done.returncode == 0, done.stderr
    assert "the same counts" in done.stdout
    assert "tasks/s" in done.stdout
    assert (
        sum(line.split()[:1] == [str(rank)] for line in done.stdout.splitlines() for rank in range(1, 21))
        == 20
    )
