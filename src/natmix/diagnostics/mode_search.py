"""Search for modes that the mixture does not cover: L-BFGS runs from many points, compared where they end.

Where the mixture's density is too low at the end of a run, Pathfinder's Gaussian for that mode tells how much
mass it has.
"""

import contextlib
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Float

from natmix.array_types import PRNGKey
from natmix.diagnostics.modes import mode_labels
from natmix.initialization.evaluator import BudgetSpentError, TargetEvaluator
from natmix.initialization.lbfgs import LbfgsPath, lbfgs_run
from natmix.initialization.pathfinder import PathGaussian, best_gaussian, distinct_modes, in_mode
from natmix.kernels.threads import single_threaded_blas
from natmix.mixture import Mixture
from natmix.targets import AbstractTarget

REACH = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Starting points are drawn from the initial region, made so many times as wide, in turn.

With 32 runs, two Gaussians as wide as the region and in 2 and 10 dimensions, the second one was found in 32
of 32 searches at 30 and 50 times that width, in 15 of 16 at 100, in 12 of 16 at 200 and in 1 of 16 at 500
(benchmarks/quality/missed_modes.py). A mode three times narrower has next to no gradient of its own:
11 of 64 in 2 dimensions and none in 10 were found, whatever their distance.
"""
_MISSED_DEFICIT, _LOW_DEFICIT = np.log(20), 1.0
"""Nats by which the mixture's log density must be too low: at the centre of a mode for it to count as missed,
and at the end of a run for that centre to be computed. Of a missed mode with a hundredth of the total mass
2000 samples of the mixture have one or none; with 2 nats a regression's third mode counted as missed although
the mixture's samples covered it."""
_MIN_SHARE = 0.01
"""The smallest share of the total mass of a missed mode."""


class MissedMode(NamedTuple):
    """A mode of the target where the mixture's density is far too low.

    Attributes:
        position: the mode's centre.
        share: of the total mass, by the ELBO of one Gaussian there: a lower bound.
        deficit: nats by which the mixture's log density is too low there.
        covariance: of that Gaussian; None if it is not known.
    """

    position: Float[np.ndarray, " D"]
    share: float
    deficit: float
    covariance: Float[np.ndarray, "D D"] | None = None


class ModeSearch(NamedTuple):
    """What a search for missed modes found.

    Attributes:
        missed: modes that the mixture does not cover, the largest first.
        found: the number of distinct modes found, covered and missed.
        runs: the number of finished runs: of L-BFGS, or of a population without gradients.
        evaluations: of the target (values and gradients; a Hessian counts as D).
        hits: how many runs ended in each mode found; runs that ended nowhere in particular do not count.
        method: how it was searched: "L-BFGS", or "population" for a target without gradients.
    """

    missed: tuple[MissedMode, ...]
    found: int
    runs: int
    evaluations: int
    hits: tuple[int, ...] = ()
    method: str = "L-BFGS"

    @property
    def new_mode_chance(self) -> float:
        """An upper bound of the chance that another run ends in a mode that no run has reached.

        Good and Turing estimate it by the share of runs that were the only one to reach their mode
        (I. J. Good, Biometrika 1953). The bound is that of a Poisson number of such runs, with 95% confidence;
        with none of n it is 3 / n.
        """
        runs = sum(self.hits)
        if not runs:
            return 1.0
        once = sum(h == 1 for h in self.hits)
        return float(min(1.0, scipy.special.gammaincinv(once + 1, 0.95) / runs))


def search_modes(
    mixture: Mixture,
    target: AbstractTarget,
    region: Mixture,
    log_evidence: float,
    key: PRNGKey,
    runs: int,
    max_evaluations: int | None = None,
    max_seconds: float = np.inf,
) -> ModeSearch:
    """L-BFGS runs from samples of the initial region, made 1 to 100 times as wide (`REACH`).

    Args:
        mixture: to compare with.
        target: whose modes are searched for.
        region: one Gaussian, the initial region.
        log_evidence: log Z of the target.
        key: of all random numbers.
        runs: the number of L-BFGS runs.
        max_evaluations: of the target.
        max_seconds: after which no other run starts.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    evaluator = TargetEvaluator(target, key, mixture.dtype, max_evaluations)
    deadline = time.monotonic() + max_seconds
    paths = _lbfgs_paths(evaluator, _starting_points(region, runs, rng), deadline)
    usable = [p for p in paths if np.isfinite(p.log_density[-1])]
    if not usable:
        return ModeSearch((), 0, len(paths), evaluator.evaluations)
    joint = _joint_log_prob(mixture, np.stack([p.x[-1] for p in usable]))
    log_q = scipy.special.logsumexp(joint, axis=1)
    deficit = np.array([p.log_density[-1] for p in usable]) - log_evidence - log_q
    covered = set(mode_labels(mixture)[np.argmax(joint, axis=1)[deficit <= _LOW_DEFICIT]].tolist())
    low = sorted(
        (p for p, d in zip(usable, deficit, strict=True) if d > _LOW_DEFICIT),
        key=lambda p: -p.log_density[-1],
    )
    found, log_densities = _mode_gaussians(evaluator, low, rng, deadline)
    missed, others = _missed(mixture, found, log_densities, log_evidence) if found else ((), set())
    return ModeSearch(missed, len(covered | others) + len(missed), len(paths), evaluator.evaluations)


def _starting_points(region: Mixture, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n D"]:
    """Samples of a Gaussian made wider by the factors in `REACH` in turn."""
    L = np.linalg.cholesky(np.asarray(region.covariances[0], float))
    steps = rng.normal(size=(n, len(L))) @ L.T
    return np.asarray(region.means[0], float) + np.resize(REACH, n)[:, None] * steps


def _lbfgs_paths(
    evaluator: TargetEvaluator, starting_points: Float[np.ndarray, "N D"], deadline: float
) -> list[LbfgsPath]:
    """The paths of the runs that finished within the budget."""
    paths: list[LbfgsPath] = []
    quiet = np.errstate(over="ignore", invalid="ignore")
    with contextlib.suppress(BudgetSpentError), quiet, single_threaded_blas():
        for x in starting_points:
            if paths and time.monotonic() > deadline:
                break
            paths.append(lbfgs_run(evaluator, x))
    return [p for p in paths if p.finished]


def _mode_gaussians(
    evaluator: TargetEvaluator, paths: list[LbfgsPath], rng: np.random.Generator, deadline: float
) -> tuple[list[PathGaussian], Float[np.ndarray, " M"]]:
    """A Gaussian for every mode that the paths lead to, and the log density at its mean."""
    gaussians: list[PathGaussian] = []
    quiet = np.errstate(over="ignore", invalid="ignore")
    with contextlib.suppress(BudgetSpentError), quiet, single_threaded_blas():
        for path in paths:
            if gaussians and time.monotonic() > deadline:
                break
            if not any(in_mode(path.x[-1], g) for g in gaussians if np.isfinite(g.elbo)):
                gaussians.append(best_gaussian(evaluator, path, rng))
    found = distinct_modes(gaussians)
    with contextlib.suppress(BudgetSpentError):
        return found, evaluator.log_density(np.stack([g.mean for g in found])) if found else np.empty(0)
    return [], np.empty(0)


def _missed(
    mixture: Mixture,
    found: list[PathGaussian],
    log_densities: Float[np.ndarray, " M"],
    log_evidence: float,
) -> tuple[tuple[MissedMode, ...], set[int]]:
    """Modes that the mixture does not cover, and the labels of its own modes that cover the others."""
    centres = np.stack([g.mean for g in found])
    log_masses = np.array([g.elbo for g in found])
    joint = _joint_log_prob(mixture, centres)
    deficit = log_densities - log_evidence - scipy.special.logsumexp(joint, axis=1)
    missed = deficit > _MISSED_DEFICIT
    total = scipy.special.logsumexp([log_evidence, *log_masses[missed]])
    modes = [
        MissedMode(centres[i], float(np.exp(log_masses[i] - total)), float(deficit[i]), found[i].covariance)
        for i in np.flatnonzero(missed)
    ]
    largest = tuple(sorted((m for m in modes if m.share >= _MIN_SHARE), key=lambda m: -m.share))
    return largest, set(mode_labels(mixture)[np.argmax(joint, axis=1)[~missed]].tolist())


def _joint_log_prob(mixture: Mixture, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N K"]:
    """Log q(x, o)."""
    points = jnp.asarray(x, mixture.dtype)
    return np.asarray(mixture.component_log_prob(points), float) + np.asarray(mixture.log_weights, float)
