"""The file: its header, and what is said of one that cannot be read."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

import shunter
from shunter.errors import UsageError
from shunter.recording import LogReader
from shunter.recording.log import BUFFER, Header, settings_of, values_of
from shunter.recording.rows import RECORDS_IN
from shunter.recording.sorts import Malformed
from shunter.state import ClientAdded, Settings, Tick
from tests.recording.recorded import record, writer_of


def lines_of(path: Path, count: int = 2) -> list[bytes]:
    """The lines of a fresh recording of ``count`` events."""
    record(path, [(ClientAdded(i, "c"), float(i)) for i in range(count)], Settings(slice=7), 0.5)
    return path.read_bytes().splitlines(keepends=True)


def read(path: Path) -> tuple[Header, list[tuple[int, float]], bool]:
    """The header, line and time of each event, and whether the last line was cut off."""
    with LogReader(str(path)) as log:
        return log.header, [(entry.line, entry.now) for entry in log], log.is_cut


def test_header__says_who_recorded_and_every_setting(tmp_path: Path) -> None:
    lines_of(tmp_path / "run.log")

    header, events, is_cut = read(tmp_path / "run.log")

    assert header.version == shunter.__version__
    assert header.build == ("compiled" if shunter.COMPILED else "pure")
    assert header.now == 0.5
    assert values_of(header.settings) == values_of(Settings(slice=7))
    assert events == [(2, 0.0), (3, 1.0)]
    assert not is_cut


def test_recording__is_for_its_owner_alone__one_of_that_name_is_kept(tmp_path: Path) -> None:
    first = lines_of(tmp_path / "run.log", 3)
    second = lines_of(tmp_path / "run.log", 1)

    assert stat.S_IMODE((tmp_path / "run.log").stat().st_mode) == 0o600
    assert (tmp_path / "run.log").read_bytes() == b"".join(second)
    assert (tmp_path / "run.log.old").read_bytes() == b"".join(first)


def test_noted_before_the_file_is_open__written_when_it_is(tmp_path: Path) -> None:
    writer = writer_of(Settings())
    writer.note(Tick(), 1.0)
    writer.flush()
    writer.open(str(tmp_path / "run.log"))
    writer.note(Tick(), 2.0)

    assert read(tmp_path / "run.log")[1] == [(2, 1.0)]  # The second one waits for a flush.
    writer.flush()
    assert read(tmp_path / "run.log")[1] == [(2, 1.0), (3, 2.0)]
    writer.close()


def test_much_is_noted__written_without_being_asked(tmp_path: Path) -> None:
    writer = writer_of(Settings())
    writer.open(str(tmp_path / "run.log"))
    before = (tmp_path / "run.log").stat().st_size
    writer.note(ClientAdded(1, "x" * BUFFER), 1.0)

    assert (tmp_path / "run.log").stat().st_size > before + BUFFER
    writer.close()


@pytest.mark.parametrize("cut", [1, 2, 10])
def test_last_line_is_cut_off__the_rest_is_read(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "run.log"
    text = b"".join(lines_of(path, 3))
    path.write_bytes(text[:-cut])

    _, events, is_cut = read(path)

    assert (len(events), is_cut) == ((3, False) if cut == 1 else (2, True))


@pytest.mark.parametrize(
    "damage",
    [
        b"\x00\x00\x00",
        b"{",
        b"[1.0",
        b'["now","Tick"]',
        b'[1.0,"Tock"]',
        b"[]",
        b"[null]",
        b"7",
        b"\xff\xfe",
        b"[",
        b"[1" + b"0" * 400 + b',"Tick"]',
    ],
)
def test_line_is_damaged__named_by_its_number(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "run.log"
    lines = lines_of(path, 3)
    lines[2] = damage + b"\n"
    path.write_bytes(b"".join(lines))

    with LogReader(str(path)) as log:
        entries = iter(log)
        assert next(entries).line == 2
        with pytest.raises(UsageError, match=r"run\.log, line 3: .*--until 1$"):
            next(entries)


def test_line_is_nested_too_deep__named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(lines_of(path, 1)[0] + b"[" * 200_000 + b"\n")

    with LogReader(str(path)) as log, pytest.raises(UsageError, match="line 2"):
        list(log)


@pytest.mark.parametrize(
    ("name", "fields"),
    [("ClientAdded", ["name", "client"]), ("Options", ["priority"]), ("Failure", None)],
)
def test_event_of_another_version__said_so(tmp_path: Path, name: str, fields: object) -> None:
    path = tmp_path / "run.log"
    header, *_ = lines_of(path)
    found = json.loads(header)
    found["shunter"] = "9.9"
    found["events"][name] = fields
    event = RECORDS_IN.get(name, name)
    path.write_text(f'{json.dumps(found)}\n[1.0,"Tick"]\n[1.0,"{event}",1,"c"]\n')

    with LogReader(str(path)) as log:
        entries = iter(log)
        assert next(entries).line == 2  # Which is the same in both.
        with pytest.raises(UsageError, match=rf"line 3: {event} has other fields in shunter 9\.9"):
            next(entries)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"format": 2}, "format 2"),
        ({"settings": {"slize": 1}}, "no setting 'slize'"),
        ({"settings": {"slice": 1.5}}, "slice cannot be 1.5"),
        ({"settings": {"validate": 1}}, "validate cannot be 1"),
        ({"settings": {"slice": 0}}, "must be above 0"),
        ({"settings": None}, "no settings"),
        ({"now": "noon"}, "expected a number"),
        ({"wall": None}, "expected a number"),
        ({"shunter": 1}, "expected a text"),
        ({"events": []}, "fields of events"),
    ],
)
def test_header_is_damaged__said_so(tmp_path: Path, change: dict[str, object], complaint: str) -> None:
    path = tmp_path / "run.log"
    path.write_text(json.dumps({**json.loads(lines_of(path)[0]), **change}))

    with pytest.raises(UsageError, match=complaint):
        LogReader(str(path))


@pytest.mark.parametrize("text", [b"", b"\n", b"hello\n", b"[]\n", b"{}\n", b"\x7fELF" * 1000, b"7"])
def test_no_recording__said_so(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "file").write_bytes(text)

    with pytest.raises(UsageError, match="not a recording"):
        LogReader(str(tmp_path / "file"))


def test_file_is_missing_or_a_folder__said_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        LogReader(str(tmp_path / "file"))
    with pytest.raises(UsageError, match="directory"):
        LogReader(str(tmp_path))


def test_folder_of_recording_is_missing__error_names_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / "missing" / "run.log")

    with pytest.raises(OSError) as caught:
        writer_of(Settings()).open(path)

    assert caught.value.filename == path


def test_settings_by_name__changes_count_for_more() -> None:
    assert values_of(settings_of({"slice": 7, "latency": 1}, slice=8)) == values_of(
        Settings(slice=8, latency=1)
    )
    with pytest.raises(Malformed):
        settings_of({}, nonsense=1)
