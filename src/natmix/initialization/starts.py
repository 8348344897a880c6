"""The mixture a fit begins with when it climbs first."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from natmix.gaussians import DiagonalGaussians, FullGaussians
from natmix.initialization.clusters import clusters
from natmix.initialization.evaluator import Values
from natmix.initialization.pathfinder import Path, different, pathfinder
from natmix.initialization.region import Region, initial_mixture
from natmix.initialization.starting_points import reached
from natmix.initialization.tempered import tempered
from natmix.mixture import Mixture
from natmix.targets import AbstractTarget

_PATHS = 8
_REACH = (1.0, 1.0, 3.0)
"""Starting points of climbs, in turn: how many times as wide as the region."""
_MOST_CLUSTERS = 8
"""Gaussians for the points of a tempered warm-up, if nobody says how many."""
_WIDER = 2.0
"""If nobody names a region where to seek components: that of the paths, so many times as wide."""


Found = tuple[Mixture | None, str]
"""What a method found, if anything, and a note for the user."""


class Begun(NamedTuple):
    """A beginning.

    Attributes:
        mixture: to start from.
        prior: one Gaussian, where components may be expected; None for the mixture's own mean and covariance.
        evaluations: of the target, to find it.
        note: for the user; empty if there is nothing to say.
    """

    mixture: Mixture
    prior: Mixture | None
    evaluations: int = 0
    note: str = ""


def begin(
    method: str,
    target: AbstractTarget,
    region: Region,
    key: Array,
    dtype: Any,
    diagonal: bool,
    components: int | None,
    most_evaluations: int | None = None,
) -> Begun:
    """Begin with what ``method``, one of `METHODS`, finds from the region; else with the region itself."""
    key_region, key_target, key_x = jax.random.split(key, 3)
    n = 1 if components is None else components
    mixture, prior = initial_mixture(target.dim, dtype, key_region, region, diagonal, n)
    values = Values(target, key_target, jnp.dtype(dtype), most_evaluations)
    found, note = METHODS[method](target, values, prior, key_x, components, diagonal)
    if found is None:
        return Begun(mixture, prior, values.evaluations, note)
    return Begun(found, prior if region.given else _wider(found), values.evaluations, note)


def _climbed(
    _: AbstractTarget, values: Values, prior: Mixture, key: Array, components: int | None, diagonal: bool
) -> Found:
    """Pathfinder's Gaussians; as many components as the user says, or as modes are found."""
    x0 = reached(prior, key, max(_PATHS, components or 1), _REACH)
    found = different(pathfinder(values, x0, int(jax.random.bits(key))))[:components]
    if not found:
        return None, "No climb found a Gaussian with a finite ELBO; the start region itself was taken."
    return _mixture(found, prior.dtype, diagonal), ""


def _led(
    target: AbstractTarget,
    values: Values,
    prior: Mixture,
    key: Array,
    components: int | None,
    diagonal: bool,
) -> Found:
    """Gaussians for points that a tempered warm-up has led from the region to the target."""
    seed = int(jax.random.bits(key))
    cloud = tempered(values, prior, seed, gradients=target.has_gradient)
    if cloud is None:
        return None, "No point of the start region has a positive density; the region itself was taken."
    found = clusters(cloud.x, components or _MOST_CLUSTERS, np.random.default_rng(seed))
    note = ""
    if cloud.b < 1:
        note = f"The tempered warm-up ended at {cloud.b:.2g} of its way, for want of evaluations or steps."
    return _gaussians(found.weights, found.means, found.covariances, prior.dtype, diagonal), note


METHODS: dict[str, Callable[..., Found]] = {"pathfinder": _climbed, "tempered": _led}
STARTS = ("region", *METHODS)


def _wider(begun: Mixture) -> Mixture:
    wide = begun.covariance() * _WIDER**2
    family = type(begun.components)
    return Mixture(jnp.zeros(1, begun.dtype), family.from_covariance(begun.mean()[None], wide[None]))


def _mixture(paths: list[Path], dtype: Any, diagonal: bool) -> Mixture:
    elbos = np.array([p.elbo for p in paths])
    weights = np.maximum(np.exp(elbos - elbos.max()), 1e-3)
    means, covariances = (np.stack(a) for a in zip(*((p.mean, p.covariance) for p in paths), strict=True))
    return _gaussians(weights / weights.sum(), means, covariances, dtype, diagonal)


def _gaussians(
    weights: np.ndarray, means: np.ndarray, covariances: np.ndarray, dtype: Any, diagonal: bool
) -> Mixture:
    family = DiagonalGaussians if diagonal else FullGaussians
    parts = family.from_covariance(jnp.asarray(means, dtype), jnp.asarray(covariances, dtype))
    return Mixture(jnp.asarray(np.log(weights), dtype), parts)
