"""How the fields of events are written as JSON, and read back with a check of their types.

Most are JSON already. Keys may be tuples, which come back from lists. Opaque values (arguments, results, pickled
exceptions, annotations) are written as their sizes, and come back as a text that says no more. Columns in which few
values occur often (options, functions, types) are written as those values and where they stand.

Who reads cannot trust the file: whatever is in a row, the state must be given well-typed events, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

#: No column is longer: a damaged number must not ask for all memory.
COLUMN_MAX: Final = 10_000_000


class Malformed(ValueError):
    """A row that does not say what it should. The text names the field."""


class Sort(NamedTuple):
    """One sort of field.

    ``write``: what stands for a value in JSON; None if the value itself does.
    ``read``: the value from what JSON gave; raises Malformed.
    ``is_column``: a list with one entry for each task or key of the event.
    """

    write: Callable[[Any], object] | None
    read: Callable[[object], object]
    is_column: bool = False


# ---------------------------------------------------------------------------------------------- plain values


def _plain(wanted: str, *types: type) -> Sort:
    def read(value: object) -> object:
        if type(value) not in types:
            raise Malformed(f"expected {wanted}, not {clipped(value)}")
        return value

    return Sort(None, read)


def _read_real(value: object) -> object:
    if type(value) is int:
        try:
            float(value)  # Compiled classes convert it.
        except OverflowError:
            raise Malformed("expected a number that is not beyond all bounds") from None
    elif type(value) is not float:
        raise Malformed(f"expected a number, not {clipped(value)}")
    return value


#: Python reads and writes NaN and Infinity in JSON, so every float survives.
INT: Final = _plain("a whole number", int)
REAL: Final = Sort(None, _read_real)
BOOL: Final = _plain("true or false", bool)
TEXT: Final = _plain("a text", str)
#: Any JSON object: the plain values that a failure's text speaks of.
FACTS: Final = _plain("an object", dict)


def word(words: tuple[str, ...]) -> Sort:
    """One of a few texts."""

    def read(value: object) -> object:
        if value not in words:
            raise Malformed(f"expected one of {', '.join(words)}, not {clipped(value)}")
        return value

    return Sort(None, read)


def maybe(sort: Sort) -> Sort:
    """The sort, or None."""
    write = sort.write

    def write_maybe(value: object) -> object:
        return None if value is None else write(value) if write is not None else value

    def read(value: object) -> object:
        return None if value is None else sort.read(value)

    return Sort(write_maybe if write is not None else None, read)


def list_of(sort: Sort, *, is_column: bool = False) -> Sort:
    """A list of values of one sort."""
    write = sort.write

    def write_all(values: list[object]) -> object:
        assert write is not None
        return [write(value) for value in values]

    def read(value: object) -> object:
        return [sort.read(each) for each in as_list(value)]

    return Sort(write_all if write is not None else None, read, is_column)


def column(sort: Sort) -> Sort:
    """A list that is as long as the other columns of its event."""
    return list_of(sort, is_column=True)


def dict_of(sort: Sort) -> Sort:
    """Values of one plain sort by name."""
    assert sort.write is None

    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise Malformed(f"expected an object, not {clipped(value)}")
        return {name: sort.read(each) for name, each in value.items()}

    return Sort(None, read)


# ---------------------------------------------------------------------------------------------- keys


def _read_key(value: object) -> object:
    if isinstance(value, list):
        return tuple(_read_key(each) for each in value)
    if isinstance(value, dict):
        raise Malformed(f"expected a key, not {clipped(value)}")
    return value


#: A text in all that comes by our own wire; else a number, None, or a tuple of keys. JSON makes a list of a tuple,
#: and a list is no key. Recording ends with a word at a key of another type.
KEY: Final = Sort(None, _read_key)


# ---------------------------------------------------------------------------------------------- opaque values


def size_of(value: object) -> int:
    """Bytes (characters of texts) in an opaque value, as far as one can tell without knowing what it is."""
    if isinstance(value, (bytes, str, bytearray)):
        return len(value)
    if isinstance(value, memoryview):
        return value.nbytes
    if isinstance(value, (tuple, list)):
        return sum([size_of(each) for each in value])
    return 0


def placeholder(size: int) -> str:
    """What stands for an opaque value in a replay."""
    return f"<{size} bytes>"


def _read_opaque(value: object) -> object:
    if type(value) is not int or value < 0:
        raise Malformed(f"expected a size, not {clipped(value)}")
    return placeholder(value)


OPAQUE: Final = Sort(size_of, _read_opaque)


def _read_notes(value: object) -> object:
    return {f"<{_read_opaque(value)}>": None}


#: A dict that is opaque: the number of its entries.
NOTES: Final = Sort(len, _read_notes)


# ---------------------------------------------------------------------------------------------- records, shared values


def record(make: Callable[..., object], fields: Mapping[str, Sort]) -> Sort:
    """A record as the list of its fields. ``make`` takes them by name."""
    writes = [(name, sort.write) for name, sort in fields.items()]

    def write(value: object) -> object:
        row: list[object] = []
        for name, write_field in writes:
            field = getattr(value, name)
            row.append(field if write_field is None else write_field(field))
        return row

    def read(value: object) -> object:
        row = as_list(value)
        if len(row) != len(fields):
            raise Malformed(f"expected {len(fields)} fields, not {len(row)}")
        values: dict[str, object] = {}
        length = -1
        for (name, sort), field in zip(fields.items(), row):
            try:
                values[name] = found = sort.read(field)
            except Malformed as error:
                raise Malformed(f"{name}: {error}") from None
            if sort.is_column:
                assert isinstance(found, list)
                if length not in (-1, len(found)):
                    raise Malformed(
                        f"{name}: expected {length} entries, as in the columns before, not {len(found)}"
                    )
                length = len(found)
        return make(**values)

    return Sort(write, read)


def shared_column(sort: Sort) -> Sort:
    """A column in which few values occur often: those values, and for each entry the index of its own.

    With one value throughout, their number stands for the indices. Entries that were one object come back as one.
    Records are the same if they are one object, as they have no equality of their own.
    """
    write = sort.write

    def write_shared(values: list[object]) -> object:
        if values and values.count(values[0]) == len(values):  # Nearly always, and much cheaper.
            return [[values[0] if write is None else write(values[0])], len(values)]
        seen: dict[object, int] = {}
        indices = [seen.setdefault(value, len(seen)) for value in values]
        return [list(seen) if write is None else [write(value) for value in seen], indices]

    def read(value: object) -> object:
        pair = as_list(value)
        if len(pair) != 2:
            raise Malformed(f"expected values and indices, not {clipped(value)}")
        distinct = [sort.read(each) for each in as_list(pair[0])]
        if type(pair[1]) is int and len(distinct) == 1 and 0 < pair[1] <= COLUMN_MAX:
            return distinct * pair[1]
        return [distinct[_read_index(index, len(distinct))] for index in as_list(pair[1])]

    return Sort(write_shared, read, is_column=True)


def _read_index(value: object, length: int) -> int:
    if type(value) is not int or not 0 <= value < length:
        raise Malformed(f"expected an index below {length}, not {clipped(value)}")
    return value


def as_list(value: object) -> list[object]:
    """The value, which must be a list."""
    if not isinstance(value, list):
        raise Malformed(f"expected a list, not {clipped(value)}")
    return value


def clipped(value: object) -> str:
    """A value as an error shows it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
