"""Compiles natmix's libraries of native kernels. Of the standard library alone.

Run: python build_native.py, with jaxlib installed, compiles them into the source tree (an installation does
so by itself, see hatch_build.py). The C compiler is that of the machine (``CC``, or ``cc``), else the one in
the package ziglang from PyPI. XLA's interface is taken from the header that jaxlib ships.
"""

import dataclasses
import functools
import importlib.util
import os
import platform
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

PACKAGE = Path(__file__).parent / "src" / "natmix"
SHARED = PACKAGE / "kernels" / "native" / "c"
"""C files of the core library, of which others take all but the kernels."""

PARTS = ("call", "parallel", "signature", "batch")
"""What the kernels of a library stand on: compiled once, for all instructions and types."""

FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
ALWAYS = (
    "-fvisibility=hidden",
    "-Werror=incompatible-pointer-types",
    "-Werror=implicit-function-declaration",
    "-Werror=return-type",
)
INSTRUCTIONS = {
    "plain": (),
    "wide": ("-mavx2", "-mfma"),
    "widest": ("-mavx2", "-mfma", "-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw"),
}
"""Sets of vector instructions: a processor uses the widest that it has; others than x86-64 have one."""


@dataclasses.dataclass(frozen=True)
class Library:
    """A shared library: its file within the package, and the folder of its C files and its table."""

    path: str
    sources: str

    @property
    def folders(self) -> list[Path]:
        """Where its C files are; a file of its own comes before one of the core."""
        return list(dict.fromkeys((PACKAGE / self.sources, SHARED)))


OFF = os.environ.get("NATMIX_NATIVE") == "0"
"""Asked for a package without native kernels: a wheel for all platforms."""

MACOS = (11, 0)
"""The oldest macOS that a wheel is for, as jaxlib's."""

LIBRARIES = (
    Library("kernels/native/libnatmix.so", "kernels/native/c"),
    Library("experiments/native/libnatmix_experiments.so", "experiments/native/c"),
)


class CannotBuildError(Exception):
    """There is no compiler, no header, or a file does not compile."""


@functools.cache
def machine_compiler() -> tuple[str, ...] | None:
    """The machine's, if it compiles: some are there only to say how to install one."""
    command = shlex.split(os.environ.get("CC", "cc"))
    if not command or not shutil.which(command[0]):
        return None
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.c"
        source.write_text("#include <math.h>\n#include <stdlib.h>\n", encoding="utf-8")
        tried = subprocess.run([*command, "-c", source, "-o", source.with_suffix(".o")], capture_output=True)
    return tuple(command) if tried.returncode == 0 else None


def compiler() -> tuple[str, ...]:
    """The machine's, or else that of ziglang."""
    found = machine_compiler()
    if found is None and importlib.util.find_spec("ziglang") is None:
        raise CannotBuildError("there is no C compiler")
    return found or (sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline")


def wheel_platform() -> str:
    """The platform of the wheel's tag: that of the compiled libraries, which have one processor."""
    name = sysconfig.get_platform()
    if name.startswith("macosx-"):
        _, version, processor = name.split("-")
        processor = platform.machine() if processor == "universal2" else processor
        oldest = max(MACOS, tuple(map(int, version.split("."))))
        name = f"macosx-{oldest[0]}.{oldest[1]}-{processor}"
    return name.replace("-", "_").replace(".", "_")


def platform_flags() -> tuple[str, ...]:
    """What makes the compiler produce libraries for `wheel_platform`, which need not be this machine's."""
    found = wheel_platform().split("_", 3)
    if found[0] != "macosx" or machine_compiler() is None:
        return ()
    return ("-arch", found[3], f"-mmacosx-version-min={found[1]}.{found[2]}")


def ffi_include() -> Path:
    """The folder of jaxlib's header of XLA's interface; jaxlib is not imported, which takes a second."""
    spec = importlib.util.find_spec("jaxlib")
    for place in (spec.submodule_search_locations or []) if spec else []:
        if Path(place, "include", "xla", "ffi", "api", "c_api.h").exists():
            return Path(place, "include")
    raise CannotBuildError("there is no jaxlib with the header xla/ffi/api/c_api.h")


def compile_objects(library: Library, folder: Path, flags: Sequence[str] = FLAGS) -> list[Path]:
    """The object files of a library, in this folder."""
    sets = list(INSTRUCTIONS) if wheel_platform().endswith(("x86_64", "amd64")) else ["plain"]
    digest = runpy.run_path(str(SHARED.parent / "sources.py"))["digest"]
    jobs = {name: ("instruction_set.c", *INSTRUCTIONS[name], f"-DBUILD={name}") for name in sets}
    jobs |= {name: (f"{name}.c",) for name in PARTS}
    jobs["library"] = ("library.c", f'-DSOURCES="{digest(*library.folders)}"')
    include = [f"-I{path}" for path in (*library.folders, ffi_include())]
    for name, (source, *options) in jobs.items():
        _run(
            *compiler(),
            *flags,
            *platform_flags(),
            *ALWAYS,
            *options,
            *include,
            "-c",
            SHARED / source,
            "-o",
            folder / f"{name}.o",
        )
    return [folder / f"{name}.o" for name in jobs]


def build(library: Library, target: Path) -> None:
    """Puts the compiled library at ``target``, whole or not at all: what was there stays until then."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        built = folder / target.name
        _run(*compiler(), *platform_flags(), "-shared", *compile_objects(library, folder), "-lm", "-o", built)
        target.parent.mkdir(parents=True, exist_ok=True)
        # A process that has the old library open keeps it.
        shutil.copy(built, target.with_suffix(".new"))
        target.with_suffix(".new").replace(target)


def _run(*command: str | Path) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CannotBuildError(getattr(error, "stderr", "") or str(error)) from error


def main() -> None:
    """Compile all libraries into the source tree."""
    for library in LIBRARIES:
        try:
            build(library, PACKAGE / library.path)
        except CannotBuildError as error:
            sys.exit(f"natmix's native kernels cannot be compiled: {error}")
        print(PACKAGE / library.path)


if __name__ == "__main__":
    main()
