"""In which order should the tasks of a graph run, so that few results are held at once?

Theory of operation
===================
A scheduler that runs a graph breadth first holds everything; one that finishes what it began holds little.
The order found here is static: it is computed once, for one imaginary worker, before anything runs. The real
run follows it as far as its parallelism allows (it is the last part of a priority), and holds about as little.

The measure is the *peak*: the largest number of results held at once, where a result is held from its task
until its last consumer, and a result that nobody consumes is not counted. To find the least peak is to pebble
a graph (Sethi 1975): NP-hard. On trees the *register need* of Sethi and Ullman (1970) solves it, and its idea
(the branch that needs most comes first, while nothing else is held) serves as a label on all graphs. Three
candidates are made, their peaks are counted while they are made, and the least one wins, ties to the first:

1. *Goals* (our own). A goal is a task that ends something: a sink, or a join of which some input has no other
   consumer. Run whatever does not grow the held set, newest first. When nothing of the sort is ready, go on
   towards the current goal, or commit to the one with the least remaining work upstream. Work that goals share
   counts by shares (work of a task / its consumers), which are taken off as it gets done; so finished inputs
   draw the order towards the goals that can use them.
2. *Depth first*: postorder from the sinks, tallest branch first. Good on regular stencils.
3. *First in, first out*: the topological order as Kahn (1962) finds it. Best where the layers are narrow.

Everything works on dense ids: whole numbers below n, given out by the caller in the natural order of the keys
(`KeyOrder`), so that ties fall the same way whatever the order of insertion and the seed of hashing.

The work is a row of stages (see `shunter.state.topology`), advanced by a budget. Nothing recurs and nothing is
scanned again and again, however deep the graph is and however many inputs or consumers a task has: whoever
picks one of the inputs of a task compares `WINDOW` of them.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final, final

from shunter.state.natural import KeyOrder
from shunter.state.topology import (
    Columns,
    CountEdges,
    FillConsumers,
    FillInputs,
    FindCycle,
    Graph,
    LayOut,
    SortByHeight,
    SortTopologically,
    Stage,
)

__all__ = ["KeyOrder", "StaticOrder"]

WORK: Final = 1024  # the work of one task; remaining work is counted in whole parts of it
PASSES: Final = 8  # to how many more tasks the work of one task is passed on
PASS_MIN: Final = 16  # parts of WORK; no more than this is not worth passing on
BULK: Final = 16  # numbers that are freed at the price of one task
WINDOW: Final = 64  # most inputs of one task that are compared when one of them is picked


@final
class StaticOrder:
    """A good sequential order of tasks. Advance it until it says True.

    Args:
        fan_in: how many inputs each task has. Ids are places in this list; the smaller id wins a tie.
        inputs: the ids of those inputs, task by task, each once, in any order. Both lists are used up.

    Attributes:
        order: after finishing, the tasks in running order; empty if there is a cycle.
        cycle: after finishing, the ids along one cycle, each needing the next and the last one the first,
            beginning with the smallest; empty if there is none.
        left: what the last call left of its budget.
    """

    __slots__ = ("best", "bound", "cycle", "graph", "left", "litter", "order", "stage")

    def __init__(self, fan_in: list[int], inputs: list[int]) -> None:
        self.order: list[int] = []
        self.cycle: list[int] = []
        self.left = 0
        self.graph = Graph(fan_in, inputs)
        self.stage: Stage | None = CountEdges(self.graph)
        self.best: Candidate | None = None
        self.bound = 0
        self.litter: list[list[int]] = []  # what finished stages leave behind, to be swept up bit by bit

    def advance(self, budget: int) -> bool:
        """Handle about ``budget`` tasks and edges more. True when finished."""
        while budget > 0 and not self._is_finished():
            if self.litter:
                budget = self._sweep(budget)
            elif self.stage is not None:
                budget = self.stage.advance(budget)
                if budget > 0:
                    self.litter = self.stage.leftovers()
                    self.stage = self._stage_after(self.stage)
        self.left = budget
        return self._is_finished()

    def _is_finished(self) -> bool:
        return self.stage is None and not self.litter

    def _sweep(self, budget: int) -> int:
        """It takes milliseconds to free a hundred thousand numbers."""
        numbers = self.litter[-1]
        count = min(len(numbers), budget * BULK)
        del numbers[len(numbers) - count :]
        if not numbers:
            self.litter.pop()
        return budget - count // BULK

    def _stage_after(self, stage: Stage) -> Stage | None:
        """Take over what a finished stage found, and say what comes next."""
        graph = self.graph
        if isinstance(stage, CountEdges):
            return LayOut(graph)
        if isinstance(stage, LayOut):
            return FillConsumers(graph)
        if isinstance(stage, FillConsumers):
            return SortTopologically(graph)
        if isinstance(stage, SortTopologically):
            if len(graph.fifo) < graph.size:
                return FindCycle(graph, stage.missing)
            return SortByHeight(graph, stage.heights)
        if isinstance(stage, SortByHeight):
            return FillInputs(graph, stage.order)
        if isinstance(stage, FillInputs):
            return Label(graph)
        if isinstance(stage, Label):
            self.bound = stage.bound
            return Goals(graph, stage)
        if isinstance(stage, Goals):
            self.best = stage
            if stage.peak > self.bound:
                return DepthFirst(graph, stage.peak)
        elif isinstance(stage, DepthFirst):
            best = self._better(stage)
            if best.peak > self.bound:
                return Fifo(graph, best.peak)
        elif isinstance(stage, Fifo):
            self._better(stage)
        elif isinstance(stage, FindCycle):
            self.cycle = stage.cycle
        self._finish()
        return None

    def _better(self, candidate: Candidate) -> Candidate:
        """The best so far, this one included; a candidate that gave up has a peak no smaller."""
        assert self.best is not None
        worse = candidate
        if candidate.peak < self.best.peak:
            worse = self.best
            self.best = candidate
        if worse.order is not self.graph.fifo:
            self.litter.append(worse.order)
        return self.best

    def _finish(self) -> None:
        """Hand over the best order, or the cycle; all else is litter."""
        for numbers in self.graph.leftovers():
            if self.best is None or numbers is not self.best.order:
                self.litter.append(numbers)
        if self.best is not None:
            self.order = self.best.order
            self.best = None
        self.graph = Graph([], [])


# ---------------------------------------------------------------------------------------------- labels


@final
class Label(Stage):
    """What the goals go by.

    Attributes:
        needs: the register need of each task: how many results are held to make it, if it were a tree.
        upstream: the work left to do before a task, in parts of `WORK`; shared work counts by shares.
        left: the same with the task's own work, less what its consumers know already to be done.
        is_goal: does the task end something?
        sinks: a heap of the tasks without consumers, cheapest first: (work, id) in one number.
        bound: no order has a smaller peak. On trees this is the least peak.
    """

    __slots__ = (
        "bits",
        "bound",
        "columns",
        "done",
        "graph",
        "is_goal",
        "is_tree",
        "left",
        "neediest",
        "needs",
        "sinks",
        "upstream",
        "widest",
    )

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.bits = graph.size.bit_length()
        self.columns = Columns(graph.size)
        self.needs = self.columns.fill(1)
        self.upstream = self.columns.fill(0)
        self.left = self.columns.fill(WORK)
        self.is_goal = self.columns.fill_flags()
        self.sinks: list[int] = []
        self.bound = 1
        self.is_tree = True  # no task so far has two consumers
        self.neediest = 1  # the largest need so far
        self.widest = 1  # the most inputs so far, and one
        self.done = 0

    def advance(self, budget: int) -> int:
        budget = self.columns.advance(budget)
        graph = self.graph
        while budget > 0 and self.done < graph.size:
            v = graph.fifo[self.done]
            self.done += 1
            if graph.fan_in[v] > 0:
                self._label(v)
            if graph.fan_out[v] == 0:
                self.is_goal[v] = True
                heappush(self.sinks, self.left[v] << self.bits | v)
            elif graph.fan_out[v] > 1:
                self.is_tree = False
            budget -= 1 + graph.fan_in[v]
        self.bound = self.neediest if self.is_tree else self.widest
        return budget

    def _label(self, v: int) -> None:
        graph = self.graph
        inputs = graph.inputs
        fan_out = graph.fan_out
        upstream = 0
        ends_something = False
        needs: list[int] = []
        for edge in range(graph.inputs_at[v], graph.inputs_at[v + 1]):
            d = inputs[edge]
            upstream += self.left[d] // fan_out[d]
            needs.append(self.needs[d])
            if fan_out[d] == 1:
                ends_something = True
        self.widest = max(self.widest, len(needs) + 1)
        need = need_of(needs)
        self.needs[v] = need
        self.neediest = max(self.neediest, need)
        self.upstream[v] = upstream
        self.left[v] = upstream + WORK
        self.is_goal[v] = ends_something and len(needs) > 1


def need_of(needs: list[int]) -> int:
    """The register need of a task whose inputs have these needs (sorts them).

    The neediest input is made first, while nothing is held; the next one while one result is held, and so on.
    In the end all are held, and the task's own result.
    """
    if len(needs) > 1:
        needs.sort(reverse=True)
    most = len(needs) + 1
    for held, need in enumerate(needs):
        if need + held > most:
            most = need + held
    return most


# ---------------------------------------------------------------------------------------------- candidates


class Candidate(Stage):
    """One way to order the graph. ``peak``: the most results held at once so far."""

    __slots__ = ("columns", "graph", "held", "order", "peak", "waits")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.order: list[int] = []
        self.columns = Columns(graph.size)
        self.waits = self.columns.copy(graph.fan_out)  # consumers of each task that have not run
        self.held = 0
        self.peak = 0

    def _count(self, v: int) -> None:
        """Count what is held when v runs."""
        graph = self.graph
        waits = self.waits
        inputs = graph.inputs
        held = self.held + 1
        if held > self.peak:
            self.peak = held
        for edge in range(graph.inputs_at[v], graph.inputs_at[v + 1]):
            d = inputs[edge]
            wait = waits[d] - 1
            waits[d] = wait
            if wait == 0:
                held -= 1
        if graph.fan_out[v] == 0:
            held -= 1
        self.held = held


@final
class Goals(Candidate):
    """Finish what was begun: towards one goal after the other, and whatever is free in between.

    A task is *free* when it is ready and does not grow the held set: it is a sink, or the last consumer of
    some input. A task becomes free only when the waiting consumers of an input fall to one, or when it
    becomes ready: all free tasks are found where those counts change.
    """

    __slots__ = (
        "bits",
        "budget",
        "committed",
        "done",
        "free",
        "goals",
        "is_goal",
        "left",
        "missing",
        "needs",
        "parts",
        "passed_to",
        "path",
        "sinks",
        "upstream",
        "window_at",
    )

    def __init__(self, graph: Graph, label: Label) -> None:
        super().__init__(graph)
        self.bits = label.bits
        self.is_goal = label.is_goal
        self.left = label.left
        self.needs = label.needs
        self.sinks = label.sinks
        self.upstream = label.upstream
        self.missing = self.columns.copy(graph.fan_in)
        self.done = self.columns.fill_flags()
        self.free: list[int] = []  # newest last; some have run by now
        self.goals: list[int] = []  # a heap of (work upstream, clock, id) in one number; some are stale
        self.path: list[int] = []  # from the goal we are committed to down to the task to run next
        self.committed = -1
        self.window_at: dict[int, int] = {}  # tasks with many inputs: the first edge that is missing
        self.passed_to: list[int] = []  # work that is being passed on: to whom,
        self.parts: list[int] = []  # and how much
        self.budget = 0

    def advance(self, budget: int) -> int:
        self.budget = self.columns.advance(budget)
        size = self.graph.size
        while self.budget > 0 and len(self.order) < size:
            v = self._newest_free()
            if v < 0:
                v = self._towards_goal()
            if v >= 0:
                self._run(v)
        return self.budget

    def leftovers(self) -> list[list[int]]:
        lists = [self.free, self.goals, self.left, self.missing, self.needs, self.sinks, self.upstream]
        return [*lists, self.waits]

    def _newest_free(self) -> int:
        """A task that does not grow the held set; -1 if there is none."""
        free = self.free
        while free:
            v = free.pop()
            if not self.done[v]:
                return v
            self.budget -= 1
        return -1

    def _towards_goal(self) -> int:
        """The next task towards the goal; -1 if the budget ran out on the way to it."""
        path = self.path
        missing = self.missing
        while path and self.done[path[-1]]:
            path.pop()
        if not path:
            goal = self._cheapest_goal()
            if goal < 0:
                return -1
            self.committed = goal
            path.append(goal)
        v = path[-1]
        while missing[v] > 0:
            if self.budget <= 0:
                return -1
            v = self._best_input(v)
            path.append(v)
        return v

    def _cheapest_goal(self) -> int:
        """The goal with the least work before it, else the cheapest sink; -1 if the budget ran out."""
        mask = (1 << self.bits) - 1
        goals = self.goals
        sinks = self.sinks
        while goals:
            if self.budget <= 0:
                return -1
            self.budget -= 1
            entry = heappop(goals)
            w = entry & mask
            if not self.done[w] and entry >> (2 * self.bits) == self.upstream[w]:
                return w
        while self.done[sinks[0] & mask]:
            if self.budget <= 0:
                return -1
            self.budget -= 1
            heappop(sinks)
        return sinks[0] & mask

    def _best_input(self, v: int) -> int:
        """The missing input with the largest need, then the least work before it, then the smallest id."""
        graph = self.graph
        inputs = graph.inputs
        needs = self.needs
        upstream = self.upstream
        first = graph.inputs_at[v]
        end = graph.inputs_at[v + 1]
        if end - first > WINDOW:
            first = self._first_missing(v, first)
            end = min(first + WINDOW, end)
        best = -1
        for edge in range(first, end):
            d = inputs[edge]
            if self.done[d]:
                continue
            if best >= 0:
                more = needs[d] - needs[best]
                if more < 0:
                    continue
                if more == 0:
                    less = upstream[best] - upstream[d]
                    if less < 0 or (less == 0 and d > best):
                        continue
            best = d
        self.budget -= 1 + end - first
        return best

    def _first_missing(self, v: int, first: int) -> int:
        inputs = self.graph.inputs
        edge = self.window_at.get(v, first)
        while self.done[inputs[edge]]:
            edge += 1
            self.budget -= 1
        self.window_at[v] = edge
        return edge

    def _run(self, v: int) -> None:
        graph = self.graph
        self.order.append(v)
        self.done[v] = True
        self.held += 1
        if self.held > self.peak:
            self.peak = self.held
        self._use_inputs(v)
        if graph.fan_out[v] == 0:
            self.held -= 1
        else:
            self._feed_consumers(v)
            self._take_work_off(v)
        self.budget -= 1 + graph.fan_in[v] + graph.fan_out[v]

    def _use_inputs(self, v: int) -> None:
        """Whoever is now the last consumer of an input, and ready, has become free."""
        graph = self.graph
        waits = self.waits
        inputs = graph.inputs
        for edge in range(graph.inputs_at[v], graph.inputs_at[v + 1]):
            d = inputs[edge]
            wait = waits[d] - 1
            waits[d] = wait
            if wait == 0:
                self.held -= 1
            elif wait == 1:
                w = self._last_consumer(d)
                if self.missing[w] == 0:
                    self.free.append(w)

    def _last_consumer(self, d: int) -> int:
        """Asked at most once for each task."""
        consumers = self.graph.consumers
        edge = self.graph.consumers_at[d]
        while self.done[consumers[edge]]:
            edge += 1
            self.budget -= 1
        return consumers[edge]

    def _feed_consumers(self, v: int) -> None:
        graph = self.graph
        missing = self.missing
        consumers = graph.consumers
        for edge in range(graph.consumers_at[v], graph.consumers_at[v + 1]):
            w = consumers[edge]
            left = missing[w] - 1
            missing[w] = left
            if left == 0 and self._is_free(w):
                self.free.append(w)

    def _is_free(self, w: int) -> bool:
        """Asked once for each task, when it becomes ready."""
        graph = self.graph
        if graph.fan_out[w] == 0:
            return True
        inputs = graph.inputs
        for edge in range(graph.inputs_at[w], graph.inputs_at[w + 1]):
            self.budget -= 1
            if self.waits[inputs[edge]] == 1:
                return True
        return False

    def _take_work_off(self, v: int) -> None:
        """The work of v is done: its consumers have less before them, and so has whoever comes after them."""
        graph = self.graph
        consumers = graph.consumers
        passed_to = self.passed_to
        share = self.left[v] // graph.fan_out[v]
        passes = PASSES
        for edge in range(graph.consumers_at[v], graph.consumers_at[v + 1]):
            passes = self._absorb(consumers[edge], share, passes)
        place = 0
        while place < len(passed_to):
            passes = self._absorb(passed_to[place], self.parts[place], passes)
            place += 1
        if place > 0:
            passed_to.clear()
            self.parts.clear()

    def _absorb(self, w: int, part: int, passes: int) -> int:
        """A goal keeps the part, and is looked at again; other tasks pass it on as long as they may.

        What may not be passed on stays in ``left``, and is passed on when w itself runs. Along a chain, no
        queue is needed. Returns how many passes are left.
        """
        graph = self.graph
        upstream = self.upstream
        is_goal = self.is_goal
        while True:
            work = upstream[w] - part
            if work < 0:
                work = 0
            upstream[w] = work
            if is_goal[w]:
                if w != self.committed:  # Nobody asks for its entry before it is done.
                    heappush(self.goals, (work << self.bits | len(self.order)) << self.bits | w)
                return passes
            fan_out = graph.fan_out[w]
            if fan_out > passes:
                return passes
            self.left[w] -= part
            part //= fan_out
            if part <= PASS_MIN:
                return passes
            passes -= fan_out
            if fan_out > 1:
                break
            w = graph.consumers[graph.consumers_at[w]]
        for edge in range(graph.consumers_at[w], graph.consumers_at[w + 1]):
            self.passed_to.append(graph.consumers[edge])
            self.parts.append(part)
        return passes


@final
class DepthFirst(Candidate):
    """Postorder from the sinks, by rising id; among the inputs of a task the tallest comes first.

    Gives up when its peak reaches ``limit``.
    """

    __slots__ = ("done", "edges", "limit", "path", "sink")

    def __init__(self, graph: Graph, limit: int) -> None:
        super().__init__(graph)
        self.limit = limit
        self.done = self.columns.fill_flags()
        self.sink = 0  # tasks below were asked whether they are sinks
        self.path: list[int] = []  # from a sink down to the task to make next,
        self.edges: list[int] = []  # and for each of these the first edge not looked at

    def advance(self, budget: int) -> int:
        inputs = self.graph.inputs
        inputs_at = self.graph.inputs_at
        path = self.path
        edges = self.edges
        done = self.done
        budget = self.columns.advance(budget)
        while budget > 0 and self.peak < self.limit:
            if not path:
                budget = self._begin_at_next_sink(budget)
                if not path:
                    break
            v = path[-1]
            first = edges[-1]
            end = inputs_at[v + 1]
            edge = first
            while edge < end and done[inputs[edge]]:
                edge += 1
            budget -= 1 + edge - first
            if edge < end:
                d = inputs[edge]
                edges[-1] = edge + 1
                path.append(d)
                edges.append(inputs_at[d])
            else:
                path.pop()
                edges.pop()
                done[v] = True
                self.order.append(v)
                self._count(v)
        return budget

    def _begin_at_next_sink(self, budget: int) -> int:
        graph = self.graph
        while budget > 0 and self.sink < graph.size:
            v = self.sink
            self.sink += 1
            budget -= 1
            if graph.fan_out[v] == 0:
                self.path.append(v)
                self.edges.append(graph.inputs_at[v])
                break
        return budget


@final
class Fifo(Candidate):
    """The topological order as it is. Gives up when its peak reaches ``limit``."""

    __slots__ = ("limit", "place")

    def __init__(self, graph: Graph, limit: int) -> None:
        super().__init__(graph)
        self.order = graph.fifo
        self.limit = limit
        self.place = 0

    def advance(self, budget: int) -> int:
        budget = self.columns.advance(budget)
        while budget > 0 and self.peak < self.limit and self.place < self.graph.size:
            v = self.order[self.place]
            self.place += 1
            self._count(v)
            budget -= 1 + self.graph.fan_in[v]
        return budget
