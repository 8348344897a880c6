"""`Result.bridge`: the log evidence by bridge sampling."""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from natmix.diagnostics.bridge_sampling import MIN_DRAWS, bridge_estimate
from natmix.diagnostics.elbo import evaluated_draws, target_log_density
from natmix.estimate import Estimate
from natmix.models.draws import draw_vectors
from natmix.random_keys import run_key

if TYPE_CHECKING:
    from natmix.result.result import Result


def bridge(result: "Result", draws: Any, samples: int, seed: int) -> Estimate:
    """The log evidence, from draws of the target and of the mixture."""
    if result.target is None:
        raise ValueError("This result does not know its target, which bridge() has to evaluate.")
    x = draw_vectors(draws, result.model, result.mixture.dim)
    if x.shape[0] * x.shape[1] < MIN_DRAWS:
        raise ValueError(f"At least {MIN_DRAWS} draws are needed, got {x.shape[0] * x.shape[1]}.")
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
