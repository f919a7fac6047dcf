"""Defects to plant, one at a time, to see whether the simulator finds them.

``python -m tests.simulation.planted NAME [--seeds N] [--steps K]`` runs the simulator on sources in which one snippet
is replaced. Exit code 0: found, and how; 1: not found by any of the seeds. The state runs from source, whatever is
installed. ``--list`` names all defects.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple


class Defect(NamedTuple):
    """In ``module``, ``before`` (which is there exactly once) becomes ``after``."""

    module: str
    before: str
    after: str


DEFECTS: Final[dict[str, Defect]] = {
    # ------------------------------------------------------------------------------------- wake-ups and waiters
    "a dependent is not woken": Defect(
        "shunter.state.transitions",
        """            if other.state == WAITING and links.input_arrived(other):
                cluster.recommend(other, QUEUED)""",
        """            if other.state == WAITING:
                links.input_arrived(other)""",
    ),
    "a lost input is not waited for": Defect(
        "shunter.state.transitions",
        "            links.input_lost(other)",
        "            pass",
    ),
    "tasks without a worker do not hear of a new one": Defect(
        "shunter.state.membership",
        """    for ts in cluster.no_worker:
        cluster.recommend(ts, QUEUED)
    backlog.mark_hungry""",
        """    backlog.mark_hungry""",
    ),
    "a delayed retry is never due": Defect(
        "shunter.state.reactions",
        """            del cluster.delayed[ts]
            cluster.recommend(ts, QUEUED)""",
        """            pass""",
    ),
    "what is given back is not run again": Defect(
        "shunter.state.reactions",
        """        cluster.promised[ts] = thief
        _run_again(cluster, ts)""",
        """        cluster.promised[ts] = thief""",
    ),
    "dependents of what failed are not blamed": Defect(
        "shunter.state.transitions",
        """            if other.state == WAITING:
                cluster.recommend_erred(other, failure)""",
        """            pass""",
    ),
    # ------------------------------------------------------------------------------------- stale news
    "the result of a stale run counts": Defect(
        "shunter.state.reactions",
        "if ts is not None and ts.run_id == run_ids[i] and ts.processing_on is ws:",
        "if ts is not None and ts.processing_on is ws:",
    ),
    "the failure of a stale run counts": Defect(
        "shunter.state.reactions",
        "if ts is not None and run_id != 0 and ts.run_id == run_id:",
        "if ts is not None and ts.run_id != 0:",
    ),
    "a copy of a former life counts": Defect(
        "shunter.state.reactions",
        "ts.state == MEMORY and ts.index == event.lives[i] and _is_input_on(ws, ts)",
        "ts.state == MEMORY and _is_input_on(ws, ts)",
    ),
    "a worker keeps values of former lives": Defect(
        "shunter.worker.values",
        "    if known is not None and known != life:",
        "    if known is not None and known != life and known < 0:",
    ),
    "a worker takes what was fetched for a former life": Defect(
        "shunter.worker.fetching",
        "if want is not None and want.flight == fetch:",
        "if want is not None:",
    ),
    "a running task is adopted although its inputs have changed": Defect(
        "shunter.worker.runs",
        "if older is None or not older.intact or not is_same(older.task, task):",
        "if older is None or older.task.function != task.function or older.task.data != task.data:",
    ),
    # ------------------------------------------------------------------------------------- holders
    "a worker holds what it has only been told to fetch": Defect(
        "shunter.state.dispatch",
        "    message.inputs.append(inputs)\n",
        """    message.inputs.append(inputs)
    from shunter.state.replicas import add_holder

    for dep in deps:
        add_holder(dep, ws, wanted=False)
""",
    ),
    "holders are not told to drop what nobody needs": Defect(
        "shunter.state.transitions",
        "        cluster.outbox.free(holder.number, ts.key)\n        replicas.remove_holder(ts, holder)",
        "        replicas.remove_holder(ts, holder)",
    ),
    "a loss is not reported to clients": Defect(
        "shunter.state.transitions",
        "            cluster.outbox.lost(cs.number, ts.key)",
        "            pass",
    ),
    # ------------------------------------------------------------------------------------- indexes and sums
    "a removed worker stays in the index of its host": Defect(
        "shunter.state.membership",
        "    del on_host[ws]\n",
        "",
    ),
    "occupancy leaks": Defect(
        "shunter.state.assignment",
        """    else:
        ws.occupancy_us -= ts.run_work_us
    ts.run_work_us = 0
    if ws.asked_back""",
        """    ts.run_work_us = 0
    if ws.asked_back""",
    ),
    "resources leak": Defect(
        "shunter.state.assignment",
        "            left = ws.used.get(name, 0) - millionths(amount)",
        "            left = ws.used.get(name, 0)",
    ),
    "a worker's slot leaks": Defect(
        "shunter.worker.runs",
        "    t.occupied -= 1\n",
        "    t.occupied -= 1 if run.wanted else 0\n",
    ),
    "a worker does not answer when it is asked for tasks back": Defect(
        "shunter.worker.reactions",
        "    if asked is not None:\n        t.outbox.push(AnswerTakeBack(asked[0], asked[1]))",
        "",
    ),
    # ------------------------------------------------------------------------------------- clients
    "what is released stays": Defect(
        "shunter.state.clients",
        """    if interest.unwant(ts, cs) and not interest.is_needed(ts):
        cluster.recommend(ts, RELEASED)""",
        """    interest.unwant(ts, cs)""",
    ),
    "what a client wanted that has gone stays": Defect(
        "shunter.state.clients",
        "    release_everything(cluster, cs)\n    restart",
        "    restart",
    ),
    "a cancel takes what another client wants": Defect(
        "shunter.state.clients",
        "        if not event.force and _is_wanted_by_others(cluster, ts, cs):",
        "        if False:",
    ),
    "a client's events overtake its graph": Defect(
        "shunter.state.reactions",
        "    elif cs.incoming is not None or cs.deferred:\n        cs.deferred.append(event)\n",
        "",
    ),
    # ------------------------------------------------------------------------------------- blame
    "whatever was sent to a dead worker is blamed": Defect(
        "shunter.state.membership",
        "        if grave.run_ids[i] not in blamed or cluster",
        "        if cluster",
    ),
    "a death makes nobody suspect": Defect(
        "shunter.state.membership",
        "        deaths = transitions.suspect(ts)\n",
        "        deaths = 0\n",
    ),
}


class PlantedLoader(SourceFileLoader):
    """Loads a module from its source, with the snippet replaced."""

    defect: Defect

    def get_code(self, fullname: str) -> object:  # type: ignore[override]
        source = Path(self.path).read_text(encoding="utf-8")
        if source.count(self.defect.before) != 1:
            raise SystemExit(
                f"{fullname}: the snippet to replace is there {source.count(self.defect.before)} times"
            )
        return compile(source.replace(self.defect.before, self.defect.after), self.path, "exec")


class PlantedFinder(MetaPathFinder):
    """Finds the one module with the defect; all others are left to Python."""

    def __init__(self, defect: Defect) -> None:
        self.defect = defect

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.defect.module:
            return None
        for entry in path or ():
            file = os.path.join(entry, fullname.rpartition(".")[2] + ".py")
            if os.path.exists(file):
                loader: Loader = PlantedLoader(fullname, file)
                assert isinstance(loader, PlantedLoader)
                loader.defect = self.defect
                return importlib.util.spec_from_file_location(fullname, file, loader=loader)
        return None


def plant(defect: Defect) -> None:
    """From now on ``import`` gives the module with the defect. Nothing of shunter may have been imported yet."""
    if any(name.startswith("shunter") for name in sys.modules):
        raise SystemExit("shunter is imported already: plant in a process of its own")
    os.environ["SHUNTER_DEBUG"] = "1"
    import shunter  # noqa: F401  # its own finder goes first, then ours before it

    sys.meta_path.insert(0, PlantedFinder(defect))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted", description=__doc__)
    parser.add_argument("name", nargs="?", choices=list(DEFECTS), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args(arguments)
    if options.list or options.name is None:
        print("\n".join(DEFECTS))
        return 0
    plant(DEFECTS[options.name])
    from tests.simulation.search import find

    found = find(range(options.seeds), steps=options.steps)
    if found is None:
        print(f"not found in {options.seeds} seeds: {options.name}")
        return 1
    seed, error = found
    print(f"seed {seed}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
