"""Values by key, and how large a value is.

The machine says what is kept and dropped; the store only does it, on any thread. A running task has its own hold
on the entries of its inputs, so a value may be dropped here while it is used there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, final

__all__ = ["Entry", "Store", "sizeof"]


@final
class Entry:
    """One value."""

    __slots__ = ("nbytes", "value")

    def __init__(self, value: object, nbytes: int) -> None:
        self.value = value
        self.nbytes = nbytes


@final
class Store:
    """Thread-safe: each method is one operation on a dict, or a loop over such."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def keep(self, keys: Iterable[str], values: Iterable[object], nbytes: Iterable[int]) -> None:
        """Put values in, in place of older ones."""
        entries = self._entries
        for key, value, size in zip(keys, values, nbytes):
            entries[key] = Entry(value, size)

    def drop(self, keys: Iterable[str]) -> None:
        """Take values out. What it frees is freed here: finalizers of users' values run on this thread."""
        for key in keys:
            self._entries.pop(key, None)

    def find(self, key: str) -> Entry | None:
        """The entry, if the value is here."""
        return self._entries.get(key)

    def entries(self, keys: Iterable[str]) -> dict[str, Entry]:
        """Entries of keys that are all here.

        Raises:
            KeyError: one is not.
        """
        return {key: self._entries[key] for key in keys}

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)


# ---------------------------------------------------------------------------------------------- sizes

#: Items of a container that are looked at; the rest is taken to be like them.
SAMPLE: Final = 32
#: Objects that are looked at for one value, in all.
BUDGET: Final = 512
UNKNOWN: Final = 64

_FIXED: Final[Mapping[type, int]] = {
    type(None): 16,
    bool: 28,
    float: 24,
    complex: 32,
}
_FLAT: Final = frozenset({int, str, bytes, bytearray})
_CONTAINERS: Final = frozenset({list, tuple, set, frozenset})


def sizeof(value: object) -> int:
    """About how many bytes a value takes. Never raises, and never takes long.

    Right for arrays (whatever has ``nbytes``), bytes and text; containers and plain objects are followed, large
    ones by a sample. What is shared counts each time it is met.
    """
    cls = type(value)
    fixed = _FIXED.get(cls)
    if fixed is not None:
        return fixed
    if cls in _FLAT:
        return sys.getsizeof(value)
    return _follow(value, [BUDGET])


def _follow(value: object, budget: list[int]) -> int:
    """The size of one object and of what it holds, as far as the budget goes."""
    budget[0] -= 1
    cls = type(value)
    fixed = _FIXED.get(cls)
    if fixed is not None:
        return fixed
    if cls in _FLAT:
        return sys.getsizeof(value)
    try:
        return _follow_object(value, budget)
    except Exception:  # A user's __sizeof__, nbytes or __getattr__.
        return UNKNOWN
    except RecursionError:
        return UNKNOWN


def _follow_object(value: object, budget: list[int]) -> int:
    cls = type(value)
    if cls in _CONTAINERS:
        assert isinstance(value, (list, tuple, set, frozenset))
        return sys.getsizeof(value) + _sample(value, len(value), budget)
    if isinstance(value, dict):
        own = sys.getsizeof(value)
        return own + _sample(value, len(value), budget) + _sample(value.values(), len(value), budget)
    nbytes = getattr(value, "nbytes", None)
    if isinstance(nbytes, int) and nbytes >= 0:
        return nbytes + 112  # numpy arrays, memoryviews, arrow tables
    if cls.__module__.startswith("pandas."):
        return _pandas(value)
    attributes = getattr(value, "__dict__", None)
    own = sys.getsizeof(value)
    if isinstance(attributes, dict) and budget[0] > 0 and not isinstance(value, type):
        own += _follow(attributes, budget)
    return own


def _sample(items: Iterable[object], count: int, budget: list[int]) -> int:
    """Sizes of the first items, and the rest as if it were like them."""
    looked_at = min(count, SAMPLE, max(0, budget[0]))
    if looked_at == 0:
        return count * UNKNOWN
    total = 0
    for item in islice(items, looked_at):
        total += _follow(item, budget)
    return total * count // looked_at


def _pandas(value: object) -> int:
    usage = value.memory_usage(deep=False)  # type: ignore[attr-defined]  # pandas: no dependency of ours
    total = usage.sum() if hasattr(usage, "sum") else usage
    return int(total) + 112
