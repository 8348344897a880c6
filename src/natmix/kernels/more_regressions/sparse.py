"""The regressions of MORE without negligible pairs of a sample and a component.

Most weights are negligible at working precision, and a sample has many features: those pairs are skipped. No
array of N x K weights is formed either. Two passes over blocks of the log densities find the scale of the
weights and the relevant pairs, whose weights are computed where they are used. If every pair is relevant the
work is that of the dense form.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, Int

from natmix.array_types import Count, PyTree, Scalar
from natmix.kernels.blocks import block_rows, components_at_once, fold_blocks, map_components
from natmix.kernels.gaussian_batch import GaussianBatch
from natmix.kernels.importance_weights import log_importance, log_own
from natmix.kernels.linalg import einsum
from natmix.kernels.more_regressions.ridge import (
    SQUARES,
    Moments,
    feature_moments,
    num_features,
    ridge_regression,
)
from natmix.kernels.more_regressions.sums import PairSums, finite_top, reward_columns
from natmix.kernels.plan import current
from natmix.kernels.relevant_blocks import NEGLIGIBLE
from natmix.kernels.sample_arrays import SampleArrays
from natmix.kernels.sample_bitset import BITS, SampleBitset, words_of

_FEW = 128
"""Samples at a time, for components with few relevant samples."""
_ACCELERATOR_ROWS = (2048, 256)
"""The same on an accelerator, of each of several components; the larger number first."""


class SparseRegressions(PairSums):
    """The relevant pairs, and sums of the weights of all samples."""

    chosen: SampleBitset
    own_samples_only: bool = eqx.field(static=True)

    @classmethod
    def of(
        cls,
        gaussians: GaussianBatch,
        log_weights: Float[Array, " K"],
        samples: SampleArrays,
        temperature: Scalar,
        self_normalised: bool,
        own_samples_only: bool,
    ) -> "SparseRegressions":
        log_q, largest, drawn = _first_pass(log_weights, samples, own_samples_only)
        reward = jnp.where(samples.valid, samples.log_target - temperature * log_q, 0)
        top, ok = finite_top(largest)
        present = log_weights > -jnp.inf
        words, sums = _second_pass(gaussians, present, samples, reward, top, own_samples_only)
        n = drawn if own_samples_only else samples.count
        chosen = {"chosen": SampleBitset.of(words), "own_samples_only": own_samples_only}
        return cls.of_sums(reward, top, ok, sums, n, self_normalised, **chosen)

    def regress(
        self,
        gaussians: GaussianBatch,
        present: Bool[Array, " K"],
        samples: SampleArrays,
        extra: Float[Array, " K"],
        ridge: Float[Array, " K"],
    ) -> Float[Array, "K F"]:
        """Coefficients of all components; rewards are lowered by ``extra`` where the density is zero."""
        total, centre = self.centred(extra)
        numbers = jnp.arange(gaussians.capacity)
        rows = (numbers, gaussians, self.chosen, self.top, self.size, total, centre, extra, ridge)
        block = Partial(_coefficients, samples, self.reward, self.own_samples_only)
        at_once = _at_once(gaussians)
        if at_once == 1:
            return map_components(block, rows, present, 1)
        # Components done together take as long as the one with most samples: sort them by that number.
        order = jnp.argsort(-self.chosen.counts)
        rows, present = jax.tree.map(lambda a: a[order], (rows, present))
        return map_components(block, rows, present, at_once)[jnp.argsort(order)]


def _at_once(gaussians: GaussianBatch) -> int:
    """How many components are regressed together."""
    return min(components_at_once(SQUARES * num_features(gaussians) ** 2, on_cpu=1), gaussians.capacity)


def _rows_of_blocks(F: int) -> tuple[int, int]:
    if not current().on_cpu:
        return _ACCELERATOR_ROWS
    return max(block_rows(4 * F) // _FEW * _FEW, _FEW), _FEW


def _coefficients(
    samples: SampleArrays, reward: Float[Array, " N"], own_samples_only: bool, *rows: PyTree
) -> Float[Array, "B F"]:
    one = Partial(_coefficients_of_one, samples, reward, own_samples_only)
    if rows[0].shape[0] == 1:
        return one(*rows)[None]
    return jax.vmap(one)(*jax.tree.map(lambda a: a[:, None], rows))


def _coefficients_of_one(
    batch: SampleArrays, reward: Float[Array, " N"], own_samples_only: bool, *rows: PyTree
) -> Float[Array, " F"]:
    k, gaussian, chosen, top, size, total, centre, extra, ridge = rows
    F = num_features(gaussian)

    def step(sums: Moments, samples: Int[Array, "1 C"], real: Bool[Array, "1 C"]) -> Moments:
        n, real = samples[0], real[0]
        log_w = _log_weights(batch, n, k, own_samples_only) - top
        w = jnp.where(real, jnp.exp(log_w[:, 0]) / size, 0)
        x = jnp.where(real[:, None], batch.x[n], gaussian.mean)
        r = jnp.where(batch.zero[n], reward[n] - extra, reward[n]) - centre
        return jax.tree.map(jnp.add, sums, feature_moments(gaussian, x, w, jnp.where(real, r, 0)))

    start = tuple(jnp.zeros(shape, reward.dtype) for shape in ((F, F), (F,), (F,)))
    moments = chosen.fold(step, start, _rows_of_blocks(F))
    return ridge_regression(moments, total[0], ridge[0])


def _first_pass(
    log_weights: Float[Array, " K"], batch: SampleArrays, own_samples_only: bool
) -> tuple[Float[Array, " N"], Float[Array, " K"], Int[Array, " K"]]:
    """Log q of each sample; of each component the largest log weight, and how many samples have a weight."""
    N, K = batch.log_components.shape

    def block(carry: PyTree, first: Count | int, arrays: PyTree) -> PyTree:
        log_q, top, drawn = carry
        here = jax.nn.logsumexp(arrays[0] + log_weights, axis=1)
        log_w = _block_log_weights(arrays, own_samples_only)
        log_q = jax.lax.dynamic_update_slice_in_dim(log_q, here, first, 0)
        drawn = drawn + jnp.sum(log_w > -jnp.inf, axis=0, dtype=jnp.int32)
        return log_q, jnp.maximum(top, jnp.max(log_w, axis=0)), drawn

    dtype = batch.log_components.dtype
    start = jnp.zeros(N, dtype), jnp.full(K, -jnp.inf, dtype), jnp.zeros(K, jnp.int32)
    return fold_blocks(block, start, _arrays(batch), _rows(K), batch.count)


def _second_pass(
    gaussians: GaussianBatch,
    present: Bool[Array, " K"],
    batch: SampleArrays,
    reward: Float[Array, " N"],
    top: Float[Array, " K"],
    own_samples_only: bool,
) -> tuple[Array, Float[Array, "K 3"]]:
    """The relevant pairs, and three sums over all samples of weights w relative to the largest.

    The sums are those of w, of w where the density is positive, and of w times the reward. A pair is relevant
    if its contribution to the matrix of features is more than negligible, or NaN: the squared features of a
    sample sum to less than |y|^4 + D.
    """
    N, K = batch.log_components.shape
    D, offset = gaussians.dim, gaussians.log_normaliser()
    limit = NEGLIGIBLE * jnp.finfo(reward.dtype).eps * D

    def block(carry: PyTree, first: Count | int, arrays: PyTree) -> PyTree:
        words, sums = carry
        *arrays, zero, r = arrays
        w = jnp.exp(_block_log_weights(arrays, own_samples_only) - top)
        squared = -2 * (arrays[0] + offset)
        matters = (w != 0) & ~(w * (squared * squared + D) <= limit) & present
        words = jax.lax.dynamic_update_slice_in_dim(words, words_of(matters), first // BITS, 0)
        return words, sums + einsum("nk,nc->kc", w, reward_columns(r, zero))

    start = jnp.zeros((-(-N // BITS), K), jnp.uint32), jnp.zeros((K, 3), reward.dtype)
    arrays = (*_arrays(batch), batch.zero, reward)
    return fold_blocks(block, start, arrays, _rows(K), batch.count)


def _arrays(batch: SampleArrays) -> tuple[Array, ...]:
    return batch.log_components, batch.log_background, batch.source, batch.valid


def _block_log_weights(arrays: PyTree, own_samples_only: bool) -> Float[Array, "B K"]:
    log_components, log_background, source, valid = arrays
    if own_samples_only:
        return log_own(jnp.arange(log_components.shape[1]), source, valid, log_components.dtype)
    return log_importance(log_components, log_background, valid)


def _log_weights(
    batch: SampleArrays, n: Int[Array, " C"], k: Int[Array, "1"], own_samples_only: bool
) -> Float[Array, "C 1"]:
    """Log weights of some samples for one component."""
    if own_samples_only:
        return log_own(k, batch.source[n], batch.valid[n], batch.x.dtype)
    return log_importance(batch.log_components[n, k[0]][:, None], batch.log_background[n], batch.valid[n])


def _rows(K: int) -> int:
    return max(block_rows(4 * K) // BITS, 1) * BITS
