"""Sums of the weights of all samples, for the forms of MORE's regressions that skip pairs."""

from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class PairSums(eqx.Module):
    """Sums over the samples of the weights w / c: for self-normalised ones c is their sum, else the largest.

    The attributes `inside` and `total` are each component's weight where the density is positive, and its
    whole weight; `log_scale` and `ok` are those of `natmix.kernels.importance_weights.ImportanceWeights`.
    """

    reward: Float[Array, " N"]
    top: Float[Array, " K"]
    """The largest log weight, zero if it is not finite."""
    size: Float[Array, " K"]
    """c, relative to the largest weight."""
    log_scale: Float[Array, " K"]
    ok: Bool[Array, " K"]
    inside: Float[Array, " K"]
    total: Float[Array, " K"]
    rewards: Float[Array, " K"]
    """The weighted sum of rewards."""

    @classmethod
    def of_sums(
        cls,
        reward: Float[Array, " N"],
        top: Float[Array, " K"],
        ok: Bool[Array, " K"],
        sums: Float[Array, "K 3"],
        n: Int[Array, "*K"],
        self_normalised: bool,
        **fields: Any,
    ) -> Self:
        """From sums of `reward_columns` with weights relative to the largest; ``n`` samples have a weight."""
        if self_normalised:
            size, log_scale = jnp.maximum(sums[:, 0], 1e-30), jnp.zeros_like(top)
        else:
            size, log_scale = jnp.ones_like(top), top - jnp.log(jnp.maximum(n, 1).astype(top.dtype))
        total, inside, rewards = (sums / size[:, None]).T
        return cls(reward, top, size, log_scale, ok, inside, total, rewards, **fields)

    def centred(self, extra: Float[Array, " K"]) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
        """The total weight, not zero, and the mean reward, lowered by ``extra`` where the density is zero."""
        total = jnp.maximum(self.total, jnp.finfo(self.total.dtype).tiny)
        return total, (self.rewards - extra * (self.total - self.inside)) / total


def finite_top(largest: Float[Array, " K"]) -> tuple[Float[Array, " K"], Bool[Array, " K"]]:
    """The largest log weights, 0 where they are not finite, and where they are."""
    ok = jnp.isfinite(largest)
    return jnp.where(ok, largest, 0), ok


def reward_columns(reward: Float[Array, " B"], zero: Bool[Array, " B"]) -> Float[Array, "B 3"]:
    """Columns to be weighted and summed: 1, 1 where the density is positive (else 0), and the reward."""
    positive = jnp.where(zero, 0, 1).astype(reward.dtype)
    return jnp.stack([jnp.ones_like(reward), positive, reward], axis=1)
