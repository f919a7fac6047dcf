"""Graphs: ``{key: Task(fn, *args, **kwargs)}`` with ``Ref(key)`` anywhere in the arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import NamedTuple, TypeVar

from shunter.client.options import build_options, check_key
from shunter.errors import GraphError, UsageError
from shunter.serialize import dump_call, is_collecting, reference
from shunter.wire.messages import TaskOptions

__all__ = ["Call", "Ref", "Task", "check_graph", "walk"]

T = TypeVar("T")


class Ref:
    """Stands for the result of another task of the same graph: ``Task(add, Ref("x"), [Ref("y"), 1])``."""

    __slots__ = ("key",)

    def __init__(self, key: str) -> None:
        self.key = check_key(key, "the key of a Ref")

    def __repr__(self) -> str:
        return f"Ref({self.key!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and other.key == self.key

    def __hash__(self) -> int:
        return hash(("shunter.Ref", self.key))

    def __reduce__(self) -> tuple[object, ...]:
        return reference(self.key) or (Ref, (self.key,))


class Task:
    """A call that is to be made: a function, and arguments that may hold `Ref`s and futures at any depth.

    Results of other tasks come as `Ref`; a `Task` inside the arguments of a task is refused.
    """

    __slots__ = ("args", "fn", "kwargs", "options")

    def __init__(self, fn: Callable[..., object], /, *args: object, **kwargs: object) -> None:
        if not callable(fn):
            raise UsageError(f"Task takes a function first, not {type(fn).__name__}: {fn!r:.100}")
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
        self.options: TaskOptions | None = None

    def with_options(self, **options: object) -> Task:
        """The same task with options of `Client.submit` (``retries=``, ``workers=``, ``priority=`` …) of its own."""
        task = Task(self.fn, *self.args, **self.kwargs)
        checked: Callable[..., TaskOptions | None] = build_options
        try:
            task.options = checked(**options)
        except TypeError as error:
            if isinstance(error, UsageError):
                raise
            raise UsageError(f"Task.with_options: {error}") from error
        return task

    def __repr__(self) -> str:
        arguments = [repr(each) for each in self.args] + [f"{k}={v!r}" for k, v in self.kwargs.items()]
        return f"Task({', '.join([getattr(self.fn, '__qualname__', repr(self.fn)), *arguments])})"

    def __reduce__(self) -> tuple[object, ...]:
        if is_collecting():
            raise UsageError(
                f"{self!r:.100} stands in the arguments of another task: give it a key and pass Ref(key)"
            )
        return (_rebuild, (self.fn, self.args, self.kwargs, self.options))


def _rebuild(
    fn: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    options: TaskOptions | None,
) -> Task:
    task = Task(fn, *args, **kwargs)
    task.options = options
    return task


class Call(NamedTuple):
    """One task, ready to be sent."""

    key: str
    fn: Callable[..., object]
    data: bytes
    inputs: list[str]
    options: TaskOptions | None


def check_graph(graph: Mapping[str, Task]) -> None:
    """Check keys and values.

    Raises:
        UsageError: a key that is no text, or a value that is no `Task`.
    """
    if not isinstance(graph, Mapping):
        raise UsageError(f"a graph is a dict {{key: Task(fn, ...)}}, not {type(graph).__name__}")
    items: Iterable[tuple[object, object]] = graph.items()
    for key, task in items:
        if not isinstance(key, str) or not key:
            raise UsageError(f"keys of a graph are non-empty str, not {type(key).__name__}: {key!r:.100}")
        if not isinstance(task, Task):
            raise UsageError(
                f"graph[{key!r}] must be a Task, not {type(task).__name__}: write Task(fn, *args); data goes into "
                "the arguments"
            )


def walk(
    graph: Mapping[str, Task],
    wanted: Iterable[str],
    *,
    is_known: Callable[[str], bool],
    owner: object,
    name_of: Callable[[Callable[..., object]], str],
) -> Iterator[Call]:
    """Pickle the tasks that the wanted ones need, each once, as they are found; the rest is left out.

    Args:
        graph: all tasks.
        wanted: keys whose results are wanted.
        is_known: whether a key that is not in the graph belongs to a live future.
        owner: see `shunter.serialize.dump_call`.
        name_of: display name of a function, for errors.

    Raises:
        GraphError: at the end a cycle, or on the way an input that is nowhere; UsageError: an argument that
            cannot be pickled. What was yielded before is then to be given up.
    """
    inputs: dict[str, list[str]] = {}
    stack = list(dict.fromkeys(wanted))
    for key in stack:
        if key not in graph:
            raise GraphError(f"the wanted key {key!r} is not in the graph{_close(key, graph)}")
    stack.reverse()
    seen = set(stack)
    while stack:
        key = stack.pop()
        task = graph[key]
        try:
            data, found = dump_call(task.args, task.kwargs, name=name_of(task.fn), owner=owner)
        except UsageError as error:
            raise UsageError(f"graph[{key!r}]: {error}") from error
        inside = []
        for each in found:
            if each in graph:
                inside.append(each)
                if each not in seen:
                    seen.add(each)
                    stack.append(each)
            elif not is_known(each):
                raise GraphError(
                    f"task {key!r} needs {each!r}, which is neither in the graph nor a future of this client"
                    + _close(each, graph)
                )
        inputs[key] = inside
        yield Call(key, task.fn, data, found, task.options)
    cycle = find_cycle(inputs)
    if cycle:
        shown = cycle if len(cycle) <= 12 else [*cycle[:6], "…", *cycle[-5:]]
        raise GraphError("the graph has a cycle: " + " needs ".join(map(repr, shown)).replace("'…'", "…"))


def find_cycle(inputs: Mapping[str, Iterable[str]]) -> list[str]:
    """One cycle as a path that begins and ends with the same key; empty if there is none. Without recursion."""
    done: set[str] = set()
    for start in inputs:
        if start in done:
            continue
        path: dict[str, Iterator[str]] = {start: iter(inputs[start])}
        order = [start]
        while order:
            following = next(path[order[-1]], None)
            if following is None:
                key = order.pop()
                del path[key]
                done.add(key)
            elif following in path:
                return [*order[order.index(following) :], following]
            elif following not in done:
                path[following] = iter(inputs[following])
                order.append(following)
    return []


def _close(key: str, graph: Mapping[str, Task]) -> str:
    if len(graph) > 10_000:
        return ""
    close = get_close_matches(key, list(graph), n=3, cutoff=0.7)
    return f" (close: {', '.join(map(repr, close))})" if close else ""
