# Generated from the sources by typings/generate.py: do not edit. To refresh: tox -e fresh
from collections.abc import Sequence
from shunter.state import Change, View
from typing import Final

ALL_STATES: Final[frozenset[str]]

class SchedulerPlugin:
    name: str
    finish_states: frozenset[str]
    def start(self) -> None: ...
    def on_changes(self, changes: Sequence[Change], view: View) -> None: ...
    def close(self) -> None: ...
