"""What turns the user's words into messages: options, functions, graphs, columns. Nothing is sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from shunter.client.functions import FunctionCache
from shunter.client.graphs import Call, Ref, Task, check_graph, find_cycle, walk
from shunter.client.options import build_options, check_key
from shunter.client.outgoing import Columns, Outgoing
from shunter.errors import GraphError, UsageError
from shunter.serialize import display_name, load_call, load_function
from shunter.types import Retry
from shunter.wire.messages import Cancel, Functions, Release, Submit, from_client


def add(x: Any, y: Any) -> Any:
    return x + y


def inc(x: Any) -> Any:
    return x + 1


# ------------------------------------------------------------------------------------------- options


def test_defaults__no_options() -> None:
    assert build_options() is None


def test_options__travel_as_given() -> None:
    assert build_options(
        workers="a",
        allow_other_workers=True,
        resources={"GPU": 1},
        retries=Retry(3, on=OSError, delay=0.5, elsewhere=True),
        priority=-2,
        annotations={"team": ["x", None]},
    ) == {
        "workers": ["a"],
        "allow_other_workers": True,
        "resources": {"GPU": 1},
        "retries": 3,
        "retry_on": ["builtins.OSError"],
        "retry_delay": 0.5,
        "retry_elsewhere": True,
        "priority": -2,
        "annotations": {"team": ["x", None]},
    }


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"workers": 3}, "workers= takes text, not 3"),
        ({"workers": []}, "workers= is empty"),
        ({"workers": ["a", None]}, "workers= takes text, not None"),
        ({"allow_other_workers": True}, "together with workers="),
        ({"resources": ["GPU"]}, "resources= takes a dict"),
        ({"resources": {"GPU": "1"}}, "takes a finite number"),
        ({"resources": {"GPU": -1}}, "negative"),
        ({"resources": {1: 1}}, "the name of a resource must be a str, not int"),
        ({"retries": -1}, "retries= takes a whole number from 0, not -1"),
        ({"retries": True}, "retries="),
        ({"retries": 1.5}, "retries="),
        ({"priority": "high"}, "priority= takes a finite number, not 'high'"),
        ({"priority": float("nan")}, "priority="),
        ({"annotations": {"f": inc}}, "annotations= takes what JSON can say"),
        ({"annotations": {"x": "y" * 20_000}}, "16,384"),
        ({"annotations": "x"}, "annotations= takes a dict"),
    ],
)
def test_wrong_option__error_names_it(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text.replace("(", r"\(")):
        build_options(**options)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (1, "must be a str, not int: 1"),
        (("a", 1), "not tuple"),
        (None, "not NoneType"),
        (b"x", "not bytes"),
        ("", "empty"),
        ("a\udc80", "lone surrogates"),
        ("x" * 1001, "1,001 characters; 1,000 are allowed"),
    ],
)
def test_key_of_the_wrong_type__error_names_the_type(key: object, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        check_key(key)


# ------------------------------------------------------------------------------------------- functions


def test_function_known_already__is_found_by_identity() -> None:
    cache = FunctionCache()
    assert cache.find(inc) is None
    function = cache.add(inc, cache.dump(inc))
    assert cache.find(inc) is function
    assert function.name == "inc"


def test_functions_with_the_same_pickle__travel_once() -> None:
    import functools

    cache = FunctionCache()
    one, two = functools.partial(inc, 1), functools.partial(inc, 1)
    first, second = cache.add(one, cache.dump(one)), cache.add(two, cache.dump(two))
    assert first.number == second.number
    assert len(cache.take_new()) == 1
    assert cache.take_new() == []


def test_cache_is_full__oldest_goes_but_its_number_stays() -> None:
    cache = FunctionCache(size=2)
    first = cache.add(inc, cache.dump(inc))
    cache.add(add, cache.dump(add))
    cache.add(pow, cache.dump(pow))
    assert cache.find(inc) is None
    assert cache.add(inc, cache.dump(inc)).number == first.number
    assert len(cache.take_new()) == 3


def test_function_with_much_data__refused_with_the_way_out() -> None:
    import functools

    with pytest.raises(UsageError, match=r"'inc' takes 4\d,\d{3},\d{3} bytes.*scatter"):
        FunctionCache.dump(functools.partial(inc, b"x" * 40_000_000))


# ------------------------------------------------------------------------------------------- outgoing


@pytest.fixture
def outgoing() -> Outgoing:
    cache = FunctionCache()
    cache.add(inc, cache.dump(inc))
    return Outgoing(cache)


def sent(outgoing: Outgoing) -> list[Any]:
    """What the scheduler reads."""
    messages = []
    for header, parts in outgoing.take():
        messages.append(from_client(list(header), b"".join(parts)))
    return messages


def put(outgoing: Outgoing, *keys: str, inputs: tuple[str, ...] = (), **options: Any) -> None:
    for key in keys:
        outgoing.submit_one(key, 1, inputs, build_options(**options), b"args", options.get("parent"))


def test_new_function__goes_ahead_of_all(outgoing: Outgoing) -> None:
    outgoing.say(Release(["a"]))
    put(outgoing, "x")
    functions, release, submit = sent(outgoing)
    assert isinstance(functions, Functions) and functions.names == ["inc"]
    assert load_function(functions.blobs[0]) is inc
    assert isinstance(release, Release) and isinstance(submit, Submit)
    put(outgoing, "y")
    assert [type(each) for each in sent(outgoing)] == [Submit]


def test_single_tasks__merge_into_one_message(outgoing: Outgoing) -> None:
    put(outgoing, "x", "y")
    put(outgoing, "z", priority=3)
    _, submit = sent(outgoing)
    assert submit.keys == ["x", "y", "z"]
    assert submit.option_of == [-1, -1, 0] and submit.options == [{"priority": 3}]
    assert submit.wanted is None and submit.inputs == [None] * 3
    assert outgoing.is_empty


def test_task_with_inputs__has_a_message_of_its_own(outgoing: Outgoing) -> None:
    put(outgoing, "x")
    put(outgoing, "y", inputs=("x",))
    put(outgoing, "z")
    _, *submits = sent(outgoing)
    assert [each.keys for each in submits] == [["x"], ["y"], ["z"]]
    assert submits[1].inputs == [["x"]]
    assert len({each.graph for each in submits}) == 3


def test_release_between_two_tasks__keeps_its_place(outgoing: Outgoing) -> None:
    put(outgoing, "x")
    outgoing.say(Release(["x"]))
    put(outgoing, "x")
    outgoing.say(Cancel(["x"], False))
    put(outgoing, "x")
    _, *rest = sent(outgoing)
    assert [type(each) for each in rest] == [Submit, Release, Submit, Cancel, Submit]


def test_tasks_of_different_parents__do_not_merge(outgoing: Outgoing) -> None:
    outgoing.submit_one("x", 1, (), None, b"", "p")
    outgoing.submit_one("y", 1, (), None, b"", "q")
    assert [each.parent for each in sent(outgoing)[1:]] == ["p", "q"]


def test_many_tasks__cut_by_number_and_by_size(outgoing: Outgoing) -> None:
    put(outgoing, *[f"k{n}" for n in range(2500)])
    assert [len(each.keys) for each in sent(outgoing)[1:]] == [1000, 1000, 500]
    for n in range(4):
        outgoing.submit_one(f"big{n}", 1, (), None, b"x" * 300_000, None)
    assert [len(each.keys) for each in sent(outgoing)] == [2, 2]


def test_keys_that_json_escapes__messages_are_cut_smaller(outgoing: Outgoing) -> None:
    put(outgoing, *["\U0001f600" * 100 + str(n) for n in range(1000)])
    assert all(len(json.dumps(header)) < 1 << 20 for header, _ in outgoing.take())


def test_count_and_size__are_those_of_what_waits(outgoing: Outgoing) -> None:
    put(outgoing, "x", "y")
    assert outgoing.count == 2 and 8 < outgoing.nbytes < 100
    outgoing.take()
    assert outgoing.count == outgoing.nbytes == 0


def test_large_functions__are_spread_over_messages() -> None:
    import functools

    cache = FunctionCache()
    for n in range(3):
        fn = functools.partial(inc, bytes([n]) * 10_000_000)
        cache.add(fn, cache.dump(fn))
    messages = sent(Outgoing(cache))
    assert [len(each.numbers) for each in messages] == [1, 1, 1]


def test_options_shared_by_tasks__travel_once() -> None:
    columns = Columns()
    options = build_options(priority=1)
    for key in "abc":
        columns.add(key, 1, (), options, b"")
    assert columns.options == [options] and columns.option_of == [0, 0, 0]


def test_task_with_far_too_many_inputs__error_before_it_is_sent() -> None:
    columns = Columns()
    columns.add("x", 1, [f"input-{n}" for n in range(200_000)], None, b"")
    with pytest.raises(UsageError):
        columns.check()


# ------------------------------------------------------------------------------------------- graphs


def calls(
    graph: Mapping[str, Task], *wanted: str, known: Callable[[str], bool] = lambda key: False
) -> Iterator[Call]:
    check_graph(graph)
    return walk(graph, wanted or list(graph), is_known=known, owner=None, name_of=display_name)


def test_graph__inputs_are_found_wherever_refs_are() -> None:
    graph = {"a": Task(inc, 1), "b": Task(inc, 2), "c": Task(add, [Ref("a")], y={"k": Ref("b")})}
    found = {call.key: call for call in calls(graph, "c")}
    assert set(found) == {"a", "b", "c"}
    assert found["c"].inputs == ["a", "b"]
    assert load_call(found["c"].data, {"a": 2, "b": 3}) == (([2],), {"y": {"k": 3}})


def test_graph__tasks_that_are_not_needed_are_left_out() -> None:
    graph = {"a": Task(inc, 1), "b": Task(inc, Ref("a")), "c": Task(inc, iter([]))}
    assert {call.key for call in calls(graph, "b")} == {"a", "b"}


def test_graph__input_may_be_a_live_future() -> None:
    graph = {"b": Task(inc, Ref("outside"))}
    (call,) = calls(graph, known=lambda key: key == "outside")
    assert call.inputs == ["outside"]


@pytest.mark.parametrize(
    ("graph", "cycle"),
    [
        ({"a": Task(inc, Ref("a"))}, "'a' needs 'a'"),
        ({"a": Task(inc, Ref("b")), "b": Task(inc, Ref("a"))}, "'a' needs 'b' needs 'a'"),
        (
            {
                "z": Task(inc, Ref("a")),
                "a": Task(inc, Ref("b")),
                "b": Task(add, 1, [Ref("c")]),
                "c": Task(inc, Ref("a")),
            },
            "'a' needs 'b' needs 'c' needs 'a'",
        ),
    ],
)
def test_graph_with_a_cycle__error_shows_it(graph: dict[str, Task], cycle: str) -> None:
    with pytest.raises(GraphError, match=f"has a cycle: {cycle}$"):
        list(calls(graph))


def test_graph_with_a_long_cycle__error_is_short() -> None:
    n = 100_000
    graph = {f"k{i}": Task(inc, Ref(f"k{(i + 1) % n}")) for i in range(n)}
    with pytest.raises(GraphError) as error:
        list(calls(graph, "k0"))
    assert len(str(error.value)) < 300


def test_graph_with_an_unknown_input__error_names_it_and_what_comes_close() -> None:
    graph = {"load-1": Task(inc, 1), "b": Task(inc, Ref("laod-1"))}
    with pytest.raises(GraphError, match=r"task 'b' needs 'laod-1', .*\(close: 'load-1'\)"):
        list(calls(graph))


def test_wanted_key_not_in_the_graph__error_names_it() -> None:
    with pytest.raises(GraphError, match="'b' is not in the graph"):
        list(calls({"a": Task(inc, 1)}, "b"))


@pytest.mark.parametrize("key", [1, ("a", 0), None, ""])
def test_graph_with_a_key_of_the_wrong_type__error_names_the_type(key: Any) -> None:
    with pytest.raises(UsageError, match=f"not {type(key).__name__}"):
        check_graph({key: Task(inc, 1)})


@pytest.mark.parametrize("value", [1, (inc, 1), Ref("a"), None])
def test_graph_with_a_value_that_is_no_task__error_says_how(value: Any) -> None:
    with pytest.raises(UsageError, match=r"graph\['x'\] must be a Task"):
        check_graph({"x": value})


def test_graph_that_is_no_dict__usage_error() -> None:
    with pytest.raises(UsageError, match="not list"):
        check_graph([Task(inc, 1)])  # type: ignore[arg-type]


def test_graph_with_an_unpicklable_argument__error_names_task_and_argument() -> None:
    graph = {"a": Task(add, 1, (i for i in ()))}
    with pytest.raises(UsageError, match=r"graph\['a'\]: argument 1 of 'add' \(generator\)"):
        list(calls(graph))


def test_task_with_a_task_inside__error_says_how() -> None:
    with pytest.raises(UsageError, match=r"Ref\(key\)"):
        list(calls({"a": Task(inc, Task(inc, 1))}))


def test_task_needs_a_function() -> None:
    with pytest.raises(UsageError, match="function first, not int"):
        Task(1)  # type: ignore[arg-type]


def test_task_with_options__others_stay_without() -> None:
    plain = Task(inc, 1)
    special = plain.with_options(retries=2)
    assert plain.options is None and special.options == {"retries": 2}
    with pytest.raises(UsageError, match="retires"):
        plain.with_options(retires=2)


def test_deep_chain__walked_without_recursion() -> None:
    n = 20_000
    graph = {"k0": Task(inc, 0)} | {f"k{i}": Task(inc, Ref(f"k{i - 1}")) for i in range(1, n)}
    assert sum(1 for _ in calls(graph, f"k{n - 1}")) == n


def test_find_cycle__none_in_a_diamond() -> None:
    assert find_cycle({"d": ["b", "c"], "b": ["a"], "c": ["a"], "a": []}) == []


def test_ref__equal_by_key() -> None:
    assert Ref("a") == Ref("a") != Ref("b")
    assert len({Ref("a"), Ref("a")}) == 1
    assert repr(Ref("a")) == "Ref('a')"
    with pytest.raises(UsageError, match="key of a Ref"):
        Ref(1)  # type: ignore[arg-type]
