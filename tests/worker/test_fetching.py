"""The machine: inputs, copies, and the peers that have them."""

from __future__ import annotations

from shunter.worker.events import (
    AcquireAsked,
    DataPut,
    FetchBusy,
    FetchFailed,
    PeerGone,
    PeerRested,
    RemoveAsked,
    StatusSet,
    TimePassed,
    WhoHasTold,
)
from shunter.worker.instructions import AskWhoHas, ReportAcquireFailed, ReportFailed, RestPeer, TextFailure
from shunter.worker.model import Limits
from tests.worker.script import (
    SELF,
    Script,
    added,
    asked,
    compute,
    dropped,
    executed,
    failed,
    fetched,
    fetches,
    finished,
    kept,
)


def test_input_is_elsewhere__is_fetched_and_reported_and_the_task_runs() -> None:
    s = Script()
    (fetch,) = fetches(s.compute("y", 1, [("x", 8, [5])]))
    assert (fetch.peer, fetch.keys, fetch.nbytes) == (5, ["x"], 8)

    out = s.got(fetch)

    assert kept(out) == added(out) == ["x"]
    assert executed(out) == ["y"]
    s.finish(1)
    assert s.end() == {}


def test_input_is_here__runs_at_once() -> None:
    s = Script()
    s.step(DataPut(["x"], [8], ["put"]))

    assert executed(s.compute("y", 1, [("x", 8, [SELF, 5])])) == ["y"]


def test_two_tasks_need_one_input__it_is_fetched_once() -> None:
    s = Script(nthreads=2)
    s.step(compute("y", 1, [("x", 8, [5])]), compute("z", 2, [("x", 8, [5])]))

    (fetch,) = fetches(s.out)

    assert executed(s.got(fetch)) == ["y", "z"]


def test_one_input_named_twice__counts_once() -> None:
    s = Script()
    (fetch,) = fetches(s.compute("y", 1, [("x", 8, [5]), ("x", 8, [5])]))

    assert executed(s.got(fetch)) == ["y"]
    s.finish(1)
    assert s.end() == {}


def test_many_inputs_at_one_peer__travel_in_one_fetch() -> None:
    s = Script()

    out = s.compute("y", 1, [(f"x{i}", 8, [5]) for i in range(20)])

    assert fetched(out) == [(5, [f"x{i}" for i in range(20)])]


def test_inputs_at_several_peers__are_fetched_at_the_same_time() -> None:
    s = Script()

    out = s.compute("y", 1, [("a", 8, [5]), ("b", 8, [6]), ("c", 8, [7])])

    assert fetched(out) == [(5, ["a"]), (6, ["b"]), (7, ["c"])]


def test_too_many_peers__the_rest_waits_for_a_place() -> None:
    s = Script(limits=Limits(fetches_max=2))
    out = s.compute("y", 1, [("a", 8, [5]), ("b", 8, [6]), ("c", 8, [7])])
    assert fetched(out) == [(5, ["a"]), (6, ["b"])]

    assert fetched(s.got(fetches(out)[1])) == [(7, ["c"])]


def test_large_inputs__are_fetched_one_message_after_the_other() -> None:
    s = Script(limits=Limits(fetch_bytes_max=100))
    out = s.compute("y", 1, [("a", 60, [5]), ("b", 60, [5]), ("huge", 1000, [5])])
    assert fetched(out) == [(5, ["a"])]
    out = s.got(fetches(out)[0])
    assert fetched(out) == [(5, ["b"])]

    assert fetched(s.got(fetches(out)[0])) == [(5, ["huge"])]


def test_several_keys_at_one_peer__the_most_urgent_is_fetched_first() -> None:
    s = Script(limits=Limits(fetch_bytes_max=1))
    s.compute("busy", 0, [("first", 1, [5])])

    s.step(compute("y", 1, [("low", 1, [5])]), compute("z", 2, [("high", 1, [5])], priority=-1.0))

    out = s.got(fetches(s.out)[0])
    assert fetched(out) == [(5, ["high"])]
    assert fetched(s.got(fetches(out)[0])) == [(5, ["low"])]


def test_waiting_key_becomes_more_urgent__is_fetched_earlier() -> None:
    s = Script(limits=Limits(fetch_bytes_max=1))
    s.compute("t0", 0, [("first", 1, [5])])
    s.compute("t1", 1, [("a", 1, [5])])
    s.compute("t2", 2, [("b", 1, [5])])
    s.compute("t3", 3, [("b", 1, [5])], priority=-1.0)

    assert fetched(s.got(fetches(s.out)[0])) == [(5, ["b"])]


def test_key_has_two_holders__the_free_one_is_asked() -> None:
    s = Script(limits=Limits(fetch_bytes_max=1))
    s.compute("t0", 0, [("a", 1, [5])])

    assert fetched(s.compute("t1", 1, [("b", 1, [5, 6])])) == [(6, ["b"])]


def test_all_tasks_that_wait_are_freed__what_is_fetched_for_them_is_thrown_away() -> None:
    s = Script()
    (fetch,) = fetches(s.compute("y", 1, [("x", 8, [5])]))
    s.free("y")

    out = s.got(fetch)

    assert kept(out) == added(out) == []
    assert s.end() == {}


def test_input_is_freed_and_wanted_anew_during_its_fetch__the_old_value_is_not_used() -> None:
    s = Script()
    (old,) = fetches(s.compute("y", 1, [("x", 8, [5])]))
    s.free("y", "x")
    s.compute("y", 2, [("x", 8, [6])])

    assert kept(s.got(old)) == []
    (_, new) = fetches(s.out)
    assert new.peer == 6
    assert executed(s.got(new)) == ["y"]


# ------------------------------------------------------------------------------------------- trouble with peers


def test_peer_is_busy__is_asked_again_after_a_rest() -> None:
    s = Script()
    (fetch,) = fetches(s.compute("y", 1, [("x", 8, [5])]))

    out = s.step(FetchBusy(fetch.fetch))

    assert [(each.peer, each.seconds) for each in out if isinstance(each, RestPeer)] == [(5, 0.15)]
    assert fetches(out) == []
    assert asked(out) == ["x"]  # Others may have it by now.
    assert fetched(s.step(PeerRested(5))) == [(5, ["x"])]


def test_peer_is_busy_and_there_is_another_holder__that_is_asked_at_once() -> None:
    s = Script()
    (fetch,) = fetches(s.compute("y", 1, [("x", 8, [5, 6])]))
    other = {5: 6, 6: 5}[fetch.peer]

    assert fetched(s.step(FetchBusy(fetch.fetch))) == [(other, ["x"])]


def test_busy_peer_and_fresh_holders_come__they_are_asked() -> None:
    s = Script()
    (fetch,) = fetches(s.compute("y", 1, [("x", 8, [5])]))
    s.step(FetchBusy(fetch.fetch))

    assert fetched(s.step(WhoHasTold(["x"], [[5, 9]]))) == [(9, ["x"])]


def test_peer_cannot_be_reached__other_holders_are_asked() -> None:
    s = Script()
    (fetch,) = fetches(s.compute("y", 1, [("x", 8, [5, 6])]))
    other = {5: 6, 6: 5}[fetch.peer]

    out = s.step(FetchFailed(fetch.fetch, "reset"))

    assert fetched(out) == [(other, ["x"])]
    assert asked(out) == []


def test_last_holder_cannot_be_reached__the_scheduler_is_asked_and_told_who_failed() -> None:
    s = Script()
    (fetch,) = fetches(s.compute("y", 1, [("x", 8, [5])]))

    out = s.step(FetchFailed(fetch.fetch, "reset"))

    assert [(each.keys, each.failed) for each in out if isinstance(each, AskWhoHas)] == [(["x"], [5])]
    assert fetched(s.step(WhoHasTold(["x"], [[7]]))) == [(7, ["x"])]


def test_peer_cannot_be_reached_again_and_again__its_rest_grows_to_a_limit() -> None:
    s = Script()
    rests = []
    out = s.compute("y", 1, [("x", 8, [5])])
    for _ in range(8):
        out = s.step(FetchFailed(fetches(out)[0].fetch, "reset"), WhoHasTold(["x"], [[5]]))
        rests += [each.seconds for each in out if isinstance(each, RestPeer)]
        assert fetches(out) == []
        out = s.step(PeerRested(5))

    assert rests == [0.15, 0.3, 0.6, 1.2, 2.4, 4.8, 5.0, 5.0]


def test_peer_answers_after_failures__is_trusted_again() -> None:
    s = Script()
    out = s.compute("y", 1, [("x", 8, [5])])
    s.step(FetchFailed(fetches(out)[0].fetch, "reset"), WhoHasTold(["x"], [[5]]))
    out = s.step(PeerRested(5))
    s.got(fetches(out)[0])
    out = s.compute("z", 2, [("w", 8, [5])])

    out = s.step(FetchFailed(fetches(out)[0].fetch, "reset"))

    assert [each.seconds for each in out if isinstance(each, RestPeer)] == [0.15]


def test_peer_lost_the_key__other_holders_then_the_scheduler_are_asked() -> None:
    s = Script()
    (fetch,) = fetches(s.compute("y", 1, [("x", 8, [5, 6])]))

    out = s.got(fetch, missing=["x"])
    assert len(fetches(out)) == 1
    out = s.got(fetches(out)[0], missing=["x"])

    assert asked(out) == ["x"]


def test_scheduler_insists_on_a_holder_that_denies__waits_until_time_has_passed() -> None:
    s = Script()
    (fetch,) = fetches(s.compute("y", 1, [("x", 8, [5])]))
    assert asked(s.got(fetch, missing=["x"])) == ["x"]

    assert s.step(WhoHasTold(["x"], [[5]])) == []

    assert asked(s.step(TimePassed())) == ["x"]
    assert fetched(s.step(WhoHasTold(["x"], [[5]]))) == [(5, ["x"])]


def test_nobody_holds_the_key__is_asked_again_when_time_has_passed() -> None:
    s = Script()
    assert asked(s.compute("y", 1, [("x", 8, [])])) == ["x"]
    assert s.step(WhoHasTold(["x"], [[]])) == []

    assert asked(s.step(TimePassed())) == ["x"]


def test_scheduler_names_this_worker_itself__is_not_asked() -> None:
    s = Script()

    assert fetches(s.compute("y", 1, [("x", 8, [SELF])])) == []
    assert asked(s.out) == ["x"]
    assert executed(s.step(DataPut(["x"], [8], ["put"]))) == ["y"]


def test_peer_leaves_during_a_fetch__the_key_is_fetched_elsewhere_at_once() -> None:
    s = Script()
    (fetch,) = fetches(s.compute("y", 1, [("x", 8, [5, 6])]))
    other = {5: 6, 6: 5}[fetch.peer]

    assert fetched(s.step(PeerGone(fetch.peer))) == [(other, ["x"])]

    assert s.step(FetchFailed(fetch.fetch, "reset")) == []
    assert executed(s.got(fetches(s.out)[1])) == ["y"]
    s.finish(1)
    assert s.end() == {}


def test_only_holder_leaves__the_scheduler_is_asked() -> None:
    s = Script()
    s.step(StatusSet("paused"))
    s.compute("y", 1, [("x", 8, [5])])

    assert asked(s.step(PeerGone(5))) == ["x"]


def test_value_cannot_be_pickled_there__the_task_fails_and_names_the_input() -> None:
    s = Script()
    (fetch,) = fetches(s.compute("y", 1, [("x", 8, [5]), ("w", 8, [5])]))

    out = s.got(fetch, failed={"x": "cannot pickle '_thread.lock' object"})

    (report,) = [each for each in out if isinstance(each, ReportFailed)]
    assert isinstance(report.failure, TextFailure)
    assert (report.key, report.run_id, report.failure.kind) == ("y", 1, "serialization")
    assert "'x'" in report.failure.text
    assert "_thread.lock" in report.failure.text
    assert asked(out) == []
    assert s.end() == {}


# ------------------------------------------------------------------------------------------- computing what is fetched


def test_input_is_asked_to_be_computed_during_its_fetch__finished_is_reported_when_it_is_here() -> None:
    s = Script()
    (fetch,) = fetches(s.compute("y", 1, [("x", 8, [5])]))
    s.compute("other", 2)
    s.compute("x", 3)

    out = s.got(fetch)

    assert finished(out) == [("x", 3)]
    assert added(out) == []


def test_run_of_a_fetched_key_is_quicker__serves_those_who_wait_and_the_fetch_is_void() -> None:
    s = Script()
    (fetch,) = fetches(s.compute("y", 1, [("x", 8, [5])]))
    s.compute("x", 3)

    assert executed(s.finish(3)) == ["y"]

    assert kept(s.got(fetch)) == []


def test_fetch_lands_while_the_key_is_computed_here__only_the_run_is_reported() -> None:
    s = Script()
    (fetch,) = fetches(s.compute("y", 1, [("x", 8, [5])]))
    s.compute("x", 3)

    out = s.got(fetch)

    assert added(out) == []
    assert finished(out) == []
    assert executed(s.finish(3)) == ["y"]


# ------------------------------------------------------------------------------------------- acquire, remove


def test_copy_is_asked_for__is_fetched_and_reported() -> None:
    s = Script()
    (fetch,) = fetches(s.step(AcquireAsked(["x"], [8], [1], [[5]])))

    out = s.got(fetch)

    assert kept(out) == added(out) == ["x"]
    assert s.end() == {}


def test_copy_is_here_already__is_confirmed() -> None:
    s = Script()
    s.step(DataPut(["x"], [8], ["put"]))

    assert added(s.step(AcquireAsked(["x"], [8], [1], [[5]]))) == ["x"]


def test_copy_can_be_had_from_nobody__this_is_reported_and_forgotten() -> None:
    s = Script()
    (fetch,) = fetches(s.step(AcquireAsked(["x"], [8], [1], [[5]])))

    out = s.step(FetchFailed(fetch.fetch, "reset"))

    assert [each.keys for each in out if isinstance(each, ReportAcquireFailed)] == [["x"]]
    assert asked(out) == []
    s.step(PeerGone(5))
    assert s.end() == {}


def test_copies_and_inputs_at_one_peer__inputs_come_first() -> None:
    s = Script(limits=Limits(fetch_bytes_max=1))
    s.compute("t0", 0, [("first", 1, [5])])

    s.step(AcquireAsked(["copy"], [1], [1], [[5]]), compute("t1", 1, [("input", 1, [5])]))

    assert fetched(s.got(fetches(s.out)[0])) == [(5, ["input"])]


def test_copy_is_removed__is_dropped_without_a_word() -> None:
    s = Script()
    s.step(DataPut(["x"], [8], ["put"]))

    out = s.step(RemoveAsked(["x"]))

    assert dropped(out) == ["x"]
    assert len(out) == 1


def test_copy_is_removed_while_a_task_uses_it__is_dropped_when_that_ends() -> None:
    s = Script(nthreads=2)
    s.step(DataPut(["x"], [8], ["put"]))
    s.step(compute("y", 1, [("x", 8, [])]), compute("z", 2, [("x", 8, [])]))
    assert dropped(s.step(RemoveAsked(["x"]))) == []
    assert dropped(s.finish(1)) == []

    assert dropped(s.finish(2)) == ["x"]


def test_copy_is_wanted_again_before_it_was_dropped__stays_and_is_reported() -> None:
    s = Script()
    s.step(DataPut(["x"], [8], ["put"]))
    s.compute("y", 1, [("x", 8, [])])
    s.step(RemoveAsked(["x"]))

    assert added(s.compute("z", 2, [("x", 8, [6])])) == ["x"]

    assert dropped(s.finish(1)) == []
    assert executed(s.out) == ["y", "z"]


def test_removal_during_an_acquisition__ends_it() -> None:
    s = Script()
    (fetch,) = fetches(s.step(AcquireAsked(["x"], [8], [1], [[5]])))
    s.step(RemoveAsked(["x"]))

    assert kept(s.got(fetch)) == []
    assert s.end() == {}


def test_input_is_freed_while_its_task_runs__goes_at_once_and_the_task_ends_well() -> None:
    s = Script()
    s.step(DataPut(["x"], [8], ["put"]))
    s.compute("y", 1, [("x", 8, [])])

    assert dropped(s.free("x")) == ["x"]
    assert finished(s.finish(1)) == [("y", 1)]
    assert s.end() == {}


def test_input_is_dropped_before_its_task_starts__is_fetched_again() -> None:
    s = Script()
    s.step(DataPut(["x"], [8], ["put"]))
    s.compute("runs", 0)
    s.compute("y", 1, [("x", 8, [])])
    s.step(RemoveAsked(["x"]))

    out = s.finish(0)

    assert executed(out) == []
    assert asked(out) == ["x"]
    (fetch,) = fetches(s.step(WhoHasTold(["x"], [[5]])))
    assert executed(s.got(fetch)) == ["y"]


def test_input_fails_for_one_task__another_that_waits_for_more_is_not_touched_twice() -> None:
    s = Script()
    out = s.compute("y", 1, [("x", 8, [5]), ("w", 8, [6])])
    first, second = fetches(out)
    assert failed(s.got(first, failed={"x": "no"})) == [("y", 1)]

    assert s.got(second) == []
    assert s.end() == {}
