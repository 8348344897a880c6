"""A model as saved in a file: names, data, and its variables at the saved samples."""

from typing import Any, NoReturn

import numpy as np
from jaxtyping import Array, Float

from natmix.array_types import PRNGKey, Scalar
from natmix.models.base import AbstractModel, ModelFile, Points, PriorRegion
from natmix.models.structure import decoded


class SavedModel(AbstractModel):
    """A model without its code: it knows its variables at the saved samples only.

    Args:
        file: what `AbstractModel.to_file` kept.
        x: the saved samples.
    """

    def __init__(self, file: ModelFile, x: Float[np.ndarray, "N D"]) -> None:
        header, arrays = file
        self._kind = header["kind"]
        self.coordinates = tuple(header["coordinates"])
        self.dim = len(self.coordinates)
        self.first_index = header["first_index"]
        self.latent = tuple(header["latent"])
        self.variables = tuple(header.get("variables", ()))
        self.observed = dict(zip(header["observed"], arrays["observed"], strict=True))
        self.dims = {name: tuple(axes) for name, axes in header["dims"].items()}
        self.coords = dict(header["coords"])
        leaves = arrays["variables"]
        plain = header["structure"] is None  # classes of the user's, which only code can make again
        self._x = x
        self._variables = (
            dict(zip(header["names"], leaves, strict=True)) if plain else decoded(header["structure"], leaves)
        )

    @property
    def kind(self) -> str:
        return self._kind

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
