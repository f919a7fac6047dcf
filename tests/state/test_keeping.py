"""Keys that no client wants and that are kept all the same: detached ones and published ones."""

from __future__ import annotations

import pytest

from shunter.state import (
    DatasetPublished,
    DatasetRequested,
    DatasetUnpublished,
    KeysDetached,
    Log,
    Reply,
    ReportFinished,
)
from tests.state.script import Script


def detach(s: Script, *keys: str, by: str = "c") -> None:
    s.step(KeysDetached(s.numbers[by], list(keys)))


def publish(s: Script, name: str, *keys: str, by: str = "c", replace: bool = False) -> Reply:
    s.step(DatasetPublished(s.numbers[by], 1, name, list(keys), f"data of {name}", replace))
    (reply,) = s.take(Reply)
    return reply


def unpublish(s: Script, name: str, *, by: str = "c") -> object:
    s.step(DatasetUnpublished(s.numbers[by], 2, name))
    (reply,) = s.take(Reply)
    return reply.value


# ---------------------------------------------------------------------------------------------- fire and forget


def test_detached_task_whose_client_leaves__runs_to_its_end_and_is_released() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]})
    detach(s, "y")
    s.release("x", "y")
    s.client_leaves()
    s.finish("x")
    assert s.sent() == [("x", "a"), ("y", "a")]
    s.finish("y")
    assert s.count("tasks") == 0


def test_detached_task_that_its_client_still_wants__stays_until_it_is_released() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    detach(s, "x")
    s.finish("x")
    assert s.status("x") == "memory"
    s.release("x")
    assert s.count("tasks") == 0


def test_detached_task_fails__it_is_logged_and_forgotten() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]})
    detach(s, "y")
    s.release("x", "y")
    s.fail("x")
    assert s.count("tasks") == 0
    (line,) = [each for each in s.take(Log) if each.code == "fire-and-forget-failed"]
    assert line.fields["key"] == "y"
    assert line.fields["because"] == "x"


@pytest.mark.parametrize("force", [False, True])
def test_detached_task_that_its_client_cancels__is_given_up(force: bool) -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]})
    detach(s, "y")
    s.cancel("x", force=force)
    assert s.count("tasks") == 0


def test_detached_task_that_another_client_wants__is_not_given_up_by_a_cancel() -> None:
    s = Script(clients=("c", "d"), workers={"a": 1}, graph={"x": []})
    s.submit({"x": []}, by="d")
    detach(s, "x")
    s.cancel("x")
    assert s.status("x") == "processing"


def test_done_before_it_is_detached__nothing_is_kept() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.finish("x")
    detach(s, "x")
    s.release("x")
    assert s.count("tasks") == 0


def test_unknown_key_is_detached__the_client_is_told() -> None:
    s = Script()
    detach(s, "nobody")
    assert s.reports() == [("cancelled", "nobody")]


def test_worker_of_a_detached_task_is_lost__it_runs_again() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []})
    detach(s, "x")
    s.release("x")
    s.link_breaks(s.where("x"))
    assert s.status("x") == "processing"


# ---------------------------------------------------------------------------------------------- datasets


def test_published_keys__outlive_their_client() -> None:
    s = Script(workers={"a": 1}, graph={"x": [], "y": ["x"]}, want=["y"])
    assert publish(s, "results", "y").ok
    s.client_leaves()
    s.finish("x")
    s.finish("y")
    assert s.status("y") == "memory"
    assert s.view.datasets() == [{"name": "results", "keys": 1}]


def test_dataset_that_is_asked_for__comes_before_what_became_of_its_keys() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.finish("x")
    publish(s, "results", "x")
    s.client_leaves()
    d = s.client("d")
    s.out.clear()
    s.step(DatasetRequested(d, 5, "results"))
    reply, report = s.out
    assert isinstance(reply, Reply)
    assert (reply.request, reply.value) == (5, {"keys": ["x"], "data": "data of results"})
    assert isinstance(report, ReportFinished)
    s.out.clear()
    assert unpublish(s, "results", by="d") is True
    assert s.status("x") == "memory"  # d wants it
    s.release("x", by="d")
    assert s.count("tasks") == 0


def test_name_in_use__is_refused_unless_it_is_to_be_replaced() -> None:
    s = Script(workers={"a": 2}, graph={"x": [], "y": []})
    publish(s, "results", "x")
    refused = publish(s, "results", "y")
    assert not refused.ok
    assert "replace=True" in str(refused.value)
    assert publish(s, "results", "y", replace=True).ok
    s.release("x", "y")
    assert s.statuses("x", "y") == ["unknown", "processing"]


def test_replaced_by_the_same_keys__they_are_not_dropped_meanwhile() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    publish(s, "results", "x")
    s.release("x")
    publish(s, "results", "x", replace=True)
    assert s.status("x") == "processing"


def test_unknown_key_or_name__is_refused_in_words() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    refused = publish(s, "results", "x", "nobody")
    assert not refused.ok
    assert "'nobody'" in str(refused.value)
    assert s.view.datasets() == []
    publish(s, "other", "x")
    s.step(DatasetRequested(s.numbers["c"], 1, "results"))
    (reply,) = s.take(Reply)
    assert not reply.ok
    assert "'other'" in str(reply.value)
    assert unpublish(s, "results") is False


def test_dataset__is_not_given_up_by_a_forced_cancel() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    publish(s, "results", "x")
    s.cancel("x", force=True)
    assert s.status("x") == "processing"
    unpublish(s, "results")
    assert s.count("tasks") == 0


def test_erred_key_is_published__whoever_asks_hears_why_it_failed() -> None:
    s = Script(workers={"a": 1}, graph={"x": []})
    s.fail("x")
    assert publish(s, "results", "x").ok
    d = s.client("d")
    s.step(DatasetRequested(d, 5, "results"))
    assert s.reports("d") == [("erred", "x")]
