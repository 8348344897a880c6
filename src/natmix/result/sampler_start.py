"""Initial points and mass matrix for MCMC."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from natmix.checks import as_int
from natmix.models import AbstractModel

if TYPE_CHECKING:
    from natmix.result.result import Result


@dataclasses.dataclass(frozen=True)
class SamplerStart:
    """Points and mass matrix for NUTS, in unconstrained coordinates.

    Attributes:
        positions: one point per chain, drawn from the mixture and thus spread over its modes.
        inverse_mass_matrix: the mixture's covariance, as NUTS in BlackJAX and NumPyro takes it. It is too
            wide if there are several distant modes; use ``within`` then.
        within: the weighted mean of the components' covariances.
    """

    positions: Float[np.ndarray, "C D"]
    inverse_mass_matrix: Float[np.ndarray, "D D"]
    within: Float[np.ndarray, "D D"]
    _model: AbstractModel | None = dataclasses.field(default=None, repr=False)

    @property
    def by_name(self) -> dict[str, np.ndarray]:
        """The positions by variable, unconstrained, chains first: ``init_params`` of NumPyro's MCMC.

        For a single chain NumPyro expects arrays without the axis of chains: ``{k: v[0] for k, v in ...}``.
        """
        return {"x": self.positions} if self._model is None else self._model.free(self.positions)

    @property
    def initvals(self) -> list[Any]:
        """Each chain's latent variables, constrained: ``initvals`` of `pymc.sample`.

        For a function of a pytree, each chain's position.
        """
        if self._model is None:
            return list(self.positions)
        tree = self._model.constrain(jnp.asarray(self.positions))
        if self._model.latent:
            tree = {name: tree[name] for name in self._model.latent}
        return [jax.tree.map(lambda leaf, i=i: leaf[i], tree) for i in range(len(self.positions))]


def sampler_start(result: "Result", chains: int, seed: int) -> SamplerStart:
    """`Result.sampler_start`."""
    chains = as_int(chains, "chains")
    mixture = result.mixture
    weights = np.asarray(mixture.weights, float)
    within = np.einsum("k,kij->ij", weights / weights.sum(), np.asarray(mixture.covariances, float))
    positions = np.asarray(mixture.sample(chains, key=seed), float)
    return SamplerStart(positions, np.asarray(mixture.covariance(), float), within, result.model)
