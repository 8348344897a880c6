"""The variables of a result by name, and as a pandas table."""

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from natmix.checks import as_int
from natmix.models.base import coordinate_names
from natmix.models.scalar_maps import values_by_name
from natmix.text.extras import needs

if TYPE_CHECKING:
    import pandas

    from natmix.result.result import Result

_SAMPLES = 1000
"""Of a result that has kept none."""


def variables(result: "Result", x: Float[np.ndarray, "N D"]) -> dict[str, np.ndarray]:
    """Samples by name: the model's variables in its order, the latent ones first; or ``x``."""
    return {"x": np.asarray(x)} if result.model is None else values_by_name(result.model, x)


def own_draws(given: Any) -> Any:
    """Draws as `natmix.fit` takes them; of a result, its samples in the model's own variables."""
    from natmix.result.result import Result

    if not isinstance(given, Result):
        return given
    x = given.mixture.sample(_SAMPLES, key=0) if given.draws is None else given.draws.x
    return x if given.model is None else given.model.constrain(jnp.asarray(x))


def to_pandas(result: "Result", n: int, seed: int) -> "pandas.DataFrame":
    """`Result.to_pandas`."""
    with needs("pandas", "arviz", "to_pandas()"):
        import pandas
    n = as_int(n, "n", 2)
    rows = {}
    labels = coordinate_names if result.model is None else result.model.labels
    found = variables(result, np.asarray(result.mixture.sample(n, key=seed)))
    for name, value in found.items():
        flat = value.reshape(n, -1).astype(float)
        for label, column in zip(labels(name, value.shape[1:]), flat.T, strict=True):
            low, middle, high = np.quantile(column, [0.05, 0.5, 0.95])
            rows[label] = (column.mean(), column.std(ddof=1), low, middle, high)
    return pandas.DataFrame.from_dict(rows, orient="index", columns=["mean", "sd", "5%", "50%", "95%"])
