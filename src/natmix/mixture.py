"""The Gaussian mixture: what a fit returns, useful by itself."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from natmix._linalg import einsum, symmetrise
from natmix._types import PRNGKey
from natmix.gaussians import AbstractGaussians, DiagonalGaussians, FullGaussians

if TYPE_CHECKING:
    import numpyro.distributions
    import sklearn.mixture


class Estimate(NamedTuple):
    """A Monte-Carlo estimate with its standard error."""

    value: float
    standard_error: float

    def __str__(self) -> str:
        return f"{self.value:.4g} ± {self.standard_error:.2g}"


class Mixture(eqx.Module):
    """q(x) = sum_o q(o) N(x; m_o, S_o), a JAX pytree.

    Build one with `Mixture.full`, `Mixture.diagonal`, `Mixture.from_sklearn` or `Mixture.load`.
    A component with log weight -inf is absent: it takes part in nothing.

    Attributes:
        log_weights: log q(o).
        components: the Gaussians, with full or diagonal covariances.
    """

    log_weights: Float[Array, " K"]
    components: AbstractGaussians

    # Construction -------------------------------------------------------------------------------

    @classmethod
    def full(cls, weights: ArrayLike, means: ArrayLike, covariances: ArrayLike) -> Self:
        """From K weights (normalised here), means [K, D] and covariance matrices [K, D, D]."""
        w, m, S = _check_parameters(weights, means, covariances, matrix=True)
        return cls(_normalise(w), FullGaussians.from_covariance(m, symmetrise(S)))

    @classmethod
    def diagonal(cls, weights: ArrayLike, means: ArrayLike, variances: ArrayLike) -> Self:
        """From K weights (normalised here), means [K, D] and variances [K, D]."""
        w, m, v = _check_parameters(weights, means, variances, matrix=False)
        return cls(_normalise(w), DiagonalGaussians(m, jnp.sqrt(v)))

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
    def is_diagonal(self) -> bool:
        """Whether all covariances are diagonal by construction."""
        return isinstance(self.components, DiagonalGaussians)

    def __repr__(self) -> str:
        kind = "diagonal" if self.is_diagonal else "full"
        return f"Mixture({self.num_components} components, {self.dim} dimensions, {kind}, {self.dtype})"

    # Densities ----------------------------------------------------------------------------------

    def component_log_prob(self, x: ArrayLike) -> Float[Array, "*N K"]:
        """log q(x|o) of a point [D] or of points [..., D] under every component."""
        points, shape = self._points(x)
        return self.components.log_prob(points).reshape(*shape, -1)

    def log_prob(self, x: ArrayLike) -> Float[Array, "*N"]:
        """log q(x) of a point [D] or of points [..., D]."""
        points, shape = self._points(x)
        return self.components.mixture_log_prob(self.log_weights, points).reshape(shape)

    def responsibilities(self, x: ArrayLike) -> Float[Array, "*N K"]:
        """q(o|x), by Bayes' rule; rows sum to one."""
        return jax.nn.softmax(self.component_log_prob(x) + self.log_weights, axis=-1)

    def _points(self, x: ArrayLike) -> tuple[Float[Array, "N D"], tuple[int, ...]]:
        x = jnp.asarray(x, self.dtype)
        if x.ndim == 0 or x.shape[-1] != self.dim:
            raise ValueError(
                f"Points must have {self.dim} entries in their last axis, got an array of shape {x.shape}."
            )
        return x.reshape(-1, self.dim), x.shape[:-1]

    # Sampling -----------------------------------------------------------------------------------

    def sample(self, key: PRNGKey | int, n: int = 1) -> Float[Array, "n D"]:
        """``n`` independent samples; ``key`` is a JAX key or an integer seed."""
        return self.sample_with_components(key, n)[0]

    def sample_with_components(
        self, key: PRNGKey | int, n: int = 1
    ) -> tuple[Float[Array, "n D"], Int[Array, " n"]]:
        """``n`` samples and the component each was drawn from."""
        key_o, key_x = jax.random.split(as_key(key))
        rows = draw_rows(key_o, self.log_weights, n)
        noise = jax.random.normal(key_x, (n, self.dim), self.dtype)
        return self.components.colour_rows(noise, rows), rows

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
        return jnp.sqrt(jnp.diagonal(self.covariance()))

    def entropy(self, key: PRNGKey | int = 0, n: int = 10_000) -> Estimate:
        """H(q) = -E[log q]: exact for one component, otherwise from ``n`` samples."""
        if self.num_components == 1:
            return Estimate(float(self.components.entropy()[0]), 0.0)
        return mean_estimate(-self.log_prob(self.sample(key, n)))

    def kl(self, other: "Mixture", key: PRNGKey | int = 0, n: int = 10_000) -> Estimate:
        """KL(self || other): exact between two Gaussians, otherwise from ``n`` samples of self."""
        if other.dim != self.dim:
            raise ValueError(f"Both mixtures must have the same dimension, got {self.dim} and {other.dim}.")
        if self.num_components == 1 and other.num_components == 1:
            return Estimate(float(_gaussian_kl(self, other)), 0.0)
        x = self.sample(key, n)
        return mean_estimate(self.log_prob(x) - other.log_prob(x))

    # New mixtures -------------------------------------------------------------------------------

    def marginal(self, dims: int | Sequence[int]) -> "Mixture":
        """The distribution of some dimensions, in the order given, in closed form."""
        kept = _dims(dims, self.dim)
        if isinstance(self.components, DiagonalGaussians):
            parts = DiagonalGaussians(self.means[:, kept], self.components.scale[:, kept])
            return Mixture(self.log_weights, parts)
        S = self.covariances[:, kept][:, :, kept]
        return Mixture(self.log_weights, FullGaussians.from_covariance(self.means[:, kept], S))

    def condition(self, given: Mapping[int, float]) -> "Mixture":
        """q(x_rest | x_i = value for i in ``given``), in closed form.

        The remaining dimensions keep their order.
        """
        if not given:
            return self
        fixed = _dims(list(given), self.dim)
        free = np.array([d for d in range(self.dim) if d not in set(fixed.tolist())])
        if free.size == 0:
            raise ValueError("Conditioning on every dimension leaves nothing; leave out at least one.")
        value = jnp.asarray(np.array(list(given.values()), dtype=self.dtype))
        if not bool(jnp.all(jnp.isfinite(value))):
            raise ValueError("The values to condition on must be finite.")
        log_w = self.log_weights + self.marginal(fixed.tolist()).components.log_prob(value[None])[0]
        log_w = jax.nn.log_softmax(log_w)
        if isinstance(self.components, DiagonalGaussians):
            return Mixture(log_w, self.marginal(free.tolist()).components)
        S = self.covariances
        S_bb = S[:, fixed][:, :, fixed]
        gain = jnp.linalg.solve(S_bb, S[:, fixed][:, :, free])  # S_bb^-1 S_ba
        mean = self.means[:, free] + einsum("kba,kb->ka", gain, value - self.means[:, fixed])
        cov = S[:, free][:, :, free] - einsum("kab,kbc->kac", S[:, free][:, :, fixed], gain)
        return Mixture(log_w, FullGaussians.from_covariance(mean, symmetrise(cov)))

    def affine(self, matrix: ArrayLike, shift: ArrayLike = 0.0) -> "Mixture":
        """The distribution of ``matrix @ x + shift``; ``matrix`` has full row rank.

        A scalar or vector ``matrix`` scales the dimensions and keeps diagonal covariances diagonal.
        """
        A = jnp.asarray(matrix, self.dtype)
        b = jnp.asarray(shift, self.dtype)
        if A.ndim <= 1:
            A = jnp.broadcast_to(A, (self.dim,))
            if bool(jnp.any(A == 0)):
                raise ValueError("An affine map must not scale a dimension by zero.")
            if isinstance(self.components, DiagonalGaussians):
                parts = DiagonalGaussians(A * self.means + b, jnp.abs(A) * self.components.scale)
                return Mixture(self.log_weights, parts)
            A = jnp.diag(A)
        if A.ndim != 2 or A.shape[1] != self.dim:
            raise ValueError(f"The matrix must have {self.dim} columns, got shape {A.shape}.")
        if bool(jnp.linalg.matrix_rank(A) < A.shape[0]):
            raise ValueError("The matrix must have full row rank, otherwise the image has no density.")
        mean = einsum("ij,kj->ki", A, self.means) + b
        half = einsum("ij,kjl->kil", A, jnp.linalg.cholesky(self.covariances))
        cov = einsum("kij,klj->kil", half, half)
        return Mixture(self.log_weights, FullGaussians.from_covariance(mean, cov))

    def product(self, mean: ArrayLike, covariance: ArrayLike) -> tuple["Mixture", Float[Array, ""]]:
        """q(x) N(x; mean, covariance), normalised, and the log of its normaliser.

        The posterior when q is the prior and the Gaussian a likelihood in x.
        """
        m = jnp.broadcast_to(jnp.asarray(mean, self.dtype), (self.dim,))
        C = jnp.asarray(covariance, self.dtype)
        C = jnp.diag(jnp.broadcast_to(C, (self.dim,))) if C.ndim <= 1 else C
        factor = Mixture.full([1.0], m[None], C[None])
        S = self.covariances
        total = FullGaussians.from_covariance(self.means, S + C)
        log_w = self.log_weights + total.log_prob(m[None])[0]
        gain = jnp.linalg.solve(S + C, jnp.broadcast_to(C, S.shape))  # (S + C)^-1 C
        new_cov = symmetrise(einsum("kij,kjl->kil", S, gain))
        new_mean = m + einsum("kji,kj->ki", gain, self.means - m)
        log_z = jax.nn.logsumexp(log_w)
        parts = FullGaussians.from_covariance(new_mean, new_cov)
        if self.is_diagonal and bool(jnp.all(factor.covariances[0] == jnp.diag(jnp.diagonal(C)))):
            return Mixture(log_w - log_z, DiagonalGaussians.from_covariance(new_mean, new_cov)), log_z
        return Mixture(log_w - log_z, parts), log_z

    def top(self, n: int) -> "Mixture":
        """The ``n`` components of largest weight, heaviest first, renormalised."""
        if n < 1:
            raise ValueError(f"Keep at least one component, got n={n}.")
        order = jnp.argsort(-self.log_weights)[:n]
        return Mixture(jax.nn.log_softmax(self.log_weights[order]), self.components.take(order))

    def astype(self, dtype: Any) -> "Mixture":
        """The same mixture in another floating-point type."""
        return jax.tree.map(lambda a: a.astype(dtype), self)

    # Files and other libraries ------------------------------------------------------------------

    def save(self, path: str | Path, metadata: Mapping[str, Any] | None = None) -> None:
        """Write to a safetensors file, with ``metadata`` (anything JSON can hold) in its header."""
        from natmix._io import save_mixture

        save_mixture(self, path, metadata)

    @classmethod
    def load(cls, path: str | Path) -> "Mixture":
        """Read a file written by `save`. `natmix.load_metadata` reads its metadata."""
        from natmix._io import load_mixture

        return load_mixture(path)

    def to_sklearn(self) -> "sklearn.mixture.GaussianMixture":
        """A fitted scikit-learn ``GaussianMixture``."""
        from natmix._interop import to_sklearn

        return to_sklearn(self)

    @classmethod
    def from_sklearn(cls, model: "sklearn.mixture.GaussianMixture", dtype: Any = None) -> "Mixture":
        """From a fitted scikit-learn ``GaussianMixture`` of any covariance type."""
        from natmix._interop import from_sklearn

        return from_sklearn(model, dtype)

    def to_numpyro(self) -> "numpyro.distributions.MixtureSameFamily":
        """A NumPyro distribution."""
        from natmix._interop import to_numpyro

        return to_numpyro(self)


def as_key(key: PRNGKey | int) -> PRNGKey:
    """A typed key from a typed key, an old-style key or an integer seed."""
    if isinstance(key, (int, np.integer)):
        return jax.random.key(int(key))
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    return jax.random.wrap_key_data(key)


def draw_rows(key: PRNGKey, log_weights: Float[Array, " K"], n: int) -> Int[Array, " n"]:
    """``n`` component indices by inverting the cumulative weights: padding changes nothing."""
    cumulative = jnp.cumsum(jnp.exp(log_weights))
    u = jax.random.uniform(key, (n,), cumulative.dtype) * cumulative[-1]
    rows = jnp.searchsorted(cumulative, u, side="right")
    last = jnp.max(jnp.where(log_weights > -jnp.inf, jnp.arange(log_weights.shape[0]), 0))
    return jnp.minimum(rows, last).astype(jnp.int32)


def mean_estimate(values: Float[Array, " n"]) -> Estimate:
    """Mean and its standard error."""
    n = values.shape[0]
    error = jnp.std(values, ddof=1) / np.sqrt(n) if n > 1 else jnp.inf
    return Estimate(float(jnp.mean(values)), float(error))


def _normalise(weights: Float[Array, " K"]) -> Float[Array, " K"]:
    return jnp.log(weights) - jnp.log(jnp.sum(weights))


def _check_parameters(
    weights: ArrayLike, means: ArrayLike, spread: ArrayLike, *, matrix: bool
) -> tuple[Array, Array, Array]:
    m = jnp.asarray(means)
    if not jnp.issubdtype(m.dtype, jnp.floating):
        m = m.astype(jnp.result_type(float))
    if m.ndim != 2 or m.shape[0] < 1 or m.shape[1] < 1:
        raise ValueError(f"Means must have shape [K, D] with K, D >= 1, got {m.shape}.")
    K, D = m.shape
    w = jnp.asarray(weights, m.dtype)
    if w.shape != (K,):
        raise ValueError(f"Weights must have shape [{K}] to match the means, got {w.shape}.")
    s = jnp.asarray(spread, m.dtype)
    name, shape = ("Covariances", (K, D, D)) if matrix else ("Variances", (K, D))
    if s.shape != shape:
        raise ValueError(f"{name} must have shape {list(shape)} to match the means, got {s.shape}.")
    if any(isinstance(a, jax.core.Tracer) for a in (w, m, s)):
        return w, m, s
    if not bool(jnp.all(w >= 0)) or not bool(jnp.sum(w) > 0) or not bool(jnp.all(jnp.isfinite(w))):
        raise ValueError("Weights must be finite, not negative, and not all zero.")
    if not bool(jnp.all(jnp.isfinite(m))):
        raise ValueError("Means must be finite.")
    if matrix:
        if not bool(jnp.allclose(s, jnp.swapaxes(s, 1, 2), rtol=1e-3, atol=1e-6 * float(jnp.max(jnp.abs(s))))):
            raise ValueError("Covariances must be symmetric.")
        good = jnp.all(jnp.isfinite(jnp.linalg.cholesky(s)), axis=(1, 2))
        if not bool(jnp.all(good)):
            bad = int(jnp.argmin(good))
            raise ValueError(f"Covariance {bad} is singular or not positive definite; it has no density.")
    elif not bool(jnp.all((s > 0) & jnp.isfinite(s))):
        raise ValueError("Variances must be positive and finite.")
    return w, m, s


def _dims(dims: int | Sequence[int], D: int) -> np.ndarray:
    raw = [dims] if isinstance(dims, (int, np.integer)) else list(dims)
    bad = [d for d in raw if not isinstance(d, (int, np.integer)) or not -D <= d < D]
    if bad:
        raise ValueError(f"Dimensions are whole numbers from 0 to {D - 1}, got {bad[0]!r}.")
    kept = np.array([int(d) % D for d in raw], dtype=int)
    if kept.size == 0 or len(set(kept.tolist())) != kept.size:
        raise ValueError(f"Name at least one dimension, each only once, got {raw}.")
    return kept


def _gaussian_kl(p: Mixture, q: Mixture) -> Float[Array, ""]:
    S, C = p.covariances[0], q.covariances[0]
    L = jnp.linalg.cholesky(C)
    whitened = jax.scipy.linalg.solve_triangular(L, jnp.linalg.cholesky(S), lower=True)
    shift = jax.scipy.linalg.solve_triangular(L, p.means[0] - q.means[0], lower=True)
    log_ratio = q.components.half_log_det()[0] - p.components.half_log_det()[0]
    return 0.5 * (jnp.sum(whitened**2) + jnp.sum(shift**2) - p.dim) + log_ratio
