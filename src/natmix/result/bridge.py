"""`Result.bridge`: the log evidence by bridge sampling."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from natmix.diagnostics.bridge_sampling import MIN_DRAWS, bridge_estimate
from natmix.diagnostics.elbo import evaluated_draws, target_log_density
from natmix.estimate import Estimate
from natmix.models import AbstractModel
from natmix.random_keys import run_key

if TYPE_CHECKING:
    from natmix.result.result import Result


def bridge(result: "Result", draws: Any, samples: int, seed: int) -> Estimate:
    """The log evidence, from draws of the target and of the mixture."""
    if result.target is None:
        raise ValueError("This result does not know its target, which bridge() has to evaluate.")
    x = _chains(result.model, draws, result.mixture.dim)
    own = result.draws
    keys = jax.random.split(jax.random.fold_in(run_key(seed), 11))
    if samples:
        fresh = evaluated_draws(result.mixture, result.target, keys[0], samples)
        own = fresh if own is None else own.joined(fresh)
    if own is None or len(own) < MIN_DRAWS:
        raise ValueError("There are too few samples of the mixture: ask for some, as in samples=2000.")
    _check(own.log_target, "the mixture's samples", zeros=True)
    flat = jnp.asarray(x.reshape(-1, x.shape[-1]), result.mixture.dtype)
    log_target = np.asarray(target_log_density(result.target, keys[1], flat), float)
    _check(log_target, "the draws", zeros=False)
    at_target = log_target - np.asarray(result.mixture.log_prob(flat), float)
    return bridge_estimate(at_target.reshape(x.shape[:2]), own.log_ratio)


def _check(log_target: Float[np.ndarray, " N"], where: str, *, zeros: bool) -> None:
    invalid = float(np.mean(~(log_target < np.inf)))
    zero = float(np.mean(log_target == -np.inf))
    if invalid:
        raise ValueError(f"The log density is NaN or +inf at {invalid:.1%} of {where}.")
    if zero and not zeros:
        raise ValueError(
            f"The density is zero at {zero:.1%} of {where}: are they draws of this target, in the mixture's "
            "(unconstrained) coordinates?"
        )


def _chains(model: AbstractModel | None, draws: Any, dim: int) -> Float[np.ndarray, "C N D"]:
    """Vectors in the mixture's coordinates, chains first."""
    named = isinstance(draws, Mapping) or not hasattr(draws, "ndim")
    if named:
        if model is None:
            raise ValueError(f"Give the draws as an array [N, {dim}], got {type(draws).__name__}.")
        draws = draw_vectors(model, draws)
    x = np.asarray(draws, float)
    x = x[None] if x.ndim == 2 else x
    if x.ndim != 3 or x.shape[2] != dim:
        raise ValueError(
            f"The draws must have shape [N, {dim}], or [C, N, {dim}] for several chains, got {list(x.shape)}."
        )
    if x.shape[0] * x.shape[1] < MIN_DRAWS:
        raise ValueError(f"At least {MIN_DRAWS} draws are needed, got {x.shape[0] * x.shape[1]}.")
    if not named and model is not None:
        x = model.unconstrain_vectors(x)
    if not np.isfinite(x).all():
        raise ValueError("Some draws are not finite.")
    return x


def draw_vectors(model: AbstractModel, draws: Any) -> np.ndarray:
    """Variables by name as vectors, [N, D] or [C, N, D]."""
    if isinstance(draws, Mapping):
        one = model.constrain(np.zeros((1, model.dim)))
        if not isinstance(one, Mapping):
            raise ValueError(f"The variables have no names: give the draws as an array [N, {model.dim}].")
        if "posterior" in draws and "posterior" not in one:
            draws = draws["posterior"]  # ArviZ's container
        shapes = {name: np.ndim(value) for name, value in one.items() if name in draws}
        chained = [name for name, ndim in shapes.items() if np.ndim(draws[name]) == ndim + 1]
        if chained:
            arrays = {name: np.asarray(draws[name]) for name in shapes}
            joined = {name: a.reshape(-1, *a.shape[2:]) for name, a in arrays.items()}
            count = arrays[chained[0]].shape[:2]
            return np.asarray(model.unconstrain(joined)).reshape(*count, model.dim)
    return np.asarray(model.unconstrain(draws))
