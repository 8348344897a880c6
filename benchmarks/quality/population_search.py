"""The mode search without gradients: what it finds with how many evaluations, and its false alarms.

Run: python benchmarks/quality/population_search.py [--seeds 20] [--first-seed 0]

First mixtures of Gaussians and of Student's t (5 degrees of freedom) of which the mixture lacks one mode: in
how many of the searches that mode was found. Then mixtures that lack nothing: in how many searches a mode
was called missed. Last a damped oscillator whose samples two frequencies fit.
"""

import argparse
import functools
import itertools
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import scipy.optimize
import scipy.special
import scipy.stats

from natmix import HostTarget, Mixture
from natmix.diagnostics.population_search import search_without_gradients
from natmix.diagnostics.search_problem import SearchProblem

BUDGETS = 2_000, 10_000, 25_000
DEGREES = 5.0


class Case(NamedTuple):
    """A target, a mixture that lacks a mode of it or none, and where that mode is."""

    log_density: Callable[[np.ndarray], np.ndarray]
    mixture: Mixture
    region: Mixture
    log_evidence: float
    missing: np.ndarray | None


def random_mixture(dim: int, student: bool, wide_region: bool, seed: int, lacking: bool = True) -> Case:
    """Two to ten modes, the nearest 6 to 60 widths apart; the missing one has 5% to 50% of the mass."""
    rng = np.random.default_rng([seed, dim, student, wide_region])
    K = int(rng.integers(2, 11))
    means = rng.normal(size=(K, dim))
    nearest = min(np.linalg.norm(means[i] - means[j]) for i in range(K) for j in range(i))
    means *= np.exp(rng.uniform(np.log(6), np.log(60))) / nearest
    roots = rng.normal(size=(K, dim, dim)) / np.sqrt(dim)
    covariances = roots @ roots.transpose(0, 2, 1) + 0.3 * np.eye(dim)
    covariances /= (np.trace(covariances, axis1=1, axis2=2) / dim)[:, None, None]
    share = np.exp(rng.uniform(np.log(0.05), np.log(0.5)))
    weights = np.append((1 - share) * rng.dirichlet(np.full(K - 1, 3.0)), share)
    inverse = np.linalg.inv(np.linalg.cholesky(covariances))
    log_det = np.log(np.diagonal(inverse, axis1=1, axis2=2)).sum(axis=1)

    def log_density(x: np.ndarray) -> np.ndarray:
        z = np.einsum("kij,nkj->nki", inverse, x[:, None] - means)
        r = np.sum(z**2, axis=2)
        if student:
            constant = scipy.special.gammaln((DEGREES + dim) / 2) - scipy.special.gammaln(DEGREES / 2)
            constant -= 0.5 * dim * np.log(DEGREES * np.pi)
            joint = constant - 0.5 * (DEGREES + dim) * np.log1p(r / DEGREES)
        else:
            joint = -0.5 * r - 0.5 * dim * np.log(2 * np.pi)
        out: np.ndarray = scipy.special.logsumexp(joint + log_det + np.log(weights), axis=1)
        return out

    scale = float(means.std()) if wide_region else 1.0
    region = Mixture.full([1.0], np.zeros((1, dim)), scale**2 * np.eye(dim)[None])
    # A Gaussian with the covariance of Student's t would be too wide at the centre.
    fitted = covariances * (1.2 if student else 1.0)
    if not lacking:
        return Case(log_density, Mixture.full(weights, means, fitted), region, 0.0, None)
    mixture = Mixture.full(weights[:-1], means[:-1], fitted[:-1])
    return Case(log_density, mixture, region, float(np.log1p(-share)), means[-1])


def banana(x: np.ndarray) -> np.ndarray:
    return -0.5 * x[:, 0] ** 2 - 0.5 * (x[:, 1] - x[:, 0] ** 2) ** 2 / 0.25


def banana_case() -> Case:
    """Covered by 30 Gaussians along the ridge."""
    edges = np.linspace(-3.5, 3.5, 30)
    width = edges[1] - edges[0]
    weights = np.exp(-0.5 * edges**2)
    slopes = np.stack([np.ones_like(edges), 2 * edges], axis=1)
    covariances = (0.8 * width) ** 2 * slopes[:, :, None] * slopes[:, None] + np.diag([0, 0.25])
    mixture = Mixture.full(weights, np.stack([edges, edges**2], axis=1), covariances)
    region = Mixture.full([1.0], np.zeros((1, 2)), np.eye(2)[None])
    return Case(banana, mixture, region, float(np.log(2 * np.pi * 0.5)), None)


def oscillator_case(seed: int, lacking: bool = True) -> Case:
    """Amplitude, damping, frequency and phase; samples at equal times leave the frequency ambiguous.

    Unevenness of the times makes the alias a little worse than the true frequency.
    """
    rng = np.random.default_rng(seed)
    times = np.arange(20) * 0.5 + rng.normal(size=20) * 0.01
    true = np.array([0.2, -1.5, 2.0, 0.3])  # log amplitude, log damping, frequency, phase

    def signal(x: np.ndarray) -> np.ndarray:
        decay = np.exp(x[:, :1] - np.exp(x[:, 1:2]) * times)
        return decay * np.cos(x[:, 2:3] * times + x[:, 3:])

    data = signal(true[None])[0] + 0.2 * rng.normal(size=20)
    centre, width = np.array([0.0, -1.0, 2 * np.pi, 0.0]), np.array([1.0, 1.0, 2.0, 1.0])

    def log_density(x: np.ndarray) -> np.ndarray:
        fit = -0.5 * np.sum((data - signal(x)) ** 2, axis=1) / 0.2**2
        out: np.ndarray = fit - 0.5 * np.sum(((x - centre) / width) ** 2, axis=1)
        return out

    alias = true * [1, 1, 1, -1]
    alias[2] = 4 * np.pi - true[2]
    modes = [_laplace(log_density, true), _laplace(log_density, alias)]
    masses = np.array([m for _, _, m in modes])
    region = Mixture.full([1.0], centre[None], np.diag(width**2)[None])
    kept = modes if not lacking else modes[:1] if masses[0] > masses[1] else modes[1:]
    missing = None if not lacking else modes[1 if masses[0] > masses[1] else 0][0]
    kept_masses = np.array([m for _, _, m in kept])
    mixture = Mixture.full(
        np.exp(kept_masses - kept_masses.max()),
        np.stack([m for m, _, _ in kept]),
        np.stack([C for _, C, _ in kept]),
    )
    return Case(log_density, mixture, region, float(scipy.special.logsumexp(kept_masses)), missing)


def _laplace(
    log_density: Callable[[np.ndarray], np.ndarray], x: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """A Gaussian by importance sampling with adapted moments."""
    found = scipy.optimize.minimize(lambda y: -log_density(y[None])[0], x, method="Nelder-Mead")
    rng = np.random.default_rng(0)
    mean, C = found.x, 0.01 * np.eye(len(x))
    log_mass = -np.inf
    for _ in range(20):
        draws = rng.multivariate_normal(mean, 1.2 * C, size=4000)
        log_w = log_density(draws) - scipy.stats.multivariate_normal(mean, 1.2 * C).logpdf(draws)
        log_mass = float(scipy.special.logsumexp(log_w) - np.log(len(draws)))
        w = np.minimum(np.exp(log_w - log_mass), 20.0)
        w /= w.sum()
        mean = w @ draws
        C = (draws - mean).T @ ((draws - mean) * w[:, None])
    return mean, C, log_mass


def search(case: Case, budget: int, seed: int) -> tuple[bool, int, int, int, float]:
    """Whether the missing mode was found; other alarms; evaluations; runs; seconds."""
    dim = case.mixture.dim
    target = HostTarget(case.log_density, dim, batched=True)
    before = time.process_time()
    key = jax.random.key(seed)
    problem = SearchProblem(case.mixture, target, case.region, case.log_evidence, key, budget)
    found = search_without_gradients(problem)
    seconds = time.process_time() - before
    assert found.evaluations <= budget
    near = 0
    if case.missing is not None:
        near = sum(
            float((m.position - case.missing) @ np.linalg.solve(m.covariance, m.position - case.missing))
            < dim + 9
            for m in found.missed
            if m.covariance is not None
        )
    return near > 0, len(found.missed) - near, found.evaluations, found.runs, seconds


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--budgets", type=int, nargs="+", default=BUDGETS)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    rows: list[tuple[str, Callable[[int], Case]]] = []
    for lacking in (True, False):
        what = "one mode missing" if lacking else "nothing missing"
        for dim, student, wide in itertools.product((2, 4, 8), (False, True), (False, True)):
            name = f"{'Student-t' if student else 'Gaussian'}, {dim}-d, region "
            name += "of the modes" if wide else "N(0, I)"
            drawn = functools.partial(random_mixture, dim, student, wide, lacking=lacking)
            rows.append((f"{name}, {what}", drawn))
        rows.append((f"oscillator, {what}", functools.partial(oscillator_case, lacking=lacking)))
    rows.append(("banana, nothing missing", lambda s: banana_case()))
    print("| case | evaluations | found | other alarms | used | runs | seconds |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, make in rows:
        for budget in options.budgets:
            out = [search(make(s), budget, s) for s in seeds]
            found = sum(o[0] for o in out) if "one mode" in name else "-"
            alarms = sum(o[1] > 0 for o in out)
            used, runs, seconds = (np.median([o[i] for o in out]) for i in (2, 3, 4))
            print(
                f"| {name} | {budget:,} | {found} of {len(out)} | {alarms} | {used:,.0f} | {runs:.0f} | "
                f"{seconds:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
