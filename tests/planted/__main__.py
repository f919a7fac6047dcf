"""Plant a defect, and see whether the simulator finds it.

``python -m tests.planted NAME [--seeds N] [--steps K]`` runs the simulator on sources in which one snippet
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

from tests.planted.defects import DEFECTS, Defect


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
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("name", nargs="?", choices=list(DEFECTS), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args(arguments)
    if options.list or options.name is None:
        print("\n".join(DEFECTS))
        return 0
    defect = DEFECTS[options.name]
    plant(defect)
    from tests.simulation.search import find

    found = find(range(options.seeds), steps=options.steps, profile=defect.profile)
    if found is None:
        print(f"not found in {options.seeds} seeds: {options.name}")
        return 1
    seed, error = found
    print(f"seed {seed}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
