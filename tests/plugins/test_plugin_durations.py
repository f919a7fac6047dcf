"""The example plugin, on the true state and through the server's host of plugins."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

from shunter.server.plugin_host import PluginHost
from shunter.state import (
    DEFAULT_OPTIONS,
    ClientAdded,
    ComputeTasks,
    DataScattered,
    GraphBegin,
    GraphCommit,
    GraphPart,
    SchedulerState,
    Settings,
    TasksFinished,
    WorkerAdded,
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin_durations.py"


def load_example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plugin_durations", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tasks_of_two_kinds_finish__file_has_their_sums_costliest_first(tmp_path: Path) -> None:
    plugin = load_example().Durations(str(tmp_path / "durations.jsonl"))
    state = SchedulerState(Settings(validate=True), now=0.0)
    host = PluginHost([plugin], state.watch)
    host.start()
    state.step(WorkerAdded(1, "tcp://h:1", "w", "h", 8, 0, {}), 0.0)
    state.step(ClientAdded(2, "c"), 0.0)
    state.step(GraphBegin(2, 1, True, None), 0.0)
    part = GraphPart(
        2,
        1,
        ["a-1", "a-2", "b-1"],
        [object(), object(), object()],
        ["a", "a", "b"],
        [None, None, None],
        [DEFAULT_OPTIONS] * 3,
        {"a": "quick", "b": "slow"},
    )
    state.step(part, 0.0)
    state.step(GraphCommit(2, 1, None), 0.0)
    state.step(DataScattered(2, ["d"], [8], [[1]]), 0.0)
    outcome = state.drain()
    host.tell(outcome.changes, state.view)

    (compute,) = [each for each in outcome.instructions if isinstance(each, ComputeTasks)]
    seconds = {"a-1": 0.25, "a-2": 0.5, "b-1": 2.0}
    durations = [seconds[str(key)] for key in compute.keys]
    state.step(
        TasksFinished(
            1, compute.keys, compute.run_ids, [8] * 3, [0.0] * 3, durations, [1] * 3, ["int"] * 3, [None] * 3
        ),
        1.0,
    )
    host.tell(state.drain().changes, state.view)
    host.close()

    rows = [json.loads(line) for line in (tmp_path / "durations.jsonl").read_text().splitlines()]
    assert rows == [
        {"kind": "slow", "runs": 1, "seconds": 2.0, "longest": 2.0},
        {"kind": "quick", "runs": 2, "seconds": 0.75, "longest": 0.5},
    ]
    state.validate()
