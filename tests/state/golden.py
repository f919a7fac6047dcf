"""Golden stories: what happens to a cluster, told in plain lines, with what the scheduler's state answers to each.

A story is a text file. Lines that begin with ``#`` or are empty are for the reader; ``> …`` is something that happens,
``? …`` a question; indented lines are what came of it, and are written by ``pytest --rewrite``. Whoever rewrites
must be able to explain the difference.

    > settings blame_wait=0.5                  keywords of `Settings`, first of all
    > client ann                               > ann leaves
    > worker a                                 > worker b: 2 threads, GPU=1, at a's address, on host h, with a parent
    > ann submits x, y(x), z(x y)              y needs x; all are wanted, unless: … wanting z
    > ann submits x[retries=2 retry_delay=1]   keywords of `Options`; names in capitals are resources
    > ann begins a graph                       > ann adds x, y(x)      > ann commits [wanting y]    > ann aborts
    > ann wants x                              > ann releases x        > ann cancels x [by force]
    > ann retries x                            > ann sets priority 5 for x
    > ann scatters x to a b                    > ann detaches x        > ann restarts
    > ann publishes x as table                 > ann opens table       > ann unpublishes table
    > a finishes x y [with 1000 bytes] [after 2 s]                     > a finishes x of run 1
    > a fails x [with builtins.OSError]        > a reschedules x       > a secedes x
    > a has fetched x                          > a loses x             > a cannot get x from b
    > a gives back x                           > a gives back nothing
    > a pauses      > a resumes     > a leaves (it says goodbye)       > a's link breaks     > a is heard
    > a dies running x, or: nothing            its link breaks, and its parent tells
    > a's parent tells it ran x, or: nothing
    > wait 2 s                                 > tick
    ? tasks         ? workers       ? why x    ? story x
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from shunter.state import (
    DEFAULT_OPTIONS,
    ClosePeer,
    ComputeTasks,
    DatasetPublished,
    DatasetRequested,
    DatasetUnpublished,
    Failure,
    FreeKeys,
    GraphAborted,
    Heartbeat,
    Instruction,
    KeysAdded,
    KeysDetached,
    KillWorker,
    Log,
    Options,
    RemoveReplicas,
    Reply,
    ReportCancelled,
    ReportErred,
    ReportFinished,
    ReportLost,
    ReportRetried,
    Restarted,
    RestartRequested,
    Settings,
    Shutdown,
    TakeBack,
    TakeBackAnswered,
    TaskFailed,
    UpdateWhoHas,
    WorkerGone,
)
from tests.state.script import Script

#: Keys, or names.
_LIST: Final = r"([\w. -]+?)"
_KEY: Final = r"([\w.-]+)"
_TASK: Final = re.compile(r"([\w.-]+)(?:\(([^)]*)\))?(?:\[([^\]]*)\])?")


class StoryError(Exception):
    """A line of a story that nobody understands."""


class Golden(Script):
    """A `Script` that is told in lines and answers in lines. ``run`` gives the text as it should be."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(clients=(), **settings)
        self.heard: list[tuple[float, Instruction]] = []
        self.keys: dict[str, None] = {}
        self.graph = 0  # that is being sent
        self.settings = settings

    def step(self, *events: Any) -> None:
        super().step(*events)
        self.heard += [(self.now, each) for each in self.out]
        self.out.clear()

    # -------------------------------------------------------------------------------------- telling

    def tell(self, line: str) -> list[str]:
        """What came of one line, in lines."""
        start = self.now
        for pattern, act in _SENTENCES:
            found = re.fullmatch(pattern, line)
            if found is not None:
                act(self, *found.groups())
                break
        else:
            raise StoryError(f"nobody understands {line!r}; see tests/state/golden.py")
        heard, self.heard = self.heard, []
        lines: list[str] = []
        for at, each in heard:
            when = f"+{at - start:g} s " if at > start else ""
            lines += [f"{when}-> {text}" for text in self._said(each)]
        return lines or ["(nothing)"]

    def ask(self, line: str) -> list[str]:
        """The answer to a question, in lines."""
        what, _, key = line.partition(" ")
        if what == "tasks":
            return [self._task_line(each) for each in self.keys]
        if what == "workers":
            return [self._worker_line(row) for row in self.view.workers()] or ["(nobody)"]
        if what == "why":
            return [self.view.why(key)]
        if what == "story":
            return self.view.story(key) or ["(nothing)"]
        raise StoryError(f"nobody can answer {line!r}; see tests/state/golden.py")

    def name(self, number: int) -> str:
        return self.names[number]

    def submits(self, who: str, tasks: str, wanting: str | None) -> None:
        graph, options = self._tasks(tasks)
        self.submit(graph, by=who, want=None if wanting is None else wanting.split(), options=options)

    def adds(self, who: str, tasks: str) -> None:
        graph, options = self._tasks(tasks)
        self.part(graph, self.graph, by=who, options=options)

    def joins(self, name: str, traits: str | None) -> None:
        """``traits``: threads, resources, address, host and parent, separated by commas."""
        threads, address, host, has_parent = 1, None, "h", False
        resources: dict[str, float] = {}
        for trait in (traits or "").split(", ") if traits else []:
            word, _, rest = trait.partition(" ")
            if rest in ("thread", "threads"):
                threads = int(word)
            elif "=" in trait:
                name_of, _, amount = trait.partition("=")
                resources[name_of] = float(amount)
            elif word == "at":
                address = f"tcp://{rest.removesuffix(' address').removesuffix(chr(39) + 's')}:1"
            elif trait == "with a parent":
                has_parent = True
            elif trait.startswith("on host "):
                host = trait.removeprefix("on host ")
            else:
                raise StoryError(f"nobody understands {trait!r}, said of a worker")
        self.worker(name, threads, address=address, host=host, resources=resources, has_parent=has_parent)

    def finishes(self, who: str, keys: str, nbytes: str | None, seconds: str | None) -> None:
        self.finish(*keys.split(), on=who, nbytes=int(nbytes or 8), seconds=float(seconds or 0.1))

    def finishes_run(self, who: str, key: str, run_id: str) -> None:
        self.finished(self.numbers[who], [(key, int(run_id))])

    def fails(self, who: str, key: str, sort: str | None) -> None:
        number, run_id = self.numbers[who], self._run_on(self.numbers[who], key)
        self.runs[number].pop(run_id, None)
        sort = sort or "builtins.ValueError"
        text = f"{sort.rpartition('.')[2]}: boom"
        failure = Failure("exception", key, text, types=[sort, "builtins.Exception"])
        self.step(TaskFailed(number, key, run_id, failure, self.now, 0.1, 1))

    def gives_back(self, who: str, keys: str) -> None:
        if keys == "nothing":
            asked = self.asked.pop(self.numbers[who], [])
            self.step(TakeBackAnswered(self.numbers[who], asked, []))
        else:
            self.answer(who, given=keys.split())

    def has_fetched(self, who: str, keys: str) -> None:
        found = keys.split()
        self.step(
            KeysAdded(self.numbers[who], [*found], [8] * len(found), [self.lives[key] for key in found])
        )

    def dies(self, who: str, keys: str) -> None:
        self.kill(who, started=[] if keys == "nothing" else keys.split())

    def tells(self, who: str, keys: str) -> None:
        self.parent_tells(who, started=[] if keys == "nothing" else keys.split())

    def _tasks(self, text: str) -> tuple[dict[str, list[str]], dict[str, Options]]:
        """``x, y(x)[retries=2]``: inputs by key, and options by key."""
        graph: dict[str, list[str]] = {}
        options: dict[str, Options] = {}
        for each in re.split(r",\s*(?![^(\[]*[)\]])", text):
            found = _TASK.fullmatch(each.strip())
            if found is None:
                raise StoryError(f"nobody understands the task {each!r}")
            key, inputs, wishes = found.groups()
            graph[key] = (inputs or "").split()
            options[key] = _options(wishes) if wishes else DEFAULT_OPTIONS
        self.keys.update(dict.fromkeys(graph))
        return graph, options

    # -------------------------------------------------------------------------------------- answering

    def _said(self, each: Instruction) -> list[str]:
        """An instruction in words, one line for each key that is not alike."""
        if isinstance(each, Log):
            fields = ", ".join(f"{name} {value!r}" for name, value in each.fields.items())
            return [f"log, {each.level}: {each.code}: {fields}"]
        if isinstance(each, Shutdown):
            return [f"the scheduler itself: end: {each.reason}"]
        if isinstance(each, KillWorker):
            return [f"{self.name(each.peer)}'s parent: replace it: {each.reason}"]
        return [f"{self.name(each.peer)}: {text}" for text in self._words(each)]

    def _words(self, each: Instruction) -> list[str]:
        if isinstance(each, ComputeTasks):
            return [f"compute {self._task(str(k), i)}" for k, i in zip(each.keys, each.inputs)]
        if isinstance(each, FreeKeys):
            return [f"free {_and(each.keys)}"]
        if isinstance(each, RemoveReplicas):
            return [f"drop the copy of {_and(each.keys)}"]
        if isinstance(each, TakeBack):
            runs = self.runs[each.peer]
            return [f"give back what has not started of {_and([runs[run_id] for run_id in each.run_ids])}"]
        if isinstance(each, UpdateWhoHas):
            return [f"{k} is on {self._holders(h)}" for k, h in zip(each.keys, each.holders)]
        if isinstance(each, WorkerGone):
            return [f"{self.name(each.gone)} is gone"]
        if isinstance(each, ClosePeer):
            return [f"your link is closed: {each.reason}"]
        if isinstance(each, ReportFinished):
            return [f"{_and(each.keys)} finished"]
        if isinstance(each, ReportErred):
            return [f"{k} erred{_because(k, f)}: {f.text}" for k, f in zip(each.keys, each.failures)]
        if isinstance(each, ReportLost):
            return [f"{_and(each.keys)} lost, and computed again"]
        if isinstance(each, ReportRetried):
            return [f"{_and(each.keys)} tried again"]
        if isinstance(each, ReportCancelled):
            return [f"{k} cancelled: {reason}" for k, reason in zip(each.keys, each.reasons)]
        if isinstance(each, Restarted):
            return ["everything was given up"]
        assert isinstance(each, Reply), each
        return [f"reply: {'yes' if each.ok else 'no'}: {each.value}"]

    def _task(self, key: str, inputs: Any) -> str:
        return key + "".join(
            f", {name} is on {self._holders(holders)}" for name, _, holders, _ in inputs or []
        )

    def _holders(self, numbers: list[int]) -> str:
        return _and([self.name(number) for number in numbers]) or "nobody"

    def _task_line(self, key: str) -> str:
        ((_, status, nbytes, holders),) = self.view.who_has([key])
        if status == "memory":
            return f"{key}: memory, {nbytes} bytes on {self._holders(holders)}"
        if status == "processing":
            return f"{key}: processing on {self.where(key)}"
        return f"{key}: {status}"

    def _worker_line(self, row: dict[str, Any]) -> str:
        used = "".join(
            f", {name} {row['used'].get(name, 0):g} of {n:g}" for name, n in row["resources"].items()
        )
        held = f"{row['held']} held" if row["held"] else "nothing held"
        return f"{row['name']}: {row['status']}, {row['processing']} of {row['nthreads']} sent, {held}{used}"


def _and(keys: Any) -> str:
    return " ".join(map(str, keys))


def _because(key: object, failure: Failure) -> str:
    return "" if failure.key == key else f" because of {failure.key}"


def _options(text: str) -> Options:
    """``retries=2 GPU=1 workers=a|b stealable=no``: keywords of `Options`; names in capitals are resources."""
    given: dict[str, Any] = {}
    for each in text.split():
        name, _, value = each.partition("=")
        if name.isupper():
            given.setdefault("resources", {})[name] = float(value)
        elif name in ("workers", "retry_on"):
            given[name] = value.split("|")
        elif value in ("yes", "no"):
            given[name] = value == "yes"
        else:
            given[name] = int(value) if name == "retries" else float(value)
    return Options(**given)


def _begins(g: Golden, who: str) -> None:
    g.graph = g.begin(by=who)


def _published(g: Golden, who: str, keys: str, name: str) -> None:
    g.step(DatasetPublished(g.numbers[who], 1, name, [*keys.split()], "", False))


def _leaves(g: Golden, who: str) -> None:
    if g.numbers[who] in g.threads:
        g.leaves(who)
    else:
        g.client_leaves(who)


def _scatters(g: Golden, who: str, key: str, to: str) -> None:
    g.keys[key] = None
    g.scatter(key, to=to.split(), by=who)


#: What can happen, and what does it with the parts in brackets.
_SENTENCES: Final[list[tuple[str, Callable[..., object]]]] = [
    (r"client (\w+)", Golden.client),
    (r"worker (\w+)(?:: (.+))?", Golden.joins),
    (r"(\w+) leaves", _leaves),
    # clients
    (r"(\w+) submits (.+?)(?: wanting (.+))?", Golden.submits),
    (r"(\w+) begins a graph", _begins),
    (r"(\w+) adds (.+)", Golden.adds),
    (r"(\w+) commits(?: wanting (.+))?", lambda g, c, w: g.commit(g.graph, by=c, want=w and w.split())),
    (r"(\w+) aborts", lambda g, c: g.step(GraphAborted(g.numbers[c], g.graph))),
    (rf"(\w+) wants {_LIST}", lambda g, c, keys: g.desire(*keys.split(), by=c)),
    (rf"(\w+) releases {_LIST}", lambda g, c, keys: g.release(*keys.split(), by=c)),
    (
        rf"(\w+) cancels {_LIST}( by force)?",
        lambda g, c, keys, force: g.cancel(*keys.split(), by=c, force=bool(force)),
    ),
    (rf"(\w+) retries {_LIST}", lambda g, c, keys: g.retry(*keys.split(), by=c)),
    (
        rf"(\w+) sets priority (\S+) for {_LIST}",
        lambda g, c, n, keys: g.set_priority(float(n), *keys.split(), by=c),
    ),
    (rf"(\w+) scatters {_KEY} to {_LIST}", _scatters),
    (rf"(\w+) detaches {_LIST}", lambda g, c, keys: g.step(KeysDetached(g.numbers[c], keys.split()))),
    (rf"(\w+) publishes {_LIST} as (\w+)", _published),
    (r"(\w+) opens (\w+)", lambda g, c, name: g.step(DatasetRequested(g.numbers[c], 1, name))),
    (r"(\w+) unpublishes (\w+)", lambda g, c, name: g.step(DatasetUnpublished(g.numbers[c], 1, name))),
    (r"(\w+) restarts", lambda g, c: g.step(RestartRequested(g.numbers[c], 1, 30.0))),
    # workers
    (rf"(\w+) finishes {_KEY} of run (\d+)", Golden.finishes_run),
    (rf"(\w+) finishes {_LIST}(?: with (\d+) bytes)?(?: after (\S+) s)?", Golden.finishes),
    (rf"(\w+) fails {_KEY}(?: with (\S+))?", Golden.fails),
    (rf"(\w+) reschedules {_KEY}", lambda g, _, key: g.reschedule(key)),
    (rf"(\w+) secedes {_KEY}", lambda g, _, key: g.long_running(key)),
    (rf"(\w+) gives back {_LIST}", Golden.gives_back),
    (rf"(\w+) has fetched {_LIST}", Golden.has_fetched),
    (rf"(\w+) loses {_LIST}", lambda g, w, keys: g.loses(w, *keys.split())),
    (
        rf"(\w+) cannot get {_KEY} from {_LIST}",
        lambda g, w, key, of: g.complain(w, key, about=of.split()),
    ),
    (r"(\w+) is heard", lambda g, w: g.step(Heartbeat(g.numbers[w], 0, 0, 0.0))),
    (r"(\w+) pauses", Golden.pause),
    (r"(\w+) resumes", Golden.resume),
    (r"(\w+)'s link breaks", Golden.link_breaks),
    (rf"(\w+) dies running {_LIST}", Golden.dies),
    (rf"(\w+)'s parent tells it ran {_LIST}", Golden.tells),
    # time
    (r"wait (\S+) s", lambda g, seconds: g.wait(float(seconds))),
    (r"tick", Golden.tick),
]


def retold(path: Path) -> str:
    """The text of a story with what comes of each line now."""
    golden: Golden | None = None
    lines: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("  "):
            continue  # What came of it when it was written.
        lines.append(line)
        if line[:2] not in ("> ", "? "):
            if line and not line.startswith("#"):
                raise StoryError(f"{path.name}:{number}: {line!r} begins with none of '# ', '> ', '? '")
            continue
        try:
            if line.startswith("> settings "):
                assert golden is None, "settings come first"
                golden = Golden(**_settings(line.removeprefix("> settings ")))
                continue
            golden = golden or Golden()
            answer = golden.tell(line[2:]) if line.startswith("> ") else golden.ask(line[2:])
        except (StoryError, AssertionError, KeyError, ValueError) as error:
            so_far = "\n".join(lines)
            text = f"{path.name}:{number}: {line!r}: {type(error).__name__}: {error}; until there:\n{so_far}"
            raise StoryError(text) from error
        lines += [f"  {each}" for each in answer]
    return "\n".join(lines) + "\n"


def _settings(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    plain = Settings()
    for each in text.split():
        name, _, value = each.partition("=")
        found[name] = type(getattr(plain, name))(value)
    return found
