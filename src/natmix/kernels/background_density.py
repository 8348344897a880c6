"""The background log density of samples that are reused: under the Gaussians of H generations.

Forms: native, which skips Gaussians whose density at a sample is negligible beside the one it was drawn with;
and blocks of samples, with log densities under all Gaussians.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Float

from natmix.array_types import Count
from natmix.kernels import native
from natmix.kernels.blocks import block_rows, map_blocks
from natmix.kernels.forms import GaussianRows, first_applicable, otherwise
from natmix.kernels.gaussian_batch import GaussianBatch, triangular
from natmix.kernels.log_densities import log_prob, native_applies
from natmix.kernels.plan import Plan, current

Form = Literal["native", "blocks"]

_BLOCKS = 16
"""New samples are handled in so many blocks, because usually only a few of them are real."""


FORMS: GaussianRows[Form] = (("native", native_applies), ("blocks", otherwise))


def choose(plan: Plan, gaussians: GaussianBatch, samples: int) -> Form:
    """The native kernel wherever it applies."""
    return first_applicable(FORMS, plan, gaussians, samples)


def background_log_density(
    gaussians: GaussianBatch,
    x: Float[Array, "N D"],
    used: Float[Array, " HK"],
    counts: Float[Array, " HK"],
    log_own: Float[Array, " N"],
    generations: int,
    count: Count,
    form: Form | None = None,
) -> tuple[Float[Array, " N"], Float[Array, "N H"]]:
    """Log sum_g used_g N(x; g) over all Gaussians, and log sum_g counts_g N(x; g) over each generation.

    ``log_own`` are the log densities of the samples under the Gaussians that they were drawn from.
    """
    form = form or choose(current(), gaussians, x.shape[0])
    if form == "native":
        m, _, W = triangular(gaussians)
        normaliser = gaussians.log_normaliser()
        return native.background_log_density(x, m, W, normaliser, used, counts, log_own, generations, count)
    rows = max(64, min(block_rows(4 * used.shape[0]), x.shape[0] // _BLOCKS))
    return map_blocks(Partial(_sums, gaussians, used, counts, generations), (x,), rows, count)


def _sums(
    gaussians: GaussianBatch,
    used: Float[Array, " HK"],
    counts: Float[Array, " HK"],
    generations: int,
    x: Float[Array, "B D"],
) -> tuple[Float[Array, " B"], Float[Array, "B H"]]:
    log_densities = log_prob(gaussians, x, None, (used > 0) | (counts > 0))
    mass = jax.nn.logsumexp(log_densities + jnp.log(used), axis=1)
    each = (log_densities + jnp.log(counts)).reshape(x.shape[0], generations, -1)
    return mass, jax.nn.logsumexp(each, axis=2)
