"""A model as saved in a file: names, data, and its variables at the saved samples."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Array, Float

from natmix.array_types import PRNGKey, Scalar
from natmix.models.base import AbstractModel, Points, PriorRegion


class SavedModel(AbstractModel):
    """A model without its code: it knows its variables at the saved samples only.

    Args:
        kind: of the model, such as "NumpyroModel".
        coordinates: their names.
        x: the saved samples.
        variables: the model's own variables there, samples first.
        observed: its data.
        dims: names of the variables' axes.
        coords: labels along them.
        latent: names of the latent variables.
    """

    def __init__(
        self,
        kind: str,
        coordinates: Sequence[str],
        x: Float[np.ndarray, "N D"],
        variables: Any,
        observed: Mapping[str, np.ndarray],
        dims: Mapping[str, Sequence[str]],
        coords: Mapping[str, Any],
        latent: Sequence[str] = (),
    ) -> None:
        self.kind = kind
        self.coordinates = tuple(coordinates)
        self.dim = len(self.coordinates)
        self.first_index = int(kind == "StanModel")
        self.latent = tuple(latent)
        self.observed = dict(observed)
        self.dims = {name: tuple(axes) for name, axes in dims.items()}
        self.coords = dict(coords)
        self._x, self._variables = x, variables

    def log_density(self, x: Float[Array, " D"]) -> Scalar:
        self._needs_model()

    def constrain(self, x: Points) -> Any:
        """The variables at the saved samples."""
        if np.shape(x) != self._x.shape or not np.array_equal(np.asarray(x), self._x):
            self._needs_model()
        return self._variables

    def unconstrain(self, values: Any) -> Points:
        self._needs_model()

    def start(self, key: PRNGKey) -> PriorRegion | None:
        return None

    def predict(
        self, seed: int, samples: dict[str, np.ndarray], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, np.ndarray]:
        self._needs_model()

    def log_likelihood(self, x: Points) -> dict[str, np.ndarray]:
        self._needs_model()

    def _needs_model(self) -> NoReturn:
        raise ValueError(
            f"This needs the {self.kind}, which a file does not hold: load it with its model, "
            "natmix.Result.load(path, model=model). Without it to_arviz() has the saved samples, and "
            "result.mixture.sample(n, key=seed) gives unconstrained ones."
        )
