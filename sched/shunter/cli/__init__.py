"""The command ``shunter``. Each subcommand is a module with `add_arguments` and `run`.

These modules import next to nothing at their top: a scheduler should listen a quarter of a second after its
start, and must not pay for what other subcommands need. Heavy imports stand inside `run`.
"""

from __future__ import annotations
