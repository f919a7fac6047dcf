"""shunter: a distributed scheduler for Python task graphs.

    import shunter

    with shunter.Client() as client:
        print(client.submit(pow, 2, 10).result())

The public names are imported when they are first used, so that ``import shunter`` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shunter import _debug

if TYPE_CHECKING:
    from shunter.client.async_client import AsyncClient
    from shunter.client.client import Client
    from shunter.client.futures import Future, as_completed, wait
    from shunter.client.graphs import Ref, Task
    from shunter.deploy.local import LocalCluster
    from shunter.errors import (
        ConnectionLost,
        GraphError,
        InternalError,
        KilledWorker,
        LostInput,
        NoSuitableWorker,
        PeerError,
        RemoteError,
        SchedulingError,
        ShunterError,
        UsageError,
    )
    from shunter.plugins.base import SchedulerPlugin
    from shunter.server.scheduler import Scheduler
    from shunter.types import Retry
    from shunter.worker.worker import Worker

__all__ = [
    "COMPILED",
    "AsyncClient",
    "Client",
    "ConnectionLost",
    "Future",
    "GraphError",
    "InternalError",
    "KilledWorker",
    "LocalCluster",
    "LostInput",
    "NoSuitableWorker",
    "PeerError",
    "Ref",
    "RemoteError",
    "Retry",
    "Scheduler",
    "SchedulerPlugin",
    "SchedulingError",
    "ShunterError",
    "Task",
    "UsageError",
    "Worker",
    "__version__",
    "as_completed",
    "wait",
]

_debug.install()  # Before anything can import shunter.state.

__version__ = "0.1.0"

#: True when the state machine runs as native code, False when it runs from source.
COMPILED: Final[bool] = _debug.COMPILED

#: Where each lazy name is defined.
_HOMES: Final = {
    "AsyncClient": "shunter.client.async_client",
    "Client": "shunter.client.client",
    "ConnectionLost": "shunter.errors",
    "Future": "shunter.client.futures",
    "GraphError": "shunter.errors",
    "InternalError": "shunter.errors",
    "KilledWorker": "shunter.errors",
    "LocalCluster": "shunter.deploy.local",
    "LostInput": "shunter.errors",
    "NoSuitableWorker": "shunter.errors",
    "PeerError": "shunter.errors",
    "Ref": "shunter.client.graphs",
    "RemoteError": "shunter.errors",
    "Retry": "shunter.types",
    "Scheduler": "shunter.server.scheduler",
    "SchedulerPlugin": "shunter.plugins.base",
    "SchedulingError": "shunter.errors",
    "ShunterError": "shunter.errors",
    "Task": "shunter.client.graphs",
    "UsageError": "shunter.errors",
    "Worker": "shunter.worker.worker",
    "as_completed": "shunter.client.futures",
    "wait": "shunter.client.futures",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'shunter' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home), name)
    globals()[name] = value  # The next use does not come here.
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
