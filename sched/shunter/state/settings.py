"""Every knob of the state, as one immutable value. The caller resolves it once; nothing here reads config."""

from __future__ import annotations

from typing import Final, final

from shunter.errors import UsageError

KIB: Final = 1024
MIB: Final = 1024 * 1024


@final
class Settings:
    """How the state decides. Times are seconds, sizes bytes.

    Args:
        window_s: work sent ahead to a worker beyond its threads (see `assignment.window_of`).
        window_max: most tasks sent ahead beyond the threads.
        large_result: kinds whose mean result is at least this get one task sent ahead, no more.
        default_duration: guess for a kind that has not finished yet.
        default_nbytes: guess for the size of a result that is not known.
        bandwidth: bytes a second between workers; an estimate, not measured yet.
        latency: cost of starting a transfer.
        allowed_failures: deaths of workers that a running task survives; the next one fails it.
        blame_wait: how long a removed worker's parent has to tell which tasks had started.
        no_workers_timeout: a runnable task fails after this long without a permitted worker, once the cluster
            has had workers; 0 waits for ever.
        worker_ttl: a worker that has said nothing for this long is taken for dead and removed; 0 never.
        idle_timeout: the scheduler ends when nothing ran or waited to run for this long; 0 never.
        inline_max: largest result that travels with its report to a client that wants it.
        log_length: entries of the transition log.
        slice: tasks or edges that one Tick handles while a graph comes in.
        validate: check what a step touched after it, everything every 32 steps.

    Raises:
        UsageError: ``slice``, ``log_length``, ``window_max`` or ``bandwidth`` is not above 0.
    """

    __slots__ = (
        "allowed_failures",
        "bandwidth",
        "blame_wait",
        "default_duration",
        "default_nbytes",
        "idle_timeout",
        "inline_max",
        "large_result",
        "latency",
        "log_length",
        "no_workers_timeout",
        "slice",
        "validate",
        "window_max",
        "window_s",
        "worker_ttl",
    )

    def __init__(
        self,
        *,
        window_s: float = 0.002,
        window_max: int = 256,
        large_result: int = MIB,
        default_duration: float = 0.5,
        default_nbytes: int = KIB,
        bandwidth: float = 100e6,
        latency: float = 0.001,
        allowed_failures: int = 3,
        blame_wait: float = 2.0,
        no_workers_timeout: float = 60.0,
        worker_ttl: float = 300.0,
        idle_timeout: float = 0.0,
        inline_max: int = 4 * KIB,
        log_length: int = 10_000,
        slice: int = 1_000,
        validate: bool = False,
    ) -> None:
        if slice < 1 or log_length < 1 or window_max < 1 or bandwidth <= 0.0:
            raise UsageError("slice, log_length, window_max and bandwidth must be above 0")
        self.window_s: Final = window_s
        self.window_max: Final = window_max
        self.large_result: Final = large_result
        self.default_duration: Final = default_duration
        self.default_nbytes: Final = default_nbytes
        self.bandwidth: Final = bandwidth
        self.latency: Final = latency
        self.allowed_failures: Final = allowed_failures
        self.blame_wait: Final = blame_wait
        self.no_workers_timeout: Final = no_workers_timeout
        self.worker_ttl: Final = worker_ttl
        self.idle_timeout: Final = idle_timeout
        self.inline_max: Final = inline_max
        self.log_length: Final = log_length
        self.slice: Final = slice
        self.validate: Final = validate
