"""Instructions become messages: one write a peer, in order, each function and address once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shunter.server.delivery import INLINE_QUEUED_MAX, Delivery
from shunter.server.functions import Function, Functions, digest_of
from shunter.server.peers import ClientPeer, ParentPeer, Peer, Peers, WorkerPeer
from shunter.state import (
    DEFAULT_OPTIONS,
    AcquireReplicas,
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
from shunter.wire.frames import HEADER_MAX, encode_header
from tests.server.false import FalseLink


class Office:
    """A delivery with peers on false links: clients 1 and 2, workers 11 and 12, parent 21."""

    def __init__(self) -> None:
        self.peers = Peers()
        self.links: dict[int, FalseLink] = {}
        self.dropped: list[tuple[int, str]] = []
        self.ended: list[str] = []
        self.put: list[Event] = []
        self.woken = 0
        self.functions = Functions()
        self.kept: list[Function] = []  # As a client does that has announced them.
        for number in (1, 2):
            self._add(ClientPeer(number, self._link(number), f"client-{number}", 0.0))
        for number in (11, 12):
            address = f"tcp://127.0.0.1:{4000 + number}"
            self._add(
                WorkerPeer(
                    number, self._link(number), f"w{number}", 0.0, address=address, parent=21, skew=0.0
                )
            )
        self._add(ParentPeer(21, self._link(21), "parent", 0.0))
        self.delivery = Delivery(
            self.peers,
            drop=self._drop,
            end=self.ended.append,
            put=self.put.append,
            wake=self._wake,
            answer=lambda client, number: messages.Reply(number, True, "an answer").frame(),
        )

    def _link(self, number: int) -> Any:
        return self.links.setdefault(number, FalseLink(number))

    def _add(self, peer: Peer) -> None:
        self.peers.add(peer)

    def _drop(self, peer: Peer, reason: str) -> None:
        self.dropped.append((peer.number, reason))
        self.peers.remove(peer.number)

    def _wake(self) -> None:
        self.woken += 1

    def peer(self, number: int) -> Peer:
        peer = self.peers.find(number)
        assert peer is not None
        return peer

    def function(self, blob: bytes) -> Function:
        self.kept.append(self.functions.intern(digest_of(blob), blob.decode(), blob))
        return self.kept[-1]

    def carry_out(self, *instructions: Instruction) -> list[int]:
        return [peer.number for peer in self.delivery.carry_out(instructions)]

    def received(self, number: int) -> list[Any]:
        """What the peer will read, parsed as it would."""
        reads = {
            "client": messages.from_scheduler_to_client,
            "worker": messages.from_scheduler_to_worker,
            "parent": messages.to_parent,
        }
        read = reads["client" if number < 10 else "worker" if number < 20 else "parent"]
        found = []
        for header, parts in self.links[number].frames():
            assert len(encode_header(header)) <= HEADER_MAX
            found.append(read(_plain(header), b"".join(map(bytes, parts))))
        return found


def _plain(header: list[object]) -> list[object]:
    import json

    value: list[object] = json.loads(json.dumps(header))
    return value


def tasks(
    office: Office,
    keys: Iterable[str],
    *,
    blob: bytes = b"f",
    arguments: bytes = b"args",
    inputs: list[Input] | None = None,
    options: Options = DEFAULT_OPTIONS,
    worker: int = 11,
) -> ComputeTasks:
    compute = ComputeTasks(worker)
    for run_id, key in enumerate(keys, 1):
        compute.keys.append(key)
        compute.run_ids.append(run_id)
        compute.specs.append((office.function(blob), arguments))
        compute.priorities.append((0.0, 0.0, 1, run_id))
        compute.inputs.append(inputs)
        compute.options.append(options)
        compute.inline_max.append(4096)
        compute.lives.append(run_id)
    return compute


def with_keys(instruction: Any, *keys: str) -> Any:
    instruction.keys.extend(keys)
    return instruction


# ------------------------------------------------------------------------------------- writes and order


def test_batch_for_several_peers__is_one_write_each() -> None:
    office = Office()
    written = office.carry_out(
        tasks(office, ["x"]),
        with_keys(ReportLost(1), "a"),
        with_keys(FreeKeys(11), "y"),
        with_keys(ReportRetried(2), "b"),
        with_keys(ReportLost(1), "c"),
        with_keys(RemoveReplicas(11), "z"),
    )
    assert {number: len(link.writes) for number, link in office.links.items()} == {
        1: 1,
        2: 1,
        11: 1,
        12: 0,
        21: 0,
    }
    assert sorted(written) == [1, 2, 11]
    assert office.links[11].ops() == ["functions", "compute", "free", "remove"]
    assert office.links[1].ops() == ["lost", "lost"]


def test_posted_answer__leaves_in_the_same_write_as_the_batch() -> None:
    office = Office()
    office.delivery.post(office.peer(1), messages.Heartbeat().frame())
    assert office.woken == 1
    assert office.links[1].writes == []
    office.carry_out(with_keys(ReportLost(1), "a"))
    assert len(office.links[1].writes) == 1
    assert office.links[1].ops() == ["heartbeat", "lost"]


def test_peer_that_has_left__gets_nothing_and_hurts_nobody() -> None:
    office = Office()
    office.carry_out(with_keys(ReportLost(99), "a"), KillWorker(98, "hot"), with_keys(ReportLost(2), "b"))
    assert office.links[2].ops() == ["lost"]


def test_close_peer__comes_after_what_was_said_before() -> None:
    office = Office()
    office.carry_out(with_keys(ReportLost(1), "a"), ClosePeer(1, "enough"))
    assert office.links[1].ops() == ["lost"]
    assert office.dropped == [(1, "enough")]


def test_instruction_of_the_wrong_kind__closes_that_peer_alone() -> None:
    office = Office()
    office.carry_out(with_keys(ReportLost(11), "a"), with_keys(ReportLost(2), "b"))
    assert [number for number, _ in office.dropped] == [11]
    assert office.links[2].ops() == ["lost"]


# ------------------------------------------------------------------------------------- workers


def test_function__is_sent_once_a_connection_before_its_first_task() -> None:
    office = Office()
    office.carry_out(tasks(office, ["x", "y"]))
    office.carry_out(tasks(office, ["z"]))
    office.carry_out(tasks(office, ["u"], worker=12))
    assert office.links[11].ops() == ["functions", "compute", "compute"]
    assert office.links[12].ops() == ["functions", "compute"]
    functions, compute, _ = office.received(11)
    assert functions.blobs == [b"f"]
    assert compute.functions == [functions.numbers[0]] * 2
    assert compute.blobs == [b"args", b"args"]


def test_compute__carries_all_columns() -> None:
    office = Office()
    options = Options(resources={"GPU": 1.0}, timeout=3.0, retries=4)
    office.carry_out(tasks(office, ["x"], inputs=[("a", 8, [12], 3)], options=options))
    compute = office.received(11)[-1]
    assert compute.keys == ["x"]
    assert compute.run_ids == [1]
    assert compute.priorities == [(0.0, 0.0, 1, 1)]
    assert compute.inputs == [[("a", 8, [12], 3)]]
    assert compute.options == [{"resources": {"GPU": 1.0}, "timeout": 3.0}]
    assert compute.inline_max == [4096]
    assert compute.lives == [1]


def test_holder__is_introduced_once_before_its_first_mention() -> None:
    office = Office()
    office.carry_out(tasks(office, ["x"], inputs=[("a", 8, [11, 12], 3)]))
    office.carry_out(tasks(office, ["y"], inputs=[("a", 8, [12], 3)]))
    assert office.links[11].ops() == ["functions", "peers", "compute", "compute"]
    peers = office.received(11)[1]
    assert (peers.numbers, peers.addresses) == ([12], ["tcp://127.0.0.1:4012"])


def test_acquire_and_who_has__introduce_holders_too() -> None:
    office = Office()
    acquire = with_keys(AcquireReplicas(11), "a")
    acquire.nbytes.append(8)
    acquire.lives.append(3)
    acquire.holders.append([12])
    who_has = with_keys(UpdateWhoHas(12), "a", "b")
    who_has.holders.extend([[11], []])
    office.carry_out(acquire, who_has)
    assert office.received(11) == [
        messages.Peers([12], ["tcp://127.0.0.1:4012"]),
        messages.Acquire(["a"], [8], [3], [[12]]),
    ]
    assert office.received(12) == [
        messages.Peers([11], ["tcp://127.0.0.1:4011"]),
        messages.WhoHas(["a", "b"], [[11], []]),
    ]


def test_small_instructions__become_their_messages() -> None:
    office = Office()
    take_back = TakeBack(11)
    take_back.run_ids.extend([5, 6])
    office.carry_out(
        take_back,
        WorkerGone(11, 12),  # It never heard of that one.
        SetWorkerStatus(11, "retiring"),
        with_keys(FreeKeys(11), "x"),
        with_keys(RemoveReplicas(11), "y"),
    )
    assert office.received(11) == [
        messages.TakeBack([5, 6]),
        messages.Status("retiring"),
        messages.Free(["x"]),
        messages.Remove(["y"]),
    ]


def test_many_tasks__are_cut_into_messages_of_a_thousand_in_order() -> None:
    office = Office()
    keys = [f"task-{i}" for i in range(2500)]
    office.carry_out(tasks(office, keys))
    computes = [each for each in office.received(11) if isinstance(each, messages.Compute)]
    assert [key for compute in computes for key in compute.keys] == keys
    assert max(len(compute.keys) for compute in computes) <= 1000
    assert len(office.links[11].writes) == 1


def test_keys_that_json_blows_up__stay_below_the_limit_of_a_header() -> None:
    office = Office()
    control, astral = "\x01" * 3000, "😀" * 3000  # Six bytes and twelve bytes a character.
    keys = [f"{control}{i}" for i in range(300)] + [f"{astral}{i}" for i in range(300)]
    office.carry_out(tasks(office, keys), with_keys(FreeKeys(11), *keys), with_keys(ReportLost(1), *keys))
    sent = [key for each in office.received(11) if isinstance(each, messages.Free) for key in each.keys]
    assert sent == keys
    assert [key for each in office.received(1) for key in each.keys] == keys


def test_task_with_more_inputs_than_a_header_names__fails_and_the_others_are_sent() -> None:
    office = Office()
    many: list[Input] = [(f"a-rather-long-name-of-an-input-{i}", 8, [11, 12], 3) for i in range(30_000)]
    compute = tasks(office, ["x"])
    huge = tasks(office, ["reduce"], inputs=many)
    for name in ("keys", "run_ids", "specs", "priorities", "inputs", "options", "inline_max", "lives"):
        getattr(compute, name).extend(getattr(huge, name))
    office.carry_out(compute)
    assert office.received(11)[-1].keys == ["x"]
    (event,) = office.put
    assert isinstance(event, TaskFailed)
    assert (event.key, event.failure.kind) == ("reduce", "graph")
    assert "30000 inputs" in event.failure.text


def test_kill_worker__goes_to_its_parent_and_the_worker_is_let_go() -> None:
    office = Office()
    office.carry_out(KillWorker(11, "too hot"), ClosePeer(11, "silent"))
    assert office.received(21) == [messages.Kill(11, "too hot")]
    assert office.links[11].writes == []
    assert office.dropped[0] == (11, "too hot")


def test_kill_worker_without_a_parent__lets_it_go() -> None:
    office = Office()
    office.peers.remove(21)
    office.carry_out(KillWorker(11, "too hot"))
    assert office.dropped == [(11, "too hot")]


def test_kill_worker_whose_parent_is_no_parent__lets_it_go() -> None:
    office = Office()
    worker = office.peers.find_worker(11)
    assert worker is not None
    worker.parent = 12
    office.carry_out(KillWorker(11, "too hot"))
    assert office.dropped == [(11, "too hot")]
    assert office.links[12].writes == []


def test_shutdown__comes_after_everything_else_has_been_said() -> None:
    office = Office()
    end = Shutdown("no work for 5 s")
    office.carry_out(end, with_keys(ReportLost(1), "a"), ClosePeer(2, "enough"))
    assert office.links[1].ops() == ["lost"]
    assert office.dropped == [(2, "enough")]
    assert office.ended == ["no work for 5 s"]


def test_reply_that_fits_in_no_message__is_an_answer_too() -> None:
    office = Office()
    office.carry_out(Reply(1, 7, True, {"keys": ["k" * 100] * 20_000, "data": ""}), Reply(1, 8, True, None))
    too_large, fine = office.received(1)
    assert (too_large.request, too_large.ok) == (7, False)
    assert "does not fit in a message" in too_large.value
    assert fine == messages.Reply(8, True, None)
    assert office.dropped == []


# ------------------------------------------------------------------------------------- clients


def report_finished(client: int, results: dict[str, bytes | None]) -> ReportFinished:
    report = ReportFinished(client)
    for key, data in results.items():
        report.keys.append(key)
        report.nbytes.append(8)
        report.data.append(data)
    return report


def test_finished__passes_small_results_on() -> None:
    office = Office()
    office.carry_out(report_finished(1, {"a": b"one", "b": None, "c": b""}))
    assert office.received(1) == [messages.ClientFinished(["a", "b", "c"], [8, 8, 8], [b"one", None, b""])]


def test_client_that_lags__gets_reports_without_the_data() -> None:
    office = Office()
    office.links[1].queued = INLINE_QUEUED_MAX - 5
    office.carry_out(report_finished(1, {"a": b"1234", "b": b"1234", "c": b"1"}))
    assert office.received(1)[0].blobs == [b"1234", None, b"1"]


def test_erred__tells_a_shared_failure_once() -> None:
    office = Office()
    shared = Failure(
        "exception",
        "root",
        "ValueError: no",
        traceback="Traceback …",
        types=["builtins.ValueError"],
        data=b"pickle",
        fields={"deaths": 2},
    )
    other = Failure("no-worker", "d", "no worker has GPU")
    report = with_keys(ReportErred(1), "a", "b", "c", "d")
    report.failures.extend([shared, shared, shared, other])
    office.carry_out(report)
    (erred,) = office.received(1)
    assert erred.keys == ["a", "b", "c", "d"]
    assert erred.failure_of == [0, 0, 0, 1]
    assert erred.failures == [
        messages.Failure(
            "exception",
            "root",
            "ValueError: no",
            "Traceback …",
            ["builtins.ValueError"],
            {"deaths": 2},
            b"pickle",
        ),
        messages.Failure("no-worker", "d", "no worker has GPU", "", [], {}, None),
    ]


def test_erred_with_many_long_tracebacks__is_cut() -> None:
    office = Office()
    keys = [f"k{i}" for i in range(200)]
    report = with_keys(ReportErred(1), *keys)
    report.failures.extend(Failure("exception", key, "no", traceback="😀" * 4000) for key in keys)
    office.carry_out(report)
    told = {
        key: erred.failures[index].key
        for erred in office.received(1)
        for key, index in zip(erred.keys, erred.failure_of)
    }
    assert told == {key: key for key in keys}


def test_other_reports__become_their_messages() -> None:
    office = Office()
    cancelled = with_keys(ReportCancelled(1), "a", "b")
    cancelled.reasons.extend(["asked for", "unknown key"])
    office.carry_out(
        cancelled,
        with_keys(ReportLost(1), "c"),
        with_keys(ReportRetried(1), "d"),
        Restarted(1),
        Reply(1, 7, True, {"moved": 3}),
    )
    assert office.received(1) == [
        messages.Cancelled(["a", "b"], ["asked for", "unknown key"]),
        messages.Lost(["c"]),
        messages.Retried(["d"]),
        messages.Restarted(),
        messages.Reply(7, True, {"moved": 3}),
    ]


def test_log__is_worded(caplog: Any) -> None:
    office = Office()
    with caplog.at_level("DEBUG", logger="shunter.scheduler"):
        office.carry_out(
            Log("warning", "graph-refused", {"client": "c", "reason": "a cycle"}),
            Log("info", "never-heard-of", {"n": 3}),
            Log("info", "graph-refused", {"other": "fields"}),
        )
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "a graph of client c was refused: a cycle"),
        ("INFO", "never-heard-of: n=3"),
        ("INFO", "graph-refused: other='fields'"),
    ]
