"""A worker: its true machine, with false threads, a false store, and peers to fetch from."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING

from shunter.state import (
    AcquireFailed,
    Event,
    Failure,
    FailureKind,
    KeysAdded,
    LongRunning,
    TakeBackAnswered,
    TaskFailed,
    TaskRescheduled,
    TasksFinished,
    ThreadsHeld,
    WhoHasRequested,
)
from shunter.worker import events as we
from shunter.worker import instructions as wi
from shunter.worker.model import Limits
from shunter.worker.state import WorkerState
from tests.simulation.clock import Pipe
from tests.simulation.nesting import Nest
from tests.simulation.truth import SimulationFailed, Spec, Value

if TYPE_CHECKING:
    from tests.simulation.world import World

HEARTBEAT_S = 0.5


class Job:
    """A task that was handed to the threads."""

    def __init__(self, task: wi.Task, inputs: dict[str, Value]) -> None:
        self.ticket = task.run_id
        self.run_id = task.run_id  # changes when the run is adopted
        self.key = task.key
        self.inline_max = task.inline_max
        self.inputs = inputs
        self.seceded = False
        self.nest: Nest | None = None
        self.event = ""  # how it ended, in words of the threads: "finished", "failed" or "rescheduled"
        self.kids: list[Value] = []


class SimWorker:
    """One incarnation of a worker, with the process, the threads and the two directions of its link."""

    def __init__(
        self,
        world: World,
        number: int,
        name: str,
        address: str,
        nthreads: int,
        resources: dict[str, float],
        has_parent: bool,
    ) -> None:
        self.world = world
        self.dice = random.Random(f"{world.seed} worker {number}")
        self.number = number
        self.name = name
        self.address = address
        self.nthreads = nthreads
        self.resources = resources
        self.has_parent = has_parent
        limits = Limits(
            fetches_max=self.dice.choice([1, 3, 8]),
            fetch_bytes_max=self.dice.choice([100, 10_000, 50_000_000]),
            ahead_max=self.dice.choice([0, 2, 256]),
            functions_max=self.dice.choice([1, 3, 10_000]),
        )
        self.machine = WorkerState(nthreads=nthreads, resources=resources, limits=limits)
        self.store: dict[str, Value] = {}
        self.sizes: dict[str, int] = {}
        self.denies: set[str] = set()  # keys that it says not to hold
        self.queue: deque[Job] = deque()
        self.running: dict[int, Job] = {}
        self.outcomes: list[
            Job | we.Event
        ] = []  # that threads have handed back, and the loop has not received
        self.sent: set[str] = set()  # keys of all tasks that came here
        self.functions: set[int] = set()  # that the scheduler has sent on this connection
        self.down = Pipe(world.clock, self.dice, self._hear)  # scheduler → worker
        self.up = Pipe(world.clock, self.dice, lambda item: world.from_worker(self, item))
        self.is_alive = True  # its process
        self.is_guessed_at = False  # it died, and the scheduler has to guess which of its tasks had started
        self.is_paused = False
        self.steps = 0
        self.machine.step(we.Registered(number))
        world.clock.after(HEARTBEAT_S, self._beat)

    @property
    def busy(self) -> bool:
        """Something goes on here, or is on its way."""
        return bool(self.queue or self.running or self.outcomes or len(self.up) or len(self.down))

    def started(self) -> list[int]:
        """The runs on its threads, as the blame map tells."""
        return [job.run_id for job in self.running.values()]

    def die(self, kept: int = 0) -> None:
        """The process is gone, with all that was in it. ``kept``: words under way that arrive all the same."""
        self.is_alive = False
        for job in self.running.values():
            self.world.truth.deaths[job.key] = self.world.truth.deaths.get(job.key, 0) + 1
        for job in self.running.values():
            if job.nest is not None:
                job.nest.close()
        self.queue.clear()
        self.running.clear()
        self.outcomes.clear()
        self.store.clear()
        self.up.cut(kept)
        self.down.cut()

    # ------------------------------------------------------------------------------------ events

    def step(self, *events: we.Event) -> None:
        """A batch for the machine, and what comes of it."""
        if not self.is_alive:
            return
        for event in events:
            self.machine.step(event)
        while True:
            instructions = self.machine.drain()
            if not instructions:
                break
            for each in instructions:
                self._carry_out(each)
        self.steps += 1
        if self.steps % 4 == 0:
            self.machine.validate()

    def _hear(self, item: object) -> None:
        assert isinstance(item, list)
        self.step(*item)

    def _beat(self) -> None:
        if self.is_alive and self.up.is_open:
            self.step(we.TimePassed())
            self.world.heartbeat(self)
            self.world.clock.after(HEARTBEAT_S, self._beat)

    # ------------------------------------------------------------------------------------ instructions

    def _carry_out(self, each: wi.Instruction) -> None:
        if isinstance(each, wi.Execute):
            for task in each.tasks:
                if any(key not in self.store for key in task.inputs):
                    raise SimulationFailed(f"{self.name} runs {task.key!r} without its inputs")
                self.queue.append(Job(task, {key: self.store[key] for key in task.inputs}))
            self.world.clock.after(self._lag(), self._start)
        elif isinstance(each, wi.Revoke):
            given = [job.ticket for job in self.queue if job.ticket in each.tickets]
            self.queue = deque(job for job in self.queue if job.ticket not in given)
            self.machine.step(we.RevokeAnswered(each.request, each.tickets, given))
        elif isinstance(each, wi.Rename):
            ended = [job for job in self.outcomes if isinstance(job, Job)]
            for job in [*self.queue, *self.running.values(), *ended]:
                if job.ticket == each.ticket:
                    job.run_id = each.run_id
        elif isinstance(each, wi.Keep):
            for key, value, nbytes in zip(each.keys, each.values, each.nbytes):
                assert isinstance(value, Value)
                self.store[key] = value
                self.sizes[key] = nbytes
        elif isinstance(each, wi.Drop):
            for key in each.keys:
                del self.store[key]
        elif isinstance(each, wi.Fetch):
            self._fetch(each)
        elif isinstance(each, wi.RestPeer):
            peer = each.peer
            self.world.clock.after(each.seconds, lambda: self.step(we.PeerRested(peer)))
        elif isinstance(each, wi.ForgetFunctions):
            pass
        else:
            self.up.send(event_of(self, each))

    # ------------------------------------------------------------------------------------ threads

    def _start(self) -> None:
        while self.is_alive and self.queue:
            if sum(not job.seceded for job in self.running.values()) >= self.nthreads:
                return
            job = self.queue.popleft()
            self.running[job.ticket] = job
            self._run(job)

    def _run(self, job: Job) -> None:
        world = self.world
        world.check_inputs(job.run_id, job.inputs)
        spec = world.truth.meant[job.run_id].spec
        spec.runs += 1
        seconds = spec.duration
        if spec.runs <= spec.starts_killing and not world.calm:
            world.clock.after(seconds, lambda: world.task_kills(self, job))
            return
        if spec.waits:
            self._secede(job, 0.0)
            job.nest = Nest(self, job, spec)
            return
        if spec.secedes:
            world.clock.after(seconds / 2, lambda: self._secede(job, seconds / 2))
        if spec.children:
            world.submit_children(spec)
        n = spec.runs
        world.clock.after(seconds, lambda: self._end(job, spec, n))

    def _secede(self, job: Job, seconds: float) -> None:
        if self.is_alive and self.running.get(job.ticket) is job:
            job.seceded = True
            self._hand_back(we.RunSeceded(job.ticket, seconds))
            self._start()

    def end_nest(self, job: Job, nest: Nest, *, has_failed: bool) -> None:
        """What a task has waited for is there, or will never be."""
        spec = self.world.truth.meant[job.run_id].spec
        nest.close()
        if not has_failed:
            job.kids = nest.results()
        self._end(job, spec, 0 if has_failed else spec.runs)

    def _end(self, job: Job, spec: Spec, n: int) -> None:
        if not self.is_alive or self.running.get(job.ticket) is not job:
            return
        del self.running[job.ticket]
        meant = self.world.truth.meant[job.run_id]
        self.world.check_inputs(job.run_id, job.inputs)  # the run may have been adopted meanwhile
        if meant.spec.payload != spec.payload:
            raise SimulationFailed(f"{spec} was adopted as {meant.spec}")
        if n <= spec.fails and not (self.world.calm and spec.fails < 1_000 and n > 0):
            job.event = "failed"
            self.world.truth.raised.add(spec.number)
        elif n <= spec.fails + spec.reschedules and not self.world.calm:
            job.event = "rescheduled"
        else:
            job.event = "finished"
        self._hand_back(job)
        self._start()

    def _hand_back(self, outcome: Job | we.Event) -> None:
        """To the loop, which receives it soon, with what others hand back meanwhile."""
        self.outcomes.append(outcome)
        if len(self.outcomes) == 1:
            self.world.clock.after(self._lag(), self._receive)

    def _receive(self) -> None:
        outcomes, self.outcomes = self.outcomes, []
        self.step(*[self._event_of(each) if isinstance(each, Job) else each for each in outcomes])

    def _event_of(self, job: Job) -> we.Event:
        """Made late: the run may have been adopted since it ended."""
        meant = self.world.truth.meant[job.run_id]
        spec = meant.spec
        if job.event == "failed":
            fields: dict[str, object] = {"spec": spec.number, "life": meant.life}
            failure = Failure("exception", spec.key, "boom", types=["builtins.ValueError"], fields=fields)
            return we.RunFailed(job.ticket, failure, 0.0, spec.duration, 1)
        if job.event == "rescheduled":
            return we.RunRescheduled(job.ticket)
        value = self.world.truth.value_of(spec, meant.life, job.inputs, job.kids)
        data = self.world.pickled(value) if 0 < spec.nbytes <= job.inline_max else None
        now = self.world.clock.now
        return we.RunsFinished(
            [job.ticket], [value], [spec.nbytes], [now], [spec.duration], [1], ["Value"], [data]
        )

    def _lag(self) -> float:
        """How long the threads, or the loop, take to notice."""
        return 0.0 if self.world.calm else self.dice.choice([0.0, 0.0, 0.0001, 0.002])

    # ------------------------------------------------------------------------------------ data

    def put(self, key: str, value: Value, nbytes: int) -> None:
        """A client puts a value here."""
        if self.is_alive:
            self.store[key] = value  # At once: who put it may ask for it the next moment.
            self.sizes[key] = nbytes
            self._hand_back(we.DataPut([key], [nbytes], [value]))

    def _fetch(self, fetch: wi.Fetch) -> None:
        faults = self.world.faults
        fate = self.dice.random()
        delay = self.dice.choice([0.0001, 0.001, 0.02]) if not self.world.calm else 0.0001
        if fate < 0.05 * faults:
            self.world.clock.after(delay, lambda: self.step(we.FetchBusy(fetch.fetch)))
        elif fate < 0.1 * faults:
            self.world.clock.after(delay, lambda: self.step(we.FetchFailed(fetch.fetch, "connection lost")))
        else:
            self.world.clock.after(delay, lambda: self._serve(fetch, delay))

    def _serve(self, fetch: wi.Fetch, delay: float) -> None:
        """What the peer has by now is on its way."""
        peer = self.world.find_worker(fetch.peer)
        if peer is None or not peer.is_alive:
            self.world.clock.after(delay, lambda: self.step(we.FetchFailed(fetch.fetch, "refused")))
            return
        found = [key for key in fetch.keys if key in peer.store and key not in peer.denies]
        missing = [key for key in fetch.keys if key not in found]
        failed = {
            key: "cannot be pickled" for key in found if self.world.truth.is_unsendable(peer.store[key])
        }
        keys = [key for key in found if key not in failed]
        values: list[object] = [peer.store[key] for key in keys]
        sizes = [peer.sizes[key] for key in keys]
        done = we.FetchDone(fetch.fetch, keys, sizes, values, missing, failed)
        is_cut = self.dice.random() < 0.5

        def arrive() -> None:
            if is_cut and not peer.is_alive:
                self.step(we.FetchFailed(fetch.fetch, "cut off half way"))
            else:
                self.step(done)

        self.world.clock.after(delay, arrive)


def event_of(worker: SimWorker, each: wi.Instruction) -> Event | wi.AskFunction:
    """What the scheduler's state is told when a worker says this."""
    n = worker.number
    if isinstance(each, wi.ReportFinished):
        return TasksFinished(
            n,
            list(each.keys),
            each.run_ids,
            each.nbytes,
            each.starts,
            each.durations,
            each.threads,
            each.types,
            list(each.data),
        )
    if isinstance(each, wi.ReportFailed):
        failure = each.failure
        if isinstance(failure, wi.TextFailure):
            kind: FailureKind = "no-worker" if failure.kind == "no-worker" else "serialization"
            failure = Failure(kind, each.key, failure.text)
        assert isinstance(failure, Failure)
        return TaskFailed(n, each.key, each.run_id, failure, each.start, each.duration, each.thread)
    if isinstance(each, wi.ReportRescheduled):
        return TaskRescheduled(n, each.key, each.run_id)
    if isinstance(each, wi.ReportLongRunning):
        return LongRunning(n, each.key, each.run_id, each.duration)
    if isinstance(each, wi.ReportAdded):
        return KeysAdded(n, list(each.keys), each.nbytes, each.lives)
    if isinstance(each, wi.ReportAcquireFailed):
        return AcquireFailed(n, list(each.keys))
    if isinstance(each, wi.ReportHeld):
        return ThreadsHeld(n, each.count)
    if isinstance(each, wi.AskWhoHas):
        return WhoHasRequested(n, list(each.keys), each.failed)
    if isinstance(each, wi.AnswerTakeBack):
        return TakeBackAnswered(n, each.asked, each.given)
    if isinstance(each, wi.AskFunction):
        return each
    raise SimulationFailed(f"nothing carries out {type(each).__name__}")
