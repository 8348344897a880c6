"""The regressions of MORE by native kernels.

As in the sparse form, negligible pairs are left out, and nothing of N x K entries is formed.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from natmix.array_types import Scalar
from natmix.kernels import native
from natmix.kernels.gaussian_batch import GaussianBatch, triangular
from natmix.kernels.importance_sums import largest_log_weights, log_sums, weighted_sums
from natmix.kernels.more_regressions.sums import PairSums, finite_top, reward_columns
from natmix.kernels.sample_arrays import SampleArrays


class NativeRegressions(PairSums):
    """Sums of the weights of all samples; the kernel finds the negligible pairs itself."""

    @classmethod
    def of(
        cls,
        gaussians: GaussianBatch,
        log_weights: Float[Array, " K"],
        samples: SampleArrays,
        temperature: Scalar,
        self_normalised: bool,
        own_samples_only: bool,
    ) -> "NativeRegressions":
        if own_samples_only:
            raise ValueError("The native form has weights of samples that all components share.")
        log_c = samples.log_components
        log_q = log_sums(log_c, log_weights, samples.count, "native")
        reward = jnp.where(samples.valid, samples.log_target - temperature * log_q, 0)
        top, ok = finite_top(largest_log_weights(log_c, samples, "native"))
        sums = weighted_sums(log_c, samples, top, reward_columns(reward, samples.zero), "native")
        return cls.of_sums(reward, top, ok, sums, samples.count, self_normalised)

    def regress(
        self,
        gaussians: GaussianBatch,
        present: Bool[Array, " K"],
        samples: SampleArrays,
        extra: Float[Array, " K"],
        ridge: Float[Array, " K"],
    ) -> Float[Array, "K F"]:
        """Coefficients of all components; rewards are lowered by ``extra`` where the density is zero."""
        m, _, W = triangular(gaussians)
        total, centre = self.centred(extra)
        return native.more_regressions(
            samples.log_components,
            samples.log_background,
            samples.valid,
            self.top,
            samples.x,
            m,
            W,
            gaussians.log_normaliser(),
            present,
            self.reward,
            samples.zero,
            self.size,
            total,
            centre,
            extra,
            ridge,
            samples.count,
        )
