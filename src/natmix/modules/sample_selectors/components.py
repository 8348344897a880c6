"""Option M: samples from every component."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int, Key

from natmix.array_types import Count, PRNGKey
from natmix.gaussians import AbstractGaussians, FullGaussians
from natmix.kernels import native
from natmix.kernels.blocks import map_components, rows_at_once
from natmix.kernels.importance_sums import Background, effective_samples
from natmix.kernels.normal_draws import normals, usual
from natmix.kernels.ring_buffer import leading
from natmix.kernels.sharding import current, everywhere
from natmix.mixture import Mixture
from natmix.modules.sample_selectors.base import AbstractSampleSelector

_ELEMENTS = 2**15
"""Numbers to draw at once on a CPU: enough to keep it busy, few enough that absent components cost little."""


class FromComponents(AbstractSampleSelector):
    """Draws max(min_new_samples, desired_samples - floor(n_eff(o))) samples from every component o."""

    letter: ClassVar[str] = "M"
    title: ClassVar[str] = "Component-Based"

    @property
    def draws_per_row(self) -> int:
        return self.max_draws(1)

    def max_draws(self, rows: int) -> int:
        return max(self.desired_samples, self.min_new_samples) * rows

    def next_draws_at_most(self, components: Count) -> Count:
        return self.max_draws(1) * components

    def effective_samples(
        self, log_components: Float[Array, "R K"], old: Background, mixture: Mixture
    ) -> Float[Array, " K"]:
        return effective_samples(log_components, old)

    def draw(
        self, key: PRNGKey, mixture: Mixture, ids: Int[Array, " K"], n_eff: Float[Array, " K"]
    ) -> tuple[Float[Array, "N D"], Int[Array, " N"], Int[Array, " K"]]:
        n, K, D = self.max_draws(1), mixture.num_components, mixture.dim
        missing = self.desired_samples - jnp.floor(n_eff).astype(jnp.int32)
        exists = mixture.log_weights > -jnp.inf
        number = jnp.where(exists, jnp.maximum(missing, self.min_new_samples), 0)
        # Noise depends on the component's identity, not on its row or on padding.
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(ids)
        g = mixture.components
        if isinstance(g, FullGaussians) and native.used() and g.dtype == np.float32 and usual(keys):
            x, source = native.draws(jax.random.key_data(keys), number, g.mean, g.scale_tril, K * n)
            return x, source, number
        rows = Partial(_draws, mixture.components, n)
        if current() is None:
            at_once = rows_at_once(n * D, max(1, _ELEMENTS // (n * D)))
            x = map_components(rows, (jnp.arange(K), keys), exists, at_once)
        else:
            x = rows(jnp.arange(K), keys)
        source, place = leading(everywhere(number), n)
        return everywhere(x.reshape(K * n, D))[place], source, number


def _draws(
    gaussians: AbstractGaussians, n: int, rows: Int[Array, " B"], keys: Key[Array, " B"]
) -> Float[Array, "B n D"]:
    """``n`` samples of each of these components."""
    return gaussians.take(rows).colour(normals(keys, (n, gaussians.dim), gaussians.dtype))
