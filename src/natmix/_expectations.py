"""Expectations on one iteration's samples: the components' rewards and the ELBO."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natmix._importance import importance_weights
from natmix._linalg import einsum
from natmix._records import Batch
from natmix._types import Scalar
from natmix.component_stepsizes._base import Rewards
from natmix.mixture import Mixture


def objective(mixture: Mixture, rewards: Rewards, T: Scalar) -> Scalar:
    """sum_o q(o) r(o) - T sum_o q(o) log q(o), the lower bound of Eq. 2."""
    q = mixture.weights
    return jnp.sum(jnp.where(q > 0, q * (rewards.last - T * mixture.log_weights), 0))


class Elbo(eqx.Module):
    value: Scalar
    se: Scalar
    entropy: Scalar


def expected_log_ratios(
    mixture: Mixture, batch: Batch, log_components: Float[Array, "N K"], T: Scalar, self_normalised: bool
) -> tuple[Float[Array, " K"], Elbo]:
    """E(o) = E[log p~ - T log q] under every component, and the ELBO (Eq. 1) on the same samples.

    A component without a usable estimate gets the weighted mean of the others: its weight stays.
    """
    weights = importance_weights(log_components, batch, self_normalised=self_normalised)
    log_q = jax.nn.logsumexp(log_components + mixture.log_weights, axis=1)
    log_q = jnp.where(batch.valid, log_q, 0)
    both = jnp.stack([batch.log_target - T * log_q, batch.log_target - log_q, log_q], axis=1)
    both = jnp.where(batch.valid[:, None], both, 0)
    means = einsum("nk,nf->kf", weights.values, both) * jnp.exp(weights.log_scale)[:, None]
    q = mixture.weights
    usable = weights.ok & jnp.all(jnp.isfinite(means), axis=1) & (q > 0)
    share = jnp.where(usable, q, 0)
    share = share / jnp.maximum(jnp.sum(share), jnp.finfo(q.dtype).tiny)
    tilted, value, negative_entropy = jnp.sum(jnp.where(usable[:, None], share[:, None] * means, 0), axis=0)
    log_ratio = jnp.where(usable, means[:, 0], tilted)
    per_sample = einsum("nk,k->n", weights.values, jnp.where(usable, share * jnp.exp(weights.log_scale), 0))
    variance = jnp.sum(jnp.where(batch.valid, per_sample * (both[:, 1] - value), 0) ** 2)
    return log_ratio, Elbo(value, jnp.sqrt(variance), -negative_entropy)
