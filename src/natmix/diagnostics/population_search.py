"""Search for modes that the mixture does not cover, for a target without gradients.

The search goes in rounds, each twice as long as the one before. A round begins with probes, single
evaluations at points spread over the initial region and around the known modes (`population_probes`). Where a
known mode explains the density a run would end in that mode. Some of the other probes start runs of CMA-ES
(`evolution`), all in lockstep. A run ends early where the mixture explains the density. At the end of the
others a Gaussian is fitted to the values, and importance sampling tells how much mass it has that the mixture
lacks. The search ends with a round that has found nothing new, once every known mode was reached often.
"""

import contextlib
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Bool, Float

from natmix.diagnostics.evolution import Runs, next_generation, settings, start_runs
from natmix.diagnostics.host_density import HostDensity
from natmix.diagnostics.known_modes import KnownModes, MissedMode
from natmix.diagnostics.look_back import (
    UNEXPLAINED,
    components_for_points,
    in_mode_of,
    unexplained_points,
)
from natmix.diagnostics.mode_search import ModeSearch
from natmix.diagnostics.population_probes import Excess, Probes, chosen_starts
from natmix.diagnostics.quadratic_fit import MARGIN, NARROW_MARGIN, fitted_gaussian
from natmix.diagnostics.search_problem import SearchProblem
from natmix.diagnostics.search_starts import REACH
from natmix.initialization.evaluator import BudgetSpentError
from natmix.initialization.pathfinder import PathGaussian
from natmix.kernels.threads import single_threaded_blas

_MIN_SHARE = 0.01
"""The smallest share of the total mass of a missed mode."""
_PROBES = 100
"""In the first round, per dimension."""
_PROBED_SHARE = 0.25
"""Of the evaluations left, at most, in one round."""
_RUNS_AT_ONCE = 8
"""Runs in lockstep, and the most of them in the first round."""
_MAX_ROUND = 16
"""A round has at most so many times the probes and runs of the first one."""
_FIRST_STEPS = 0.3
"""Standard deviation of a run's first steps, relative to the Gaussian that its start was drawn from."""
_EXPLAINED = 1.0
"""A run ends where log p - log Z and log q differ by no more than this, in nats."""
_DRAWS = 48
"""Samples of a Gaussian, for its ELBO and its mass; three are compared at the end of a run."""
_SEEN_MODES, _SEEN_POINTS = 16, 3
"""At most so many Gaussians for points already evaluated; from so many such points on these count as missed
even if there is no evaluation left to check them."""
_ENOUGH, _OFTEN = 0.01, 20
"""The search ends when the chance that another starting point leads to a new mode is below this, and every
known mode with a hundredth of the mass was reached so often."""
_NARROW_GOAL, _CERTAIN_HITS = 0.6, 3.0
"""And, if several modes are known, when it would have found one of this width relative to them: a mode r
times as wide is the nearest, in widths, from a share of the starting points that falls like r^D. Three are
expected to find it then, and one or more with 95% certainty. Where that would take more evaluations than are
left, the search ends without."""
_HEAVIER = 4
"""With heavy tails it asks for so many times as much: one mode hides behind the tails of another."""
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
        self._mixture, self._log_z = mixture, problem.log_evidence
        self._rng, self.evaluator = problem.rng(), problem.evaluator()
        self._q = HostDensity(mixture)
        self._known = KnownModes(mixture, problem.log_evidence)
        self._probes = Probes(problem.region, mixture, self._rng)
        own = np.asarray(mixture.sample(_QUANTILE_DRAWS, key=problem.key), float)
        self._low, self._typical = np.quantile(self._q.log_prob(own), (0.01, 0.05))
        self._points: list[tuple[np.ndarray, np.ndarray]] = []
        self._modes: list[_Mode] = []
        self._hits: list[float] = []
        self._negligible: list[_Mode] = []
        self._covered: dict[int, float] = {}
        self._unchecked: list[MissedMode] = []
        self._trials, self._reach, self._dof = 0.0, max(REACH), np.inf

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
        """Rounds of probes and runs, until nothing new is to be expected or the budget is spent."""
        length = 1
        while True:
            before = len(self._modes)
            self._round(length * _PROBES * self._mixture.dim, length * _RUNS_AT_ONCE)
            if len(self._modes) == before and self._settled():
                return
            length = min(2 * length, _MAX_ROUND)

    def _settled(self) -> bool:
        """Whether nothing new is to be expected; what is missed will be added, and searched around again."""
        found, factor = self.result(), 1 if np.isinf(self._dof) else _HEAVIER
        often = bool(found.missed) or min(found.hits, default=0) >= factor * _OFTEN
        narrow = bool(found.missed) or found.covers_narrow_modes or not self._can_cover_narrow_modes(found)
        return often and narrow and found.new_mode_chance <= _ENOUGH / factor

    def _can_cover_narrow_modes(self, found: ModeSearch) -> bool:
        """Whether the evaluations left suffice, if they go on as they did so far."""
        needed = _CERTAIN_HITS / _NARROW_GOAL**self._mixture.dim / max(min(found.hits, default=1), 1)
        return (needed - 1) * self.evaluator.evaluations <= self.evaluator.remaining

    def result(self) -> ModeSearch:
        """What has been found so far."""
        missed = [m for m in self._modes if self._share(m.log_mass) >= _MIN_SHARE]
        unchecked = [m for m in self._unchecked if not any(_inside(m.position, mode) for mode in self._modes)]
        total = scipy.special.logsumexp([self._log_z, *(m.log_mass for m in missed)])
        modes = [
            MissedMode(m.mean, float(np.exp(m.log_mass - total)), m.deficit, m.covariance) for m in missed
        ]
        modes += [m for m in unchecked if m.share >= _MIN_SHARE]
        shares = np.bincount(self._known.labels, np.asarray(self._mixture.weights, float))
        own = [self._covered.get(int(label), 0.0) for label in np.flatnonzero(shares >= _MIN_SHARE)]
        hits = np.array([*own, *(h for h in self._hits if h)])
        return ModeSearch(
            tuple(sorted(modes, key=lambda m: -m.share)),
            len(self._covered) + len(modes),
            int(np.ceil(self._trials)),
            self.evaluator.evaluations,
            tuple(int(h) for h in np.round(hits)),
            "population",
            once=int(np.sum((hits > 0) & (hits < 2))),
            trials=int(np.ceil(self._trials)),
            covered_width=covered_width(float(hits.min(initial=np.inf)), self._mixture.dim),
            narrow_goal=_NARROW_GOAL if len(hits) > 1 else 1.0,
            reach=self._reach,
            dof=self._dof,
        )

    # Probes -------------------------------------------------------------------------------------

    def _round(self, probes: int, runs: int) -> None:
        """Probes, and runs from those that no known mode explains, in batches."""
        n = int(min(probes, max(1, _PROBED_SHARE * self.evaluator.remaining)))
        self._reach = max(self._reach, *self._probes.reach(self._known.centres))
        x, covariances, near = self._probes.drawn(n, self._known.ellipses())
        log_p = self._log_density(x)
        now = self._excess(x, log_p)
        unexplained, self._dof = int(now.open.sum()), self._known.dof
        followed = np.zeros(n, bool)
        try:
            for _ in range(0, runs, _RUNS_AT_ONCE):
                left = np.flatnonzero(now.open & ~followed)
                if not left.size:
                    return
                chosen = chosen_starts(x[left], log_p[left], now.ratio[left], _RUNS_AT_ONCE, self._rng)
                followed[left[chosen]] = True
                self._run(x[left[chosen]], log_p[left[chosen]], _FIRST_STEPS**2 * covariances[left[chosen]])
                now = self._excess(x, log_p)
        finally:
            self._count(self._excess(x, log_p), np.isfinite(log_p) & ~followed, near, unexplained)

    def _excess(self, x: Float[np.ndarray, "N D"], log_p: Float[np.ndarray, " N"]) -> Excess:
        return Excess(self._known, x, log_p, float(np.finfo(self._mixture.dtype).eps))

    def _count(
        self, now: Excess, usable: Bool[np.ndarray, " N"], near: Bool[np.ndarray, " N"], unexplained: int
    ) -> None:
        """Count probes that are explained by the end of a round like runs that ended there.

        If some were never explained, nor followed by a run, then only as large a share of these counts as was
        settled of the unexplained ones. Those around single modes do not count: most end in their own mode.
        """
        left = int(np.sum(now.open & usable))
        settled = 1.0 if not left else max(0.0, 1 - left / max(unexplained, left))
        explained = now.mode[usable & ~now.open & ~near]
        for number, times in zip(*np.unique(explained, return_counts=True), strict=True):
            if settled > 0:
                self._hit(int(number), settled * int(times))

    def _hit(self, number: int, times: float = 1.0) -> None:
        """Count starting points that lead to a known mode."""
        self._trials += times
        if number < self._known.own:
            self._covered[number] = self._covered.get(number, 0.0) + times
        else:
            self._hits[number - self._known.own] += times

    # Runs ---------------------------------------------------------------------------------------

    def _run(
        self,
        x: Float[np.ndarray, "R D"],
        log_p: Float[np.ndarray, " R"],
        covariance: Float[np.ndarray, "R D D"],
        from_seen: bool = False,
    ) -> None:
        runs = start_runs(x, log_p, covariance)
        size, reserve = settings(x.shape[1]).size, 3 * (_DRAWS + 1) + len(_BETWEEN)
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
                self._hit(self._known.own + inside[0])
                ended[r] = True
            elif any(_inside(runs.best[r], m) for m in self._negligible):
                self._trials += 1
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
            self._hit(self._known.own + same)
            return
        mode, best = _Mode(x, C, -np.inf, -np.inf), -np.inf
        for margin in (MARGIN, MARGIN, NARROW_MARGIN):
            mean, covariance = self._fitted(x, mode.covariance, margin)
            log_mass, deficit, elbo = self._missing_mass(mean, covariance)
            if elbo >= best:
                mode, best = _Mode(mean, covariance, log_mass, deficit), elbo
        if self._share(mode.log_mass) >= _MIN_SHARE and mode.deficit > UNEXPLAINED:
            self._add(mode)
            self._hit(self._known.own + len(self._modes) - 1)
        elif mode.deficit <= UNEXPLAINED:
            self._hit_covered(self._q.log_joint(mode.mean[None])[0])
        else:
            self._negligible.append(mode)
            self._trials += 1

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
        self, x: Float[np.ndarray, " D"], C: Float[np.ndarray, "D D"], margin: float
    ) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, "D D"]]:
        """By the points that the mixture does not explain: others may lie in a mode that it has."""
        points = np.concatenate([p for p, _ in self._points])
        values = np.concatenate([v for _, v in self._points])
        return fitted_gaussian(points, values, x, C, margin) if len(points) else (x, C)

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
        gaussians = [PathGaussian(m.mean, m.covariance, m.log_mass) for m in self._modes]
        self._known.outside_are(gaussians)

    def _hit_covered(self, joint: Float[np.ndarray, " K"]) -> None:
        self._hit(int(self._known.labels[np.argmax(joint)]))

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
        new = log_p - self._log_z - self._q.log_prob(x) > UNEXPLAINED
        self._points.append((x[new], log_p[new]))
        return log_p


def covered_width(hits: float, dim: int) -> float:
    """The width down to which a mode would have been found, relative to known ones reached so often."""
    return float((_CERTAIN_HITS / hits) ** (1 / dim)) if _CERTAIN_HITS < hits < np.inf else 1.0


def _inside(x: Float[np.ndarray, " D"], mode: _Mode) -> bool:
    return bool(in_mode_of(x[None], mode.mean, mode.covariance)[0])
