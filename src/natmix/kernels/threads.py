"""CPU threads: one BLAS thread inside compiled programs."""

import contextlib
import functools
from collections.abc import Iterator

from threadpoolctl import ThreadpoolController

from natmix.kernels.plan import current


@contextlib.contextmanager
def single_threaded_blas() -> Iterator[None]:
    """A context in which BLAS and LAPACK libraries use one thread.

    XLA distributes the matrices of a batch over its own threads. OpenBLAS's threads in addition wait for each
    other in busy loops: on a machine with other work, decompositions of 100 x 100 took 250 times as long
    (benchmarks/speed/blas_threads.py).
    """
    if not current().on_cpu:
        yield
        return
    with _controller().limit(limits=1, user_api="blas"):
        yield


@functools.cache
def _controller() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401  loads a library of SciPy's own, which the controller has to see

    return ThreadpoolController()
