"""The regressions of MORE over all pairs of a sample and a component."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float

from natmix.array_types import Scalar
from natmix.gaussians import AbstractGaussians
from natmix.kernels.blocks import block_rows, map_components, rows_at_once, sum_blocks
from natmix.kernels.importance_weights import ImportanceWeights
from natmix.mixture import Mixture
from natmix.modules.ng_estimators.base import (
    estimator_weights,
    positive_and_total,
    responsibilities_and_log_density,
)
from natmix.modules.ng_estimators.regression import SQUARES, feature_moments, num_features, ridge_regression
from natmix.modules.records import Batch


class AllPairs(eqx.Module):
    """Weights and rewards, with what `natmix.modules.ng_estimators.few_pairs.FewPairs` has too."""

    weights: ImportanceWeights
    reward: Float[Array, " N"]
    inside: Float[Array, " K"]
    total: Float[Array, " K"]

    @classmethod
    def of(
        cls,
        mixture: Mixture,
        batch: Batch,
        temperature: Scalar,
        self_normalised: bool,
        own_samples_only: bool,
    ) -> "AllPairs":
        _, log_q = responsibilities_and_log_density(batch.log_components, mixture.log_weights)
        reward = jnp.where(batch.valid, batch.log_target - temperature * log_q, 0)
        weights = estimator_weights(batch, self_normalised, own_samples_only)
        return cls(weights, reward, *positive_and_total(weights, batch))

    @property
    def log_scale(self) -> Float[Array, " K"]:
        return self.weights.log_scale

    @property
    def ok(self) -> Bool[Array, " K"]:
        return self.weights.ok

    def regress(
        self, mixture: Mixture, batch: Batch, extra: Float[Array, " K"], ridge: Float[Array, " K"]
    ) -> Float[Array, "K F"]:
        """Coefficients of all components; zeros cost ``extra`` beside their reward."""
        gaussians = mixture.components
        F = num_features(gaussians)
        at_once = min(rows_at_once(SQUARES * F * F, on_cpu=1), gaussians.capacity)
        rows = (jnp.arange(gaussians.capacity), self.weights.values.T, ridge, extra)
        block = Partial(_coefficients, gaussians, batch, self.reward, at_once)
        return map_components(block, rows, mixture.log_weights > -jnp.inf, at_once)


def _coefficients(
    gaussians: AbstractGaussians, batch: Batch, reward: Float[Array, " N"], at_once: int, *rows: Array
) -> Float[Array, "B F"]:
    """Of ``at_once`` components: their numbers, weights [B, N], ridges, and what zeros cost them beside."""
    size = block_rows(4 * num_features(gaussians) * at_once)

    def one(k: Array, w: Array, ridge: Array, extra: Array) -> Float[Array, " F"]:
        own_reward = jnp.where(batch.zero, reward - extra, reward)
        total = jnp.maximum(jnp.sum(w), jnp.finfo(w.dtype).tiny)
        centred = jnp.where(w > 0, own_reward - jnp.sum(w * own_reward) / total, 0)
        block = Partial(feature_moments, gaussians.take(k[None]))
        moments = sum_blocks(block, (batch.x, w, centred), size, batch.count)
        return ridge_regression(moments, total, ridge)

    return jax.vmap(one)(*rows)
