"""What ``shunter story`` and ``shunter why`` have in common: a question about one task, asked once."""

from __future__ import annotations

import argparse
from typing import Final

from shunter import config
from shunter.cli import options
from shunter.errors import ConnectionLost

#: The scheduler must answer within this time (seconds).
TIMEOUT: Final = 10.0
#: The status of a key that the scheduler does not know.
UNKNOWN: Final = "unknown"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", metavar="KEY", help="the key of a task, as future.key shows it")
    options.add_contact(parser)
    parser.add_argument("--json", action="store_true", help="as one line of JSON")


def ask(given: argparse.Namespace, question: str) -> tuple[str, object]:
    """Ask the scheduler.

    Args:
        given: the options.
        question: the name of the query, which takes a key.

    Returns:
        The task's status (`UNKNOWN`: no such task), and the answer.

    Raises:
        ConnectionLost: the scheduler is not there, or does not answer. PeerError: wrong token, or another version.
    """
    import asyncio

    return asyncio.run(_ask(given, question))


async def _ask(given: argparse.Namespace, question: str) -> tuple[str, object]:
    import asyncio

    from shunter.cli.asker import Asker

    found = config.find_contact(
        given.address, scheduler_file=given.scheduler_file, token_file=given.token_file
    )
    asker = await Asker.connect(found.address, found.token)
    try:
        rows = await asyncio.wait_for(asker.ask("who_has", {"keys": [given.key]}), TIMEOUT)
        told = await asyncio.wait_for(asker.ask(question, {"key": given.key}), TIMEOUT)
    except asyncio.TimeoutError:
        raise ConnectionLost(f"the scheduler at {found.address} has not answered for {TIMEOUT:g} s") from None
    finally:
        await asker.close()
    return _status(rows), told


def _status(rows: object) -> str:
    """The status in the answer to ``who_has`` about one key."""
    if isinstance(rows, list) and rows and isinstance(rows[0], list) and len(rows[0]) > 1:
        return str(rows[0][1])
    return UNKNOWN
