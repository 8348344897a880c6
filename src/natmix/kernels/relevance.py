"""Densities of an iteration's samples, without those that matter nothing."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from natmix.array_types import Count
from natmix.mixture import Mixture


def relevant_log_prob(
    mixture: Mixture,
    x: Float[Array, "N D"],
    count: Count | None,
    near: Int[Array, " N"],
    *,
    log_background: Float[Array, " N"] | None = None,
    log_drawn: Float[Array, " K"] | None = None,
) -> Float[Array, "N K"]:
    """Log q(x|o) of samples under components, or -inf where that changes no digit of an iteration.

    There it changes no digit where it is far below the background z, which weights are relative to, and far
    below the mixture's density: q(o') q(x|o') is a lower bound of the latter for any component o', and
    n(o')/n q(x|o') of the former. What weights multiply is taken to differ by less than 1e12 (1e21 in double
    precision). A component whose samples all lack a usable target is left without weights, where otherwise
    samples far away would have them.

    Args:
        mixture: the components and their weights.
        x: samples.
        count: how many are real.
        near: a component that is probably near, for each sample.
        log_background: log z, if it is known; NaN for samples that are not in use.
        log_drawn: otherwise, log n(o)/n, each component's share of the samples.
    """
    share = mixture.log_weights
    if log_drawn is not None:
        share = jnp.minimum(share, log_drawn)
    components = mixture.components
    return components.relevant_log_prob(x, count, mixture.log_weights, share, near, log_background)
