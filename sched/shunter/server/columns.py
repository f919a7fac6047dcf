"""Columns of keys for the wire: how much room they take in a header, and where to cut them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from shunter.state import Key
from shunter.wire.frames import batches

#: Bytes of one message beyond which it is cut. JSON may need six bytes for a character that counts as one here, and
#: a header holds 1 MiB.
CUT_AT: Final = 160 * 1024


def as_text(keys: Sequence[Key]) -> list[str]:
    """The same list: keys that came over the wire are text."""
    return cast("list[str]", keys)


def as_keys(keys: list[str]) -> list[Key]:
    """The same list: a key of the wire is one kind of key of the state."""
    return cast("list[Key]", keys)


def weight(text: str) -> int:
    """About how many bytes a text takes in a header, never less than a sixth of the truth."""
    return len(text) if text.isascii() else 12 * len(text)


def cuts(texts: list[str]) -> list[slice]:
    """Where to cut a column of keys or addresses, for one message each."""
    return batches([weight(text) + 32 for text in texts], nbytes=CUT_AT)
