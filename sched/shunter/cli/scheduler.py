"""``shunter scheduler``: run a scheduler, which clients and workers connect to."""

from __future__ import annotations

import argparse
import errno
import os
import socket
import sys
from typing import TYPE_CHECKING

from shunter import config
from shunter.cli import about, exits, options
from shunter.errors import UsageError

if TYPE_CHECKING:
    from shunter.state import Settings
    from shunter.wire import contact


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen at (default: 127.0.0.1, this machine only)"
    )
    parser.add_argument(
        "--port",
        type=options.reader(options.read_port),
        default=config.DEFAULT_PORT,
        help=f"port to listen at, 0 for any free one (default: {config.DEFAULT_PORT})",
    )
    parser.add_argument(
        "--scheduler-file",
        metavar="FILE",
        help="write address and token to this file, readable by you alone (default: a place of yours, which "
        "`shunter worker` and `shunter status` on this machine find by themselves)",
    )
    parser.add_argument(
        "--token-file", metavar="FILE", help="use the token in this file (default: make a new one)"
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="do without a token: whoever reaches the port may run any code",
    )
    parser.add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="MODULE:CLASS[=JSON]",
        help="watch with this plugin; may be given several times",
    )
    parser.add_argument(
        "--idle-timeout",
        type=options.reader(options.read_seconds),
        metavar="SECONDS",
        help="end when nothing ran or waited to run for this long (SHUNTER_IDLE_TIMEOUT; default: 0, never)",
    )
    parser.add_argument(
        "--worker-ttl",
        type=options.reader(options.read_seconds),
        metavar="SECONDS",
        help="take a worker for dead that has said nothing for this long (SHUNTER_WORKER_TTL; default: 300; "
        "0: never)",
    )
    parser.add_argument(
        "--record",
        metavar="FILE",
        help="write every event to this file, for `shunter replay`: keys, names and texts of failures, "
        "but neither arguments nor results",
    )
    options.add_log_level(parser)
    options.add_starter(parser)


def run(given: argparse.Namespace) -> int:
    if given.insecure and given.token_file:
        raise UsageError("--insecure and --token-file exclude each other")
    import asyncio

    from shunter.cli import life

    life.set_up_logging(given)

    try:
        return asyncio.run(_serve(given))
    except OSError as error:
        code = _explain(error, given)
        if code is None:
            raise
        return code


async def _serve(given: argparse.Namespace) -> int:
    from shunter.cli import life
    from shunter.server.plugin_host import load_plugin
    from shunter.server.scheduler import Scheduler, remove_contact
    from shunter.wire import contact

    if given.plugin and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # So that `--plugin my_plugins:Mine` finds ./my_plugins.py.
    token = _choose_token(given)
    scheduler = Scheduler(
        host=given.host,
        port=given.port,
        token=token,
        insecure=given.insecure,
        settings=_settings(given),
        scheduler_file=given.scheduler_file,
        record=given.record,
        own_process=True,
        plugins=[load_plugin(*split_plugin(text)) for text in given.plugin],
    )

    left: list[tuple[str, str]] = []  # The scheduler file that is ours to remove, and what it names.

    async def on_ready() -> dict[str, object]:
        if given.ready_fd < 0:  # Nobody but a person reads this.
            path = given.scheduler_file
            if path is None:
                path = _leave_contact(contact.Contact(scheduler.address, scheduler.token), token)
                left.append((path, scheduler.address))
            print(f"shunter {about.version_line()}")
            print(f"scheduler at {scheduler.address}, scheduler file {path or '(none)'}", flush=True)
        return {"address": scheduler.address}

    try:
        return await life.serve(scheduler, given, on_ready=on_ready, finished=scheduler.finished)
    finally:
        for path, address in left:
            if path:
                remove_contact(path, address)


def _settings(given: argparse.Namespace) -> Settings:
    """The state's settings: options beat the environment."""
    named = {"idle_timeout": given.idle_timeout, "worker_ttl": given.worker_ttl}
    return config.settings(**{name: value for name, value in named.items() if value is not None})


def _choose_token(given: argparse.Namespace) -> str | None:
    """The token to use; None leaves it to the scheduler, which makes one if the host is closed to others."""
    from shunter.wire import contact

    if given.insecure:
        return None
    token_file = given.token_file or os.environ.get("SHUNTER_TOKEN_FILE") or None
    if token_file is not None:
        return contact.read_token_file(token_file)
    if given.scheduler_file is not None:
        return contact.new_token()  # Others will find it in the file, so the host may be an open one.
    return None


def _leave_contact(found: contact.Contact, known: str | None) -> str:
    """Write the scheduler file to where this user's workers and clients look for it.

    Args:
        found: what to write.
        known: the token, if others can know it without this file.

    Returns:
        Its path; "" if it cannot be written, and others can do without.
    """
    from shunter.wire import contact

    _, port = contact.parse_address(found.address)
    path = config.default_scheduler_file(port)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        contact.write(path, found)
    except OSError as error:
        if found.token and not known:
            raise UsageError(
                f"the token cannot be left at {path} ({error.strerror}): give --scheduler-file or --token-file"
            ) from None
        return ""
    return path


def split_plugin(text: str) -> tuple[str, str]:
    """``module:Class=json`` → (``module:Class``, the JSON or "")."""
    path, _, arguments = text.partition("=")
    return path.strip(), arguments


def _explain(error: OSError, given: argparse.Namespace) -> int | None:
    """Tell in one line why we cannot start; None if the error is about something else."""
    host, port = given.host, given.port
    if error.errno == errno.EADDRINUSE:
        text = f"port {port} of {host} is in use: choose another --port (0: any free one)"
    elif error.errno == errno.EACCES and error.filename is None and 0 < port < 1024:
        text = f"port {port} of {host} needs privileges: choose a --port from 1024"
    elif error.errno == errno.EADDRNOTAVAIL:
        text = f"this machine has no address {host}: choose another --host (0.0.0.0: all of them)"
    elif isinstance(error, socket.gaierror):
        text = f"cannot resolve --host {host}: {error.strerror}"
    elif given.scheduler_file is not None and str(error.filename).startswith(given.scheduler_file):
        text = f"cannot write --scheduler-file {given.scheduler_file}: {error.strerror}"
    elif given.record is not None and error.filename == given.record:
        text = f"cannot write --record {given.record}: {error.strerror}"
    else:
        return None
    print(f"shunter scheduler: {text}", file=sys.stderr)
    return exits.USAGE
