"""Verify a settled fit, and let it go on with components where something was missing."""

import math
import sys
from typing import Any, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from natmix.array_types import PRNGKey
from natmix.diagnostics.budget import EVALUATIONS_PER_RUN, MIN_RUNS
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.mode_search import NARROW_WIDTH
from natmix.diagnostics.narrow_modes import covered_width
from natmix.diagnostics.saved_verification import saved_verification, stored_verification
from natmix.diagnostics.verification import Repair, StoredSamples, Verification, verify
from natmix.engine.accuracy import ACCURATE
from natmix.engine.convergence import CHECK_EVERY
from natmix.engine.fit_loop import evaluations_given
from natmix.engine.limits import Limits
from natmix.engine.recorder import Recorder
from natmix.engine.runner import Chunk
from natmix.engine.single_run import SingleRun
from natmix.gmmvi import GMMVI
from natmix.initialization.clusters import cluster
from natmix.kernels.transfer import on_device
from natmix.mixture import Mixture
from natmix.mixture.negligible import usable_components
from natmix.targets import AbstractTarget, JaxTarget

COST_SHARE = 0.25
"""The share of all evaluations of a fit that its verification may take."""
RESERVED_SHARE = 0.15
"""The share of ``max_evaluations`` and of ``max_seconds`` that is reserved for the last one."""
_MIDWAY_SECONDS = 0.5
"""The share of the seconds left that a search on the way may take."""
MIN_EVALUATIONS = 5000
"""With an accuracy to reach, if no limit of evaluations or iterations has ended the fit, it may take so many,
and again as many after each repair: the shorter a fit, the less it has seen of other modes. Samples of
mixtures that were repaired then do not count."""
SEARCH_EVALUATIONS, OUTSIDE_EVALUATIONS = 60_000, 20_000
"""The search of an accurate fit may take so many, or half of what is left of ``max_evaluations``: such a fit
is too short for a share of it to be enough. The first is for targets inside JAX, and suffices for trust:
rounds of L-BFGS runs, `MANY_PROBES` and chains. The second is for gradients from outside, which cost more, in
up to two dimensions, where so many suffice for trust too. In more they would not, and the search keeps to
`COST_SHARE` of the evaluations or to `MIN_EVALUATIONS`."""
MODE_EVALUATIONS = 5_000
"""And so many more for each mode known beyond the first, for a target inside JAX: all of them have to be
reached often enough to tell that there are no others."""
VALUES_EVALUATIONS, VALUES_MODE_EVALUATIONS = 20_000, 2_000
"""The same two without gradients. That search ends by itself when it expects nothing new, with a Gaussian or
two after some hundred evaluations."""
MAX_REPAIRS = 12
"""Verifications after which a fit goes on; the next one has the last word."""
_WIDER = 1.5
"""Candidates for new components are drawn from a Gaussian so many times as wide as all modes together."""
_TAIL_COMPONENTS = 4
"""Components for a missed mode with the tails of Student's t; the fit alone would add them one by one."""
_MAX_CLUSTERS = 3
"""Components for the points that chains have found not covered."""


MIDWAY = "midway"
"""Why a run pauses for a verification before it has settled."""
MIDWAY_SAMPLES = 500
"""Samples of the mixture for that."""
_FIRST_ITERATIONS = 100
"""Iterations before the first one, and between two as long as they find something."""
_FIRST_SHARE = 0.3
"""The first one is earlier if this share of ``max_evaluations`` is spent earlier."""


class StoredMidwayCheck(NamedTuple):
    """What a `MidwayCheck` knows at a checkpoint."""

    next: int
    first: bool


class MidwayCheck(Recorder):
    """Pauses a run for a verification while there is much left for a repair.

    The first one is after `_FIRST_ITERATIONS`; a search then finds at once what additions of one component at
    a time would find late. `again` asks for another one.
    """

    def __init__(self) -> None:
        self._next = _FIRST_ITERATIONS
        self._first = True

    def chunk(self, run: SingleRun, chunk: Chunk) -> str | None:
        if run.stopped is not None or run.iterations % CHECK_EVERY:
            return None
        most = run.limits.max_evaluations
        soon = self._first and most is not None and run.evaluations >= _FIRST_SHARE * most
        if run.iterations < self._next and not soon:
            return None
        self._next, self._first = sys.maxsize, False
        return MIDWAY

    def stored(self) -> StoredMidwayCheck:
        """What is needed to go on."""
        return StoredMidwayCheck(self._next, self._first)

    def restore(self, stored: StoredMidwayCheck) -> None:
        """Go on from there."""
        self._next, self._first = stored

    def again(self, run: SingleRun) -> None:
        """Pause once more, after as many iterations as before the first time."""
        self._next = run.iterations + _FIRST_ITERATIONS


class Addition(NamedTuple):
    """Components to add, and the region for other ones.

    Attributes:
        components: with their shares of the total mass as weights.
        kept: the share of the total mass that the present components keep.
        prior: one Gaussian that covers all of it.
        by: what has found them.
    """

    components: Mixture
    kept: float
    prior: Mixture
    by: str


class StoredVerifier(TypedDict):
    """What a `Verifier` knows at a checkpoint."""

    evaluations: int
    spent: int
    last: dict[str, Any]


class Verifier:
    """Decides how much to search, and what to add for what was found."""

    def __init__(
        self,
        algorithm: GMMVI,
        target: AbstractTarget,
        region: Mixture,
        max_evaluations: int | None,
        accuracy: bool = False,
    ) -> None:
        self._algorithm, self._target, self._region = algorithm, target, region
        self._least = MIN_EVALUATIONS if accuracy else 0
        self._max_evaluations = max_evaluations
        self._repairs: list[Repair] = []
        self._evaluations = self._spent = 0
        self._last = Verification()

    def stored(self) -> StoredVerifier:
        """What is needed to go on."""
        last = saved_verification(self.result())
        return StoredVerifier(evaluations=self._evaluations, spent=self._spent, last=last)

    def restore(self, stored: StoredVerifier) -> None:
        """Go on from there."""
        self._evaluations, self._spent = stored["evaluations"], stored["spent"]
        self._last = stored_verification(stored["last"], self._target.dim)
        self._repairs = list(self._last.repairs)

    @property
    def evaluations(self) -> int:
        """Of the target, so far."""
        return self._evaluations

    @property
    def reserve(self) -> int:
        """Evaluations set aside for it at the start."""
        unlimited = self._max_evaluations is None or self._random
        most = 0 if unlimited else int(RESERVED_SHARE * (self._max_evaluations or 0))
        return most if most >= MIN_RUNS * EVALUATIONS_PER_RUN else 0

    def reserved_seconds(self, limits: Limits) -> float:
        """Seconds set aside for the last search, with the samples before it."""
        return 0.0 if limits.max_seconds is None or self._random else RESERVED_SHARE * limits.max_seconds

    @property
    def _enough(self) -> int:
        """Evaluations for the search of an accurate fit."""
        more = 0 if self._last.mode_search is None else max(len(self._last.mode_search.hits) - 1, 0)
        if not self._target.has_gradient:
            return VALUES_EVALUATIONS + VALUES_MODE_EVALUATIONS * more
        if not self._target.inside_jax:
            return OUTSIDE_EVALUATIONS if self._narrow_modes_show else 0
        return SEARCH_EVALUATIONS + MODE_EVALUATIONS * more

    @property
    def _narrow_modes_show(self) -> bool:
        """Whether the search of a target outside JAX can cover modes as narrow as trust asks for."""
        return covered_width(self._target.dim, OUTSIDE_EVALUATIONS // 4) <= NARROW_WIDTH

    @property
    def _random(self) -> bool:
        return isinstance(self._target, JaxTarget) and self._target.stochastic

    def result(self, unrepaired: str = "") -> Verification:
        """What the last search found, with all that was repaired before."""
        last = self._last
        return Verification(
            last.mode_search,
            last.exploration,
            last.not_searched,
            last.not_explored,
            self._evaluations,
            tuple(self._repairs),
            unrepaired,
        )

    def without_search(self, why: str) -> Verification:
        """What was repaired, for a mixture that no search has been made for."""
        return Verification(
            not_searched=why,
            not_explored=why,
            evaluations=self._evaluations,
            repairs=tuple(self._repairs),
        )

    def spend(self, evaluations: int) -> None:
        """Count samples of the mixture that were evaluated only to verify it."""
        self._evaluations += evaluations
        self._spent += evaluations

    def budget(self, run: SingleRun, other_evaluations: int) -> int:
        """Evaluations that the next search may take, given all others of the fit so far.

        A search on the way takes half of that at most, and leaves the reserve to the last one.
        """
        by_itself = run.stopped in (ACCURATE, "converged", "max_seconds", MIDWAY)
        least = self._least * (1 + len(self._repairs)) + self._spent if self._least and by_itself else 0
        if self._max_evaluations is not None:
            least = min(least, int(COST_SHARE * self._max_evaluations))
        left, midway = run.budget(), run.stopped == MIDWAY
        if run.stopped == ACCURATE:
            enough = self._enough if left is None else min(self._enough, (left + self.reserve) // 2)
            least = max(least, self._evaluations + enough)
        share = max(int(COST_SHARE / (1 - COST_SHARE) * other_evaluations), least) - self._evaluations
        if left is not None:
            share = min(share, left if midway else left + self.reserve)
        return max(share // 2 if midway else share, 0)

    def search(
        self, run: SingleRun, mixture: Mixture, draws: EvaluatedDraws, key: PRNGKey, evaluations: int
    ) -> Addition | None:
        """Search within so many evaluations; None if nothing is missing that the fit could add."""
        left = run.limits.seconds_left(run.now(), run.compile_seconds)
        left = _MIDWAY_SECONDS * left if run.stopped == MIDWAY else left
        try:
            found = verify(
                mixture,
                draws,
                self._target,
                self._region,
                self._stored(run),
                key,
                evaluations,
                left,
                self._last.mode_search,
            )
        except KeyboardInterrupt as error:
            self._evaluations += evaluations_given(error)
            raise
        self._evaluations += found.evaluations
        self._last = found
        return self._addition(mixture, found)

    def repaired(self, run: SingleRun, addition: Addition) -> None:
        """Note that the fit goes on with these components."""
        self._repairs.append(Repair(run.iterations, addition.components.num_components, addition.by))

    @property
    def may_repair(self) -> bool:
        """Whether the algorithm adds components, and not too many repairs were made."""
        return self._algorithm.component_adaptation.adds_components and len(self._repairs) < MAX_REPAIRS

    def _stored(self, run: SingleRun) -> StoredSamples | None:
        stored = self._algorithm.component_adaptation.stored_samples(run.state.component_adaptation)
        if stored is None:
            return None
        x, log_target, filled = jax.device_get(stored)
        return StoredSamples(np.asarray(x[:filled], float), np.asarray(log_target[:filled], float))

    def _addition(self, mixture: Mixture, found: Verification) -> Addition | None:
        search, chains = found.mode_search, found.exploration
        if search is not None and search.missed:
            shares = np.array([m.share for m in search.missed])
            means = np.stack([m.position for m in search.missed])
            usual = np.average(np.asarray(mixture.covariances, float), 0, np.asarray(mixture.weights, float))
            covariances = np.stack([usual if m.covariance is None else m.covariance for m in search.missed])
            scales = tail_scales(search.dof)
            return self._components(
                mixture,
                np.repeat(shares / len(scales), len(scales)),
                np.repeat(means, len(scales), axis=0),
                (covariances[:, None] * scales[:, None, None]).reshape(-1, *covariances.shape[1:]),
                "mode search",
            )
        if chains is not None and chains.significant and len(chains.points):
            points = chains.points
            if len(points) < 2 * (mixture.dim + 1):
                responsible = mixture.responsibilities(points)
                nearest = np.argmax(np.asarray(responsible), axis=1)
                spread = np.asarray(mixture.covariances, float)[nearest].mean(axis=0)
                shares, means, covariances = np.ones(1), points.mean(axis=0)[None], spread[None]
            else:
                shares, means, covariances = cluster(points, _MAX_CLUSTERS, np.random.default_rng(0))
            shares = shares * float(np.clip(chains.uncovered.value, 1e-4, 0.5))
            return self._components(mixture, shares, means, covariances, "chains")
        return None

    def _components(
        self, mixture: Mixture, shares: np.ndarray, means: np.ndarray, covariances: np.ndarray, by: str
    ) -> Addition | None:
        new = _gaussians(mixture, np.log(shares), means, covariances)
        usable = usable_components(new)
        if not usable.all():
            if not usable.any():
                return None
            new = _gaussians(mixture, np.log(shares[usable]), means[usable], covariances[usable])
        kept = max(1.0 - float(shares[usable].sum()), math.exp(-20))
        return Addition(new, kept, self._wider_region(mixture, means[usable], covariances[usable]), by)

    def _wider_region(self, mixture: Mixture, means: np.ndarray, covariances: np.ndarray) -> Mixture:
        """One Gaussian with the mean and covariance of all components, counted alike, made wider."""
        centres = np.concatenate([np.asarray(mixture.means, float), means])
        inside = np.concatenate([np.asarray(mixture.covariances, float), covariances]).mean(axis=0)
        spread = inside + np.cov(centres.T, bias=True).reshape(inside.shape)
        wider = _gaussians(mixture, np.zeros(1), centres.mean(axis=0)[None], _WIDER**2 * spread[None])
        return wider if usable_components(wider).all() else self._region


def tail_scales(dof: float) -> np.ndarray:
    """Factors of the covariance of the Gaussians that together make Student's t.

    It is a mixture of Gaussians over all scales, whose inverse has a gamma distribution.
    """
    if np.isinf(dof):
        return np.ones(1)
    quantiles = (np.arange(_TAIL_COMPONENTS) + 0.5) / _TAIL_COMPONENTS
    return 1 / (scipy.special.gammaincinv(dof / 2, quantiles) / (dof / 2))


def _gaussians(like: Mixture, log_weights: np.ndarray, means: np.ndarray, covariances: np.ndarray) -> Mixture:
    """A mixture of the same family and type; the covariances get the ridge that this type needs."""
    ridge = 10 * float(jnp.finfo(like.dtype).eps)
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    covariances = covariances + ridge * variances[:, :, None] * np.eye(like.dim)
    parts = type(like.components).from_covariance(
        on_device(means, like.dtype), on_device(covariances, like.dtype)
    )
    return Mixture(on_device(log_weights, like.dtype), parts)
