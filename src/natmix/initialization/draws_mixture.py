"""The initial mixture of ``fit(init_draws=...)``."""

import hashlib
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from natmix.gaussians import AbstractGaussians
from natmix.initialization.draw_clusters import cluster_draws
from natmix.mixture import Mixture
from natmix.models import AbstractModel
from natmix.models.draws import draw_vectors
from natmix.targets import AbstractTarget
from natmix.targets.base import check_dim

MAX_COMPONENTS = 64
"""If the user does not say how many."""
_FEWEST_STEPS = 10
"""Of the float type, within a standard deviation."""


class InitialDraws(NamedTuple):
    """Draws to start from.

    Attributes:
        x: in the coordinates of the fit.
        coordinates: their names.
    """

    x: Float[np.ndarray, "N D"]
    coordinates: tuple[str, ...]

    @classmethod
    def checked(cls, draws: Any, model: AbstractModel | None, target: Any, dim: int | None) -> "InitialDraws":
        """The draws that the user gives.

        Raises:
            ValueError: they do not belong to the target, or have no spread.
        """
        if model is None:
            dim = (
                target.dim if isinstance(target, AbstractTarget) else None if dim is None else check_dim(dim)
            )
        else:
            dim = model.dim
        try:
            x = draw_vectors(draws, model, dim)
        except ValueError as error:
            raise ValueError(f"init_draws cannot be used. {error}") from error
        x = x.reshape(-1, x.shape[-1])
        names = model.coordinates if model is not None else tuple(f"x[{d}]" for d in range(x.shape[1]))
        if len(x) < 2:
            raise ValueError(
                f"init_draws must hold at least 2 draws, got {len(x)}; init_mean takes a single point."
            )
        same = np.ptp(x, axis=0) == 0
        if same.any():
            d = int(np.argmax(same))
            raise ValueError(
                f"All init_draws have the same {names[d]} ({x[0, d]:.4g}): there is no width to start with."
            )
        return cls(x, names)

    def mixture(self, most: int | None, dtype: Any, family: type[AbstractGaussians]) -> Mixture:
        """A mixture for them, of at most so many components."""
        resolution = _FEWEST_STEPS * float(jnp.finfo(dtype).eps) * np.abs(self.x).max(axis=0)
        narrow = self.x.std(axis=0) <= np.maximum(resolution, float(jnp.finfo(dtype).tiny))
        if narrow.any():
            d = int(np.argmax(narrow))
            raise ValueError(
                f"init_draws vary too little for {jnp.dtype(dtype)}: {self.coordinates[d]} has the standard "
                f"deviation {self.x[:, d].std():.2g} at {self.x[0, d]:.4g}."
            )
        found = cluster_draws(self.x, MAX_COMPONENTS if most is None else most)
        parts = family.from_covariance(*(jnp.asarray(a, dtype) for a in (found.means, found.covariances)))
        return Mixture(jnp.asarray(np.log(found.weights), dtype), parts)

    def settings(self) -> dict[str, Any]:
        """How many there are, and what they can be recognised by."""
        numbers = np.ascontiguousarray(self.x, "<f8").tobytes()
        return {"draws": len(self.x), "sha256": hashlib.sha256(numbers).hexdigest()}
