"""One example of each message in each direction, with every kind of field filled in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from shunter.wire import messages as m

Read = Callable[[list[object], bytes], Any]


class Example(NamedTuple):
    message: Any
    read: Read

    @property
    def header(self) -> list[Any]:
        header: list[Any] = self.message.frame()[0]
        return header

    @property
    def body(self) -> bytes:
        return b"".join(self.message.frame()[1])

    @property
    def name(self) -> str:
        return f"{self.read.__name__}-{type(self.message).__name__}"


def _data_request(header: list[object], body: bytes) -> Any:
    return m.data_request(header)


def _data_answer(header: list[object], body: bytes) -> Any:
    return m.data_answer(header)


_OPTIONS: m.TaskOptions = {
    "priority": -1.5,
    "retries": 3,
    "retry_on": ["builtins.OSError"],
    "retry_delay": 0.5,
    "retry_elsewhere": True,
    "workers": ["a", "tcp://h:1"],
    "allow_other_workers": True,
    "resources": {"GPU": 1, "RAM": 0.5},
    "stealable": False,
    "limit": "db",
    "timeout": 60.0,
    "memory": 2**40,
    "annotations": {"why": [1, None, {"deep": True}]},
}
_FAILURE = m.Failure(
    "killed-worker", "x", "text \udc80", "Traceback…", ["a.B", "builtins.Exception"], {"deaths": 4}, b"pickle"
)

FROM_CLIENT = [
    m.Functions([0, 1], ["d0", "d1"], ["inc", "lambda"], [b"blob0", b""]),
    m.Submit(7, "parent", ["x", "é"], [0, 1], [None, ["x", "z"]], [_OPTIONS], [-1, 0], ["é"], [b"", b"args"]),
    m.Submit(7, None, ["x"], [0], [None], [], [-1], None, [b"args"]),
    m.GraphBegin(1, False, None),
    m.GraphBegin(1, True, "parent"),
    m.GraphPart(1, ["x", "y"], [0, 0], [None, ["x"]], [{}], [0, -1], [b"1", b"22"]),
    m.GraphPart(1, [], [], [], [], [], []),
    m.GraphCommit(1, ["x"]),
    m.GraphCommit(1, None),
    m.GraphAbort(1),
    m.Desire(["x"]),
    m.Release(["x", "y"]),
    m.Detach(["x", "y"]),
    m.Cancel(["x"], True),
    m.Retry(["x"]),
    m.SetPriority(["x"], 2.5),
    m.Scattered(["x", "y"], [10, 0], [[1, 2], [3]]),
    m.Query(1, "who_has", {"keys": ["x"], "key": "x", "workers": [1], "other": [None]}),
    m.Restart(1, 30.0),
    m.Publish(1, "sales é", ["x", "y"], "[0, 1]", True),
    m.Publish(2, "n", [], "", False),
    m.Unpublish(1, "sales"),
    m.GetDataset(1, "sales"),
    m.Relay(1, 4, ["x"]),
    m.Heartbeat(),
]
TO_CLIENT = [
    m.ClientFinished(["x", "y", "z"], [3, 10**12, 0], [b"abc", None, b""]),
    m.Erred(["x", "y"], [0, 0], [_FAILURE, _FAILURE._replace(data=None)]),
    m.Lost(["x"]),
    m.Retried(["x"]),
    m.Cancelled(["x"], ["because \udc80"]),
    m.Restarted(),
    m.Reply(1, True, {"rows": [1, 2.5, None, "x"]}),
    m.Reply(1, False, "no such query"),
    m.Relayed(1, True, "", ["x", "y"], [[b"p", b"buffer"], [b""]]),
    m.Relayed(1, False, "gone", [], []),
    m.Heartbeat(),
    m.Closing("too slow"),
]
TO_WORKER = [
    m.WorkerFunctions([0], ["inc"], [b"blob"]),
    m.Peers([1, 2], ["tcp://a:1", "tcp://b:2"]),
    m.Compute(
        ["x", "y"],
        [100, 101],
        [0, 1],
        [(0.0, 0.0, 7, 0), (-2.5, 0.0, 7, 1)],
        [None, [("a", 10, [1, 2], 5), ("b", 0, [], 6)]],
        [{"timeout": 5.0, "resources": {"GPU": 1.0}}, None],
        [0, 4096],
        [7, 8],
        [b"args", b""],
    ),
    m.Compute(
        ["x"] * 3,
        [1, 2, 3],
        [0] * 3,
        [(0.0, 0.5, 1, 2)] * 3,
        [None] * 3,
        [None] * 3,
        [9] * 3,
        [1] * 3,
        [b"a"] * 3,
    ),
    m.Compute(["x"], [1], [0], [(0.0, 0.0, 1, 2)], [None], [None], [0], [1], [b"a"]),
    m.Compute([], [], [], [], [], [], [], [], []),
    m.Free(["x"]),
    m.Remove(["x"]),
    m.Acquire(["x"], [5], [2], [[1]]),
    m.WhoHas(["x", "y"], [[1], []]),
    m.TakeBack([1, 2]),
    m.WorkerGone(3),
    m.Status("paused"),
    m.Heartbeat(),
    m.Closing("bye"),
]
FROM_WORKER = [
    m.WorkerFinished(
        ["x", "y"], [1, 2], [8, 9], [1.7e9, 1.7e9], [0.0, 1e-9], [1, 2], ["builtins.int", "a.B"], [b"r", None]
    ),
    m.Failed("x", 1, 1.7e9, 0.1, 2, "exception", "boom \udc80", "Traceback…", ["a.B"], b"pickle"),
    m.Failed("x", 1, 1.7e9, 0.1, 2, "serialization", "boom", "", [], None),
    m.Rescheduled("x", 1),
    m.LongRunning("x", 1, 2.5),
    m.Held(2),
    m.Added(["x"], [1], [2]),
    m.AcquireFailed(["x"]),
    m.Released(["x"]),
    m.WhoHasWanted(["x"], [1, 2, 3]),
    m.TakenBack([1, 2], [2]),
    m.FunctionWanted(3),
    m.Status("running"),
    m.WorkerHeartbeat(10**9, 0, 99.5),
    m.Goodbye("idle"),
]
FROM_PARENT = [m.Died(3, "signal 9 (SIGKILL)", [1, 2]), m.Heartbeat()]
TO_PARENT = [m.Kill(3, "stuck"), m.Heartbeat(), m.Closing("bye")]
DATA_REQUEST = [m.Get(["x"]), m.Put(["x", "y"], [[1, 2], []])]
DATA_ANSWER = [m.Data(["x"], [[1, 2**40]], ["y", "z"]), m.Busy(), m.Stored([1, 2]), m.PutFailed("full")]

TABLE: list[tuple[Read, list[Any]]] = [
    (m.from_client, FROM_CLIENT),
    (m.from_scheduler_to_client, TO_CLIENT),
    (m.from_scheduler_to_worker, TO_WORKER),
    (m.from_worker, FROM_WORKER),
    (m.from_parent, FROM_PARENT),
    (m.to_parent, TO_PARENT),
    (_data_request, DATA_REQUEST),
    (_data_answer, DATA_ANSWER),
]
EXAMPLES = [Example(message, read) for read, messages in TABLE for message in messages]
READERS = [read for read, _ in TABLE]
