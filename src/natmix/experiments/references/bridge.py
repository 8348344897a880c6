"""The log evidence from samples of the target, by bridge sampling."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from natmix.diagnostics.bridge_sampling import bridge_estimate
from natmix.estimate import Estimate


def bridge_log_evidence(
    log_density: Callable[[Float[np.ndarray, "N D"]], Float[np.ndarray, " N"]],
    samples: Float[np.ndarray, "N D"],
    seed: int,
) -> Estimate:
    """The log evidence with the bridge of Meng and Wong (1996) to a Gaussian g.

    Half of the samples of p fit g, the others and as many samples of g are bridged.
    """
    half = len(samples) // 2
    fitted, own = samples[:half], samples[half:]
    mean, L = fitted.mean(axis=0), np.linalg.cholesky(np.cov(fitted.T))
    noise = np.random.default_rng(seed).standard_normal(own.shape)

    def log_g(x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        z = np.linalg.solve(L, (x - mean).T)
        return -0.5 * np.sum(z * z, axis=0) - np.log(np.diag(L)).sum() - 0.5 * len(mean) * np.log(2 * np.pi)

    proposed = mean + noise @ L.T
    at_p = log_density(own) - log_g(own)
    at_g = log_density(proposed) - log_g(proposed)
    return bridge_estimate(at_p[None], at_g)
