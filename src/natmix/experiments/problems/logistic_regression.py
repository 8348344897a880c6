"""Bayesian logistic regression on the breast cancer and the German credit data.

log p(x) = sum_n log sigmoid(s_n f_n^T x) + log N(x; 0, 10^2 I) with features f_n: a constant 1, then the
columns of the data divided by their standard deviation over all rows (not centred). The sign s_n is -1 where
the label is 1 (benign; bad credit) and +1 where it is 0: as published, positive weights speak for label 0.
"""

from typing import Any

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

PRIOR_STD = 10.0
MINIBATCH = 64
HELD_OUT = {"breast_cancer": 227, "german_credit": 600}

_DATA = {"breast_cancer": data.breast_cancer, "german_credit": data.german_credit}

_NATIVE_BLOCK = 512
"""Points evaluated at once by the native kernels: threads share them, and blocks are padded."""

LOG_EVIDENCE = {"breast_cancer": (-77.579, 0.017), "german_credit": (-585.094, 0.003)}
"""Log evidences with standard errors, by bridge sampling from long NUTS runs (``natmix references``)."""


class LogisticPosterior(AbstractForms):
    """The log density of points [N, D] on all rows.

    Attributes:
        signed: features of every row, times -1 where the label is 1.
    """

    signed: Float[Array, "R D"]

    def by_xla(self, x: Float[Array, "N D"]) -> Float[Array, " N"]:
        return jnp.sum(log_sigmoid(einsum("nd,rd->nr", x, self.signed)), axis=1) + _log_prior(x)

    def has_native_kernel(self) -> bool:
        return native.used()

    def by_native_kernel(
        self, x: Float[Array, "N D"], gradient: bool
    ) -> tuple[Float[Array, " N"], Float[Array, "N D"] | None]:
        value, slope = native.logistic_regression(x, self.signed, PRIOR_STD**-2, None, gradient=gradient)
        return value - _prior_constant(x.shape[1]), slope


class LogisticMinibatch(eqx.Module):
    """The same log density from ``size`` rows per point, the likelihood scaled up to all rows.

    Attributes:
        signed: as in `LogisticPosterior`, in random order.
        size: rows per minibatch.
    """

    signed: Float[Array, "R D"]
    size: int = eqx.field(static=True)

    def __call__(self, key: PRNGKey, x: Float[Array, "N D"]) -> Float[Array, " N"]:
        batch = start_and_stride(key, x.shape[0], self.signed.shape[0])
        return _LogisticOnMinibatches(self.signed, *batch, self.size)(x)


class _LogisticOnMinibatches(AbstractForms):
    """The log density from rows (start + stride j) mod R."""

    signed: Float[Array, "R D"]
    start: Int[Array, " N"]
    stride: Int[Array, " N"]
    size: int = eqx.field(static=True)

    def by_xla(self, x: Float[Array, "N D"]) -> Float[Array, " N"]:
        rows = self.signed.shape[0]
        chosen = self.signed[minibatch_rows(self.start, self.stride, rows, self.size)]
        logit = einsum("nd,nbd->nb", x, chosen)
        return rows / self.size * jnp.sum(log_sigmoid(logit), axis=1) + _log_prior(x)

    def has_native_kernel(self) -> bool:
        return native.used()

    def by_native_kernel(
        self, x: Float[Array, "N D"], gradient: bool
    ) -> tuple[Float[Array, " N"], Float[Array, "N D"] | None]:
        batch = self.start, self.stride, self.size
        precision = PRIOR_STD**-2
        value, slope = native.logistic_regression_minibatch(
            x, self.signed, precision, *batch, None, gradient=gradient
        )
        return value - _prior_constant(x.shape[1]), slope


def logistic_regression(name: str, title: str, seed: int, dtype: Any, *, data: str) -> Problem:
    """The posterior given all rows."""
    target = _full(jnp.asarray(_signed(*standardised_features(data)), dtype))
    return _problem(name, title, target, target, data)


def logistic_regression_minibatch(
    name: str, title: str, seed: int, dtype: Any, *, data: str, minibatch: int = MINIBATCH
) -> Problem:
    """The same posterior seen through minibatches, a different one for every point."""
    signed = _signed(*standardised_features(data))
    size = check_size(minibatch, signed.shape[0])
    order = np.random.default_rng(0).permutation(signed.shape[0])
    target = JaxTarget(
        fn=LogisticMinibatch(jnp.asarray(signed[order], dtype), size),
        dim=signed.shape[1],
        batched=True,
        stochastic=True,
        batch_size=block_size(cpu=256, accelerator=8192),
    )
    reference = _full(jnp.asarray(signed, dtype))
    return _problem(name, title, target, reference, data)


def _problem(name: str, title: str, target: JaxTarget, reference: JaxTarget, data: str) -> Problem:
    value, error = LOG_EVIDENCE[data]
    return Problem(
        name,
        title,
        target,
        reference,
        _start(target.dim),
        log_evidence=value,
        log_evidence_se=error,
        secondary={"mmd": secondary.mmd(data)},
    )


def logistic_regression_held_out(name: str, title: str, seed: int, dtype: Any, *, data: str) -> Problem:
    """The posterior given the training rows, to predict the labels of the held-out rows."""
    features, labels = standardised_features(data)
    kept = len(labels) - HELD_OUT[data]
    target = _full(jnp.asarray(_signed(features[:kept], labels[:kept]), dtype))
    unseen = jnp.asarray(features[kept:], dtype), jnp.asarray(labels[kept:], dtype)
    measures = {"accuracy": secondary.accuracy(probabilities, *unseen)}
    return Problem(name, title, target, target, _start(target.dim), secondary=measures)


def probabilities(x: Float[Array, "*N D"], features: Float[Array, "M D"]) -> Float[Array, "*N M"]:
    """P(label = 1) of every row of features (the constant 1 in front) under the weights x."""
    return jax.nn.sigmoid(-einsum("...d,md->...m", x, features))


@jax.custom_jvp
def log_sigmoid(z: Float[Array, "*S"]) -> Float[Array, "*S"]:
    """log(1 / (1 + exp(-z))) without overflow; its derivative costs no second exponential."""
    return jnp.minimum(z, 0) - jnp.log1p(jnp.exp(-jnp.abs(z)))


@log_sigmoid.defjvp
def _log_sigmoid_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (z,), (dz,) = primals, tangents
    small = jnp.exp(-jnp.abs(z))
    slope = jnp.where(z >= 0, small, 1) / (1 + small)
    return jnp.minimum(z, 0) - jnp.log1p(small), slope * dz


def _full(signed: Float[Array, "R D"]) -> JaxTarget:
    rows = block_size(cpu=_NATIVE_BLOCK if native.used() else 256, accelerator=8192)
    return JaxTarget(fn=LogisticPosterior(signed), dim=signed.shape[1], batched=True, batch_size=rows)


def _start(dim: int) -> InitialRegion:
    return InitialRegion.build(dim, mean=0, mean_scale=PRIOR_STD, variance=PRIOR_STD**2)


def _log_prior(x: Float[Array, "N D"]) -> Float[Array, " N"]:
    return -0.5 * jnp.sum((x / PRIOR_STD) ** 2, axis=1) - _prior_constant(x.shape[1])


def _prior_constant(dim: int) -> float:
    return float(dim * (np.log(PRIOR_STD) + 0.5 * np.log(2 * np.pi)))


def standardised_features(data: str) -> tuple[np.ndarray, np.ndarray]:
    """A constant and the columns divided by their standard deviations, and the labels."""
    columns, labels = _DATA[data]()
    return np.column_stack([np.ones(len(labels)), columns / columns.std(axis=0)]), labels


def _signed(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return features * (1 - 2 * labels)[:, None]
