"""Decompositions of eight matrices at once, with all BLAS threads and with one.

Run: python benchmarks/speed/blas_threads.py

The difference is largest while something else keeps a core busy: start another copy beside it.
"""

import jax
import jax.numpy as jnp
from threadpoolctl import ThreadpoolController
from timing import seconds_per_call

from natmix.kernels.threads import single_threaded_blas


def main():
    """Print milliseconds."""
    libraries = [lib for lib in ThreadpoolController().info() if lib["user_api"] == "blas"]
    print("threads by default:", {lib["prefix"]: lib["num_threads"] for lib in libraries})
    decompositions = {
        "eigh": jax.jit(jnp.linalg.eigh),
        "inverse of L": jax.jit(
            lambda a: jax.scipy.linalg.solve_triangular(
                a, jnp.broadcast_to(jnp.eye(a.shape[-1]), a.shape), lower=True
            )
        ),
    }
    for D in (32, 64, 100, 300):
        A = jax.random.normal(jax.random.key(0), (8, D, D))
        A = A @ jnp.swapaxes(A, 1, 2) + D * jnp.eye(D)
        for name, fn in decompositions.items():
            many = seconds_per_call(fn, A)
            with single_threaded_blas():
                one = seconds_per_call(fn, A)
            print(f"{name:13} {D:4} dimensions: {many * 1e3:9.2f} ms, with one thread {one * 1e3:8.2f} ms")


if __name__ == "__main__":
    main()
