"""A graph by numbers: flat edge lists, a topological order, heights, and the cycle if there is one.

What `shunter.state.ordering` stands on. Tasks are ids: whole numbers below the size of the graph. Everything
is found by *stages*, which are advanced by a budget of tasks and edges, because a compiled call holds the GIL
and the scheduler has others to answer. A stage keeps its own place between calls, so what it finds does not
depend on how the budget was cut. A call exceeds its budget by the edges of one task at most.
"""

from __future__ import annotations

from typing import Final, final

__all__ = [
    "Columns",
    "CountEdges",
    "FillConsumers",
    "FillInputs",
    "FindCycle",
    "Graph",
    "LayOut",
    "SortByHeight",
    "SortTopologically",
    "Stage",
]

COPIED: Final = 64  # numbers that are copied at the price of one task


@final
class Graph:
    """Edges in flat lists: those of task v lie from ``…_at[v]`` up to ``…_at[v + 1]``.

    The stages below fill it. No object a task: that is fast, and leaves the collector alone.

    Args:
        fan_in: how many inputs each task has.
        given: those inputs, task by task, in any order.

    Attributes:
        fan_out: how many consumers each task has.
        consumers: who needs a task, by rising id.
        inputs: what a task needs: tallest first, then by rising id. The height of a task is the number of
            edges on the longest path from a root to it.
        fifo: all tasks, each after what it needs: roots by id, then whatever becomes ready, in that order.
            Hence also by rising height.
    """

    __slots__ = (
        "consumers",
        "consumers_at",
        "fan_in",
        "fan_out",
        "fifo",
        "given",
        "inputs",
        "inputs_at",
        "size",
    )

    def __init__(self, fan_in: list[int], given: list[int]) -> None:
        self.fan_in = fan_in
        self.given = given
        self.size = len(fan_in)
        self.fan_out: list[int] = []
        self.consumers: list[int] = []
        self.consumers_at: list[int] = [0]
        self.inputs: list[int] = []
        self.inputs_at: list[int] = [0]
        self.fifo: list[int] = []

    def leftovers(self) -> list[list[int]]:
        """What is large and of no more use, when the graph is."""
        return [
            self.given,
            self.fan_in,
            self.fan_out,
            self.consumers,
            self.consumers_at,
            self.inputs,
            self.inputs_at,
            self.fifo,
        ]


@final
class Columns:
    """Fills lists that a stage needs, bit by bit: it takes milliseconds to copy a million numbers."""

    __slots__ = ("at", "flags", "numbers", "size", "sources")

    def __init__(self, size: int) -> None:
        self.size = size
        self.numbers: list[list[int]] = []
        self.sources: list[list[int]] = []  # a source of one number is that number, over and over
        self.flags: list[list[bool]] = []
        self.at = 0

    def copy(self, source: list[int]) -> list[int]:
        """A list that will hold the first ``size`` numbers of another."""
        found: list[int] = []
        self.numbers.append(found)
        self.sources.append(source)
        return found

    def fill(self, number: int) -> list[int]:
        return self.copy([number])

    def fill_flags(self) -> list[bool]:
        """A list that will hold ``size`` times False."""
        found: list[bool] = []
        self.flags.append(found)
        return found

    def advance(self, budget: int) -> int:
        """As a stage: what is left of the budget is positive only when all are full."""
        start = self.at
        if start == self.size or budget <= 0:
            return budget
        width = len(self.numbers) + len(self.flags)
        end = min(start + budget * COPIED // width + 1, self.size)
        for i in range(len(self.numbers)):
            source = self.sources[i]
            self.numbers[i].extend(source * (end - start) if len(source) == 1 else source[start:end])
        for flags in self.flags:
            flags.extend([False] * (end - start))
        self.at = end
        return budget - (end - start) * width // COPIED - 1


class Stage:
    """Work that is done bit by bit."""

    __slots__ = ()

    def advance(self, budget: int) -> int:
        """Handle about ``budget`` tasks and edges; return what is left of it, positive only when finished."""
        raise NotImplementedError

    def leftovers(self) -> list[list[int]]:
        """What is large and of no more use, when the stage is finished."""
        return []


@final
class CountEdges(Stage):
    """How many consumers has each task?"""

    __slots__ = ("columns", "edge", "graph")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.columns = Columns(graph.size)
        graph.fan_out = self.columns.fill(0)
        self.edge = 0

    def advance(self, budget: int) -> int:
        budget = self.columns.advance(budget)
        if budget <= 0:
            return budget
        size = self.graph.size
        given = self.graph.given
        fan_out = self.graph.fan_out
        start = self.edge
        end = min(start + budget, len(given))
        for edge in range(start, end):
            d = given[edge]
            assert 0 <= d < size, d
            fan_out[d] += 1
        self.edge = end
        return budget - (end - start)


@final
class LayOut(Stage):
    """Where do the edges of each task lie? Makes room for them."""

    __slots__ = ("graph", "task")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.task = 0

    def advance(self, budget: int) -> int:
        graph = self.graph
        consumers_at = graph.consumers_at
        inputs_at = graph.inputs_at
        consumers = consumers_at[-1]
        inputs = inputs_at[-1]
        start = self.task
        end = min(start + budget, graph.size)
        for task in range(start, end):
            consumers += graph.fan_out[task]
            consumers_at.append(consumers)
            inputs += graph.fan_in[task]
            inputs_at.append(inputs)
        graph.consumers.extend([0] * (consumers - len(graph.consumers)))
        graph.inputs.extend([0] * (inputs - len(graph.inputs)))
        self.task = end
        return budget - (end - start)


@final
class FillConsumers(Stage):
    """Write each task into the consumers of what it needs."""

    __slots__ = ("columns", "cursors", "graph", "task")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.columns = Columns(graph.size)
        self.cursors = self.columns.copy(graph.consumers_at)
        self.task = 0

    def advance(self, budget: int) -> int:
        budget = self.columns.advance(budget)
        size = self.graph.size
        given = self.graph.given
        given_at = self.graph.inputs_at
        consumers = self.graph.consumers
        cursors = self.cursors
        task = self.task
        while task < size and budget > 0:
            first = given_at[task]
            end = given_at[task + 1]
            for edge in range(first, end):
                d = given[edge]
                place = cursors[d]
                consumers[place] = task
                cursors[d] = place + 1
            budget -= 1 + end - first
            task += 1
        self.task = task
        return budget

    def leftovers(self) -> list[list[int]]:
        return [self.cursors]


@final
class SortTopologically(Stage):
    """Fill ``graph.fifo`` (Kahn 1962), and find the heights.

    Tasks on a cycle, or after one, do not get there: they keep ``missing`` inputs.
    Whoever brings a task its last input is its tallest input, for tasks come up by rising height.
    """

    __slots__ = ("columns", "done", "graph", "heights", "missing", "seen")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.columns = Columns(graph.size)
        self.missing = self.columns.copy(graph.fan_in)
        self.heights = self.columns.fill(0)
        self.seen = 0  # tasks below were asked whether they are roots
        self.done = 0

    def advance(self, budget: int) -> int:
        budget = self.columns.advance(budget)
        if budget > 0:
            budget = self._begin_with_roots(budget)
        graph = self.graph
        fifo = graph.fifo
        consumers = graph.consumers
        consumers_at = graph.consumers_at
        missing = self.missing
        heights = self.heights
        done = self.done
        while budget > 0 and done < len(fifo):
            v = fifo[done]
            done += 1
            above = heights[v] + 1
            first = consumers_at[v]
            end = consumers_at[v + 1]
            for edge in range(first, end):
                w = consumers[edge]
                left = missing[w] - 1
                missing[w] = left
                if left == 0:
                    heights[w] = above
                    fifo.append(w)
            budget -= 1 + end - first
        self.done = done
        return budget

    def _begin_with_roots(self, budget: int) -> int:
        graph = self.graph
        start = self.seen
        end = min(start + budget, graph.size)
        for task in range(start, end):
            if graph.fan_in[task] == 0:
                graph.fifo.append(task)
        self.seen = end
        return budget - (end - start)


@final
class FindCycle(Stage):
    """Walk from a task that never became ready along inputs that did not, until a task comes up again.

    ``cycle``: each task needs the next one, the last one the first; it begins with the smallest.
    """

    __slots__ = ("cycle", "graph", "missing", "path", "places", "seen")

    def __init__(self, graph: Graph, missing: list[int]) -> None:
        self.graph = graph
        self.missing = missing
        self.cycle: list[int] = []
        self.seen = 0  # tasks below are ready
        self.path: list[int] = []
        self.places: dict[int, int] = {}  # of the tasks on the path

    def advance(self, budget: int) -> int:
        missing = self.missing
        while budget > 0 and missing[self.seen] == 0:
            self.seen += 1
            budget -= 1
        while budget > 0 and not self.cycle:
            task = self._next_task()
            budget -= 1 + self.graph.fan_in[task]
            if task in self.places:
                self.cycle = self.path[self.places[task] :]
                start = self.cycle.index(min(self.cycle))
                self.cycle = self.cycle[start:] + self.cycle[:start]
            else:
                self.places[task] = len(self.path)
                self.path.append(task)
        return budget

    def _next_task(self) -> int:
        """The smallest that is not ready: of all tasks at first, then of the inputs of the last one."""
        if not self.path:
            return self.seen
        given = self.graph.given
        given_at = self.graph.inputs_at
        last = self.path[-1]
        task = -1
        for edge in range(given_at[last], given_at[last + 1]):
            d = given[edge]
            if self.missing[d] > 0 and (task < 0 or d < task):
                task = d
        return task


@final
class SortByHeight(Stage):
    """A counting sort. ``order``: tallest first, then by rising id."""

    __slots__ = ("columns", "cursors", "graph", "heights", "levels", "order", "placed", "seen")

    def __init__(self, graph: Graph, heights: list[int]) -> None:
        self.graph = graph
        self.heights = heights
        self.columns = Columns(graph.size)
        self.order = self.columns.fill(0)
        self.levels = Columns(heights[graph.fifo[-1]] + 1 if graph.fifo else 0)
        self.cursors = self.levels.fill(0)  # by height: the place of the next task
        self.seen = 0
        self.placed = 0

    def advance(self, budget: int) -> int:
        budget = self.columns.advance(budget)
        if budget > 0:
            budget = self.levels.advance(budget)
        if budget > 0:
            budget = self._find_levels(budget)
        if budget <= 0:
            return budget
        heights = self.heights
        cursors = self.cursors
        order = self.order
        start = self.placed
        end = min(start + budget, self.graph.size)
        for task in range(start, end):
            height = heights[task]
            place = cursors[height]
            order[place] = task
            cursors[height] = place + 1
        self.placed = end
        return budget - (end - start)

    def _find_levels(self, budget: int) -> int:
        """Where does each height begin? ``graph.fifo`` is sorted by height already, shortest first."""
        size = self.graph.size
        fifo = self.graph.fifo
        heights = self.heights
        start = self.seen
        end = min(start + budget, size)
        for place in range(start, end):
            height = heights[fifo[size - 1 - place]]
            if place == 0 or height < heights[fifo[size - place]]:
                self.cursors[height] = place
        self.seen = end
        return budget - (end - start)

    def leftovers(self) -> list[list[int]]:
        return [self.cursors, self.heights]


@final
class FillInputs(Stage):
    """Write each task into the inputs of its consumers, in the given order of all tasks."""

    __slots__ = ("columns", "cursors", "done", "graph", "order")

    def __init__(self, graph: Graph, order: list[int]) -> None:
        self.graph = graph
        self.order = order
        self.columns = Columns(graph.size)
        self.cursors = self.columns.copy(graph.inputs_at)
        self.done = 0

    def advance(self, budget: int) -> int:
        budget = self.columns.advance(budget)
        order = self.order
        consumers = self.graph.consumers
        consumers_at = self.graph.consumers_at
        inputs = self.graph.inputs
        cursors = self.cursors
        done = self.done
        while budget > 0 and done < len(order):
            v = order[done]
            done += 1
            first = consumers_at[v]
            end = consumers_at[v + 1]
            for edge in range(first, end):
                w = consumers[edge]
                place = cursors[w]
                inputs[place] = v
                cursors[w] = place + 1
            budget -= 1 + end - first
        self.done = done
        return budget

    def leftovers(self) -> list[list[int]]:
        return [self.cursors, self.order]
