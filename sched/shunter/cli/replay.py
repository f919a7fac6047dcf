"""``shunter replay``: run a recording of a scheduler again, to see what it did and why.

The state runs from source even if it is installed compiled, so that a debugger can step through it.
"""

from __future__ import annotations

import argparse
import builtins
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from shunter import _debug
from shunter.cli import exits, options
from shunter.cli.table import seconds

if TYPE_CHECKING:
    from shunter.recording import Replay
    from shunter.state import Instruction

#: Seconds between two looks at how far it is, on a terminal.
PROGRESS_S: Final = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="what `shunter scheduler --record FILE` wrote")
    parser.add_argument(
        "--until", type=options.reader(options.read_count), metavar="N", help="stop after N events"
    )
    parser.add_argument(
        "--pdb",
        action="store_true",
        help="open the debugger where it stops, or where the state breaks, with `state`, `event` and `view` "
        "at hand; `step` goes into what the next event does",
    )
    parser.add_argument(
        "--trace", action="store_true", help="print each event, and each instruction that it led to"
    )
    parser.add_argument(
        "--story",
        action="append",
        default=[],
        metavar="KEY",
        help="print what happened to this task, and why it is where it is; may be given several times",
    )
    parser.add_argument(
        "--validate", action="store_true", help="check the state's invariants after each event (slow)"
    )


def run(given: argparse.Namespace) -> int:
    choose_source()
    from shunter.recording import LogReader, Replay

    with LogReader(given.file) as log:
        replay = Replay(log, validate=given.validate, whole_story=bool(given.story))
        try:
            play(replay, given.until, trace=given.trace, quiet=given.pdb)
            if given.validate:
                replay.state.validate()
        except Exception as error:
            if not replay.is_broken:
                raise
            print("\n".join(summary(replay)))
            print(f"the state breaks at event {line_of(replay.count + 1, replay)}", flush=True)
            if not given.pdb:
                raise
            print(f"{type(error).__name__}: {error}")
            examine_wreck(replay, error)
            return exits.INTERNAL
        print("\n".join(summary(replay)))
        for key in given.story:
            print("\n".join(story(replay, key)))
        if given.pdb:
            examine(replay)
    return exits.OK


def choose_source() -> None:
    """Have the state of this process run from source, as ``SHUNTER_DEBUG=1`` does, if it is not there yet."""
    if _debug.COMPILED and "shunter.state" not in sys.modules:
        import importlib

        os.environ["SHUNTER_DEBUG"] = "1"
        importlib.reload(_debug)  # It reads the variable once; the finder that it has installed looks there.


def play(replay: Replay, until: int | None, *, trace: bool = False, quiet: bool = False) -> None:
    """Run events until the recording ends, or ``until`` were run."""
    show = sys.stderr.isatty() and not trace and not quiet
    looked = time.monotonic()
    try:
        while (until is None or replay.count < until) and replay.ahead() is not None:
            instructions = replay.advance()
            if trace:
                print("\n".join(trace_of(replay, instructions)))
            if show and replay.count % 64 == 0 and time.monotonic() - looked > PROGRESS_S:
                looked = time.monotonic()
                print(
                    f"\r{replay.log.progress:4.0%}  {replay.count:,} events",
                    end="",
                    file=sys.stderr,
                    flush=True,
                )
    finally:
        if show:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


# ---------------------------------------------------------------------------------------------- what is printed


def summary(replay: Replay) -> list[str]:
    """What was run, and what there is now."""
    header = replay.log.header
    counts = replay.view.counts()
    about = ("workers", "threads", "clients", "dropped_events")
    tasks = {name: n for name, n in counts.items() if name not in ("tasks", *about) and n}
    recorded = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(header.wall))
    lines = [
        f"recorded      {recorded} by shunter {header.version} (state: {header.build})",
        f"events        {replay.count:,}: {named(replay.events)}",
        f"time          {replay.span:.3f} s recorded, {seconds(replay.seconds)} in the state "
        f"({'compiled' if _debug.COMPILED else 'pure'})",
        f"instructions  {sum(replay.instructions.values()):,}: {named(replay.instructions)}",
        f"tasks         {counts['tasks']:,}: {named(tasks)}",
        f"peers         {counts['workers']:,} workers with {counts['threads']:,} threads, "
        f"{counts['clients']:,} clients",
        f"dropped       {counts['dropped_events']:,} events of unknown peers or runs",
    ]
    if replay.log.is_cut:
        lines.append("the last line is cut off: the scheduler was killed while it wrote, or writes still")
    return [line.removesuffix(": ") for line in lines]


def named(counts: Mapping[str, int]) -> str:
    """``"Tick 12, KeysAdded 3"``, most first."""
    return ", ".join(f"{name} {n:,}" for name, n in sorted(counts.items(), key=lambda item: -item[1]))


def trace_of(replay: Replay, instructions: Iterable[Instruction]) -> list[str]:
    """The event that was run last, and what the state said to it."""
    from shunter.recording import shown

    return [line_of(replay.count, replay), *(f"    {shown(each)}" for each in instructions)]


def line_of(number: int, replay: Replay) -> str:
    """``12 +0.125000 Tick()``: number of the event, seconds since the recorded state began, what it was."""
    from shunter.recording import shown

    entry = replay.entry
    assert entry is not None
    return f"{number} +{replay.span:.6f} {shown(entry.event)}"


def story(replay: Replay, key: str) -> list[str]:
    """What happened to a task in the events that were run."""
    return ["", f"{key}:", *(f"    {line}" for line in replay.view.story(key)), f"    {replay.view.why(key)}"]


# ---------------------------------------------------------------------------------------------- the debugger


def examine(replay: Replay) -> None:
    """Open the debugger after the last event that was run; `step` goes into the next one."""
    import bdb
    import pdb

    from shunter.recording import shown

    ahead = replay.ahead()
    tracer = sys.gettrace()
    print("the next event:", "none" if ahead is None else shown(ahead.event))
    try:
        with at_hand(replay):
            if ahead is None:
                pdb.Pdb().set_trace()
                return
            pdb.Pdb().set_trace()
            replay.state.step(ahead.event, ahead.now)
    except bdb.BdbQuit:
        pass
    finally:
        sys.settrace(tracer)


def examine_wreck(replay: Replay, error: Exception) -> None:
    """Open the debugger where the state broke."""
    import pdb

    tracer = sys.gettrace()
    try:
        with at_hand(replay):
            pdb.post_mortem(error.__traceback__)
    finally:
        sys.settrace(tracer)  # a debugger that is left takes all tracing with it


@contextmanager
def at_hand(replay: Replay) -> Iterator[None]:
    """Let the debugger know `state`, `view` and `event` in every frame: those inside the state call them otherwise."""
    names = {"state": replay.state, "view": replay.view, "event": replay.entry and replay.entry.event}
    print("at hand: `state`, `view`, and `event`, the last one", flush=True)
    vars(builtins).update(names)
    try:
        yield
    finally:
        for name in names:
            vars(builtins).pop(name, None)
