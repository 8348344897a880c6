"""Double precision is available to all tests; those of float32 ask for it by dtype.

Most of the time of the tests goes into compiling programs that run once, so the compiler is asked
not to optimise them; the programs are the same, their results too. Each process uses one thread,
because several processes run side by side.
"""

import os
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_multi_thread_eigen=false"
    # Later compilers have no choice of emitters.
    + (" --xla_cpu_use_fusion_emitters=false" if version("jaxlib").startswith("0.10.") else ""),
)
os.environ.setdefault("NPROC", "1")
os.environ["JAX_COMPILATION_CACHE_DIR"] = ""  # no files left behind by commands

import signal
import sys

import jax
import pytest

from natmix.kernels import compilation

compilation._CPU_OPTIONS["xla_backend_optimization_level"] = 0
jax.config.update("jax_enable_x64", True)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore Ctrl-C

MAPS = Path("/proc/self/maps")


@pytest.fixture(autouse=True)
def forget_programs():
    """Every compiled program holds memory maps, of which a process may have 65530."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > 25_000:
        jax.clear_caches()


@pytest.fixture(scope="module")
def quick_compilation():
    """For files that compile many whole runs: XLA's own optimisations are left out too."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
