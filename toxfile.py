"""What tox.ini cannot say: where nothing can be compiled, the compiled environments are skipped with the reason.

With ``SHUNTER_STRICT=1`` (``.ci/run`` sets it) nothing is skipped that could run: a missing compiler fails those
environments, and so does a Python that is on this machine but that tox does not find.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tox.config.loader.memory import MemoryLoader
from tox.plugin import impl
from tox.tox_env.errors import Fail, Skip
from tox.tox_env.runner import RunToxEnv

if TYPE_CHECKING:
    from tox.config.sets import EnvConfigSet
    from tox.session.state import State
    from tox.tox_env.api import ToxEnv
    from tox.tox_env.installer import InstallArguments

STRICT = os.environ.get("SHUNTER_STRICT", "") not in ("", "0")
PROBE = Path(__file__).parent / "sched" / "compiler.py"
#: Factors of the environments that are given the compiled wheel.
COMPILED = {"compiled", "debug", "bench", "sim"}

#: Environments that were skipped for want of a compiler.
untested: list[str] = []


@impl
def tox_on_install(tox_env: ToxEnv, arguments: InstallArguments, section: str, of_type: str) -> None:
    """Before the first installation into an environment, and so before its wheel is built."""
    if of_type != "deps" or not isinstance(tox_env, RunToxEnv) or not COMPILED & set(tox_env.name.split("-")):
        return
    problem = compiler_problem(str(tox_env.conf["env_python"]))
    if problem:
        if STRICT:
            raise Fail(f"the compiled build CANNOT be tested: {problem}")
        if not untested:
            atexit.register(report)
        untested.append(tox_env.name)
        raise Skip(f"the compiled build CANNOT be tested: {problem}")


@impl
def tox_add_env_config(env_conf: EnvConfigSet, state: State) -> None:
    """In a strict run, do not skip a Python that is here."""
    factor = (env_conf.name or "").partition("-")[0]
    if STRICT and factor[:3] == "py3" and factor[3:].isdigit() and is_on_machine(f"3.{factor[3:]}"):
        env_conf.loaders.insert(0, MemoryLoader(skip_missing_interpreters=False))


def report() -> None:
    """After tox's own summary, so that nobody takes what was skipped for tested."""
    print(
        f"NOT TESTED for want of a compiler: {', '.join(untested)}. More: python sched/compiler.py",
        file=sys.stderr,
    )


@cache
def compiler_problem(python: str) -> str:
    """Why this Python's environment can compile nothing; empty if it can."""
    done = subprocess.run([python, str(PROBE)], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stdout.strip() or done.stderr.strip() or "the probe failed")


@cache
def is_on_machine(version: str) -> bool:
    """Whether a Python that starts can be found: on PATH or where people keep them."""
    name = f"python{version}"
    places = [Path("/usr/bin"), Path("/usr/local/bin"), *Path("/opt").glob("*/bin")]
    for root in (Path.home() / ".pyenv" / "versions", Path(sys.prefix).parent):
        places += root.glob(f"*{version}*/bin")
    on_path = shutil.which(name)
    candidates = [*([on_path] if on_path else []), *(str(place / name) for place in places)]
    return any(_starts(candidate) for candidate in candidates if os.access(candidate, os.X_OK))


def _starts(python: str) -> bool:
    try:  # A pyenv shim may be there and refuse.
        return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0
    except OSError:
        return False
