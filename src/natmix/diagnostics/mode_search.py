"""Search for modes that the mixture does not cover: L-BFGS runs from many points, compared where they end.

Where the mixture's density is too low at the end of a run, Pathfinder's Gaussian for that mode tells how much
mass it has. Between the runs single evaluations at many points, called probes, look for places that no known
mode explains: in many dimensions a mode attracts few runs. At the end other probes look for narrow modes next
to the known ones (`narrow_modes`).
"""

import contextlib
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from natmix.diagnostics.budget import EVALUATIONS_PER_RUN
from natmix.diagnostics.known_modes import KnownModes, MissedMode
from natmix.diagnostics.narrow_modes import covered_width, probes_near, suspicious
from natmix.diagnostics.search_problem import SearchProblem
from natmix.diagnostics.search_starts import REACH, around_modes, around_region, probes, reach
from natmix.initialization.evaluator import BudgetSpentError
from natmix.initialization.lbfgs import LbfgsPath
from natmix.initialization.lbfgs_batch import lbfgs_runs
from natmix.initialization.pathfinder import best_gaussian, widened
from natmix.kernels.threads import single_threaded_blas

PROBES_PER_RUN = 16
"""Probes for every L-BFGS run."""
_PROBED_SHARE = 0.75
"""Of the evaluations left, at most: the others are for runs from what probes find."""
_MAX_PROBES = 2**18
"""In one round."""
_BATCH, _SMALLEST_BATCH, _FOLLOWED = 64, 8, 8
"""L-BFGS runs at once, at most and at least, and those from probes that no known mode explains."""
_PATH_GAUSSIANS = 8
"""Gaussians that are compared along a path, beside the Laplace approximation at its end."""
_MAX_ROUND = 16
"""A round has at most so many times the runs of the first one."""
_OFTEN, _TOLERATED_UNREACHED = 20, 0.05
"""A search that widens ends when all but so many of the known modes were reached that often: a mode that
attracts twenty times fewer runs than the rarest known one would then have been reached once."""

_NEW_MODE = 0.035
"""And when the chance that another run finds a new mode is below this."""

_LEAST_PROBES = 5000
"""And if several modes are known, after at least so many probes: a mode that one in a thousand reaches is
then found with 99% certainty. Where widths differ, narrow modes own small parts of the space between wide
ones, in which few runs start."""
_LEAST_SHARE = 1 / 6
"""Of the evaluations left, at most: probes for narrow modes next to the known ones come afterwards."""

_SEVERAL = 5
"""A search is thorough if it has reached all but that share of the known modes so often."""
_LIKELY = 0.05
"""Without gradients the chance that another starting point leads to a new mode must also be at most this."""
NARROW_WIDTH, MANY_PROBES = 0.08, 30_000
"""And if it has looked for modes down to that width, relative to their neighbour, or where that takes more
probes than these, down to the width that these cover: in five dimensions 0.23, in thirty hardly any."""
_FIRST_SHARE = 0.5
"""Of the evaluations, for rounds of runs and probes before the search for narrow modes."""
MOST_PROBES, _FINEST = 100_000, 0.02
"""It goes on up to so many probes, or down to that width."""
_NARROW_NEIGHBOUR = 0.3
"""Where probes cover it, a mode of that width next to a wider one is theirs to find, not that of runs."""
_FIRST_BLOCK, _LARGEST_BLOCK = 512, 4096
"""Probes for narrow modes are evaluated in blocks that grow eightfold, as the evaluator pads them."""
_FIRST_STEP = 0.01
"""Of L-BFGS runs from such probes, in widths of the known mode: a longer step would leave a narrow one."""
_PROBES_PER_FOLLOWED = 160
"""At most so many runs start from suspicious probes: they take about a quarter of what the probes take."""


class ModeSearch(NamedTuple):
    """What a search for missed modes found.

    Attributes:
        missed: modes that the mixture does not cover, the largest first.
        found: the number of distinct modes found, covered and missed.
        runs: the number of finished runs of L-BFGS. Without gradients the number of starting points of which
            it is known where a run from there ends.
        evaluations: of the target (values and gradients; a Hessian counts as D).
        hits: how many runs and probes ended in each known mode, found now or before; modes below a hundredth
            of the mass do not count, nor do narrow ones next to a wider one, which few runs can reach.
        method: how it was searched: "L-BFGS", or "population" for a target without gradients.
        once: the number of modes that exactly one run has reached; None for those with one of ``hits``.
        trials: the number of runs that ended in some mode, minor ones included; 0 for the sum of ``hits``.
        near_probes: evaluations in search of narrow modes next to the known ones.
        covered_width: the width down to which such a mode would have been found with 95% certainty, relative
            to a known mode of the same mass at most 10 of its widths away; 1 if hardly any would. Without
            gradients: relative to the known modes, anywhere.
        narrow_goal: the width that suffices for the search to be thorough.
        dof: degrees of freedom that the tails of the modes seem to have; infinite for Gaussians.
        reach: how many times as wide as the initial region the starting points were spread, at most.
    """

    missed: tuple[MissedMode, ...]
    found: int
    runs: int
    evaluations: int
    hits: tuple[int, ...] = ()
    method: str = "L-BFGS"
    once: int | None = None
    trials: int = 0
    near_probes: int = 0
    covered_width: float = 1.0
    narrow_goal: float = 1.0
    dof: float = np.inf
    reach: float = max(REACH)

    @property
    def new_mode_chance(self) -> float:
        """An upper bound of the chance that another run ends in a mode that no run has reached.

        Good and Turing estimate it by the share of runs that were the only one to reach their mode
        (I. J. Good, Biometrika 1953). The bound is that of a Poisson number of such runs, with 95%
        confidence; with none of n it is 3 / n.
        """
        trials = self.trials or sum(self.hits)
        if not trials:
            return 1.0
        once = sum(h == 1 for h in self.hits) if self.once is None else self.once
        return float(min(1.0, scipy.special.gammaincinv(once + 1, 0.95) / trials))

    @property
    def seldom(self) -> int:
        """The number of known modes with a hundredth of the mass that it has reached seldom or never."""
        return sum(h < _SEVERAL for h in self.hits)

    @property
    def thorough(self) -> bool:
        """Whether it has reached nearly all known modes several times, so that it would reach others."""
        return not self.ended_early and self.seldom <= _TOLERATED_UNREACHED * len(self.hits)

    @property
    def ended_early(self) -> bool:
        """Whether a search without gradients ended while it still expected new modes."""
        return self.method == "population" and self.new_mode_chance > _LIKELY

    @property
    def covers_narrow_modes(self) -> bool:
        """Whether it has looked for narrow modes as well as can be asked for in this dimension."""
        return self.covered_width <= self.narrow_goal


def search_modes(
    problem: SearchProblem,
    runs: int,
    starts: Float[np.ndarray, "S D"] | None = None,
    *,
    probed: int = 0,
    widen: bool = False,
    near_probes: int = 0,
) -> ModeSearch:
    """L-BFGS runs and probes around the initial region and around the known modes.

    Args:
        problem: what is searched, and within which limits.
        runs: the number of L-BFGS runs in the first round.
        starts: points to start from first, in addition.
        probed: the number of probes in the first round, `PROBES_PER_RUN` for each run if that is more.
        widen: double the runs and probes of a round until one finds nothing new and nearly all known modes
            were reached often.
        near_probes: the most probes for narrow modes, which follow if nothing is missed.
    """
    search = _LbfgsSearch(problem)
    quiet = np.errstate(over="ignore", invalid="ignore")
    counted = search.evaluator.failures_counted()
    with counted, contextlib.suppress(BudgetSpentError), quiet, single_threaded_blas():
        search.run_from(np.empty((0, problem.mixture.dim)) if starts is None else starts)
        search.widening(runs, probed)
        settled = search.go_on(widen, _FIRST_SHARE * search.evaluator.remaining)
        search.look_near(near_probes)
        if not settled:
            search.go_on(widen, np.inf)
    return search.result()


class _LbfgsSearch:
    def __init__(self, problem: SearchProblem) -> None:
        self._rng, self.evaluator = problem.rng(), problem.evaluator()
        narrow = covered_width(problem.mixture.dim, MANY_PROBES)
        self._known = KnownModes(
            problem.mixture, problem.log_evidence, _NARROW_NEIGHBOUR if narrow <= _NARROW_NEIGHBOUR else 0.0
        )
        self._region, self._reach = problem.region, max(REACH)
        self._runs = self._trials = self._probes = self._near_probes = 0
        self._per_run = float(EVALUATIONS_PER_RUN)
        self._explained_share = 0.0
        self._covered, self._narrow_goal = 1.0, NARROW_WIDTH

    def widening(self, runs: int, probed: int) -> None:
        """Set the numbers of runs and probes of the first round."""
        self._runs_now, self._most_runs = runs, _MAX_ROUND * runs
        self._probes_now = max(PROBES_PER_RUN * runs, probed)

    def go_on(self, widen: bool, most: float) -> bool:
        """Rounds until one says that the search may end, or about so many evaluations are spent."""
        while not self._round(self._runs_now, self._probes_now):
            self._runs_now = min(2 * self._runs_now, self._most_runs)
            self._probes_now = self._more_probes(self._probes_now)
            if not widen or 2 * self.evaluator.evaluations > most:
                return not widen
        return True

    def _round(self, runs: int, probed: int) -> bool:
        """One round of runs and probes; whether the search may end after it."""
        before = len(self._known.missed())
        centres = self._known.centres
        half = runs // 2 if len(centres) > 1 else 0
        points = [around_region(self._region, centres, runs - half, self._rng)]
        self._reach = max(self._reach, *reach(self._region, centres))
        points += [around_modes(centres, half, self._rng)] if half else []
        self.run_from(np.concatenate(points))
        self._probe(probed, runs)
        if self._ends(before) and len(self._known.centres) > 1:
            least = min(_LEAST_PROBES, int(_LEAST_SHARE * self.evaluator.remaining))
            self._probe(least - self._probes, runs)
        return self._ends(before)

    def _ends(self, before: int) -> bool:
        """Whether the search may end, by its hits, if so many modes were missed before the round."""
        hits = self._known.major_hits()
        settled = sum(h < _OFTEN for h in hits) <= _TOLERATED_UNREACHED * len(hits)
        certain = self.result().new_mode_chance <= _NEW_MODE
        return len(self._known.missed()) == before and settled and certain

    def _more_probes(self, probed: int) -> int:
        """Twice as many, unless what is known explains too few: then runs tell more."""
        return min(2 * probed, _MAX_PROBES) if self._explained_share > 0.5 else probed

    def look_near(self, most: int) -> None:
        """Probes for narrow modes next to the known ones, until one is found or all were looked for."""
        block, dim = _FIRST_BLOCK, self._region.dim
        number = len(self._known.major_ellipses().centres)
        self._narrow_goal = max(NARROW_WIDTH, covered_width(dim, MANY_PROBES / number))
        possible = covered_width(dim, MOST_PROBES / number) < 1
        while possible and self._covered > _FINEST and not self._known.missed():
            n = int(min(block, most - self._near_probes, _PROBED_SHARE * self.evaluator.remaining))
            if n < 1:
                return
            modes = self._known.major_ellipses()
            x = probes_near(modes, n, self._rng)
            log_p = self.evaluator.log_density(x)
            distance, width = self._known.distances(x)
            log_q, _ = self._known.explain_with_tails(x, log_p)
            found = suspicious(self._known.deficit(log_p, log_q), distance)
            most_runs = max(_FOLLOWED, n // _PROBES_PER_FOLLOWED)
            for i in range(0, min(len(found), most_runs), _FOLLOWED):
                chosen = found[i : i + _FOLLOWED]
                self.run_from(x[chosen], _FIRST_STEP * width[chosen])
                if self._known.missed():
                    return
            self._near_probes += n
            self._covered = covered_width(dim, self._near_probes / len(modes.centres))
            block = min(8 * block, _LARGEST_BLOCK)

    def run_from(
        self, points: Float[np.ndarray, "N D"], first_steps: Float[np.ndarray, " N"] | None = None
    ) -> None:
        """An L-BFGS run from every point."""
        steps = np.ones(len(points)) if first_steps is None else first_steps
        start = 0
        while start < len(points):
            end = start + self._batch()
            before = self.evaluator.evaluations
            paths = lbfgs_runs(self.evaluator, points[start:end], steps[start:end])
            self._per_run = (self.evaluator.evaluations - before) / len(paths)
            for path in paths:
                if path.finished:
                    self._take(path)
            if not all(path.finished for path in paths):
                raise BudgetSpentError
            start = end

    def _batch(self) -> int:
        """How many runs to make at once: no more than half of what is left suffices for, or few would end."""
        most = self.evaluator.remaining / (2 * max(self._per_run, 1.0))
        return int(np.clip(most, _SMALLEST_BATCH, _BATCH))

    def _take(self, path: LbfgsPath) -> None:
        """Count a run in the mode where it ended."""
        self._runs += 1
        if not np.isfinite(path.log_density[-1]):
            return
        self._trials += 1
        mode = self._known.mode_at(path.x[-1], float(path.log_density[-1]))
        if mode is None:
            gaussian = best_gaussian(self.evaluator, path, self._rng, _PATH_GAUSSIANS)
            if not np.isfinite(gaussian.elbo):
                return
            gaussian = widened(self.evaluator, gaussian, self._rng, self._known.log_explained)
            log_density = float(self.evaluator.log_density(gaussian.mean[None])[0])
            mode = self._known.add(gaussian, log_density, path.x[-1])
        self._known.hit(mode)
        self._known.run_hits[mode] = self._known.run_hits.get(mode, 0) + 1

    def _probe(self, n: int, most_runs: int) -> None:
        """Single evaluations, and runs from those that no known mode explains."""
        n = int(min(n, _PROBED_SHARE * self.evaluator.remaining))
        if n < 1:
            return
        self._probes += n
        x = probes(self._region, self._known.centres, n, self._rng)
        log_p = self.evaluator.log_density(x)
        log_q, mode = self._known.explain_with_tails(x, log_p)
        left = self._known.unexplained(log_p, log_q)
        explained = np.setdiff1d(np.flatnonzero(np.isfinite(log_p)), left)
        for number, times in zip(*np.unique(mode[explained], return_counts=True), strict=True):
            self._known.hit(int(number), int(times))
        self._known.without_peaks()
        self._explained_share = len(explained) / n
        left = left[np.argsort(-(log_p - log_q)[left], kind="stable")]
        for _ in range(0, most_runs, _FOLLOWED):
            if not len(left):
                return
            before = len(self._known.outside)
            self.run_from(x[left[:_FOLLOWED]])
            left = left[_FOLLOWED:]
            if len(left) and len(self._known.outside) > before:
                log_q, _ = self._known.explain_with_tails(x[left], log_p[left])
                left = left[self._known.unexplained(log_p[left], log_q)]

    def result(self) -> ModeSearch:
        known = self._known
        found = len(known.hits) if self._runs else 0
        return ModeSearch(
            known.missed(),
            found,
            self._runs,
            self.evaluator.evaluations,
            known.major_hits(),
            once=known.reached_once(),
            trials=self._trials,
            near_probes=self._near_probes,
            covered_width=self._covered,
            narrow_goal=self._narrow_goal,
            dof=known.dof,
            reach=self._reach,
        )
