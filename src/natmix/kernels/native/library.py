"""A compiled library of kernels: its table, whether it can be used, and calls of its kernels by name."""

import ctypes
import functools
import re
import warnings
from collections.abc import Mapping
from pathlib import Path

import jax
from jaxtyping import Array

from natmix.kernels.native.signatures import ArrayDeclaration, Signature
from natmix.kernels.native.sources import SHARED, digest


class _Signature(ctypes.Structure):
    _fields_ = [("kernel", ctypes.c_char_p), ("arguments", ctypes.c_char_p), ("results", ctypes.c_char_p)]


class _Entry(ctypes.Structure):
    _fields_ = [("signature", ctypes.POINTER(_Signature)), ("handler", ctypes.c_void_p)]


class NativeLibrary:
    """Kernels that XLA calls as ``prefix_name``.

    Args:
        path: of the compiled file, which need not exist.
        sources: the folder of its C files; those of the core library are part of every one.
        prefix: of the names by which XLA knows the kernels.
    """

    def __init__(self, path: Path, sources: Path, prefix: str) -> None:
        self.path = path
        self.prefix = prefix
        self._folders = tuple(dict.fromkeys((sources, SHARED)))

    @functools.cached_property
    def kernels(self) -> Mapping[str, Signature]:
        """The kernels of the library by name, which XLA knows from now on; none if it cannot be used.

        That it is there but cannot be used is said once, in a warning.
        """
        if not self.path.exists():
            return {}
        problem = None
        try:
            library = ctypes.CDLL(str(self.path))
            problem = self._why_not(library)
            if problem is None:
                return self._register(library)
        except (OSError, ValueError):
            problem = "it is not a library of natmix for this machine"
        except jax.errors.JaxRuntimeError as error:
            problem = f"XLA refuses it ({error})"
        message = (
            f"natmix's native kernels in {self.path.name} are not used: {problem}; install natmix again."
        )
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return {}

    def _why_not(self, library: ctypes.CDLL) -> str | None:
        """What is wrong with the library."""
        sources = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "natmix_sources")))
        if sources != digest(*self._folders).encode():
            return "they were not compiled from its sources"
        built, here = tuple((ctypes.c_int * 2).in_dll(library, "natmix_ffi_version")), _ffi_version()
        if here is None or built[0] != here[0] or built[1] > here[1]:
            known = "an unknown one" if here is None else f"{here[0]}.{here[1]}"
            version = f"{built[0]}.{built[1]}"
            return f"they were compiled for version {version} of XLA's interface, and jaxlib has {known}"
        return None

    def _register(self, library: ctypes.CDLL) -> dict[str, Signature]:
        """Tells XLA about every kernel of the table."""
        first = ctypes.addressof(_Entry.in_dll(library, "natmix_kernels"))
        found: dict[str, Signature] = {}
        while (entry := _Entry.from_address(first + len(found) * ctypes.sizeof(_Entry))).signature:
            text = entry.signature.contents
            name, arrays = text.kernel.decode(), (text.arguments.decode(), text.results.decode())
            handler = jax.ffi.pycapsule(ctypes.c_void_p(entry.handler))
            jax.ffi.register_ffi_target(f"{self.prefix}_{name}", handler, platform="cpu")
            found[name] = Signature(name, *map(ArrayDeclaration.parse, arrays))
        return found

    def available(self) -> bool:
        """Whether the kernels are there; if so, XLA knows them from now on."""
        return bool(self.kernels)

    def call(
        self,
        kernel: str,
        arrays: Mapping[str, Array],
        *,
        sizes: Mapping[str, int] | None = None,
        optional: bool = True,
        vmap_method: str = "expand_dims",
        input_output_aliases: dict[int, int] | None = None,
    ) -> tuple[Array, ...]:
        """The results of a kernel, in the order of the table. A `jax.vmap` is one call, see `c/batch.c`.

        Args:
            kernel: its name in the table.
            arrays: the arguments by their names in the table.
            sizes: of letters that no argument has.
            optional: whether to ask for the optional results.
            vmap_method: as in `jax.ffi.ffi_call`.
            input_output_aliases: likewise.
        """
        if not self.available():
            raise RuntimeError(
                "natmix was installed without its native kernels; ask `Plan.native` of the plan in use first."
            )
        if kernel not in self.kernels:
            raise RuntimeError(f"{self.path.name} has no kernel {kernel}, only {', '.join(self.kernels)}.")
        signature = self.kernels[kernel]
        arguments, common = signature.in_order(arrays)
        results = signature.result_shapes(arguments, common, sizes or {}, optional)
        fn = jax.ffi.ffi_call(
            f"{self.prefix}_{kernel}",
            results,
            vmap_method=vmap_method,
            input_output_aliases=input_output_aliases,
        )
        return tuple(fn(*arguments))


CORE = NativeLibrary(Path(__file__).with_name("libnatmix.so"), SHARED, "natmix")


def available() -> bool:
    """Whether natmix was installed with its native kernels, and they can be used here."""
    return CORE.available()


def _ffi_version() -> tuple[int, int] | None:
    """Of XLA's interface in the installed jaxlib, from its header."""
    header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h")
    if not header.exists():
        return None
    numbers = dict(re.findall(r"#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", header.read_text(encoding="utf-8")))
    return (int(numbers["MAJOR"]), int(numbers["MINOR"])) if len(numbers) == 2 else None
