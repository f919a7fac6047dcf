"""Tasks that may not run just anywhere: named workers and hosts, and resources."""

from __future__ import annotations

import pytest

from shunter.state import Options
from tests.state.script import Script, roots


@pytest.mark.parametrize("name", ["b", "tcp://b:1", "host of b"])
def test_task_that_names_a_worker__runs_there(name: str) -> None:
    s = Script(workers={"a": 4})
    s.worker("b", 1, host="host of b")
    s.submit(roots("x", 5), options=Options(workers=[name]))
    assert list(s.play()) == ["b"]


def test_task_that_names_several__runs_on_any_of_them() -> None:
    s = Script(workers={"a": 1, "b": 1, "e": 1})
    s.submit(roots("x", 20), options=Options(workers=["a", "e"]))
    assert sorted(s.play()) == ["a", "e"]


def test_task_that_names_an_absent_worker__waits_for_it() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, options=Options(workers=["b"]))
    assert s.status("x") == "no-worker"
    assert "'x'" in s.view.why("x") and "b" in s.view.why("x")
    s.worker("e")
    assert s.status("x") == "no-worker"
    s.worker("b")
    assert s.where("x") == "b"


def test_task_that_names_an_absent_worker_and_allows_others__runs_there() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, options=Options(workers=["b"], allow_other_workers=True))
    assert s.where("x") == "a"


def test_task_that_prefers_a_worker_and_allows_others__prefers_it() -> None:
    s = Script(workers={"a": 1, "b": 1, "e": 1})
    s.submit({"x": []}, options=Options(workers=["b"], allow_other_workers=True))
    assert s.where("x") == "b"


def test_named_worker_started_again_elsewhere__the_name_still_counts() -> None:
    s = Script(workers={"a": 1, "b": 1}, graph={"x": []}, options=Options(workers=["b"]))
    s.leaves("b")
    assert s.status("x") == "no-worker"
    s.worker("b", address="tcp://elsewhere:9")
    assert s.where("x") == "b"


def test_named_worker_paused__the_task_waits() -> None:
    s = Script(workers={"a": 1, "b": 1})
    s.pause("b")
    s.submit({"x": []}, options=Options(workers=["b"]))
    assert s.status("x") == "no-worker"
    s.resume("b")
    assert s.where("x") == "b"


def test_task_with_a_resource__runs_where_it_is() -> None:
    s = Script(workers={"a": 4})
    s.worker("b", 1, resources={"GPU": 1.0})
    s.submit({"x": []}, options=Options(resources={"GPU": 1.0}))
    assert s.where("x") == "b"


def test_resource_in_use__the_next_one_waits_for_it() -> None:
    s = Script()
    s.worker("b", 4, resources={"GPU": 2.0})
    s.submit(roots("x", 5), options=Options(resources={"GPU": 1.0}))
    assert s.count("processing") == 2
    assert s.row("b")["used"] == {"GPU": 2.0}
    s.finish("x-0")
    assert s.count("processing") == 2
    assert s.play() == {"b": ["x-1", "x-2", "x-3", "x-4"]}
    assert s.row("b")["used"] == {}


def test_blocked_demand__does_not_block_others() -> None:
    s = Script()
    s.worker("b", 2, resources={"GPU": 1.0})
    s.submit(roots("gpu", 5), options=Options(resources={"GPU": 1.0}))
    s.submit({"x": []})
    assert s.statuses("gpu-0", "gpu-1", "x") == ["processing", "queued", "processing"]


def test_fractions_of_a_resource__add_up_exactly() -> None:
    s = Script()
    s.worker("b", 20, resources={"GPU": 1.0})
    s.submit(roots("x", 20), options=Options(resources={"GPU": 0.1}))
    assert s.count("processing") == 10
    s.play()
    assert s.row("b")["used"] == {}


def test_resource_that_no_worker_has__is_named() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, options=Options(resources={"GPU": 1.0}))
    assert s.status("x") == "no-worker"
    assert "no worker has GPU=1" in s.view.why("x")


def test_more_of_a_resource_than_any_worker_has__is_named() -> None:
    s = Script(no_workers_timeout=5.0)
    s.worker("b", 4, resources={"GPU": 2.0})
    s.submit({"x": []}, options=Options(resources={"GPU": 3.0}))
    assert s.status("x") == "no-worker"
    s.wait(6.0)
    assert "no worker has GPU=3" in s.failure("x").text
    assert s.failure("x").kind == "no-worker"


def test_resources_that_no_single_worker_has_together__are_said_so() -> None:
    s = Script()
    s.worker("a", 1, resources={"GPU": 1.0})
    s.worker("b", 1, resources={"MEM": 1.0})
    s.submit({"x": []}, options=Options(resources={"GPU": 1.0, "MEM": 1.0}))
    assert "together" in s.view.why("x")


def test_worker_with_more_than_is_asked_for__may_take_the_task() -> None:
    s = Script()
    s.worker("a", 1, resources={"CPU": 1.0, "MEM": 4.0, "GPU": 1.0})
    s.submit(roots("x", 6), options=Options(resources={"CPU": 1.0, "MEM": 4.0}))
    s.worker("b", 1, resources={"CPU": 1.0, "MEM": 4.0})
    ran = s.play(seconds=1.0)
    assert sorted(ran) == ["a", "b"]


def test_resource_of_a_worker_that_left__is_free_again_elsewhere() -> None:
    s = Script()
    s.worker("a", 1, resources={"GPU": 1.0})
    s.submit({"x": []}, options=Options(resources={"GPU": 1.0}))
    s.link_breaks("a")
    assert s.status("x") == "no-worker"
    s.worker("b", 1, resources={"GPU": 1.0})
    assert s.where("x") == "b"


def test_task_that_needs_a_resource_and_reschedules__gives_it_back_between() -> None:
    s = Script()
    s.worker("a", 1, resources={"GPU": 1.0})
    s.submit({"x": []}, options=Options(resources={"GPU": 1.0}))
    s.reschedule("x")
    assert s.row("a")["used"] == {"GPU": 1.0}
    s.finish("x")
    assert s.row("a")["used"] == {}


def test_resource_of_zero__asks_for_nothing() -> None:
    s = Script(workers={"a": 1}, graph={"x": []}, options=Options(resources={"GPU": 0.0}))
    assert s.where("x") == "a"


def test_input_elsewhere__does_not_draw_a_task_away_from_its_resource() -> None:
    s = Script(workers={"a": 1})
    s.worker("b", 1, resources={"GPU": 1.0})
    s.submit({"x": []}, options=Options(workers=["a"]))
    s.finish("x", nbytes=1_000_000)
    s.submit({"y": ["x"]}, options=Options(resources={"GPU": 1.0}))
    assert s.where("y") == "b"
