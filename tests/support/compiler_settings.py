"""How the tests compile; to be imported before jax.

Most of the time of the tests goes into compiling programs that run once, so the compiler is asked
not to optimise them; the programs are the same, their results too. Each process uses one thread,
because several processes run side by side. A context of MLIR serves many programs, where JAX would make one
for each, in a quarter of the time that a small program takes. With NATMIX_TEST_AS_SHIPPED=1 in the
environment none of this is done: the tests run the programs that users run.
"""

import os
import threading
from importlib.metadata import version
from typing import Any

AS_SHIPPED = os.environ.get("NATMIX_TEST_AS_SHIPPED") == "1"

if not AS_SHIPPED:
    os.environ.setdefault(
        "XLA_FLAGS",
        "--xla_backend_optimization_level=0 --xla_cpu_multi_thread_eigen=false"
        # Later compilers have no choice of emitters.
        + (" --xla_cpu_use_fusion_emitters=false" if version("jaxlib").startswith("0.10.") else ""),
    )
    os.environ.setdefault("NPROC", "1")
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
os.environ["NATMIX_COMPILATION_CACHE"] = "0"  # no files left behind by commands


def share_contexts() -> None:
    """One context of MLIR for a hundred programs of a thread; it keeps what they have in common."""
    from jax._src.interpreters import mlir

    if AS_SHIPPED or not hasattr(mlir, "make_ir_context"):
        return
    make, here = mlir.make_ir_context, threading.local()

    def context() -> Any:
        left = getattr(here, "left", 0)
        if not left:
            here.context = make()
        here.left = (left or 100) - 1
        return here.context

    vars(mlir)["make_ir_context"] = context


def set_options_of_natmix() -> None:
    """The same for the options that natmix gives with each program."""
    from natmix.kernels import compilation

    if not AS_SHIPPED:
        compilation._CPU_OPTIONS["xla_backend_optimization_level"] = 0
