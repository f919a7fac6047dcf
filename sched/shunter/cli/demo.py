"""``shunter demo``: count the identifiers of Python's standard library on a cluster on this machine."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Final

from shunter.cli import options
from shunter.cli import run as run_script
from shunter.errors import UsageError

#: Imports the example instead of running it as a script: workers can then import its functions, and no
#: cloudpickle is needed.
PROGRAM: Final = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import wordcount
try:
    sys.exit(wordcount.main(sys.argv[1:]))
except KeyboardInterrupt:
    sys.exit(130)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_cluster(parser)
    options.add_log_level(parser)
    parser.add_argument("--check", action="store_true", help="count in one process as well, and compare")


def run(given: argparse.Namespace) -> int:
    folder = find_examples()
    arguments = ["--check"] if given.check else []
    return run_script.run_command([sys.executable, "-c", PROGRAM, folder, *arguments], given, folder)


def find_examples() -> str:
    """The folder of ``wordcount.py``: in the installed package, else at the top of the source tree."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for folder in (
        os.path.join(package, "examples"),
        os.path.join(package, os.pardir, os.pardir, "examples"),
    ):
        if os.path.isfile(os.path.join(folder, "wordcount.py")):
            return os.path.abspath(folder)
    raise UsageError(
        "the example wordcount.py is missing: this shunter was not installed from its wheel or sdist"
    )
