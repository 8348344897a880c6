"""Conversions to and from scikit-learn and NumPyro, which are imported only when needed."""

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from natmix.gaussians import DiagonalGaussians, FullGaussians
from natmix.mixture.mixture import Mixture
from natmix.text.extras import needs

if TYPE_CHECKING:
    import numpyro.distributions
    import sklearn.mixture


def to_sklearn(mixture: Mixture) -> "sklearn.mixture.GaussianMixture":
    """A fitted ``GaussianMixture`` in float64 without the absent components."""
    with needs("scikit-learn", "sklearn"):
        from sklearn.mixture import GaussianMixture

    mixture = mixture._present()
    parts = mixture.components
    model = GaussianMixture(
        n_components=mixture.num_components, covariance_type="diag" if parts.axis_aligned else "full"
    )
    weights = np.exp(np.asarray(mixture.log_weights, np.float64))
    model.weights_ = weights / weights.sum()
    model.means_ = np.asarray(mixture.means, np.float64)
    if parts.axis_aligned:
        _set_diagonal(model, np.asarray(parts.std(), np.float64))
    else:
        _set_full(model, np.asarray(parts.cholesky(), np.float64))
    model.converged_, model.n_iter_ = True, 0
    model.lower_bound_, model.lower_bounds_ = np.nan, []
    model.n_features_in_ = mixture.dim
    return model


def _set_diagonal(model: Any, scale: Float[np.ndarray, "K D"]) -> None:
    model.covariances_ = scale**2
    model.precisions_cholesky_ = 1 / scale
    model.precisions_ = model.precisions_cholesky_**2


def _set_full(model: Any, L: Float[np.ndarray, "K D D"]) -> None:
    model.covariances_ = L @ L.swapaxes(1, 2)
    model.precisions_cholesky_ = np.triu(np.linalg.inv(L).swapaxes(1, 2))
    model.precisions_ = model.precisions_cholesky_ @ model.precisions_cholesky_.swapaxes(1, 2)


def from_sklearn(model: "sklearn.mixture.GaussianMixture", dtype: Any = None) -> Mixture:
    """A mixture in the model's type, or in ``dtype``.

    Covariance types "diag" and "spherical" give diagonal, "full" and "tied" full covariances.
    """
    if not hasattr(model, "covariance_type"):
        raise TypeError(f"Expected a scikit-learn GaussianMixture, got {type(model).__name__}.")
    if not hasattr(model, "covariances_"):
        raise ValueError("This scikit-learn model is not fitted; call its fit method first.")
    means = np.asarray(model.means_)
    dtype = jnp.result_type(means.dtype) if dtype is None else dtype
    weights = np.asarray(model.weights_, np.float64)
    with np.errstate(divide="ignore"):
        log_weights = jnp.asarray(np.log(weights / weights.sum()), dtype)
    mean = jnp.asarray(means, dtype)
    covariances = np.asarray(model.covariances_, np.float64)
    if model.covariance_type in ("diag", "spherical"):
        columns = covariances if model.covariance_type == "diag" else covariances[:, None]
        scale = np.sqrt(np.broadcast_to(columns, means.shape))
        return Mixture(log_weights, DiagonalGaussians(mean, jnp.asarray(scale, dtype)))
    factor = np.broadcast_to(np.linalg.cholesky(covariances), (*means.shape, means.shape[1]))
    return Mixture(log_weights, FullGaussians.from_scale_tril(mean, jnp.asarray(factor, dtype)))


def to_numpyro(mixture: Mixture) -> "numpyro.distributions.MixtureSameFamily":
    """A ``MixtureSameFamily`` of ``MultivariateNormal`` or of independent ``Normal``.

    Absent components are left out.
    """
    with needs("NumPyro", "numpyro"):
        import numpyro.distributions as dist

    mixture = mixture._present()  # NumPyro refuses a log weight of -inf
    parts = mixture.components
    if parts.axis_aligned:
        components = dist.Normal(parts.mean, parts.std()).to_event(1)
    else:
        components = dist.MultivariateNormal(parts.mean, scale_tril=parts.cholesky())
    return dist.MixtureSameFamily(dist.Categorical(logits=mixture.log_weights), components)
