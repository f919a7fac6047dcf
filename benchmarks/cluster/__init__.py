"""End to end: a client, a scheduler and workers, each in a process of its own, and peers in the same run."""
