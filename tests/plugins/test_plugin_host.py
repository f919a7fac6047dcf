"""Plugins are guests: guarded, told what they ask for, and free when they ask for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from shunter.plugins import ALL_STATES, Change, SchedulerPlugin, View
from shunter.server.plugin_host import FAILURES_MAX, PluginHost
from tests.server.false import FalseView, change


class Watched:
    """A ``watch`` that notes, and a ``view`` that counts."""

    def __init__(self) -> None:
        self.calls: list[frozenset[str]] = []
        self.views = 0

    def watch(self, states: frozenset[str]) -> None:
        self.calls.append(states)

    def get_view(self) -> Any:
        self.views += 1
        return FalseView()


class Notes(SchedulerPlugin):
    """Notes what it is told."""

    def __init__(self, *states: str) -> None:
        self.finish_states = frozenset(states) if states else ALL_STATES
        self.told: list[list[object]] = []
        self.life: list[str] = []

    def start(self) -> None:
        self.life.append("start")

    def on_changes(self, changes: Sequence[Change], view: View) -> None:
        self.told.append([each.key for each in changes])

    def close(self) -> None:
        self.life.append("close")


class Broken(Notes):
    """Raises in every hook."""

    name = "the broken one"

    def start(self) -> None:
        raise RuntimeError("cannot start")

    def on_changes(self, changes: Sequence[Change], view: View) -> None:
        super().on_changes(changes, view)
        raise RuntimeError("cannot watch")

    def close(self) -> None:
        raise RuntimeError("cannot close")


def test_plugins__are_told_the_changes_that_end_in_their_states() -> None:
    state, finished, everything = Watched(), Notes("memory", "erred"), Notes()
    host = PluginHost([finished, everything], state.watch)
    host.start()
    assert state.calls == [ALL_STATES]
    host.tell([change("a"), change("b", "processing"), change("c", "erred")], state.get_view)
    host.tell([change("d", "waiting")], state.get_view)
    assert finished.told == [["a", "c"]]
    assert everything.told == [["a", "b", "c"], ["d"]]


def test_watch__asks_for_the_union_of_what_is_wanted() -> None:
    state = Watched()
    PluginHost([Notes("memory"), Notes("erred", "memory")], state.watch).start()
    assert state.calls == [frozenset({"memory", "erred"})]


def test_plugin_that_overrides_nothing__costs_nothing() -> None:
    state = Watched()
    host = PluginHost([SchedulerPlugin()], state.watch)
    host.start()
    host.tell([change("a")], state.get_view)
    assert state.calls == []
    assert state.views == 0


def test_no_changes__asks_for_no_view() -> None:
    state = Watched()
    host = PluginHost([Notes()], state.watch)
    host.start()
    host.tell([], state.get_view)
    assert state.views == 0


def test_life__start_before_changes_and_close_once() -> None:
    state, plugin = Watched(), Notes()
    host = PluginHost([plugin], state.watch)
    host.start()
    host.close()
    host.close()
    host.tell([change("a")], state.get_view)
    assert plugin.life == ["start", "close"]
    assert plugin.told == []


def test_plugin_raises__is_logged_by_name_and_the_others_are_told(caplog: pytest.LogCaptureFixture) -> None:
    state, broken, good = Watched(), Broken(), Notes()
    host = PluginHost([broken, good], state.watch)
    host.start()
    host.tell([change("a")], state.get_view)
    host.close()
    assert good.told == [["a"]]
    assert good.life == ["start", "close"]
    said = [record.getMessage() for record in caplog.records]
    assert [hook in text for hook, text in zip(("start", "on_changes", "close"), said)] == [True] * 3
    assert all("the broken one" in text for text in said)
    assert all(record.exc_info for record in caplog.records)


def test_plugin_that_keeps_raising__is_switched_off_and_its_states_are_watched_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state, broken, good = Watched(), Broken("waiting"), Notes("memory")
    host = PluginHost([broken, good], state.watch)
    host.start()
    for _ in range(2 * FAILURES_MAX):
        host.tell([change("a", "waiting"), change("b")], state.get_view)
    assert len(broken.told) == FAILURES_MAX - 1  # Its start had failed as well.
    assert len(good.told) == 2 * FAILURES_MAX
    assert state.calls == [frozenset({"waiting", "memory"}), frozenset({"memory"})]
    assert any("switched off" in record.getMessage() for record in caplog.records)
