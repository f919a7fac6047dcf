"""Which runs had started: a small file that a worker and its parent map into memory.

Each task thread writes the run_id before it touches a task, and clears it afterwards. When the process has died,
however it died, the parent reads what stood there: these runs, and no others, may be to blame. The header tells
the parent which worker the process was, and whether it had said goodbye.

Layout, 64-bit integers in the machine's own order: worker number (-1 before it has one), departed (0 or 1),
then the slots (-1: nothing runs there).
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from typing import Final, final

__all__ = ["BlameMap", "create_file"]

#: Task threads of one process, those of long-running tasks included. One beyond that cannot be blamed.
SLOTS: Final = 1022
HEADER: Final = 2
NBYTES: Final = (HEADER + SLOTS) * 8
IDLE: Final = -1
_EMPTY: Final = IDLE.to_bytes(8, "little", signed=True) + bytes(8) + b"\xff" * (SLOTS * 8)


def create_file() -> str:
    """Make an empty map as a file of this user's alone; its path."""
    handle, path = tempfile.mkstemp(prefix="shunter-blame-")
    try:
        os.write(handle, _EMPTY)
    finally:
        os.close(handle)
    return path


@final
class BlameMap:
    """The map, from either side.

    Args:
        path: a file made by `create_file`; None for memory of this process, if there is no parent to read it.

    Raises:
        OSError: the file is not there.
        ValueError: the file is something else.
    """

    def __init__(self, path: str | None = None) -> None:
        if path is None:
            self._memory = mmap.mmap(-1, NBYTES)
            self._memory[:] = _EMPTY
        else:
            with open(path, "r+b") as file:
                self._memory = mmap.mmap(file.fileno(), 0)
            if len(self._memory) != NBYTES:
                self._memory.close()
                raise ValueError(f"{path} is no blame map")
        self._cells = memoryview(self._memory).cast("q")
        self._lock = threading.Lock()
        self._unused = list(range(HEADER + SLOTS - 1, HEADER - 1, -1))  # The lowest is taken first.

    # ------------------------------------------------------------------------------------------ worker

    def take_slot(self) -> int:
        """A slot for a new thread; -1 if all are taken."""
        with self._lock:
            return self._unused.pop() if self._unused else -1

    def give_slot_back(self, slot: int) -> None:
        """A thread has ended."""
        if slot >= 0:
            self._cells[slot] = IDLE
            with self._lock:
                self._unused.append(slot)

    def start(self, slot: int, run_id: int) -> None:
        """A run is about to start in the thread of this slot."""
        if slot >= 0:
            self._cells[slot] = run_id

    def end(self, slot: int) -> None:
        """The run of this slot has ended."""
        if slot >= 0:
            self._cells[slot] = IDLE

    def rename(self, slot: int, run_id: int) -> None:
        """The run of this slot, if it has not ended, serves another run_id now."""
        if slot >= 0 and self._cells[slot] != IDLE:
            self._cells[slot] = run_id

    def register(self, number: int) -> None:
        """Tell the parent which worker this is."""
        self._cells[0] = number

    def depart(self) -> None:
        """Tell the parent that goodbye was said: the end of the process is no death."""
        self._cells[1] = 1

    # ------------------------------------------------------------------------------------------ parent

    @property
    def number(self) -> int:
        """The worker's number; -1 if it did not come so far."""
        return self._cells[0]

    @property
    def departed(self) -> bool:
        """It has said goodbye."""
        return self._cells[1] == 1

    def started(self) -> list[int]:
        """The runs that had started and not ended."""
        return [run_id for run_id in self._cells[HEADER:] if run_id != IDLE]

    def close(self) -> None:
        """Give the memory back. No thread may write any more."""
        self._cells.release()
        self._memory.close()
