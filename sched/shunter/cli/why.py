"""``shunter why``: say in one sentence why a task is not running, or what became of it."""

from __future__ import annotations

import argparse
import json

from shunter.cli import exits, question
from shunter.errors import ShunterError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    question.add_arguments(parser)


def run(given: argparse.Namespace) -> int:
    status, told = question.ask(given, "why")
    is_known = status != question.UNKNOWN
    if given.json:
        print(json.dumps({"key": given.key, "status": status, "why": told}))
    elif is_known:
        print(told)
    else:
        raise ShunterError(str(told))
    return exits.OK if is_known else exits.FAILED
