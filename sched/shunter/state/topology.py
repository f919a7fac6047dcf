"""A graph by numbers: flat edge lists, a topological order, heights, and the cycle if there is one.

What `shunter.state.ordering` stands on. Tasks are ids: whole numbers below the size of the graph. Everything
is found by *stages*, which are advanced by a budget of tasks and edges, because a compiled call holds the GIL
and the scheduler has others to answer. A stage keeps its own place between calls, so what it finds does not
depend on how the budget was cut. A call exceeds its budget by the edges of one task at most.
"""

from __future__ import annotations

from typing import final

__all__ = [
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


@final
class Graph:
    """Edges in flat lists: those of task v lie from ``…_at[v]`` up to ``…_at[v + 1]``.

    The stages below fill it. No object a task: that is fast, and leaves the collector alone.

    Attributes:
        given: the inputs of each task as the caller gave them.
        fan_in: how many inputs each task has.
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

    def __init__(self, given: list[list[int]]) -> None:
        self.given = given
        self.size = len(given)
        self.fan_in: list[int] = []
        self.fan_out: list[int] = [0] * len(given)
        self.consumers: list[int] = []
        self.consumers_at: list[int] = [0]
        self.inputs: list[int] = []
        self.inputs_at: list[int] = [0]
        self.fifo: list[int] = []

    def leftovers(self) -> list[list[int]]:
        """What is large and of no more use, when the graph is."""
        return [self.consumers, self.consumers_at, self.inputs, self.inputs_at, self.fifo]


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
    """How many inputs and how many consumers has each task?"""

    __slots__ = ("graph", "task")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.task = 0

    def advance(self, budget: int) -> int:
        size = self.graph.size
        given = self.graph.given
        fan_in = self.graph.fan_in
        fan_out = self.graph.fan_out
        task = self.task
        while task < size and budget > 0:
            needed = given[task]
            fan_in.append(len(needed))
            for d in needed:
                assert 0 <= d < size, d
                fan_out[d] += 1
            budget -= 1 + len(needed)
            task += 1
        self.task = task
        return budget


@final
class LayOut(Stage):
    """Where do the edges of each task lie?"""

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
        self.task = end
        return budget - (end - start)


@final
class FillConsumers(Stage):
    """Write each task into the consumers of what it needs."""

    __slots__ = ("cursors", "graph", "task")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.cursors: list[int] = graph.consumers_at.copy()
        self.task = 0
        graph.consumers = [0] * graph.consumers_at[-1]

    def advance(self, budget: int) -> int:
        size = self.graph.size
        given = self.graph.given
        consumers = self.graph.consumers
        cursors = self.cursors
        task = self.task
        while task < size and budget > 0:
            needed = given[task]
            for d in needed:
                place = cursors[d]
                consumers[place] = task
                cursors[d] = place + 1
            budget -= 1 + len(needed)
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

    __slots__ = ("done", "graph", "heights", "missing", "seen")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.missing: list[int] = graph.fan_in.copy()
        self.heights: list[int] = [0] * graph.size
        self.seen = 0  # tasks below were asked whether they are roots
        self.done = 0

    def advance(self, budget: int) -> int:
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

    __slots__ = ("cycle", "given", "missing", "path", "places")

    def __init__(self, graph: Graph, missing: list[int]) -> None:
        self.given = graph.given
        self.missing = missing
        self.cycle: list[int] = []
        self.path: list[int] = []
        self.places: dict[int, int] = {}  # of the tasks on the path

    def advance(self, budget: int) -> int:
        while budget > 0 and not self.cycle:
            task = self._next_task()
            budget -= 1 + len(self.given[task])
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
        missing = self.missing
        if not self.path:
            task = 0
            while missing[task] == 0:
                task += 1
            return task
        task = -1
        for d in self.given[self.path[-1]]:
            if missing[d] > 0 and (task < 0 or d < task):
                task = d
        return task


@final
class SortByHeight(Stage):
    """A counting sort. ``order``: tallest first, then by rising id."""

    __slots__ = ("cursors", "graph", "heights", "order", "placed", "seen")

    def __init__(self, graph: Graph, heights: list[int]) -> None:
        self.graph = graph
        self.heights = heights
        self.order: list[int] = [0] * graph.size
        levels = heights[graph.fifo[-1]] + 1 if graph.fifo else 0
        self.cursors: list[int] = [0] * levels  # by height: the place of the next task
        self.seen = 0
        self.placed = 0

    def advance(self, budget: int) -> int:
        budget = self._find_levels(budget)
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

    __slots__ = ("cursors", "done", "graph", "order")

    def __init__(self, graph: Graph, order: list[int]) -> None:
        self.graph = graph
        self.order = order
        self.cursors: list[int] = graph.inputs_at.copy()
        self.done = 0
        graph.inputs = [0] * graph.inputs_at[-1]

    def advance(self, budget: int) -> int:
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
