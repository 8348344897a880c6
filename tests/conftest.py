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
MOST_MAPS = 40_000
"""Of the 65530 memory maps that a process may have."""
COMPILED = [0]
"""Programs since the memory maps were counted."""


def _count(event, duration_secs, **kwargs):
    COMPILED[0] += event == "/jax/core/compile/backend_compile_duration"


jax.monitoring.register_event_duration_secs_listener(_count)


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        arviz_stamp.write()
    shape_checks.install()  # before anything of natmix is imported
    compiler_settings.set_options_of_natmix()
    compiler_settings.share_contexts()


@pytest.fixture(autouse=True)
def forget_programs():
    """Every compiled program holds some ten memory maps. To count them takes as long as a short test."""
    yield
    if COMPILED[0] > 200 and MAPS.exists():
        COMPILED[0] = 0
        if MAPS.read_bytes().count(b"\n") > MOST_MAPS:
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
