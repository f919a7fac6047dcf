"""The options that exist: names, types, defaults. A keyword beats the environment, which beats a default.

Each option of `OPTIONS` can be set by the environment variable ``SHUNTER_`` + its name in capitals. They are
read once, at start, into values that never change afterwards. Command lines refuse unknown ``SHUNTER_``
names: a misspelt setting that does nothing is worse than an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from shunter.errors import UsageError

if TYPE_CHECKING:
    from shunter.state import Settings
    from shunter.wire.contact import Contact

PREFIX: Final = "SHUNTER_"
DEFAULT_PORT: Final = 8765  # of `shunter scheduler`; 0 takes any free one
LOG_LEVELS: Final = ("debug", "info", "warning", "error")

KIB: Final = 1024
MIB: Final = 1024 * 1024

#: ``SHUNTER_`` names that are not options: what reads them stands in docs/running.md.
KNOWN: Final = frozenset(
    {
        "SHUNTER_ADDRESS",
        "SHUNTER_BUILD",
        "SHUNTER_DEBUG",
        "SHUNTER_DEBUG_LEVEL",
        "SHUNTER_EXPECT",
        "SHUNTER_OPT_LEVEL",
        "SHUNTER_SCHEDULER_FILE",
        "SHUNTER_STRICT",
        "SHUNTER_TOKEN_FILE",
    }
)

#: Kubernetes puts such names into each container of a namespace that has a service called "shunter" or
#: "shunter-…": they are nobody's spelling mistake.
_SERVICE_LINK: Final = re.compile(
    r"SHUNTER_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)\w*)"
)

_UNITS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12} | {
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}


class Option(NamedTuple):
    """One option: ``name`` as a keyword, how its text is read, its default, and what it is for."""

    name: str
    kind: str  # "count", "seconds", "bytes", "rate", "flag" or "level"
    default: float | str
    help: str
    setting: bool = True  # a field of `shunter.state.Settings`

    @property
    def variable(self) -> str:
        """The environment variable."""
        return PREFIX + self.name.upper()


OPTIONS: Final = (
    Option("window_s", "seconds", 0.002, "work sent ahead to a worker beyond its threads"),
    Option("window_max", "count", 256, "most tasks sent ahead to a worker"),
    Option(
        "large_result",
        "bytes",
        MIB,
        "kinds of tasks with results this large get one task sent ahead, no more",
    ),
    Option("default_duration", "seconds", 0.5, "guess for a kind of task that has not finished yet"),
    Option("default_nbytes", "bytes", KIB, "guess for the size of an unknown result"),
    Option("bandwidth", "rate", 100e6, "bytes a second between workers, for estimates"),
    Option("latency", "seconds", 0.001, "cost of starting a transfer"),
    Option("allowed_failures", "count", 3, "deaths of workers that a running task survives"),
    Option("blame_wait", "seconds", 2.0, "wait for news of which tasks had started on a dead worker"),
    Option(
        "no_workers_timeout",
        "seconds",
        60.0,
        "a runnable task without a fitting worker fails after, once there has been a worker; 0: never",
    ),
    Option(
        "worker_ttl",
        "seconds",
        300.0,
        "a worker that has said nothing for this long is taken for dead and replaced; 0: never",
    ),
    Option(
        "idle_timeout",
        "seconds",
        0.0,
        "the scheduler ends when nothing ran or waited to run for this long; 0: never",
    ),
    Option("inline_max", "bytes", 4 * KIB, "largest result that travels with the report that it is finished"),
    Option("log_length", "count", 10_000, "state changes kept for stories"),
    Option("slice", "count", 1_000, "tasks or edges handled at a time while a graph comes in"),
    Option(
        "validate",
        "flag",
        False,
        "check the state's invariants after each step (slow); on with SHUNTER_DEBUG=1",
    ),
    Option("log_level", "level", "warning", "how much is logged: " + ", ".join(LOG_LEVELS), setting=False),
)
_BY_NAME: Final = {option.name: option for option in OPTIONS}


def settings(environ: Mapping[str, str] | None = None, **overrides: float) -> Settings:
    """The state's `Settings`: ``overrides``, else the environment, else the defaults.

    Raises:
        UsageError: an unknown name, or a value that does not fit its option.
    """
    from shunter.state import Settings  # Not above: workers read this module too and need no state.

    found: dict[str, float] = {}
    for option in OPTIONS:
        if option.setting:
            value = lookup(option.name, overrides.pop(option.name, None), environ)
            assert not isinstance(value, str), option.name
            found[option.name] = value
    if overrides:
        raise UsageError(
            _unknown("setting", overrides, [option.name for option in OPTIONS if option.setting])
        )
    make: Callable[..., Settings] = Settings
    return make(**found)


def lookup(
    name: str, keyword: float | str | None = None, environ: Mapping[str, str] | None = None
) -> float | str:
    """The value of an option: ``keyword`` if it is given, else from the environment, else the default."""
    environ = os.environ if environ is None else environ
    option = _BY_NAME[name]
    if keyword is not None:
        if isinstance(keyword, str):
            return parse(option.kind, keyword, name)
        return parse(option.kind, repr(keyword) if not isinstance(keyword, bool) else str(int(keyword)), name)
    text = environ.get(option.variable, "")
    if text:
        return parse(option.kind, text, option.variable)
    if name == "validate" and environ.get("SHUNTER_DEBUG", "") not in ("", "0"):
        return True
    return option.default


def environment_of(values: Settings) -> dict[str, str]:
    """The environment variables that give another process these settings; defaults are left out."""
    found: dict[str, str] = {}
    for option in OPTIONS:
        if option.setting:
            value = getattr(values, option.name)
            if value != option.default:
                found[option.variable] = str(int(value)) if option.kind == "flag" else repr(value)
    return found


def check_environment(environ: Mapping[str, str] | None = None) -> None:
    """Refuse unknown ``SHUNTER_`` names and values that do not fit.

    Raises:
        UsageError: naming the variables and those that come close.
    """
    environ = os.environ if environ is None else environ
    variables = {option.variable for option in OPTIONS}
    unknown = [
        name
        for name, value in environ.items()
        if name.startswith(PREFIX)
        and name not in variables
        and name not in KNOWN
        and _SERVICE_LINK.fullmatch(name) is None
        and not (name.endswith("_PORT") and "://" in value)
    ]
    if unknown:
        raise UsageError(_unknown("environment variable", sorted(unknown), sorted(variables | KNOWN)))
    for option in OPTIONS:
        lookup(option.name, environ=environ)


def parse(kind: str, text: str, name: str) -> float | str:
    """Read the text of an option.

    Args:
        kind: see `Option`.
        text: the value as written, such as ``"4 KiB"``, ``"0.5"`` or ``"off"``.
        name: what to call it in an error, "" for nothing.
    """
    text = text.strip()
    prefix = f"{name}: " if name else ""
    if kind == "level":
        if text.lower() in LOG_LEVELS:
            return text.lower()
        raise UsageError(f"{prefix}expected one of {', '.join(LOG_LEVELS)}, not {text!r}")
    if kind == "flag":
        if text.lower() in ("1", "true", "yes", "on"):
            return True
        if text.lower() in ("0", "false", "no", "off"):
            return False
        raise UsageError(f"{prefix}expected 1 or 0, not {text!r}")
    if kind == "count":
        if text.isascii() and text.isdigit():
            return int(text)
        raise UsageError(f"{prefix}expected a whole number from 0, not {text!r}")
    if kind == "bytes":
        return parse_bytes(text, name)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(f"{prefix}expected a number from 0 ({kind}), not {text!r}")
    return value


def parse_bytes(text: str, name: str) -> int:
    """Read a size: ``"1048576"``, ``"1 MiB"``, ``"2.5GB"``, ``"4g"``."""
    prefix = f"{name}: " if name else ""
    match = re.fullmatch(r"(\d+(?:\.\d*)?)\s*([kmgt]i?)?b?", text.strip().lower())
    if match is None:
        raise UsageError(f"{prefix}expected a size such as 500MB or 2GiB, not {text!r}")
    return (
        int(float(match[1]) * _UNITS[match[2] or ""])
        if "." in match[1]
        else int(match[1]) * _UNITS[match[2] or ""]
    )


def find_contact(
    address: str | None = None,
    *,
    scheduler_file: str | None = None,
    token_file: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Contact:
    """Where a scheduler is and the token to speak to it.

    What is named here comes first, then ``SHUNTER_ADDRESS``, ``SHUNTER_SCHEDULER_FILE`` and
    ``SHUNTER_TOKEN_FILE``, then the file that `shunter scheduler` leaves for its user on this machine.

    Raises:
        UsageError: nothing names a scheduler, or a file that was named cannot be read.
    """
    from shunter.wire import contact

    environ = os.environ if environ is None else environ
    if address is None and scheduler_file is None:
        address = environ.get("SHUNTER_ADDRESS") or None
    scheduler_file = scheduler_file or environ.get("SHUNTER_SCHEDULER_FILE") or None
    token_file = token_file or environ.get("SHUNTER_TOKEN_FILE") or None
    if address is not None:
        host, port = contact.parse_address(address)
        if token_file is None and scheduler_file is None and host in ("127.0.0.1", "localhost", "::1"):
            own = default_scheduler_file(port, environ)
            scheduler_file = own if os.path.exists(own) else None
    elif scheduler_file is None:
        scheduler_file = default_scheduler_file(DEFAULT_PORT, environ)
        if not os.path.exists(scheduler_file):
            raise UsageError(
                "no scheduler named: give its address or --scheduler-file, or set SHUNTER_ADDRESS or "
                f"SHUNTER_SCHEDULER_FILE (there is none of yours at port {DEFAULT_PORT} of this machine)"
            )
    found = contact.read(scheduler_file) if scheduler_file is not None else None
    token = contact.read_token_file(token_file) if token_file is not None else found.token if found else ""
    if address is None:
        assert found is not None
        address = found.address
    return contact.Contact(address, token)


def default_scheduler_file(port: int, environ: Mapping[str, str] | None = None) -> str:
    """Where `shunter scheduler` writes how to reach it unless told otherwise: a place of this user."""
    environ = os.environ if environ is None else environ
    base = environ.get("XDG_RUNTIME_DIR")
    if not base or not os.path.isdir(base):
        base = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "shunter", f"scheduler-{port}.json")


def _unknown(what: str, names: Iterable[str], known: list[str]) -> str:
    from difflib import get_close_matches

    lines = []
    for name in names:
        close = get_close_matches(name, known, n=3, cutoff=0.6)
        lines.append(f"unknown {what} {name}" + (f" (close: {', '.join(close)})" if close else ""))
    return "; ".join(lines)
