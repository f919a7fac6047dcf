"""The entry point: reads the command line, runs one subcommand, turns errors into a line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from shunter import config
from shunter.cli import about, demo, exits, replay, run, scheduler, status, story, why, worker
from shunter.cli.options import Parser
from shunter.errors import InternalError, ShunterError, UsageError

SUBCOMMANDS = {
    "run": run,
    "demo": demo,
    "scheduler": scheduler,
    "worker": worker,
    "status": status,
    "story": story,
    "why": why,
    "replay": replay,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (default: this process's) and return the exit code."""
    parser = make_parser()
    options = parser.parse_args(argv)
    if options.version:
        print(f"shunter {about.version_line()}")
        return exits.OK
    if options.subcommand is None:
        parser.print_help(sys.stderr)
        return exits.USAGE
    name = f"{parser.prog} {options.subcommand}"
    try:
        config.check_environment()
        code: int = SUBCOMMANDS[options.subcommand].run(options)
        sys.stdout.flush()
        return code
    except UsageError as error:
        return complain(name, str(error), exits.USAGE)
    except InternalError as error:
        return complain(name, f"internal error, please report it: {error}", exits.INTERNAL)
    except (ShunterError, OSError) as error:
        if isinstance(error, BrokenPipeError):  # The reader of our output is gone (`shunter status | head`).
            os.dup2(
                os.open(os.devnull, os.O_WRONLY), 1
            )  # Else the interpreter complains when it flushes at exit.
            return exits.FAILED
        return complain(name, str(error), exits.FAILED)
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except Exception:
        import traceback

        traceback.print_exc()
        return complain(name, "internal error, please report it with the text above", exits.INTERNAL)


def make_parser() -> Parser:
    parser = Parser(
        prog="shunter",
        description="A distributed scheduler for Python task graphs.",
        epilog="Options of a subcommand: shunter SUBCOMMAND --help",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="show the version and the build, and exit")
    subparsers = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", parser_class=Parser)
    for name, module in SUBCOMMANDS.items():
        summary = (module.__doc__ or "").split("\n")[0].partition(": ")[2]
        module.add_arguments(
            subparsers.add_parser(
                name, help=summary, description=summary[:1].upper() + summary[1:], allow_abbrev=False
            )
        )
    return parser


def complain(name: str, text: str, code: int) -> int:
    """Write one line to stderr (more only if the text itself has more) and return ``code``."""
    print(f"{name}: {text}", file=sys.stderr)
    return code
