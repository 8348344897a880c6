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

from natmix.files import replacing
from natmix.models.stan_backends.backend import AbstractBackend
from natmix.models.stan_backends.cache import folder
from natmix.models.stan_backends.compiling import shown_compiling
from natmix.models.stan_backends.data import Data, check_data
from natmix.models.stan_backends.errors import compiler_reason, data_error, stan_reason
from natmix.models.stan_backends.program import Program

_BRIDGE = Path(__file__).with_name("bridge.cpp")
_MESSAGE_SIZE = 1024
_FLAGS = (
    *("-shared", "-fPIC", "-O2", "-std=c++17", "-w"),
    *("-DBOOST_DISABLE_ASSERTS", "-DBOOST_PHOENIX_NO_VARIADIC_EXPRESSION", "-DSTAN_THREADS", "-D_REENTRANT"),
    "-D_GLIBCXX_USE_CXX11_ABI=0",  # as the libraries of the wheel were built
)


class HttpstanBackend(AbstractBackend):
    """The program as a shared library, compiled once and kept in natmix's cache."""

    def __init__(self, program: Program, data: Data, seed: int) -> None:
        stan = _package()
        with tempfile.TemporaryDirectory(prefix="natmix_stan_") as scratch:
            file = Path(scratch, program.path.name if program.path else "program.stan")
            file.write_text(program.code, encoding="utf-8")
            # Check the data before the minute that compiling takes.
            check_data(data, json.loads(_stanc(stan, program, file, "--info"))["inputs"])
            library = _library(stan, _stanc(stan, program, file, "--print-cpp"))
        self._lib = _loaded(library)
        message = ctypes.create_string_buffer(_MESSAGE_SIZE)
        handle = self._lib.natmix_stan_new(data.json.encode(), seed, message)
        if not handle:
            raise data_error(message.value.decode())
        self._handle = handle
        weakref.finalize(self, self._lib.natmix_stan_delete, handle)
        self.dim = self._lib.natmix_stan_dim(handle)
        self.coordinates, self.names = self._names(True), self._names(False)

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
            self._handle, points.ctypes.data, len(points), values.ctypes.data, slopes, message
        )
        if failed:
            raise RuntimeError(stan_reason(message.value.decode()))
        if message.value:
            self.rejection = message.value.decode()
        return values

    def constrain(self, x: Float[np.ndarray, "N D"], seed: int) -> Float[np.ndarray, "N M"]:
        points, out = _points(x, self.dim), np.empty((len(x), len(self.names)))
        message = ctypes.create_string_buffer(_MESSAGE_SIZE)
        failed = self._lib.natmix_stan_constrain(
            self._handle, points.ctypes.data, len(points), seed, out.ctypes.data, len(self.names), message
        )
        if failed:
            raise RuntimeError(f"Stan cannot compute the outputs: {stan_reason(message.value.decode())}")
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


def _stanc(stan: Path, program: Program, file: Path, *options: str) -> str:
    """What stanc writes about a program."""
    code = hashlib.sha256(program.code.encode()).hexdigest()[:16]
    command: list[str | Path] = [stan / "stanc", f"--name=natmix_{code}", f"--filename-in-msg={file.name}"]
    if program.path is not None:
        command.append(f"--include-paths={program.path.parent}")
    # stanc writes its arguments into what it generates, so none of them names the temporary folder.
    command += [*options, file.name]
    done = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"The Stan program does not compile: {compiler_reason(done.stderr)}")
    return done.stdout


def _library(stan: Path, model: str) -> Path:
    """The shared library of a model in C++."""
    compiler = _compiler()
    libraries = sorted((stan / "lib").glob("libsundials_*.a"))
    command = [*compiler, *_FLAGS, f"-I{stan / 'include'}", f"-L{stan / 'lib'}", f"-Wl,-rpath,{stan / 'lib'}"]
    last = [*map(str, libraries), "-ltbb"]
    parts = (model, _BRIDGE.read_text(encoding="utf-8"), *command, *last, platform.platform())
    path = folder(hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]) / "model.so"
    if path.exists():
        return path
    source = path.with_name("model.cpp")
    with replacing(source) as temporary:
        temporary.write_text(model, encoding="utf-8")
    with replacing(path) as temporary:
        inputs = [f'-DMODEL_FILE="{source}"', str(_BRIDGE), "-o", str(temporary)]
        with shown_compiling():
            done = subprocess.run([*command, *inputs, *last], capture_output=True, text=True, check=False)
        if done.returncode:
            reason = compiler_reason(done.stderr)
            raise RuntimeError(f"{compiler[0]} could not compile the C++ of the Stan program: {reason}")
    return path


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
        ("values", whole, (pointer, pointer, long, pointer, pointer, text)),
        ("constrain", whole, (pointer, pointer, long, ctypes.c_uint, pointer, long, text)),
    ):
        function = getattr(lib, f"natmix_stan_{name}")
        function.restype, function.argtypes = result, arguments
    return lib
