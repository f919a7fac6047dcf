"""Shapes of task graphs: those that the benchmarks run, and the families on which orders are judged.

A shape is plain structure. Tasks are numbers in the order in which they were added, inputs first; keys are text
whose natural order is the one a person would write them in.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Final


class Shape:
    """A graph without functions.

    Attributes:
        keys: the key of each task.
        inputs: for each task the tasks that it needs, by number, rising.
    """

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.inputs: list[list[int]] = []

    def add(self, key: str, needs: Iterable[int] = ()) -> int:
        """Add a task; returns its number."""
        self.keys.append(key)
        self.inputs.append(sorted(set(needs)))
        return len(self.keys) - 1

    def add_row(self, name: str, count: int) -> list[int]:
        """Add ``count`` tasks that need nothing."""
        return [self.add(f"{name}-{i}") for i in range(count)]

    def map_row(self, name: str, row: Iterable[int]) -> list[int]:
        """Add one task for each of a row."""
        return [self.add(f"{name}-{i}", [task]) for i, task in enumerate(row)]

    def reduce(self, name: str, row: list[int], by: int) -> int:
        """Add a tree over a row; returns its root."""
        level = 0
        while len(row) > 1:
            level += 1
            groups = [row[at : at + by] for at in range(0, len(row), by)]
            row = [self.add(f"{name}-{level}-{i}", group) for i, group in enumerate(groups)]
        return row[0]

    def __len__(self) -> int:
        return len(self.keys)

    def sinks(self) -> list[int]:
        """The tasks that nobody needs."""
        needed = {task for needs in self.inputs for task in needs}
        return [task for task in range(len(self)) if task not in needed]


# ---------------------------------------------------------------------------------------------- to run


def independent(n: int) -> Shape:
    shape = Shape()
    shape.add_row("inc", n)
    return shape


def chains(n: int, count: int = 100) -> Shape:
    """``count`` chains side by side, as deep as they need to be."""
    shape = Shape()
    row = shape.add_row("inc-0", min(n, count))
    for depth in range(1, n // count):
        row = shape.map_row(f"inc-{depth}", row)
    return shape


def tree(n: int) -> Shape:
    """A binary tree of sums over n // 2 leaves."""
    shape = Shape()
    row = shape.add_row("leaf", max(1, n // 2))
    level = 0
    while len(row) > 1:
        level += 1
        pairs = zip(row[::2], row[1::2])
        above = [shape.add(f"add-{level}-{i}", pair) for i, pair in enumerate(pairs)]
        row = above + row[len(above) * 2 :]
    return shape


def all_to_all(n: int) -> Shape:
    """k inputs are split into k parts each, and k outputs join one part of each: k + k² + k tasks."""
    k = 1
    while (k + 1) ** 2 + 2 * (k + 1) <= n:
        k += 1
    shape = Shape()
    load = shape.add_row("load", k)
    split = [[shape.add(f"split-{i}-{j}", [load[i]]) for j in range(k)] for i in range(k)]
    for j in range(k):
        shape.add(f"join-{j}", [row[j] for row in split])
    return shape


def merge(n: int, by: int = 10) -> Shape:
    """Groups of ``by`` tasks, and one task that takes them all, for each group."""
    shape = Shape()
    for group in range(max(1, n // (by + 1))):
        row = [shape.add(f"map-{group * by + i}") for i in range(by)]
        shape.add(f"merge-{group}", row)
    return shape


def chain(n: int) -> Shape:
    return chains(n, 1)


#: What `benchmarks.micro.core` runs: about n tasks each.
CORE: Final[dict[str, Callable[[int], Shape]]] = {
    "independent": independent,
    "chains": chains,
    "tree": tree,
    "shuffle": all_to_all,
    "merge": merge,
}


# ---------------------------------------------------------------------------------------------- to order


def tree_reduce(n: int = 256, by: int = 4) -> Shape:
    shape = Shape()
    shape.reduce("sum", shape.map_row("map", shape.add_row("load", n)), by)
    return shape


def shuffle(k: int = 20) -> Shape:
    """Load, split, all to all."""
    shape = Shape()
    split = shape.map_row("split", shape.add_row("load", k))
    parts = [[shape.add(f"part-{i}-{j}", [split[i]]) for j in range(k)] for i in range(k)]
    for j in range(k):
        shape.add(f"join-{j}", [row[j] for row in parts])
    return shape


def stencil(width: int = 40, steps: int = 16) -> Shape:
    """Each cell needs itself and its neighbours, one step before."""
    shape = Shape()
    row = shape.add_row("cell-0", width)
    for step in range(1, steps + 1):
        row = [shape.add(f"cell-{step}-{i}", row[max(0, i - 1) : i + 2]) for i in range(width)]
    shape.add("final", row)
    return shape


def cholesky(n: int = 12) -> Shape:
    """The blocked factorisation of a symmetric matrix of n × n blocks."""
    shape = Shape()
    block = {(i, j): shape.add(f"load-{i}-{j}") for i in range(n) for j in range(i + 1)}
    for k in range(n):
        block[k, k] = shape.add(f"potrf-{k}", [block[k, k]])
        for i in range(k + 1, n):
            block[i, k] = shape.add(f"trsm-{i}-{k}", [block[i, k], block[k, k]])
        for i in range(k + 1, n):
            for j in range(k + 1, i + 1):
                block[i, j] = shape.add(f"gemm-{i}-{j}-{k}", [block[i, j], block[i, k], block[j, k]])
    return shape


def matmul(n: int = 8) -> Shape:
    """The blocked product of two matrices."""
    shape = Shape()
    a = [shape.add_row(f"a-{i}", n) for i in range(n)]
    b = [shape.add_row(f"b-{i}", n) for i in range(n)]
    for i in range(n):
        for j in range(n):
            products = [shape.add(f"mul-{i}-{j}-{k}", [a[i][k], b[k][j]]) for k in range(n)]
            shape.add(f"sum-{i}-{j}", products)
    return shape


def rechunk(rows: int = 16, columns: int = 48) -> Shape:
    """Each new chunk takes slices of up to five old ones."""
    shape = Shape()
    load = shape.add_row("load", rows)
    for j in range(columns):
        middle = j * rows // columns
        near = [i for i in range(middle - 2, middle + 3) if 0 <= i < rows]
        slices = [shape.add(f"slice-{j}-{i}", [load[i]]) for i in near]
        shape.add(f"store-{j}", [shape.add(f"merge-{j}", slices)])
    return shape


def climatology(years: int = 12, months: int = 12, places: int = 4) -> Shape:
    """Means of each month over all years, then each year's departure from them."""
    shape = Shape()
    for s in range(places):
        load = [shape.add_row(f"load-{s}-{y}", months) for y in range(years)]
        anomalies: list[list[int]] = [[] for _ in range(years)]
        for m in range(months):
            sums = [shape.add(f"psum-{s}-{y}-{m}", [load[y][m]]) for y in range(years)]
            mean = shape.add(f"clim-{s}-{m}", sums)
            for y in range(years):
                anomalies[y].append(shape.add(f"anom-{s}-{y}-{m}", [load[y][m], mean]))
        means = []
        for y, row in enumerate(anomalies):
            means.append(shape.add(f"ymean-{s}-{y}", shape.map_row(f"part-{s}-{y}", row)))
        shape.add(f"total-{s}", means)
    return shape


def map_overlap(n: int = 14) -> Shape:
    """A grid in which each cell needs the rims of its eight neighbours."""
    shape = Shape()
    load = [shape.add_row(f"load-{i}", n) for i in range(n)]
    sums = []
    for i in range(n):
        row = []
        for j in range(n):
            near = [
                (x, y) for x in range(i - 1, i + 2) for y in range(j - 1, j + 2) if 0 <= x < n and 0 <= y < n
            ]
            pieces = []
            for x, y in near:
                own = (x, y) == (i, j)
                pieces.append(load[x][y] if own else shape.add(f"halo-{i}-{j}-{x}-{y}", [load[x][y]]))
            joined = shape.add(f"join-{i}-{j}", pieces)
            row.append(shape.add(f"trim-{i}-{j}", [shape.add(f"func-{i}-{j}", [joined])]))
        sums.append(shape.add(f"rsum-{i}", row))
    shape.add("sum", sums)
    return shape


def cross_validation(folds: int = 8, parameters: int = 24) -> Shape:
    """Each parameter is fitted on all folds but one, and scored on that one."""
    shape = Shape()
    data = shape.add("data")
    fold = [shape.add(f"fold-{i}", [data]) for i in range(folds)]
    train = [shape.add(f"train-{i}", fold[:i] + fold[i + 1 :]) for i in range(folds)]
    means = []
    for p in range(parameters):
        scores = []
        for i in range(folds):
            fit = shape.add(f"fit-{p}-{i}", [train[i]])
            scores.append(shape.add(f"score-{p}-{i}", [fit, fold[i]]))
        means.append(shape.add(f"mean-{p}", scores))
    shape.add("best", means)
    return shape


def etl(n: int = 120) -> Shape:
    """Files are read, joined with one lookup table, and written; statistics are gathered along the way."""
    shape = Shape()
    lookup = shape.add("lookup", [shape.add("rawlookup")])
    ends = []
    for i in range(n):
        joined = shape.add(f"join-{i}", [shape.add(f"parse-{i}", [shape.add(f"read-{i}")]), lookup])
        written = shape.add(f"write-{i}", [shape.add(f"filter-{i}", [joined])])
        ends += [shape.add(f"stats-{i}", [joined]), written]
    shape.reduce("agg", ends, 8)
    return shape


def layered_random(width: int = 40, depth: int = 15, seed: int = 1) -> Shape:
    """Each task needs one to four of the layer before, anywhere."""
    rng = random.Random(seed)
    shape = Shape()
    row = shape.add_row("layer-0", width)
    for level in range(1, depth):
        row = [shape.add(f"layer-{level}-{i}", rng.sample(row, rng.randint(1, 4))) for i in range(width)]
    return shape


def layered_local(width: int = 40, depth: int = 15, seed: int = 1) -> Shape:
    """Each task needs one to four of the layer before, nearby."""
    rng = random.Random(seed)
    shape = Shape()
    row = shape.add_row("layer-0", width)
    for level in range(1, depth):
        above = []
        for i in range(width):
            near = [min(width - 1, max(0, i + rng.randint(-3, 3))) for _ in range(rng.randint(1, 4))]
            above.append(shape.add(f"layer-{level}-{i}", [row[x] for x in near]))
        row = above
    return shape


def wide_narrow(n: int = 300) -> Shape:
    """One root, a wide middle whose halves meet, a narrow end."""
    shape = Shape()
    root = shape.add("root")
    first = [shape.add(f"first-{i}", [root]) for i in range(n)]
    second = shape.map_row("second", first)
    half = n // 2
    pairs = [shape.add(f"pair-{i}", [second[i], second[(i + half) % n]]) for i in range(half)]
    joins = [shape.add(f"join-{at // 10}", pairs[at : at + 10]) for at in range(0, half, 10)]
    shape.add("end", joins)
    return shape


def two_datasets(n: int = 96) -> Shape:
    """The covariance of two columns: their product and both squares, each summed by a tree."""
    shape = Shape()
    a = shape.map_row("clean_a", shape.add_row("load_a", n))
    b = shape.map_row("clean_b", shape.add_row("load_b", n))
    terms = {
        "ab": [shape.add(f"mul_ab-{i}", pair) for i, pair in enumerate(zip(a, b))],
        "aa": shape.map_row("square_a", a),
        "bb": shape.map_row("square_b", b),
    }
    sums = [shape.reduce(f"sum_{name}", shape.map_row(f"part_{name}", row), 4) for name, row in terms.items()]
    shape.add("cov", sums)
    return shape


def chains_join(n: int = 40, length: int = 12) -> Shape:
    """Chains of different lengths, joined by four tasks and one."""
    shape = Shape()
    ends = []
    for c in range(n):
        task = shape.add(f"chain-{c}-0")
        for i in range(1, length + c % 5):
            task = shape.add(f"chain-{c}-{i}", [task])
        ends.append(task)
    shape.add("end", [shape.add(f"join-{i}", ends[i::4]) for i in range(4)])
    return shape


def tsqr(n: int = 40) -> Shape:
    """A tall matrix's QR by blocks: all of R is needed before Q can be used."""
    shape = Shape()
    qr = shape.map_row("qr", shape.add_row("load", n))
    r = shape.map_row("r", qr)
    q = shape.map_row("q", qr)
    small = shape.add("qr2", [shape.add("stack", r)])
    for i in range(n):
        shape.add(f"dot-{i}", [q[i], shape.add(f"qs-{i}", [small])])
    return shape


#: Families on which orders are judged, at their usual sizes (240 to 2,400 tasks).
FAMILIES: Final[dict[str, Callable[[], Shape]]] = {
    "tree_reduce": tree_reduce,
    "shuffle": shuffle,
    "stencil": stencil,
    "cholesky": cholesky,
    "matmul": matmul,
    "rechunk": rechunk,
    "climatology": climatology,
    "map_overlap": map_overlap,
    "cross_validation": cross_validation,
    "etl": etl,
    "layered_random": layered_random,
    "layered_local": layered_local,
    "wide_narrow": wide_narrow,
    "two_datasets": two_datasets,
    "chains_join": chains_join,
    "tsqr": tsqr,
}
