"""A result for ArviZ."""

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from jaxtyping import Float, Int, Shaped

from natmix.diagnostics import pareto_smooth
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.models import AbstractModel
from natmix.result.export import latent_first, variables
from natmix.result.inference_data import inference_data, joined
from natmix.result.resampling import resample_indices, warn_if_unreliable

if TYPE_CHECKING:
    from natmix.result.result import Result

_MAX_CHAINS = 4


def to_arviz(result: "Result", predictive: bool, log_likelihood: bool, corrected: bool, seed: int) -> Any:
    """`Result.to_arviz`."""
    draws = result.draws
    if draws is None or len(draws) == 0:
        raise ValueError(
            "The result has no samples with known log density: fit with elbo_samples=2000, for example."
        )
    rows = _corrected(draws, seed) if corrected else np.arange(len(draws))
    everything = latent_first(result, variables(result, draws.x))
    samples = {name: value[rows] for name, value in everything.items()}
    stats = {"lp": draws.log_target[rows], "log_mixture": draws.log_mixture[rows]}
    if not corrected:
        stats["log_weight"] = _log_weights(draws)
    groups: dict[str, Any] = {"posterior": samples, "sample_stats": stats}
    model = result.model
    for what, wanted in (("predictive", predictive), ("log_likelihood", log_likelihood)):
        if wanted and model is None:
            raise ValueError(f"{what}=True needs a NumPyro or PyMC model, which can draw data.")
    if model is not None and predictive:
        groups["posterior_predictive"] = model.predict(seed, samples, (), {})
    groups = {
        group: {_storable(k): in_chains(v) for k, v in values.items()} for group, values in groups.items()
    }
    if model is None:
        return inference_data(groups)
    for group, values in (("observed_data", model.observed), ("constant_data", model.constant)):
        if values:
            groups[group] = {_storable(name): value for name, value in values.items()}
    dims, coords = _axes(model, [name for group in groups.values() for name in group])
    data = inference_data(groups, dims, coords)
    if log_likelihood:
        found = model.log_likelihood(draws.x[rows])
        likelihood = {_storable(name): in_chains(value) for name, value in found.items()}
        # One number for a whole vector or matrix that is observed: its axes come last.
        batch = {name: dims[name][: v.ndim - 2] for name, v in likelihood.items() if name in dims}
        data = joined(data, inference_data({"log_likelihood": likelihood}, batch, coords))
    return data


def in_chains(value: Shaped[np.ndarray, "N ..."]) -> Shaped[np.ndarray, "C M ..."]:
    """Independent draws as chains of equal length: four, or three, two or one if not divisible by more."""
    chains = next(c for c in range(_MAX_CHAINS, 0, -1) if len(value) % c == 0)
    return np.reshape(value, (chains, -1, *np.shape(value)[1:]))


def _log_weights(draws: EvaluatedDraws) -> Float[np.ndarray, " N"]:
    log_weights = pareto_smooth(draws.log_ratio).log_weights
    return log_weights - scipy.special.logsumexp(log_weights[np.isfinite(log_weights)])


def _corrected(draws: EvaluatedDraws, seed: int) -> Int[np.ndarray, " N"]:
    """The same number of draws, resampled by their weights."""
    usable = np.flatnonzero(np.isfinite(draws.log_target))
    if not usable.size:
        raise ValueError("No sample of the mixture has a positive, finite density: it cannot be corrected.")
    smoothed = pareto_smooth(draws.log_ratio[usable])
    warn_if_unreliable(smoothed, usable.size, stacklevel=5)
    return usable[resample_indices(smoothed.log_weights, len(draws), seed)]


def _storable(name: str) -> str:
    """The name without slashes, which DataTree and netCDF read as paths."""
    return name.replace("/", ".")


def _axes(model: AbstractModel, names: list[str]) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """The names of axes, and labels along them; an axis must not share the name of a variable."""

    def axis(name: str) -> str:
        return f"{_storable(name)}_dim" if _storable(name) in names else _storable(name)

    dims = {_storable(name): [axis(a) for a in axes] for name, axes in model.dims.items()}
    return dims, {axis(name): labels for name, labels in model.coords.items()}
