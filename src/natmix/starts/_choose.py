"""The mixture a fit begins with when it climbs first."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from natmix import _defaults
from natmix.gaussians import DiagonalGaussians, FullGaussians
from natmix.mixture import Mixture
from natmix.starts._clusters import clusters
from natmix.starts._reach import reached
from natmix.starts._values import Values
from natmix.starts.pathfinder import Path, different, pathfinder
from natmix.starts.tempered import tempered
from natmix.targets import AbstractTarget

STARTS = ("region", "pathfinder", "tempered")
_PATHS = 8
_REACH = (1.0, 1.0, 3.0)
"""Starting points of climbs, in turn: how many times as wide as the region."""
_MOST_CLUSTERS = 8
"""Gaussians for the points of a tempered warm-up, if nobody says how many."""
_WIDER = 2.0
"""If nobody names a region where to seek components: that of the paths, so many times as wide."""


class Begun(NamedTuple):
    """A beginning.

    Attributes:
        mixture: to start from.
        prior: one Gaussian, where components may be expected.
        evaluations: of the target, to find it.
        note: for the user; empty if there is nothing to say.
    """

    mixture: Mixture
    prior: Mixture
    evaluations: int = 0
    note: str = ""


def begin(
    target: AbstractTarget,
    region: _defaults.Region,
    key: Array,
    dtype: Any,
    diagonal: bool,
    components: int | None,
    most_evaluations: int | None = None,
) -> Begun:
    """Begin with Pathfinder's Gaussians; as many components as the user says, or as modes are found."""
    key_region, key_target, key_x = jax.random.split(key, 3)
    n = 1 if components is None else components
    mixture, prior = _defaults.start(target.dim, dtype, key_region, region, diagonal, n)
    values = Values(target, key_target, jnp.dtype(dtype), most_evaluations)
    x0 = reached(prior, key_x, max(_PATHS, n), _REACH)
    found = different(pathfinder(values, x0, int(jax.random.bits(key_x))))[:components]
    if not found:
        note = "No climb found a Gaussian with a finite ELBO; the start region itself was taken."
        return Begun(mixture, prior, values.evaluations, note)
    begun = _mixture(found, dtype, diagonal)
    return Begun(begun, prior if region.given else _wider(begun, dtype), values.evaluations)


def warm_up(
    target: AbstractTarget,
    region: _defaults.Region,
    key: Array,
    dtype: Any,
    diagonal: bool,
    components: int | None,
    most_evaluations: int | None = None,
) -> Begun:
    """Begin with Gaussians for points that a tempered warm-up has led from the region to the target."""
    key_region, key_target, key_x = jax.random.split(key, 3)
    n = 1 if components is None else components
    mixture, prior = _defaults.start(target.dim, dtype, key_region, region, diagonal, n)
    values = Values(target, key_target, jnp.dtype(dtype), most_evaluations)
    seed = int(jax.random.bits(key_x))
    cloud = tempered(values, prior, seed, gradients=target.has_gradient)
    if cloud is None:
        note = "No point of the start region has a positive density; the region itself was taken."
        return Begun(mixture, prior, values.evaluations, note)
    found = clusters(cloud.x, _MOST_CLUSTERS if components is None else n, np.random.default_rng(seed))
    family = DiagonalGaussians if diagonal else FullGaussians
    parts = family.from_covariance(jnp.asarray(found.means, dtype), jnp.asarray(found.covariances, dtype))
    begun = Mixture(jnp.asarray(np.log(found.weights), dtype), parts)
    note = ""
    if cloud.b < 1:
        note = f"The tempered warm-up ended at {cloud.b:.2g} of its way, for want of evaluations or steps."
    return Begun(begun, prior if region.given else _wider(begun, dtype), values.evaluations, note)


def _wider(begun: Mixture, dtype: Any) -> Mixture:
    wide = begun.covariance() * _WIDER**2
    family = type(begun.components)
    return Mixture(jnp.zeros(1, dtype), family.from_covariance(begun.mean()[None], wide[None]))


def _mixture(paths: list[Path], dtype: Any, diagonal: bool) -> Mixture:
    elbos = np.array([p.elbo for p in paths])
    weights = np.maximum(np.exp(elbos - elbos.max()), 1e-3)
    means = jnp.asarray(np.stack([p.mean for p in paths]), dtype)
    covariances = jnp.asarray(np.stack([p.covariance for p in paths]), dtype)
    family = DiagonalGaussians if diagonal else FullGaussians
    return Mixture(
        jnp.asarray(np.log(weights / weights.sum()), dtype), family.from_covariance(means, covariances)
    )
