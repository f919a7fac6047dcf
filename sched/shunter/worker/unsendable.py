"""A value that cannot be pickled, and somebody wants it: what is sent in its place raises the reason there.

So the getter, client or worker, gets a clear error for this key alone, and nobody asks again in vain.
"""

from __future__ import annotations

from typing import NoReturn

from shunter.errors import UsageError

__all__ = ["Unsendable"]


class Unsendable:
    """Pickles as a call that raises UsageError with ``text``."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return raise_reason, (self.text,)


def raise_reason(text: str) -> NoReturn:
    """What unpickling an `Unsendable` calls."""
    raise UsageError(text)
