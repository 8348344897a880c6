"""Which library evaluates a Stan program."""

import contextlib
import importlib.util
import io

from natmix.models.stan_backends.backend import AbstractBackend
from natmix.models.stan_backends.bridgestan import BridgeStanBackend
from natmix.models.stan_backends.data import Data
from natmix.models.stan_backends.httpstan import HttpstanBackend
from natmix.models.stan_backends.program import Program
from natmix.text.extras import install
from natmix.text.suggestions import meant

BACKENDS = ("bridgestan", "httpstan")


def load(program: Program, data: Data, seed: int, backend: str | None) -> AbstractBackend:
    """The program compiled and given its data, by the named library or the best one there is."""
    name = _installed(backend)
    return (BridgeStanBackend if name == "bridgestan" else HttpstanBackend)(program, data, seed)


def _installed(wanted: str | None) -> str:
    if wanted is not None and wanted not in BACKENDS:
        raise ValueError(
            f"backend must be one of {', '.join(BACKENDS)}, got {wanted!r}.{meant(wanted, BACKENDS)}"
        )
    there = [name for name in BACKENDS if importlib.util.find_spec(name) is not None]
    if wanted is not None:
        if wanted not in there:
            raise ImportError(f"backend={wanted!r} needs {wanted}: pip install {wanted}.")
        return wanted
    if not there:
        raise ImportError(f"A Stan program needs httpstan or BridgeStan: {install('stan')}.")
    if there == list(BACKENDS):
        return "bridgestan" if _has_sources() else "httpstan"
    return there[0]


def _has_sources() -> bool:
    """Whether BridgeStan has the sources of Stan, which it otherwise downloads."""
    import bridgestan.compile

    with contextlib.redirect_stdout(io.StringIO()):
        return bool(bridgestan.compile.get_bridgestan_path(download=False))
