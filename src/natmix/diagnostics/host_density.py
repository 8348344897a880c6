"""The density of a mixture in NumPy and double precision: no compilation for every number of points."""

import numpy as np
import scipy
from jaxtyping import Float

from natmix.mixture import Mixture

_MAX_ENTRIES = 2**20
"""Numbers in one product of matrices; a batch of components is as large as that allows."""


class HostDensity:
    """Log densities of a mixture; components that do not exist have the weight 0."""

    def __init__(self, mixture: Mixture) -> None:
        present = np.asarray(mixture.exists)
        self._log_weights = np.asarray(mixture.log_weights, float)
        L = np.array(mixture.components.cholesky(), float)
        L[~present] = np.eye(mixture.dim)
        self._means = np.where(present[:, None], np.asarray(mixture.means, float), 0)
        self._inverse = np.linalg.inv(L)
        self._log_det = np.log(np.diagonal(L, axis1=1, axis2=2)).sum(axis=1)

    def log_prob(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        """Log q(x)."""
        log_q: Float[np.ndarray, " N"] = scipy.special.logsumexp(self.log_joint(x), axis=1)
        return log_q

    def log_joint(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N K"]:
        """Log q(x, o)."""
        D = x.shape[1]
        return self._log_weights - self._log_det - 0.5 * D * np.log(2 * np.pi) - 0.5 * self._distances(x)

    def heavy_log_prob(self, x: Float[np.ndarray, "N D"], dof: float) -> Float[np.ndarray, " N"]:
        """With components of Student's t in place of Gaussians, up to a constant."""
        tails = -0.5 * (dof + x.shape[1]) * np.log1p(self._distances(x) / dof)
        log_q: Float[np.ndarray, " N"] = scipy.special.logsumexp(
            self._log_weights - self._log_det + tails, axis=1
        )
        return log_q

    def _distances(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N K"]:
        """Squared Mahalanobis distances."""
        (N, D), K = x.shape, len(self._means)
        out = np.empty((N, K))
        size = max(1, _MAX_ENTRIES // max(N * D, 1))
        for k in range(0, K, size):
            steps = x - self._means[k : k + size, None]
            out[:, k : k + size] = np.sum(np.matmul(steps, self._inverse[k : k + size].mT) ** 2, axis=2).T
        return out
