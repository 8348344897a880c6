"""Compiles the loops of `natmix.kernels.native` when natmix is built or installed.

By the C compiler of the machine (``CC``, or ``cc``), else by the one in the package ziglang from PyPI. Where
neither works natmix is installed without them, and says so.
"""

import functools
import os
import platform
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path(__file__).parent / "src" / "natmix" / "kernels" / "native"
LIBRARY = FOLDER / "libnatmix.so"
FLAGS = ["-std=gnu11", "-O3", "-fPIC", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"]
INSTRUCTIONS = {
    "plain": [],
    "wide": ["-mavx2", "-mfma"],
    "widest": ["-mavx2", "-mfma", "-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw"],
}
"""Sets of vector instructions: a processor uses the widest that it has; others than x86-64 have one."""


class NativeLoops(BuildHookInterface):
    """Adds the compiled library to wheels, and to the source tree of an editable installation."""

    def dependencies(self) -> list[str]:
        return [] if _compiler() or not _possible(self.target_name) else ["ziglang"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not _possible(self.target_name):
            return
        try:
            _compile(_compiler() or [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"])
        except (OSError, subprocess.CalledProcessError) as error:
            LIBRARY.unlink(missing_ok=True)
            detail = getattr(error, "stderr", "") or error
            self.app.display_warning(f"natmix is installed without its loops in machine code: {detail}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        if version != "editable":
            build_data["force_include"][str(LIBRARY)] = "natmix/kernels/native/libnatmix.so"


def _possible(target: str) -> bool:
    return target == "wheel" and os.name == "posix"


@functools.cache
def _compiler() -> list[str] | None:
    """The machine's, if it compiles: some are there only to say how to install one."""
    command = shlex.split(os.environ.get("CC", "cc"))
    if not command or not shutil.which(command[0]):
        return None
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.c"
        source.write_text("#include <math.h>\n#include <stdlib.h>\n", encoding="utf-8")
        tried = subprocess.run([*command, "-c", source, "-o", source.with_suffix(".o")], capture_output=True)
    return command if tried.returncode == 0 else None


def _compile(compiler: list[str]) -> None:
    sets = list(INSTRUCTIONS) if platform.machine().lower() in ("x86_64", "amd64") else ["plain"]
    sources = FOLDER / "c"
    digest = runpy.run_path(str(FOLDER / "sources.py"))["digest"]
    with tempfile.TemporaryDirectory() as folder:
        objects = [Path(folder) / f"{name}.o" for name in (*sets, "parallel", "members", "rows", "handlers")]
        jobs = [[*INSTRUCTIONS[name], f"-DBUILD={name}", str(sources / "kernels.c")] for name in sets]
        jobs += [[str(sources / f"{name}.c")] for name in ("parallel", "members", "rows")]
        jobs.append([f'-DSOURCES="{digest()}"', str(sources / "handlers.c")])
        for job, out in zip(jobs, objects, strict=True):
            _run([*compiler, *FLAGS, "-c", *job, "-o", str(out)])
        built = Path(folder) / LIBRARY.name
        _run([*compiler, "-shared", *map(str, objects), "-lm", "-o", str(built)])
        # A process that has the old library open keeps it.
        shutil.copy(built, LIBRARY.with_suffix(".new"))
        LIBRARY.with_suffix(".new").replace(LIBRARY)


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
