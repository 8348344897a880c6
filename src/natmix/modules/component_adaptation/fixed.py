"""Option E: the number of components stays the same."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from natmix.array_types import Count, Flag, PRNGKey, Scalar
from natmix.mixture import Mixture
from natmix.modules.component_adaptation.base import AbstractComponentAdaptation, Change, EvaluatedSamples
from natmix.modules.component_stepsizes.base import Rewards


class FixedComponents(AbstractComponentAdaptation):
    """Neither adds nor deletes components."""

    letter: ClassVar[str] = "E"
    title: ClassVar[str] = "Fixed"

    def init(self, mixture: Mixture, prior: Mixture) -> None:
        return None

    def most_components(self, start: int) -> int:
        return start

    def num_candidates(self) -> int:
        return 0

    def wants_to_add(self, iteration: Count, mixture: Mixture) -> Flag:
        return jnp.zeros((), bool)

    def candidates(self, key: PRNGKey, prior: Mixture) -> Float[Array, "C D"]:
        return jnp.zeros((0, prior.dim), prior.dtype)

    def adapt(
        self,
        state: None,
        key: PRNGKey,
        iteration: Count,
        mixture: Mixture,
        rewards: Rewards,
        samples: EvaluatedSamples,
        candidates: EvaluatedSamples,
        prior: Mixture,
        temperature: Scalar,
    ) -> tuple[None, Change]:
        dtype = mixture.dtype
        none = jnp.zeros(mixture.num_components, bool)
        nowhere = jnp.full((), -jnp.inf, dtype)
        here = jnp.zeros(mixture.dim, dtype)
        return None, Change(none, jnp.zeros((), bool), here, jnp.ones((), dtype), nowhere, nowhere)
