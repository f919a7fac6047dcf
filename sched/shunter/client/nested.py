"""Futures inside of lists, tuples, dicts and sets: find them, and put values in their places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shunter.client.futures import Future

__all__ = ["find_futures", "replace_futures"]

_MISSING: Final = object()


def find_futures(nest: object) -> list[Future[Any]]:
    """All futures inside, in order. Without recursion, so depth does not matter."""
    found = []
    stack = [nest]
    while stack:
        item = stack.pop()
        if isinstance(item, Future):
            found.append(item)
        elif type(item) is dict:
            stack.extend(reversed(item.values()))
        elif _is_container(item):
            stack.extend(reversed(list(item)))  # type: ignore[call-overload]  # known to be iterable
    return found


def replace_futures(nest: Any, values: Mapping[Any, Any], *, skip: bool) -> Any:
    """A copy with the value of each future in its place.

    Args:
        nest: what `find_futures` looked at.
        values: value by the future's entry.
        skip: leave out futures that have no value, with their keys in a dict. One that stands by itself gives None.
    """
    result = _replace(nest, values, skip)
    return None if result is _MISSING else result


def _replace(item: Any, values: Mapping[Any, Any], skip: bool) -> Any:
    if isinstance(item, Future):
        return values.get(item._entry, _MISSING) if skip else values[item._entry]
    if type(item) is dict:
        replaced = {key: _replace(value, values, skip) for key, value in item.items()}
        return {key: value for key, value in replaced.items() if value is not _MISSING}
    if _is_container(item):
        found = [_replace(each, values, skip) for each in item]
        found = [each for each in found if each is not _MISSING]
        if hasattr(item, "_fields"):
            return type(item)(*found)
        return type(item)(found)
    return item


def _is_container(item: object) -> bool:
    return type(item) in (list, tuple, set, frozenset) or (
        isinstance(item, tuple) and hasattr(item, "_fields")
    )
