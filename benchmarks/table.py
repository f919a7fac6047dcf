"""Run all benchmarks on both builds, peers beside them, and write one table.

    python -m benchmarks [--quick] [--only NAME] [--peer NAME] [--write FILE] [--lines FILE]

The compiled build is the one that is installed; the pure one is the source tree beside this folder, which is always
pure. Each benchmark runs in a process of its own, on one build after the other, with the peers that are installed.
Progress goes to stderr; the table (markdown) to stdout, and to a file if asked: between the marks, if the file has
them (`docs/compiling.md` does).
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import report

ROOT: Final = Path(__file__).resolve().parent.parent
BEGIN: Final = "<!-- benchmarks: begin -->"
END: Final = "<!-- benchmarks: end -->"
TIMEOUT: Final = 1200  # seconds for one benchmark on one build

#: name -> (module, peers that it can run).
BENCHMARKS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "core": ("benchmarks.micro.core", ("dask",)),
    "steps": ("benchmarks.micro.steps", ()),
    "scaling": ("benchmarks.micro.scaling", ()),
    "throughput": ("benchmarks.cluster.throughput", ("processpool", "dask")),
    "latency": ("benchmarks.cluster.latency", ("processpool", "dask")),
    "startup": ("benchmarks.cluster.startup", ("dask",)),
    "transfer": ("benchmarks.cluster.transfer", ("dask",)),
    "deep": ("benchmarks.cluster.deep", ()),
}

Line = dict[str, Any]
Lines = list[Line]


class Row(NamedTuple):
    """One row of the table: which field of which lines, and what it should reach."""

    title: str
    bench: str
    where: dict[str, str]
    field: str
    goal: str = ""
    more_is_better: bool = False


def core_rows() -> list[Row]:
    rows = []
    goals = {"independent": "≤ 4", "chains": "≤ 4", "tree": "≤ 4"}
    for shape in ("independent", "chains", "tree", "shuffle", "merge"):
        where = {"shape": shape}
        rows.append(Row(f"state, {shape}: µs a task", "core", where, "us_per_task", goals.get(shape, "")))
        rows.append(Row(f"state, {shape}: µs a task to order", "core", where, "order_us"))
        rows.append(Row(f"state, {shape}: bytes a task", "core-memory", where, "bytes_per_task", "≤ 600"))
        rows.append(
            Row(f"state, {shape}: live bytes, end / start", "core-memory", where, "live_ratio", "≤ 1.05")
        )
    return rows


ALL: Final = {"scene": "all", "event": "all"}

ROWS: Final = [
    *core_rows(),
    Row("state: µs to release a key", "core", {"shape": "independent"}, "forget_us", "≤ 0.5"),
    Row("state, longest steps (99.9 %): share of 1 ms + 1 µs a task", "steps", ALL, "share_p999", "≤ 1"),
    Row("state, longest step: the same share", "steps", ALL, "share_most"),
    Row("state, one event, 100 times as much: time ×", "scaling", {"event": "worst"}, "time_ratio", "≤ 2.5"),
    Row("… instructions ×", "scaling", {"event": "worst"}, "instructions_ratio", "≤ 1.1"),
    Row("10,000 tasks by map: tasks/s", "throughput", {"way": "map"}, "tasks_per_s", more_is_better=True),
    Row("… by the pool's", "throughput-ratio", {"peer": "processpool"}, "map", "≥ 0.6", True),
    Row(
        "10,000 tasks by submit: tasks/s", "throughput", {"way": "submit"}, "tasks_per_s", more_is_better=True
    ),
    Row("… by the pool's", "throughput-ratio", {"peer": "processpool"}, "submit", "≥ 0.4", True),
    Row("one task and back: ms, median", "latency", {}, "median_ms", "≤ 0.5"),
    Row("one task and back: ms, 99 %", "latency", {}, "p99_ms"),
    Row("import shunter: s", "startup", {}, "import_s", "≤ 0.1"),
    Row("scheduler listens after: s", "startup", {}, "listen_s", "≤ 0.25"),
    Row("idle scheduler: MB", "startup", {}, "idle_mb", "≤ 30"),
    Row("idle with 2 workers: % of a processor", "startup", {}, "idle_cpu_percent", "≤ 0.2"),
    Row("200 MB worker to worker: GB/s", "transfer", {}, "gb_per_s", "≥ 1", True),
    Row("… the first time", "transfer", {}, "first_gb_per_s", more_is_better=True),
    Row("chain of 100,000: tasks/s", "deep", {"graph": "chain"}, "tasks_per_s", more_is_better=True),
    Row("… longest answer to another client: ms", "deep", {"graph": "chain"}, "answer_ms_most", "≤ 200"),
    Row("200,000 tasks: tasks/s", "deep", {"graph": "merge"}, "tasks_per_s", more_is_better=True),
    Row("… longest answer to another client: ms", "deep", {"graph": "merge"}, "answer_ms_most", "≤ 200"),
]


def main(argv: list[str] | None = None) -> None:
    parser = report.parser(__doc__, ("processpool", "dask"))
    parser.add_argument("--only", action="append", choices=list(BENCHMARKS), help="default: all")
    parser.add_argument("--write", metavar="FILE", help="write the table to this file, too")
    parser.add_argument("--lines", metavar="FILE", help="write the JSON lines to this file")
    given = parser.parse_args(argv)
    peers = given.peer or ["processpool", *(["dask"] if importlib.util.find_spec("distributed") else [])]
    builds = find_builds()
    lines: Lines = []
    failed: list[str] = []
    for name in given.only or BENCHMARKS:
        for build, environment in builds.items():
            found, code = run(name, build, environment, peers, quick=given.quick)
            lines += found
            if code:
                failed.append(f"{name} ({build})")
    if given.lines:
        Path(given.lines).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    text = make_table(lines, list(builds), peers)
    print(text)
    if given.write:
        write(Path(given.write), text)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def find_builds() -> dict[str, dict[str, str]]:
    """The environment for each build: the installed one, and the source tree (if that is another)."""
    expected = os.environ.get("SHUNTER_EXPECT")
    if expected and expected != report.build():
        sys.exit(f"SHUNTER_EXPECT={expected}, but the shunter that is installed is {report.build()}")
    own = {name: value for name, value in os.environ.items() if not name.startswith("SHUNTER_")}
    tree = {**own, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "sched"), own.get("PYTHONPATH")]))}
    if report.build() == "pure":
        print("WARNING: no compiled build is installed here: the pure one is measured alone", file=sys.stderr)
        return {"pure": tree}
    return {"pure": tree, "compiled": own}


def run(
    name: str, build: str, environment: dict[str, str], peers: list[str], *, quick: bool
) -> tuple[Lines, int]:
    """Run one benchmark on one build; dask, which is slow, only beside one of them. Also gives the exit code."""
    module, possible = BENCHMARKS[name]
    wanted = [peer for peer in peers if peer in possible and not (peer == "dask" and build == "pure")]
    arguments = [sys.executable, "-m", module, *(["--quick"] if quick else [])]
    for peer in wanted:
        arguments += ["--peer", peer]
    print(f"{name} ({build}) …", end=" ", file=sys.stderr, flush=True)
    started = time.monotonic()
    done = subprocess.run(
        arguments, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT, check=False
    )
    print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)
    lines: Lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for line in lines:
        if line.get("build", build) != build:
            sys.exit(f"{name} was to run on the {build} build, but ran on the {line['build']} one")
        line["beside"] = build
    return lines, done.returncode


def make_table(lines: Lines, builds: list[str], peers: list[str]) -> str:
    ran = lines[0] if lines else {}
    titles = ["", *builds, *(["compiled gains"] if len(builds) == 2 else []), *peers, "goal"]
    rows = [titles, ["---"] * len(titles)]
    for row in ROWS:
        own = [find(lines, row, system="shunter", beside=build) for build in builds]
        if own == [None] * len(own):
            continue
        cells = [row.title, *map(show, own)]
        if len(builds) == 2:
            cells.append(show_gain(own[0], own[1], row.more_is_better))
        for peer in peers:
            cells.append(show(find(lines, row, system=peer)))
        rows.append([*cells, row.goal])
    text = "\n".join("| " + " | ".join(cells) + " |" for cells in rows)
    where = f"Python {ran.get('python')}, {ran.get('platform')}, {ran.get('processors')} processors"
    return f"{where}; medians. {share_of_code()}\n\n{text}"


def share_of_code() -> str:
    """How much of the package is compiled, by lines of source."""
    package = ROOT / "sched" / "shunter"
    state = sum(count_lines(file) for file in package.glob("state/*.py"))
    total = sum(count_lines(file) for file in package.rglob("*.py"))
    return f"Compiled: {state:,} of {total:,} lines ({state / total:.0%})."


def count_lines(file: Path) -> int:
    """Lines that are neither empty nor comments."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return sum(1 for line in lines if line.strip() and not line.lstrip().startswith("#"))


def write(file: Path, text: str) -> None:
    """Write the table, between the marks if the file has them."""
    old = file.read_text(encoding="utf-8") if file.exists() else ""
    if BEGIN in old and END in old:
        before, rest = old.split(BEGIN, 1)
        after = rest.split(END, 1)[1]
        text = f"{before}{BEGIN}\n{text}\n{END}{after}"
    else:
        text += "\n"
    file.write_text(text, encoding="utf-8")


def find(lines: Lines, row: Row, **also: str) -> float | None:
    """The row's field in the first line that fits."""
    wanted = {"bench": row.bench, **row.where, **also}
    for line in lines:
        if row.field in line and all(line.get(name) == value for name, value in wanted.items()):
            return float(line[row.field])
    return None


def show_gain(pure: float | None, compiled: float | None, more_is_better: bool) -> str:
    """How many times better the compiled build is."""
    if not pure or not compiled:
        return ""
    return f"× {compiled / pure if more_is_better else pure / compiled:.2f}"


def show(value: float | None) -> str:
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


if __name__ == "__main__":
    main()
