"""How a task wants to be run: keywords checked in the caller, and put as the wire has them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Final

from shunter.errors import UsageError
from shunter.types import Retry
from shunter.wire.messages import TaskOptions

__all__ = ["build_options", "check_key"]


#: Longest key, characters.
KEY_MAX: Final = 1000


def build_options(
    *,
    workers: str | Iterable[str] | None = None,
    allow_other_workers: bool = False,
    resources: Mapping[str, float] | None = None,
    retries: int | Retry = 0,
    priority: float = 0,
    annotations: Mapping[str, object] | None = None,
) -> TaskOptions | None:
    """The options that differ from the defaults, as plain data; None if none does.

    Raises:
        UsageError: naming the option, and what it takes.
    """
    options: TaskOptions = {}
    if workers is not None:
        options["workers"] = _texts("workers", workers)
    if allow_other_workers:
        if workers is None:
            raise UsageError("allow_other_workers= means something together with workers= only")
        options["allow_other_workers"] = True
    if resources:
        options["resources"] = _resources(resources)
    if isinstance(retries, Retry):
        options.update(_retry(retries))
    elif retries != 0:
        options["retries"] = _count("retries", retries)
    if priority != 0:
        options["priority"] = _number("priority", priority)
    if annotations:
        options["annotations"] = _annotations(annotations)
    return options or None


def check_key(key: object, what: str = "key") -> str:
    """A key must be text.

    Raises:
        UsageError: naming the type.
    """
    if not isinstance(key, str):
        raise UsageError(f"{what} must be a str, not {type(key).__name__}: {key!r:.100}")
    if not key:
        raise UsageError(f"{what} must not be empty")
    if len(key) > KEY_MAX:
        raise UsageError(f"{what} has {len(key):,} characters; {KEY_MAX:,} are allowed: {key!r:.60}…")
    if not key.isascii():
        try:
            key.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{what} must not have lone surrogates: {key!a:.100}") from None
    return key if type(key) is str else str(key)


def _texts(name: str, value: object) -> list[str]:
    texts: list[object] = (
        list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    )
    for text in texts:
        if not isinstance(text, str) or not text:
            raise UsageError(f"{name}= takes text, not {text!r:.100} ({type(text).__name__})")
    if not texts:
        raise UsageError(f"{name}= is empty: leave it out to mean any")
    return [str(text) for text in texts]


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UsageError(f"{name}= takes a finite number, not {value!r:.100}")
    return value


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise UsageError(f"{name}= takes a whole number from 0, not {value!r:.100}")
    return value


def _resources(resources: Mapping[str, float]) -> dict[str, float]:
    if not isinstance(resources, Mapping):
        raise UsageError(f'resources= takes a dict such as {{"GPU": 1}}, not {resources!r:.100}')
    found = {}
    for name, amount in resources.items():
        check_key(name, "the name of a resource")
        if _number(f"resources[{name!r}]", amount) < 0:
            raise UsageError(f"resources[{name!r}] is negative: {amount!r}")
        found[name] = amount
    return found


def _retry(retry: Retry) -> TaskOptions:
    options: TaskOptions = {"retries": retry.n}
    names = retry.on_names()
    if names is not None:
        options["retry_on"] = names
    if retry.delay:
        options["retry_delay"] = retry.delay
    if retry.elsewhere:
        options["retry_elsewhere"] = True
    return options


def _annotations(annotations: Mapping[str, object]) -> dict[str, object]:
    if not isinstance(annotations, Mapping):
        raise UsageError(f"annotations= takes a dict, not {annotations!r:.100}")
    try:
        text = json.dumps(dict(annotations), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"annotations= takes what JSON can say: {error}") from error
    if len(text) > 16 * 1024:
        raise UsageError(f"annotations= has {len(text):,} characters; 16,384 are allowed")
    found: dict[str, object] = json.loads(text)
    return found
