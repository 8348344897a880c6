"""Local maximisation without gradients: many small populations at once, by CMA-ES.

N. Hansen, A. Ostermeier, Evolutionary Computation 2001, with the settings of N. Hansen's tutorial
(arXiv:1604.00772). All runs are in lockstep, so that a generation of all of them is one call of the target.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

_WINDOW, _SETTLED = 10, 1.0
"""A run ends when the best values of so many generations differ by less than this, in nats."""
_MAX_GENERATIONS = 60, 20
"""A run ends after so many generations, and so many more per dimension."""


class EvolutionSettings(NamedTuple):
    """Population size and learning rates for D dimensions, in the letters of the tutorial."""

    size: int
    weights: Float[np.ndarray, " mu"]
    mu_eff: float
    c_sigma: float
    d_sigma: float
    c_c: float
    c_1: float
    c_mu: float
    chi: float
    max_generations: int


def settings(dim: int) -> EvolutionSettings:
    """The defaults of the tutorial."""
    D = dim
    size = 4 + int(3 * np.log(D))
    w = np.log(size / 2 + 0.5) - np.log(np.arange(1, size // 2 + 1))
    w /= w.sum()
    mu_eff = float(1 / np.sum(w**2))
    c_sigma = (mu_eff + 2) / (D + mu_eff + 5)
    c_1 = 2 / ((D + 1.3) ** 2 + mu_eff)
    return EvolutionSettings(
        size,
        w,
        mu_eff,
        c_sigma,
        1 + c_sigma + 2 * max(0.0, float(np.sqrt((mu_eff - 1) / (D + 1))) - 1),
        (4 + mu_eff / D) / (D + 4 + 2 * mu_eff / D),
        c_1,
        min(1 - c_1, 2 * (mu_eff - 2 + 1 / mu_eff) / ((D + 2) ** 2 + mu_eff)),
        float(np.sqrt(D) * (1 - 1 / (4 * D) + 1 / (21 * D**2))),
        _MAX_GENERATIONS[0] + _MAX_GENERATIONS[1] * D,
    )


class Runs(NamedTuple):
    """The state of R runs.

    Attributes:
        best: the best point of each run.
        best_value: its log density.
        mean: of the next population.
        sigma: the step size.
        C: the covariance of the steps.
        path_sigma: the evolution path of the step size.
        path_c: the evolution path of the covariance.
        recent: the best values of the last generations.
        generation: the number of generations.
    """

    best: Float[np.ndarray, "R D"]
    best_value: Float[np.ndarray, " R"]
    mean: Float[np.ndarray, "R D"]
    sigma: Float[np.ndarray, " R"]
    C: Float[np.ndarray, "R D D"]
    path_sigma: Float[np.ndarray, "R D"]
    path_c: Float[np.ndarray, "R D"]
    recent: Float[np.ndarray, "R W"]
    generation: Int[np.ndarray, " R"]

    def take(self, which: np.ndarray) -> "Runs":
        """Some of the runs."""
        return Runs(*(a[which] for a in self))

    @property
    def ended(self) -> Bool[np.ndarray, " R"]:
        """Runs whose values have settled, or that took too long."""
        spread = self.recent.max(axis=1) - self.recent.min(axis=1)
        settled = (self.generation >= _WINDOW) & (spread < _SETTLED)
        return settled | (self.generation >= settings(self.best.shape[1]).max_generations)


def start_runs(
    x: Float[np.ndarray, "R D"], log_p: Float[np.ndarray, " R"], covariance: Float[np.ndarray, "R D D"]
) -> Runs:
    """Runs that start at evaluated points, with the covariance of their first steps."""
    R, D = x.shape
    variance = np.maximum(np.trace(covariance, axis1=1, axis2=2) / D, np.finfo(float).tiny)
    C = covariance / variance[:, None, None]
    zeros = np.zeros((R, D))
    recent = np.full((R, _WINDOW), -np.inf)
    return Runs(x, log_p, x, np.sqrt(variance), C, zeros, zeros, recent, np.zeros(R, int))


def next_generation(
    runs: Runs,
    log_density: Callable[[Float[np.ndarray, "N D"]], Float[np.ndarray, " N"]],
    rng: np.random.Generator,
) -> tuple[Runs, Float[np.ndarray, "R S D"], Float[np.ndarray, "R S"]]:
    """One generation of every run, in one call of ``log_density``; also its points and values."""
    R, D = runs.mean.shape
    s = settings(D)
    values, V = np.linalg.eigh(runs.C)
    root = np.sqrt(np.maximum(values, 1e-12 * values[:, -1:]))
    steps = np.einsum("rij,rsj->rsi", V * root[:, None], rng.normal(size=(R, s.size, D)))
    x = runs.mean[:, None] + runs.sigma[:, None, None] * steps
    log_p = log_density(x.reshape(-1, D)).reshape(R, s.size)
    order = np.argsort(-log_p, axis=1, kind="stable")[:, : len(s.weights)]
    selected = np.take_along_axis(steps, order[..., None], axis=1)
    shift = np.einsum("m,rmd->rd", s.weights, selected)
    whitened = np.einsum("rij,rj->ri", V, np.einsum("rij,ri->rj", V, shift) / root)
    path_sigma = (1 - s.c_sigma) * runs.path_sigma + np.sqrt(
        s.c_sigma * (2 - s.c_sigma) * s.mu_eff
    ) * whitened
    length = np.linalg.norm(path_sigma, axis=1)
    generation = runs.generation + 1
    usual = length / np.sqrt(1 - (1 - s.c_sigma) ** (2 * generation)) < (1.4 + 2 / (D + 1)) * s.chi
    path_c = (1 - s.c_c) * runs.path_c + usual[:, None] * np.sqrt(s.c_c * (2 - s.c_c) * s.mu_eff) * shift
    C = (
        (1 - s.c_1 - s.c_mu) * runs.C
        + s.c_1 * path_c[:, :, None] * path_c[:, None, :]
        + s.c_mu * np.einsum("m,rmi,rmj->rij", s.weights, selected, selected)
    )
    first = order[:, 0]
    highest = log_p[np.arange(R), first]
    better = highest > runs.best_value
    new = Runs(
        np.where(better[:, None], x[np.arange(R), first], runs.best),
        np.where(better, highest, runs.best_value),
        runs.mean + runs.sigma[:, None] * shift,
        runs.sigma * np.exp(np.minimum(s.c_sigma / s.d_sigma * (length / s.chi - 1), 1.0)),
        C,
        path_sigma,
        path_c,
        np.concatenate([runs.recent[:, 1:], highest[:, None]], axis=1),
        generation,
    )
    return new, x, log_p
