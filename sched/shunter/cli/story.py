"""``shunter story``: show what happened to a task, and why, as far as the scheduler remembers."""

from __future__ import annotations

import argparse
import json
import sys

from shunter.cli import exits, question
from shunter.errors import ShunterError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    question.add_arguments(parser)


def run(given: argparse.Namespace) -> int:
    status, told = question.ask(given, "story")
    lines = [str(line) for line in told] if isinstance(told, list) else []
    is_known = bool(lines) or status != question.UNKNOWN
    if given.json:
        print(json.dumps({"key": given.key, "status": status, "story": lines}))
    elif lines:
        print("\n".join(lines))
    elif is_known:
        print(
            f"{given.key!r} is {status}; what happened to it is longer ago than the scheduler remembers "
            "(SHUNTER_LOG_LENGTH)",
            file=sys.stderr,
        )
    else:
        raise ShunterError(f"the scheduler has no task {given.key!r}, and remembers none")
    return exits.OK if is_known else exits.FAILED
