"""Workers and clients that hear and say bytes: frames of true messages. See `wired`."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from shunter.serialize import digest
from shunter.state import (
    DEFAULT_OPTIONS,
    DatasetPublished,
    DatasetRequested,
    DatasetUnpublished,
    Event,
    Failure,
    GraphAborted,
    GraphBegin,
    GraphCommit,
    GraphPart,
    KeysDetached,
    Options,
    RestartRequested,
)
from shunter.wire import messages
from shunter.wire.frames import Frame, FrameReader, encode
from shunter.wire.options import TaskOptions
from shunter.worker import events as we
from shunter.worker import instructions as wi
from shunter.worker.reports import frames_of
from shunter.worker.threads import TaskFailure
from tests.simulation.client import SimClient
from tests.simulation.clock import Clock, Pipe
from tests.simulation.truth import SimulationFailed, Spec
from tests.simulation.worker import SimWorker
from tests.simulation.world import World

_NAMES = (
    "priority",
    "retries",
    "retry_on",
    "retry_delay",
    "retry_elsewhere",
    "workers",
    "allow_other_workers",
    "resources",
    "stealable",
)


def bytes_of(frames: Sequence[Frame]) -> bytes:
    return b"".join([bytes(piece) for frame in frames for piece in encode(frame)])


def frames_in(data: object) -> list[tuple[list[object], bytes]]:
    """What one write brings. The whole of it, as no write is lost in part."""
    assert isinstance(data, bytes)
    reader = FrameReader()
    frames = reader.feed(data)
    assert reader.pending == 0
    return frames


class WirePipe(Pipe):
    """A pipe for bytes: what a client says in objects becomes frames on its way in."""

    def __init__(
        self,
        clock: Clock,
        dice: random.Random,
        deliver: Callable[[object], None],
        frames: Callable[[object], list[Frame]],
    ) -> None:
        super().__init__(clock, dice, deliver)
        self._frames = frames

    def send(self, item: object) -> None:
        super().send(bytes_of(self._frames(item)))


class FalseLink:
    """What the server needs of a connection."""

    def __init__(self, number: int, send: Callable[[bytes], None]) -> None:
        self.number = number
        self.queued = 0
        self._send = send

    def send(self, frames: Sequence[Frame]) -> None:
        self._send(bytes_of(frames))


class HasBlobs(Protocol):
    """What a client asks of its world: argument bytes."""

    def blob_of(self, spec: Spec) -> bytes: ...


# ---------------------------------------------------------------------------------------------- peers


class WiredWorker(SimWorker):
    """A worker that hears and says bytes."""

    def _hear(self, item: object) -> None:
        events: list[we.Event] = []
        for header, body in frames_in(item):
            event = _worker_event(messages.from_scheduler_to_worker(header, body))
            if event is not None:
                events.append(event)
        self.step(*events)

    def _carry_out(self, each: wi.Instruction) -> None:
        if isinstance(each, (wi.Execute, wi.Revoke, wi.Rename, wi.Keep, wi.Drop, wi.Fetch, wi.RestPeer)):
            super()._carry_out(each)
        elif not isinstance(each, wi.ForgetFunctions):
            self.up.send(bytes_of(frames_of(_with_task_failure(each))))


def _with_task_failure(each: wi.Instruction) -> wi.Instruction:
    if isinstance(each, wi.ReportFailed) and isinstance(each.failure, Failure):
        told = each.failure
        failure = TaskFailure(told.kind, told.text, told.traceback, told.types, b"an exception")
        return wi.ReportFailed(each.key, each.run_id, failure, each.start, each.duration, each.thread)
    return each


def _worker_event(message: messages.ToWorker) -> we.Event | None:
    if isinstance(message, messages.Compute):
        resources = [each.get("resources") if each is not None else None for each in message.options]
        return we.ComputeAsked(
            message.keys,
            message.run_ids,
            message.functions,
            message.priorities,
            message.inputs,
            resources,
            message.inline_max,
            message.lives,
            message.blobs,
        )
    if isinstance(message, messages.WorkerFunctions):
        return we.FunctionsArrived(message.numbers, [len(blob) for blob in message.blobs])
    if isinstance(message, messages.Free):
        return we.FreeAsked(message.keys)
    if isinstance(message, messages.Remove):
        return we.RemoveAsked(message.keys)
    if isinstance(message, messages.Acquire):
        return we.AcquireAsked(message.keys, message.nbytes, message.lives, message.holders)
    if isinstance(message, messages.WhoHas):
        return we.WhoHasTold(message.keys, message.holders)
    if isinstance(message, messages.TakeBack):
        return we.TakeBackAsked(message.run_ids)
    if isinstance(message, messages.WorkerGone):
        return we.PeerGone(message.number)
    if isinstance(message, messages.Status):
        return we.StatusSet(message.status)
    return None  # Addresses, heartbeats and last words are nothing to the machine.


class WiredClient(SimClient):
    """A client that hears bytes. What it says is put into frames by its pipe."""

    def __init__(self, world: World, number: int, name: str) -> None:
        super().__init__(world, number, name)
        self.known_functions: set[int] = set()
        self.up = WirePipe(world.clock, self.dice, lambda item: world.from_client(self, item), self._frames)

    def _frames(self, item: object) -> list[Frame]:
        if isinstance(item, GraphPart):
            return self._part(item)
        if isinstance(item, Event):
            item = _client_message(item)
        return [item.frame()]  # type: ignore[attr-defined]

    def _part(self, part: GraphPart) -> list[Frame]:
        numbers = [int(kind.split()[-1]) for kind in part.kinds]
        frames: list[Frame] = []
        fresh = [number for number in dict.fromkeys(numbers) if number not in self.known_functions]
        if fresh:
            self.known_functions.update(fresh)
            blobs = [b"function %d" % number for number in fresh]
            names = [f"kind {number}" for number in fresh]
            frames.append(messages.Functions(fresh, [digest(blob) for blob in blobs], names, blobs).frame())
        records = [each for each in dict.fromkeys(part.options) if each is not DEFAULT_OPTIONS]
        frames.append(
            messages.GraphPart(
                part.graph,
                cast("list[str]", part.keys),
                numbers,
                cast("list[list[str] | None]", part.inputs),
                [_task_options(each) for each in records],
                [records.index(each) if each in records else -1 for each in part.options],
                [cast("HasBlobs", self.world).blob_of(cast("Spec", spec)) for spec in part.specs],
            ).frame()
        )
        return frames

    def _hear(self, item: object) -> None:
        for header, body in frames_in(item):
            self._take(messages.from_scheduler_to_client(header, body))

    def _take(self, message: messages.ToClient) -> None:
        if isinstance(message, messages.ClientFinished):
            self.table.finished(message.keys, message.nbytes, message.blobs)
            for key in message.keys:
                self._look_at(key)
        elif isinstance(message, messages.Erred):
            self.table.erred(message.keys, [message.failures[index] for index in message.failure_of])
        elif isinstance(message, (messages.Lost, messages.Retried)):
            self.table.pending_again(message.keys)
        elif isinstance(message, messages.Cancelled):
            self.table.cancelled(message.keys, message.reasons)
        elif isinstance(message, messages.Restarted):
            self.connection.on_restarted()
        elif isinstance(message, messages.Reply):
            self.connection.answer(message.request, message.ok, _with_numbers(message.value))
        else:
            raise SimulationFailed(f"a client was sent {type(message).__name__}")


def _with_numbers(value: object) -> object:
    """Rows of who_has with numbers of holders only, as the rest of the simulator has them."""
    if isinstance(value, list):
        return [
            [*row[:3], [holder[0] for holder in row[3]]] if isinstance(row, list) and len(row) == 4 else row
            for row in value
        ]
    return value


def _task_options(options: Options) -> TaskOptions:
    told = {name: getattr(options, name) for name in _NAMES}
    default = {name: getattr(DEFAULT_OPTIONS, name) for name in _NAMES}
    return cast("TaskOptions", {name: value for name, value in told.items() if value != default[name]})


def _client_message(event: Event) -> object:
    if isinstance(event, GraphBegin):
        return messages.GraphBegin(event.graph, event.in_order, cast("str | None", event.parent))
    if isinstance(event, GraphCommit):
        return messages.GraphCommit(event.graph, cast("list[str] | None", event.wanted))
    if isinstance(event, GraphAborted):
        return messages.GraphAbort(event.graph)
    if isinstance(event, KeysDetached):
        return messages.Detach(cast("list[str]", event.keys))
    if isinstance(event, DatasetPublished):
        keys = cast("list[str]", event.keys)
        return messages.Publish(event.request, event.name, keys, event.data, event.replace)
    if isinstance(event, DatasetUnpublished):
        return messages.Unpublish(event.request, event.name)
    if isinstance(event, DatasetRequested):
        return messages.GetDataset(event.request, event.name)
    if isinstance(event, RestartRequested):
        return messages.Restart(event.request, event.timeout)
    raise SimulationFailed(f"no client says {type(event).__name__}")
