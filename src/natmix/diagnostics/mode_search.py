"""Look for modes that the mixture does not have: climb from many points, and see what is up there.

Only where the mixture is too low at the end of a climb does the search go on, with a Gaussian for what is
there.
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
from natmix.diagnostics.modes import group
from natmix.initialization import Path, belongs, best_of_path, different
from natmix.initialization.evaluator import SpentError, Values
from natmix.initialization.lbfgs import Way, climb
from natmix.kernels.threads import single_threaded_blas
from natmix.mixture import Mixture
from natmix.targets import AbstractTarget

REACH = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Starting points, in turn: how many times as wide as the start region.

With 32 climbs, two Gaussians as wide as the region and in 2 and 10 dimensions, the second one was found in 32
of 32 searches at 30 and 50 times that width, in 15 of 16 at 100, in 12 of 16 at 200 and in 1 of 16 at 500
(benchmarks/quality/missed_modes.py). A mode
three times narrower than the other has next to no slope of its own: 11 of 64 in 2 dimensions and none in 10
were found, whatever their distance.
"""
_LACKING, _LOW = np.log(20), 1.0
"""Nats of log density that the mixture must lack at the middle of a mode, and at the end of a climb for the
middle to be sought. Of a mode with a hundredth of all mass 2000 samples of the mixture have one or none then;
with 2 nats a regression's third mode was called missed, of which the mixture's samples knew."""
_WORTH = 0.01
"""Share of all mass that a missed mode must have."""


class MissedMode(NamedTuple):
    """A mode of the target where the mixture is far too low.

    Attributes:
        position: its middle.
        share: of all mass, by the ELBO of one Gaussian there: a lower bound.
        lack: nats by which the mixture's log density is too low there.
    """

    position: Float[np.ndarray, " D"]
    share: float
    lack: float


class Hunt(NamedTuple):
    """What a search for missed modes found.

    Attributes:
        missed: modes that the mixture does not have, the largest first.
        found: different modes found, of the mixture and missed.
        starts: climbs made, without those that the evaluations did not suffice for.
        evaluations: of the target (values and gradients; a Hessian counts as D).
    """

    missed: tuple[MissedMode, ...]
    found: int
    starts: int
    evaluations: int


def hunt(
    mixture: Mixture,
    target: AbstractTarget,
    start: Mixture,
    log_evidence: float,
    key: PRNGKey,
    starts: int,
    most: int | None = None,
    seconds: float = np.inf,
) -> Hunt:
    """Climb from ``starts`` samples of the start region, made 1 to 100 times as wide (`REACH`).

    With ``most`` evaluations, and no further climb after so many seconds.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    values = Values(target, key, mixture.dtype, most)
    until = time.monotonic() + seconds
    ways = _climbed(values, _scattered(start, starts, rng), until)
    ends = [w for w in ways if np.isfinite(w.value[-1])]
    if not ends:
        return Hunt((), 0, len(ways), values.evaluations)
    joint = _joint(mixture, np.stack([w.x[-1] for w in ends]))
    here = scipy.special.logsumexp(joint, axis=1)
    lack = np.array([w.value[-1] for w in ends]) - log_evidence - here
    known = set(group(mixture)[np.argmax(joint, axis=1)[lack <= _LOW]].tolist())
    low = sorted((w for w, d in zip(ends, lack, strict=True) if d > _LOW), key=lambda w: -w.value[-1])
    found, heights = _middles(values, low, rng, until)
    missed, others = _lacking(mixture, found, heights, log_evidence) if found else ((), set())
    return Hunt(missed, len(known | others) + len(missed), len(ways), values.evaluations)


def _scattered(region: Mixture, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n D"]:
    """Samples of a Gaussian made wider by the factors in `REACH` in turn."""
    L = np.linalg.cholesky(np.asarray(region.covariances[0], float))
    steps = rng.normal(size=(n, len(L))) @ L.T
    return np.asarray(region.means[0], float) + np.resize(REACH, n)[:, None] * steps


def _climbed(values: Values, starts: Float[np.ndarray, "N D"], until: float) -> list[Way]:
    ways: list[Way] = []
    quiet = np.errstate(over="ignore", invalid="ignore")
    with contextlib.suppress(SpentError), quiet, single_threaded_blas():
        for x in starts:
            if ways and time.monotonic() > until:
                break
            ways.append(climb(values, x))
    return [w for w in ways if w.ended]


def _middles(
    values: Values, ways: list[Way], rng: np.random.Generator, until: float
) -> tuple[list[Path], Float[np.ndarray, " M"]]:
    """A Gaussian for every mode that the ways lead to, and the log density at its middle."""
    made: list[Path] = []
    quiet = np.errstate(over="ignore", invalid="ignore")
    with contextlib.suppress(SpentError), quiet, single_threaded_blas():
        for way in ways:
            if made and time.monotonic() > until:
                break
            if not any(belongs(way.x[-1], path) for path in made if np.isfinite(path.elbo)):
                made.append(best_of_path(values, way, rng))
    found = different(made)
    with contextlib.suppress(SpentError):
        return found, values.alone(np.stack([p.mean for p in found])) if found else np.empty(0)
    return [], np.empty(0)


def _lacking(
    mixture: Mixture, found: list[Path], heights: Float[np.ndarray, " M"], log_evidence: float
) -> tuple[tuple[MissedMode, ...], set[int]]:
    """Modes that the mixture lacks, and numbers of its own modes in which the other middles are."""
    middles = np.stack([p.mean for p in found])
    masses = np.array([p.elbo for p in found])
    joint = _joint(mixture, middles)
    lack = heights - log_evidence - scipy.special.logsumexp(joint, axis=1)
    lacking = lack > _LACKING
    total = scipy.special.logsumexp([log_evidence, *masses[lacking]])
    modes = [
        MissedMode(middles[i], float(np.exp(masses[i] - total)), float(lack[i]))
        for i in np.flatnonzero(lacking)
    ]
    missed = tuple(sorted((m for m in modes if m.share >= _WORTH), key=lambda m: -m.share))
    return missed, set(group(mixture)[np.argmax(joint, axis=1)[~lacking]].tolist())


def _joint(mixture: Mixture, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N K"]:
    """Log q(x, o)."""
    points = jnp.asarray(x, mixture.dtype)
    return np.asarray(mixture.component_log_prob(points), float) + np.asarray(mixture.log_weights, float)
