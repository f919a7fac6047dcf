"""The example plugin in a scheduler that listens."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shunter.server.plugin_host import load_plugin
from shunter.state import ClientReleasesKeys
from shunter.wire import messages
from tests.server.false import FalseState, change
from tests.server.harness import Running, with_scheduler

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(EXAMPLES)
    yield
    sys.modules.pop("plugin_durations", None)


def load(arguments: str = "") -> Any:
    return load_plugin("plugin_durations:Durations", arguments)


def test_loaded_by_name_into_a_scheduler__writes_its_figures_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "durations.jsonl"
    state = FalseState()

    def react(event: object) -> None:
        if isinstance(event, ClientReleasesKeys):
            state.changes.extend([change("x", duration=0.25), change("x", "processing")])

    state.react = react

    async def story(s: Running) -> None:
        assert state.watched == frozenset({"memory"})
        client = await s.client()
        client.send(messages.Release(["x"]))
        client.send(messages.Query(1, "tasks", {}))
        await client.next(messages.Reply)  # Its turn came after that of the changes.

    with_scheduler(story, state, plugins=[load(json.dumps({"path": str(path)}))])
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"kind": "inc", "runs": 1, "seconds": 0.25, "longest": 0.25}
    ]
