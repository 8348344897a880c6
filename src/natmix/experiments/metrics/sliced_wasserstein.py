"""The sliced Wasserstein distance between two sets of samples."""

import functools

import jax
import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from natmix.array_types import KeyLike
from natmix.experiments.metrics.base import Measured, Metric
from natmix.random_keys import as_key

_ELEMENTS = 2**23


def sliced_wasserstein(
    a: ArrayLike, b: ArrayLike, key: KeyLike, projections: int = 200, p: float = 2.0
) -> float:
    """SW_p = (E_u[W_p(u^T a, u^T b)^p])^(1/p), u uniform on the sphere.

    W_p between samples on the line is exact, also for unequal numbers of them:
    W_p^p = integral over t in (0, 1) of |F_a^-1(t) - F_b^-1(t)|^p. On the host, in float64.
    """
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or not x.size or not y.size:
        raise ValueError(
            f"Both sets of samples must have shape [N, D] with the same D, "
            f"got {list(x.shape)} and {list(y.shape)}."
        )
    if projections < 1 or p < 1:
        raise ValueError(f"Give at least one projection and p >= 1, got {projections} and {p}.")
    normal = np.asarray(jax.random.normal(as_key(key), (projections, x.shape[1])), dtype=float)
    directions = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    in_a, in_b, width = _levels(len(x), len(y))
    step = max(1, _ELEMENTS // width.size)
    total = 0.0
    for start in range(0, projections, step):
        u = directions[start : start + step]
        gap = np.sort(u @ x.T, axis=1)[:, in_a] - np.sort(u @ y.T, axis=1)[:, in_b]
        total += float(np.sum(np.abs(gap) ** p @ width))
    return (total / projections) ** (1 / p)


@functools.lru_cache(maxsize=8)
def _levels(n: int, m: int) -> tuple[Int[np.ndarray, " L"], Int[np.ndarray, " L"], Float[np.ndarray, " L"]]:
    """The intervals of (0, 1) on which both quantile functions are constant: ranks and widths."""
    ends = np.union1d(np.arange(1, n + 1) * m, np.arange(1, m + 1) * n)  # in units of 1 / (n m)
    starts = np.concatenate([[0], ends[:-1]])
    return starts // m, starts // n, (ends - starts) / (n * m)


def _measure(at: Measured) -> dict[str, float]:
    assert at.target_samples is not None
    key_x, key_slices = jax.random.split(at.key)
    x = at.mixture.sample(len(at.target_samples), key=key_x)
    return {"sliced_wasserstein": sliced_wasserstein(np.asarray(x), at.target_samples, key_slices)}


SLICED_WASSERSTEIN = Metric(("sliced_wasserstein",), _measure, needs_target_samples=True)
