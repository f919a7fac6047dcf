"""``shunter status``: show what a scheduler, its workers and its tasks are doing."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from shunter import config
from shunter.cli import exits, options
from shunter.cli.table import seconds, size, table
from shunter.errors import ConnectionLost

#: A scheduler that is asked for its status must answer within this time (seconds).
TIMEOUT: Final = 10.0
#: Kinds of tasks that are shown: those with the most tasks.
KINDS_MAX: Final = 12
#: In the order of a task's life.
TASK_STATES: Final = ("waiting", "no-worker", "queued", "processing", "memory", "erred", "released")
#: What a terminal understands.
HOME: Final = "\x1b[H"
CLEAR_LINE: Final = "\x1b[K"
CLEAR_BELOW: Final = "\x1b[J"
CLEAR_ALL: Final = "\x1b[2J"

Row = Mapping[str, object]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_contact(parser)
    parser.add_argument(
        "--watch", action="store_true", help="show it again and again, in place, until Ctrl-C"
    )
    parser.add_argument(
        "--interval",
        type=options.reader(options.read_seconds),
        default=1.0,
        metavar="SECONDS",
        help="between two looks of --watch (default: 1)",
    )
    parser.add_argument("--json", action="store_true", help="as JSON, one line a look")


def run(given: argparse.Namespace) -> int:
    import asyncio

    return asyncio.run(_show(given))


async def _show(given: argparse.Namespace) -> int:
    import asyncio

    from shunter.cli.asker import Asker

    found = config.find_contact(
        given.address, scheduler_file=given.scheduler_file, token_file=given.token_file
    )
    asker = await Asker.connect(found.address, found.token)
    try:
        in_place = given.watch and not given.json and sys.stdout.isatty()
        if in_place:
            sys.stdout.write(CLEAR_ALL)
        while True:
            status = _row(await asyncio.wait_for(asker.ask("status"), TIMEOUT))
            print(_text(found.address, status, as_json=given.json, in_place=in_place), flush=True)
            if not given.watch:
                return exits.OK
            await asyncio.sleep(given.interval)
    except asyncio.TimeoutError:
        raise ConnectionLost(f"the scheduler at {found.address} has not answered for {TIMEOUT:g} s") from None
    finally:
        await asker.close()


def _text(address: str, status: Row, *, as_json: bool, in_place: bool) -> str:
    if as_json:
        return json.dumps(status)
    text = "\n".join(lines_of(address, status))
    if in_place:
        text = HOME + text.replace("\n", CLEAR_LINE + "\n") + CLEAR_LINE + CLEAR_BELOW
    return text


def lines_of(address: str, status: Row) -> list[str]:
    """A status for people.

    Args:
        address: of the scheduler.
        status: as the query answers: ``counts``, ``workers``, ``kinds`` and facts about the scheduler.
    """
    counts = _row(status.get("counts"))
    workers = _rows(status.get("workers"))
    tasks = [f"{name} {_count(counts, name)}" for name in TASK_STATES if _number(counts, name)]
    lines = [
        f"scheduler  {address}{_about(status)}",
        f"clients    {_count(counts, 'clients')}",
        f"workers    {len(workers):,} with {_count(counts, 'threads')} threads",
        f"tasks      {_count(counts, 'tasks')}" + (f": {', '.join(tasks)}" if tasks else ""),
    ]
    if workers:
        header = (
            "worker",
            "address",
            "status",
            "threads",
            "sent",
            "queued",
            "results",
            "size",
            "memory",
            "CPU",
        )
        lines += ["", *table(header, [_worker_cells(worker) for worker in workers], left=3)]
    kinds = sorted(
        _rows(status.get("kinds")), key=lambda kind: (-_number(kind, "alive"), -_number(kind, "finished"))
    )
    if kinds:
        columns = ("kind of task", "tasks", "finished", "mean time", "mean size")
        lines += ["", *table(columns, [_kind_cells(kind) for kind in kinds[:KINDS_MAX]])]
        if len(kinds) > KINDS_MAX:
            lines.append(f"… and {len(kinds) - KINDS_MAX} more kinds")
    return lines


def _about(status: Row) -> str:
    """Version, build and age of the scheduler, if it tells."""
    if "version" not in status:
        return ""
    uptime = seconds(_number(status, "uptime"))
    return f", shunter {status['version']} (state: {status.get('build', '?')}), up {uptime}"


def _worker_cells(worker: Row) -> list[str]:
    threads = _count(worker, "nthreads")
    if _number(worker, "given_up"):  # They run tasks that were given up: nothing can stop them.
        threads += f" ({_count(worker, 'given_up')} held)"
    limit = _number(worker, "memory_limit")
    memory = size(_number(worker, "process"))
    return [
        str(worker.get("name", "")),
        str(worker.get("address", "")),
        str(worker.get("status", "")),
        threads,
        _count(worker, "processing"),
        _count(worker, "queued"),
        _count(worker, "held"),
        size(_number(worker, "nbytes")),
        f"{memory} of {size(limit)}" if limit else memory,
        f"{_number(worker, 'cpu'):.0f} %",
    ]


def _kind_cells(kind: Row) -> list[str]:
    known = kind.get("duration") is not None  # One of them has finished.
    return [
        str(kind.get("name", "")),
        _count(kind, "alive"),
        _count(kind, "finished"),
        seconds(_number(kind, "duration")) if known else "",
        size(_number(kind, "nbytes")) if known else "",
    ]


def _count(row: Row, name: str) -> str:
    return f"{_number(row, name):,.0f}"


def _number(row: Row, name: str) -> float:
    """A number of an answer. Another version may lack it: then 0, since a status is better than none."""
    value = row.get(name)
    return value if isinstance(value, (int, float)) else 0


def _row(value: object) -> Row:
    return value if isinstance(value, dict) else {}


def _rows(value: object) -> Sequence[Row]:
    return [_row(item) for item in value] if isinstance(value, list) else []
