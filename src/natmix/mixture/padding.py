"""Mixtures and points padded to few sizes, so that every number of them is not a program of its own."""

import jax
import numpy as np
from jaxtyping import Array

from natmix.gaussians import AbstractGaussians
from natmix.kernels.transfer import on_device

_FEW = (16, 64, 256)
_MANY = 2**16


def padded_size(points: int) -> int:
    """At least so many points: a power of two, of few below 512, a multiple of 65,536 above that."""
    for size in _FEW:
        if points <= size:
            return size
    return -(-points // _MANY) * _MANY if points > _MANY else 1 << (points - 1).bit_length()


def padded_points(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The points and copies of the last one."""
    missing = padded_size(len(x)) - len(x)
    return np.pad(np.asarray(x, dtype), ((0, missing), (0, 0)), mode="edge")


def padded_components(log_weights: Array, components: AbstractGaussians) -> tuple[Array, AbstractGaussians]:
    """The components and absent copies of the last one, up to a power of two."""
    K = log_weights.shape[0]
    missing = (1 << (K - 1).bit_length()) - K
    if not missing:
        return log_weights, components

    def longer(array: Array) -> Array:
        values = np.asarray(array)
        return on_device(np.concatenate([values, np.repeat(values[-1:], missing, axis=0)]))

    absent = np.full(missing, -np.inf, log_weights.dtype)
    return (
        on_device(np.concatenate([np.asarray(log_weights), absent])),
        jax.tree.map(longer, components),
    )
