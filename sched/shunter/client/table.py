"""What this client knows of each key: a pure table. Messages go in, watchers are called.

Theory of operation
    *One entry a key.* All futures of a key share an `Entry`; ``count`` is how many there are. When it comes to
    zero the key is released. Dropping a future only appends to a queue (see `Session.release`), so a count goes
    down some time later, but always before the same key is created again.

    *Incarnations.* Keys can be given up and submitted again while reports about their former life are still
    under way (a cancel's confirmation must not cancel the newcomer). Whenever keys that may come back are
    given up, the session puts a *fence* behind the message: a query, and when it is answered a second one, for
    the status of those that did come back. What the scheduler reports of them before the second answer may
    concern their former life, so it is only noted; that answer then tells what is the case. (One query would
    not do: the server may write an answer before the reports of the same batch.) A result that came along in
    between is taken only if none was under way when the key was given up; else it is fetched.

    *Restarts* void all entries. Their keys are released, although the scheduler has forgotten them, because some may
    have been submitted while the news of the restart was on its way here; and they are put behind a fence.

    *Waiting.* No event a future: who waits puts a watcher into the entry. A watcher is called exactly once,
    without the lock, by whichever thread reports the end; it must be quick and must not raise.

One lock guards everything (the session's outgoing messages as well). It is re-entrant: the garbage collector may
run somebody's ``__del__`` anywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal, TypeAlias

from shunter.errors import ConnectionLost, ShunterError, UsageError
from shunter.wire.messages import Failure

__all__ = ["Alarm", "Entry", "FutureTable", "Gate", "Status", "Watcher"]

Status: TypeAlias = Literal["pending", "finished", "error", "cancelled"]
PENDING: Final = "pending"
FINISHED: Final = "finished"
ERROR: Final = "error"
CANCELLED: Final = "cancelled"
RESTARTED: Final = "the cluster was restarted"

#: What the scheduler says of a key that is still to come; "erred": its failure follows, if it has not come.
_ON_THEIR_WAY: Final = frozenset({"released", "waiting", "no-worker", "queued", "processing", "erred"})

Watcher: TypeAlias = Callable[["Entry"], object]
#: What was said last of a key: its result if that came along, why it failed, or why it was cancelled.
_News: TypeAlias = "bytes | Failure | str | None"


class Entry:
    """One key, as this client sees it.

    Attributes:
        key: the task's key.
        unique: made by this session's counter, so it can never be submitted again.
        count: futures that share the entry, less those known to be dropped.
        status: what became of it.
        nbytes: size of the result where it lies, bytes; -1 when not known.
        data: the pickled result if it came along; None once it was unpickled, or if it must be fetched.
        has_value, value: the result, kept if it is small.
        error: why there is none: a failure, the loss of the connection, or the reason of a cancellation as text.
        watchers: whom to call when it is no longer pending.
    """

    __slots__ = (
        "count",
        "data",
        "error",
        "has_value",
        "key",
        "nbytes",
        "status",
        "unique",
        "value",
        "watchers",
    )

    def __init__(self, key: str, *, unique: bool) -> None:
        self.key = key
        self.unique = unique
        self.count = 1
        self.status: Status = PENDING
        self.nbytes = -1
        self.data: bytes | None = None
        self.has_value = False
        self.value: object = None
        self.error: Failure | ShunterError | str | None = None
        self.watchers: list[Watcher] | None = None

    @property
    def is_pending(self) -> bool:
        """Neither finished nor failed nor cancelled."""
        return self.status == PENDING

    @property
    def is_here(self) -> bool:
        """The result need not be fetched."""
        return self.has_value or self.data is not None


class Gate:
    """Wakes one waiting thread. A bare lock: an Event costs ten times as much."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self, entry: Entry | None = None) -> None:
        """Let the waiting thread pass, once; opening it again before it passed changes nothing."""
        with suppress(RuntimeError):  # open already
            self._lock.release()

    def wait(self, timeout: float | None) -> bool:
        """Pass, and close the gate behind. False after ``timeout`` seconds."""
        if timeout is None:
            return self._lock.acquire()
        if timeout <= 0:
            return self._lock.acquire(blocking=False)
        return self._lock.acquire(timeout=min(timeout, threading.TIMEOUT_MAX))


class Alarm:
    """Calls ``ring`` when one of some entries fails or is cancelled."""

    __slots__ = ("entries", "rang", "ring")

    def __init__(self, entries: Iterable[Entry], ring: Watcher) -> None:
        self.entries = set(entries)
        self.ring = ring
        self.rang = False


class FutureTable:
    """All keys that this client has an interest in.

    Attributes:
        lock: guards everything.
        restarts: how often the cluster was restarted since this client came.
    """

    def __init__(self) -> None:
        self.lock: Final = threading.RLock()
        self.restarts = 0
        self._entries: dict[str, Entry] = {}
        #: Told, without the lock, of keys that the scheduler has cancelled and that were live here.
        self.on_cancelled: Callable[[list[str]], None] = lambda keys: None
        self.keys_may_return = False  # a dataset was asked for: it may name any key that is being given up
        self._alarms: list[Alarm] = []
        self._fence_last = 0
        self._fence_due = False
        self._fences: dict[str, int] = {}  # keys given up, by the fence behind which they are news again
        self._noted: dict[str, _News] = {}  # the last of those behind a fence
        self._doubtful: set[str] = set()  # of those behind a fence, whose result was under way

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: str) -> Entry | None:
        """The live entry of a key."""
        return self._entries.get(key)

    # ------------------------------------------------------------------------------------ futures come and go
    # The caller holds the lock.

    def add(self, key: str, *, unique: bool = False) -> Entry:
        """A fresh entry for a key that has none; the caller owns one count of it."""
        assert key not in self._entries, key
        entry = self._entries[key] = Entry(key, unique=unique)
        return entry

    def adopt(self, key: str) -> tuple[Entry, bool]:
        """The entry of a key that the scheduler has given this client an interest in; the caller owns one count of it.

        A key behind a fence, given up not long ago, gets a fence of its own: the next one may have been asked about
        already, and its answer would not tell of this key.

        Returns:
            The entry, and whether it is a fresh one.
        """
        entry = self._entries.get(key)
        if entry is not None:
            entry.count += 1
            return entry, False
        if key in self._fences:
            self._fences[key] = self._fence_last + 1
            self._fence_due = True
        return self.add(key), True

    @staticmethod
    def make_void(key: str, reason: str = RESTARTED) -> Entry:
        """An entry outside of the table, cancelled from the start; the caller owns one count of it."""
        entry = Entry(key, unique=False)
        entry.error = reason
        entry.status = CANCELLED
        return entry

    def drop(self, dropped: Iterable[Entry]) -> list[str]:
        """Count futures down that are gone. Returns the keys to release."""
        released = []
        for entry in dropped:
            entry.count -= 1
            if entry.count <= 0 and self._entries.get(entry.key) is entry:
                del self._entries[entry.key]
                released.append(entry.key)
                self._put_behind_fence(entry)
        return released

    def cancel(self, entries: Iterable[Entry], reason: str) -> tuple[list[str], Callable[[], None]]:
        """Give pending entries up at once.

        Returns:
            The keys to cancel, and what to call without the lock to tell the watchers.
        """
        keys: list[str] = []
        done: list[Entry] = []
        for entry in entries:
            if self._entries.get(entry.key) is entry:
                del self._entries[entry.key]
                keys.append(entry.key)
                self._put_behind_fence(entry)
            if entry.status == PENDING:
                self._settle(entry, CANCELLED, reason, done)
        due = self._take_watchers(done)
        return keys, lambda: _call(due)

    def retry(self, entries: Sequence[Entry]) -> list[str]:
        """Entries that have failed are pending again, each given once. Returns their keys.

        Raises:
            UsageError: one of them has not failed, or was given up; then all stay as they are.
        """
        for entry in entries:
            is_live = self._entries.get(entry.key) is entry
            if entry.status == CANCELLED or (entry.status == ERROR and not is_live):
                raise UsageError(f"{entry.key!r} cannot be retried, it was cancelled: submit it again")
            if entry.status != ERROR:
                raise UsageError(f"{entry.key!r} cannot be retried, it has not failed: it is {entry.status}")
        for entry in entries:
            entry.status = PENDING
            entry.error = None
        return [entry.key for entry in entries]

    def restarted(self, reason: str = RESTARTED) -> tuple[list[str], Callable[[], None]]:
        """Everything is void, results that are here included.

        Returns:
            All keys there were, to be released: some of them may have been submitted before the news came, and
            would live on. And what to call without the lock to tell the watchers.
        """
        self.restarts += 1
        keys = list(self._entries)
        done: list[Entry] = []
        for entry in self._entries.values():
            self._put_behind_fence(entry)
            self._settle(entry, CANCELLED, reason, done)
        self._entries.clear()
        due = self._take_watchers(done)
        return keys, lambda: _call(due)

    # ------------------------------------------------------------------------------------ fences

    def open_fence(self) -> int:
        """The number of a fence, if keys that may come back were given up since the last one; else 0."""
        if not self._fence_due:
            return 0
        self._fence_due = False
        self._fence_last += 1
        return self._fence_last

    def find_behind(self, fence: int) -> list[str]:
        """Keys behind a fence that are live again."""
        with self.lock:
            return [key for key, at in self._fences.items() if at <= fence and key in self._entries]

    def pass_fence(self, fence: int, statuses: Mapping[str, tuple[str, int]]) -> None:
        """The scheduler has come to a fence: from here on its reports concern what lives now.

        Args:
            fence: its number; earlier ones are passed as well.
            statuses: the scheduler's status (``"unknown"`` if it has no such task) and the size of the keys that
                `find_behind` told.
        """
        noted: dict[str, _News] = {}
        with self.lock:
            for key in [key for key, at in self._fences.items() if at <= fence]:
                del self._fences[key]
                noted[key] = self._noted.pop(key, None)
                if key in self._doubtful:  # A result may be that of the former life: fetch it.
                    self._doubtful.discard(key)
                    if isinstance(noted[key], bytes):
                        noted[key] = None
        for key, (status, nbytes) in statuses.items():
            if key not in noted:
                continue  # An earlier fence was passed with it already; this answer may be older than its news.
            last = noted[key]
            if status == "memory":
                self.finished([key], [nbytes], [last if isinstance(last, bytes) else None])
            elif status == "erred" and isinstance(last, Failure):
                self.erred([key], [last])
            elif status == "unknown" and isinstance(last, Failure):
                self.erred([key], [last])  # Its graph was refused: it never was a task.
            elif status == "unknown":
                self.cancelled([key], [last if isinstance(last, str) else "the scheduler does not know it"])
            elif status not in _ON_THEIR_WAY:
                self.cancelled([key], [f"the scheduler has given it the unknown status {status!r}"])

    def _put_behind_fence(self, entry: Entry) -> None:
        if not entry.unique or self.keys_may_return:
            self._fences[entry.key] = self._fence_last + 1
            self._fence_due = True
            if entry.status == PENDING:
                self._doubtful.add(entry.key)

    def _is_behind_fence(self, key: str, news: _News) -> bool:
        if key not in self._fences:
            return False
        self._noted[key] = news
        return True

    # ------------------------------------------------------------------------------------ messages

    def finished(self, keys: Sequence[str], nbytes: Sequence[int], data: Sequence[bytes | None]) -> None:
        """Results are there. ``data``: those that came along."""
        done: list[Entry] = []
        with self.lock:
            fenced = bool(self._fences)
            for key, size, blob in zip(keys, nbytes, data):
                entry = self._entries.get(key)
                if entry is None or (fenced and self._is_behind_fence(key, blob)):
                    continue
                entry.nbytes = size
                if entry.status == FINISHED:
                    continue  # It was asked for again; what is here already is the same.
                entry.data = blob
                entry.error = None
                entry.status = FINISHED  # Last: who reads without the lock looks here first.
                if entry.watchers is not None:
                    done.append(entry)
            due = self._take_watchers(done)
        _call(due)

    def erred(self, keys: Sequence[str], failures: Sequence[Failure]) -> None:
        """Tasks failed, or something failed that they need."""
        self._end((key, ERROR, failure) for key, failure in zip(keys, failures))

    def cancelled(self, keys: Sequence[str], reasons: Sequence[str]) -> None:
        """Keys were given up: by somebody's force, or because they are unknown."""
        self._end((key, CANCELLED, reason) for key, reason in zip(keys, reasons))

    def pending_again(self, keys: Iterable[str]) -> None:
        """Results were lost and are being computed again, or tasks are retried.

        A result that is here already stays: it is what the lost one was.
        """
        with self.lock:
            for key in keys:
                entry = self._entries.get(key)
                if entry is None or entry.status == CANCELLED or self._is_behind_fence(key, None):
                    continue
                if entry.is_here:
                    continue
                entry.status = PENDING
                entry.error = None

    def disconnected(self, error: ConnectionLost | UsageError) -> None:
        """The scheduler is gone: what is pending fails with ``error``, and so does what was not fetched yet."""
        done: list[Entry] = []
        with self.lock:
            for entry in self._entries.values():
                if entry.status == PENDING or (entry.status == FINISHED and not entry.is_here):
                    self._settle(entry, ERROR, error, done)
            due = self._take_watchers(done)
        _call(due)

    def forked(self, error: UsageError) -> None:
        """This is a copy in a forked child: nothing comes any more, and nobody lets go of a lock that was taken."""
        if self.lock.acquire(blocking=False):
            self.lock.release()
        else:  # By a thread that does not exist here.
            self.lock._at_fork_reinit()  # type: ignore[attr-defined]  # as the standard library does
        self.disconnected(error)

    def closed(self, reason: str) -> None:
        """This client is closing: what is pending is cancelled."""
        done: list[Entry] = []
        with self.lock:
            for entry in self._entries.values():
                if entry.status == PENDING:
                    self._settle(entry, CANCELLED, reason, done)
            due = self._take_watchers(done)
        _call(due)

    def _end(self, ends: Iterable[tuple[str, Status, Failure | str]]) -> None:
        done: list[Entry] = []
        cancelled: list[str] = []
        with self.lock:
            for key, status, error in ends:
                entry = self._entries.get(key)
                if entry is None or self._is_behind_fence(key, error):
                    continue
                if status == CANCELLED:
                    del self._entries[key]
                    cancelled.append(key)
                    self._put_behind_fence(entry)
                if not entry.is_here:
                    self._settle(entry, status, error, done)
            due = self._take_watchers(done)
        if cancelled:
            self.on_cancelled(cancelled)
        _call(due)

    def _settle(
        self, entry: Entry, status: Status, error: Failure | ShunterError | str, done: list[Entry]
    ) -> None:
        entry.error = error
        entry.status = status
        done.append(entry)
        for alarm in self._alarms:
            if entry in alarm.entries:
                alarm.rang = True
                alarm.ring(entry)

    # ------------------------------------------------------------------------------------ waiting

    def watch(self, entry: Entry, watcher: Watcher) -> bool:
        """Call ``watcher`` when the entry is no longer pending. False, and no call, if it isn't pending now."""
        with self.lock:
            if entry.status != PENDING:
                return False
            if entry.watchers is None:
                entry.watchers = [watcher]
            else:
                entry.watchers.append(watcher)
            return True

    def unwatch(self, entry: Entry, watcher: Watcher) -> None:
        """Take a watcher out again, if it is still there."""
        with self.lock:
            if entry.watchers is not None and watcher in entry.watchers:
                entry.watchers.remove(watcher)
                if not entry.watchers:
                    entry.watchers = None

    def set_alarm(self, entries: Iterable[Entry], ring: Watcher) -> Alarm:
        """Call ``ring`` as soon as one of these fails or is cancelled. ``rang`` is true at once if one has."""
        alarm = Alarm(entries, ring)
        with self.lock:
            self._alarms.append(alarm)
            if any(entry.status in (ERROR, CANCELLED) for entry in alarm.entries):
                alarm.rang = True
        return alarm

    def clear_alarm(self, alarm: Alarm) -> None:
        """Forget an alarm."""
        with self.lock:
            self._alarms.remove(alarm)

    @staticmethod
    def _take_watchers(done: Iterable[Entry]) -> list[tuple[Entry, list[Watcher]]]:
        due = []
        for entry in done:
            if entry.watchers is not None:
                due.append((entry, entry.watchers))
                entry.watchers = None
        return due


def _call(due: list[tuple[Entry, list[Watcher]]]) -> None:
    for entry, watchers in due:
        for watcher in watchers:
            watcher(entry)
