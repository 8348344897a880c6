"""The log evidence from samples of the target, by bridge sampling."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from natmix.mixture import Estimate

_ROUNDS = 1000


def bridge_log_evidence(
    log_density: Callable[[Float[np.ndarray, "N D"]], Float[np.ndarray, " N"]],
    samples: Float[np.ndarray, "N D"],
    seed: int,
) -> Estimate:
    """The log evidence with the bridge of Meng and Wong (1996) to a Gaussian g.

    Half of the samples of p fit g, the others (n_1) and as many samples of g (n_2) solve
    Z = mean_g[p~ / (s_1 p~ + s_2 Z g)] / mean_p[g / (s_1 p~ + s_2 Z g)], s_i = n_i / (n_1 + n_2), for Z.
    The standard error is to first order, for independent samples.
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
    log_z = float(np.median(at_p))
    for _ in range(_ROUNDS):  # a fixed point, reached monotonically
        before = log_z
        numerator, denominator = _sides(at_p, at_g, log_z)
        log_z = before + float(np.log(numerator.mean()) - np.log(denominator.mean()))
        if abs(log_z - before) < 1e-12:
            break
    numerator, denominator = _sides(at_p, at_g, log_z)
    variance = sum(v.var(ddof=1) / (v.mean() ** 2 * v.size) for v in (numerator, denominator))
    return Estimate(log_z, float(np.sqrt(variance)))


def _sides(
    at_p: Float[np.ndarray, " N"], at_g: Float[np.ndarray, " N"], log_z: float
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    """The terms w / (1 + w) at samples of g and 1 / (1 + w) at samples of p, w = p~ / (Z g), s_i = 1/2."""
    return 1 / (1 + np.exp(log_z - at_g)), 1 / (1 + np.exp(at_p - log_z))
