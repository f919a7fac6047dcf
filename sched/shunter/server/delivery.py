"""Instructions become messages: what a batch has for one peer leaves in one write.

Two things are sent before their first mention on a connection, and then never again: functions (by number) and the
addresses of workers. Long columns are cut, so that no header comes near its limit. Opaque bytes pass through.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, cast

from shunter.errors import UsageError
from shunter.server import log
from shunter.server.columns import CUT_AT, as_text, cuts, weight
from shunter.server.failures import erred_messages
from shunter.server.functions import RunSpec
from shunter.server.peers import ClientPeer, ParentPeer, Peer, Peers, WorkerPeer
from shunter.state import (
    DEFAULT_OPTIONS,
    AcquireReplicas,
    AnswerQuestion,
    ClosePeer,
    ComputeTasks,
    Event,
    Failure,
    FreeKeys,
    Input,
    Instruction,
    KillWorker,
    Log,
    Options,
    RemoveReplicas,
    Reply,
    ReportCancelled,
    ReportErred,
    ReportFinished,
    ReportLost,
    ReportRetried,
    Restarted,
    SetWorkerStatus,
    Shutdown,
    TakeBack,
    TaskFailed,
    UpdateWhoHas,
    WorkerGone,
)
from shunter.wire import messages
from shunter.wire.frames import Frame, batches, encode_header

logger = logging.getLogger("shunter.scheduler")

#: Bytes of function blobs in one message.
BLOBS_CUT_AT: Final = 16 * 1024 * 1024
#: Bytes queued for a client beyond which small results are not sent along with their reports (it fetches them).
INLINE_QUEUED_MAX: Final = 8 * 1024 * 1024


class Delivery:
    """Carries out instructions.

    Args:
        peers: all connections.
        drop: closes a peer for a reason.
        end: ends the scheduler for a reason.
        put: takes the event of a task that cannot be sent.
        wake: has `carry_out` called soon.
        answer: makes the answer to a client's question, by its number.
    """

    __slots__ = ("_answer", "_drop", "_end", "_outgoing", "_peers", "_put", "_wake")

    def __init__(
        self,
        peers: Peers,
        *,
        drop: Callable[[Peer, str], None],
        end: Callable[[str], None],
        put: Callable[[Event], None],
        wake: Callable[[], None],
        answer: Callable[[ClientPeer, int], Frame],
    ) -> None:
        self._peers = peers
        self._drop = drop
        self._end = end
        self._put = put
        self._wake = wake
        self._answer = answer
        self._outgoing: dict[Peer, list[Frame]] = {}

    def post(self, peer: Peer, frame: Frame) -> None:
        """Queue a message of the server's own, for the next write to that peer."""
        self._outgoing.setdefault(peer, []).append(frame)
        self._wake()

    def carry_out(self, instructions: Iterable[Instruction]) -> list[Peer]:
        """Send what the instructions say, and what was posted.

        Returns:
            The peers that were written to.
        """
        last_words: list[tuple[Peer, str]] = []
        end: str | None = None
        for instruction in instructions:
            if isinstance(instruction, Log):
                log.write(instruction)
                continue
            if isinstance(instruction, Shutdown):
                end = instruction.reason
                continue
            peer = self._peers.find(instruction.peer)
            if peer is None:
                continue  # It has left while the state was deciding; the news is on its way.
            if isinstance(instruction, ClosePeer):
                last_words.append((peer, instruction.reason))
            elif isinstance(instruction, KillWorker):
                self._kill(peer, instruction.reason)
                last_words.append((peer, instruction.reason))
            else:
                self._translate(peer, instruction)
        written = self._flush()
        for peer, reason in last_words:
            self._drop(peer, reason)
        if end is not None:
            self._end(end)
        return written

    def _translate(self, peer: Peer, instruction: Instruction) -> None:
        try:
            if isinstance(peer, WorkerPeer):
                frames = self._for_worker(peer, instruction)
            elif isinstance(instruction, AnswerQuestion) and isinstance(peer, ClientPeer):
                frames = [self._answer(peer, instruction.question)]
            else:
                frames = for_client(peer, instruction)
        except Exception:
            logger.exception(
                "%s is disconnected: %s could not be sent to it", peer, type(instruction).__name__
            )
            self._drop(peer, "the scheduler failed to send you a message; its log says more")
        else:
            self._outgoing.setdefault(peer, []).extend(frames)

    def _flush(self) -> list[Peer]:
        outgoing, self._outgoing = self._outgoing, {}
        for peer, frames in outgoing.items():
            try:
                peer.link.send(frames)
            except UsageError as error:  # Something in it is too large, or not plain: that peer's alone.
                logger.error("%s is disconnected: a message for it cannot be encoded: %s", peer, error)
                self._drop(peer, f"a message for you cannot be sent: {error}")
        return list(outgoing)

    def _kill(self, worker: Peer, reason: str) -> None:
        """Ask the worker's parent to replace it.

        Its link is closed in any case. It need not read any more, the state knows it no longer, and the one that
        comes in its place is welcome to its name; without a parent, that is all that can be done.
        """
        parent = self._peers.find(worker.parent) if isinstance(worker, WorkerPeer) else None
        if isinstance(parent, ParentPeer):
            kill = messages.Kill(worker.number, reason)
            self._outgoing.setdefault(parent, []).append(kill.frame())

    # ------------------------------------------------------------------------------------- workers

    def _for_worker(self, worker: WorkerPeer, instruction: Instruction) -> list[Frame]:
        if isinstance(instruction, ComputeTasks):
            return self._compute(worker, instruction)
        if isinstance(instruction, AcquireReplicas):
            keys = as_text(instruction.keys)
            return [
                *self._introduce(worker, instruction.holders),
                *(
                    messages.Acquire(
                        keys[cut], instruction.nbytes[cut], instruction.lives[cut], instruction.holders[cut]
                    ).frame()
                    for cut in cuts(keys)
                ),
            ]
        if isinstance(instruction, UpdateWhoHas):
            keys = as_text(instruction.keys)
            return [
                *self._introduce(worker, instruction.holders),
                *(messages.WhoHas(keys[cut], instruction.holders[cut]).frame() for cut in cuts(keys)),
            ]
        if isinstance(instruction, WorkerGone):
            if instruction.gone not in worker.known:
                return []  # It never heard of that worker.
            worker.known.discard(instruction.gone)
        return for_worker(instruction)

    def _compute(self, worker: WorkerPeer, tasks: ComputeTasks) -> list[Frame]:
        specs = cast("list[RunSpec]", tasks.specs)
        frames = send_ahead(worker, specs)
        for inputs in tasks.inputs:
            if inputs is not None:
                frames += self._introduce(worker, [each[2] for each in inputs])
        keys = as_text(tasks.keys)
        sizes = [len(arguments) + weight(key) + 64 for key, (_, arguments) in zip(keys, specs)]
        for index, inputs in enumerate(tasks.inputs):
            if inputs is not None:
                sizes[index] += weight_of_inputs(inputs)
        for cut in batches(sizes, nbytes=CUT_AT):
            frame = compute(tasks, cut).frame()
            if sizes[cut.start] <= CUT_AT or fits(frame):
                frames.append(frame)
            else:
                self._cannot_send(worker, tasks, cut.start)
        return frames

    def _cannot_send(self, worker: WorkerPeer, tasks: ComputeTasks, index: int) -> None:
        """One task whose inputs fill more than a header. It fails; the client is told what to do."""
        key, inputs = tasks.keys[index], tasks.inputs[index] or []
        text = (
            f"task {key!r:.100} has {len(inputs)} inputs: more than a message of 1 MiB can name. "
            "Merge them in steps (a tree of tasks)"
        )
        failure = Failure("graph", key, text, fields={"inputs": len(inputs)})
        self._put(TaskFailed(worker.number, key, tasks.run_ids[index], failure, 0.0, 0.0, 0))

    def _introduce(self, worker: WorkerPeer, holders: Iterable[list[int]]) -> list[Frame]:
        """The addresses of the workers among these that this worker has not heard of."""
        known = worker.known
        fresh: list[WorkerPeer] = []
        for numbers in holders:
            for number in numbers:
                if number not in known:
                    peer = self._peers.find_worker(number)
                    if peer is not None:
                        known.add(number)
                        fresh.append(peer)
        if not fresh:
            return []
        numbers = [peer.number for peer in fresh]
        addresses = [peer.address for peer in fresh]
        return [messages.Peers(numbers[cut], addresses[cut]).frame() for cut in cuts(addresses)]


def for_worker(instruction: Instruction) -> list[Frame]:
    """The messages for a worker that need no more than the instruction."""
    if isinstance(instruction, FreeKeys):
        keys = as_text(instruction.keys)
        return [messages.Free(keys[cut]).frame() for cut in cuts(keys)]
    if isinstance(instruction, RemoveReplicas):
        keys = as_text(instruction.keys)
        return [messages.Remove(keys[cut]).frame() for cut in cuts(keys)]
    if isinstance(instruction, TakeBack):
        return [messages.TakeBack(instruction.run_ids).frame()]
    if isinstance(instruction, WorkerGone):
        return [messages.WorkerGone(instruction.gone).frame()]
    if isinstance(instruction, SetWorkerStatus):
        return [messages.Status(instruction.status).frame()]
    raise TypeError(f"{type(instruction).__name__} is not for a worker")


def compute(tasks: ComputeTasks, cut: slice) -> messages.Compute:
    """Some of the tasks, as a message."""
    specs = cast("list[RunSpec]", tasks.specs[cut])
    return messages.Compute(
        as_text(tasks.keys[cut]),
        tasks.run_ids[cut],
        [function.number for function, _ in specs],
        tasks.priorities[cut],
        cast("list[list[messages.TaskInput] | None]", tasks.inputs[cut]),
        [run_options(options) for options in tasks.options[cut]],
        tasks.inline_max[cut],
        tasks.lives[cut],
        [arguments for _, arguments in specs],
    )


def send_ahead(worker: WorkerPeer, specs: list[RunSpec]) -> list[Frame]:
    """The functions of these tasks that this worker has not been sent."""
    sent = worker.functions
    fresh = [function for function in {function: None for function, _ in specs} if function not in sent]
    frames: list[Frame] = []
    for cut in batches([len(function.blob) for function in fresh], nbytes=BLOBS_CUT_AT):
        some = fresh[cut]
        sent.update(some)
        numbers = [function.number for function in some]
        names, blobs = [function.name for function in some], [function.blob for function in some]
        frames.append(messages.WorkerFunctions(numbers, names, blobs).frame())
    return frames


def fits(frame: Frame) -> bool:
    """Whether a header is small enough for a message."""
    try:
        encode_header(frame[0])
    except UsageError:
        return False
    return True


def run_options(options: Options) -> messages.RunOptions | None:
    """What a worker has to know of a task's options; None if there is nothing."""
    if options is DEFAULT_OPTIONS or (options.resources is None and options.timeout is None):
        return None
    return {"resources": options.resources, "timeout": options.timeout}


# ------------------------------------------------------------------------------------- clients


def for_client(peer: Peer, instruction: Instruction) -> list[Frame]:
    """The messages for a client."""
    if not isinstance(peer, ClientPeer):
        raise TypeError(f"{type(instruction).__name__} is for a client, not for {peer}")
    if isinstance(instruction, ReportFinished):
        return finished(peer, instruction)
    if isinstance(instruction, ReportErred):
        return [each.frame() for each in erred_messages(instruction, CUT_AT)]
    if isinstance(instruction, ReportLost):
        keys = as_text(instruction.keys)
        return [messages.Lost(keys[cut]).frame() for cut in cuts(keys)]
    if isinstance(instruction, ReportRetried):
        keys = as_text(instruction.keys)
        return [messages.Retried(keys[cut]).frame() for cut in cuts(keys)]
    if isinstance(instruction, ReportCancelled):
        keys, reasons = as_text(instruction.keys), instruction.reasons
        sizes = [weight(key) + weight(reason) for key, reason in zip(keys, reasons)]
        return [messages.Cancelled(keys[cut], reasons[cut]).frame() for cut in batches(sizes, nbytes=CUT_AT)]
    if isinstance(instruction, Restarted):
        return [messages.Restarted().frame()]
    if isinstance(instruction, Reply):
        return [reply(instruction)]
    raise TypeError(f"{type(instruction).__name__} is not for a client")


def reply(instruction: Reply) -> Frame:
    """The answer to a request; one that fits in no message is an answer too, not the end of the client."""
    frame = messages.Reply(instruction.request, instruction.ok, instruction.value).frame()
    if fits(frame):
        return frame
    text = (
        "the answer does not fit in a message (1 MiB): ask for less at a time, or use fewer or shorter keys"
    )
    return messages.Reply(instruction.request, False, text).frame()


def finished(client: ClientPeer, report: ReportFinished) -> list[Frame]:
    """Reports of results; those beyond what may wait for this client go without the data."""
    keys, blobs = as_text(report.keys), cast("list[bytes | None]", report.data)
    room = INLINE_QUEUED_MAX - client.link.queued
    sizes: list[int] = []
    for index, blob in enumerate(blobs):
        size = 0 if blob is None else len(blob)
        if size > room:
            blobs[index], size = None, 0
        room -= size
        sizes.append(size + weight(keys[index]) + 24)
    return [
        messages.ClientFinished(keys[cut], report.nbytes[cut], blobs[cut]).frame()
        for cut in batches(sizes, nbytes=CUT_AT)
    ]


def weight_of_inputs(inputs: list[Input]) -> int:
    """About how many bytes the inputs of one task take in a header."""
    return sum(weight(cast("str", key)) + 32 + 12 * len(holders) for key, _, holders, _ in inputs)
