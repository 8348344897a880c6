"""Gaussians from the ways up the log density.

L. Zhang, B. Carpenter, A. Gelman, A. Vehtari: Pathfinder: parallel quasi-Newton variational inference, JMLR
2022. The way of a climb passes from the tails through the bulk to the mode; at each of its points the
curvature known so far gives a Gaussian, and the one with the best ELBO is taken, each estimate less two
standard errors. Unlike there, the inverse Hessian is a dense matrix (dimensions are a few hundred at most),
and Laplace's approximation at the end of the way takes part.
"""

import contextlib
import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from natmix.initialization.evaluator import SpentError, Values
from natmix.initialization.lbfgs import Way, climb
from natmix.kernels.threads import single_threaded_blas

_DRAWS = 16
"""Samples for the ELBO of each Gaussian."""
_MOST_GAUSSIANS = 40
"""Of one way: evenly spread over it."""
_NEGLIGIBLE = 15.0
"""Nats of ELBO below the best beyond which a path's Gaussian counts for nothing."""
_LEAST_CURVATURE = 1e-10
"""Relative: a step whose gradients do not tell a positive curvature is passed over."""


class Path(NamedTuple):
    """The best Gaussian of one climb, and an estimate of its ELBO (-inf if there is none)."""

    mean: Float[np.ndarray, " D"]
    covariance: Float[np.ndarray, "D D"]
    elbo: float


def pathfinder(values: Values, starts: Float[np.ndarray, "N D"], seed: int) -> list[Path]:
    """One Gaussian for each starting point."""
    rng = np.random.default_rng(seed)
    out: list[Path] = []
    quiet = np.errstate(over="ignore", invalid="ignore")
    with contextlib.suppress(SpentError), quiet, single_threaded_blas():
        for x in starts:
            out.append(best_of_path(values, climb(values, x), rng))
    return out


def best_of_path(values: Values, way: Way, rng: np.random.Generator) -> Path:
    """The Gaussian with the best ELBO among those along a way."""
    found = _gaussians(way)
    precision = values.hessian(way.x[-1]) if values.left > way.x.shape[1] else None
    covariance = None if precision is None else _inverse(-precision)
    if covariance is not None:
        found.append((way.x[-1] + covariance @ way.gradient[-1], covariance))
    D = way.x.shape[1]
    usable = [(m, L) for m, C in found if (L := _cholesky(C)) is not None]
    if not usable:
        return Path(way.x[-1], np.eye(D), -np.inf)
    noise = rng.normal(size=(_DRAWS, D))
    points = np.concatenate([m + noise @ L.T for m, L in usable])
    log_p = values.alone(points).reshape(len(usable), _DRAWS)
    log_det = np.array([np.sum(np.log(np.diag(L))) for _, L in usable])
    log_q = -0.5 * np.sum(noise**2, axis=1) - log_det[:, None] - 0.5 * D * np.log(2 * np.pi)
    log_ratio = np.where(np.isfinite(log_p), log_p - log_q, -np.inf)
    elbos = log_ratio.mean(axis=1)
    # Else the luckiest of many rough ones may seem better than the exact one, whose estimate has no error.
    error = np.where(np.isfinite(elbos), log_ratio.std(axis=1), 0) / np.sqrt(_DRAWS)
    best = int(np.argmax(elbos - 2 * error))
    mean, L = usable[best]
    return Path(mean, L @ L.T, float(elbos[best]))


def different(paths: list[Path]) -> list[Path]:
    """The best path of every mode, without those that count for nothing, the best first."""
    kept: list[Path] = []
    for path in sorted(paths, key=lambda p: -p.elbo):
        if not np.isfinite(path.elbo) or (kept and path.elbo < kept[0].elbo - _NEGLIGIBLE):
            continue
        if not any(belongs(path.mean, other) for other in kept):
            kept.append(path)
    return kept


def belongs(x: Float[np.ndarray, " D"], path: Path) -> bool:
    """Whether a point is in the mode of a path: not further away than nearly all samples of its Gaussian."""
    scale = np.sqrt(np.diag(path.covariance))
    values, basis = np.linalg.eigh(path.covariance / np.outer(scale, scale))
    # In the neck of a funnel rounding makes it singular.
    step = ((x - path.mean) / scale) @ basis / np.sqrt(np.maximum(values, 1e-12))
    return float(np.linalg.norm(step)) <= math.sqrt(len(x)) + 3


def _gaussians(way: Way) -> list[tuple[np.ndarray, np.ndarray]]:
    """At the points of a way: one Newton step ahead, with the inverse Hessian known by then (BFGS)."""
    D = way.x.shape[1]
    H: np.ndarray | None = None
    kept = set(np.linspace(1, max(len(way.x) - 1, 1), _MOST_GAUSSIANS).astype(int).tolist())
    out: list[tuple[np.ndarray, np.ndarray]] = []
    for i in range(1, len(way.x)):
        s = way.x[i] - way.x[i - 1]
        y = way.gradient[i - 1] - way.gradient[i]  # of the negated log density
        curvature = float(s @ y)
        if curvature > _LEAST_CURVATURE * float(np.linalg.norm(s) * np.linalg.norm(y)):
            if H is None:
                H = np.eye(D) * curvature / float(y @ y)
            left = np.eye(D) - np.outer(s, y) / curvature
            H = left @ H @ left.T + np.outer(s, s) / curvature
        if H is not None and i in kept:
            out.append((way.x[i] + H @ way.gradient[i], H.copy()))
    return out


def _inverse(P: Float[np.ndarray, "D D"]) -> Float[np.ndarray, "D D"] | None:
    """The inverse of a positive definite matrix, whatever the scales of its coordinates; None of another."""
    if not np.all(np.isfinite(P)) or np.any(np.diag(P) <= 0):
        return None
    scale = 1 / np.sqrt(np.diag(P))
    values, basis = np.linalg.eigh(0.5 * (P + P.T) * np.outer(scale, scale))
    if values[0] <= 1e-12 * values[-1]:
        return None
    return (basis / values) @ basis.T * np.outer(scale, scale)


def _cholesky(C: Float[np.ndarray, "D D"]) -> Float[np.ndarray, "D D"] | None:
    try:
        L = np.linalg.cholesky(0.5 * (C + C.T))
    except np.linalg.LinAlgError:
        return None
    return L if np.all(np.isfinite(L)) else None
