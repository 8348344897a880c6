"""Option P: samples from the mixture."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from natmix.array_types import Count, PRNGKey, Scalar
from natmix.kernels.importance_sums import log_sums
from natmix.kernels.importance_weights import effective_sample_size
from natmix.kernels.normal_draws import normals
from natmix.kernels.ring_buffer import count_rows
from natmix.kernels.sample_arrays import Background
from natmix.mixture import Mixture
from natmix.modules.hyperparameters import flag
from natmix.modules.sample_selectors.base import AbstractSampleSelector
from natmix.random_keys import draw_components


class FromMixture(AbstractSampleSelector):
    """Draws max(min_new_samples, desired - floor(n_eff)) samples from the mixture.

    ``desired_samples`` is the total number, as in the paper's tables; with ``per_component`` it is
    multiplied by the number of components, as in its text.
    """

    per_component: bool = flag(False, "multiply desired_samples by the number of components")

    samples_factor: ClassVar[int] = 4
    letter: ClassVar[str] = "P"
    title: ClassVar[str] = "Mixture-Based"

    @property
    def draws_per_slot(self) -> None:
        return None

    def max_draws(self, slots: int) -> int:
        return max(self.desired_samples * (slots if self.per_component else 1), self.min_new_samples)

    def next_draws_at_most(self, components: Count) -> Count:
        wanted = self._desired * (components if self.per_component else 1)
        return self._at_least_the_fewest(jnp.asarray(wanted))

    def effective_samples(
        self, log_components: Float[Array, "R K"], old: Background, mixture: Mixture
    ) -> Scalar:
        log_q = log_sums(log_components, mixture.log_weights)
        return effective_sample_size(jnp.where(old.valid, log_q - old.log_background, -jnp.inf))

    def draw(
        self, key: PRNGKey, mixture: Mixture, ids: Int[Array, " K"], n_eff: Scalar
    ) -> tuple[Float[Array, "N D"], Int[Array, " N"], Int[Array, " K"]]:
        n, D = self.max_draws(mixture.num_components), mixture.dim
        K = jnp.sum(mixture.log_weights > -jnp.inf, dtype=jnp.int32) if self.per_component else 1
        missing = self._desired * K - jnp.floor(n_eff).astype(jnp.int32)
        wanted = jnp.arange(n) < self._at_least_the_fewest(missing)
        # One key per sample: a larger capacity does not change the first samples.
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(n))
        rows = jax.vmap(lambda k: draw_components(k, mixture.log_weights, 1)[0])(keys)
        noise = normals(jax.vmap(lambda k: jax.random.fold_in(k, 1))(keys), (D,), mixture.dtype)
        number = count_rows(rows, wanted, mixture.num_components)
        return mixture.components.colour_rows(noise, rows), rows, number
