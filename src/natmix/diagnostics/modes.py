"""Which components belong to one mode, and whether a mode has the weight it should have."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from natmix.mixture import Mixture

_MOST, _FEWEST = 128, 16
"""Components looked at in pairs: the heaviest; others join the mode most responsible for their mean."""
_MULTIPLICATIONS = 2e10
"""What the densities between all pairs may cost, about: fewer are looked at where they are dear."""
_BETWEEN = np.linspace(0, 1, 9)[1:-1]
_DIP = np.log(2)
"""Two components are one mode unless the density between them falls below half of the lower end."""


class Mode(NamedTuple):
    """A group of components with no valley between them.

    Attributes:
        mean: of the group.
        components: how many.
        share: of the mixture's weight.
        corrected_share: the same by importance sampling.
        standard_error: of ``corrected_share``.
    """

    mean: Float[np.ndarray, " D"]
    components: int
    share: float
    corrected_share: float
    standard_error: float


def group(mixture: Mixture) -> Int[np.ndarray, " K"]:
    """The number of the mode of every component, the heaviest mode first."""
    weights = np.asarray(mixture.weights, float)
    heavy = np.argsort(-weights, kind="stable")[: _looked_at(mixture)]
    means = np.asarray(mixture.means)[heavy]
    label = _climbed(np.asarray(mixture.log_prob(means), float), _passes(mixture, means))
    labels = np.empty(len(weights), int)
    labels[heavy] = label
    light = np.setdiff1d(np.arange(len(weights)), heavy)
    if light.size:
        r = np.asarray(mixture.responsibilities(np.asarray(mixture.means)[light]))
        labels[light] = labels[heavy[np.argmax(r[:, heavy], axis=1)]]
    found, numbered = np.unique(labels, return_inverse=True)
    mass = np.bincount(numbered, weights)
    rank = np.empty(len(found), int)
    rank[np.argsort(-mass, kind="stable")] = np.arange(len(found))
    return rank[numbered]


def _looked_at(mixture: Mixture) -> int:
    one = mixture.num_components * mixture.dim ** (1 if mixture.components.axis_aligned else 2)
    affordable = int(np.sqrt(2 * _MULTIPLICATIONS / (len(_BETWEEN) * one)))
    return int(np.clip(affordable, _FEWEST, _MOST))


def _passes(mixture: Mixture, means: Float[np.ndarray, "K D"]) -> Float[np.ndarray, "K K"]:
    """The lowest log density on the best way between two means: straight, or over other means."""
    K = len(means)
    first, second = np.triu_indices(K, 1)
    passes = np.full((K, K), -np.inf)
    if first.size:
        steps = _BETWEEN[:, None, None]
        path = (1 - steps) * means[first] + steps * means[second]
        heights = np.asarray(mixture.log_prob(path.reshape(-1, mixture.dim)), float)
        passes[first, second] = passes[second, first] = heights.reshape(len(_BETWEEN), -1).min(axis=0)
    for k in range(K):
        passes = np.maximum(passes, np.minimum(passes[:, k, None], passes[None, k]))
    return passes


def _climbed(heights: Float[np.ndarray, " K"], passes: Float[np.ndarray, "K K"]) -> Int[np.ndarray, " K"]:
    """For every component the highest one of its mode."""
    label = np.empty(len(heights), int)
    peaks: list[int] = []
    for k in np.argsort(-heights, kind="stable"):
        best = max(peaks, key=lambda p: passes[k, p], default=-1)
        joins = best >= 0 and passes[k, best] >= heights[k] - _DIP
        label[k] = best if joins else k
        if not joins:
            peaks.append(int(k))
    return label


def modes(
    mixture: Mixture, x: Float[np.ndarray, "N D"], weights: Float[np.ndarray, " N"]
) -> tuple[Mode, ...]:
    """The mixture's modes, with their shares by samples of the mixture and their importance weights."""
    labels = group(mixture)
    components = np.asarray(mixture.weights, float)
    responsible = np.asarray(mixture.responsibilities(jnp.asarray(x, mixture.dtype)), float)
    members = np.stack([labels == m for m in range(labels.max() + 1)])
    shares = members @ components
    shares = shares / shares.sum()
    inside = responsible @ members.T
    # The mixture's shares are known: only the mean weight within a mode has to be estimated.
    counted = np.maximum(inside.sum(axis=0), np.finfo(float).tiny)
    mean_weight = weights @ inside / counted
    spread = np.sqrt(np.sum((inside * (weights[:, None] - mean_weight)) ** 2, axis=0)) / counted
    total = shares @ mean_weight
    corrected = shares * mean_weight / total
    # To first order in the mean weights, which are nearly independent.
    by_own = (shares * (1 - corrected) * spread) ** 2
    by_others = corrected**2 * (np.sum((shares * spread) ** 2) - (shares * spread) ** 2)
    errors = np.sqrt(by_own + by_others) / total
    means = (members * components) @ np.asarray(mixture.means, float) / (members @ components)[:, None]
    return tuple(
        Mode(means[m], int(members[m].sum()), float(shares[m]), float(corrected[m]), float(errors[m]))
        for m in range(len(shares))
    )
