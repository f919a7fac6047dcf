"""What `shunter status` shows."""

from __future__ import annotations

import re

from shunter.cli import table
from shunter.cli.status import KINDS_MAX, lines_of

WORKER = {
    "number": 3,
    "name": "alice",
    "address": "tcp://127.0.0.1:4001",
    "nthreads": 2,
    "status": "running",
    "processing": 5,
    "queued": 1200,
    "held": 7,
    "nbytes": 3 << 20,
    "memory_limit": 1 << 30,
    "process": 100 << 20,
    "cpu": 151.6,
}


def test_busy_cluster__workers_tasks_and_kinds_in_columns() -> None:
    lines = lines_of(
        "tcp://127.0.0.1:8765",
        {
            "version": "0.1.0",
            "build": "pure",
            "uptime": 90.0,
            "counts": {
                "tasks": 1234,
                "processing": 5,
                "memory": 29,
                "queued": 1200,
                "workers": 1,
                "threads": 2,
                "clients": 1,
            },
            "workers": [WORKER],
            "kinds": [
                {"name": "done", "alive": 0, "finished": 9, "duration": 2.0, "nbytes": 10},
                {"name": "begun", "alive": 1233, "finished": 2, "duration": 0.0125, "nbytes": 2048},
                {"name": "fresh", "alive": 1, "finished": 0, "duration": None, "nbytes": None},
            ],
        },
    )

    assert lines[0] == "scheduler  tcp://127.0.0.1:8765, shunter 0.1.0 (state: pure), up 90.00 s"
    assert "tasks      1,234: queued 1,200, processing 5, memory 29" in lines
    header, alice = lines[lines.index("") + 1 :][:2]
    assert header.split()[0] == "worker"
    cells = "alice  tcp://127.0.0.1:4001  running  2  5  1,200  7  3.0 MiB  100.0 MiB of 1.0 GiB  152 %"
    assert re.split("  +", alice) == cells.split("  ")
    begun, fresh, done = (line.split() for line in lines[-3:])  # Most tasks first.
    assert begun == ["begun", "1,233", "2", "12.5", "ms", "2.0", "KiB"]
    assert fresh == ["fresh", "1", "0"]
    assert done[0] == "done"


def test_threads_held_by_tasks_that_were_given_up__are_told_beside_the_threads() -> None:
    lines = lines_of(
        "tcp://127.0.0.1:8765", {"workers": [WORKER | {"given_up": 1}, WORKER | {"given_up": 0}]}
    )

    held, free = (re.split("  +", line) for line in lines[-2:])
    assert (held[3], free[3]) == ("2 (1 held)", "2")


def test_empty_cluster__no_tables() -> None:
    lines = lines_of("tcp://127.0.0.1:8765", {"counts": {"tasks": 0}, "workers": [], "kinds": []})

    assert len(lines) == 4
    assert lines[-1] == "tasks      0"


def test_answer_of_another_version__shown_as_far_as_it_goes() -> None:
    assert lines_of("tcp://127.0.0.1:8765", {"counts": None, "workers": [{"name": "x"}]})


def test_many_kinds__the_rest_is_counted() -> None:
    kinds = [{"name": f"k{i}", "alive": i} for i in range(KINDS_MAX + 3)]

    assert lines_of("a", {"kinds": kinds})[-1] == "… and 3 more kinds"


def test_figures__in_units_that_fit() -> None:
    assert [table.size(n) for n in (0, 1023, 1536, 5 << 40)] == ["0 B", "1023 B", "1.5 KiB", "5.0 TiB"]
    assert [table.seconds(s) for s in (0.0000123, 0.0034, 1.25, 7200)] == [
        "12 µs",
        "3.4 ms",
        "1.25 s",
        "120 min",
    ]
