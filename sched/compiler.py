"""Can this Python build extension modules here? ``python sched/compiler.py``: exit code 0, or the reason and 1.

Used by the build hook (``hatch_build.py``) and by ``toxfile.py``, which runs it with the Python of each
environment. Standard library only: it must answer before anything has been installed for a build.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

PROBE = "#include <Python.h>\nint shunter_probe(void) { return PY_MAJOR_VERSION; }\n"


def problem() -> str | None:
    """Why nothing can be compiled, in one line for people; None if it can be."""
    if sys.implementation.name != "cpython":
        return f"mypyc needs CPython, not {sys.implementation.name}"
    if os.name != "posix":
        return None  # Finding MSVC takes setuptools: let the build itself find out.
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    includes = [f"-I{sysconfig.get_path(name)}" for name in ("include", "platinclude")]
    with tempfile.TemporaryDirectory() as tmp:
        source = Path(tmp, "probe.c")
        source.write_text(PROBE, encoding="utf-8")
        arguments = [*includes, "-c", str(source), "-o", str(Path(tmp, "probe.o"))]
        try:
            done = subprocess.run(
                [*command, *arguments], capture_output=True, text=True, check=False, timeout=120
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            return f"no working C compiler ({command[0]}: {getattr(exc, 'strerror', None) or exc})"
    if done.returncode == 0:
        return None
    if "Python.h" in done.stderr:
        return f"no C headers of Python {sys.version_info[0]}.{sys.version_info[1]} (Python.h not found)"
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return f"no working C compiler ({command[0]}: exit code {done.returncode}, {last})"


def main() -> int:
    """Print the problem, if there is one."""
    text = problem()
    if text is not None:
        print(text)
    return 0 if text is None else 1


if __name__ == "__main__":
    sys.exit(main())
