"""Options: their names, how they are read, and which of several sources wins."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from shunter import config
from shunter.errors import UsageError
from shunter.state import Settings
from shunter.wire import contact

DOCS = Path(__file__).parents[2] / "docs" / "running.md"


def test_options__are_the_settings_with_their_defaults() -> None:
    settings = Settings()
    names = {name for name in dir(settings) if not name.startswith("_")}

    assert names == {option.name for option in config.OPTIONS if option.setting}
    for option in config.OPTIONS:
        if option.setting:
            assert getattr(settings, option.name) == option.default, option.name


def test_documentation__lists_every_variable_and_default() -> None:
    text = DOCS.read_text(encoding="utf-8")
    documented = set(re.findall(r"SHUNTER_[A-Z_]*[A-Z]", text))

    assert documented == {option.variable for option in config.OPTIONS} | config.KNOWN
    for option in config.OPTIONS:
        if option.setting:
            default = int(option.default) if option.kind == "flag" else option.default
            assert f"| `{option.variable}` | {default} |" in text, option.name


def test_nothing_given__default() -> None:
    assert config.lookup("inline_max", environ={}) == 4096


def test_environment_set__beats_default() -> None:
    assert config.settings({"SHUNTER_INLINE_MAX": "64 KiB"}).inline_max == 65536


def test_keyword_given__beats_environment() -> None:
    assert config.settings({"SHUNTER_INLINE_MAX": "64 KiB"}, inline_max=1).inline_max == 1


def test_debug_variable__turns_validation_on() -> None:
    assert config.settings({"SHUNTER_DEBUG": "1"}).validate is True
    assert config.settings({"SHUNTER_DEBUG": "0"}).validate is False
    assert config.settings({"SHUNTER_DEBUG": "1", "SHUNTER_VALIDATE": "off"}).validate is False


def test_unknown_setting__error_names_those_that_come_close() -> None:
    with pytest.raises(UsageError, match=r"unknown setting inline_maxx \(close: inline_max\)"):
        config.settings({}, inline_maxx=1)


def test_settings__survive_the_way_through_the_environment() -> None:
    before = config.settings({}, window_s=0.25, validate=True, slice=7, bandwidth=1e9)

    variables = config.environment_of(before)

    assert set(variables) == {"SHUNTER_WINDOW_S", "SHUNTER_VALIDATE", "SHUNTER_SLICE", "SHUNTER_BANDWIDTH"}
    after = config.settings(variables)
    for option in config.OPTIONS:
        if option.setting:
            assert getattr(after, option.name) == getattr(before, option.name)


def test_misspelt_variable__refused_with_close_names() -> None:
    with pytest.raises(UsageError, match=r"environment variable SHUNTER_LOGLEVEL \(close: SHUNTER_LOG_LEVEL"):
        config.check_environment({"SHUNTER_LOGLEVEL": "debug"})


def test_variables_of_a_kubernetes_service__let_through() -> None:
    config.check_environment(
        {
            "SHUNTER_SCHEDULER_PORT": "tcp://10.0.0.1:8765",
            "SHUNTER_SCHEDULER_PORT_8765_TCP": "tcp://10.0.0.1:8765",
            "SHUNTER_SCHEDULER_PORT_8765_TCP_ADDR": "10.0.0.1",
            "SHUNTER_SCHEDULER_SERVICE_HOST": "10.0.0.1",
            "SHUNTER_SERVICE_PORT_HTTP": "80",
        }
    )


def test_port_variable_that_is_no_service__refused() -> None:
    with pytest.raises(UsageError, match="SHUNTER_PORT"):
        config.check_environment({"SHUNTER_PORT": "8765"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SHUNTER_WINDOW_S", "fast"),
        ("SHUNTER_WINDOW_S", "-1"),
        ("SHUNTER_WINDOW_S", "nan"),
        ("SHUNTER_WINDOW_S", "inf"),
        ("SHUNTER_WINDOW_MAX", "1.5"),
        ("SHUNTER_WINDOW_MAX", "²"),
        ("SHUNTER_INLINE_MAX", "4 kilo"),
        ("SHUNTER_VALIDATE", "maybe"),
        ("SHUNTER_LOG_LEVEL", "loud"),
    ],
)
def test_value_that_does_not_fit__error_names_the_variable(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=rf"^{name}: expected .*{re.escape(repr(value))}"):
        config.check_environment({name: value})


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("0", 0), ("1024", 1024), ("4k", 4000), ("4 KiB", 4096), ("1.5GB", 1_500_000_000), ("2gi", 2 << 30)],
)
def test_size__read_with_its_unit(text: str, nbytes: int) -> None:
    assert config.parse_bytes(text, "limit") == nbytes


# ------------------------------------------------------------------ finding a scheduler


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing of the real user is found."""
    return {"XDG_RUNTIME_DIR": str(tmp_path)}


def leave(path: str, address: str, token: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    contact.write(path, contact.Contact(address, token))


def test_nothing_names_a_scheduler__error_says_how_to(home: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="--scheduler-file, or set SHUNTER_ADDRESS"):
        config.find_contact(environ=home)


def test_own_scheduler_on_this_machine__found(home: dict[str, str]) -> None:
    leave(config.default_scheduler_file(config.DEFAULT_PORT, home), "tcp://127.0.0.1:8765", "own")

    assert config.find_contact(environ=home) == ("tcp://127.0.0.1:8765", "own")
    assert config.find_contact("tcp://127.0.0.1:8765", environ=home) == ("tcp://127.0.0.1:8765", "own")


def test_scheduler_elsewhere__own_token_is_not_offered_to_it(home: dict[str, str]) -> None:
    leave(config.default_scheduler_file(8765, home), "tcp://127.0.0.1:8765", "own")

    assert config.find_contact("tcp://10.0.0.1:8765", environ=home) == ("tcp://10.0.0.1:8765", "")


def test_scheduler_file_given__beats_address_of_the_environment(home: dict[str, str], tmp_path: Path) -> None:
    path = str(tmp_path / "cluster.json")
    leave(path, "tcp://127.0.0.1:1111", "given")

    found = config.find_contact(scheduler_file=path, environ={**home, "SHUNTER_ADDRESS": "tcp://10.0.0.1:2"})

    assert found == ("tcp://127.0.0.1:1111", "given")


def test_variables_of_shunter_run__address_and_token(home: dict[str, str], tmp_path: Path) -> None:
    path = str(tmp_path / "cluster.json")
    leave(path, "tcp://127.0.0.1:1111", "from the file")
    environ = {**home, "SHUNTER_ADDRESS": "tcp://127.0.0.1:1111", "SHUNTER_SCHEDULER_FILE": path}

    assert config.find_contact(environ=environ) == ("tcp://127.0.0.1:1111", "from the file")


def test_token_file__beats_token_of_the_scheduler_file(home: dict[str, str], tmp_path: Path) -> None:
    path = str(tmp_path / "cluster.json")
    leave(path, "tcp://127.0.0.1:1111", "from the file")
    (tmp_path / "token").write_text("a" * 64 + "\n")

    found = config.find_contact(scheduler_file=path, token_file=str(tmp_path / "token"), environ=home)

    assert found == ("tcp://127.0.0.1:1111", "a" * 64)
