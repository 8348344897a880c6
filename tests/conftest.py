"""Double precision is available to all tests; those of float32 ask for it by dtype.

Programs are compiled as `compiler_settings` says; shapes are checked as `shape_checks` says.
"""

import signal
import sys
from pathlib import Path

import arviz_stamp
import compiler_settings  # before jax
import jax
import pytest
import shape_checks

jax.config.update("jax_enable_x64", True)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore Ctrl-C

MAPS = Path("/proc/self/maps")


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        arviz_stamp.write()
    shape_checks.install()  # before anything of natmix is imported
    compiler_settings.set_options_of_natmix()


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
    jax.config.update("jax_disable_most_optimizations", not compiler_settings.AS_SHIPPED)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
