"""The one home of pickling: functions, calls, values and exceptions become bytes here and nowhere else.

Theory of operation
    *Plain pickle first.* It is 5 to 10 times cheaper than cloudpickle. Cloudpickle (an extra) is used only if
    pickle fails, or if the bytes name something that lives in ``__main__``, which other processes lack.

    *Inputs inside arguments* are found while pickling, at any depth and at no cost to plain arguments. While
    `dump_call` runs, ``Future.__reduce__`` and ``Ref.__reduce__`` return `reference`, which notes the key
    with a collector of this thread and pickles as a call of `_input`. On the worker, `load_call` puts the
    inputs where `_input` finds them.

    *Values* are pickle protocol 5 with large buffers (arrays) out of band, so Python never copies them.

    *Exceptions* go as a pickle beside their type names, text and traceback, so that an error always arrives
    in some readable form. Nothing in `dump_exception` or `load_exception` raises.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import pickle
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import BuiltinFunctionType, FunctionType, TracebackType
from typing import Any, Final, NamedTuple

from shunter.errors import InternalError, RemoteError, UsageError
from shunter.types import Buffer

__all__ = [
    "DumpedException",
    "RemoteTraceback",
    "digest",
    "display_name",
    "dump_call",
    "dump_exception",
    "dump_function",
    "dump_value",
    "is_collecting",
    "load_call",
    "load_exception",
    "load_function",
    "load_value",
    "reference",
]

PROTOCOL: Final = 5
#: Buffers up to this size are cheaper inside the pickle than as a part of their own.
IN_BAND_MAX: Final = 16 * 1024
#: An exception whose pickle is larger travels as text only.
EXCEPTION_MAX: Final = 1024 * 1024
TEXT_MAX: Final = 8 * 1024
TRACEBACK_MAX: Final = 64 * 1024
NAME_MAX: Final = 100

_NO_ARGUMENTS: Final = pickle.dumps(((), {}), PROTOCOL)
_EXTRA: Final = "pip install 'shunter[cloudpickle]'"


class _Collector:
    """Notes the inputs that are met while one call is pickled, each once, in order."""

    __slots__ = ("keys", "owner")

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.keys: dict[str, None] = {}


class _Thread(threading.local):
    """What this thread is pickling (``collector``) or unpickling (``inputs``) just now."""

    collector: _Collector | None = None
    inputs: Mapping[str, object] | None = None


_thread: Final = _Thread()


# ---------------------------------------------------------------------------------------------- functions


def dump_function(fn: Callable[..., object]) -> bytes:
    """Pickle a function: by name if it can be imported, else by value.

    Raises:
        UsageError: it cannot be pickled, or only with the extra ``cloudpickle``, which is not installed.
    """
    if not callable(fn):
        raise UsageError(f"the function of a task must be callable, not {type(fn).__name__}: {_short(fn)}")
    try:
        return _dump(fn)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"function {display_name(fn)!r} cannot be pickled: {_reason(error)}") from error


def load_function(blob: Buffer) -> Callable[..., Any]:
    """The function again. Raises whatever unpickling raises: usually a module that is missing here."""
    fn: object = pickle.loads(blob)
    if not callable(fn):
        raise TypeError(f"the pickle of a function holds {type(fn).__name__}")
    return fn


def digest(blob: Buffer) -> str:
    """The name of a blob by its content: 32 hex digits. Equal functions share one blob in the cluster."""
    return hashlib.blake2b(blob, digest_size=16).hexdigest()


def display_name(fn: object) -> str:
    """A short name for people, also the start of a key: ``inc``, ``Model.fit``, ``lambda``."""
    inner = fn
    while hasattr(inner, "func") and not isinstance(inner, type):  # functools.partial, also nested
        inner = inner.func
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    if not isinstance(name, str):
        name = type(inner).__qualname__
    name = name.rpartition("<locals>.")[2].replace("<lambda>", "lambda")
    return name.encode("ascii", "replace").decode()[:NAME_MAX]


# ---------------------------------------------------------------------------------------------- calls


def dump_call(
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    *,
    name: str = "",
    owner: object = None,
) -> tuple[bytes, list[str]]:
    """Pickle the arguments of a call, and find the futures and refs among them at any depth.

    Args:
        args: positional arguments.
        kwargs: keyword arguments.
        name: the function's name, for error messages.
        owner: who may own the futures found (see `reference`); None does not check.

    Returns:
        The pickle, and the keys of the inputs in the order in which they were met, each once.

    Raises:
        UsageError: an argument cannot be pickled; names the function and the argument.
    """
    if not args and not kwargs:
        return _NO_ARGUMENTS, []
    before = _thread.collector  # An argument's __reduce__ may itself submit something.
    collector = _thread.collector = _Collector(owner)
    try:
        data = _dump((args, dict(kwargs)))
    except UsageError:
        raise
    except Exception as error:
        raise _argument_error(args, kwargs, name, error) from error
    finally:
        _thread.collector = before
    return data, list(collector.keys)


def load_call(data: Buffer, inputs: Mapping[str, object]) -> tuple[tuple[object, ...], dict[str, object]]:
    """The arguments of a call, with the values of ``inputs`` in the places of their futures and refs.

    Raises whatever unpickling raises; `InternalError` if an input is missing.
    """
    before = _thread.inputs
    _thread.inputs = inputs
    try:
        args, kwargs = pickle.loads(data)
    finally:
        _thread.inputs = before
    return args, kwargs


def reference(key: str, owner: object = None) -> tuple[Callable[[str], object], tuple[str]] | None:
    """What ``__reduce__`` of a future or ref returns while a call is being pickled; None at other times.

    Args:
        key: the task's.
        owner: whom the future belongs to; None for a ref.

    Raises:
        UsageError: the call belongs to somebody else (a future of another client).
    """
    collector = _thread.collector
    if collector is None:
        return None
    if owner is not None and collector.owner is not None and owner is not collector.owner:
        raise UsageError(f"future {key!r} is another client's: pass its result(), or submit with its client")
    collector.keys[key] = None
    return (_input, (key,))


def is_collecting() -> bool:
    """Whether the arguments of a call are being pickled by this thread, so that `reference` will note keys."""
    return _thread.collector is not None


def _input(key: str) -> object:
    """Stands in a pickled call where the value of ``key`` belongs."""
    inputs = _thread.inputs
    if inputs is None or key not in inputs:
        raise InternalError(f"input {key!r} is not at hand while the arguments of a call are unpickled")
    return inputs[key]


def _argument_error(
    args: tuple[object, ...], kwargs: Mapping[str, object], name: str, error: Exception
) -> UsageError:
    """Find the argument that cannot be pickled. Only on the way to an error, so it may cost a second pass."""
    of_call = f" of {name!r}" if name else ""
    places = [(f"argument {i}", value) for i, value in enumerate(args)]
    places += [(f"argument {word!r}", value) for word, value in kwargs.items()]
    for place, value in places:
        try:
            _dump(value)
        except Exception as its_error:
            return UsageError(
                f"{place}{of_call} ({type(value).__name__}) cannot be pickled: {_reason(its_error)}"
            )
    return UsageError(f"the arguments{of_call} cannot be pickled: {_reason(error)}")


# ---------------------------------------------------------------------------------------------- values


def dump_value(value: object, *, inline_max: int = 0) -> list[Buffer]:
    """Pickle a value into its parts: the pickle, then the buffers it keeps out of band.

    Buffers are views of the value's own memory, not copies. A value that fits into ``inline_max`` bytes is
    always a single part.

    Raises:
        UsageError: the value holds a future.
        Exception: whatever pickling raised, for a value that cannot be pickled.
    """
    in_band_max = inline_max if inline_max > IN_BAND_MAX else IN_BAND_MAX
    parts: list[Buffer] = [b""]

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        try:
            view = buffer.raw()
        except BufferError:  # not contiguous: pickle raises a clear error for it, or copies
            return True
        if view.nbytes <= in_band_max:
            return True
        parts.append(view)
        return False

    try:
        data = pickle.dumps(value, PROTOCOL, buffer_callback=keep_in_band)
        if b"__main__" not in data or not _names_main(value):
            parts[0] = data
            return parts
        error: Exception | None = None
    except UsageError:
        raise
    except Exception as first:
        error = first
    cloudpickle = _find_cloudpickle()
    if cloudpickle is None:
        raise error if error is not None else UsageError(_needs_extra(value))
    del parts[1:]
    parts[0] = cloudpickle.dumps(value, PROTOCOL, buffer_callback=keep_in_band)
    return parts


def load_value(parts: Sequence[Buffer]) -> Any:
    """A value from its parts. Arrays are views of the parts given. Raises whatever unpickling raises."""
    return pickle.loads(parts[0], buffers=parts[1:])


# ---------------------------------------------------------------------------------------------- exceptions


class DumpedException(NamedTuple):
    """An exception as data. ``types``: qualified names along the MRO, the exception's own first."""

    data: bytes | None
    text: str
    types: list[str]
    traceback: str


class RemoteTraceback(Exception):
    """The ``__cause__`` of an exception that was raised on a worker: shows the traceback from there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"on the worker:\n\n{self.text.rstrip()}\n"


def dump_exception(error: BaseException, *, skip: str = "shunter.worker") -> DumpedException:
    """An exception as data, whatever it is. Never raises.

    Args:
        error: the exception.
        skip: frames of modules below this name are left out at the start of the traceback: users want to see
            their own code.

    ``data`` is None if the exception cannot be pickled or is larger than 1 MiB; long texts are cut.
    """
    cls = type(error)
    return DumpedException(
        _dump_exception(error),
        _cut(_safe_text(error), TEXT_MAX),
        [_safe_name(each) for each in cls.__mro__ if each is not object],
        _cut(_safe_traceback(error, skip), TRACEBACK_MAX),
    )


def load_exception(data: Buffer | None, type_name: str, text: str, traceback: str = "") -> Exception:
    """The exception again, or a `RemoteError` that tells the same as text. Never raises.

    Exceptions that would end this process or mean something else here (``SystemExit``, ``KeyboardInterrupt``,
    ``GeneratorExit``, ``asyncio.CancelledError``) become a `RemoteError` as well.
    """
    error: object = None
    note = ""
    if data is not None:
        try:
            error = pickle.loads(data)
        except Exception as failure:
            note = f"\n(It could not be unpickled here: {_reason(failure)})\n"
    if not isinstance(error, Exception):
        error = RemoteError(type_name, text, traceback)
    if traceback or note:
        with suppress(Exception):  # a class may refuse attributes
            error.__cause__ = RemoteTraceback(traceback + note)
    return error


def _dump_exception(error: BaseException) -> bytes | None:
    try:
        data = _dump(error)
    except Exception:
        return None
    return data if len(data) <= EXCEPTION_MAX else None


def _safe_text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failure:
        return f"<str() of the exception raised {type(failure).__name__}>"


def _safe_name(cls: type) -> str:
    try:
        return _clean(f"{cls.__module__}.{cls.__qualname__}")[:TEXT_MAX]
    except Exception:
        return "builtins.Exception"


def _safe_traceback(error: BaseException, skip: str) -> str:
    try:
        tb = _skip_frames(error.__traceback__, skip)
        return "".join(traceback.format_exception(type(error), error, tb))
    except Exception as failure:
        return f"<the traceback could not be formatted: {type(failure).__name__}>\n"


def _skip_frames(tb: TracebackType | None, skip: str) -> TracebackType | None:
    start = tb
    while tb is not None:
        module = tb.tb_frame.f_globals.get("__name__", "")
        if module != skip and not module.startswith(skip + "."):
            return tb
        tb = tb.tb_next
    return start  # every frame is ours: then show them


def _cut(text: str, limit: int) -> str:
    text = _clean(text)
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… ({len(text) - limit:,} characters left out) …\n{text[-half:]}"


def _clean(text: str) -> str:
    """Text that UTF-8 can carry: lone surrogates are escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


# ---------------------------------------------------------------------------------------------- pickling


class _NotImportable(Exception):
    """It can be pickled, but not be found again by another process."""


def _dump(value: object) -> bytes:
    """Pickle in one piece: plainly if that will do, else with cloudpickle. Raises what pickling raised."""
    try:
        data = pickle.dumps(value, PROTOCOL)
        if b"__main__" not in data or not _names_main(value):
            return data
        error: Exception | None = None
    except UsageError:
        raise  # Said by a future or ref; no other pickler would change it.
    except Exception as first:
        error = first
    cloudpickle = _find_cloudpickle()
    if cloudpickle is None:
        raise error if error is not None else _NotImportable(_needs_extra(value))
    return cloudpickle.dumps(value, PROTOCOL)  # type: ignore[no-any-return]  # untyped


class _MainFinder(pickle.Pickler):
    """A pickler that tells whether it met a function or class of ``__main__`` (text may name it as well)."""

    found = False

    def reducer_override(self, obj: object) -> Any:
        if isinstance(obj, (type, FunctionType, BuiltinFunctionType)) and obj.__module__ == "__main__":
            self.found = True
        return NotImplemented


def _names_main(value: object) -> bool:
    finder = _MainFinder(io.BytesIO(), PROTOCOL)
    finder.dump(value)  # A second pass notes the same inputs again, which changes nothing.
    return finder.found


def _find_cloudpickle() -> Any:
    try:
        return importlib.import_module("cloudpickle")  # the extra; takes 30 ms, so only when needed
    except ImportError:
        return None


def _needs_extra(value: object) -> str:
    return (
        f"{_short(value)} is, or refers to, a function or class defined in __main__, which workers cannot "
        f"import: {_EXTRA}, or move it into a module"
    )


def _reason(error: Exception) -> str:
    """One line about an error of pickling, with the next move if an extra would help."""
    if isinstance(error, _NotImportable):
        return str(error)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    # Pickle says so about lambdas, nested functions and nested classes.
    by_name = isinstance(error, (pickle.PicklingError, AttributeError))
    if by_name and _find_cloudpickle() is None:
        text += f" (lambdas, nested functions and classes need an extra: {_EXTRA})"
    return text


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= NAME_MAX else text[: NAME_MAX - 1] + "…"
