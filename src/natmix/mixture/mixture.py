"""The Gaussian mixture: densities, samples, moments and closed-form operations."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from natmix.array_types import KeyLike, PRNGKey
from natmix.checks import as_int
from natmix.estimate import Estimate, counted, mean_estimate, rounding_error
from natmix.gaussians import AbstractGaussians, DiagonalGaussians, FullGaussians
from natmix.kernels.compilation import is_traced, quick_array_jit
from natmix.kernels.linalg import einsum, symmetrise
from natmix.kernels.plan import on_default_device
from natmix.kernels.transfer import on_device
from natmix.mixture.checks import at_least_one, check_parameters, holds, key_by_keyword, normalise
from natmix.mixture.padding import padded_components, padded_points
from natmix.random_keys import as_key, draw_components

if TYPE_CHECKING:
    import numpyro.distributions
    import sklearn.mixture

    from natmix.mixture.frozen import FrozenMixture


class Mixture(eqx.Module):
    """q(x) = sum_o q(o) N(x; m_o, S_o), a JAX pytree.

    Build one with `Mixture.full`, `Mixture.diagonal`, `Mixture.from_sklearn` or `Mixture.load`.
    A component with log weight -inf is absent.

    Attributes:
        log_weights: log q(o).
        components: the Gaussians, of one covariance family.
    """

    log_weights: Float[Array, " K"]
    components: AbstractGaussians

    @property
    def exists(self) -> Bool[Array, " K"]:
        """Which components are present."""
        return self.log_weights > -jnp.inf

    # Construction -------------------------------------------------------------------------------

    @classmethod
    def full(cls, weights: ArrayLike, means: ArrayLike, covariances: ArrayLike) -> Self:
        """From K weights (normalised here), means [K, D] and covariance matrices [K, D, D]."""
        w, m, S = check_parameters(weights, means, covariances, matrix=True)
        return cls(normalise(w), FullGaussians.from_covariance(m, symmetrise(S)))

    @classmethod
    def diagonal(cls, weights: ArrayLike, means: ArrayLike, variances: ArrayLike) -> Self:
        """From K weights (normalised here), means [K, D] and variances [K, D]."""
        w, m, v = check_parameters(weights, means, variances, matrix=False)
        return cls(normalise(w), DiagonalGaussians(m, jnp.sqrt(v)))

    # Shape --------------------------------------------------------------------------------------

    @property
    def num_components(self) -> int:
        """K."""
        return self.log_weights.shape[-1]

    @property
    def dim(self) -> int:
        """D."""
        return self.components.dim

    @property
    def dtype(self) -> np.dtype:
        """The floating-point type."""
        return self.components.dtype

    @property
    def weights(self) -> Float[Array, " K"]:
        """q(o)."""
        return jnp.exp(self.log_weights)

    @property
    def means(self) -> Float[Array, "K D"]:
        """Component means."""
        return self.components.mean

    @property
    def covariances(self) -> Float[Array, "K D D"]:
        """Component covariances, dense."""
        return self.components.covariance()

    @property
    def covariance_family(self) -> str:
        """The name of the covariance family: "full", "diagonal" or another that is registered."""
        return self.components.name

    def __repr__(self) -> str:
        kind = self.covariance_family
        if not hasattr(self.log_weights, "shape") or not hasattr(self.means, "shape"):
            return f"Mixture({kind}, without arrays)"  # after eqx.filter or a jax.tree.map
        return (
            f"Mixture({counted(self.num_components, 'component')}, {counted(self.dim, 'dimension')}, {kind}, "
            f"{self.dtype})"
        )

    def _repr_html_(self) -> str:
        from natmix.mixture.notebook import mixture_html

        return mixture_html(self)

    # Densities ----------------------------------------------------------------------------------

    def component_log_prob(self, x: ArrayLike) -> Float[Array, "*N K"]:
        """Log density q(x|o) of a point [D] or of points [..., D] under every component."""
        return self._evaluated(_component_log_prob, x, self.num_components)

    def log_prob(self, x: ArrayLike) -> Float[Array, "*N"]:
        """Log density q(x) of a point [D] or of points [..., D]."""
        return self._evaluated(_log_prob, x)

    def responsibilities(self, x: ArrayLike) -> Float[Array, "*N K"]:
        """q(o|x), by Bayes' rule; rows sum to one."""
        return self._evaluated(_responsibilities, x, self.num_components)

    def _evaluated(self, fn: Callable[["Mixture", Array], Array], x: ArrayLike, *columns: int) -> Array:
        """``fn`` of the mixture and of points, compiled for few numbers of components and of points."""
        shape = np.shape(x)
        if not shape or shape[-1] != self.dim:
            raise ValueError(
                f"Points must have {self.dim} entries in their last axis, got an array of shape {shape}."
            )
        if is_traced((self, x)) or not on_default_device((self, x)) or 0 in shape:
            rows = jnp.asarray(x, self.dtype).reshape(-1, self.dim)
            return fn(self, rows).reshape((*shape[:-1], *columns))
        points = padded_points(np.asarray(x).reshape(-1, self.dim), self.dtype)
        padded = Mixture(*padded_components(self.log_weights, self.components))
        values = np.asarray(fn(padded, on_device(points)))[: math.prod(shape[:-1])]
        kept = values[:, : columns[0]] if columns else values
        return on_device(kept.reshape((*shape[:-1], *columns)))

    # Sampling -----------------------------------------------------------------------------------

    @key_by_keyword
    def sample(self, n: int = 1, *, key: KeyLike = 0) -> Float[Array, "n D"]:
        """``n`` independent samples [n, D]; ``key`` is a JAX key or an integer seed."""
        return self.sample_with_components(n, key=key)[0]

    @key_by_keyword
    def sample_with_components(
        self, n: int = 1, *, key: KeyLike = 0
    ) -> tuple[Float[Array, "n D"], Int[Array, " n"]]:
        """``n`` samples and the component that each was drawn from."""
        whole, n = self, as_int(n, "The number of samples", 0)
        if not is_traced((self, key)) and on_default_device(self):
            whole = Mixture(*padded_components(self.log_weights, self.components))
        return _sample(whole, as_key(key), n)

    # Moments and information --------------------------------------------------------------------

    def mean(self) -> Float[Array, " D"]:
        """E[x], in closed form."""
        return einsum("k,kd->d", self.weights, self.means)

    def covariance(self) -> Float[Array, "D D"]:
        """Cov[x], in closed form: the mean of the covariances plus the covariance of the means."""
        centred = self.means - self.mean()
        between = einsum("k,ki,kj->ij", self.weights, centred, centred)
        return symmetrise(einsum("k,kij->ij", self.weights, self.covariances) + between)

    def std(self) -> Float[Array, " D"]:
        """Marginal standard deviations."""
        between = (self.means - self.mean()) ** 2
        return jnp.sqrt(einsum("k,kd->d", self.weights, self.components.std() ** 2 + between))

    def quantile(self, p: ArrayLike) -> Float[Array, "*P D"]:
        """Marginal quantiles of every dimension, for probabilities strictly between 0 and 1."""
        p = jnp.asarray(p, self.dtype)
        if not holds(jnp.all((p > 0) & (p < 1))):
            raise ValueError("Probabilities must lie strictly between 0 and 1.")
        return _quantile(self, p.reshape(-1)).reshape(*p.shape, self.dim)

    @key_by_keyword
    def entropy(self, n: int = 10_000, *, key: KeyLike = 0) -> Estimate:
        """H(q) = -E[log q]: exact for one component, otherwise from ``n`` samples."""
        q = self._present()
        if q.num_components == 1:
            return Estimate(float(q.components.entropy()[0]), 0.0)
        log_q = q.log_prob(q.sample(at_least_one(n), key=key))
        return mean_estimate(-log_q, rounding_error(q.dtype, log_q))

    @key_by_keyword
    def kl(self, other: "Mixture", n: int = 10_000, *, key: KeyLike = 0) -> Estimate:
        """KL(self || other): exact between two Gaussians, otherwise from ``n`` samples of self."""
        if other.dim != self.dim:
            raise ValueError(f"Both mixtures must have the same dimension, got {self.dim} and {other.dim}.")
        p, q = self._present(), other._present()
        if p.num_components == 1 and q.num_components == 1:
            return Estimate(float(_gaussian_kl(p.components, q.components)), 0.0)
        x = p.sample(at_least_one(n), key=key)
        log_p, log_q = p.log_prob(x), q.log_prob(x)
        return mean_estimate(log_p - log_q, rounding_error(p.dtype, log_p, log_q))

    # New mixtures -------------------------------------------------------------------------------

    def marginal(self, dims: int | Sequence[int] | np.ndarray) -> "Mixture":
        """The distribution of some dimensions, in the order given, in closed form."""
        from natmix.mixture.maps import marginal

        return marginal(self, dims)

    def condition(self, given: Mapping[int, float]) -> "Mixture":
        """q(x_rest | x_i = value for i in ``given``), in closed form.

        The remaining dimensions keep their order.
        """
        from natmix.mixture.maps import condition

        return condition(self, given)

    def affine(self, matrix: ArrayLike, shift: ArrayLike = 0.0) -> "Mixture":
        """The distribution of ``matrix @ x + shift``; ``matrix`` has full row rank.

        A scalar or vector ``matrix`` scales the dimensions and keeps diagonal covariances diagonal.
        """
        from natmix.mixture.maps import affine

        return affine(self, matrix, shift)

    def product(self, mean: ArrayLike, covariance: ArrayLike) -> tuple["Mixture", Float[Array, ""]]:
        """q(x) N(x; mean, covariance), normalised, and the log of its normaliser.

        The posterior when q is the prior and the Gaussian a likelihood in x. A scalar or vector
        ``covariance`` holds variances and keeps diagonal covariances diagonal.
        """
        from natmix.mixture.maps import product

        return product(self, mean, covariance)

    def top(self, n: int) -> "Mixture":
        """The ``n`` components of largest weight, heaviest first, renormalised."""
        if n < 1:
            raise ValueError(f"Keep at least one component, got n={n}.")
        order = jnp.argsort(-self.log_weights)[:n]
        return Mixture(jax.nn.log_softmax(self.log_weights[order]), self.components.take(order))

    def astype(self, dtype: Any) -> "Mixture":
        """The same mixture in another floating-point type."""
        if jnp.dtype(dtype) == self.dtype:
            return self
        return Mixture(self.log_weights.astype(dtype), self.components.astype(dtype))

    def _present(self) -> "Mixture":
        """Without absent components; unchanged inside jit, where shapes cannot depend on values."""
        if isinstance(self.log_weights, jax.core.Tracer):
            return self
        present = np.flatnonzero(np.asarray(self.log_weights) != -np.inf)
        if present.size == self.num_components:
            return self
        return Mixture(self.log_weights[present], self.components.take(jnp.asarray(present)))

    # Files and other libraries ------------------------------------------------------------------

    def save(self, path: str | Path, metadata: Mapping[str, Any] | None = None) -> None:
        """Write to a safetensors file, with ``metadata`` (anything JSON can hold) in its header."""
        from natmix.mixture.files import save_mixture

        save_mixture(self, path, metadata)

    @classmethod
    def load(cls, path: str | Path, dtype: Any = None) -> "Mixture":
        """Read a file written by `save`, in the type it was written in unless ``dtype`` is given.

        `natmix.load_metadata` reads its metadata.
        """
        from natmix.mixture.files import load_mixture

        return load_mixture(path, dtype)

    def to_sklearn(self) -> "sklearn.mixture.GaussianMixture":
        """A fitted scikit-learn ``GaussianMixture``."""
        from natmix.mixture.conversions import to_sklearn

        return to_sklearn(self)

    @classmethod
    def from_sklearn(cls, model: "sklearn.mixture.GaussianMixture", dtype: Any = None) -> "Mixture":
        """From a fitted scikit-learn ``GaussianMixture`` of any covariance type."""
        from natmix.mixture.conversions import from_sklearn

        return from_sklearn(model, dtype)

    def frozen(self) -> "FrozenMixture":
        """With the methods of SciPy's frozen distributions, on NumPy arrays."""
        from natmix.mixture.frozen import FrozenMixture

        return FrozenMixture(self)

    def to_numpyro(self) -> "numpyro.distributions.MixtureSameFamily":
        """A NumPyro distribution."""
        from natmix.mixture.conversions import to_numpyro

        return to_numpyro(self)


@jax.jit
def _gaussian_kl(p: AbstractGaussians, q: AbstractGaussians) -> Float[Array, ""]:
    return p.kl(q)


@quick_array_jit()
def _component_log_prob(q: Mixture, x: Float[Array, "N D"]) -> Float[Array, "N K"]:
    return q.components.log_prob(x)


@quick_array_jit()
def _log_prob(q: Mixture, x: Float[Array, "N D"]) -> Float[Array, " N"]:
    return q.components.mixture_log_prob(q.log_weights, x)


@quick_array_jit()
def _responsibilities(q: Mixture, x: Float[Array, "N D"]) -> Float[Array, "N K"]:
    return jax.nn.softmax(q.components.log_prob(x) + q.log_weights, axis=-1)


@quick_array_jit(static_argnums=(2,))
def _sample(q: Mixture, key: PRNGKey, n: int) -> tuple[Float[Array, "n D"], Int[Array, " n"]]:
    key_o, key_x = jax.random.split(key)
    component = draw_components(key_o, q.log_weights, n)
    noise = jax.random.normal(key_x, (n, q.dim), q.dtype)
    return q.components.colour_rows(noise, component), component


@quick_array_jit()
def _quantile(q: Mixture, p: Float[Array, " P"]) -> Float[Array, "P D"]:
    # A mixture's quantile lies between the smallest and the largest of its components' quantiles.
    mean, std = q.means, q.components.std()
    own = mean[:, None] + std[:, None] * jax.scipy.special.ndtri(p)[:, None]
    present = (q.log_weights > -jnp.inf)[:, None, None]
    low = jnp.min(jnp.where(present, own, jnp.inf), axis=0)
    high = jnp.max(jnp.where(present, own, -jnp.inf), axis=0)

    def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = low + 0.5 * (high - low)
        z = (middle - mean[:, None]) / std[:, None]
        below = einsum("k,kpd->pd", q.weights, jax.scipy.special.ndtr(z)) < p[:, None]
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    low, high = jax.lax.fori_loop(0, jnp.finfo(q.dtype).nmant + 8, halve, (low, high))
    return low + 0.5 * (high - low)
