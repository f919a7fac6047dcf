"""Runs, from the scheduler's asking to their end. See the theory of operation in `state`."""

from __future__ import annotations

from shunter.worker.events import Input
from shunter.worker.instructions import Rename, ReportFailed, ReportLongRunning, Task, TextFailure
from shunter.worker.model import Run
from shunter.worker.tables import Tables
from shunter.worker.values import drop_value, spare

__all__ = [
    "begin",
    "disown",
    "end",
    "fail_waiting",
    "give_up",
    "have_one",
    "hold",
    "land",
    "leave_threads",
    "make_ready",
    "secede",
    "start_runs",
    "supersede",
]


def begin(t: Tables, task: Task, inputs: list[Input] | None) -> None:
    """Start to care for a new run: it waits for what is not here, or is ready."""
    function = t.functions.use(task.function)
    t.sequence += 1
    run = Run(task, function, t.sequence)
    t.runs[task.key] = run
    t.by_run_id[task.run_id] = run
    if function.size < 0:
        run.missing += 1
        t.functions.wait(function, run)
    if inputs:
        want_inputs(t, run, inputs)
    if run.missing == 0:
        make_ready(t, run)


def want_inputs(t: Tables, run: Run, inputs: list[Input]) -> None:
    """Want the inputs that are not here."""
    for key, nbytes, holders, life in inputs:
        if key in t.held:
            spare(t, key)
            continue
        want = t.fetching.want(key, life, nbytes, holders, run.task.priority)
        if run not in want.waiters:
            want.waiters[run] = None
            run.missing += 1


def make_ready(t: Tables, run: Run) -> None:
    run.status = "ready"
    t.ready.push(run)


def have_one(t: Tables, run: Run) -> None:
    """Something that a run waits for is here."""
    run.missing -= 1
    if run.missing == 0:
        make_ready(t, run)


def hold(t: Tables, key: str, life: int, nbytes: int) -> None:
    """A value is in the store now."""
    t.held[key] = nbytes
    t.lives[key] = life
    t.doomed.pop(key, None)
    want = t.fetching.satisfy(key)
    if want is not None:
        for run in want.waiters:
            have_one(t, run)


# ---------------------------------------------------------------------------------------------- starting


def start_runs(t: Tables) -> None:
    """Hand ready runs to the threads while there is room."""
    while True:
        run = t.ready.peek()
        if run is None or not has_room(t, run):
            return
        t.ready.pop(run)
        if inputs_are_held(t, run):
            hand_out(t, run)


def has_room(t: Tables, run: Run) -> bool:
    """A slot is free, or the work with the threads is so short that one of them soon asks for more."""
    if t.occupied < t.nthreads:
        return True
    limits = t.limits
    return (
        t.occupied < t.nthreads + limits.ahead_max
        and t.ahead + run.function.estimate() <= limits.ahead_s * t.nthreads
    )


def inputs_are_held(t: Tables, run: Run) -> bool:
    """An input may have been dropped since it came; then it is wanted again."""
    absent = [key for key in run.task.inputs if key not in t.held]
    if not absent:
        for key in run.task.inputs:
            spare(t, key)
        return True
    run.status = "waiting"
    lives = dict(zip(run.task.inputs, run.task.lives))
    want_inputs(t, run, [(key, 0, [], lives[key]) for key in absent])
    return False


def hand_out(t: Tables, run: Run) -> None:
    run.status = "executing"
    run.ticket = run.task.run_id
    run.intact = True
    run.estimate = run.function.estimate()
    t.occupied += 1
    t.ahead += run.estimate
    t.ready.grant(run)
    for key in run.task.inputs:
        t.using[key] = t.using.get(key, 0) + 1
    t.executing[run.ticket] = run
    t.outbox.execute(run.task)


# ---------------------------------------------------------------------------------------------- ending


def land(t: Tables, ticket: int, duration: float) -> Run | None:
    """An execution has ended."""
    run = t.executing.get(ticket)
    if run is None:
        t.unknown += 1
        return None
    if duration >= 0.0:
        run.function.note(duration)
    leave_threads(t, run)
    end(t, run)
    return run


def leave_threads(t: Tables, run: Run) -> None:
    """A run is no longer with the threads: it ended, or was taken back."""
    del t.executing[run.ticket]
    if run.status == "executing":
        free_slot(t, run)
    t.ready.give_back(run)
    for key in run.task.inputs:
        users = t.using[key] - 1
        if users:
            t.using[key] = users
        else:
            del t.using[key]
            if key in t.doomed:
                drop_value(t, key)


def secede(t: Tables, run: Run) -> None:
    """A run gives its slot back and goes on. It keeps its resources: it still uses them."""
    free_slot(t, run)
    run.status = "long-running"


def free_slot(t: Tables, run: Run) -> None:
    t.occupied -= 1
    if not run.wanted:
        t.unwanted -= 1
    t.ahead = t.ahead - run.estimate if t.occupied else 0.0


def end(t: Tables, run: Run) -> None:
    """A run is over, however it came to that."""
    run.status = "ended"
    t.functions.end_use(run.function)
    key = run.task.key
    if run.wanted:
        del t.runs[key]
        del t.by_run_id[run.task.run_id]
    elif t.orphans.get(key) is run:
        del t.orphans[key]


def give_up(t: Tables, run: Run) -> None:
    """End a run that waits or is ready."""
    for key in run.task.inputs:
        t.fetching.unwait(key, run)
    t.functions.unwait(run.function, run)
    end(t, run)


def fail_waiting(t: Tables, run: Run, kind: str, text: str) -> None:
    """Fail a run that has not started."""
    give_up(t, run)
    failure = TextFailure(kind, text)
    t.outbox.push(ReportFailed(run.task.key, run.task.run_id, failure, 0.0, 0.0, 0))


def disown(t: Tables, run: Run) -> None:
    """Nobody wants the result of a run that executes."""
    key = run.task.key
    del t.runs[key]
    del t.by_run_id[run.task.run_id]
    run.wanted = False
    t.orphans[key] = run
    if run.status == "executing":
        t.unwanted += 1


# --------------------------------------------------------------------------------- the same key again


def supersede(t: Tables, task: Task) -> bool:
    """Deal with an older run of the same key. True if it goes on as the new one."""
    older = t.runs.get(task.key)
    if older is not None:
        if older.status == "waiting" or older.status == "ready":
            give_up(t, older)
            return False
        disown(t, older)
    older = t.orphans.get(task.key)
    if older is None or not older.intact or not is_same(older.task, task):
        return False
    adopt(t, older, task)
    return True


def adopt(t: Tables, run: Run, task: Task) -> None:
    """Let a run that executes, and that nobody wants, be the run of a new asking for the same task."""
    del t.orphans[task.key]
    run.wanted = True
    if run.status == "executing":
        t.unwanted -= 1
    run.task = task
    t.runs[task.key] = run
    t.by_run_id[task.run_id] = run
    t.outbox.push(Rename(run.ticket, task.run_id))
    if run.status == "long-running":
        t.outbox.push(ReportLongRunning(task.key, task.run_id, 0.0))


def is_same(a: Task, b: Task) -> bool:
    return (
        a.function == b.function
        and a.data == b.data
        and a.inputs == b.inputs
        and a.lives == b.lives
        and a.resources == b.resources
    )
