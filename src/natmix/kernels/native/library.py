"""The compiled library."""

import ctypes
import functools
import warnings
from pathlib import Path

import jax

from natmix.kernels.native.sources import digest

FUNCTIONS = (
    "log_prob",
    "relevant",
    "mixture_log_prob",
    "meet",
    "score",
    "pulled",
    "log_sums",
    "sample_sums",
    "largest",
    "sums",
    "moments",
    "regressions",
    "trust_region",
    "draws",
    "front",
    "count",
    "put",
    "logistic",
    "logistic_minibatch",
    "network",
)


@functools.cache
def available() -> bool:
    """Whether the loops are there; if so, XLA knows them from now on."""
    library = _load(Path(__file__).with_name("libnatmix.so"))
    if library is None:
        return False
    for name in FUNCTIONS:
        handler = jax.ffi.pycapsule(getattr(library, f"natmix_{name}"))
        jax.ffi.register_ffi_target(f"natmix_{name}", handler, platform="cpu")
    return True


def _load(path: Path) -> ctypes.CDLL | None:
    if not path.exists():
        return None
    try:
        library = ctypes.CDLL(str(path))
        sources = ctypes.c_char_p.in_dll(library, "natmix_sources").value
    except (OSError, ValueError):  # built for another machine
        sources = None
    if sources != digest().encode():
        message = (
            "natmix's compiled loops do not belong to its sources and are not used; install natmix again."
        )
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return None
    return library
