"""A random cluster around the true state: workers that answer late or die, clients that come and go.

Everything comes from one seed. The false workers hold what they were told to compute and fetch; the false clients
keep a table of what they were told. `Story.finish` lets everything calm down and checks the end.
"""

from __future__ import annotations

import random
from collections import deque

from shunter.state import (
    AcquireReplicas,
    ClientAdded,
    ClientDesiresKeys,
    ClientReleasesKeys,
    ClientRemoved,
    ComputeTasks,
    DataScattered,
    DatasetPublished,
    DatasetRequested,
    DatasetUnpublished,
    Event,
    Failure,
    FreeKeys,
    GraphBegin,
    GraphCommit,
    GraphPart,
    Heartbeat,
    Instruction,
    KeysAdded,
    KeysCancelled,
    KeysDetached,
    KeysRetried,
    KillWorker,
    LongRunning,
    Options,
    PrioritySet,
    RemoveReplicas,
    Reply,
    ReportCancelled,
    ReportErred,
    ReportFinished,
    ReportLost,
    ReportRetried,
    Restarted,
    RestartRequested,
    SchedulerState,
    Settings,
    TakeBack,
    TakeBackAnswered,
    TaskFailed,
    TaskRescheduled,
    TasksFinished,
    Tick,
    UpdateWhoHas,
    WhoHasRequested,
    WorkerAdded,
    WorkerDied,
    WorkerRemoved,
    WorkerStatusChanged,
)


class FalseWorker:
    """Keeps runs and values; what it has to say waits in ``outgoing`` until the story delivers it."""

    def __init__(self, number: int, nthreads: int) -> None:
        self.number = number
        self.nthreads = nthreads
        self.runs: dict[int, tuple[str, int, dict[str, int]]] = {}  # run_id -> key, life, inputs and theirs
        self.data: dict[str, int] = {}  # key -> life of the value
        self.outgoing: deque[Event] = deque()
        self.paused = False

    def started(self) -> list[int]:
        return list(self.runs)[: self.nthreads]


class FalseClient:
    def __init__(self, number: int) -> None:
        self.number = number
        self.status: dict[str, str] = {}  # key -> pending, finished, erred
        self.graphs = 0
        self.ever: dict[str, None] = {}  # keys it may still want


class Story:
    def __init__(self, seed: int, *, n_workers: int = 3, timeout: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.now = 100.0
        settings = Settings(
            validate=True,
            slice=self.random.choice([5, 50, 1000]),
            no_workers_timeout=timeout,
            worker_ttl=0.0,  # its workers say nothing while they have nothing to say
        )
        self.state = SchedulerState(settings, now=self.now)
        self.arrows: set[tuple[str, str]] = set()  # that were made, of those that somebody watches
        self.next_number = 1
        self.next_key = 0
        self.workers: dict[int, FalseWorker] = {}
        self.clients: dict[int, FalseClient] = {}
        self.keys: list[str] = []
        self.calm = False
        for _ in range(n_workers):
            self.add_worker()
        self.add_client()

    # -------------------------------------------------------------------------------------- plumbing

    def step(self, event: Event) -> None:
        self.now += self.random.choice([0.0, 0.0001, 0.01])
        self.state.step(event, self.now)
        self.carry_out()

    def carry_out(self) -> None:
        outcome = self.state.drain()
        self.arrows.update((change.start, change.finish) for change in outcome.changes)
        for instruction in outcome.instructions:
            self.note(instruction)
            worker = self.workers.get(instruction.peer)
            if worker is not None:
                self._to_worker(worker, instruction)
            client = self.clients.get(instruction.peer)
            if client is not None:
                self._to_client(client, instruction)

    def note(self, instruction: Instruction) -> None:
        """For who wants to see everything."""

    def _to_worker(self, worker: FalseWorker, instruction: object) -> None:
        if isinstance(instruction, ComputeTasks):
            assert None not in instruction.specs, instruction.keys
            for key, run_id, life, inputs in zip(
                instruction.keys, instruction.run_ids, instruction.lives, instruction.inputs
            ):
                worker.runs[run_id] = (str(key), life, {str(i[0]): i[3] for i in inputs or []})
        elif isinstance(instruction, FreeKeys):
            for key in instruction.keys:
                worker.data.pop(str(key), None)
                for run_id in [r for r, (k, _, _) in worker.runs.items() if k == key]:
                    del worker.runs[run_id]
        elif isinstance(instruction, KillWorker):
            del self.workers[worker.number]
        elif isinstance(instruction, RemoveReplicas):
            for key in instruction.keys:
                worker.data.pop(str(key), None)
        elif isinstance(instruction, TakeBack):
            started = worker.started()
            given = [r for r in instruction.run_ids if r in worker.runs and r not in started]
            for run_id in given:
                del worker.runs[run_id]
            worker.outgoing.append(TakeBackAnswered(worker.number, list(instruction.run_ids), given))
        elif isinstance(instruction, (UpdateWhoHas, AcquireReplicas)):
            pass

    def _to_client(self, client: FalseClient, instruction: object) -> None:
        if isinstance(instruction, ReportFinished):
            word = "finished"
        elif isinstance(instruction, ReportErred):
            word = "erred"
        elif isinstance(instruction, (ReportLost, ReportRetried)):
            word = "pending"
        elif isinstance(instruction, ReportCancelled):
            for key in instruction.keys:
                client.status.pop(str(key), None)
            return
        elif isinstance(instruction, Reply):
            if isinstance(instruction.value, dict):  # a dataset
                client.ever.update((str(key), None) for key in instruction.value["keys"])
            return
        elif isinstance(instruction, Restarted):
            client.status.clear()
            return
        else:
            return
        for key in instruction.keys:
            if str(key) in client.status:
                client.status[str(key)] = word

    # -------------------------------------------------------------------------------------- what may happen

    def add_worker(self) -> None:
        number = self.next_number
        self.next_number += 1
        nthreads = self.random.randint(1, 3)
        self.workers[number] = FalseWorker(number, nthreads)
        self.step(
            WorkerAdded(
                number,
                f"tcp://h{number}:1",
                f"w{number % 5}",
                f"h{number % 2}",
                nthreads,
                0,
                {"GPU": 1.0},
                number % 2 == 0,
            )
        )
        # a worker of the same name was replaced
        for row in list(self.workers):
            if row not in {w["number"] for w in self.state.view().workers()}:
                del self.workers[row]

    def remove_worker(self) -> None:
        if not self.workers:
            return
        worker = self.workers.pop(self.random.choice(list(self.workers)))
        how = self.random.randrange(4)
        died = WorkerDied(worker.number, "signal 9", worker.started())
        if how == 0:
            self.step(died)
        self.step(WorkerRemoved(worker.number, "link broke", expected=how == 1))
        if how == 2:
            self.step(died)
        for event in list(worker.outgoing):  # said before it died, heard after
            if self.random.random() < 0.3:
                self.step(event)

    def pause_worker(self) -> None:
        if self.workers:
            worker = self.random.choice(list(self.workers.values()))
            worker.paused = not worker.paused
            self.step(WorkerStatusChanged(worker.number, "paused" if worker.paused else "running"))

    def add_client(self) -> None:
        number = self.next_number
        self.next_number += 1
        self.clients[number] = FalseClient(number)
        self.step(ClientAdded(number, f"c{number}"))

    def remove_client(self) -> None:
        if len(self.clients) > 1:
            client = self.clients.pop(self.random.choice(list(self.clients)))
            self.step(ClientRemoved(client.number))

    def submit(self) -> None:
        r = self.random
        client = r.choice(list(self.clients.values()))
        n = r.choice([1, 2, 5, 20, 60])
        keys: list[str] = []
        inputs: list[list[str] | None] = []
        known = list(client.status)
        for _ in range(n):
            key = r.choice(self.keys) if self.keys and r.random() < 0.1 else f"k-{self.next_key}"
            if key in keys:
                continue
            self.next_key += 1
            pool = keys[-8:] + r.sample(known, min(3, len(known)))
            picked = r.sample(pool, min(len(pool), r.choice([0, 1, 1, 2, 3]))) if pool else []
            inputs.append([p for p in dict.fromkeys(picked) if p != key] or None)
            keys.append(key)
        self.keys = (self.keys + keys)[-200:]
        options = r.choice(
            [
                Options(),
                Options(),
                Options(),
                Options(retries=2),
                Options(retries=1, retry_delay=0.05, retry_elsewhere=True),
                Options(resources={"GPU": 0.5}),
                Options(workers=["w1", "h1"], allow_other_workers=r.random() < 0.5),
                Options(priority=5.0),
            ]
        )
        client.graphs += 1
        graph = client.graphs
        wanted = None if r.random() < 0.5 else r.sample(keys, max(1, len(keys) // 4))
        self.step(GraphBegin(client.number, graph, r.random() < 0.5, None))
        self.step(
            GraphPart(
                client.number,
                graph,
                list(keys),
                [f"spec of {k}" for k in keys],
                [f"f{i % 3}" for i in range(len(keys))],
                [None if i is None else list(i) for i in inputs],
                [options] * len(keys),
                {"f0": "zero"},
            )
        )
        for key in keys if wanted is None else wanted:
            client.status.setdefault(key, "pending")
            client.ever[key] = None
        self.step(GraphCommit(client.number, graph, None if wanted is None else list(wanted)))

    def scatter(self) -> None:
        client = self.random.choice(list(self.clients.values()))
        key = f"d-{self.next_key}"
        self.next_key += 1
        holders = self.random.sample(list(self.workers), min(2, len(self.workers)))
        for number in holders:
            self.workers[number].data[key] = -2  # a client has put it there
        client.status[key] = "pending"
        client.ever[key] = None
        self.step(DataScattered(client.number, [key], [10], [holders]))

    def some_keys(self, client: FalseClient) -> list[str]:
        keys = list(client.status)
        return self.random.sample(keys, min(len(keys), self.random.choice([1, 3, 30])))

    def release(self) -> None:
        client = self.random.choice(list(self.clients.values()))
        keys = self.some_keys(client)
        for key in keys:
            del client.status[key]
        self.step(ClientReleasesKeys(client.number, list(keys)))

    def cancel(self) -> None:
        client = self.random.choice(list(self.clients.values()))
        self.step(KeysCancelled(client.number, list(self.some_keys(client)), self.random.random() < 0.3))

    def retry(self) -> None:
        client = self.random.choice(list(self.clients.values()))
        self.step(KeysRetried(client.number, [k for k, s in client.status.items() if s == "erred"]))

    def desire(self) -> None:
        if self.keys:
            client = self.random.choice(list(self.clients.values()))
            key = self.random.choice(self.keys)
            client.status.setdefault(key, "pending")
            client.ever[key] = None
            self.step(ClientDesiresKeys(client.number, [key]))

    def keep(self) -> None:
        """Keys are to be kept though nobody wants them, or no longer."""
        r = self.random
        client = r.choice(list(self.clients.values()))
        keys = self.some_keys(client)
        name = r.choice(["one", "two"])
        what = r.randrange(4)
        if what == 0:
            self.step(KeysDetached(client.number, list(keys)))
        elif what == 1:
            self.step(DatasetPublished(client.number, 1, name, list(keys), "", r.random() < 0.5))
        elif what == 2:
            self.step(DatasetUnpublished(client.number, 1, name))
        else:
            self.step(DatasetRequested(client.number, 1, name))

    def restart(self) -> None:
        client = self.random.choice(list(self.clients.values()))
        self.step(RestartRequested(client.number, 1, 1.0))

    def reprioritise(self) -> None:
        if self.keys:
            client = self.random.choice(list(self.clients.values()))
            self.step(
                PrioritySet(client.number, [self.random.choice(self.keys)], self.random.choice([-1.0, 3.0]))
            )

    def work(self) -> None:
        """A worker does something: finishes, fails, reschedules, secedes, fetches inputs."""
        if not self.workers:
            return
        r = self.random
        worker = r.choice(list(self.workers.values()))
        if not worker.runs:
            return
        picked = [run_id for run_id in worker.started() if r.random() < 0.7] or worker.started()[:1]
        done: list[tuple[str, int]] = []
        for run_id in picked:
            key, life, inputs = worker.runs.pop(run_id)
            fetched = [i for i in inputs if worker.data.get(i, -1) not in (inputs[i], -2)]
            if fetched and r.random() < 0.9:
                lives = [inputs[i] for i in fetched]
                worker.data.update(zip(fetched, lives))
                worker.outgoing.append(KeysAdded(worker.number, list(fetched), [10] * len(fetched), lives))
            what = r.random() if not self.calm else 0.0
            if what < 0.85:
                done.append((key, run_id))
                worker.data[key] = life
            elif what < 0.93:
                failure = Failure("exception", key, "boom", types=["builtins.ValueError"])
                worker.outgoing.append(TaskFailed(worker.number, key, run_id, failure, 0.0, 0.001, 1))
            elif what < 0.96:
                worker.outgoing.append(TaskRescheduled(worker.number, key, run_id))
            else:
                worker.outgoing.append(LongRunning(worker.number, key, run_id, 0.5))
                worker.runs[run_id] = (key, life, inputs)
        if done:
            n = len(done)
            worker.outgoing.append(
                TasksFinished(
                    worker.number,
                    [k for k, _ in done],
                    [i for _, i in done],
                    [r.choice([0, 10, 2_000_000]) for _ in done],
                    [self.now] * n,
                    [r.choice([0.0, 0.0001, 0.5]) for _ in done],
                    [1] * n,
                    ["int"] * n,
                    [None] * n,
                )
            )

    def deliver(self) -> None:
        senders = [w for w in self.workers.values() if w.outgoing]
        if senders:
            self.step(self.random.choice(senders).outgoing.popleft())

    def complain(self) -> None:
        if self.workers and self.keys:
            number = self.random.choice(list(self.workers))
            self.step(
                WhoHasRequested(
                    number, [self.random.choice(self.keys)], [self.random.choice(list(self.workers))]
                )
            )

    def tick(self) -> None:
        if self.state.next_deadline < float("inf"):
            self.now = max(self.now, self.state.next_deadline)
            self.step(Tick())

    def heartbeat(self) -> None:
        if self.workers:
            self.step(Heartbeat(self.random.choice(list(self.workers)), 1000, 0, 1.0))

    def nonsense(self) -> None:
        """Well-typed, illegal."""
        number = self.random.choice([0, 999, *self.workers, *self.clients])
        key = self.random.choice(["nobody", *self.keys[-3:]])
        events: list[Event] = [
            TasksFinished(number, [key], [1], [1], [0.0], [0.0], [1], ["int"], [None]),
            KeysAdded(number, [key], [5], [self.random.choice([-1, 3])]),
            TaskFailed(number, key, 1, Failure("exception", key, "x"), 0.0, 0.0, 1),
            TakeBackAnswered(number, [1], [1]),
            WorkerRemoved(998, "never came", False),
            ClientReleasesKeys(997, [key]),
            LongRunning(number, key, 7, 1.0),
        ]
        self.step(self.random.choice(events))

    # -------------------------------------------------------------------------------------- the whole

    def run(self, n: int) -> None:
        actions = (
            [self.work] * 30
            + [self.deliver] * 40
            + [self.tick] * 5
            + [self.submit] * 6
            + [self.release] * 3
            + [self.cancel, self.retry, self.desire, self.scatter, self.reprioritise, self.heartbeat]
            + [self.add_worker, self.remove_worker, self.pause_worker, self.add_client, self.remove_client]
            + [self.complain, self.nonsense, self.keep]
            + ([self.restart] if self.random.random() < 0.3 else [])
        )
        for _ in range(n):
            self.random.choice(actions)()

    def finish(self) -> None:
        """Faults stop: everything that is wanted must end, and after release nothing may be left."""
        self.calm = True
        for worker in self.workers.values():
            if worker.paused:
                worker.paused = False
                self.step(WorkerStatusChanged(worker.number, "running"))
        while len(self.workers) < 2 or not any(w % 5 == 1 for w in self.workers):
            self.add_worker()
        for _ in range(100_000):
            busy = False
            for worker in list(self.workers.values()):
                if worker.runs:
                    self.work()
                    busy = True
                while worker.outgoing:
                    self.step(worker.outgoing.popleft())
                    busy = True
            if not busy:
                if self.state.next_deadline == float("inf"):
                    break
                self.tick()
        else:
            raise AssertionError("it never calms down")
        self.state.validate()
        for client in self.clients.values():
            pending = [k for k, s in client.status.items() if s == "pending"]
            assert not pending, [self.state.view().why(k) for k in pending]
        for name in ("one", "two"):
            self.step(DatasetUnpublished(next(iter(self.clients)), 1, name))
        for client in self.clients.values():
            self.step(ClientReleasesKeys(client.number, list(client.ever)))
        self.state.validate()
        counts = self.state.view().counts()
        assert counts["tasks"] == 0, counts
        for row in self.state.view().workers():
            assert (row["processing"], row["queued"], row["held"], row["nbytes"], row["occupancy"]) == (
                0,
                0,
                0,
                0,
                0.0,
            ), row
