"""What the subcommands' options have in common: how values are read, and options that belong together."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn, TypeVar

from shunter import config
from shunter.cli import exits
from shunter.errors import UsageError

T = TypeVar("T")


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(exits.USAGE, f"{self.prog}: {message} (see '{self.prog} --help')\n")


def add_log_level(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log-level",
        type=reader(lambda text: str(config.parse("level", text, ""))),
        metavar="LEVEL",
        help=f"{', '.join(config.LOG_LEVELS)} (SHUNTER_LOG_LEVEL; default: warning)",
    )


def add_contact(parser: argparse.ArgumentParser) -> None:
    """How to find a scheduler that runs."""
    parser.add_argument(
        "address",
        nargs="?",
        metavar="ADDRESS",
        help="the scheduler, tcp://host:port (default: SHUNTER_ADDRESS, a scheduler file, or your own "
        f"scheduler at port {config.DEFAULT_PORT} of this machine)",
    )
    parser.add_argument(
        "--scheduler-file", metavar="FILE", help="file that the scheduler wrote: its address and token"
    )
    parser.add_argument("--token-file", metavar="FILE", help="file with the cluster's token")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """What a cluster on this machine consists of."""
    parser.add_argument(
        "--nworkers", type=reader(read_count), metavar="N", help="worker processes (default: processors)"
    )
    parser.add_argument(
        "--nthreads", type=reader(read_positive), metavar="N", help="task threads in each worker (default: 1)"
    )
    add_worker_traits(parser)


def add_worker_traits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--resources",
        type=reader(read_resources),
        default={},
        metavar="NAME=AMOUNT,…",
        help="what each worker has for tasks that ask for it, such as GPU=1,mem=2",
    )
    parser.add_argument(
        "--memory-limit",
        type=reader(lambda text: config.parse_bytes(text, "")),
        default=0,
        metavar="SIZE",
        help="memory of each worker, such as 4GiB: shown beside its use, not enforced yet (default: 0, unknown)",
    )


def add_starter(parser: argparse.ArgumentParser) -> None:
    """Hidden options by which `LocalCluster` starts us."""
    parser.add_argument("--die-with-stdin", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--ready-fd", type=int, default=-1, help=argparse.SUPPRESS)


def reader(read: Callable[[str], T]) -> Callable[[str], T]:
    """Make a reading function fit for argparse, which shows the text of one kind of exception only."""

    def read_argument(text: str) -> T:
        try:
            return read(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read_argument


def read_count(text: str) -> int:
    return int(config.parse("count", text, ""))


def read_positive(text: str) -> int:
    count = read_count(text)
    if count == 0:
        raise UsageError("must be at least 1")
    return count


def read_port(text: str) -> int:
    port = int(config.parse("count", text, ""))
    if port > 65535:
        raise UsageError(f"ports are numbers from 0 (any free one) to 65535, not {port}")
    return port


def read_seconds(text: str) -> float:
    return float(config.parse("seconds", text, ""))


def read_resources(text: str) -> dict[str, float]:
    """``"GPU=1,mem=2"``."""
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, amount = part.partition("=")
        name = name.strip()
        if not equals or not name:
            raise UsageError(f"expected NAME=AMOUNT such as GPU=1, not {part!r}")
        if name in found:
            raise UsageError(f"{name} is given twice")
        found[name] = float(config.parse("amount", amount, name))
    return found
