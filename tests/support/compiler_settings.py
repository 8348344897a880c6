"""How the tests compile; to be imported before jax.

Most of the time of the tests goes into compiling programs that run once, so the compiler is asked
not to optimise them; the programs are the same, their results too. Each process uses one thread,
because several processes run side by side. With NATMIX_TEST_AS_SHIPPED=1 in the environment neither
is done: the tests run the programs that users run.
"""

import os
from importlib.metadata import version

AS_SHIPPED = os.environ.get("NATMIX_TEST_AS_SHIPPED") == "1"

if not AS_SHIPPED:
    os.environ.setdefault(
        "XLA_FLAGS",
        "--xla_backend_optimization_level=0 --xla_cpu_multi_thread_eigen=false"
        # Later compilers have no choice of emitters.
        + (" --xla_cpu_use_fusion_emitters=false" if version("jaxlib").startswith("0.10.") else ""),
    )
    os.environ.setdefault("NPROC", "1")
os.environ["JAX_COMPILATION_CACHE_DIR"] = ""  # no files left behind by commands


def set_options_of_natmix() -> None:
    """The same for the options that natmix gives with each program."""
    from natmix.kernels import compilation

    if not AS_SHIPPED:
        compilation._CPU_OPTIONS["xla_backend_optimization_level"] = 0
