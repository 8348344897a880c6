"""The maximum mean discrepancy to reference samples."""

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from natmix.array_types import KeyLike
from natmix.experiments.references import load, reference_name
from natmix.mixture import Mixture

SAMPLES = 2000
"""Samples of the mixture."""

ALPHA = {"breast_cancer": 20.0, "german_credit": 20.0, "planar_robot_1": 6.0, "planar_robot_4": 6.0}
"""The kernel's width, by the name of the reference samples."""

_FOR_SCALE = 1000
_ELEMENTS = 2**23


def mmd(samples: ArrayLike, reference: ArrayLike, alpha: float) -> float:
    """The squared MMD as a V-statistic, mean k(x, x') + mean k(y, y') - 2 mean k(x, y).

    The kernel is k(x, y) = exp(-d^T (alpha S)^-1 d), d = x - y. S is diagonal and holds, for every
    dimension, the median of the squared differences between the first 1000 reference points y
    (all pairs, each point with itself included). The means run over all pairs as well, so that two sets
    of n and m samples of one distribution give about (1 - E k)(1 / n + 1 / m), not zero.
    On the host, in float64.
    """
    kernel = _kernel(np.asarray(reference, dtype=float), alpha)
    return _mmd(np.asarray(samples, dtype=float), kernel)


def mmd_to_reference(problem_name: str, mixture: Mixture, key: KeyLike) -> float:
    """`mmd` between 2000 samples of the mixture and the reference samples of a test problem.

    They are generated once by ``natmix references``; a FileNotFoundError says so if they are missing.
    """
    name = reference_name(problem_name)
    reference = load(name)
    kernel = _remembered(name, reference.sha256)
    return _mmd(np.asarray(mixture.sample(SAMPLES, key=key), dtype=float), kernel)


class _Kernel(NamedTuple):
    """The parts of the MMD that depend on the reference points only."""

    scale: Float[np.ndarray, " D"]
    points: Float[np.ndarray, "M D"]
    """Centred and divided by ``scale``: the kernel is exp(-|x - y|^2) there."""
    centre: Float[np.ndarray, " D"]
    mean: float
    """Of k(y, y')."""


def _kernel(reference: Float[np.ndarray, "M D"], alpha: float) -> _Kernel:
    if reference.ndim != 2 or not reference.size or not np.all(np.isfinite(reference)):
        raise ValueError(f"Reference points must be finite and of shape [M, D], got {list(reference.shape)}.")
    if not alpha > 0:
        raise ValueError(f"alpha must be positive, got {alpha}.")
    columns = reference[:_FOR_SCALE].T
    median = np.array([np.median((c[:, None] - c) ** 2) for c in columns])
    if not np.all(median > 0):
        raise ValueError(
            f"Dimension {int(np.argmin(median))} of the reference points has a median difference of zero: "
            "there is no kernel for it."
        )
    scale, centre = np.sqrt(alpha * median), reference.mean(axis=0)
    points = (reference - centre) / scale
    return _Kernel(scale, points, centre, _mean_within(points))


@functools.lru_cache(maxsize=4)
def _remembered(name: str, sha256: str) -> _Kernel:
    """The term of the reference samples with this hash, the same for all mixtures."""
    return _kernel(load(name).samples, ALPHA[name])


def _mmd(samples: Float[np.ndarray, "N D"], kernel: _Kernel) -> float:
    if samples.ndim != 2 or not samples.size or samples.shape[1] != kernel.scale.size:
        raise ValueError(f"Samples must have shape [N, {kernel.scale.size}], got {list(samples.shape)}.")
    x = (samples - kernel.centre) / kernel.scale
    return _mean_within(x) + kernel.mean - 2 * _mean_kernel(x, kernel.points)


def _mean_within(x: Float[np.ndarray, "N D"]) -> float:
    """Mean of exp(-|x - x'|^2) over all pairs; pairs of different blocks are computed once."""
    rows = max(1, _ELEMENTS // len(x))
    total = 0.0
    for start in range(0, len(x), rows):
        block, later = x[start : start + rows], x[start + rows :]
        total += _mean_kernel(block, block) * len(block) ** 2
        if len(later):
            total += 2 * _mean_kernel(block, later) * len(block) * len(later)
    return total / len(x) ** 2


def _mean_kernel(x: Float[np.ndarray, "N D"], y: Float[np.ndarray, "M D"]) -> float:
    """Mean of exp(-|x - y|^2) over all pairs, in blocks of rows."""
    rows = max(1, _ELEMENTS // len(y))
    square = np.sum(y * y, axis=1)
    total = 0.0
    for start in range(0, len(x), rows):
        block = x[start : start + rows]
        exponent = 2 * block @ y.T - square - np.sum(block * block, axis=1)[:, None]
        total += float(np.sum(np.exp(np.minimum(exponent, 0.0))))
    return total / (len(x) * len(y))
