"""Stan by what httpstan brings along: stanc, Stan's headers and libraries.

httpstan's own functions build the model again for every point, leave out constants and always draw the same
random numbers; hence a bridge to the model in C++, in ``bridge.cpp``.
"""

import ctypes
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from natmix.files.durable import replacing, write_text
from natmix.kernels.plan import usable_cores
from natmix.models.stan_backends.backend import AbstractBackend
from natmix.models.stan_backends.cache import folder, is_own, is_private, record
from natmix.models.stan_backends.compiling import Compilation
from natmix.models.stan_backends.data import Data, check_data
from natmix.models.stan_backends.errors import compiler_reason, data_error, stan_reason
from natmix.models.stan_backends.program import Program

_BRIDGE = Path(__file__).with_name("bridge.cpp")
_NAME = "program.stan"
_MESSAGE_SIZE = 1024
_FLAGS = (
    *("-shared", "-fPIC", "-O3", "-std=c++17", "-w"),
    *("-DBOOST_DISABLE_ASSERTS", "-DBOOST_PHOENIX_NO_VARIADIC_EXPRESSION", "-DSTAN_THREADS", "-D_REENTRANT"),
    "-D_GLIBCXX_USE_CXX11_ABI=0",  # as the libraries of the wheel were built
)


class HttpstanBackend(AbstractBackend):
    """The program as a shared library, compiled once and kept in natmix's cache."""

    def __init__(self, program: Program, data: Data, seed: int) -> None:
        self._file_name = program.path.name if program.path else _NAME
        stan = _package()
        with tempfile.TemporaryDirectory(prefix="natmix_stan_") as scratch:
            kept = _Kept.find(stan, program, Path(scratch))
            check_data(data, kept.inputs())  # before the minute that compiling takes
            library, self.compile_seconds = kept.library()
        self._lib = _loaded(library)
        message = ctypes.create_string_buffer(_MESSAGE_SIZE)
        handle = self._lib.natmix_stan_new(data.json.encode(), seed, message)
        if not handle:
            raise data_error(self._told(message))
        self._handle = handle
        weakref.finalize(self, self._lib.natmix_stan_delete, handle)
        self.dim = self._lib.natmix_stan_dim(handle)
        self.coordinates, self.names = self._names(True), self._names(False)

    def _told(self, message: "ctypes.Array[ctypes.c_char]") -> str:
        """What Stan says, of the user's file: all programs are compiled under one name."""
        return message.value.decode(errors="replace").replace(f"'{_NAME}'", f"'{self._file_name}'")

    def _names(self, unconstrained: bool) -> tuple[str, ...]:
        room = self._lib.natmix_stan_names(self._handle, unconstrained, None, -1)
        text = ctypes.create_string_buffer(room + 1)
        self._lib.natmix_stan_names(self._handle, unconstrained, text, room)
        return tuple(text.value.decode().split(",")) if room else ()

    def values(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        return self._evaluated(x, None)

    def with_gradients(
        self, x: Float[np.ndarray, "N D"]
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "N D"]]:
        gradients = np.empty((len(x), self.dim))
        return self._evaluated(x, gradients), gradients

    def _evaluated(self, x: np.ndarray, gradients: np.ndarray | None) -> np.ndarray:
        points, values = _points(x, self.dim), np.empty(len(x))
        message = ctypes.create_string_buffer(_MESSAGE_SIZE)
        slopes = None if gradients is None else gradients.ctypes.data
        failed = self._lib.natmix_stan_values(
            self._handle,
            points.ctypes.data,
            len(points),
            values.ctypes.data,
            slopes,
            usable_cores(),
            message,
        )
        if failed:
            raise RuntimeError(stan_reason(self._told(message)))
        if message.value:
            self.rejection = self._told(message)
        return values

    def constrain(self, x: Float[np.ndarray, "N D"], seed: int) -> Float[np.ndarray, "N M"]:
        points, out = _points(x, self.dim), np.empty((len(x), len(self.names)))
        message = ctypes.create_string_buffer(_MESSAGE_SIZE)
        failed = self._lib.natmix_stan_constrain(
            self._handle, points.ctypes.data, len(points), seed, out.ctypes.data, len(self.names), message
        )
        if failed:
            raise RuntimeError(f"Stan cannot compute the outputs: {stan_reason(self._told(message))}")
        return out


def _points(x: np.ndarray, dim: int) -> np.ndarray:
    points = np.ascontiguousarray(x, np.float64)
    if points.ndim != 2 or points.shape[1] != dim:
        raise ValueError(f"The points must have shape [n, {dim}], got {list(points.shape)}.")
    return points


# Compiling --------------------------------------------------------------------------------------


def _package() -> Path:
    import httpstan

    return Path(httpstan.__file__).parent


class _Kept:
    """What is kept of a compiled program: its library, and what it declares.

    Programs are found by their code, whatever file it is from. Of one with ``#include`` stanc has to tell
    first what it includes.
    """

    def __init__(self, stan: Path, program: Program, scratch: Path, key: str, cpp: str | None) -> None:
        self._stan, self._program, self._scratch, self._cpp = stan, program, scratch, cpp
        self._folder = folder(hashlib.sha256(key.encode()).hexdigest()[:24])

    @classmethod
    def find(cls, stan: Path, program: Program, scratch: Path) -> "_Kept":
        """Its place in the cache, whether it was compiled before or not."""
        cpp = _cpp(stan, program, scratch) if "#include" in program.code else None
        parts = (program.code, cpp or "", _version(), _BRIDGE.read_text(encoding="utf-8"), *_command(stan))
        return cls(stan, program, scratch, "\n".join((*parts, platform.platform(), _processor())), cpp)

    def inputs(self) -> dict[str, Any]:
        """The data that the program declares, by name; errors of the program name the user's file."""
        path = self._folder / "inputs.json"
        if not is_private(path):
            name = self._program.path.name if self._program.path else _NAME
            text = _stanc(self._stan, self._program, self._scratch, name, "--info")
            write_text(path, json.dumps(json.loads(text)["inputs"]))
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def library(self) -> tuple[Path, float]:
        """The shared library, and the seconds that compiling it took."""
        path = self._folder / "model.so"
        if is_own(path):
            return path, 0.0
        source = path.with_name("model.cpp")
        write_text(source, self._cpp or _cpp(self._stan, self._program, self._scratch))
        name = self._program.path.name if self._program.path else "given as text"
        with Compilation(name) as compilation, replacing(path) as temporary:
            inputs = [f'-DMODEL_FILE="{source}"', str(_BRIDGE), "-o", str(temporary)]
            command = _command(self._stan, *inputs)
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = compiler_reason(done.stderr)
                raise RuntimeError(f"{command[0]} could not compile the C++ of the Stan program: {reason}")
        record(path)
        return path, compilation.seconds


def _version() -> str:
    from httpstan import __version__

    return str(__version__)


def _cpp(stan: Path, program: Program, scratch: Path) -> str:
    """The program in C++, the same for the same code: stanc writes its arguments into what it generates."""
    return _stanc(stan, program, scratch, _NAME, "--print-cpp")


def _stanc(stan: Path, program: Program, scratch: Path, name: str, *options: str) -> str:
    """What stanc writes about a program under this file name."""
    file = scratch / name
    file.write_text(program.code, encoding="utf-8")
    code = hashlib.sha256(program.code.encode()).hexdigest()[:16]
    command: list[str | Path] = [stan / "stanc", f"--name=natmix_{code}", f"--filename-in-msg={name}"]
    if program.path is not None and "#include" in program.code:
        included = scratch / "included"
        if not included.exists():
            included.symlink_to(program.path.parent, target_is_directory=True)
        command.append(f"--include-paths={included.name}")
    done = subprocess.run(
        [*command, *options, name], cwd=scratch, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ValueError(f"The Stan program does not compile: {compiler_reason(done.stderr)}")
    return done.stdout


def _command(stan: Path, *inputs: str) -> list[str]:
    """The compiler's command line."""
    folders = (f"-I{stan / 'include'}", f"-L{stan / 'lib'}", f"-Wl,-rpath,{stan / 'lib'}")
    libraries = sorted((stan / "lib").glob("libsundials_*.a"))
    return [*_compiler(), *_FLAGS, *_tuning(), *folders, *inputs, *map(str, libraries), "-ltbb"]


def _tuning() -> tuple[str, ...]:
    """For this processor, where every compiler knows how.

    With -O3 and this compiling takes at most 20% longer than with -O2, and a gradient up to 35% less
    (benchmarks/speed/stan_flags.py).
    """
    return ("-march=native",) if platform.machine() == "x86_64" else ()


def _processor() -> str:
    """What tells processors apart that programs are compiled for: machines may share a cache."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())


def _compiler() -> list[str]:
    chosen = os.environ.get("CXX", "").split()
    for candidate in [chosen] if chosen else [["g++"], ["clang++"]]:
        if shutil.which(candidate[0]):
            return candidate
    wanted = (
        f"CXX names {chosen[0]!r}, which was not found" if chosen else "neither g++ nor clang++ was found"
    )
    raise RuntimeError(
        f"A Stan program is compiled by a C++ compiler, and {wanted}: install one, or set CXX."
    )


def _loaded(path: Path) -> Any:
    lib = ctypes.CDLL(str(path))
    pointer, text, whole, long = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_long
    for name, result, arguments in (
        ("new", pointer, (text, ctypes.c_uint, text)),
        ("delete", None, (pointer,)),
        ("dim", whole, (pointer,)),
        ("names", long, (pointer, whole, text, long)),
        ("values", whole, (pointer, pointer, long, pointer, pointer, whole, text)),
        ("constrain", whole, (pointer, pointer, long, ctypes.c_uint, pointer, long, text)),
    ):
        function = getattr(lib, f"natmix_stan_{name}")
        function.restype, function.argtypes = result, arguments
    return lib
