"""Where a fit looks first: the initial region, as the user or the model names it."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from natmix.array_types import Flag, PRNGKey
from natmix.gaussians import AbstractGaussians
from natmix.mixture import Mixture


@dataclasses.dataclass(frozen=True)
class Region:
    """The initial region: where to look first, as the user says it; everything may be left out."""

    mean: ArrayLike | None = None
    scale: ArrayLike | None = None
    covariance: ArrayLike | None = None
    box: tuple[ArrayLike, ArrayLike] | None = None

    @property
    def given(self) -> bool:
        """Whether the user says anything."""
        return not all(v is None for v in (self.mean, self.scale, self.covariance, self.box))

    def settings(self) -> dict[str, Any]:
        """What the user said, with the defaults filled in, as plain Python."""
        usual = self.box is None
        return {
            "init_mean": _plain(0.0 if usual and self.mean is None else self.mean),
            "init_scale": _plain(
                1.0 if usual and self.scale is None and self.covariance is None else self.scale
            ),
            "init_covariance": _plain(self.covariance),
            "box": None if self.box is None else [_plain(b) for b in self.box],
        }

    def centre(self, dim: int) -> np.ndarray:
        """Its mean."""
        if self.box is not None:
            low, high = self._corners(dim)
            return (low + high) / 2
        return _vector(0.0 if self.mean is None else self.mean, dim, "init_mean")

    def gaussian(self, dim: int, dtype: Any, family: type[AbstractGaussians]) -> AbstractGaussians:
        """One Gaussian of its mean and covariance."""
        if self.covariance is not None:
            spread = self._matrix(dim, family)
            reason = "init_covariance is singular or not positive definite"
        else:
            spread = self._scale(dim)
            reason = "init_scale is zero or infinite"
        with np.errstate(over="ignore", under="ignore"):
            mean, shape = (jnp.asarray(a.astype(dtype)) for a in (self.centre(dim), spread))
        gaussian, finite = _start_gaussian(family, mean, shape)
        if not np.all(np.isfinite(mean)):
            reason = f"{'init_mean' if self.box is None else 'box'} is infinite"
        if not finite:
            raise ValueError(f"{reason} in {jnp.dtype(dtype)}; give one this type can represent.")
        return gaussian

    def _scale(self, dim: int) -> np.ndarray:
        if self.box is not None:
            low, high = self._corners(dim)
            return (high - low) / np.sqrt(12)
        scale = _vector(1.0 if self.scale is None else self.scale, dim, "init_scale")
        if not np.all(scale > 0):
            raise ValueError("init_scale must be positive: it holds the standard deviations of the start.")
        return scale

    def _corners(self, dim: int) -> tuple[np.ndarray, np.ndarray]:
        if any(v is not None for v in (self.mean, self.scale, self.covariance)):
            raise ValueError("Give either box or init_mean, init_scale and init_covariance, not both.")
        try:
            low, high = self.box  # type: ignore[misc]
        except (TypeError, ValueError):
            raise ValueError(f"box must be a pair (low, high), got {self.box!r}.") from None
        low, high = _vector(low, dim, "box"), _vector(high, dim, "box")
        if not np.all(low < high):
            raise ValueError("box must be (low, high) with low < high in every dimension.")
        return low, high

    def _matrix(self, dim: int, family: type[AbstractGaussians]) -> np.ndarray:
        if self.scale is not None:
            raise ValueError("Give either init_scale or init_covariance, not both.")
        value = _numbers(self.covariance, "init_covariance")
        if value.ndim < 2:
            variances = _vector(value, dim, "init_covariance")
            if not np.all(variances > 0):
                raise ValueError("init_covariance must be positive: a variance of zero has no density.")
            return np.diag(variances)
        if value.shape != (dim, dim):
            raise ValueError(
                f"init_covariance must be a number or have shape [{dim}] or [{dim}, {dim}], "
                f"got {list(value.shape)}."
            )
        size = np.abs(value).max()
        if not np.isfinite(size) or not np.allclose(value, value.T, atol=1e-8 * size):
            raise ValueError("init_covariance must be finite and symmetric.")
        if family.axis_aligned and np.any(value[~np.eye(dim, dtype=bool)] != 0):
            raise ValueError(
                f"init_covariance has entries off the diagonal, which covariance={family.name!r} rules out."
            )
        eigenvalues = np.linalg.eigvalsh(value)
        if eigenvalues[0] <= 1e-12 * max(eigenvalues[-1], 0):
            raise ValueError("init_covariance is singular or not positive definite; give one with full rank.")
        return value


def initial_mixture(
    dim: int, dtype: Any, key: Array, region: Region, family: type[AbstractGaussians], components: int
) -> tuple[Mixture, Mixture]:
    """The initial mixture and the prior: means drawn from the prior, all with its covariance."""
    gaussian = region.gaussian(dim, dtype, family)
    prior = Mixture(jnp.zeros(1, dtype), gaussian)
    if components == 1:
        return prior, prior
    log_weights = jnp.full(components, -np.log(components), dtype)
    return Mixture(log_weights, _scattered(key, gaussian, components)), prior


@eqx.filter_jit
def _start_gaussian(
    family: type[AbstractGaussians],
    mean: Float[Array, " D"],
    spread: Float[Array, " D"] | Float[Array, "D D"],
) -> tuple[AbstractGaussians, Flag]:
    """The Gaussian with this covariance, or with these standard deviations, and whether it is finite."""
    build = family.from_covariance if spread.ndim == 2 else family.from_std
    gaussian = build(mean[None], spread[None])
    return gaussian, gaussian.finite()[0]


@eqx.filter_jit
def _scattered(key: PRNGKey, gaussian: AbstractGaussians, components: int) -> AbstractGaussians:
    """Gaussians of the same covariance, their means drawn from it."""
    noise = jax.random.normal(key, (1, components, gaussian.dim), gaussian.dtype)
    rows = jnp.zeros(components, jnp.int32)
    return dataclasses.replace(gaussian.take(rows), mean=gaussian.colour(noise)[0])


def _vector(value: ArrayLike, dim: int, name: str) -> np.ndarray:
    array = _numbers(value, name)
    if array.shape not in ((), (1,), (dim,)):
        raise ValueError(f"{name} must be a number or have shape [{dim}], got shape {list(array.shape)}.")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite.")
    return np.broadcast_to(array, (dim,)).copy()


def _numbers(value: Any, name: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold numbers, got {value!r}.") from None
    if array.dtype.kind not in "fiu" and array.dtype != jnp.bfloat16:
        raise ValueError(f"{name} must hold real numbers, got {value!r}.")
    return array.astype(float)


def _plain(value: Any) -> Any:
    return None if value is None else np.asarray(value, dtype=float).tolist()
