"""What runs are like: how often each action comes, how large graphs are, and settings of the state."""

from __future__ import annotations

from typing import Final, NamedTuple


class Profile(NamedTuple):
    """What a run is like: how often each kind of action comes, and settings of the state."""

    weights: dict[str, int]
    faults: float = 1.0
    workers: int = 3
    seconds: float = 4.0
    slice: int = 1_000
    no_workers_timeout: float = 0.0
    size: int = 1  # of graphs, times so much
    share: float = 1.0  # of the actions that were asked for
    slow_reports: bool = False  # what workers say comes late, everything else soon


_WORK: Final = {
    "submit": 10,
    "fixed": 6,
    "release": 8,
    "read": 4,
    "retry": 3,
    "desire": 2,
    "priority": 1,
    "scatter": 2,
}
_CLIENTS: Final = {
    "cancel": 3,
    "new client": 1,
    "client goes": 1,
    "detach": 2,
    "publish": 1,
    "unpublish": 1,
    "dataset": 1,
}
_ODD: Final = {"refused graph": 1, "aborted graph": 1, "scatter again": 1}
_FAULTS: Final = {
    "kill": 2,
    "break": 1,
    "leave": 1,
    "new worker": 2,
    "pause": 2,
    "twin": 1,
    "stall": 2,
    "freeze": 1,
    "forget values": 1,
}
PROFILES: Final[dict[str, Profile]] = {
    "calm": Profile({**_WORK, **_CLIENTS, **_ODD, "new worker": 1}, faults=0.0),
    "faulty": Profile({**_WORK, **_CLIENTS, **_ODD, **_FAULTS}),
    "churn": Profile({**_WORK, **dict.fromkeys(_FAULTS, 4)}, workers=4),
    "clients": Profile({**_WORK, **dict.fromkeys(_CLIENTS, 4), "restart": 1, "kill": 1}),
    "slices": Profile({**_WORK, **_CLIENTS, **_ODD, **_FAULTS, "restart": 1}, slice=3),
    "again": Profile(
        {"again": 20, "fixed": 2, "release": 1, "read": 4, "twin": 1, "kill": 1},
        workers=2,
        seconds=8.0,
        slow_reports=True,
    ),
    "large": Profile(
        {
            "submit": 10,
            "release": 2,
            "read": 2,
            "cancel": 1,
            "client goes": 1,
            "new client": 1,
            "kill": 1,
            "priority": 1,
        },
        size=30,
        share=0.1,
        slice=50,
    ),
    "impatient": Profile({**_WORK, **_CLIENTS, **_FAULTS}, no_workers_timeout=1.0, workers=1),
}
