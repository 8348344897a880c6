"""Expectations estimated from one iteration's samples: the components' rewards and the ELBO."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from natmix.array_types import Scalar
from natmix.kernels.importance_sums import largest_log_weights, log_sums, sample_sums, weighted_sums
from natmix.mixture import Mixture
from natmix.modules.component_stepsizes.base import Rewards
from natmix.modules.records import Batch


def objective(mixture: Mixture, rewards: Rewards, T: Scalar) -> Scalar:
    """sum_o q(o) r(o) - T sum_o q(o) log q(o), the lower bound of Eq. 2."""
    q = mixture.weights
    return jnp.sum(jnp.where(q > 0, q * (rewards.last - T * mixture.log_weights), 0))


class ElboEstimate(eqx.Module):
    """An estimate of Eq. 1 with its standard error, of the entropy, and of KL(q || p)."""

    value: Scalar
    se: Scalar
    entropy: Scalar
    kl: Scalar


def expected_log_ratios(
    mixture: Mixture, batch: Batch, log_components: Float[Array, "N K"], T: Scalar, self_normalised: bool
) -> tuple[Float[Array, " K"], ElboEstimate]:
    """E(o) = E[log p~ - T log q] under every component, and the ELBO (Eq. 1) on the same samples.

    A component without a usable estimate gets the weighted mean of the others, so that its weight is kept.
    """
    log_q = jnp.where(batch.valid, log_sums(log_components, mixture.log_weights, batch.count), 0)
    both = jnp.stack([batch.log_target - T * log_q, batch.log_target - log_q, log_q], axis=1)
    both = jnp.where(batch.valid[:, None], both, 0)
    top = largest_log_weights(log_components, batch)
    ok = jnp.isfinite(top)
    top = jnp.where(ok, top, 0)
    columns = jnp.concatenate([jnp.ones_like(both[:, :1]), both], axis=1)
    sums = weighted_sums(log_components, batch, top, columns)
    n = jnp.maximum(batch.count, 1).astype(top.dtype)
    factor = 1 / jnp.maximum(sums[:, 0], 1e-30) if self_normalised else jnp.exp(top - jnp.log(n))
    means = sums[:, 1:] * factor[:, None]
    q = mixture.weights
    usable = ok & jnp.all(jnp.isfinite(means), axis=1) & (q > 0)
    share = jnp.where(usable, q, 0)
    share = share / jnp.maximum(jnp.sum(share), jnp.finfo(q.dtype).tiny)
    tilted, value, negative_entropy = jnp.sum(jnp.where(usable[:, None], share[:, None] * means, 0), axis=0)
    log_ratio = jnp.where(usable, means[:, 0], tilted)
    per_sample = sample_sums(log_components, batch, top, jnp.where(usable, share * factor, 0))
    variance, kl = _spread(jnp.where(batch.valid, per_sample, 0), both[:, 1], value)
    return log_ratio, ElboEstimate(value, jnp.sqrt(variance), -negative_entropy, kl)


def _spread(
    weights: Float[Array, " N"], log_ratio: Float[Array, " N"], mean: Scalar
) -> tuple[Scalar, Scalar]:
    """The squared standard error of E[log w], w = p~ / q, and KL(q || p) = log E[w] - E[log w].

    Both terms of KL share their samples: near the target its noise is far below that of either term. All sums
    are one reduction, of w relative to exp(E[log w]). KL is infinite where that overflows.
    """
    centred = log_ratio - mean
    used = weights > 0
    terms = [
        weights,
        weights * centred,
        weights * jnp.exp(jnp.where(used, centred, -jnp.inf)),
        (weights * centred) ** 2,
    ]
    # A product with ones: XLA's sum would not vectorise the exponential on a CPU.
    total, first, ratio, variance = jnp.matmul(jnp.stack(terms), jnp.ones_like(weights), precision="highest")
    some = total > 0
    total = jnp.where(some, total, 1)
    kl = jnp.log(jnp.where(some, ratio / total, 1)) - first / total
    return variance, jnp.where(some, kl, jnp.inf)
