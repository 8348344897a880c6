"""Posteriors that some linear maps of the unconstrained coordinates leave as they are."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

Points = Float[np.ndarray, "N D"]


class Symmetry(NamedTuple):
    """A finite group of orthogonal maps, and one region that its maps carry over the whole space.

    Attributes:
        maps: the identity among them.
        inside: whether points lie in the region; but for its edge just one image of every point does.
    """

    maps: Float[np.ndarray, "G D D"]
    inside: Callable[[Points], Bool[np.ndarray, " N"]]

    def images(self, x: Points) -> Float[np.ndarray, "G N D"]:
        """Every point under every map."""
        return np.einsum("gij,nj->gni", self.maps, x)

    def folded(self, x: Points) -> Points:
        """The image of every point that lies in the region."""
        images = self.images(x)
        within = np.stack([self.inside(image) for image in images])
        return images[np.argmax(within, axis=0), np.arange(len(x))]

    def symmetrised(self, x: Points) -> Points:
        """All images of all points: samples of the symmetric posterior if x are samples of a part of it."""
        return self.images(x).reshape(-1, x.shape[1])

    def shares(self, x: Points, weights: Float[np.ndarray, " N"] | None = None) -> Float[np.ndarray, " G"]:
        """How much of weighted points each image of the region holds: 1/G for the true posterior."""
        within = np.stack([self.inside(image) for image in self.images(x)]).astype(float)
        return within @ (np.full(len(x), 1 / len(x)) if weights is None else weights / weights.sum())


def permutation(order: list[int], signs: list[int] | None = None) -> Float[np.ndarray, "D D"]:
    """The matrix that gives coordinate i the value of coordinate order[i], times its sign."""
    rows = np.eye(len(order))[order]
    return rows if signs is None else np.asarray(signs, float)[:, None] * rows
