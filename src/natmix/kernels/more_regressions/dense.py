"""The regressions of MORE over all pairs of a sample and a component."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float

from natmix.array_types import Scalar
from natmix.kernels.blocks import block_rows, components_at_once, map_components, sum_blocks
from natmix.kernels.gaussian_batch import GaussianBatch
from natmix.kernels.importance_weights import ImportanceWeights, importance_weights, own_weights
from natmix.kernels.more_regressions.ridge import SQUARES, feature_moments, num_features, ridge_regression
from natmix.kernels.sample_arrays import SampleArrays


class DenseRegressions(eqx.Module):
    """Weights and rewards of all pairs."""

    weights: ImportanceWeights
    reward: Float[Array, " N"]
    inside: Float[Array, " K"]
    total: Float[Array, " K"]

    @classmethod
    def of(
        cls,
        gaussians: GaussianBatch,
        log_weights: Float[Array, " K"],
        samples: SampleArrays,
        temperature: Scalar,
        self_normalised: bool,
        own_samples_only: bool,
    ) -> "DenseRegressions":
        log_q = jax.nn.logsumexp(samples.log_components + log_weights, axis=1)
        reward = jnp.where(samples.valid, samples.log_target - temperature * log_q, 0)
        if own_samples_only:
            weights = own_weights(samples, self_normalised=self_normalised)
        else:
            weights = importance_weights(samples.log_components, samples, self_normalised=self_normalised)
        inside = jnp.sum(jnp.where(samples.zero[:, None], 0, weights.values), axis=0)
        return cls(weights, reward, inside, jnp.sum(weights.values, axis=0))

    @property
    def log_scale(self) -> Float[Array, " K"]:
        return self.weights.log_scale

    @property
    def ok(self) -> Bool[Array, " K"]:
        return self.weights.ok

    def regress(
        self,
        gaussians: GaussianBatch,
        present: Bool[Array, " K"],
        samples: SampleArrays,
        extra: Float[Array, " K"],
        ridge: Float[Array, " K"],
    ) -> Float[Array, "K F"]:
        """Coefficients of all components; rewards are lowered by ``extra`` where the density is zero."""
        F = num_features(gaussians)
        at_once = min(components_at_once(SQUARES * F * F, on_cpu=1), gaussians.capacity)
        rows = (jnp.arange(gaussians.capacity), self.weights.values.T, ridge, extra)
        block = Partial(_coefficients, gaussians, samples, self.reward, at_once)
        return map_components(block, rows, present, at_once)


def _coefficients(
    gaussians: GaussianBatch, samples: SampleArrays, reward: Float[Array, " N"], at_once: int, *rows: Array
) -> Float[Array, "B F"]:
    """Regressions of some components: their slots, weights [B, N], ridges, and ``extra``."""
    size = block_rows(4 * num_features(gaussians) * at_once)

    def one(k: Array, w: Array, ridge: Array, extra: Array) -> Float[Array, " F"]:
        own_reward = jnp.where(samples.zero, reward - extra, reward)
        total = jnp.maximum(jnp.sum(w), jnp.finfo(w.dtype).tiny)
        centred = jnp.where(w > 0, own_reward - jnp.sum(w * own_reward) / total, 0)
        block = Partial(feature_moments, gaussians.take(k[None]))
        moments = sum_blocks(block, (samples.x, w, centred), size, samples.count)
        return ridge_regression(moments, total, ridge)

    return jax.vmap(one)(*rows)
