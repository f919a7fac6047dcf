"""How much work is sent ahead to a worker (DECISIONS 2)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.state.script import Script, roots

MIB = 1024 * 1024


def after_one(threads: int, *, seconds: float, nbytes: int = 8, **settings: Any) -> int:
    """Tasks at a worker of whose kind one has finished, with many more to come."""
    s = Script(workers={"a": threads}, graph={"f-first": []}, **settings)
    s.finish("f-first", seconds=seconds, nbytes=nbytes)
    s.submit(roots("f", 2000))
    return s.count("processing")


def test_unknown_kind__one_is_sent_ahead() -> None:
    s = Script(workers={"a": 3}, graph=roots("x", 100))
    assert s.count("processing") == 3 + 1


def test_long_kind__one_is_sent_ahead() -> None:
    assert after_one(1, seconds=10.0) == 1 + 1


@pytest.mark.parametrize(
    ("threads", "seconds", "ahead"),
    [(1, 0.002, 1), (1, 0.001, 2), (1, 0.0007, 3), (4, 0.001, 8), (1, 0.0001, 20), (2, 0.0001, 40)],
)
def test_short_kind__as_many_are_sent_ahead_as_end_in_the_window(
    threads: int, seconds: float, ahead: int
) -> None:
    assert after_one(threads, seconds=seconds) == threads + ahead


def test_kind_that_takes_next_to_no_time__the_window_is_bounded() -> None:
    assert after_one(1, seconds=1e-9) == 1 + 256
    assert after_one(1, seconds=1e-9, window_max=10) == 1 + 10


def test_short_kind_with_large_results__one_is_sent_ahead() -> None:
    assert after_one(1, seconds=0.0001, nbytes=MIB) == 1 + 1
    assert after_one(1, seconds=0.0001, nbytes=MIB - 1) == 1 + 20


def test_result_that_was_there_already__says_nothing_about_the_kind() -> None:
    assert after_one(1, seconds=0.0) == 1 + 1


def test_window__is_a_setting() -> None:
    assert after_one(1, seconds=0.001, window_s=0.010) == 1 + 10


def test_first_duration_was_wrong__the_window_follows_the_mean() -> None:
    s = Script(workers={"a": 1}, graph=roots("f", 1000))
    s.finish("f-0", seconds=1e-9)
    assert s.count("processing") == 257
    s.finish(*[f"f-{i}" for i in range(1, 200)], seconds=0.1)
    s.finish(*[f"f-{i}" for i in range(200, 257)], seconds=0.1)
    assert s.count("processing") == 2


def test_kinds__have_windows_of_their_own() -> None:
    s = Script(workers={"a": 1}, graph={"fast-first": [], "slow-first": []})
    s.finish("fast-first", seconds=0.0001)
    s.finish("slow-first", seconds=1.0)
    s.submit(roots("slow", 100))
    assert s.count("processing") == 2
    s.set_priority(1.0)
    s.submit(roots("fast", 100))
    assert s.count("processing") == 2  # the slow ones are first


def test_long_running_tasks__do_not_fill_the_window() -> None:
    s = Script(workers={"a": 1}, graph=roots("x", 10))
    s.long_running("x-0")
    s.long_running("x-1")
    assert s.count("processing") == 4
