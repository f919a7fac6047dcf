"""What tasks are, what their values must be, and what has really happened: the judge of results and of errors.

A value remembers of which life of its key it is. The scheduler's ComputeTasks says which lives it means; so a run that
uses another value, or a client that gets one, is found out at once. Besides, a value has a digest of all that it was
computed from; for keys that are submitted once, it is known from the submissions alone what that must be.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32


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
        "kids",
        "nbytes",
        "number",
        "payload",
        "reschedules",
        "runs",
        "secedes",
        "starts_killing",
        "unsendable",
        "waits",
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
        self.waits = False  # for them, on no thread of its worker
        self.unsendable = False  # its value cannot leave the worker
        self.kids: list[Spec] | None = None  # those that it waits for: the same in each run
        self.runs = 0  # that have started, anywhere

    def __repr__(self) -> str:
        return f"spec {self.number} of {self.key}"


class Value(NamedTuple):
    """A result: of which life of which key (-1: put there by a client), by which spec, computed from what."""

    key: str
    life: int
    spec: int
    digest: int


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
        self.raised: set[int] = set()  # numbers of specs whose runs raised
        self.deaths: dict[str, int] = {}  # key -> workers that died while it was running
        self.scattered: set[str] = set()
        self.refused: set[str] = set()  # keys of graphs that must not become tasks
        self.forced: set[str] = set()  # names of clients that cancelled by force
        self.cancelled = False
        self._specs_of: dict[str, list[Spec]] = {}
        self._models: dict[str, int | None] = {}
        self.restarted = False

    def new_spec(self, key: str, inputs: tuple[str, ...]) -> Spec:
        spec = Spec(len(self.specs), key, inputs)
        self.specs.append(spec)
        self._specs_of.setdefault(key, []).append(spec)
        return spec

    def data_value(self, key: str) -> Value:
        """What a client puts on workers under a key."""
        return Value(key, -1, -1, crc32(key.encode()))

    def value_of(self, spec: Spec, life: int, inputs: dict[str, Value], kids: list[Value]) -> Value:
        """What a run gives."""
        digests = [inputs[key].digest for key in spec.inputs] + [kid.digest for kid in kids]
        return Value(spec.key, life, spec.number, digest_of(spec, digests))

    def model_of(self, key: str) -> int | None:
        """The digest that a value must have, if that follows from what was submitted; else None."""
        stack = [key]
        while stack:
            top = stack[-1]
            if top in self._models:
                stack.pop()
                continue
            if top in self.scattered:
                self._models[top] = self.data_value(top).digest
                continue
            specs = self._specs_of.get(top, [])
            if len(specs) != 1:
                self._models[top] = None  # submitted by nobody, or again and again
                continue
            needed = [*specs[0].inputs, *[kid.key for kid in specs[0].kids or ()]]
            missing = [each for each in needed if each not in self._models]
            if missing:
                stack += missing
                continue
            models = [self._models[each] for each in needed]
            known = [each for each in models if each is not None]
            self._models[top] = digest_of(specs[0], known) if len(known) == len(models) else None
        return self._models[key]

    def sent(self, run_id: int, spec: Spec, life: int, inputs: dict[str, int]) -> None:
        if spec.key in self.refused:
            raise SimulationFailed(f"{spec} runs, of a graph that must be refused")
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

    def specs_of(self, key: str) -> list[Spec]:
        """All that was submitted under a key."""
        return self._specs_of.get(key, [])

    def inputs_of(self, key: str) -> list[str]:
        """All that was ever an input of a key."""
        return [name for spec in self.specs_of(key) for name in spec.inputs]

    def is_unsendable(self, value: Value) -> bool:
        """It cannot be pickled."""
        return value.spec >= 0 and self.specs[value.spec].unsendable

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

    def is_stale(self, life: int, since: int) -> bool:
        """That life was over when the client came to want the key."""
        ended = self.ended.get(life)
        return ended is not None and ended < since

    def check_result(self, who: str, key: str, value: Value, since: int) -> None:
        """A client that has wanted a key since a step may get this value."""
        if value.key != key:
            raise SimulationFailed(f"{who} wanted {key!r} and got {value}")
        if not key.startswith("fixed"):
            model = self.model_of(key)
            if model is not None and value.digest != model:
                raise SimulationFailed(f"{who} got {value}, which was computed from the wrong values")
        ended = self.ended.get(value.life)
        if ended is not None and ended < since:
            raise SimulationFailed(
                f"{who} got a stale value: {value} was over at step {ended}, wanted since {since}"
            )


def digest_of(spec: Spec, digests: list[int]) -> int:
    """All that a value depends on, in one number. Of numbers only, whose hash is the same in every process."""
    return hash((crc32(spec.payload.encode()), *digests))
