"""Search for modes that the mixture does not cover, for a target without gradients.

The search alternates between candidates and runs. Candidates are spread over the initial region and over the
mixture, made wider. Those that are higher than their neighbours start runs of CMA-ES (`evolution`), all in
lockstep. A run ends early where the mixture explains the density. At the end of the others a Gaussian is
fitted to the values, and importance sampling tells how much mass it has that the mixture lacks.
"""

import contextlib
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Bool, Float, Int

from natmix.diagnostics.evolution import Runs, next_generation, settings, start_runs
from natmix.diagnostics.host_density import HostDensity
from natmix.diagnostics.known_modes import MissedMode
from natmix.diagnostics.look_back import (
    UNEXPLAINED,
    components_for_points,
    in_mode_of,
    unexplained_points,
)
from natmix.diagnostics.mode_search import ModeSearch
from natmix.diagnostics.modes import mode_labels
from natmix.diagnostics.quadratic_fit import fitted_gaussian
from natmix.diagnostics.search_problem import SearchProblem
from natmix.diagnostics.search_starts import REACH, reach
from natmix.initialization.evaluator import BudgetSpentError
from natmix.kernels.threads import single_threaded_blas

_MIN_SHARE = 0.01
"""The smallest share of the total mass of a missed mode."""
_SPREAD = (1.0, 3.0, 10.0)
"""Candidates are also drawn from a Gaussian with the mixture's moments, made so many times as wide."""
_AROUND = (10.0, 30.0)
"""And from single components, made so many times as wide."""
_CANDIDATE_SHARE = 0.2
"""Of the evaluations."""
_RUN_COST = 50
"""About the evaluations of a run, per dimension."""
_RUNS_AT_ONCE = 8
_FIRST_STEPS = 0.3
"""Standard deviation of a run's first steps, relative to the Gaussian that its start was drawn from."""
_EXPLAINED = 1.0
"""A run ends where log p - log Z and log q differ by no more than this, in nats."""
_DRAWS = 48
"""Samples of a Gaussian, to refine it and once more to estimate its mass."""
_SEEN_MODES, _SEEN_POINTS = 16, 3
"""At most so many Gaussians for points already evaluated; from so many such points on these count as missed
even if there is no evaluation left to check them."""
_ENOUGH = 0.01
"""The search ends when the chance that another run finds a new mode is below this."""
_HEAVY = 3.0
"""Degrees of freedom of the mixture's heavy-tailed version, with which candidates are compared."""
_QUANTILE_DRAWS = 500
_BETWEEN = np.array([0.25, 0.5, 0.75, 1.0])
"""Points on the line from the end of a run to a mode."""
_NEAR = 10.0
"""Ends of runs are compared so with a mode up to that many of its standard deviations away."""


class _Mode(NamedTuple):
    """A Gaussian for a mode that the mixture does not cover; ``log_mass`` is that which the mixture lacks."""

    mean: Float[np.ndarray, " D"]
    covariance: Float[np.ndarray, "D D"]
    log_mass: float
    deficit: float


def search_without_gradients(
    problem: SearchProblem, seen: tuple[Float[np.ndarray, "N D"], Float[np.ndarray, " N"]] | None = None
) -> ModeSearch:
    """Populations from many starting points, which need the target's values only.

    Args:
        problem: what is searched, and within which limits; that of evaluations must be given.
        seen: points that have been evaluated, and their log densities.
    """
    search = _PopulationSearch(problem)
    quiet = np.errstate(over="ignore", invalid="ignore", divide="ignore")
    counted = search.evaluator.failures_counted()
    with counted, contextlib.suppress(BudgetSpentError), quiet, single_threaded_blas():
        search.look_back(seen)
        search.search()
    return search.result()


class _PopulationSearch:
    def __init__(self, problem: SearchProblem) -> None:
        mixture = problem.mixture
        self._mixture, self._log_z, self._region = mixture, problem.log_evidence, problem.region
        self._rng, self.evaluator = problem.rng(), problem.evaluator()
        self._q = HostDensity(mixture)
        self._labels = mode_labels(mixture)
        own = np.asarray(mixture.sample(_QUANTILE_DRAWS, key=problem.key), float)
        self._low, self._typical = np.quantile(self._q.log_prob(own), (0.01, 0.05))
        self._points: list[tuple[np.ndarray, np.ndarray]] = []
        self._modes: list[_Mode] = []
        self._hits: list[int] = []
        self._negligible: list[_Mode] = []
        self._covered: dict[int, int] = {}
        self._unchecked: list[MissedMode] = []
        self._runs, self._reach = 0, max(REACH)

    # The parts of the search --------------------------------------------------------------------

    def look_back(self, seen: tuple[Float[np.ndarray, "N D"], Float[np.ndarray, " N"]] | None) -> None:
        """Gaussians for points already evaluated, checked by importance sampling, and runs from there."""
        if seen is None:
            return
        x, log_p = np.asarray(seen[0]), np.asarray(seen[1])
        which = unexplained_points(self._mixture, x, log_p, self._log_z, self._log_z + self._typical)
        if not which.size:
            return
        x, log_p = x[which].astype(float), log_p[which].astype(float)
        found = components_for_points(self._mixture, x, log_p, self._log_z, _SEEN_MODES)
        self._points.append((x, log_p))
        if len(which) >= _SEEN_POINTS:
            self._unchecked = list(found)
        for mode in found:
            assert mode.covariance is not None
            log_mass, deficit = self._missing_mass(mode.position, mode.covariance)[:2]
            self._unchecked = [m for m in self._unchecked if m is not mode]
            if self._share(log_mass) >= _MIN_SHARE:
                self._add(_Mode(mode.position, mode.covariance, log_mass, max(deficit, mode.deficit)))
        if not found:
            return
        starts = np.stack([m.position for m in found])
        values = np.array([log_p[np.argmin(np.sum((x - m.position) ** 2, axis=1))] for m in found])
        covariances = np.stack([m.covariance for m in found if m.covariance is not None])
        self._run(starts, values, covariances, from_seen=True)

    def search(self) -> None:
        """Rounds of candidates and runs, until the budget is spent or nothing new is to be expected."""
        D = self._mixture.dim
        while self.result().new_mode_chance > _ENOUGH:
            budget = min(self.evaluator.remaining, _RUNS_AT_ONCE * _RUN_COST * D / (1 - _CANDIDATE_SHARE))
            n = int(max(1, min(self.evaluator.remaining, _CANDIDATE_SHARE * budget)))
            x, covariances = self._candidates(n)
            log_p = self._log_density(x)
            runs = max(1, round((budget - n) / (_RUN_COST * D)))
            chosen = self._starts(x, log_p, runs)
            if not chosen.size:
                continue
            self._run(x[chosen], log_p[chosen], _FIRST_STEPS**2 * covariances[chosen])

    def result(self) -> ModeSearch:
        """What has been found so far."""
        missed = [m for m in self._modes if self._share(m.log_mass) >= _MIN_SHARE]
        unchecked = [m for m in self._unchecked if not any(_inside(m.position, mode) for mode in self._modes)]
        total = scipy.special.logsumexp([self._log_z, *(m.log_mass for m in missed)])
        modes = [
            MissedMode(m.mean, float(np.exp(m.log_mass - total)), m.deficit, m.covariance) for m in missed
        ]
        modes += [m for m in unchecked if m.share >= _MIN_SHARE]
        shares = np.bincount(self._labels, np.asarray(self._mixture.weights, float))
        own = (self._covered.get(int(label), 0) for label in np.flatnonzero(shares >= _MIN_SHARE))
        hits = (*own, *(h for h in self._hits if h))
        return ModeSearch(
            tuple(sorted(modes, key=lambda m: -m.share)),
            len(self._covered) + len(modes),
            self._runs,
            self.evaluator.evaluations,
            hits,
            "population",
            reach=self._reach,
        )

    # Candidates ---------------------------------------------------------------------------------

    def _candidates(self, n: int) -> tuple[Float[np.ndarray, "n D"], Float[np.ndarray, "n D D"]]:
        """Points from Gaussians of many widths, and the covariances of these."""
        sources = [(self._region.means[0], self._region.covariances[0], r) for r in self._factors()]
        sources += [(self._mixture.mean(), self._mixture.covariance(), r) for r in _SPREAD]
        present = np.flatnonzero(np.asarray(self._mixture.exists))
        for r in _AROUND:
            k = self._rng.choice(present)
            sources.append((self._mixture.means[k], self._mixture.covariances[k], r))
        means = np.stack([np.asarray(m, float) for m, _, _ in sources])
        covariances = np.stack([r**2 * np.asarray(C, float) for _, C, r in sources])
        of = (np.arange(n) + self._rng.integers(len(sources))) % len(sources)
        L = np.linalg.cholesky(covariances)
        noise = self._rng.normal(size=(n, means.shape[1]))
        return means[of] + np.einsum("nij,nj->ni", L[of], noise), covariances[of]

    def _factors(self) -> tuple[float, ...]:
        """How many times as wide as the region candidates are spread."""
        present = np.asarray(self._mixture.means, float)[np.asarray(self._mixture.exists)]
        factors = reach(self._region, np.concatenate([present, *(m.mean[None] for m in self._modes)]))
        self._reach = max(self._reach, *factors)
        return factors

    def _starts(
        self, x: Float[np.ndarray, "N D"], log_p: Float[np.ndarray, " N"], most: int
    ) -> Int[np.ndarray, " M"]:
        """Candidates that are higher than their neighbours, most of them where the mixture is too low."""
        joint = self._q.log_joint(x)
        finite = np.isfinite(log_p)
        explained = finite & self._explained(log_p, joint)
        for group in (np.flatnonzero(explained), np.flatnonzero(finite & ~explained)):
            peaks = group[_local_peaks(self._whitened(x[group]), log_p[group])]
            if group.size and explained[group[0]]:
                for i in peaks:
                    self._hit_covered(joint[i])
        score = log_p[peaks] - self._q.heavy_log_prob(x[peaks], _HEAVY)
        best = peaks[np.argsort(-score, kind="stable")]
        half = (most + 1) // 2
        others = self._rng.permutation(best[half:])[: most - half]
        return np.concatenate([best[:half], others]).astype(int)

    def _whitened(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
        return x / np.sqrt(np.diag(np.asarray(self._region.covariances[0], float)))

    # Runs ---------------------------------------------------------------------------------------

    def _run(
        self,
        x: Float[np.ndarray, "R D"],
        log_p: Float[np.ndarray, " R"],
        covariance: Float[np.ndarray, "R D D"],
        from_seen: bool = False,
    ) -> None:
        runs = start_runs(x, log_p, covariance)
        size, reserve = settings(x.shape[1]).size, 2 * _DRAWS + 2 + len(_BETWEEN)
        while len(runs.best):
            affordable = int((self.evaluator.remaining - reserve) // size)
            if affordable < 1:
                self._last(runs)
                raise BudgetSpentError
            runs = runs.take(np.arange(len(runs.best)) < affordable)
            runs = next_generation(runs, self._log_density, self._rng)[0]
            runs = runs.take(~self._ended(runs, from_seen))

    def _ended(self, runs: Runs, from_seen: bool) -> Bool[np.ndarray, " R"]:
        """Which runs have ended; those that have are counted."""
        joint = self._q.log_joint(runs.best)
        covered = self._explained(runs.best_value, joint)
        settled = runs.ended
        ended = covered | settled
        for r in range(len(ended)):
            inside = [i for i, m in enumerate(self._modes) if _inside(runs.best[r], m)]
            if covered[r]:
                self._hit_covered(joint[r])
            elif inside and (settled[r] or not from_seen):
                self._hits[inside[0]] += 1
                self._runs += 1
                ended[r] = True
            elif any(_inside(runs.best[r], m) for m in self._negligible):
                self._runs += 1
                ended[r] = True
            elif settled[r]:
                self._settle(runs.best[r], runs.best_value[r], runs.sigma[r] ** 2 * runs.C[r])
        return ended

    def _last(self, runs: Runs) -> None:
        """A Gaussian for the best of unfinished runs, if it is certain to be in missed mass."""
        deficit = runs.best_value - self._log_z - self._q.log_prob(runs.best)
        good = (deficit > UNEXPLAINED) & (runs.best_value >= self._log_z + self._typical)
        good &= [not any(_inside(x, m) for m in self._modes) for x in runs.best]
        if good.any():
            r = int(np.argmax(np.where(good, runs.best_value, -np.inf)))
            self._settle(runs.best[r], runs.best_value[r], runs.sigma[r] ** 2 * runs.C[r])

    def _settle(self, x: Float[np.ndarray, " D"], log_p: float, C: Float[np.ndarray, "D D"]) -> None:
        """A Gaussian at the end of a run, which is a missed mode if it has the mass."""
        same = self._connected(x, log_p)
        if same is not None:
            self._hits[same] += 1
            self._runs += 1
            return
        first = self._fitted(x, C)
        log_mass, deficit, elbo = self._missing_mass(*first)
        mode = _Mode(*first, log_mass, deficit)
        refined = self._fitted(x, mode.covariance)
        log_mass, deficit, refined_elbo = self._missing_mass(*refined)
        if refined_elbo >= elbo:
            mode = _Mode(*refined, log_mass, deficit)
        self._runs += 1
        if self._share(mode.log_mass) >= _MIN_SHARE and mode.deficit > UNEXPLAINED:
            self._add(mode)
            self._hits[-1] = 1
        elif mode.deficit <= UNEXPLAINED:
            self._runs -= 1
            self._hit_covered(self._q.log_joint(mode.mean[None])[0])
        else:
            self._negligible.append(mode)

    def _connected(self, x: Float[np.ndarray, " D"], log_p: float) -> int | None:
        """The nearest missed mode, if there is no dip in density on the line to it."""
        if not self._modes:
            return None
        distances = [(x - m.mean) @ np.linalg.solve(m.covariance, x - m.mean) / len(x) for m in self._modes]
        nearest = int(np.argmin(distances))
        if distances[nearest] > _NEAR**2:
            return None
        steps = _BETWEEN[:, None]
        between = self._log_density((1 - steps) * x + steps * self._modes[nearest].mean)
        return nearest if between[:-1].min() >= min(log_p, between[-1]) - np.log(2) else None

    def _fitted(
        self, x: Float[np.ndarray, " D"], C: Float[np.ndarray, "D D"]
    ) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, "D D"]]:
        points = np.concatenate([p for p, _ in self._points])
        values = np.concatenate([v for _, v in self._points])
        return fitted_gaussian(points, values, x, C)

    def _missing_mass(
        self, mean: Float[np.ndarray, " D"], covariance: Float[np.ndarray, "D D"]
    ) -> tuple[float, float, float]:
        """By importance sampling: log of the mass that the mixture lacks; deficit at the mean; ELBO."""
        D = len(mean)
        L = np.linalg.cholesky(covariance)
        noise = self._rng.normal(size=(_DRAWS, D))
        x = np.vstack([mean, mean + noise @ L.T])
        log_p = self._log_density(x)
        ratio = log_p - self._log_z - self._q.log_prob(x)
        log_g = -0.5 * np.sum(noise**2, axis=1) - np.log(np.diag(L)).sum() - 0.5 * D * np.log(2 * np.pi)
        log_w = log_p[1:] - log_g
        # Truncated weights (E. L. Ionides, J. Comput. Graph. Statist. 2008): few large ones decide nothing.
        top = scipy.special.logsumexp(log_w) - 0.5 * np.log(_DRAWS)
        lacking = np.log(np.maximum(-np.expm1(-np.maximum(ratio[1:], 0)), 0))
        log_mass = scipy.special.logsumexp(np.minimum(log_w, top) + lacking) - np.log(_DRAWS)
        elbo = np.mean(np.maximum(log_w, log_w.max() - 100)) if np.isfinite(log_w).any() else -np.inf
        return float(log_mass), float(ratio[0]), float(elbo)

    # Bookkeeping --------------------------------------------------------------------------------

    def _add(self, mode: _Mode) -> None:
        """A missed mode; it replaces those found before that lie in it."""
        kept = [i for i, m in enumerate(self._modes) if not _inside(m.mean, mode)]
        hits = sum(self._hits) - sum(self._hits[i] for i in kept)
        self._modes = [*(self._modes[i] for i in kept), mode]
        self._hits = [*(self._hits[i] for i in kept), hits]

    def _hit_covered(self, joint: Float[np.ndarray, " K"]) -> None:
        label = int(self._labels[np.argmax(joint)])
        self._covered[label] = self._covered.get(label, 0) + 1
        self._runs += 1

    def _explained(
        self, log_p: Float[np.ndarray, " N"], joint: Float[np.ndarray, "N K"]
    ) -> Bool[np.ndarray, " N"]:
        """Where the mixture explains the density: in its own bulk, or anywhere to good precision."""
        log_q = scipy.special.logsumexp(joint, axis=1)
        deficit = log_p - self._log_z - log_q
        rounding = 16 * float(np.finfo(self._mixture.dtype).eps) * np.abs(log_p)
        return ((deficit <= UNEXPLAINED) & (log_q >= self._low)) | (np.abs(deficit) <= _EXPLAINED + rounding)

    def _share(self, log_mass: float) -> float:
        return float(np.exp(log_mass - np.logaddexp(log_mass, self._log_z)))

    def _log_density(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        """Log densities; one that is not finite counts as -inf."""
        log_p = self.evaluator.log_density(x)
        log_p = np.where(np.isfinite(log_p), log_p, -np.inf)
        self._points.append((x, log_p))
        return log_p


def _local_peaks(x: Float[np.ndarray, "N D"], log_p: Float[np.ndarray, " N"]) -> Int[np.ndarray, " M"]:
    """The points that are higher than their D + 1 nearest neighbours."""
    N, D = x.shape
    if N <= 2:
        return np.arange(N)
    squared = np.sum(x**2, axis=1)
    distance = squared[:, None] + squared - 2 * x @ x.T
    np.fill_diagonal(distance, np.inf)
    k = min(D + 1, N - 1)
    nearest = np.argpartition(distance, k - 1, axis=1)[:, :k]
    return np.flatnonzero(log_p >= log_p[nearest].max(axis=1))


def _inside(x: Float[np.ndarray, " D"], mode: _Mode) -> bool:
    return bool(in_mode_of(x[None], mode.mean, mode.covariance)[0])
