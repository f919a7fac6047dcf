"""What can go wrong, by who must act. A user's failing task is data until ``future.result()`` raises it.

==================  ==================================================================================
`UsageError`        you called us wrongly: change the call
`PeerError`         the other side broke the protocol: update or fix that side
`ConnectionLost`    the other side went away: look there, then connect again
`SchedulingError`   the cluster cannot do it (`KilledWorker`, `NoSuitableWorker`, `GraphError`, `LostInput`)
`RemoteError`       a task's own exception that cannot be rebuilt here: its type, text and traceback
`InternalError`     our bug: it carries the task's story; please report it
==================  ==================================================================================
"""

from __future__ import annotations

__all__ = [
    "ConnectionLost",
    "GraphError",
    "InternalError",
    "KilledWorker",
    "LostInput",
    "NoSuitableWorker",
    "PeerError",
    "RemoteError",
    "SchedulingError",
    "ShunterError",
    "UsageError",
]


class ShunterError(Exception):
    """Base of all errors that shunter raises itself."""


class UsageError(ShunterError, TypeError):
    """You called us wrongly. The message names the argument and what to pass instead."""


class PeerError(ShunterError):
    """The other side broke the protocol: wrong version, wrong token, a malformed message."""


class ConnectionLost(ShunterError, ConnectionError):
    """The other side went away. The message names its address and the reason, as far as it is known."""


class SchedulingError(ShunterError):
    """The cluster cannot run the task."""


class KilledWorker(SchedulingError):
    """The task was running on too many workers that died."""


class NoSuitableWorker(SchedulingError):
    """No worker, or none with what the task asks for, came in the time allowed."""


class GraphError(SchedulingError, ValueError):
    """The graph has a cycle, an unknown input, or a key twice."""


class LostInput(SchedulingError):
    """Data that cannot be recomputed (it was scattered) is gone with the workers that held it."""


class RemoteError(ShunterError):
    """A task failed with an exception that cannot be rebuilt here.

    Attributes:
        type_name: qualified name of the remote exception's type.
        text: its message.
        remote_traceback: its traceback as text.
    """

    def __init__(self, type_name: str, text: str, remote_traceback: str = "") -> None:
        super().__init__(f"{type_name}: {text}" if text else type_name)
        self.type_name = type_name
        self.text = text
        self.remote_traceback = remote_traceback

    def __reduce__(self) -> tuple[type[RemoteError], tuple[str, str, str]]:
        return (RemoteError, (self.type_name, self.text, self.remote_traceback))


class InternalError(ShunterError):
    """Our bug. ``story`` is what happened to the task, one line an entry."""

    def __init__(self, text: str, story: list[str] | None = None) -> None:
        self.story: list[str] = story if story is not None else []
        super().__init__("\n  ".join([text, *self.story]))
