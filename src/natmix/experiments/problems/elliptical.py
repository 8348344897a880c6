"""Mixtures of equal weight whose components depend on x through |L^-1 (x - m)|^2 alone."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix.array_types import PRNGKey
from natmix.experiments.problems import secondary
from natmix.experiments.problems.base import InitialRegion, Problem
from natmix.experiments.problems.block_size import block_size
from natmix.experiments.problems.native_targets import AbstractForms
from natmix.gaussians import FullGaussians
from natmix.kernels import native
from natmix.kernels.linalg import einsum
from natmix.kernels.plan import current
from natmix.targets import JaxTarget

_NATIVE_BLOCK = 1024
"""Points evaluated at once by the native kernels: they need little memory, and threads share the points."""


class AbstractEllipticalMixture(eqx.Module):
    """The log density of points [N, D], and exact samples."""

    shape: eqx.AbstractVar[FullGaussians]
    log_constant: eqx.AbstractVar[Float[Array, " K"]]

    @abc.abstractmethod
    def log_profile(self, squared: Float[Array, "N K"]) -> Float[Array, "N K"]:
        """The log density without its constant, as a function of |L^-1 (x - m)|^2."""

    @abc.abstractmethod
    def stretch(self, key: PRNGKey, n: int) -> Float[Array, " n"]:
        """The factors by which standard normal draws are scaled before L is applied."""

    def __call__(self, x: Float[Array, "N D"]) -> Float[Array, " N"]:
        return _Forms(self)(x)

    def of_squared(self, squared: Float[Array, "N K"]) -> Float[Array, " N"]:
        """The log density as a function of |L^-1 (x - m)|^2."""
        return jax.nn.logsumexp(self.log_profile(squared) + self.log_constant, axis=1)

    def sample(self, n: int, *, key: PRNGKey) -> Float[Array, "n D"]:
        """``n`` independent samples."""
        return _sample(self, key, n)


@jax.custom_vjp
def _squared(
    x: Float[Array, "N D"], mean: Float[Array, "K D"], inverse_tril: Float[Array, "K D D"]
) -> Float[Array, "N K"]:
    """|L^-1 (x - m)|^2; differentiable in x alone, backwards, with one product for all components."""
    return _squared_forward(x, mean, inverse_tril)[0]


def _squared_forward(x: Array, mean: Array, inverse_tril: Array) -> tuple[Array, tuple[Array, Array]]:
    y = einsum("knj,kij->kni", x[None] - mean[:, None], inverse_tril)
    return jnp.sum(y**2, axis=2).T, (y, inverse_tril)


def _squared_backward(kept: tuple[Array, Array], slope: Array) -> tuple[Array, None, None]:
    y, inverse_tril = kept
    return einsum("kni,kij->nj", 2 * slope.T[:, :, None] * y, inverse_tril), None, None


_squared.defvjp(_squared_forward, _squared_backward)


class _Forms(AbstractForms):
    """The log density by XLA and by native kernels."""

    mixture: AbstractEllipticalMixture

    def by_xla(self, x: Float[Array, "N D"]) -> Float[Array, " N"]:
        shape = self.mixture.shape
        return self.mixture.of_squared(_squared(x, shape.mean, shape.inverse_tril))

    def by_native_kernel(
        self, x: Float[Array, "N D"], gradient: bool
    ) -> tuple[Float[Array, " N"], Float[Array, "N D"] | None]:
        m, W = self.mixture.shape.mean, self.mixture.shape.inverse_tril
        squared = -2 * native.log_prob(x, m, W, jnp.zeros_like(m[:, 0]), None, None)
        if not gradient:
            return self.mixture.of_squared(squared), None
        value, pull = jax.vjp(self.mixture.of_squared, squared)
        (slope,) = pull(jnp.ones_like(value))
        return value, -2 * native.weighted_scores(x, m, W, slope, None)


@eqx.filter_jit
def _sample(mixture: AbstractEllipticalMixture, key: PRNGKey, n: int) -> Float[Array, "n D"]:
    key_row, key_noise, key_stretch = jax.random.split(key, 3)
    shape = mixture.shape
    rows = jax.random.randint(key_row, (n,), 0, shape.capacity)
    noise = jax.random.normal(key_noise, (n, shape.dim), shape.dtype)
    return shape.colour_rows(mixture.stretch(key_stretch, n)[:, None] * noise, rows)


def elliptical_problem(
    name: str,
    title: str,
    density: AbstractEllipticalMixture,
    start: InitialRegion,
    infinite: dict[str, str] | None = None,
) -> Problem:
    """The problem of such a mixture: normalised, with known modes and exact samples."""
    shape = density.shape
    blocks = rows_per_block(shape.capacity, shape.dim)
    target = JaxTarget(fn=density, dim=shape.dim, batched=True, batch_size=blocks)
    return Problem(
        name,
        title,
        target,
        target,
        start,
        log_evidence=0.0,
        modes=shape.mean,
        sample=lambda n, *, key: density.sample(n, key=key),
        secondary={"detected_modes": secondary.detected_modes(shape.mean)},
        infinite=infinite or {},
    )


def draw_parameters(seed: int, components: int, dim: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Means uniform in [-spread, spread] and A^T A + I with A_ij ~ N(0, (0.1 D)^2), in float64.

    The draws are rounded to float32, so that the target is the same in float32 and float64.
    """
    rng = np.random.default_rng(seed)
    mean = rng.uniform(-spread, spread, (components, dim)).astype(np.float32).astype(np.float64)
    A = rng.normal(0, 0.1 * dim, (components, dim, dim)).astype(np.float32).astype(np.float64)
    return mean, A.transpose(0, 2, 1) @ A + np.eye(dim)


def rows_per_block(components: int, dim: int) -> int:
    """How many points to evaluate at once: their differences to all means fit a cache, or fill a device."""
    size = components * dim
    cpu = _NATIVE_BLOCK if current().native else _between(128, 2**17 // size, 512)
    return block_size(cpu=cpu, accelerator=_between(1024, 2**24 // size, 16384))


def check_components(components: Any) -> int:
    """The number of components, checked."""
    if isinstance(components, bool) or not isinstance(components, (int, np.integer)) or components < 1:
        raise ValueError(f"components must be a whole number of at least 1, got {components!r}.")
    return int(components)


def check_spread(spread: Any) -> float:
    """The range of the means, checked."""
    if not isinstance(spread, (int, float, np.number)) or not 0 <= spread < np.inf:
        raise ValueError(f"spread must be a finite number of at least 0, got {spread!r}.")
    return float(spread)


def _between(low: int, value: int, high: int) -> int:
    return max(low, min(value // 64 * 64, high))
