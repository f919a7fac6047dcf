# Generated from the sources by typings/generate.py: do not edit. To refresh: tox -e fresh
from shunter.client.async_client import AsyncClient as AsyncClient
from shunter.client.client import Client as Client
from shunter.client.futures import Future as Future, as_completed as as_completed, wait as wait
from shunter.client.graphs import Ref as Ref, Task as Task
from shunter.deploy.local import LocalCluster as LocalCluster
from shunter.errors import ConnectionLost as ConnectionLost, GraphError as GraphError, InternalError as InternalError, KilledWorker as KilledWorker, LostInput as LostInput, NoSuitableWorker as NoSuitableWorker, PeerError as PeerError, RemoteError as RemoteError, SchedulingError as SchedulingError, ShunterError as ShunterError, UsageError as UsageError
from shunter.plugins.base import SchedulerPlugin as SchedulerPlugin
from shunter.server.scheduler import Scheduler as Scheduler
from shunter.types import Retry as Retry
from shunter.worker.worker import Worker as Worker
from typing import Final

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

COMPILED: Final[bool]

__version__: str
