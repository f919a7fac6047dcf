"""Hatchling build hook: compiles ``shunter.state`` with mypyc into the wheel, or says why it does not.

=======================  ======================================================================================
``SHUNTER_BUILD``
=======================  ======================================================================================
``auto`` (the default)   compile; where nothing can be compiled: the pure wheel, with a warning
``compiled``             compile; no working compiler is an error (CI, releases)
``pure``                 the ``py3-none-any`` wheel; needs neither mypy nor a compiler
=======================  ======================================================================================

pip shows the warning only with ``-v``, so the wheel carries the reason as well: ``shunter/_build.txt``, which
``shunter --version`` and ``shunter run`` read. ``SHUNTER_OPT_LEVEL`` and ``SHUNTER_DEBUG_LEVEL`` (0 to 3, as in ``-O3``
and ``-g0``) are for those who work on the compiled code.

Nothing is written to the source tree: the tree is always pure, and so are editable installs.
"""

from __future__ import annotations

import os
import runpy
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE_ROOT = "sched"
COMPILED_PACKAGE = "shunter/state"
# The compiled modules are thin shells around one library, "shunter__mypyc.*.so", which lies beside the package.
# No dots in its name: mypyc derives their __file__ and __path__ from the folder of this library.
GROUP = "shunter"
MODES = ("auto", "compiled", "pure")
# Types are checked by `tox -e typing`; here mypy reads no more than the state and what it uses of the rest: the other
# modules import packages that a build does not have.
MYPY_CONFIG = """
[mypy]
follow_imports = silent
[mypy-shunter]
follow_imports = skip
"""
COMPILE_REQUIRES = ["mypy[mypyc]>=2.4,<2.5", "setuptools>=77"]
#: Shipped in wheels, never by editable installs (those have the tree itself).
SHIPPED = {
    "typings/shunter-stubs": "shunter-stubs",
    "examples/wordcount.py": "shunter/examples/wordcount.py",
}


class CannotCompile(Exception):
    """The C compiler is missing or failed. The text says which, in one line."""


class BuildHook(BuildHookInterface[Any]):
    """Called by hatchling for each wheel."""

    tmp: str | None = None

    def dependencies(self) -> list[str]:
        """What the build needs besides hatchling: nothing, unless it is going to compile."""
        mode = build_mode()
        if mode == "pure" or (mode == "auto" and compiler_problem() is not None):
            return []
        return COMPILE_REQUIRES

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add to the wheel what is not found in the package's folder."""
        mode = build_mode()
        if version == "editable":
            return
        self.tmp = tempfile.mkdtemp(prefix="shunter-build-")
        try:
            included, note = self._build(mode)
        except BaseException:
            self.finalize(version, build_data, "")  # hatchling calls it only after success
            raise
        note_file = Path(self.tmp, "build.txt")
        note_file.write_text(note + "\n", encoding="utf-8")
        included[str(note_file)] = "shunter/_build.txt"
        for source, target in SHIPPED.items():
            included[os.path.join(self.root, source)] = target
        build_data["force_include"].update(included)
        if note == "compiled":
            build_data["pure_python"] = False
            build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the build left."""
        if self.tmp is not None:
            shutil.rmtree(self.tmp, ignore_errors=True)
            self.tmp = None

    def _build(self, mode: str) -> tuple[dict[str, str], str]:
        """The compiled files for the wheel, by their path here, and the note that says what this wheel is."""
        if mode == "pure":
            return {}, "pure: built with SHUNTER_BUILD=pure"
        try:
            problem = compiler_problem()
            if problem is not None:
                raise CannotCompile(problem)
            assert self.tmp is not None
            return compile_state(Path(self.root), Path(self.tmp)), "compiled"
        except CannotCompile as exc:
            if mode == "compiled":
                raise SystemExit(f"SHUNTER_BUILD=compiled: {exc}") from None
            self.app.display_warning(f"shunter: {exc}; building the pure Python wheel, which is slower")
            return {}, f"pure: {exc}"


def build_mode() -> str:
    """What SHUNTER_BUILD asks for."""
    mode = os.environ.get("SHUNTER_BUILD") or "auto"
    if mode not in MODES:
        raise SystemExit(f"SHUNTER_BUILD={mode!r}: expected one of {', '.join(MODES)}")
    return mode


def compiler_problem() -> str | None:
    """See ``compiler.py`` (a hook is loaded by its path and cannot import its neighbours)."""
    found: str | None = runpy.run_path(str(Path(__file__).with_name("compiler.py")))["problem"]()
    return found


def compile_state(root: Path, tmp: Path) -> dict[str, str]:
    """Compile the modules of ``shunter.state`` as one unit, all but its ``__init__`` (it only imports).

    Returns:
        {absolute path of a library in ``tmp``: its path in the wheel}

    Raises:
        CannotCompile: the C compiler failed. (A type error that mypy finds ends the build: that is our bug.)
    """
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.errors import BaseError, CCompilerError, PlatformError

    config = tmp / "mypy.ini"
    config.write_text(MYPY_CONFIG, encoding="utf-8")
    old = os.getcwd()
    # From the source root: mypyc bakes the paths that it is given into tracebacks, and `shunter._debug` tells
    # linecache that "shunter/state/x.py" is the file in the package.
    os.chdir(root / SOURCE_ROOT)
    try:
        sources = sorted(
            p.as_posix() for p in Path(COMPILED_PACKAGE).rglob("*.py") if p.name != "__init__.py"
        )
        extensions = mypycify(
            [f"--config-file={config}", f"--cache-dir={os.devnull}", *sources],
            opt_level=os.environ.get("SHUNTER_OPT_LEVEL") or "3",
            debug_level=os.environ.get("SHUNTER_DEBUG_LEVEL") or "0",
            target_dir=str(tmp / "c"),
            group_name=GROUP,
        )
        command = Distribution({"name": "shunter", "ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib = str(tmp / "lib")
        command.build_temp = str(tmp / "obj")
        command.ensure_finalized()
        try:
            command.run()
        except (BaseError, CCompilerError, PlatformError, OSError) as exc:
            raise CannotCompile(f"compiling failed ({' '.join(str(exc).split())})") from exc
    finally:
        os.chdir(old)
    built = [p for p in sorted((tmp / "lib").rglob("*")) if p.suffix in (".so", ".pyd")]
    return {str(p): p.relative_to(tmp / "lib").as_posix() for p in built}
