"""Sums of N x K importance weights that are never held all at once.

Forms:

    native      by natmix's compiled kernels, in one pass over the log densities.
    blocks      for some samples at a time. On a CPU it takes longer to write N x K numbers to memory than to
                compute them, so the weights q(x|o) / z(x) are recomputed for every sum.
    whole       all samples are one block, and the compiler shares the weights between the sums.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Float

from natmix.array_types import Count, PyTree
from natmix.kernels import native
from natmix.kernels.blocks import block_rows, fold_blocks, map_blocks
from natmix.kernels.forms import PlanRows, first_applicable, otherwise
from natmix.kernels.importance_weights import log_importance
from natmix.kernels.linalg import einsum
from natmix.kernels.plan import Plan, current
from natmix.kernels.sample_arrays import Weighting

Form = Literal["native", "blocks", "whole"]


FORMS: PlanRows[Form] = (
    ("native", lambda plan: plan.native),
    ("blocks", lambda plan: plan.on_one_cpu),
    ("whole", otherwise),
)


def choose(plan: Plan) -> Form:
    """By the device alone: the native kernels are faster for every size."""
    return first_applicable(FORMS, plan)


def log_sums(
    log_components: Float[Array, "N K"],
    log_weights: Float[Array, " K"],
    count: Count | None = None,
    form: Form | None = None,
) -> Float[Array, " N"]:
    """Log sum_k exp(log_components + log_weights) of each sample; undefined beyond ``count``."""
    form = form or choose(current())
    if form == "native":
        return native.weighted_logsumexp(log_components, log_weights, count)
    rows = _samples_per_block(form, log_components)
    block = Partial(_log_sums, log_weights)
    if rows >= log_components.shape[0]:
        return block(log_components)
    return map_blocks(block, (log_components,), rows, count)


def largest_log_weights(
    log_components: Float[Array, "N K"], batch: Weighting, form: Form | None = None
) -> Float[Array, " K"]:
    """The largest log weight of each component, -inf if it has none."""
    form = form or choose(current())
    if form == "native":
        return native.largest_log_weights(log_components, batch.log_background, batch.valid, batch.count)

    def block(top: Array, _: Count | int, arrays: PyTree) -> Array:
        return jnp.maximum(top, jnp.max(log_importance(*arrays), axis=0))

    start = jnp.full(log_components.shape[1], -jnp.inf, log_components.dtype)
    rows = _samples_per_block(form, log_components)
    return fold_blocks(block, start, _arrays(log_components, batch), rows, batch.count)


def weighted_sums(
    log_components: Float[Array, "N K"],
    batch: Weighting,
    top: Float[Array, " K"],
    columns: Float[Array, "N C"],
    form: Form | None = None,
) -> Float[Array, "K C"]:
    """sum_n w columns_n with w relative to the largest."""
    form = form or choose(current())
    if form == "native":
        return _native_sums(log_components, batch, top, columns)[0]

    def block(sums: Array, _: Count | int, arrays: PyTree) -> Array:
        *arrays, columns = arrays
        return sums + einsum("nk,nc->kc", relative_weights(top, *arrays), columns)

    start = jnp.zeros((top.shape[0], columns.shape[1]), columns.dtype)
    arrays = (*_arrays(log_components, batch), columns)
    return fold_blocks(block, start, arrays, _samples_per_block(form, log_components), batch.count)


def sample_sums(
    log_components: Float[Array, "N K"],
    batch: Weighting,
    top: Float[Array, " K"],
    factors: Float[Array, " K"],
    form: Form | None = None,
) -> Float[Array, " N"]:
    """sum_k w factors_k with w relative to the largest; undefined beyond the real samples."""
    form = form or choose(current())
    if form == "native":
        background, valid = batch.log_background, batch.valid
        return native.sample_sums(log_components, background, valid, top, factors, batch.count)
    rows = _samples_per_block(form, log_components)
    block = Partial(_sample_sums, top, factors)
    if rows >= log_components.shape[0]:
        return block(*_arrays(log_components, batch))
    return map_blocks(block, _arrays(log_components, batch), rows, batch.count)


def effective_samples(
    log_components: Float[Array, "N K"], batch: Weighting, form: Form | None = None
) -> Float[Array, " K"]:
    """n_eff = (sum w)^2 / sum w^2 (Section 3.1); zero without samples."""
    form = form or choose(current())
    largest = largest_log_weights(log_components, batch, form)
    top = jnp.where(jnp.isfinite(largest), largest, 0)
    total, squares = _totals(log_components, batch, top, form)
    return jnp.where(jnp.isfinite(largest), total**2 / jnp.maximum(squares, 1e-30), 0)


def _totals(
    log_components: Float[Array, "N K"], batch: Weighting, top: Float[Array, " K"], form: Form
) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """sum_n w and sum_n w^2."""
    if form == "native":
        sums, squares = _native_sums(log_components, batch, top, jnp.ones_like(log_components[:, :1]))
        return sums[:, 0], squares

    def block(sums: tuple[Array, Array], _: Count | int, arrays: PyTree) -> tuple[Array, Array]:
        w = relative_weights(top, *arrays)
        return sums[0] + jnp.sum(w, axis=0), sums[1] + jnp.sum(w * w, axis=0)

    start = jnp.zeros_like(top), jnp.zeros_like(top)
    arrays = _arrays(log_components, batch)
    return fold_blocks(block, start, arrays, _samples_per_block(form, log_components), batch.count)


def _native_sums(
    log_components: Float[Array, "N K"],
    batch: Weighting,
    top: Float[Array, " K"],
    columns: Float[Array, "N C"],
) -> tuple[Float[Array, "K C"], Float[Array, " K"]]:
    background, valid = batch.log_background, batch.valid
    return native.weighted_sums(log_components, background, valid, top, columns, batch.count)


def _log_sums(log_weights: Array, log_components: Float[Array, "B K"]) -> Float[Array, " B"]:
    return jax.nn.logsumexp(log_components + log_weights, axis=1)


def _sample_sums(top: Array, factors: Array, *arrays: Array) -> Float[Array, " B"]:
    return einsum("nk,k->n", relative_weights(top, *arrays), factors)


def relative_weights(top: Float[Array, " K"], *arrays: Array) -> Float[Array, "B K"]:
    """W relative to the largest, from log densities, log background and validity of some samples."""
    return jnp.exp(log_importance(*arrays) - top)


def _arrays(log_components: Float[Array, "N K"], batch: Weighting) -> tuple[Array, Array, Array]:
    return log_components, batch.log_background, batch.valid


def _samples_per_block(form: Form, log_components: Float[Array, "N K"]) -> int:
    N, K = log_components.shape
    return N if form == "whole" else block_rows(4 * K)
