"""What every benchmark shares: JSON lines that name the build, the versions and the machine; medians and ratios."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from functools import lru_cache

import shunter


def emit(bench: str, **fields: object) -> None:
    """Print one JSON line: the benchmark's name, where it ran, and the given fields; numbers with 4 digits."""
    line: dict[str, object] = {"bench": bench, "system": "shunter"}
    line.update({name: _rounded(value) for name, value in fields.items()})
    if line["system"] == "shunter":
        line["build"] = build()
        line["version"] = shunter.__version__
    line.update(machine())
    print(json.dumps(line), flush=True)


def build() -> str:
    return "compiled" if shunter.COMPILED else "pure"


@lru_cache(maxsize=1)
def machine() -> dict[str, object]:
    """The interpreter and the processors this process may use."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"python": platform.python_version(), "platform": sys.platform, "processors": processors}


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, (list, tuple)):
        return [_rounded(each) for each in value]
    return value


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of all lie."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))]


def parser(description: str | None, peers: Sequence[str] = ()) -> argparse.ArgumentParser:
    """A command line with ``--peer`` (if there are any) and ``--quick``, which all benchmarks have."""
    found = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    if peers:
        found.add_argument("--peer", action="append", choices=peers, default=[], help="run it as well")
    found.add_argument("--quick", action="store_true", help="a tenth of the work, to see that it runs")
    return found
