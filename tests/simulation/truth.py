"""What tasks are, what their values must be, and what has really happened: the judge of results and of errors.

A value remembers of which life of its key it is, and what it was computed from. The scheduler's ComputeTasks says which
lives it means; so a run that uses another value, or a client that gets one, is found out at once.
"""

from __future__ import annotations

from typing import NamedTuple


class SimulationFailed(AssertionError):
    """The simulator found something wrong. The message has the line that shows it again."""


class Spec:
    """A task as a client submitted it, opaque to the scheduler: what it needs and how it behaves."""

    __slots__ = (
        "children",
        "duration",
        "fails",
        "inputs",
        "key",
        "nbytes",
        "number",
        "payload",
        "reschedules",
        "runs",
        "secedes",
        "starts_killing",
    )

    def __init__(self, number: int, key: str, inputs: tuple[str, ...]) -> None:
        self.number = number
        self.key = key
        self.inputs = inputs
        self.payload = f"{key} {number}"  # function and arguments: equal ones are the same task to a worker
        self.duration = 0.001
        self.nbytes = 8
        self.fails = 0  # first runs that raise
        self.reschedules = 0  # runs after those that ask to be run again
        self.secedes = False
        self.starts_killing = 0  # first starts that kill their worker
        self.children = 0  # tasks that it submits
        self.runs = 0  # that have started, anywhere

    def __repr__(self) -> str:
        return f"spec {self.number} of {self.key}"


class Value(NamedTuple):
    """A result: of which life of which key (-1: put there by a client), by which spec."""

    key: str
    life: int
    spec: int


class Meant(NamedTuple):
    """What the scheduler meant by a run."""

    spec: Spec
    life: int
    inputs: dict[str, int]  # key -> life


class Truth:
    """Everything that has happened, as far as it decides what may be told."""

    def __init__(self) -> None:
        self.specs: list[Spec] = []
        self.meant: dict[int, Meant] = {}  # by run_id
        self.spec_of_life: dict[int, Spec] = {}
        self.lives: dict[str, list[int]] = {}  # that are not over, by key
        self.ended: dict[int, int] = {}  # life -> step at which the scheduler forgot it
        self.raised: set[str] = set()  # keys of tasks that raised
        self.deaths: dict[str, int] = {}  # key -> workers that died while it was running
        self.scattered: set[str] = set()
        self.forced: set[str] = set()  # names of clients that cancelled by force
        self.cancelled = False
        self.restarted = False

    def new_spec(self, key: str, inputs: tuple[str, ...]) -> Spec:
        spec = Spec(len(self.specs), key, inputs)
        self.specs.append(spec)
        return spec

    def sent(self, run_id: int, spec: Spec, life: int, inputs: dict[str, int]) -> None:
        known = self.spec_of_life.setdefault(life, spec)
        if known is not spec:
            raise SimulationFailed(f"life {life} of {spec.key!r} is {known}, and then {spec}")
        self.meant[run_id] = Meant(spec, life, inputs)
        for key, each in [(spec.key, life), *inputs.items()]:
            lives = self.lives.setdefault(key, [])
            if each not in lives and each not in self.ended:
                lives.append(each)

    def forgotten(self, key: str, step: int, alive: int) -> None:
        """The scheduler forgot a key by this step. ``alive``: the life that it has by now, or -1."""
        for life in self.lives.pop(key, []):
            if life != alive:
                self.ended[life] = step
        if alive >= 0:
            self.lives[key] = [alive]

    def check_inputs(self, run_id: int, values: dict[str, Value]) -> None:
        """A run uses the values that the scheduler means."""
        meant = self.meant[run_id]
        for key, life in meant.inputs.items():
            value = values[key]
            if value.key != key:
                raise SimulationFailed(f"run {run_id} of {meant.spec.key!r}: {value} is no {key!r}")
            if value.life not in (life, -1):
                raise SimulationFailed(
                    f"run {run_id} of {meant.spec.key!r} uses {key!r} of life {value.life}, meant is {life}"
                )

    def check_result(self, who: str, key: str, value: Value, since: int) -> None:
        """A client that has wanted a key since a step may get this value."""
        if value.key != key:
            raise SimulationFailed(f"{who} wanted {key!r} and got {value}")
        ended = self.ended.get(value.life)
        if ended is not None and ended < since:
            raise SimulationFailed(
                f"{who} got a stale value: {value} was over at step {ended}, wanted since {since}"
            )
