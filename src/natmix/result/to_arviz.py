"""A result for ArviZ."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import scipy
from jaxtyping import Float, Int, Shaped

from natmix.checks import as_int
from natmix.diagnostics import pareto_smooth
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.elbo import evaluated_draws
from natmix.models import AbstractModel
from natmix.random_keys import run_key
from natmix.result.export import variables
from natmix.result.inference_data import inference_data, joined
from natmix.result.resampling import resample_indices, warn_if_unreliable

if TYPE_CHECKING:
    from natmix.result.result import Result

_MAX_CHAINS = 4


def to_arviz(
    result: "Result", n: int | None, predictive: bool, log_likelihood: bool, corrected: bool, seed: int
) -> Any:
    """`Result.to_arviz`."""
    draws = _draws(result, n, seed)
    rows = _corrected(draws, seed) if corrected else np.arange(len(draws))
    samples = {name: value[rows] for name, value in variables(result, draws.x).items()}
    stats = {"lp": draws.log_target[rows], "log_mixture": draws.log_mixture[rows]}
    if not corrected:
        stats["log_weight"] = _log_weights(draws)
    groups: dict[str, Any] = {"posterior": samples, "sample_stats": stats}
    model = result.model
    if predictive and model is None:
        raise ValueError("predictive=True needs a NumPyro or PyMC model, which can draw data.")
    if log_likelihood and model is None:
        raise ValueError("log_likelihood=True needs a NumPyro, PyMC or Stan model, and this is a function.")
    likelihood: dict[str, np.ndarray] = {}
    if model is not None and log_likelihood:
        likelihood = model.log_likelihood(draws.x[rows])
        for name in model.likelihood_outputs:
            samples.pop(name, None)
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
        chains = {_storable(name): in_chains(value) for name, value in likelihood.items()}
        # One number for a whole vector or matrix that is observed: its axes come last.
        batch = {name: dims[name][: v.ndim - 2] for name, v in chains.items() if name in dims}
        data = joined(data, inference_data({"log_likelihood": chains}, batch, coords))
    return data


def _draws(result: "Result", n: int | None, seed: int) -> EvaluatedDraws:
    """The samples behind the ELBO, or ``n``: the first of these, and fresh ones where there are too few."""
    draws = result.draws
    if n is None:
        if draws is None or len(draws) == 0:
            raise ValueError("The result has no samples with known log density: ask for some, draws=2000.")
        return draws
    kept = 0 if draws is None else len(draws)
    missing = as_int(n, "draws") - kept
    if missing > 0:
        result._check_target(f"to_arviz(draws={n})")
        assert result.target is not None
        key = jax.random.fold_in(run_key(seed), 17)
        fresh = evaluated_draws(result.mixture, result.target, key, missing)
        return fresh if draws is None or not kept else draws.joined(fresh)
    assert draws is not None
    return dataclasses.replace(
        draws, x=draws.x[:n], log_target=draws.log_target[:n], log_mixture=draws.log_mixture[:n]
    )


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
