"""Importance weights q(x|o) / z(x) of samples shared by all components."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from natmix.kernels.sample_arrays import SampleArrays


class ImportanceWeights(eqx.Module):
    """Weights of N samples for K components, scaled so that none overflows.

    Attributes:
        values: for self-normalised weights they sum to one over the samples; for standard ones they
            are w / max(w), to be multiplied by exp(log_scale).
        log_scale: log(max(w) / n) for standard weights, zero for self-normalised ones.
        ok: False for a component without a single usable sample.
    """

    values: Float[Array, "N K"]
    log_scale: Float[Array, " K"]
    ok: Bool[Array, " K"]


def importance_weights(
    log_components: Float[Array, "N K"], batch: SampleArrays, *, self_normalised: bool
) -> ImportanceWeights:
    """W = q(x|o) / z(x), zero for invalid samples."""
    log_w = log_importance(log_components, batch.log_background, batch.valid)
    return _scaled(log_w, jnp.log(jnp.maximum(batch.count, 1).astype(log_w.dtype)), self_normalised)


def own_weights(batch: SampleArrays, *, self_normalised: bool) -> ImportanceWeights:
    """Weight one for the valid samples that a component drew in this iteration, zero for others."""
    log_w = log_own(jnp.arange(batch.log_components.shape[1]), batch.source, batch.valid, batch.x.dtype)
    n = jnp.maximum(jnp.sum(log_w == 0, axis=0), 1).astype(batch.x.dtype)
    return _scaled(log_w, jnp.log(n), self_normalised)


def log_importance(
    log_components: Float[Array, "N K"], log_background: Float[Array, " N"], valid: Bool[Array, " N"]
) -> Float[Array, "N K"]:
    """Log q(x|o) - log z(x), -inf for invalid samples."""
    return jnp.where(valid[:, None], log_components - log_background[:, None], -jnp.inf)


def log_own(
    slots: Int[Array, " K"], source: Int[Array, " N"], valid: Bool[Array, " N"], dtype: jnp.dtype
) -> Float[Array, "N K"]:
    """Zero for the valid samples that components in these slots drew in this iteration, -inf for others."""
    own = (source[:, None] == slots) & valid[:, None]
    return jnp.where(own, jnp.zeros((), dtype), -jnp.inf)


def effective_sample_size(log_w: Float[Array, " N *K"]) -> Float[Array, "*K"]:
    """n_eff = 1 / sum of squared self-normalised weights (Section 3.1); zero without samples."""
    top = jnp.max(log_w, axis=0)
    w = jnp.exp(log_w - jnp.where(jnp.isfinite(top), top, 0))
    return jnp.where(
        jnp.isfinite(top), jnp.sum(w, axis=0) ** 2 / jnp.maximum(jnp.sum(w * w, axis=0), 1e-30), 0
    )


def _scaled(log_w: Float[Array, "N K"], log_n: Array, self_normalised: bool) -> ImportanceWeights:
    top = jnp.max(log_w, axis=0)
    ok = jnp.isfinite(top)
    top = jnp.where(ok, top, 0)
    w = jnp.exp(log_w - top)
    if self_normalised:
        return ImportanceWeights(w / jnp.maximum(jnp.sum(w, axis=0), 1e-30), jnp.zeros_like(top), ok)
    return ImportanceWeights(w, top - log_n, ok)
