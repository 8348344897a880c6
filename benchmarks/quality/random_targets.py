"""Log densities with drawn parameters, harmless and hostile ones, for `random_settings.py`.

The kind and the number of dimensions decide the program; everything else is an array, so that many targets of
a kind share one program.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

MODES = 4
ROWS = 30


class RandomDensity(eqx.Module):
    """A log density of z = (x - centre) / scale.

    Attributes:
        numbers: MODES x D standard normal draws, which each kind uses in its own sense.
        factors: one number in (0, 1) for each mode.
        data: for the regression.
        scale: the width of the density, in units of x.
        centre: where it is.
        offset: added to the log density.
        kind: the name of a function in `KINDS`.
    """

    numbers: Float[Array, "M D"]
    factors: Float[Array, " M"]
    data: Float[Array, "R D"]
    scale: Float[Array, ""]
    centre: Float[Array, " D"]
    offset: Float[Array, ""]
    kind: str = eqx.field(static=True)

    def __call__(self, x: Float[Array, " D"]) -> Float[Array, ""]:
        z = (x - self.centre) / self.scale
        return KINDS[self.kind](self, z) + self.offset


def _gaussians(p: RandomDensity, z: Array) -> Array:
    widths = 0.05 + p.factors
    square = jnp.sum((z - 3 * p.numbers) ** 2, axis=1) / widths**2
    return jax.nn.logsumexp(-0.5 * square - z.size * jnp.log(widths))


def _students(p: RandomDensity, z: Array) -> Array:
    square = jnp.sum((z - 3 * p.numbers) ** 2, axis=1)
    return jax.nn.logsumexp(-0.5 * (z.size + 2) * jnp.log1p(square / 2))


def _ill_conditioned(p: RandomDensity, z: Array) -> Array:
    """One Gaussian with standard deviations over four orders of magnitude."""
    widths = 10 ** jnp.clip(-4 * jnp.arange(z.size) / max(1, z.size - 1), -4, 0)
    return -0.5 * jnp.sum((z / widths) ** 2)


def _banana(p: RandomDensity, z: Array) -> Array:
    return -0.5 * jnp.sum(z**2) - 10 * p.factors[0] * (z[-1] - z[0] ** 2) ** 2


def _funnel(p: RandomDensity, z: Array) -> Array:
    rest = z[1:]
    return -0.5 * (z[0] / 3) ** 2 - 0.5 * jnp.sum(rest**2) * jnp.exp(-z[0]) - 0.5 * rest.size * z[0]


def _regression(p: RandomDensity, z: Array) -> Array:
    margins = p.data @ z
    return -jnp.sum(jax.nn.softplus(-margins)) - 0.05 * jnp.sum(z**2)


def _half(p: RandomDensity, z: Array) -> Array:
    """Zero beyond a plane."""
    return jnp.where(p.numbers[0] @ z < 1.0, -0.5 * jnp.sum(z**2), -jnp.inf)


def _box(p: RandomDensity, z: Array) -> Array:
    """Uniform: gradients of zero, and a density of zero outside."""
    return jnp.where(jnp.max(jnp.abs(z)) < 1, 0.0, -jnp.inf) + 0 * jnp.sum(z)


def _steps(p: RandomDensity, z: Array) -> Array:
    return -jnp.floor(2 * jnp.sum(jnp.abs(z))) + 0 * jnp.sum(z)


def _nan_region(p: RandomDensity, z: Array) -> Array:
    return jnp.where(z[0] > 1.5, jnp.nan, -0.5 * jnp.sum(z**2))


def _nan_gradients(p: RandomDensity, z: Array) -> Array:
    """The derivative of the square root at 0 is infinite, and 0 times that NaN."""
    return -0.5 * jnp.sum(z**2) + 0 * jnp.sqrt(jnp.maximum(z[0], 0))


def _pole(p: RandomDensity, z: Array) -> Array:
    """Unbounded at 0."""
    return -0.5 * jnp.sum(z**2) - 0.5 * jnp.log(jnp.sum(z**2))


def _improper(p: RandomDensity, z: Array) -> Array:
    return 0.01 * jnp.sum(z)


def _steep(p: RandomDensity, z: Array) -> Array:
    return -0.5 * jnp.sum(z**2) * 1e12


def _quartic(p: RandomDensity, z: Array) -> Array:
    return -jnp.sum(z**4) + 2 * jnp.sum(z**2)


def _overflow(p: RandomDensity, z: Array) -> Array:
    """exp(|z|^2) is beyond a float32 for moderate z."""
    return -jnp.exp(jnp.sum(z**2))


def _minibatch_like(p: RandomDensity, z: Array) -> Array:
    """Rough: the same value again, with a ripple as fine as noise."""
    return -0.5 * jnp.sum(z**2) + 0.3 * jnp.sin(1e3 * z[0])


KINDS: dict[str, Callable[[RandomDensity, Array], Array]] = {
    "Gaussians": _gaussians,
    "Student's t": _students,
    "ill-conditioned": _ill_conditioned,
    "banana": _banana,
    "funnel": _funnel,
    "regression": _regression,
    "quartic": _quartic,
    "ripple": _minibatch_like,
    "half": _half,
    "box": _box,
    "steps": _steps,
    "NaN region": _nan_region,
    "NaN gradients": _nan_gradients,
    "pole": _pole,
    "improper": _improper,
    "steep": _steep,
    "overflow": _overflow,
}
"""The first eight are harmless; the others have zeros, NaN, infinite or no gradients, or no integral."""

HARMLESS = tuple(KINDS)[:8]


def drawn(rng: np.random.Generator, kind: str, dim: int, dtype: type) -> tuple[RandomDensity, float]:
    """A density of this kind, and its scale."""
    scale = float(10 ** rng.uniform(-3, 3))
    offset = float(rng.choice([0.0, 0.0, 0.0, -1e3, 1e3, 1e6]))
    arrays = (
        rng.normal(size=(MODES, dim)),
        rng.uniform(size=MODES),
        rng.normal(size=(ROWS, dim)) + 0.3,
        np.asarray(scale),
        scale * rng.uniform(-10, 10, dim) * (rng.uniform() < 0.5),
        np.asarray(offset),
    )
    numbers, factors, data, width, centre, constant = (jnp.asarray(a.astype(dtype)) for a in arrays)
    return RandomDensity(numbers, factors, data, width, centre, constant, kind), scale
