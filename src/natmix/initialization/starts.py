"""Initial mixtures found by evaluating the target: Pathfinder and tempering."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix.gaussians import DiagonalGaussians, FullGaussians
from natmix.initialization import defaults
from natmix.initialization.clusters import cluster
from natmix.initialization.evaluator import TargetEvaluator
from natmix.initialization.pathfinder import PathGaussian, distinct_modes, pathfinder
from natmix.initialization.tempered import tempered_samples
from natmix.mixture import Mixture
from natmix.targets import AbstractTarget

_PATHS = 8
_REACH = (1.0, 1.0, 3.0)
"""Starting points of L-BFGS runs are drawn from the region, made so many times as wide, in turn."""
_MAX_CLUSTERS = 8
"""Components for the samples of a tempered initialisation, if the user does not say how many."""
_WIDER = 2.0
"""The prior if the user names no region: as wide as the initial mixture, times this factor."""


Found = tuple[Mixture | None, str]
"""The mixture that a method found, if any, and a note for the user."""


class Initialization(NamedTuple):
    """Where a fit starts.

    Attributes:
        mixture: the initial mixture.
        prior: one Gaussian, from which candidates for new components are drawn.
        evaluations: of the target, to find the initial mixture.
        note: for the user; empty if there is nothing to say.
    """

    mixture: Mixture
    prior: Mixture
    evaluations: int = 0
    note: str = ""


def initialise(
    method: str,
    target: AbstractTarget,
    region: defaults.Region,
    key: Array,
    dtype: Any,
    diagonal: bool,
    components: int | None,
    max_evaluations: int | None = None,
) -> Initialization:
    """What ``method``, one of `METHODS`, finds from the region; the region itself if it finds nothing."""
    key_region, key_target, key_x = jax.random.split(key, 3)
    n = 1 if components is None else components
    mixture, prior = defaults.start(target.dim, dtype, key_region, region, diagonal, n)
    evaluator = TargetEvaluator(target, key_target, jnp.dtype(dtype), max_evaluations)
    found, note = METHODS[method](target, evaluator, prior, key_x, components, diagonal)
    if found is None:
        return Initialization(mixture, prior, evaluator.evaluations, note)
    prior = prior if region.given else _wider(found)
    return Initialization(found, prior, evaluator.evaluations, note)


def _pathfinder(
    _: AbstractTarget,
    evaluator: TargetEvaluator,
    prior: Mixture,
    key: Array,
    components: int | None,
    diagonal: bool,
) -> Found:
    """Pathfinder's Gaussians; as many components as the user says, or as modes are found."""
    starting_points = _starting_points(prior, key, max(_PATHS, components or 1))
    gaussians = pathfinder(evaluator, starting_points, int(jax.random.bits(key)))
    found = distinct_modes(gaussians)[:components]
    if not found:
        return (
            None,
            "Pathfinder found no Gaussian with a finite ELBO: the fit starts from the initial region.",
        )
    return _mixture(found, prior.dtype, diagonal), ""


def _starting_points(region: Mixture, key: Array, n: int) -> Float[np.ndarray, "n D"]:
    """Samples of the region, made wider about its mean by the factors in `_REACH` in turn."""
    centre = np.asarray(region.mean(), float)
    factors = np.resize(_REACH, n)[:, None]
    return centre + factors * (np.asarray(region.sample(n, key=key), float) - centre)


def _tempered(
    target: AbstractTarget,
    evaluator: TargetEvaluator,
    prior: Mixture,
    key: Array,
    components: int | None,
    diagonal: bool,
) -> Found:
    """Gaussians for samples that tempering has moved from the region to the target."""
    seed = int(jax.random.bits(key))
    samples = tempered_samples(evaluator, prior, seed, gradients=target.has_gradient)
    if samples is None:
        return None, "No sample of the initial region has a positive density: the fit starts from the region."
    found = cluster(samples.x, components or _MAX_CLUSTERS, np.random.default_rng(seed))
    note = ""
    if samples.inverse_temperature < 1:
        note = (
            f"Tempering ended at inverse temperature {samples.inverse_temperature:.2g} instead of 1: its "
            "evaluations or steps were used up."
        )
    return _gaussians(found.weights, found.means, found.covariances, prior.dtype, diagonal), note


METHODS: dict[str, Callable[..., Found]] = {"pathfinder": _pathfinder, "tempered": _tempered}
STARTS = ("region", *METHODS)


def _wider(mixture: Mixture) -> Mixture:
    wide = mixture.covariance() * _WIDER**2
    family = type(mixture.components)
    return Mixture(jnp.zeros(1, mixture.dtype), family.from_covariance(mixture.mean()[None], wide[None]))


def _mixture(gaussians: list[PathGaussian], dtype: Any, diagonal: bool) -> Mixture:
    elbos = np.array([g.elbo for g in gaussians])
    weights = np.maximum(np.exp(elbos - elbos.max()), 1e-3)
    means, covariances = (np.stack(a) for a in zip(*((g.mean, g.covariance) for g in gaussians), strict=True))
    return _gaussians(weights / weights.sum(), means, covariances, dtype, diagonal)


def _gaussians(
    weights: np.ndarray, means: np.ndarray, covariances: np.ndarray, dtype: Any, diagonal: bool
) -> Mixture:
    family = DiagonalGaussians if diagonal else FullGaussians
    parts = family.from_covariance(jnp.asarray(means, dtype), jnp.asarray(covariances, dtype))
    return Mixture(jnp.asarray(np.log(weights), dtype), parts)
