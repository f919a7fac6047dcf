"""Pickling: functions, calls, values, exceptions."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import pytest

from shunter import serialize
from shunter.client.graphs import Ref, Task
from shunter.errors import InternalError, RemoteError, UsageError


def double(x: int) -> int:
    return 2 * x


class Point:
    def __init__(self, x: object, y: object) -> None:
        self.x = x
        self.y = y


class NeedsTwo(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")
        self.b = b


class Unpicklable:
    def __reduce__(self) -> tuple[object, ...]:
        raise ZeroDivisionError("not me")


@pytest.fixture
def no_cloudpickle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)


@pytest.fixture
def main_class() -> Iterator[type]:
    """A class that lives in __main__, as in a script."""
    main = sys.modules["__main__"]
    cls = type("FromScript", (), {"__module__": "__main__", "__qualname__": "FromScript"})
    main.FromScript = cls  # type: ignore[attr-defined]
    yield cls
    del main.FromScript  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------- functions


def test_importable_function__goes_by_name() -> None:
    blob = serialize.dump_function(double)

    assert b"double" in blob and len(blob) < 100
    assert serialize.load_function(blob) is double


def test_lambda__goes_by_value() -> None:
    pytest.importorskip("cloudpickle")
    offset = 3
    assert serialize.load_function(serialize.dump_function(lambda x: x + offset))(4) == 7


def test_lambda_without_the_extra__error_names_it(no_cloudpickle: None) -> None:
    with pytest.raises(UsageError, match=r"'.*lambda'.*pip install 'shunter\[cloudpickle\]'"):
        serialize.dump_function(lambda: None)


def test_function_from_main_without_the_extra__error_names_it(no_cloudpickle: None, main_class: type) -> None:
    with pytest.raises(UsageError, match=r"__main__.*pip install 'shunter\[cloudpickle\]'"):
        serialize.dump_function(main_class)


def test_class_from_main__goes_by_value(main_class: type) -> None:
    pytest.importorskip("cloudpickle")
    blob = serialize.dump_function(main_class)

    code = "import sys, pickle; print(type(pickle.load(sys.stdin.buffer)()).__name__)"
    out = subprocess.run(
        [sys.executable, "-c", code], input=blob, capture_output=True, timeout=60, check=True
    )
    assert out.stdout.strip() == b"FromScript"  # Another process, whose __main__ has no such class.


def test_not_callable__usage_error() -> None:
    with pytest.raises(UsageError, match="must be callable, not int"):
        serialize.dump_function(3)  # type: ignore[arg-type]


def test_function_that_holds_a_lock__error_names_the_function() -> None:
    with pytest.raises(UsageError, match=r"function 'double' cannot be pickled.*lock"):
        serialize.dump_function(functools.partial(double, threading.Lock()))


def test_pickle_that_is_no_function__type_error() -> None:
    import pickle

    with pytest.raises(TypeError, match="holds int"):
        serialize.load_function(pickle.dumps(3))


def test_digest__same_bytes_same_text_of_32_digits() -> None:
    assert serialize.digest(b"a") == serialize.digest(bytearray(b"a")) != serialize.digest(b"b")
    assert len(serialize.digest(b"")) == 32


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (double, "double"),
        (lambda: None, "lambda"),
        (functools.partial(functools.partial(double), 1), "double"),
        (Point, "Point"),
        (Point(1, 2), "Point"),
        ("".join, "str.join"),
        (pow, "pow"),
        (Point.__init__, "Point.__init__"),
    ],
)
def test_display_name__is_short(fn: object, name: str) -> None:
    assert serialize.display_name(fn) == name


def test_display_name_of_a_nested_function__leaves_out_the_outer_one() -> None:
    def inner() -> None: ...

    assert serialize.display_name(inner) == "inner"


def test_display_name__is_ascii_and_bounded() -> None:
    def f() -> None: ...

    f.__qualname__ = "grüß\udc80" * 100
    name = serialize.display_name(f)
    assert name.isascii() and len(name) == serialize.NAME_MAX


# ------------------------------------------------------------------------------------------- calls


def test_plain_arguments__round_trip() -> None:
    data, inputs = serialize.dump_call((1, [2]), {"x": None})

    assert inputs == []
    assert serialize.load_call(data, {}) == ((1, [2]), {"x": None})


def test_no_arguments__round_trip() -> None:
    data, inputs = serialize.dump_call((), {})
    assert (serialize.load_call(data, {}), inputs) == (((), {}), [])


def test_refs_at_any_depth__found_once_in_order() -> None:
    ref = Ref("b")
    data, inputs = serialize.dump_call(({"k": [ref, (Ref("a"), {1})]}, ref), {"p": Point(Ref("c"), Ref("a"))})

    assert inputs == ["b", "a", "c"]
    (nest, again), kwargs = serialize.load_call(data, {"a": 1, "b": "two", "c": [3]})
    assert (nest, again) == ({"k": ["two", (1, {1})]}, "two")
    assert (kwargs["p"].x, kwargs["p"].y) == ([3], 1)  # type: ignore[attr-defined]


def test_input_is_none__is_given_as_none() -> None:
    data, _ = serialize.dump_call((Ref("a"),), {})
    assert serialize.load_call(data, {"a": None}) == ((None,), {})


def test_input_missing_when_loading__internal_error() -> None:
    data, _ = serialize.dump_call((Ref("a"),), {})
    with pytest.raises(InternalError, match="'a'"):
        serialize.load_call(data, {})


def test_call_pickled_inside_a_call__each_finds_its_own() -> None:
    class Nosy:
        def __reduce__(self) -> tuple[object, ...]:
            found.append(serialize.dump_call((Ref("inner"),), {})[1])
            return (int, ())

    found: list[list[str]] = []
    data, inputs = serialize.dump_call((Ref("a"), Nosy(), Ref("b")), {})

    assert (inputs, found) == (["a", "b"], [["inner"]])
    assert serialize.load_call(data, {"a": 1, "b": 2}) == ((1, 0, 2), {})


def test_two_threads__do_not_mix_their_inputs() -> None:
    meet = threading.Barrier(2, timeout=30)

    class Slow:
        def __reduce__(self) -> tuple[object, ...]:
            meet.wait()
            return (int, ())

    found: dict[str, list[str]] = {}

    def work(name: str) -> None:
        found[name] = serialize.dump_call((Ref(name + "1"), Slow(), Ref(name + "2")), {})[1]

    threads = [threading.Thread(target=work, args=(name,)) for name in "xy"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == {"x": ["x1", "x2"], "y": ["y1", "y2"]}


@pytest.mark.parametrize(
    ("args", "kwargs", "where"),
    [
        ((1, (i for i in ())), {}, r"argument 1 of 'f' \(generator\)"),
        ((1,), {"lock": threading.Lock()}, r"argument 'lock' of 'f' \(lock\)"),
        (
            (Unpicklable(),),
            {},
            r"argument 0 of 'f' \(Unpicklable\) cannot be pickled: ZeroDivisionError: not me",
        ),
    ],
)
def test_unpicklable_argument__error_names_function_and_argument(
    args: tuple[object, ...], kwargs: dict[str, object], where: str
) -> None:
    with pytest.raises(UsageError, match=where):
        serialize.dump_call(args, kwargs, name="f")


def test_after_an_unpicklable_argument__nothing_is_left_behind() -> None:
    with pytest.raises(UsageError):
        serialize.dump_call((Ref("a"), Unpicklable()), {})

    assert not serialize.is_collecting()
    assert serialize.dump_call((Ref("b"),), {})[1] == ["b"]


def test_arguments_nested_too_deep__usage_error() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UsageError, match="cannot be pickled"):
        serialize.dump_call((deep,), {}, name="f")
    while deep:  # Taken apart by hand: some interpreters overflow their stack on it.
        deep = deep[0]


def test_text_that_says_main__needs_no_extra(no_cloudpickle: None) -> None:
    data, _ = serialize.dump_call(("__main__",), {"name": "__main__.py"})
    assert serialize.load_call(data, {}) == (("__main__",), {"name": "__main__.py"})


def test_object_of_a_class_from_main__needs_the_extra(no_cloudpickle: None, main_class: type) -> None:
    with pytest.raises(UsageError, match=r"argument 0 of 'f'.*__main__"):
        serialize.dump_call((main_class(),), {}, name="f")


def test_object_of_a_class_from_main_with_refs__each_input_once(main_class: type) -> None:
    pytest.importorskip("cloudpickle")
    data, inputs = serialize.dump_call((main_class(), Ref("a")), {})
    assert inputs == ["a"]
    assert serialize.load_call(data, {"a": 5})[0][1] == 5


def test_task_as_argument__refused() -> None:
    with pytest.raises(UsageError, match=r"Task\(double, 1\).*Ref\(key\)"):
        serialize.dump_call((Task(double, 1),), {}, name="f")


def test_ref_outside_of_a_call__pickles_as_itself() -> None:
    parts = serialize.dump_value(Ref("a"))
    assert serialize.load_value(parts) == Ref("a")


def test_reference_of_another_owner__refused() -> None:
    class Owned:
        def __init__(self, owner: object) -> None:
            self.owner = owner

        def __reduce__(self) -> Any:
            return serialize.reference("k", self.owner)

    me, other = object(), object()
    assert serialize.dump_call((Owned(me),), {}, owner=me)[1] == ["k"]
    with pytest.raises(UsageError, match="another client"):
        serialize.dump_call((Owned(other),), {}, owner=me)


# ------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("value", [None, 1, "text", b"bytes" * 100_000, [1, {"a": (2,)}], {1, 2}])
def test_value_without_buffers__one_part(value: object) -> None:
    parts = serialize.dump_value(value)
    assert len(parts) == 1
    assert serialize.load_value(parts) == value


def test_large_array__its_own_memory_travels() -> None:
    np = pytest.importorskip("numpy")
    array = np.arange(100_000)
    parts = serialize.dump_value({"a": array}, inline_max=4096)

    assert len(parts) == 2
    assert np.shares_memory(np.frombuffer(parts[1], array.dtype), array)
    received = [bytes(parts[0]), bytearray(parts[1])]
    loaded = serialize.load_value(received)["a"]
    assert (loaded == array).all()
    assert np.shares_memory(loaded, np.frombuffer(received[1], array.dtype))


def test_small_array__one_part() -> None:
    np = pytest.importorskip("numpy")
    parts = serialize.dump_value([np.arange(10)], inline_max=4096)
    assert len(parts) == 1
    assert serialize.load_value(parts)[0].sum() == 45


def test_array_within_inline_max__one_part() -> None:
    np = pytest.importorskip("numpy")
    assert len(serialize.dump_value(np.zeros(10_000), inline_max=1_000_000)) == 1
    assert len(serialize.dump_value(np.zeros(10_000), inline_max=0)) == 2


def test_array_that_is_not_contiguous__arrives() -> None:
    np = pytest.importorskip("numpy")
    array = np.arange(100_000).reshape(100, 1000)[:, ::2]
    assert (serialize.load_value(serialize.dump_value(array)) == array).all()


def test_value_that_only_cloudpickle_can__arrives_with_its_buffers() -> None:
    pytest.importorskip("cloudpickle")
    np = pytest.importorskip("numpy")
    array = np.arange(100_000)
    parts = serialize.dump_value((array, lambda x: x + 1))
    assert len(parts) == 2
    loaded, fn = serialize.load_value(parts)
    assert (loaded == array).all() and fn(1) == 2


def test_unpicklable_value__says_what_pickle_said() -> None:
    with pytest.raises(TypeError, match="generator"):
        serialize.dump_value(i for i in ())


# ------------------------------------------------------------------------------------------- exceptions


def failing(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def reload(error: BaseException) -> Exception:
    dumped = serialize.dump_exception(error)
    return serialize.load_exception(dumped.data, dumped.types[0], dumped.text, dumped.traceback)


def test_exception__comes_back_with_its_remote_traceback_as_cause() -> None:
    error = reload(failing(KeyError("missing")))

    assert type(error) is KeyError and error.args == ("missing",)
    assert isinstance(error.__cause__, serialize.RemoteTraceback)
    assert "in failing" in str(error.__cause__) and "KeyError: 'missing'" in str(error.__cause__)


def test_exception__types_follow_the_mro() -> None:
    dumped = serialize.dump_exception(failing(NeedsTwo(1, 2)))
    assert dumped.types == [f"{__name__}.NeedsTwo", "builtins.Exception", "builtins.BaseException"]
    assert dumped.text == "1 and 2"


def test_exception_with_required_arguments__comes_as_remote_error() -> None:
    error = reload(failing(NeedsTwo(1, 2)))

    assert isinstance(error, RemoteError)
    assert error.type_name.endswith("NeedsTwo") and error.text == "1 and 2"
    assert "could not be unpickled here" in str(error.__cause__)
    assert str(error).endswith("NeedsTwo: 1 and 2")


def test_exception_class_missing_here__comes_as_remote_error(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("only_over_there")
    cls = type("Strange", (Exception,), {"__module__": "only_over_there"})
    module.Strange = cls  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "only_over_there", module)
    dumped = serialize.dump_exception(failing(cls("boo")))
    monkeypatch.delitem(sys.modules, "only_over_there")

    error = serialize.load_exception(dumped.data, dumped.types[0], dumped.text, dumped.traceback)
    assert isinstance(error, RemoteError)
    assert str(error) == "only_over_there.Strange: boo"
    assert "only_over_there" in str(error.__cause__)


def test_unpicklable_exception__comes_as_remote_error() -> None:
    error = ValueError("with a lock")
    error.lock = threading.Lock()  # type: ignore[attr-defined]
    dumped = serialize.dump_exception(failing(error))

    assert dumped.data is None
    assert (
        str(serialize.load_exception(None, dumped.types[0], dumped.text))
        == "builtins.ValueError: with a lock"
    )


def test_exception_whose_str_raises__still_arrives() -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    dumped = serialize.dump_exception(failing(Rude()))
    assert "RuntimeError" in dumped.text
    assert dumped.types[0].endswith("Rude")


def test_huge_exception__goes_as_cut_text() -> None:
    dumped = serialize.dump_exception(failing(ValueError("x" * 10_000_000)))
    assert dumped.data is None
    assert len(dumped.text) < 10_000 and "left out" in dumped.text
    assert len(dumped.traceback) < 100_000


def test_text_with_lone_surrogates__can_be_encoded() -> None:
    dumped = serialize.dump_exception(failing(ValueError("bad \udc80 name")))
    assert dumped.text.encode() == b"bad \\udc80 name"
    dumped.traceback.encode()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_exception_that_would_end_the_process__comes_as_remote_error(error: BaseException) -> None:
    loaded = reload(failing(error))
    assert isinstance(loaded, RemoteError)
    assert loaded.type_name == f"builtins.{type(error).__name__}"


def test_pickle_of_something_else__comes_as_remote_error() -> None:
    import pickle

    loaded = serialize.load_exception(pickle.dumps(3), "m.E", "text")
    assert isinstance(loaded, RemoteError) and str(loaded) == "m.E: text"
    assert isinstance(serialize.load_exception(b"garbage", "m.E", "text"), RemoteError)


def test_traceback__begins_with_the_users_frames() -> None:
    namespace: dict[str, Any] = {"__name__": "shunter.worker.execution", "run": failing}
    exec(
        "def execute(error):\n    try:\n        raise error\n    except Exception as e:\n        return e",
        namespace,
    )

    def task() -> None:
        raise ValueError("mine")

    exec("def call(fn):\n    try:\n        fn()\n    except Exception as e:\n        return e", namespace)
    dumped = serialize.dump_exception(namespace["call"](task))
    assert "in task" in dumped.traceback and "in call" not in dumped.traceback
    assert "in execute" in serialize.dump_exception(namespace["execute"](ValueError())).traceback


def test_exception_of_a_class_from_main__is_the_same_class_back_home(main_class: type) -> None:
    pytest.importorskip("cloudpickle")
    main = sys.modules["__main__"]
    cls = type("ScriptError", (Exception,), {"__module__": "__main__", "__qualname__": "ScriptError"})
    main.ScriptError = cls  # type: ignore[attr-defined]
    try:
        assert type(reload(failing(cls("x")))) is cls
    finally:
        del main.ScriptError  # type: ignore[attr-defined]
