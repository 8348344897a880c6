"""The regressions of MORE in the loops of `natmix.kernels.native`.

As in `few_pairs`, negligible pairs are left out, and nothing of N x K entries is formed.
"""

from typing import TypeGuard

import jax.numpy as jnp
from jaxtyping import Array, Float

from natmix.array_types import Scalar
from natmix.gaussians import AbstractGaussians, FullGaussians
from natmix.kernels import native
from natmix.kernels.importance_sums import largest_log_weights, log_sums, weighted_sums
from natmix.mixture import Mixture
from natmix.modules.ng_estimators.pair_sums import PairSums, finite_top, reward_columns
from natmix.modules.ng_estimators.regression import num_features
from natmix.modules.records import Batch

_FEATURES = 1000
"""Beyond this number the gain is small, and the sums of some components at a time take much memory."""


def has_loops(gaussians: AbstractGaussians, x: Float[Array, "N D"]) -> TypeGuard[FullGaussians]:
    """Whether there are loops for these regressions, and they are worth it."""
    full = isinstance(gaussians, FullGaussians) and gaussians.has_loops(x)
    return full and num_features(gaussians) <= _FEATURES


class LoopedPairs(PairSums):
    """What the weights of all samples sum up to; which pairs matter is found as they are summed."""

    @classmethod
    def of(cls, mixture: Mixture, batch: Batch, temperature: Scalar, self_normalised: bool) -> "LoopedPairs":
        log_c = batch.log_components
        log_q = log_sums(log_c, mixture.log_weights, batch.count)
        reward = jnp.where(batch.valid, batch.log_target - temperature * log_q, 0)
        top, ok = finite_top(largest_log_weights(log_c, batch))
        sums = weighted_sums(log_c, batch, top, reward_columns(reward, batch.zero))
        return cls.of_sums(reward, top, ok, sums, batch.count, self_normalised)

    def regress(
        self, mixture: Mixture, batch: Batch, extra: Float[Array, " K"], ridge: Float[Array, " K"]
    ) -> Float[Array, "K F"]:
        """Coefficients of all components; zeros cost ``extra`` beside their reward."""
        gaussians = mixture.components
        assert isinstance(gaussians, FullGaussians)
        total, centre = self.centred(extra)
        return native.more_regressions(
            batch.log_components,
            batch.log_background,
            batch.valid,
            self.top,
            batch.x,
            gaussians.mean,
            gaussians.inverse_tril,
            gaussians.log_normaliser(),
            mixture.exists,
            self.reward,
            batch.zero,
            self.size,
            total,
            centre,
            extra,
            ridge,
            batch.count,
        )
