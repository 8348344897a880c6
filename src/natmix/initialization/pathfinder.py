"""Pathfinder: Gaussians along the paths of L-BFGS runs.

L. Zhang, B. Carpenter, A. Gelman, A. Vehtari: Pathfinder: parallel quasi-Newton variational inference, JMLR
2022. An L-BFGS path leads from the tails through the bulk to the mode; at each of its points the curvature
estimated so far gives a Gaussian, and the one with the best ELBO, less two standard errors, is taken. Unlike
in the paper, the inverse Hessian is a dense matrix (there are a few hundred dimensions at most), and the
Laplace approximation at the end of the path is a candidate too.
"""

import contextlib
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from natmix.initialization.evaluator import BudgetSpentError, TargetEvaluator
from natmix.initialization.lbfgs import LbfgsPath, lbfgs_run
from natmix.kernels.threads import single_threaded_blas

_DRAWS = 16
"""Samples per ELBO estimate."""
_MASS_DRAWS = 64
"""Samples to estimate the mass of a mode."""
_MAX_GAUSSIANS = 40
"""Candidates along one path, evenly spaced."""
_NEGLIGIBLE = 15.0
"""A Gaussian whose ELBO is below the best by so many nats is negligible."""
_WIDTHS = (1.0, 1.4, 2.0, 2.8, 4.0)
"""Factors of a Gaussian's standard deviations that `widened` compares."""
_MIN_CURVATURE = 1e-10
"""Relative curvature below which a step does not update the inverse Hessian."""
SAME_END = 0.01
"""Runs end in one mode if the squared distance of their ends, in the covariance there, is below this."""


class PathGaussian(NamedTuple):
    """The best Gaussian of an L-BFGS path, with an estimate of its ELBO (-inf if there is none)."""

    mean: Float[np.ndarray, " D"]
    covariance: Float[np.ndarray, "D D"]
    elbo: float


def pathfinder(
    evaluator: TargetEvaluator, starting_points: Float[np.ndarray, "N D"], seed: int
) -> list[PathGaussian]:
    """One Gaussian for each mode that the paths end in.

    Another path to the same point would lead to about the same Gaussian, and comparing the Gaussians along a
    path takes several times the evaluations of the path itself.
    """
    rng = np.random.default_rng(seed)
    out: list[PathGaussian] = []
    ends: list[PathGaussian] = []
    quiet = np.errstate(over="ignore", invalid="ignore")
    with contextlib.suppress(BudgetSpentError), quiet, single_threaded_blas():
        for x in starting_points:
            path = lbfgs_run(evaluator, x)
            if not any(same_end(path.x[-1], end) for end in ends):
                gaussian = best_gaussian(evaluator, path, rng)
                out.append(gaussian)
                ends.append(gaussian._replace(mean=path.x[-1]))
    return out


def same_end(x: Float[np.ndarray, " D"], end: PathGaussian) -> bool:
    """Whether a run that ends at ``x`` has reached the point where another ended, the mean of ``end``."""
    if not np.isfinite(end.elbo):
        return False
    step = x - end.mean
    return bool(step @ np.linalg.solve(end.covariance, step) <= SAME_END)


def best_gaussian(
    evaluator: TargetEvaluator, path: LbfgsPath, rng: np.random.Generator, most: int = _MAX_GAUSSIANS
) -> PathGaussian:
    """The Gaussian with the best ELBO among at most ``most`` along a path, and that at its end."""
    found = _gaussians(path, most)
    precision = evaluator.hessian(path.x[-1]) if evaluator.remaining > path.x.shape[1] else None
    covariance = None if precision is None else _inverse(-precision)
    if covariance is not None:
        found.append((path.x[-1] + covariance @ path.gradient[-1], covariance))
    D = path.x.shape[1]
    usable = [(m, L) for m, C in found if (L := _cholesky(C)) is not None]
    if not usable:
        return PathGaussian(path.x[-1], np.eye(D), -np.inf)
    noise = rng.normal(size=(_DRAWS, D))
    points = np.concatenate([m + noise @ L.T for m, L in usable])
    log_p = evaluator.log_density(points).reshape(len(usable), _DRAWS)
    log_det = np.array([np.sum(np.log(np.diag(L))) for _, L in usable])
    log_q = -0.5 * np.sum(noise**2, axis=1) - log_det[:, None] - 0.5 * D * np.log(2 * np.pi)
    log_ratio = np.where(np.isfinite(log_p), log_p - log_q, -np.inf)
    elbos = log_ratio.mean(axis=1)
    # Otherwise the luckiest of many noisy estimates may beat the exact Gaussian, whose estimate has no error.
    error = np.where(np.isfinite(elbos), log_ratio.std(axis=1), 0) / np.sqrt(_DRAWS)
    best = int(np.argmax(elbos - 2 * error))
    mean, L = usable[best]
    return PathGaussian(mean, L @ L.T, float(elbos[best]))


def widened(
    evaluator: TargetEvaluator,
    gaussian: PathGaussian,
    rng: np.random.Generator,
    explained: Callable[[Float[np.ndarray, "N D"]], Float[np.ndarray, " N"]],
) -> PathGaussian:
    """The Gaussian made as wide as raises its ELBO; its ``elbo`` becomes the log of the unexplained mass.

    At the mode of Student's t in many dimensions the curvature is that of a far narrower Gaussian. The mass
    is that of the target where the ``explained`` density (its log) is less than half of it, by importance
    sampling; -inf if there is none.
    """
    D = len(gaussian.mean)
    L = np.linalg.cholesky(gaussian.covariance)
    log_det = np.sum(np.log(np.diag(L)))

    def drawn(n: int, factor: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        noise = rng.normal(size=(n, D))
        x = gaussian.mean + factor * noise @ L.T
        log_p = evaluator.log_density(x)
        log_q = -0.5 * np.sum(noise**2, axis=1) - log_det - D * np.log(factor * np.sqrt(2 * np.pi))
        return x, log_p, np.where(np.isfinite(log_p), log_p - log_q, -np.inf)

    best, scale = -np.inf, 1.0
    for factor in _WIDTHS:
        elbo = float(drawn(_DRAWS, factor)[2].mean())
        if not elbo > best:
            break
        best, scale = elbo, factor
    x, log_p, log_w = drawn(_MASS_DRAWS, scale)
    log_w = np.where(explained(x) < log_p - np.log(2), log_w, -np.inf)
    # Truncated weights (E. L. Ionides, J. Comput. Graph. Statist. 2008): few large ones decide nothing.
    top = np.logaddexp.reduce(log_w) - 0.5 * np.log(_MASS_DRAWS)
    mass = float(np.logaddexp.reduce(np.minimum(log_w, top)) - np.log(_MASS_DRAWS))
    return PathGaussian(gaussian.mean, scale**2 * gaussian.covariance, mass)


def distinct_modes(gaussians: list[PathGaussian]) -> list[PathGaussian]:
    """The best Gaussian of every mode, without negligible ones, the best first."""
    kept: list[PathGaussian] = []
    for g in sorted(gaussians, key=lambda g: -g.elbo):
        if not np.isfinite(g.elbo) or (kept and g.elbo < kept[0].elbo - _NEGLIGIBLE):
            continue
        if not any(in_mode(g.mean, other) for other in kept):
            kept.append(g)
    return kept


def in_mode(x: Float[np.ndarray, " D"], gaussian: PathGaussian) -> bool:
    """Whether a point lies in the mode of a Gaussian: within the distance of nearly all its samples."""
    scale = np.sqrt(np.diag(gaussian.covariance))
    values, basis = np.linalg.eigh(gaussian.covariance / np.outer(scale, scale))
    # In the neck of a funnel rounding makes the matrix singular.
    step = ((x - gaussian.mean) / scale) @ basis / np.sqrt(np.maximum(values, 1e-12))
    return float(np.linalg.norm(step)) <= math.sqrt(len(x)) + 3


def _gaussians(path: LbfgsPath, most: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """At the points of a path: one Newton step ahead, with the BFGS estimate of the inverse Hessian."""
    D = path.x.shape[1]
    H: np.ndarray | None = None
    kept = set(np.linspace(1, max(len(path.x) - 1, 1), most).astype(int).tolist())
    out: list[tuple[np.ndarray, np.ndarray]] = []
    for i in range(1, len(path.x)):
        s = path.x[i] - path.x[i - 1]
        y = path.gradient[i - 1] - path.gradient[i]  # of the negated log density
        curvature = float(s @ y)
        if curvature > _MIN_CURVATURE * float(np.linalg.norm(s) * np.linalg.norm(y)):
            if H is None:
                H = np.eye(D) * curvature / float(y @ y)
            left = np.eye(D) - np.outer(s, y) / curvature
            H = left @ H @ left.T + np.outer(s, s) / curvature
        if H is not None and i in kept:
            out.append((path.x[i] + H @ path.gradient[i], H.copy()))
    return out


def _inverse(P: Float[np.ndarray, "D D"]) -> Float[np.ndarray, "D D"] | None:
    """The inverse of a positive definite matrix of any scaling; None if it is not positive definite."""
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
