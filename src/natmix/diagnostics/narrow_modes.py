"""Narrow modes next to known ones: where to look for them, what shows them, and how narrow they may be.

A mode of the known one's mass and a tenth of its widths rises above it in a small ball only; outside of that
ball neither the density nor its gradient shows it. A search can do no more than evaluate many points. They
are drawn at distances of about 1 to 10 widths around each known mode, on a logarithmic scale: one number of
points then serves all distances.
"""

import functools
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Bool, Float, Int

REACH = 10.0
"""A narrow mode is looked for up to so many widths of a known mode away."""
_NEAREST, _FARTHEST = 0.7, 12.0
"""The distances of probes, in widths of a known mode: a little more than those of the modes looked for."""
_RISE = 0.5
"""Nats by which a narrow mode must raise the log density at a probe to be noticed."""
_OUTLIER, _SMALLEST_SPREAD = 8.0, 0.05
"""A probe is suspicious if its log density exceeds what is known by so many standard deviations more than its
neighbours in distance do. These are estimated robustly, and are at least `_SMALLEST_SPREAD` nats."""
_NEIGHBOURS = 64
_RIDGE = 1e-10
_CERTAINTY = 0.95
_WIDTHS, _DISTANCES = np.geomspace(0.01, 0.8, 60), np.geomspace(2.0, REACH, 12)


class Ellipses(NamedTuple):
    """Centres and covariances of modes."""

    centres: Float[np.ndarray, "M D"]
    covariances: Float[np.ndarray, "M D D"]


def cholesky(covariances: Float[np.ndarray, "*M D D"]) -> Float[np.ndarray, "*M D D"]:
    """Lower factors of covariances; rounding cannot make these indefinite.

    Correlations get a ridge of `_RIDGE`: those of a mode with components far apart in one direction are
    nearly singular.
    """
    scale = np.sqrt(np.diagonal(covariances, axis1=-2, axis2=-1))
    correlations = covariances / (scale[..., :, None] * scale[..., None, :])
    factors: Float[np.ndarray, "*M D D"] = np.linalg.cholesky(correlations + _RIDGE * np.eye(scale.shape[-1]))
    return scale[..., :, None] * factors


def probes_near(modes: Ellipses, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n D"]:
    """Points around the modes in turn, their distances log-uniform in the modes' own widths."""
    M, D = modes.centres.shape
    directions = rng.normal(size=(n, D))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    distances = np.exp(rng.uniform(np.log(_NEAREST), np.log(_FARTHEST), n))
    mode = (np.arange(n) + rng.integers(M)) % M
    steps = distances[:, None] * directions
    out = np.empty((n, D))
    for m in range(M):
        own = mode == m
        out[own] = modes.centres[m] + steps[own] @ cholesky(modes.covariances[m]).T
    return out


def suspicious(excess: Float[np.ndarray, " N"], distance: Float[np.ndarray, " N"]) -> Int[np.ndarray, " S"]:
    """The probes that rise above their neighbours in distance, the most striking first.

    Args:
        excess: log p less the log of the density that is known; not finite where it is not usable.
        distance: from the nearest known mode.
    """
    usable = np.flatnonzero(np.isfinite(excess))
    if not usable.size:
        return usable
    order = usable[np.argsort(distance[usable], kind="stable")]
    blocks = max(1, round(len(order) / _NEIGHBOURS))
    score = np.empty(len(excess))
    for block in np.array_split(order, blocks):
        median = np.median(excess[block])
        spread = 1.4826 * np.median(np.abs(excess[block] - median))
        score[block] = (excess[block] - max(median, 0.0)) / max(spread, _SMALLEST_SPREAD)
    flagged: Bool[np.ndarray, " U"] = (score[usable] > _OUTLIER) & (excess[usable] > _RISE)
    found = usable[flagged]
    return found[np.argsort(-score[found], kind="stable")]


def covered_width(dim: int, probes: float) -> float:
    """The width, relative to a known mode, down to which another of the same mass is found by so many probes.

    It is found with 95% certainty if it lies 2 to `REACH` widths away, log-uniformly, and both are Gaussians
    of the same shape. 1 if there are too few probes even for a mode of four fifths of the width.
    """
    if not probes >= 1:
        return 1.0
    missed = np.mean(np.exp(-probes * _hit_chances(dim)), axis=1)
    found = np.flatnonzero(missed > 1 - _CERTAINTY)
    first = int(found[-1]) + 1 if found.size else 0
    return float(_WIDTHS[first]) if first < len(_WIDTHS) else 1.0


@functools.cache
def _hit_chances(dim: int) -> Float[np.ndarray, "W R"]:
    """The chance that a probe notices a mode, by its width and its distance.

    At distance t from the known mode the narrow one is noticed within a cone around the line to its centre,
    at distance c: where ``(t^2 + c^2 - 2 t c cos) / (2 width^2) < height + t^2 / 2``. The share of directions
    in a cone is an incomplete beta function; the mean over log t is that of a grid.
    """
    width, c, t = np.ix_(_WIDTHS, _DISTANCES, np.geomspace(_NEAREST, _FARTHEST, 1000))
    height = -dim * np.log(width) - np.log(np.expm1(_RISE))
    cosine = (t**2 * (1 - width**2) + c**2 - 2 * width**2 * height) / (2 * t * c)
    sine = np.sqrt(np.clip(1 - cosine**2, 0, 1))
    cap = 0.5 * scipy.special.betainc(max(dim - 1, 1e-9) / 2, 0.5, sine**2)
    chances: Float[np.ndarray, "W R"] = np.where(cosine < 0, 1 - cap, cap).mean(axis=2)
    return chances
