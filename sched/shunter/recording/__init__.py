"""Recordings: every event that a state was given, written to a file, and run again from there.

`rows` turns events into plain data and back, `log` is the file, `replay` runs one, `showing` is for people. A
recording names keys, functions, workers and clients, and holds the texts of failures; of what users pass and get it
holds the sizes alone.
"""

from __future__ import annotations

from shunter.recording.log import Entry, LogReader, LogWriter
from shunter.recording.replay import Replay
from shunter.recording.rows import Malformed, from_row, names_of, to_row
from shunter.recording.showing import shown

__all__ = [
    "Entry",
    "LogReader",
    "LogWriter",
    "Malformed",
    "Replay",
    "from_row",
    "names_of",
    "shown",
    "to_row",
]
