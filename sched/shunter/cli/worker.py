"""``shunter worker``: run workers, which do the tasks of a scheduler."""

from __future__ import annotations

import argparse
import os
import socket
from typing import TYPE_CHECKING, Final

from shunter import config
from shunter.cli import options
from shunter.errors import UsageError

if TYPE_CHECKING:
    from shunter.wire.contact import Contact

#: How often the scheduler of a starting cluster is asked whether its workers are there (seconds).
JOIN_POLL: Final = 0.01


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_contact(parser)
    parser.add_argument(
        "--nworkers",
        type=options.reader(options.read_positive),
        default=1,
        metavar="N",
        help="processes (default: 1)",
    )
    parser.add_argument(
        "--nthreads",
        type=options.reader(options.read_positive),
        metavar="N",
        help="task threads in each process (default: processors / processes)",
    )
    parser.add_argument("--name", help="name to be known by (default: made from the host's name)")
    options.add_worker_traits(parser)
    parser.add_argument(
        "--host", help="address at which others fetch values (default: the one that reaches the scheduler)"
    )
    parser.add_argument(
        "--port",
        type=options.reader(options.read_port),
        default=0,
        help="port for that, with one process only (default: 0, any free one)",
    )
    options.add_log_level(parser)
    options.add_starter(parser)


def run(given: argparse.Namespace) -> int:
    if given.port and given.nworkers > 1:
        raise UsageError("--port can be given with --nworkers 1 only: two processes cannot share it")
    import asyncio

    from shunter.cli import life

    life.set_up_logging(given)

    return asyncio.run(_serve(given))


async def _serve(given: argparse.Namespace) -> int:
    from shunter.cli import life
    from shunter.wire import contact
    from shunter.worker.parent import Parent

    found = config.find_contact(
        given.address, scheduler_file=given.scheduler_file, token_file=given.token_file
    )
    parent = Parent(
        found.address,
        token=found.token,
        nworkers=given.nworkers,
        nthreads=given.nthreads or _threads_each(given.nworkers),
        name=given.name,
        port=given.port,
        host=given.host or own_address_towards(*contact.parse_address(found.address)),
        resources=given.resources,
        memory_limit=given.memory_limit,
        log_level=str(config.lookup("log_level", given.log_level)),
    )

    async def on_ready() -> dict[str, object]:
        if given.ready_fd < 0:
            print(
                f"{given.nworkers} x {parent.nthreads} threads for the scheduler at {found.address}",
                flush=True,
            )
        else:
            await _joined(found, given.nworkers)
        return {"pid": os.getpid()}

    return await life.serve(parent, given, on_ready=on_ready, finished=parent.finished)


async def _joined(found: Contact, nworkers: int) -> None:
    """Wait until a cluster that has no other workers has this many."""
    import asyncio

    from shunter.cli.asker import Asker

    asker = await Asker.connect(found.address, found.token)
    try:
        while True:
            workers = await asker.ask("workers")
            if isinstance(workers, list) and len(workers) >= nworkers:
                return
            await asyncio.sleep(JOIN_POLL)
    finally:
        await asker.close()


def own_address_towards(host: str, port: int) -> str:
    """The address of this machine that a scheduler sees. Nothing is sent, the route is looked up."""
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(where)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"  # The connection that comes next tells what is wrong, better than we can here.


def _threads_each(nworkers: int) -> int:
    from shunter.deploy.cpus import cpu_count

    return max(1, cpu_count() // nworkers)
