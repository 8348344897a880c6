"""Which components form one mode, and whether each mode has the weight it should have."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from natmix.estimate import Estimate
from natmix.mixture import Mixture

_MAX_COMPARED, _MIN_COMPARED = 128, 16
"""Only so many components, the heaviest, are compared in pairs; others join the mode most responsible for
their mean."""
_MAX_MULTIPLICATIONS = 2e10
"""About what the densities between all pairs may cost: fewer components are compared where they are
expensive."""
_BETWEEN = np.linspace(0, 1, 9)[1:-1]
"""Points on the line between two means."""
_DIP = np.log(2)
"""Two components are one mode unless the density between them falls below half of that at the lower mean."""


class Mode(NamedTuple):
    """A group of components without a dip in density between them.

    Attributes:
        mean: of the group.
        components: the number of components.
        share: of the mixture's weight.
        corrected_share: the same by importance sampling.
        standard_error: of ``corrected_share``.
    """

    mean: Float[np.ndarray, " D"]
    components: int
    share: float
    corrected_share: float
    standard_error: float

    @property
    def corrected(self) -> Estimate:
        """The corrected share with its error."""
        return Estimate(self.corrected_share, self.standard_error)


def mode_labels(mixture: Mixture) -> Int[np.ndarray, " K"]:
    """The mode of every component, numbered from the heaviest mode on."""
    weights = np.asarray(mixture.weights, float)
    heavy = np.argsort(-weights, kind="stable")[: _number_compared(mixture)]
    means = np.asarray(mixture.means)[heavy]
    label = _highest_of_mode(np.asarray(mixture.log_prob(means), float), _passes(mixture, means))
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


def _number_compared(mixture: Mixture) -> int:
    one = mixture.num_components * mixture.dim ** (1 if mixture.components.axis_aligned else 2)
    affordable = int(np.sqrt(2 * _MAX_MULTIPLICATIONS / (len(_BETWEEN) * one)))
    return int(np.clip(affordable, _MIN_COMPARED, _MAX_COMPARED))


def _passes(mixture: Mixture, means: Float[np.ndarray, "K D"]) -> Float[np.ndarray, "K K"]:
    """The lowest log density on the best path between two means: straight, or over other means."""
    K = len(means)
    first, second = np.triu_indices(K, 1)
    passes = np.full((K, K), -np.inf)
    if first.size:
        steps = _BETWEEN[:, None, None]
        points = (1 - steps) * means[first] + steps * means[second]
        heights = np.asarray(mixture.log_prob(points.reshape(-1, mixture.dim)), float)
        passes[first, second] = passes[second, first] = heights.reshape(len(_BETWEEN), -1).min(axis=0)
    for k in range(K):
        passes = np.maximum(passes, np.minimum(passes[:, k, None], passes[None, k]))
    return passes


def _highest_of_mode(
    heights: Float[np.ndarray, " K"], passes: Float[np.ndarray, "K K"]
) -> Int[np.ndarray, " K"]:
    """For every component, that of highest density in its mode."""
    label = np.empty(len(heights), int)
    peaks: list[int] = []
    for k in np.argsort(-heights, kind="stable"):
        best = max(peaks, key=lambda p: passes[k, p], default=-1)
        joins = best >= 0 and passes[k, best] >= heights[k] - _DIP
        label[k] = best if joins else k
        if not joins:
            peaks.append(int(k))
    return label


class ModeMembership(NamedTuple):
    """Which components and samples belong to which mode.

    Attributes:
        components: whether a component belongs to a mode.
        samples: how much a sample belongs to a mode; the modes of a sample sum to 1.
    """

    components: Bool[np.ndarray, "M K"]
    samples: Float[np.ndarray, "N M"]


def mode_membership(mixture: Mixture, x: Float[np.ndarray, "N D"]) -> ModeMembership:
    """The modes of the mixture's components and of samples."""
    labels = mode_labels(mixture)
    in_mode = np.stack([labels == m for m in range(labels.max() + 1)])
    responsible = np.asarray(mixture.responsibilities(x), float)
    return ModeMembership(in_mode, responsible @ in_mode.T)


def modes(
    mixture: Mixture, x: Float[np.ndarray, "N D"], weights: Float[np.ndarray, " N"]
) -> tuple[Mode, ...]:
    """The mixture's modes, with shares corrected by importance-weighted samples of the mixture."""
    return corrected_modes(mixture, mode_membership(mixture, x), weights)


def corrected_modes(
    mixture: Mixture, membership: ModeMembership, weights: Float[np.ndarray, " N"]
) -> tuple[Mode, ...]:
    """The same for samples whose modes are known."""
    in_mode, inside = membership
    components = np.asarray(mixture.weights, float)
    shares = in_mode @ components
    shares = shares / shares.sum()
    # The mixture's shares are exact: only the mean weight within a mode is estimated.
    counted = np.maximum(inside.sum(axis=0), np.finfo(float).tiny)
    mean_weight = weights @ inside / counted
    spread = np.sqrt(np.sum((inside * (weights[:, None] - mean_weight)) ** 2, axis=0)) / counted
    total = shares @ mean_weight
    corrected = shares * mean_weight / total
    # To first order in the mean weights, which are nearly independent.
    by_own = (shares * (1 - corrected) * spread) ** 2
    by_others = corrected**2 * (np.sum((shares * spread) ** 2) - (shares * spread) ** 2)
    errors = np.sqrt(by_own + by_others) / total
    means = (in_mode * components) @ np.asarray(mixture.means, float) / (in_mode @ components)[:, None]
    return tuple(
        Mode(means[m], int(in_mode[m].sum()), float(shares[m]), float(corrected[m]), float(errors[m]))
        for m in range(len(shares))
    )
