"""Words for what the state says by `Log(level, code, fields)`: codes for tests, sentences for people."""

from __future__ import annotations

import logging
from typing import Final

from shunter.state import Log

logger = logging.getLogger("shunter.scheduler")

LEVELS: Final[dict[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

#: Sentences by code. A code without one is written as it is, followed by its fields.
SENTENCES: Final[dict[str, str]] = {
    "fire-and-forget-failed": "{key!r}, which nobody waits for, failed because of {because!r}: {text}",
    "graph-refused": "a graph of client {client} was refused: {reason}",
    "holder-disbelieved": "worker {worker} was said to hold {key!r}, and does not",
    "proposal-refused": "a plugin's proposal was refused: {reason}",
    "restarted": "client {client} restarts the cluster: all work is given up, {workers} workers are replaced",
    "spec-ignored": "{key!r} was submitted again with another function or arguments: the first one stays ({status})",
    "task-waits-for-its-own": "task {key!r} seems to wait for {child!r}, which needs its thread: {hint}",
    "worker-removed": "worker {worker} at {address} is gone ({reason}); tasks sent to it: {tasks}",
}


def write(instruction: Log) -> None:
    """Log one instruction, in words."""
    level = LEVELS[instruction.level]
    if logger.isEnabledFor(level):
        logger.log(level, "%s", words(instruction.code, instruction.fields))


def words(code: str, fields: dict[str, object]) -> str:
    """The sentence for a code, or the code and its fields when there is none that fits."""
    sentence = SENTENCES.get(code)
    if sentence is not None:
        try:
            return sentence.format_map(fields)
        except (KeyError, ValueError):
            pass  # The fields have changed since the sentence was written: still tell everything.
    told = ", ".join(f"{name}={value!r}" for name, value in fields.items())
    return f"{code}: {told}" if told else code
