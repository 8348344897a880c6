"""A look back at points that a fit has evaluated: which the mixture does not explain, and Gaussians there.

It needs no further evaluation. A point of the target's typical density at which the mixture's density is far
too low is evidence of missed mass.
"""

import numpy as np
import scipy
from jaxtyping import Float, Int

from natmix.diagnostics.known_modes import MissedMode
from natmix.mixture import Mixture

UNEXPLAINED = np.log(20)
"""Nats by which the mixture's log density is too low at an unexplained point."""
_BLOCK_ENTRIES = 2**22
"""Points are compared with the mixture in blocks of at most so many numbers, K D for each point."""


def unexplained_points(
    mixture: Mixture,
    x: Float[np.ndarray, "N D"],
    log_target: Float[np.ndarray, " N"],
    log_evidence: float,
    log_p_quantile: float,
) -> Int[np.ndarray, " M"]:
    """The indices of points where the mixture's density is less than a twentieth of the target's.

    Args:
        mixture: to compare with.
        x: points that have been evaluated.
        log_target: their log densities; NaN and infinite ones are left out.
        log_evidence: log Z of the target.
        log_p_quantile: the log density from which on points count, such as its 5% quantile over samples of
            the mixture. In the far tails of the target every mixture's density is too low.
    """
    log_p = np.asarray(log_target)
    dense = np.flatnonzero(np.isfinite(log_p) & (log_p >= log_p_quantile))
    deficit = log_p[dense].astype(float) - log_evidence - log_prob_in_blocks(mixture, np.asarray(x), dense)
    return dense[deficit > UNEXPLAINED]


def log_prob_in_blocks(
    mixture: Mixture, x: Float[np.ndarray, "N D"], which: Int[np.ndarray, " M"]
) -> Float[np.ndarray, " M"]:
    """Log q at some of the points, in the mixture's precision and with bounded memory."""
    entries = mixture.num_components * mixture.dim
    largest = 1 << max(4, int(np.log2(max(_BLOCK_ENTRIES // entries, 1))))
    out = np.empty(len(which))
    for start in range(0, len(which), largest):
        block = which[start : start + largest]
        n = len(block)
        # Powers of two: every other shape would be compiled anew.
        padded = np.pad(block, (0, (1 << max(4, (n - 1).bit_length())) - n), mode="edge")
        out[start : start + n] = np.asarray(mixture.log_prob(x[padded]))[:n]
    return out


def components_for_points(
    mixture: Mixture,
    x: Float[np.ndarray, "N D"],
    log_target: Float[np.ndarray, " N"],
    log_evidence: float,
    most: int,
) -> list[MissedMode]:
    """Gaussians for points that the mixture does not explain, chosen greedily, the first being the worst.

    The point with the largest deficit gets a Gaussian at the highest point of its neighbourhood, with the
    mass that matches the density there. The points that this explains are removed, and so on.

    Args:
        mixture: to compare with.
        x: points, such as those of `unexplained_points`.
        log_target: their log densities.
        log_evidence: log Z of the target.
        most: the largest number of Gaussians.
    """
    x, log_p = np.asarray(x, float), np.asarray(log_target, float)
    finite = np.flatnonzero(np.isfinite(log_p))
    x, log_p = x[finite], log_p[finite]
    explained = log_evidence + log_prob_in_blocks(mixture, x, np.arange(len(x)))
    typical = average_covariance(mixture)
    picked: list[tuple[Float[np.ndarray, " D"], Float[np.ndarray, "D D"], float, float]] = []
    while len(picked) < most and len(x):
        worst = int(np.argmax(log_p - explained))
        if log_p[worst] - explained[worst] <= UNEXPLAINED:
            break
        near = in_mode_of(x, x[worst], typical) & (log_p - explained > UNEXPLAINED)
        centre = int(np.flatnonzero(near)[np.argmax(log_p[near])])
        covariance = _shrunk_covariance(x[near], typical)
        log_det = np.linalg.slogdet(2 * np.pi * covariance)[1]
        log_mass = float(log_p[centre] + 0.5 * log_det)
        picked.append((x[centre], covariance, log_mass, float(log_p[centre] - explained[centre])))
        steps = x - x[centre]
        distance = np.sum(steps * np.linalg.solve(covariance, steps.T).T, axis=1)
        explained = np.logaddexp(explained, log_p[centre] - 0.5 * distance)
        kept = np.arange(len(x)) != worst
        x, log_p, explained = x[kept], log_p[kept], explained[kept]
    total = scipy.special.logsumexp([log_evidence, *(mass for _, _, mass, _ in picked)])
    return [MissedMode(m, float(np.exp(mass - total)), deficit, C) for m, C, mass, deficit in picked]


def average_covariance(mixture: Mixture) -> Float[np.ndarray, "D D"]:
    """The components' covariances, averaged by weight."""
    weights = np.asarray(mixture.weights, float)
    return np.einsum("k,kij->ij", weights / weights.sum(), np.asarray(mixture.covariances, float))


def in_mode_of(
    x: Float[np.ndarray, "N D"], mean: Float[np.ndarray, " D"], covariance: Float[np.ndarray, "D D"]
) -> np.ndarray:
    """Which points lie within the distance of nearly all samples of a Gaussian, as `in_mode` says for one."""
    scale = np.sqrt(np.diag(covariance))
    values, basis = np.linalg.eigh(covariance / np.outer(scale, scale))
    steps = ((x - mean) / scale) @ basis / np.sqrt(np.maximum(values, 1e-12))
    return np.linalg.norm(steps, axis=1) <= np.sqrt(len(mean)) + 3


def _shrunk_covariance(
    x: Float[np.ndarray, "N D"], typical: Float[np.ndarray, "D D"]
) -> Float[np.ndarray, "D D"]:
    """The covariance of a cluster, shrunk towards the typical one; that alone if there are too few points."""
    N, D = x.shape
    if N <= D + 1:
        return typical
    prior = D + 2
    return (N * np.cov(x.T).reshape(D, D) + prior * typical) / (N + prior)
