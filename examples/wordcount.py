"""Count the identifiers in every ``.py`` file of the running Python's standard library, in parallel.

    shunter run examples/wordcount.py      on a cluster that lives as long as the script
    python examples/wordcount.py           the same: Client() starts a cluster when it finds none
    shunter demo                           the copy that comes with the package

One task counts one file, and a tree of tasks adds the counts up, eight at a time. With ``--check`` the same
is counted once more in this process without any tasks, and the two must agree.

As a script this needs the extra ``shunter[cloudpickle]``: its functions live in ``__main__``, which workers
cannot import. As a module (``shunter demo``) it does not.
"""

from __future__ import annotations

import argparse
import keyword
import os
import re
import sys
import time
import tokenize
from collections import Counter
from collections.abc import Iterable, Sequence

import shunter

FAN_IN = 8
TOP = 20

#: Whatever looks like an identifier but is part of something else comes first: comments, strings, numbers.
TOKEN = re.compile(
    r"""
      \#[^\n]*
    | (?:\b[rRbBuUfFtT]{1,2})? (?: '''(?:\\.|[^\\])*?''' | \"""(?:\\.|[^\\])*?\"""
                              | '(?:\\.|[^'\\\n])*' | "(?:\\.|[^"\\\n])*" )
    | \d[\w.]*
    | (?P<name>[^\W\d]\w*)
    """,
    re.VERBOSE | re.DOTALL,
)
KEYWORDS = frozenset(keyword.kwlist)


def count_file(path: str) -> Counter[str]:
    """Count the identifiers in one file: names outside of comments and strings that are not keywords."""
    with open(path, "rb") as file:
        try:
            encoding, _ = tokenize.detect_encoding(file.readline)
        except SyntaxError:  # The library's tests have files with broken encodings, on purpose.
            encoding = "utf-8"
        file.seek(0)
        text = file.read().decode(encoding, errors="replace")
    names = Counter(match["name"] for match in TOKEN.finditer(text) if match["name"])
    for word in KEYWORDS.intersection(names):
        del names[word]
    return names


def add_up(counts: Iterable[Counter[str]]) -> Counter[str]:
    """Add several counts up."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return total


def find_files() -> list[str]:
    """Every ``.py`` file of the standard library."""
    found = []
    for folder, subfolders, names in os.walk(os.path.dirname(os.__file__)):
        subfolders[:] = sorted(set(subfolders) - {"site-packages", "dist-packages", "__pycache__"})
        found += [os.path.join(folder, name) for name in sorted(names) if name.endswith(".py")]
    return found


def count_with(client: shunter.Client, paths: Sequence[str]) -> Counter[str]:
    """Count on a cluster, showing how far it is."""
    start = time.perf_counter()
    level = client.map(count_file, paths)
    tasks = list(level)
    while len(level) > 1:
        level = client.map(add_up, [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)])
        tasks += level
    (total,) = level

    bar = Bar(len(tasks))
    for _ in shunter.as_completed(tasks):
        bar.advance()
    result: Counter[str] = total.result()
    seconds = time.perf_counter() - start
    bar.close()
    print(f"{len(tasks):,} tasks in {seconds:.2f} s: {len(tasks) / seconds:,.0f} tasks/s")
    return result


class Bar:
    """A progress bar on stderr: one line that is redrawn on a terminal, a line for each quarter elsewhere."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.live = sys.stderr.isatty()
        self.next = 0.0  # Draw when this many are done.

    def advance(self) -> None:
        """One more is done."""
        self.done += 1
        if self.done >= self.next or self.done == self.total:
            share = self.done / self.total
            text = f"{share:4.0%}  {self.done:,} of {self.total:,} tasks"
            self.next = self.done + self.total / (100 if self.live else 4)
            if self.live:
                filled = round(40 * share)
                text = f"\r{'█' * filled}{'░' * (40 - filled)} {text}"
            else:
                text += "\n"
            sys.stderr.write(text)
            sys.stderr.flush()

    def close(self) -> None:
        """End the line."""
        if self.live:
            sys.stderr.write("\n")


def show(total: Counter[str], n_files: int) -> None:
    """The most frequent identifiers as a table."""
    print(f"{n_files:,} files, {total.total():,} identifiers, {len(total):,} different ones\n")
    top = sorted(total.items(), key=lambda item: (-item[1], item[0]))[:TOP]
    for rank, (name, count) in enumerate(top, 1):
        print(f"{rank:>4}  {name:<20} {count:>10,}")


def main(argv: Sequence[str] | None = None) -> int:
    """Count, show the most frequent, check; returns the exit code."""
    parser = argparse.ArgumentParser(description="Count the identifiers of Python's standard library.")
    parser.add_argument("--check", action="store_true", help="count in one process as well, and compare")
    options = parser.parse_args(argv)
    paths = find_files()
    with shunter.Client() as client:
        total = count_with(client, paths)
    show(total, len(paths))
    if not options.check:
        return 0
    start = time.perf_counter()
    plain = add_up(map(count_file, paths))
    print(f"\none process, without tasks: {time.perf_counter() - start:.2f} s", end=", ")
    if plain == total:
        print("the same counts")
        return 0
    wrong = [name for name in plain | total if plain[name] != total[name]]
    print(f"DIFFERENT counts for {len(wrong):,} identifiers, such as {wrong[:3]}")
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
