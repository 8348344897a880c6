"""A result for other libraries: ArviZ and pandas; imported only when asked for."""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Float

from natmix._inference_data import inference_data
from natmix._whole import whole
from natmix.diagnostics import pareto_smooth
from natmix.models import AbstractModel
from natmix.models._base import coordinate_names
from natmix.models.pytree import leaf_name

if TYPE_CHECKING:
    import pandas

    from natmix._result import Result


def variables(result: "Result", x: Float[np.ndarray, "N D"]) -> dict[str, np.ndarray]:
    """Samples by name: the model's variables, or ``x``."""
    if result.model is None:
        return {"x": np.asarray(x)}
    tree = result.model.constrain(jnp.asarray(x))
    return {leaf_name(path) or "x": np.asarray(v) for path, v in jax.tree_util.tree_leaves_with_path(tree)}


def to_arviz(result: "Result") -> Any:
    """`Result.to_arviz`."""
    draws = result.draws
    if draws is None or len(draws) == 0:
        raise ValueError("The result has no samples with known log density: fit with elbo_samples=2000.")
    log_weights = pareto_smooth(draws.log_ratio).log_weights
    total = scipy.special.logsumexp(log_weights[np.isfinite(log_weights)])
    stats = {
        "lp": draws.log_target[None],
        "log_mixture": draws.log_mixture[None],
        "log_weight": (log_weights - total)[None],
    }
    groups: dict[str, Any] = {
        "posterior": {_storable(name): v[None] for name, v in variables(result, draws.x).items()},
        "sample_stats": stats,
    }
    model = result.model
    if model is None:
        return inference_data(groups)
    if model.observed:
        groups["observed_data"] = {_storable(name): v for name, v in model.observed.items()}
    return inference_data(groups, *_axes(model, [name for group in groups.values() for name in group]))


def _storable(name: str) -> str:
    """A slash would be a path to a DataTree, and to a netCDF file."""
    return name.replace("/", ".")


def _axes(model: AbstractModel, names: list[str]) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """The names of axes, and labels along them; an axis must not have a variable's name."""

    def axis(name: str) -> str:
        return f"{_storable(name)}_dim" if _storable(name) in names else _storable(name)

    dims = {_storable(name): [axis(a) for a in axes] for name, axes in model.dims.items()}
    return dims, {axis(name): labels for name, labels in model.coords.items()}


def to_pandas(result: "Result", n: int, seed: int) -> "pandas.DataFrame":
    """`Result.to_pandas`."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("This needs pandas: pip install natmix[arviz].") from error
    n = whole(n, "n", 2)
    rows = {}
    for name, value in variables(result, np.asarray(result.mixture.sample(seed, n))).items():
        flat = value.reshape(n, -1).astype(float)
        for label, column in zip(coordinate_names(name, value.shape[1:]), flat.T, strict=True):
            low, middle, high = np.quantile(column, [0.05, 0.5, 0.95])
            rows[label] = (column.mean(), column.std(ddof=1), low, middle, high)
    return pandas.DataFrame.from_dict(rows, orient="index", columns=["mean", "sd", "5%", "50%", "95%"])
