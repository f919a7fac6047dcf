"""Messages become events.

The wire has checked type and range of every field (it raises PeerError otherwise). What is left to check here is what
only the server can know: function numbers that were never announced, digests, who may speak about which worker. A bad
message closes its own peer, and so does one that our own code stumbles over; all others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias, cast

from shunter.errors import PeerError
from shunter.server.columns import as_keys
from shunter.server.functions import Function, Functions
from shunter.server.peers import ClientPeer, ParentPeer, Peer, Peers, WorkerPeer
from shunter.server.turn import Item, Question
from shunter.state import (
    DEFAULT_OPTIONS,
    AcquireFailed,
    ClientDesiresKeys,
    ClientReleasesKeys,
    DataReleased,
    DataScattered,
    DatasetPublished,
    DatasetRequested,
    DatasetUnpublished,
    Event,
    Failure,
    GraphAborted,
    GraphBegin,
    GraphCommit,
    GraphPart,
    Heartbeat,
    Key,
    KeysAdded,
    KeysCancelled,
    KeysDetached,
    KeysRetried,
    LongRunning,
    Options,
    PrioritySet,
    RestartRequested,
    TakeBackAnswered,
    TaskFailed,
    TaskRescheduled,
    TasksFinished,
    ThreadsHeld,
    WhoHasRequested,
    WorkerDied,
    WorkerStatusChanged,
)
from shunter.wire import messages
from shunter.wire.frames import Frame
from shunter.wire.link import Link

logger = logging.getLogger("shunter.scheduler")

#: Longest traceback and text of a failure that are passed on, characters, and most names of types.
TRACEBACK_MAX = 16_000
TEXT_MAX = 4_000
TYPES_MAX = 64

#: Answers a `messages.Relay` of a client.
Relaying: TypeAlias = Callable[[ClientPeer, messages.Relay], None]


class Intake:
    """Owns all links: reads what peers say, and puts it as events.

    Args:
        peers: all connections.
        functions: the table of function blobs.
        put: takes events and questions, in order.
        post: queues an answer to a peer, sent with what the state gives it.
        relay: takes requests to fetch values.
        drop: closes a peer for a reason.
        gone: told of a connection that is closed, with the reason.
        hurry: told that all of what came at once has been put.
        clock: monotonic seconds.
    """

    __slots__ = ("_clock", "_drop", "_functions", "_gone", "_hurry", "_peers", "_post", "_put", "_relay")

    def __init__(
        self,
        peers: Peers,
        functions: Functions,
        *,
        put: Callable[[Item], None],
        post: Callable[[Peer, Frame], None],
        relay: Relaying,
        drop: Callable[[Peer, str], None],
        gone: Callable[[Peer, str], object],
        hurry: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._peers = peers
        self._functions = functions
        self._put = put
        self._post = post
        self._relay = relay
        self._drop = drop
        self._gone = gone
        self._hurry = hurry
        self._clock = clock

    # ------------------------------------------------------------------------------------- owner of the links

    def on_message(self, link: Link, header: list[object], body: bytes) -> None:
        peer = self._peers.find(link.number)
        if peer is None:
            return  # What it says after it was given up is not heard.
        try:
            if isinstance(peer, WorkerPeer):
                self._from_worker(peer, messages.from_worker(header, body))
            elif isinstance(peer, ClientPeer):
                self._from_client(peer, messages.from_client(header, body))
            elif isinstance(peer, ParentPeer):
                self._from_parent(peer, messages.from_parent(header, body))
        except PeerError as error:
            logger.warning("%s broke the protocol and is disconnected: %s", peer, error)
            self._drop(peer, f"protocol error: {error}")
        except Exception:
            logger.exception("%s is disconnected: its message %.60r could not be handled", peer, header[0])
            self._drop(peer, "the scheduler failed to handle a message of yours; its log says more")

    def on_batch(self, link: Link) -> None:
        peer = self._peers.find(link.number)
        if peer is not None:
            peer.heard = self._clock()
            if isinstance(peer, WorkerPeer) and peer.ping is not None:
                peer.ping.set()
        self._hurry()

    def on_closed(self, link: Link, reason: str) -> None:
        peer = self._peers.find(link.number)
        if peer is not None and peer.link is link:
            self._gone(peer, reason)

    # ------------------------------------------------------------------------------------- workers

    def _from_worker(self, worker: WorkerPeer, message: messages.FromWorker) -> None:
        if isinstance(message, messages.WorkerFinished):
            skew = worker.skew
            self._put(
                TasksFinished(
                    worker.number,
                    as_keys(message.keys),
                    message.run_ids,
                    message.nbytes,
                    [start + skew for start in message.starts] if skew else message.starts,
                    message.durations,
                    message.threads,
                    message.types,
                    cast("list[object]", message.blobs),
                )
            )
        elif isinstance(message, messages.Failed):
            self._put(failed(worker, message))
        elif isinstance(message, messages.FunctionWanted):
            self._send_function(worker, message.number)
        elif isinstance(message, messages.Goodbye):
            worker.goodbye = message.reason
        else:
            self._put(event_of_worker(worker.number, message))

    def _send_function(self, worker: WorkerPeer, number: int) -> None:
        function = self._functions.find(number)
        if function is None:
            return  # Its last task is gone, and what the worker still has of it is being freed.
        if function not in worker.functions:
            raise PeerError(f"function: number {number} was never sent to this worker")
        self._post(worker, messages.WorkerFunctions([number], [function.name], [function.blob]).frame())

    # ------------------------------------------------------------------------------------- clients

    def _from_client(self, client: ClientPeer, message: messages.FromClient) -> None:
        number = client.number
        if isinstance(message, messages.Submit):
            self._put(GraphBegin(number, message.graph, True, message.parent))
            self._put(self._part(client, message))
            self._put(GraphCommit(number, message.graph, as_keys_or_none(message.wanted)))
        elif isinstance(message, messages.GraphPart):
            self._put(self._part(client, message))
        elif isinstance(message, messages.Functions):
            self._announced(client, message)
        elif isinstance(message, messages.Query):
            self._put(Question(number, message.request, message.name, message.arguments))
        elif isinstance(message, messages.Relay):
            self._relay(client, message)
        elif isinstance(message, messages.Heartbeat):
            self._post(client, message.frame())
        else:
            self._put(event_of_client(number, message))

    def _announced(self, client: ClientPeer, message: messages.Functions) -> None:
        for number, digest, name, blob in zip(message.numbers, message.digests, message.names, message.blobs):
            client.functions[number] = self._functions.intern(digest, name, blob)

    def _part(self, client: ClientPeer, message: messages.Submit | messages.GraphPart) -> GraphPart:
        functions = functions_of(client, message.functions)
        # With every part: a graph may be refused, and the state forgets kinds that are no longer used.
        names = {function.digest: function.name for function in dict.fromkeys(functions)}
        return GraphPart(
            client.number,
            message.graph,
            as_keys(message.keys),
            cast("list[object]", list(zip(functions, message.blobs))),  # RunSpec
            [function.digest for function in functions],
            cast("list[list[Key] | None]", message.inputs),
            options_of(message),
            names,
        )

    # ------------------------------------------------------------------------------------- parents

    def _from_parent(self, parent: ParentPeer, message: messages.FromParent) -> None:
        if not isinstance(message, messages.Died):
            return  # A heartbeat.
        died = WorkerDied(message.worker, message.cause, message.started)
        worker = self._peers.find_worker(message.worker)
        if worker is None:
            self._put(died)
        elif worker.parent == parent.number:
            worker.died = died  # Its link is about to close; what it said before it died comes first.
        else:
            raise PeerError(f"died: worker {message.worker} is not a child of {parent}")


def as_keys_or_none(keys: list[str] | None) -> list[Key] | None:
    return None if keys is None else as_keys(keys)


def functions_of(client: ClientPeer, numbers: list[int]) -> list[Function]:
    """The functions that a client calls by these numbers."""
    announced = client.functions
    try:
        return [announced[number] for number in numbers]
    except KeyError as error:
        raise PeerError(f"function number {error.args[0]} is used but was never announced") from None


def options_of(message: messages.Submit | messages.GraphPart) -> list[Options]:
    """The column of options; tasks that share a record on the wire share one here."""
    if not message.options:
        return [DEFAULT_OPTIONS] * len(message.keys)
    records = [Options(**given) for given in message.options]
    records.append(DEFAULT_OPTIONS)  # Where index -1 points.
    return [records[index] for index in message.option_of]


def failed(worker: WorkerPeer, message: messages.Failed) -> TaskFailed:
    failure = Failure(
        message.kind,
        message.key,
        clip(message.text, TEXT_MAX),
        traceback=clip(message.traceback, TRACEBACK_MAX),
        types=[clip(name, TEXT_MAX) for name in message.types[:TYPES_MAX]],
        data=message.data,
    )
    start = message.start + worker.skew
    return TaskFailed(
        worker.number, message.key, message.run_id, failure, start, message.duration, message.thread
    )


def clip(text: str, longest: int) -> str:
    """The text, with its middle left out if it is too long: the first and last lines tell most."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def event_of_worker(
    number: int,
    message: (
        messages.Rescheduled
        | messages.LongRunning
        | messages.Held
        | messages.Added
        | messages.AcquireFailed
        | messages.Released
        | messages.WhoHasWanted
        | messages.TakenBack
        | messages.Status
        | messages.WorkerHeartbeat
    ),
) -> Event:
    """The event for a message that says no more and no less."""
    if isinstance(message, messages.WorkerHeartbeat):
        return Heartbeat(number, message.process, message.spilled, message.cpu)
    if isinstance(message, messages.Added):
        return KeysAdded(number, as_keys(message.keys), message.nbytes, message.lives)
    if isinstance(message, messages.TakenBack):
        return TakeBackAnswered(number, message.asked, message.given)
    if isinstance(message, messages.WhoHasWanted):
        return WhoHasRequested(number, as_keys(message.keys), message.failed)
    if isinstance(message, messages.AcquireFailed):
        return AcquireFailed(number, as_keys(message.keys))
    if isinstance(message, messages.Released):
        return DataReleased(number, as_keys(message.keys))
    if isinstance(message, messages.Held):
        return ThreadsHeld(number, message.threads)
    if isinstance(message, messages.LongRunning):
        return LongRunning(number, message.key, message.run_id, message.duration)
    if isinstance(message, messages.Rescheduled):
        return TaskRescheduled(number, message.key, message.run_id)
    return WorkerStatusChanged(number, message.status)


def event_of_client(
    number: int,
    message: (
        messages.GraphBegin
        | messages.GraphCommit
        | messages.GraphAbort
        | messages.Desire
        | messages.Release
        | messages.Detach
        | messages.Cancel
        | messages.Retry
        | messages.SetPriority
        | messages.Scattered
        | messages.Restart
        | messages.Publish
        | messages.Unpublish
        | messages.GetDataset
    ),
) -> Event:
    """The event for a message that says no more and no less."""
    if isinstance(message, messages.Release):
        return ClientReleasesKeys(number, as_keys(message.keys))
    if isinstance(message, messages.Desire):
        return ClientDesiresKeys(number, as_keys(message.keys))
    if isinstance(message, messages.GraphBegin):
        return GraphBegin(number, message.graph, message.in_order, message.parent)
    if isinstance(message, messages.GraphCommit):
        return GraphCommit(number, message.graph, as_keys_or_none(message.wanted))
    if isinstance(message, messages.GraphAbort):
        return GraphAborted(number, message.graph)
    if isinstance(message, messages.Cancel):
        return KeysCancelled(number, as_keys(message.keys), message.force)
    if isinstance(message, messages.Retry):
        return KeysRetried(number, as_keys(message.keys))
    if isinstance(message, messages.SetPriority):
        return PrioritySet(number, as_keys(message.keys), message.priority)
    if isinstance(message, messages.Detach):
        return KeysDetached(number, as_keys(message.keys))
    if isinstance(message, messages.Restart):
        return RestartRequested(number, message.request, message.timeout)
    if isinstance(message, messages.Publish):
        keys = as_keys(message.keys)
        return DatasetPublished(number, message.request, message.name, keys, message.data, message.replace)
    if isinstance(message, messages.Unpublish):
        return DatasetUnpublished(number, message.request, message.name)
    if isinstance(message, messages.GetDataset):
        return DatasetRequested(number, message.request, message.name)
    return DataScattered(number, as_keys(message.keys), message.nbytes, message.workers)
