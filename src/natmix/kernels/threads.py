"""CPU threads: how many cores this process has, and one BLAS thread inside compiled programs."""

import contextlib
import functools
import os
from collections.abc import Iterator

import jax
from threadpoolctl import ThreadpoolController


def usable_cores() -> int:
    """Those it may use, or as many as XLA is told to (``NPROC``)."""
    told = os.environ.get("NPROC", "")
    if told.isdecimal():
        return int(told)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def single_threaded_blas() -> Iterator[None]:
    """BLAS and LAPACK libraries use one thread inside, as many as before afterwards.

    XLA gives the matrices of a batch to threads of its own. OpenBLAS's threads on top of them wait for each
    other in busy loops: on a machine that does something else too, decompositions of 100 x 100 took 250
    times as long (benchmarks/speed/blas_threads.py).
    """
    if jax.default_backend() != "cpu":
        yield
        return
    with _controller().limit(limits=1, user_api="blas"):
        yield


@functools.cache
def _controller() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401  loads a library of SciPy's own, which the controller has to see

    return ThreadpoolController()
