"""Addresses, tokens, and the scheduler file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from shunter.errors import UsageError
from shunter.wire import contact
from shunter.wire.contact import Contact, format_address, parse_address
from shunter.wire.sockets import reachable_host


def test_scheduler_file_is_written__read_back_and_private(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.json"
    contact.write(path, Contact("tcp://127.0.0.1:8786", "s3cret"))

    assert contact.read(path) == Contact("tcp://127.0.0.1:8786", "s3cret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_scheduler_file_exists__replaced_whole_and_made_private(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.json"
    path.write_text("old" * 1000)
    path.chmod(0o644)
    contact.write(path, Contact("tcp://h:1", ""))

    assert contact.read(path) == Contact("tcp://h:1", "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_scheduler_file_cannot_be_replaced__error_and_nothing_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.mkdir()
    (path / "file").touch()

    with pytest.raises(OSError):
        contact.write(path, Contact("tcp://h:1", "t"))
    assert os.listdir(tmp_path) == ["taken"]


def test_folder_of_scheduler_file_is_missing__os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        contact.write(tmp_path / "no" / "file", Contact("tcp://h:1", "t"))


def test_scheduler_file_is_missing__usage_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"no scheduler file at .*nowhere; start one with: shunter scheduler"
    ):
        contact.read(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        "{}",
        '{"address": "tcp://h:1"}',
        '{"address": 1, "token": ""}',
        '{"address": "tcp://h:1", "token": null}',
        '{"address": "h", "token": ""}',
        "\udcff",
    ],
    ids=lambda text: ascii(text[:30]),
)
def test_file_is_not_a_scheduler_file__usage_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text, errors="surrogateescape")

    with pytest.raises(UsageError):
        contact.read(path)


def test_token_file__is_read_without_white_space(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(" s3cret\n")

    assert contact.read_token_file(path) == "s3cret"


def test_token_file_is_empty_or_missing__usage_error(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(UsageError, match="is empty"):
        contact.read_token_file(tmp_path / "empty")
    with pytest.raises(UsageError, match="no token file"):
        contact.read_token_file(tmp_path / "missing")


def test_new_tokens__are_long_and_differ() -> None:
    first, second = contact.new_token(), contact.new_token()

    assert first != second
    assert len(bytes.fromhex(first)) == 32


def test_contact__keeps_its_token_out_of_logs() -> None:
    assert "s3cret" not in repr(Contact("tcp://h:1", "s3cret"))


@pytest.mark.parametrize(
    ("host", "port", "address"),
    [
        ("127.0.0.1", 1, "tcp://127.0.0.1:1"),
        ("node-7.lan", 65535, "tcp://node-7.lan:65535"),
        ("::1", 80, "tcp://[::1]:80"),
    ],
)
def test_address__is_formatted_and_parsed(host: str, port: int, address: str) -> None:
    assert format_address(host, port) == address
    assert parse_address(address) == (host, port)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "h:1",
        "http://h:1",
        "tcp://h",
        "tcp://:1",
        "tcp://h:",
        "tcp://h:0",
        "tcp://h:65536",
        "tcp://h:99999999999999999999",
        "tcp://h:-1",
        "tcp://h:١",
        "tcp://h:1/path",
        "tcp://a b:1",
        "tcp://::1:80",
        "tcp://[]:80",
        "tcp://h\n:80",
    ],
    ids=ascii,
)
def test_address_is_malformed__usage_error_quotes_it(address: str) -> None:
    with pytest.raises(UsageError):
        parse_address(address)


def test_host_means_all_of_them__one_that_others_can_reach_is_named() -> None:
    assert reachable_host("127.0.0.1") == "127.0.0.1"
    assert reachable_host("0.0.0.0") != "0.0.0.0"
    assert reachable_host("::") != "::"
