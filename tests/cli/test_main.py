"""The entry point: errors become one line and an exit code."""

from __future__ import annotations

import argparse
import platform
import types

import pytest

import shunter
from shunter import _debug
from shunter.cli import about, demo, main
from shunter.errors import ConnectionLost, InternalError, UsageError


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHUNTER_ADDRESS", "SHUNTER_SCHEDULER_FILE", "SHUNTER_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def subcommand_that_raises(error: BaseException) -> types.SimpleNamespace:
    def run(given: argparse.Namespace) -> int:
        raise error

    return types.SimpleNamespace(
        __doc__="``shunter fail``: fail.", add_arguments=lambda parser: None, run=run
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("change the call"), 2),
        (ConnectionLost("nobody there"), 1),
        (FileNotFoundError(2, "No such file"), 1),
        (InternalError("oh no", ["x: waiting", "x: queued"]), 70),
    ],
)
def test_subcommand_raises__its_words_and_the_exit_code(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(main.SUBCOMMANDS, "fail", subcommand_that_raises(error))

    assert main.main(["fail"]) == code

    captured = capsys.readouterr()
    assert captured.err.startswith("shunter fail: ")
    assert str(error) in captured.err
    assert "Traceback" not in captured.err


def test_unexpected_error__traceback_and_exit_code_70(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(main.SUBCOMMANDS, "fail", subcommand_that_raises(ValueError("a bug")))

    assert main.main(["fail"]) == 70

    captured = capsys.readouterr()
    assert "Traceback" in captured.err
    assert "please report" in captured.err


def test_interrupted__exit_code_130_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(main.SUBCOMMANDS, "fail", subcommand_that_raises(KeyboardInterrupt()))

    assert main.main(["fail"]) == 130
    assert capsys.readouterr().err == ""


def test_no_subcommand__help_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 2
    assert "scheduler" in capsys.readouterr().err


def test_unknown_variable__refused_by_every_subcommand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHUNTER_TOKENFILE", "x")

    assert main.main(["status"]) == 2
    assert "SHUNTER_TOKENFILE (close: SHUNTER_TOKEN_FILE" in capsys.readouterr().err


def test_version__one_line_with_build_and_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--version"]) == 0

    build = "compiled" if shunter.COMPILED else "pure"
    start = f"shunter {shunter.__version__} (state: {build}, CPython {platform.python_version()})"
    out = capsys.readouterr().out
    assert out.startswith(start)
    assert out.count("\n") == 1


def test_pure_for_want_of_a_compiler__version_says_slower_and_how_to_mend_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_debug, "COMPILED", False)
    monkeypatch.setattr(_debug, "why_pure", lambda: "no working C compiler (cc: No such file or directory)")

    line = about.version_line()

    assert "state: pure" in line
    assert "slower" in line and "no working C compiler" in line and "SHUNTER_BUILD=compiled" in line


@pytest.mark.parametrize("reason", about.CHOSEN)
def test_pure_by_choice__version_says_no_more(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_debug, "COMPILED", False)
    monkeypatch.setattr(_debug, "why_pure", lambda: reason)

    assert about.version_line().endswith(")")


def test_run_of_a_missing_script__one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["run", "no-such-script.py"]) == 2
    assert capsys.readouterr().err == "shunter run: there is no file 'no-such-script.py'\n"


def test_insecure_with_token_file__refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["scheduler", "--insecure", "--token-file", "x"]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_one_port_for_two_workers__refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["worker", "tcp://127.0.0.1:1", "--port", "5", "--nworkers", "2"]) == 2
    assert "--port" in capsys.readouterr().err


def test_demo__finds_the_example() -> None:
    assert demo.find_examples().endswith("examples")
