"""The future table: messages in, watchers out. No connection, no loop."""

from __future__ import annotations

import threading

import pytest

from shunter.client.table import Entry, FutureTable, Gate
from shunter.errors import ConnectionLost, UsageError
from shunter.wire.messages import Failure

FAILURE = Failure("exception", "x", "bad", "", ["builtins.ValueError"], {}, None)


@pytest.fixture
def table() -> FutureTable:
    return FutureTable()


def finish(table: FutureTable, key: str, data: bytes | None = b"data") -> None:
    table.finished([key], [10], [data])


# ------------------------------------------------------------------------------------------- ends


def test_finished__entry_has_size_and_data(table: FutureTable) -> None:
    x = table.add("x")
    finish(table, "x")
    assert (x.status, x.nbytes, x.data, x.is_here) == ("finished", 10, b"data", True)


def test_finished_without_data__result_is_elsewhere(table: FutureTable) -> None:
    x = table.add("x")
    finish(table, "x", None)
    assert x.status == "finished" and not x.is_here


def test_erred__entry_has_the_failure(table: FutureTable) -> None:
    x, y = table.add("x"), table.add("y")
    table.erred(["x", "y"], [FAILURE, FAILURE])
    assert x.status == y.status == "error"
    assert x.error is y.error is FAILURE


def test_cancelled__entry_has_the_reason_and_its_key_is_free(table: FutureTable) -> None:
    x = table.add("x")
    table.cancelled(["x"], ["by force"])
    assert (x.status, x.error) == ("cancelled", "by force")
    assert table.find("x") is None


def test_news_of_an_unknown_key__ignored(table: FutureTable) -> None:
    finish(table, "?")
    table.erred(["?"], [FAILURE])
    table.cancelled(["?"], [""])
    table.pending_again(["?"])
    assert len(table) == 0


def test_lost__pending_again_and_then_finished(table: FutureTable) -> None:
    x = table.add("x")
    finish(table, "x", None)
    table.pending_again(["x"])
    assert x.is_pending
    finish(table, "x")
    assert x.status == "finished"


@pytest.mark.parametrize("kept", [False, True])
def test_lost_but_the_result_is_here__stays_finished(table: FutureTable, kept: bool) -> None:
    x = table.add("x")
    finish(table, "x")
    if kept:
        x.data, x.value, x.has_value = None, 1, True
    table.pending_again(["x"])
    table.erred(["x"], [FAILURE])
    table.cancelled(["x"], ["gone"])
    assert x.status == "finished"


def test_retried_by_somebody__pending_without_an_error(table: FutureTable) -> None:
    x = table.add("x")
    table.erred(["x"], [FAILURE])
    table.pending_again(["x"])
    assert x.is_pending and x.error is None


def test_retry__pending_without_an_error(table: FutureTable) -> None:
    x, y = table.add("x"), table.add("y")
    table.erred(["x", "y"], [FAILURE, FAILURE])
    assert table.retry([x, y]) == ["x", "y"]
    assert x.is_pending and x.error is None


@pytest.mark.parametrize("state", ["pending", "finished", "cancelled", "failed and cancelled"])
def test_retry_of_what_has_not_failed__error_says_so_and_none_is_retried(
    table: FutureTable, state: str
) -> None:
    x, y = table.add("x"), table.add("y")
    table.erred(["x"], [FAILURE])
    if state == "finished":
        finish(table, "y")
    elif state == "failed and cancelled":
        table.erred(["y"], [FAILURE])
    if "cancelled" in state:
        table.cancel([y], "")
    with pytest.raises(
        UsageError, match="'y' .*it was cancelled" if "cancelled" in state else f"'y' .*{state}"
    ):
        table.retry([x, y])
    assert x.status == "error"


def test_finished_twice__first_data_stays(table: FutureTable) -> None:
    x = table.add("x")
    finish(table, "x", b"one")
    finish(table, "x", None)
    assert x.data == b"one"


def test_restarted__everything_is_cancelled_and_released(table: FutureTable) -> None:
    entries = [table.add("here"), table.add("there"), table.add("pending"), table.add("own", unique=True)]
    finish(table, "here")
    finish(table, "there", None)
    keys, _ = table.restarted()
    assert keys == ["here", "there", "pending", "own"]
    assert {(each.status, each.error) for each in entries} == {("cancelled", "the cluster was restarted")}
    assert len(table) == 0
    assert table.drop(entries) == []  # Released already.


def test_restarted__what_is_told_of_a_former_life_does_not_count_for_a_newcomer(table: FutureTable) -> None:
    table.add("x")
    table.restarted()
    fence = table.open_fence()
    x = table.add("x")
    finish(table, "x", b"old")
    assert x.is_pending
    table.pass_fence(fence, {"x": ("processing", -1)})
    assert x.is_pending
    finish(table, "x", b"new")
    assert x.data == b"new"


def test_disconnected__what_is_not_here_fails(table: FutureTable) -> None:
    here, there, pending, failed = (table.add(key) for key in ("here", "there", "pending", "failed"))
    finish(table, "here")
    finish(table, "there", None)
    table.erred(["failed"], [FAILURE])
    lost = ConnectionLost("gone")
    table.disconnected(lost)
    assert (here.status, here.data) == ("finished", b"data")
    assert (there.status, there.error) == (pending.status, pending.error) == ("error", lost)
    assert failed.error is FAILURE


def test_closed__what_is_pending_is_cancelled(table: FutureTable) -> None:
    x = table.add("x")
    table.closed("closing")
    assert (x.status, x.error) == ("cancelled", "closing")


# ------------------------------------------------------------------------------------------- counts


def test_last_future_dropped__key_is_released(table: FutureTable) -> None:
    x = table.add("x")
    x.count += 1
    assert table.drop([x]) == []
    assert table.drop([x]) == ["x"]
    assert table.find("x") is None


def test_both_futures_dropped_at_once__released_once(table: FutureTable) -> None:
    x = table.add("x")
    x.count += 1
    assert table.drop([x, x]) == ["x"]


def test_cancelled_entry_dropped__nothing_to_release(table: FutureTable) -> None:
    x = table.add("x")
    keys, _ = table.cancel([x], "mine")
    assert keys == ["x"]
    assert table.drop([x]) == []


def test_old_entry_dropped_after_its_key_came_back__newcomer_stays(table: FutureTable) -> None:
    old = table.add("x")
    table.cancel([old], "mine")
    new = table.add("x")
    assert table.drop([old]) == []
    assert table.find("x") is new


def test_cancel_a_finished_entry__keeps_its_status_and_gives_up_the_key(table: FutureTable) -> None:
    x = table.add("x")
    finish(table, "x")
    assert table.cancel([x], "mine")[0] == ["x"]
    assert x.status == "finished"
    assert table.find("x") is None


def test_cancel_twice__second_says_nothing(table: FutureTable) -> None:
    x = table.add("x")
    assert table.cancel([x], "mine")[0] == ["x"]
    assert table.cancel([x], "mine")[0] == []


# ------------------------------------------------------------------------------------------- fences


def resubmit(table: FutureTable) -> tuple[Entry, int]:
    """Give x up and submit it again; returns the newcomer, and the fence that lies between."""
    old = table.find("x") or table.add("x")
    assert table.drop([old]) == ["x"]
    fence = table.open_fence()
    assert fence
    return table.add("x"), fence


def test_unique_keys_given_up__need_no_fence(table: FutureTable) -> None:
    table.drop([table.add("x", unique=True)])
    assert table.open_fence() == 0


def test_nothing_given_up_since_the_last_fence__no_other_one(table: FutureTable) -> None:
    resubmit(table)
    assert table.open_fence() == 0


@pytest.mark.parametrize("news", ["finished", "erred", "cancelled", "lost"])
def test_late_news_of_the_former_life__newcomer_stays_pending(table: FutureTable, news: str) -> None:
    x, fence = resubmit(table)
    if news == "finished":
        finish(table, "x")
    elif news == "erred":
        table.erred(["x"], [FAILURE])
    elif news == "cancelled":
        table.cancelled(["x"], ["by this client"])
    else:
        table.pending_again(["x"])
    assert x.is_pending and table.find("x") is x

    assert table.find_behind(fence) == ["x"]
    table.pass_fence(fence, {"x": ("processing", -1)})
    assert x.is_pending
    finish(table, "x")
    assert x.status == "finished"


def test_news_of_the_newcomer_before_the_fence_was_passed__told_by_its_status(table: FutureTable) -> None:
    x, fence = resubmit(table)
    finish(table, "x")
    table.pass_fence(fence, {"x": ("memory", 7)})
    assert (x.status, x.nbytes, x.data) == ("finished", 7, None)


def test_result_that_came_along_behind_a_fence__kept_if_it_can_only_be_the_newcomers(
    table: FutureTable,
) -> None:
    finish_first = table.add("x")
    finish(table, "x", b"old")
    assert finish_first.status == "finished"
    x, fence = resubmit(table)
    finish(table, "x", b"new")
    table.pass_fence(fence, {"x": ("memory", 3)})
    assert (x.status, x.data) == ("finished", b"new")


def test_newcomer_erred_before_the_fence_was_passed__last_failure_holds(table: FutureTable) -> None:
    x, fence = resubmit(table)
    table.erred(["x"], [FAILURE._replace(text="old")])
    table.erred(["x"], [FAILURE._replace(text="new")])
    table.pass_fence(fence, {"x": ("erred", -1)})
    assert isinstance(x.error, Failure) and x.error.text == "new"


def test_newcomer_unknown_when_the_fence_is_passed__cancelled_with_the_reason(table: FutureTable) -> None:
    x, fence = resubmit(table)
    table.cancelled(["x"], ["by force"])
    table.pass_fence(fence, {"x": ("unknown", 0)})
    assert (x.status, x.error) == ("cancelled", "by force")


def test_given_up_again_before_the_first_fence_was_passed__second_fence_counts(table: FutureTable) -> None:
    _, first = resubmit(table)
    x, second = resubmit(table)
    table.pass_fence(first, {})
    finish(table, "x")
    assert x.is_pending
    table.pass_fence(second, {"x": ("waiting", -1)})
    finish(table, "x")
    assert x.status == "finished"


def test_key_that_did_not_come_back__fence_asks_nothing(table: FutureTable) -> None:
    table.drop([table.add("x")])
    fence = table.open_fence()
    assert table.find_behind(fence) == []
    table.pass_fence(fence, {})
    x = table.add("x")
    finish(table, "x")
    assert x.status == "finished"


def test_cancelled_here_and_submitted_again__confirmation_does_not_cancel_it(table: FutureTable) -> None:
    old = table.add("x")
    table.cancel([old], "mine")
    fence = table.open_fence()
    new = table.add("x")
    table.cancelled(["x"], ["cancelled by this client"])
    table.pass_fence(fence, {"x": ("queued", -1)})
    assert old.status == "cancelled" and new.is_pending


def test_cancelled_by_others_and_submitted_again__what_is_still_said_of_it_is_not_about_the_new_one(
    table: FutureTable,
) -> None:
    """A retry that crossed the news has had the task run once more; its result comes after the key is used again."""
    table.add("x")
    heard: list[list[str]] = []
    table.on_cancelled = heard.append
    table.cancelled(["x"], ["cancelled by client 'c', by force"])
    assert heard == [["x"]]
    fence = table.open_fence()
    x = table.add("x")
    table.finished(["x"], [8], [b"of the former life"])
    assert x.is_pending
    table.pass_fence(fence, {"x": ("queued", -1)})
    finish(table, "x")
    assert x.status == "finished"


# ------------------------------------------------------------------------------------------- watchers


def test_watcher__called_once_at_the_end(table: FutureTable) -> None:
    x = table.add("x")
    called: list[Entry] = []
    assert table.watch(x, called.append)
    finish(table, "x")
    finish(table, "x")
    assert called == [x]


def test_watcher_of_what_is_done__refused(table: FutureTable) -> None:
    x = table.add("x")
    finish(table, "x")
    assert not table.watch(x, lambda entry: pytest.fail("called"))


def test_several_watchers__called_in_order(table: FutureTable) -> None:
    x = table.add("x")
    order: list[int] = []
    for n in range(3):
        table.watch(x, lambda entry, n=n: order.append(n))  # type: ignore[misc]
    table.cancelled(["x"], [""])
    assert order == [0, 1, 2]


def test_unwatch__not_called(table: FutureTable) -> None:
    x = table.add("x")
    called: list[Entry] = []
    table.watch(x, called.append)
    table.unwatch(x, called.append)
    table.unwatch(x, called.append)
    finish(table, "x")
    assert called == []


def test_watcher__is_called_without_the_lock(table: FutureTable) -> None:
    x = table.add("x")
    free: list[bool] = []

    def look(entry: Entry) -> None:
        thread = threading.Thread(
            target=lambda: free.append(table.lock.acquire(timeout=5) and not table.lock.release())
        )
        thread.start()
        thread.join()

    table.watch(x, look)
    finish(table, "x")
    assert free == [True]


@pytest.mark.parametrize("end", ["cancel", "disconnected", "closed", "restarted", "erred"])
def test_every_end__calls_watchers(table: FutureTable, end: str) -> None:
    x = table.add("x")
    called: list[Entry] = []
    table.watch(x, called.append)
    if end == "cancel":
        tell = table.cancel([x], "mine")[1]
        assert called == []
        tell()
    elif end == "disconnected":
        table.disconnected(ConnectionLost(""))
    elif end == "closed":
        table.closed("")
    elif end == "restarted":
        tell = table.restarted()[1]
        assert called == []
        tell()
    else:
        table.erred(["x"], [FAILURE])
    assert called == [x]


def test_alarm__rings_at_the_first_failure_among_its_entries(table: FutureTable) -> None:
    x, y, z = (table.add(key) for key in "xyz")
    rung: list[Entry] = []
    alarm = table.set_alarm([x, y], rung.append)
    finish(table, "x")
    table.erred(["z"], [FAILURE])
    assert not alarm.rang
    table.erred(["y"], [FAILURE])
    assert alarm.rang and rung == [y]
    table.clear_alarm(alarm)
    assert z.status == "error"


def test_alarm_for_what_has_failed_already__rang(table: FutureTable) -> None:
    x = table.add("x")
    table.cancelled(["x"], [""])
    assert table.set_alarm([x], lambda entry: None).rang


# ------------------------------------------------------------------------------------------- gates


def test_gate__opens_once_however_often_it_is_opened() -> None:
    gate = Gate()
    gate.open()
    gate.open()
    assert gate.wait(0)
    assert not gate.wait(0)
    gate.open()
    assert gate.wait(None)


def test_gate__wakes_a_waiting_thread() -> None:
    gate = Gate()
    passed: list[bool] = []
    thread = threading.Thread(target=lambda: passed.append(gate.wait(30)))
    thread.start()
    gate.open()
    thread.join(30)
    assert passed == [True]


def test_gate__takes_a_timeout_of_any_length() -> None:
    gate = Gate()
    gate.open()
    assert gate.wait(1e300)


# ------------------------------------------------------------------------------------------- datasets


def test_adopt__shares_a_live_entry_or_makes_one(table: FutureTable) -> None:
    x = table.add("x")
    assert table.adopt("x") == (x, False)
    assert x.count == 2
    y, is_fresh = table.adopt("y")
    assert (is_fresh, y.status, y.count) == (True, "pending", 1)


def test_adopted_while_the_fence_of_its_former_life_is_being_passed__gets_its_own(table: FutureTable) -> None:
    table.drop([table.add("x")])
    first = table.open_fence()
    assert table.find_behind(first) == []  # Asked; the answer will not tell of x.
    x, _ = table.adopt("x")
    finish(table, "x", None)
    second = table.open_fence()
    assert second > first
    table.pass_fence(first, {})
    assert table.find_behind(second) == ["x"]
    table.pass_fence(second, {"x": ("memory", 10)})
    assert (x.status, x.nbytes) == ("finished", 10)


def test_void_entry__is_cancelled_and_not_in_the_table(table: FutureTable) -> None:
    x = table.make_void("x")
    assert (x.status, x.error, len(table)) == ("cancelled", "the cluster was restarted", 0)
    assert table.drop([x]) == []
