"""How the values of command line options are read."""

from __future__ import annotations

import argparse

import pytest

from shunter.cli import exits, options
from shunter.cli.main import make_parser
from shunter.cli.scheduler import split_plugin
from shunter.errors import UsageError


def test_resources__names_and_amounts() -> None:
    assert options.read_resources("GPU=1, mem=2.5") == {"GPU": 1.0, "mem": 2.5}
    assert options.read_resources("") == {}


@pytest.mark.parametrize("text", ["GPU", "=1", "GPU=many", "GPU=-1", "GPU=1,GPU=2"])
def test_bad_resources__error_names_the_part(text: str) -> None:
    with pytest.raises(UsageError, match=r"GPU|=1"):
        options.read_resources(text)


def test_port_out_of_range__error() -> None:
    assert options.read_port("0") == 0
    with pytest.raises(UsageError, match="65536"):
        options.read_port("65536")


def test_reader__shows_our_words_in_argparse() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="from 0"):
        options.reader(options.read_port)("-1")


def test_plugin__split_at_the_first_equals_sign() -> None:
    assert split_plugin("mod:Class") == ("mod:Class", "")
    assert split_plugin('mod:Class={"a": "b=c"}') == ("mod:Class", '{"a": "b=c"}')


def test_run__everything_after_the_script_belongs_to_it() -> None:
    given = make_parser().parse_args(["run", "--nworkers", "3", "job.py", "--nworkers", "9", "-x", "--", "y"])

    assert (given.nworkers, given.script) == (3, "job.py")
    assert given.args == ["--nworkers", "9", "-x", "--", "y"]


def test_hidden_options__are_not_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        make_parser().parse_args(["worker", "--help"])

    text = capsys.readouterr().out
    assert "--nthreads" in text
    assert "stdin" not in text and "ready-fd" not in text


@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        (["scheduler", "--port", "x"], "--port: expected a whole number from 0, not 'x'"),
        (["scheduler", "--log-level", "loud"], "--log-level: expected one of debug, info, warning, error"),
        (["scheduler", "--worker-ttl", "soon"], "--worker-ttl: expected a number from 0"),
        (["scheduler", "--idle-timeout", "-1"], "--idle-timeout: expected a number from 0"),
        (["worker", "--nthreads", "0"], "--nthreads: must be at least 1"),
        (["worker", "--memory-limit", "much"], "--memory-limit: expected a size"),
        (["worker", "--resources", "GPU"], "--resources: expected NAME=AMOUNT"),
        (["status", "--interval", "-1"], "--interval: expected a number from 0"),
        (["scheduler", "--prot", "1"], "unrecognized arguments: --prot 1"),
        (["sheduler"], "invalid choice: 'sheduler'"),
    ],
)
def test_bad_value__one_line_and_exit_code_2(
    arguments: list[str], about: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        make_parser().parse_args(arguments)

    assert stopped.value.code == exits.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert about in captured.err


def test_exit_code_of_process__as_a_shell_tells_it() -> None:
    assert [exits.of_process(code) for code in (0, 3, -2, -15, -9)] == [0, 3, 130, 143, 137]
