"""The file: a line of JSON for each event, ``[now, name, fields…]``, after a first line that says how to read them.

The first line holds the format, who recorded, the settings and the first time, and the fields of each sort of row: a
reader of another version finds out at the first event that it does not know, rather than by a wrong replay.

A recording ends where its scheduler ended. If that was killed, the last line may be cut off, which is no error; any
other line that cannot be read is one, and is named by its number.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, NamedTuple, cast

from shunter.errors import UsageError
from shunter.recording.rows import RECORDS_IN, from_row, names_of, to_row
from shunter.recording.sorts import REAL, TEXT, Malformed, as_list, clipped
from shunter.state import Event, Settings

FORMAT: Final = 1
#: Bytes that are collected before they are written by themselves; see `LogWriter.flush`.
BUFFER: Final = 128 * 1024
#: A first line that is longer is no header, in a file that is something else.
HEADER_MAX: Final = 1 << 20

_encode: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Header(NamedTuple):
    """The first line. ``now``: the first time on the state's clock; ``wall``: the same, seconds since 1970."""

    version: str
    build: str
    now: float
    wall: float
    settings: Settings
    names: dict[str, list[str]]


class Entry(NamedTuple):
    """One event. ``line``: its number in the file, from 1; the first event stands in line 2."""

    line: int
    now: float
    event: Event


class LogWriter:
    """Writes a recording. What is noted before `open` is kept until then.

    Args:
        settings: those of the state.
        now: its first time.
        wall: the same on the wall clock, seconds since 1970.
        version: of shunter.
        build: of the state.
    """

    __slots__ = ("_file", "_lines", "_nbytes")

    def __init__(self, settings: Settings, *, now: float, wall: float, version: str, build: str) -> None:
        self._file: io.FileIO | None = None
        self._lines: list[bytes] = []
        self._nbytes = 0
        self._add(
            {
                "format": FORMAT,
                "shunter": version,
                "build": build,
                "now": now,
                "wall": wall,
                "settings": values_of(settings),
                "events": names_of(),
            }
        )

    def open(self, path: str) -> None:
        """Begin the file, readable by its owner alone. A file of that name is kept as ``path.old``.

        Raises:
            OSError: it cannot be written; ``filename`` is the path.
        """
        try:
            if os.path.isfile(path):
                os.replace(path, f"{path}.old")  # It may tell of the crash after which we start again.
            self._file = io.FileIO(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600))
            self.flush()
        except OSError as error:
            error.filename = path
            raise

    def note(self, event: Event, now: float) -> None:
        """Write down an event. Raises OSError, or what `to_row` and JSON raise at an event that they do not know."""
        self._add([now, *to_row(event)])
        if self._nbytes > BUFFER:
            self.flush()

    def flush(self) -> None:
        """Hand what is collected to the operating system, once the file is open. Raises OSError."""
        if self._file is None or not self._lines:
            return
        rest = memoryview(b"".join(self._lines))
        self._lines = []
        self._nbytes = 0
        while rest:
            rest = rest[self._file.write(rest) or 0 :]

    def close(self) -> None:
        """Write the rest. Raises OSError; the file is closed in any case."""
        try:
            self.flush()
        finally:
            if self._file is not None:
                self._file.close()

    def _add(self, row: object) -> None:
        line = f"{_encode(row)}\n".encode()
        self._lines.append(line)
        self._nbytes += len(line)


class LogReader:
    """Reads a recording: ``for entry in reader``.

    Raises:
        UsageError: it cannot be read, or is no recording, or of another format.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        #: The last line was cut off.
        self.is_cut = False
        try:
            self._file = open(path, "rb")  # noqa: SIM115 - closed by `__exit__`
            self._size = os.fstat(self._file.fileno()).st_size
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from None
        try:
            self.header = read_header(self._file.readline(HEADER_MAX))
            self._foreign = foreign_events(self.header)
        except (Malformed, OSError) as error:
            self._file.close()
            raise UsageError(f"{path} is not a recording that can be replayed: {error}") from None
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> LogReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def progress(self) -> float:
        """How much of the file has been read, from 0 to 1."""
        return self._file.tell() / self._size if self._size else 1.0

    def __iter__(self) -> Iterator[Entry]:
        line = 1
        while text := self._file.readline():
            line += 1
            try:
                yield self._read(line, text)
            except Malformed as error:
                if not text.endswith(b"\n"):
                    self.is_cut = True
                    return
                raise UsageError(
                    f"{self.path}, line {line}: {error}; what stands before it: --until {line - 2}"
                ) from None

    def _read(self, line: int, text: bytes) -> Entry:
        now, *row = as_list(parsed(text)) or [None]
        if row and isinstance(row[0], str) and row[0] in self._foreign:
            raise Malformed(f"{row[0]} has other fields in shunter {self.header.version}, which recorded it")
        return Entry(line, _as_seconds(now), from_row(row))


def read_header(text: bytes) -> Header:
    """The first line. Raises Malformed."""
    found = parsed(text)
    if not isinstance(found, dict) or "format" not in found:
        raise Malformed("its first line is no header")
    if found["format"] != FORMAT:
        raise Malformed(f"it has format {clipped(found['format'])}, and this shunter reads {FORMAT}")
    version, build = TEXT.read(found.get("shunter")), TEXT.read(found.get("build"))
    assert isinstance(version, str) and isinstance(build, str)
    names = found.get("events")
    if not isinstance(names, dict):
        raise Malformed("its header does not tell the fields of events")
    now, wall = _as_seconds(found.get("now")), _as_seconds(found.get("wall"))
    return Header(version, build, now, wall, settings_of(found.get("settings")), names)


def foreign_events(header: Header) -> set[str]:
    """Events that have other fields here than where they were recorded, or a record with other fields inside."""
    ours = names_of()
    changed = {name for name, fields in ours.items() if header.names.get(name) != fields}
    return changed | {event for record, event in RECORDS_IN.items() if record in changed}


def values_of(settings: Settings) -> dict[str, float]:
    """Every setting by name; compiled classes have no ``__slots__`` to ask."""
    return {name: getattr(settings, name) for name in dir(settings) if not name.startswith("_")}


def settings_of(values: object, **changes: float) -> Settings:
    """Settings from their values by name; those that are not named have their defaults.

    Raises:
        Malformed: an unknown name, or a value that does not fit it.
    """
    if not isinstance(values, dict):
        raise Malformed("its header has no settings")
    known = values_of(Settings())
    for name, value in {**values, **changes}.items():
        if name not in known:
            raise Malformed(f"there is no setting {clipped(name)}")
        wanted = type(known[name])
        if type(value) is not wanted and not (wanted is float and type(value) is int):
            raise Malformed(f"the setting {name} cannot be {clipped(value)}")
    try:
        return cast("Callable[..., Settings]", Settings)(**{**values, **changes})
    except UsageError as error:
        raise Malformed(str(error)) from None


def _as_seconds(value: object) -> float:
    found = REAL.read(value)
    assert isinstance(found, (int, float))
    return float(found)


def parsed(text: bytes) -> object:
    """The value of a line of JSON. Raises Malformed."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"it is no line of JSON ({error})") from None
    return value
