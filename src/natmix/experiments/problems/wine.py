"""A Bayesian neural network that predicts the quality of white wine.

log p(x) = -N MSE(x) - |x|^2 / 2 for the 177 weights x of a network 11-8-8-1 with sigmoid hidden layers and
linear output; MSE is over N = 2938 training rows, of which the target sees a minibatch of 128.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natmix.array_types import PRNGKey
from natmix.experiments import native
from natmix.experiments.problems import data, secondary
from natmix.experiments.problems.base import InitialRegion, Problem
from natmix.experiments.problems.block_size import block_size
from natmix.experiments.problems.minibatch import check_size, minibatch_rows, start_and_stride
from natmix.experiments.problems.native_targets import AbstractForms
from natmix.kernels.linalg import einsum
from natmix.targets import JaxTarget

FEATURES, HIDDEN = 11, 8
DIM = (FEATURES + 1) * HIDDEN + (HIDDEN + 1) * HIDDEN + HIDDEN + 1
MINIBATCH = 128
VALIDATION, TEST = 980, 980


class WinePosterior(eqx.Module):
    """The log density of points [N, D] on all training rows."""

    features: Float[Array, "R F"]
    quality: Float[Array, " R"]

    def __call__(self, x: Float[Array, "N D"]) -> Float[Array, " N"]:
        error = predict(x, self.features) - self.quality
        return -self.quality.shape[0] * jnp.mean(error**2, axis=1) - 0.5 * jnp.sum(x**2, axis=1)


class WineMinibatch(eqx.Module):
    """The same log density from ``size`` training rows per point.

    Attributes:
        features: of the training rows, in random order.
        quality: likewise.
        size: rows per minibatch.
    """

    features: Float[Array, "R F"]
    quality: Float[Array, " R"]
    size: int = eqx.field(static=True)

    def __call__(self, key: PRNGKey, x: Float[Array, "N D"]) -> Float[Array, " N"]:
        batch = start_and_stride(key, x.shape[0], self.quality.shape[0])
        return _NetworkOnMinibatches(self.features, self.quality, *batch, self.size)(x)


class _NetworkOnMinibatches(AbstractForms):
    """-N MSE(x) - |x|^2 / 2 on rows (start + stride j) mod N."""

    features: Float[Array, "R F"]
    quality: Float[Array, " R"]
    start: Int[Array, " N"]
    stride: Int[Array, " N"]
    size: int = eqx.field(static=True)

    def by_xla(self, x: Float[Array, "N D"]) -> Float[Array, " N"]:
        rows = self.quality.shape[0]
        chosen = minibatch_rows(self.start, self.stride, rows, self.size)
        error = predict(x, self.features[chosen]) - self.quality[chosen]
        return -rows * jnp.mean(error**2, axis=1) - 0.5 * jnp.sum(x**2, axis=1)

    def has_native_kernel(self) -> bool:
        return native.used()

    def by_native_kernel(
        self, x: Float[Array, "N D"], gradient: bool
    ) -> tuple[Float[Array, " N"], Float[Array, "N D"] | None]:
        batch = self.start, self.stride, self.size
        return native.wine_network(x, self.features, self.quality, *batch, None, gradient=gradient)


class Split(NamedTuple):
    """Which rows are used for what."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def wine(name: str, title: str, seed: int, dtype: Any, *, minibatch: int = MINIBATCH) -> Problem:
    """The posterior given the training rows, which depend on the seed.

    Args:
        name: of the problem.
        title: of the problem.
        seed: of the split into training, validation and test rows.
        dtype: of the arrays.
        minibatch: training rows per point.
    """
    columns, quality = data.white_wine()
    split = split_rows(np.column_stack([columns, quality]), seed)
    size = check_size(minibatch, len(split.train))
    standardised = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    train, test = (
        (jnp.asarray(standardised[rows], dtype), jnp.asarray(quality[rows], dtype))
        for rows in (split.train, split.test)
    )
    target = JaxTarget(
        fn=WineMinibatch(*train, size),
        dim=DIM,
        batched=True,
        stochastic=True,
        batch_size=block_size(cpu=128, accelerator=4096),
    )
    reference = JaxTarget(
        fn=WinePosterior(*train), dim=DIM, batched=True, batch_size=block_size(cpu=32, accelerator=512)
    )
    measures = {"test_mse": secondary.held_out_mse(predict, *test)}
    start = InitialRegion.build(DIM, mean=0, mean_scale=1, variance=1)
    return Problem(name, title, target, reference, start, secondary=measures)


def predict(x: Float[Array, "*N D"], features: Float[Array, "*#N M F"]) -> Float[Array, "*N M"]:
    """The network's output for features that all weight vectors x share, [M, F], or that each has separately.

    A weight vector holds, layer by layer, the matrix (from input to output, by rows) and the biases.
    """
    sizes = (FEATURES * HIDDEN, HIDDEN, HIDDEN * HIDDEN, HIDDEN, HIDDEN, 1)
    W1, b1, W2, b2, W3, b3 = jnp.split(x, np.cumsum(sizes)[:-1], axis=-1)
    W1, W2 = (W.reshape(*x.shape[:-1], -1, HIDDEN) for W in (W1, W2))
    h = jax.nn.sigmoid(einsum("...fh,...mf->...hm", W1, features) + b1[..., None])
    h = jax.nn.sigmoid(einsum("...gh,...gm->...hm", W2, h) + b2[..., None])
    return einsum("...h,...hm->...m", W3, h) + b3


def split_rows(table: np.ndarray, seed: int) -> Split:
    """Rows for training (2938), validation (980) and testing (980), each in random order.

    Many rows of the white wines occur several times, with the same features and quality (4898 rows, 3961
    of them distinct). All copies of a row go to the same side, so no test row was trained on; the
    published split ignored that. The sizes are exact: the remainder is filled with rows that occur once.
    """
    rng = np.random.default_rng(seed)
    kind = np.unique(table, axis=0, return_inverse=True)[1].reshape(-1)
    copies = np.bincount(kind)
    free = rng.permutation(len(copies))
    test, free = _take(free, copies, TEST)
    validation, train = _take(free, copies, VALIDATION)
    return Split(*(rng.permutation(np.flatnonzero(np.isin(kind, k))) for k in (train, validation, test)))


def _take(free: np.ndarray, copies: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The first kinds of rows that have ``size`` rows together, and the other kinds."""
    filled = np.cumsum(copies[free])
    taken = filled <= size
    missing = size - copies[free[taken]].sum()
    single = np.flatnonzero(~taken & (copies[free] == 1))[:missing]
    taken[single] = True
    return free[taken], free[~taken]
