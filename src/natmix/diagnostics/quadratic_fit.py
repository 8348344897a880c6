"""A Gaussian from values of a log density near a maximum: the quadratic function that fits them best."""

import numpy as np
from jaxtyping import Float

MARGIN, NARROW_MARGIN = 10.0, 3.0
"""Points count whose log density is below the highest by at most D plus so many nats; with heavy tails points
within the first margin are far from the maximum."""
_PER_PARAMETER, _MOST_PER_PARAMETER, _MOST = 1.3, 4, 200
"""Points per parameter of the quadratic function, at least and at most; in all, at most `_MOST` or more."""


def fitted_gaussian(
    x: Float[np.ndarray, "N D"],
    log_p: Float[np.ndarray, " N"],
    centre: Float[np.ndarray, " D"],
    C: Float[np.ndarray, "D D"],
    margin: float = MARGIN,
) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, "D D"]]:
    """Mean and covariance, from the points nearest to ``centre`` in the metric of ``C``.

    If there are few points, the covariance is a multiple of ``C``.
    """
    D = len(centre)
    parameters = (D + 1) * (D + 2) // 2
    L = np.linalg.cholesky(C + 1e-10 * np.trace(C) / D * np.eye(D))
    z = np.linalg.solve(L, (x - centre).T).T
    distance = np.sum(z**2, axis=1)
    nearest = np.argsort(distance, kind="stable")[: max(_MOST, _MOST_PER_PARAMETER * parameters)]
    height = log_p[nearest].max()
    kept = nearest[np.isfinite(log_p[nearest]) & (log_p[nearest] > height - D - margin)]
    z, f = z[kept], log_p[kept] - height
    if len(kept) < D + 3:
        return centre, L @ L.T
    full = len(kept) >= _PER_PARAMETER * parameters
    first, second = np.triu_indices(D)
    squares = z[:, first] * z[:, second] if full else np.sum(z**2, axis=1, keepdims=True)
    design = np.concatenate([np.ones((len(z), 1)), z, squares], axis=1)
    weight = np.exp(0.5 * f / (0.5 * D + 2))
    solution = np.linalg.lstsq(design * weight[:, None], f * weight, rcond=None)[0]
    gradient = solution[1 : D + 1]
    P = np.zeros((D, D))
    P[first, second] = -solution[D + 1 :] if full else np.where(first == second, -solution[D + 1], 0)
    P = P + P.T
    # No wider than the points are.
    values, V = np.linalg.eigh(P)
    reach = np.maximum(np.quantile(np.abs(z @ V), 0.9, axis=0), 1e-12)
    values = np.maximum(values, 1 / reach**2)
    step = V @ ((V.T @ gradient) / values)
    length, longest = np.linalg.norm(step), np.sqrt(distance[kept].max())
    step *= min(1.0, longest / max(length, 1e-300))
    return centre + L @ step, L @ ((V / values) @ V.T) @ L.T
