"""Value types that every part shares."""

from __future__ import annotations

from typing import Any

import pytest

from shunter.errors import UsageError
from shunter.types import Retry, qualified_name


def test_retry__keeps_what_it_was_given() -> None:
    retry = Retry(3, on=(OSError, ValueError), delay=1, elsewhere=True)

    assert (retry.n, retry.delay, retry.elsewhere) == (3, 1.0, True)
    assert retry.on_names() == ["builtins.OSError", "builtins.ValueError"]
    assert retry == Retry(3, on=(OSError, ValueError), delay=1.0, elsewhere=True)
    assert hash(retry) == hash(Retry(3, on=(OSError, ValueError), delay=1.0, elsewhere=True))
    assert retry != Retry(3)
    assert repr(Retry(1)) == "Retry(1, on=None, delay=0.0, elsewhere=False)"


def test_retry_on_anything__names_no_type() -> None:
    assert Retry(1).on_names() is None
    assert Retry(1, on=OSError).on == (OSError,)


@pytest.mark.parametrize(
    "arguments",
    [
        {"n": -1},
        {"n": True},
        {"n": 1.0},
        {"n": "3"},
        {"n": 1, "delay": -1},
        {"n": 1, "delay": float("nan")},
        {"n": 1, "delay": float("inf")},
        {"n": 1, "delay": "1"},
        {"n": 1, "on": "OSError"},
        {"n": 1, "on": (OSError, int)},
        {"n": 1, "on": OSError()},
    ],
    ids=str,
)
def test_retry_is_given_nonsense__usage_error(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="Retry"):
        Retry(**arguments)


def test_qualified_name__has_module_and_nesting() -> None:
    class Inner(Exception):
        pass

    assert qualified_name(OSError) == "builtins.OSError"
    assert qualified_name(Inner).endswith(
        "test_types.test_qualified_name__has_module_and_nesting.<locals>.Inner"
    )
