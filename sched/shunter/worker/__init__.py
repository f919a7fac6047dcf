"""The worker: runs tasks, holds their results, and fetches what they need from its peers.

The machine, which decides and touches nothing (read `state` first):
    `state`, on top of `reactions`, `runs`, `values`, `tables`, `function_table`, `fetching`, `ready`, `model`;
    `events` go in, `instructions` come out, `validate` checks it.

The shell, which carries and decides nothing:
    `worker` (the event loop), `threads` and `coroutines` (tasks), `transfers` (values to and from others),
    `store`, `functions`, `reports` (instructions as messages), `handback` (from threads to the loop).

Around it:
    `blame` (which runs had started, for the parent), `parent` (starts, watches and restarts worker processes),
    `__main__` (such a process), `exits` (exit codes), `context` (what a running task may ask for).
"""
