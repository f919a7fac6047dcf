"""`shunter story` and `shunter why`: one question about one task."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from shunter.cli import question
from shunter.cli.main import main
from shunter.wire.contact import Contact, write
from tests.client.fake import FakeScheduler


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeScheduler]:
    """A scheduler that the commands find by SHUNTER_SCHEDULER_FILE. It has the task ``x``, finished."""
    with FakeScheduler() as scheduler:
        scheduler.held["x"] = ("memory", 8, [])
        file = tmp_path / "scheduler.json"
        write(str(file), Contact(scheduler.address, scheduler.token))
        monkeypatch.delenv("SHUNTER_ADDRESS", raising=False)
        monkeypatch.delenv("SHUNTER_TOKEN_FILE", raising=False)
        monkeypatch.setenv("SHUNTER_SCHEDULER_FILE", str(file))
        yield scheduler


def test_why__one_sentence(scheduler: FakeScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "x"]) == 0
    assert capsys.readouterr().out == "because of x\n"


def test_story__one_line_an_event(scheduler: FakeScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    scheduler.answers["story"] = lambda arguments: ["1.0 waiting → queued", "2.0 queued → processing"]

    assert main(["story", "x"]) == 0
    assert capsys.readouterr().out.splitlines() == ["1.0 waiting → queued", "2.0 queued → processing"]


@pytest.mark.parametrize(("command", "told"), [("why", "because of x"), ("story", ["the story of x"])])
def test_json__key_status_and_answer(
    scheduler: FakeScheduler, capsys: pytest.CaptureFixture[str], command: str, told: object
) -> None:
    assert main([command, "x", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"key": "x", "status": "memory", command: told}


def test_scheduler_named_by_its_address_or_its_file__is_asked(
    scheduler: FakeScheduler,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.delenv("SHUNTER_SCHEDULER_FILE")
    token = tmp_path / "token"
    token.write_text(scheduler.token)
    token.chmod(0o600)

    assert main(["why", "x", scheduler.address, "--token-file", str(token)]) == 0
    assert main(["why", "x", "--scheduler-file", str(tmp_path / "scheduler.json")]) == 0
    assert capsys.readouterr().out == "because of x\n" * 2


def test_unknown_key__complaint_and_exit_code_1(
    scheduler: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduler.answers["story"] = lambda arguments: []

    assert main(["why", "nobody"]) == 1
    assert main(["story", "nobody"]) == 1

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "shunter why: because of nobody",
        "shunter story: the scheduler has no task 'nobody', and remembers none",
    ]


@pytest.mark.parametrize(("command", "told"), [("why", "because of nobody"), ("story", [])])
def test_unknown_key_as_json__says_so_and_exit_code_1(
    scheduler: FakeScheduler, capsys: pytest.CaptureFixture[str], command: str, told: object
) -> None:
    scheduler.answers["story"] = lambda arguments: []

    assert main([command, "nobody", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"key": "nobody", "status": "unknown", command: told}


def test_story_of_a_task_that_is_forgotten__is_told(
    scheduler: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["story", "gone"]) == 0
    assert capsys.readouterr().out == "the story of gone\n"


def test_story_longer_ago_than_the_log__says_so(
    scheduler: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduler.answers["story"] = lambda arguments: []

    assert main(["story", "x"]) == 0

    captured = capsys.readouterr()
    assert captured.out == ""
    assert "'x' is memory" in captured.err and "SHUNTER_LOG_LENGTH" in captured.err


def test_question_is_refused__one_line_and_exit_code_1(
    scheduler: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(arguments: object) -> object:
        raise ValueError("query why: the scheduler failed")

    scheduler.answers["why"] = refuse

    assert main(["why", "x"]) == 1
    assert capsys.readouterr().err == "shunter why: query why: the scheduler failed\n"


def test_scheduler_does_not_answer__one_line_and_exit_code_1(
    scheduler: FakeScheduler, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question, "TIMEOUT", 0.01)
    del scheduler.answers["why"]

    assert main(["why", "x"]) == 1

    captured = capsys.readouterr()
    assert captured.err == f"shunter why: the scheduler at {scheduler.address} has not answered for 0.01 s\n"
