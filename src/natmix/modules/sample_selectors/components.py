"""Option M: samples from every component."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from natmix.array_types import Count, PRNGKey
from natmix.kernels.importance_sums import effective_samples
from natmix.kernels.normal_draws import component_draws
from natmix.kernels.sample_arrays import Background
from natmix.mixture import Mixture
from natmix.modules.sample_selectors.base import AbstractSampleSelector


class FromComponents(AbstractSampleSelector):
    """Draws max(min_new_samples, desired_samples - floor(n_eff(o))) samples from every component o."""

    letter: ClassVar[str] = "M"
    title: ClassVar[str] = "Component-Based"

    @property
    def draws_per_slot(self) -> int:
        return self.max_draws(1)

    def max_draws(self, slots: int) -> int:
        return max(self.desired_samples, self.min_new_samples) * slots

    def next_draws_at_most(self, components: Count) -> Count:
        if self.numbers is None:
            return self.max_draws(1) * components
        return self._at_least_the_fewest(self.numbers.desired) * components

    def effective_samples(
        self, log_components: Float[Array, "R K"], old: Background, mixture: Mixture
    ) -> Float[Array, " K"]:
        return effective_samples(log_components, old)

    def draw(
        self, key: PRNGKey, mixture: Mixture, ids: Int[Array, " K"], n_eff: Float[Array, " K"]
    ) -> tuple[Float[Array, "N D"], Int[Array, " N"], Int[Array, " K"]]:
        missing = self._desired - jnp.floor(n_eff).astype(jnp.int32)
        exists = mixture.log_weights > -jnp.inf
        number = jnp.where(exists, self._at_least_the_fewest(missing), 0)
        # The noise depends on the component's id, not on its slot or on the capacity.
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(ids)
        x, source = component_draws(mixture.components, keys, number, exists, self.max_draws(1))
        return x, source, number
