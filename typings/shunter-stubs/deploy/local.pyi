# Generated from the sources by typings/generate.py: do not edit. To refresh: tox -e fresh
from collections.abc import Mapping, Sequence
from shunter.state import Settings
from types import TracebackType

class LocalCluster:
    address: str
    token: str
    scheduler_file: str | None
    workers_expected: int
    def __init__(self, n_workers: int | None = None, threads_per_worker: int | None = None, processes: bool = True, *, host: str = '127.0.0.1', memory_limit: int = 0, resources: Mapping[str, float] | None = None, log_level: str = 'warning', settings: Settings | None = None, python_path: Sequence[str] | None = None, timeout: float = 30.0) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> LocalCluster: ...
    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None: ...
