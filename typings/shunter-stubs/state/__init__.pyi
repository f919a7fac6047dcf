# Generated from the sources by typings/generate.py: do not edit. To refresh: tox -e fresh
from collections.abc import Hashable
from typing import Final, Literal, TypeAlias, final

FailureKind: TypeAlias = Literal['exception', 'serialization', 'killed-worker', 'no-worker', 'graph', 'lost-input']

Key: TypeAlias = Hashable

TaskStatus: TypeAlias = Literal['released', 'waiting', 'no-worker', 'queued', 'processing', 'memory', 'erred', 'forgotten']

WorkerStatus: TypeAlias = Literal['running', 'paused', 'retiring', 'closed']

@final
class Change:
    key: Key
    kind: str
    start: str
    finish: str
    worker: int
    client: int
    run_id: int
    nbytes: int
    startstop: tuple[float, float] | None
    thread: int
    error_kind: str
    cause: str
    at: float
    def __init__(self, key: Key, kind: str, start: str, finish: str, worker: int, client: int, run_id: int, nbytes: int, startstop: tuple[float, float] | None, thread: int, error_kind: str, cause: str, at: float) -> None: ...

@final
class Settings:
    window_s: Final[float]
    window_max: Final[int]
    large_result: Final[int]
    default_duration: Final[float]
    default_nbytes: Final[int]
    bandwidth: Final[float]
    latency: Final[float]
    allowed_failures: Final[int]
    blame_wait: Final[float]
    no_workers_timeout: Final[float]
    worker_ttl: Final[float]
    idle_timeout: Final[float]
    inline_max: Final[int]
    log_length: Final[int]
    slice: Final[int]
    validate: Final[bool]
    def __init__(self, *, window_s: float = 0.002, window_max: int = 256, large_result: int = ..., default_duration: float = 0.5, default_nbytes: int = ..., bandwidth: float = 100000000.0, latency: float = 0.001, allowed_failures: int = 3, blame_wait: float = 2.0, no_workers_timeout: float = 60.0, worker_ttl: float = 300.0, idle_timeout: float = 0.0, inline_max: int = ..., log_length: int = 10000, slice: int = 1000, validate: bool = False) -> None: ...

@final
class View:
    def workers(self) -> list[dict[str, object]]: ...
    def who_has(self, keys: list[Key]) -> list[tuple[Key, str, int, list[int]]]: ...
    def interest(self, client: int, keys: list[Key]) -> list[tuple[Key, str, int]]: ...
    def counts(self) -> dict[str, int]: ...
    def kinds(self) -> list[dict[str, object]]: ...
    def datasets(self) -> list[dict[str, object]]: ...
    def story(self, key: Key) -> list[str]: ...
    def why(self, key: Key) -> str: ...
    def status(self) -> dict[str, object]: ...
