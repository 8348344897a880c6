"""Small targets with exact samples, normalised densities and known log evidence.

Each density is an affine map of a standard form. All parameters are array leaves, so that targets of one form
and dimension share compiled programs.
"""

import abc
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.scipy.stats import norm
from jaxtyping import Array, Float
from random_mixtures import KnownMixture
from scipy.stats import truncnorm

LOG_2PI = float(np.log(2 * np.pi))


class Form(eqx.Module):
    """A normalised density of z."""

    @abc.abstractmethod
    def __call__(self, z: Float[Array, " D"]) -> Float[Array, ""]:
        """The log density."""

    @abc.abstractmethod
    def sample(self, rng: np.random.Generator, n: int, dim: int) -> Float[np.ndarray, "n D"]:
        """Exact samples."""


class Normal(Form):
    """The standard normal distribution."""

    def __call__(self, z: Float[Array, " D"]) -> Float[Array, ""]:
        return -0.5 * jnp.sum(z**2) - 0.5 * z.size * LOG_2PI

    def sample(self, rng: np.random.Generator, n: int, dim: int) -> Float[np.ndarray, "n D"]:
        return rng.normal(size=(n, dim))


class Student(Form):
    """Multivariate Student's t; Cauchy with one degree of freedom."""

    dof: Float[Array, ""]

    def __call__(self, z: Float[Array, " D"]) -> Float[Array, ""]:
        power = 0.5 * (self.dof + z.size)
        scale = gammaln(power) - gammaln(0.5 * self.dof) - 0.5 * z.size * jnp.log(self.dof * jnp.pi)
        return scale - power * jnp.log1p(jnp.sum(z**2) / self.dof)

    def sample(self, rng: np.random.Generator, n: int, dim: int) -> Float[np.ndarray, "n D"]:
        dof = float(self.dof)
        return rng.normal(size=(n, dim)) * np.sqrt(dof / rng.chisquare(dof, (n, 1)))


class Cauchies(Form):
    """Independent Cauchy distributions."""

    def __call__(self, z: Float[Array, " D"]) -> Float[Array, ""]:
        return -jnp.sum(jnp.log1p(z**2)) - z.size * jnp.log(jnp.pi)

    def sample(self, rng: np.random.Generator, n: int, dim: int) -> Float[np.ndarray, "n D"]:
        return rng.standard_cauchy((n, dim))


class Skewed(Form):
    """Independent skew normal distributions."""

    slant: Float[Array, " D"]

    def __call__(self, z: Float[Array, " D"]) -> Float[Array, ""]:
        return jnp.sum(jnp.log(2.0) + norm.logpdf(z) + norm.logcdf(self.slant * z))

    def sample(self, rng: np.random.Generator, n: int, dim: int) -> Float[np.ndarray, "n D"]:
        slant = np.asarray(self.slant, float)
        share = slant / np.sqrt(1 + slant**2)
        first, second = rng.normal(size=(2, n, dim))
        return share * np.abs(first) + np.sqrt(1 - share**2) * second


class Banana(Form):
    """z_1 given z_0 is normal around bend * (z_0^2 - 1); all others are standard normal."""

    bend: Float[Array, ""]
    width: Float[Array, ""]

    def __call__(self, z: Float[Array, " D"]) -> Float[Array, ""]:
        across = norm.logpdf(z[1], self.bend * (z[0] ** 2 - 1), self.width)
        return norm.logpdf(z[0]) + across + jnp.sum(norm.logpdf(z[2:]))

    def sample(self, rng: np.random.Generator, n: int, dim: int) -> Float[np.ndarray, "n D"]:
        z = rng.normal(size=(n, dim))
        z[:, 1] = float(self.bend) * (z[:, 0] ** 2 - 1) + float(self.width) * z[:, 1]
        return z


class Funnel(Form):
    """Neal's: z_0 is normal, all others are normal with variance exp(z_0)."""

    scale: Float[Array, ""]

    def __call__(self, z: Float[Array, " D"]) -> Float[Array, ""]:
        others = -0.5 * jnp.exp(-z[0]) * jnp.sum(z[1:] ** 2) - 0.5 * (z.size - 1) * (z[0] + LOG_2PI)
        return norm.logpdf(z[0], 0.0, self.scale) + others

    def sample(self, rng: np.random.Generator, n: int, dim: int) -> Float[np.ndarray, "n D"]:
        z = rng.normal(size=(n, dim))
        z[:, 0] *= float(self.scale)
        z[:, 1:] *= np.exp(0.5 * z[:, :1])
        return z


class Truncated(Form):
    """Standard normal where z_0 > edge, zero elsewhere."""

    edge: Float[Array, ""]

    def __call__(self, z: Float[Array, " D"]) -> Float[Array, ""]:
        inside = -0.5 * jnp.sum(z**2) - 0.5 * z.size * LOG_2PI - norm.logsf(self.edge)
        return jnp.where(z[0] > self.edge, inside, -jnp.inf)

    def sample(self, rng: np.random.Generator, n: int, dim: int) -> Float[np.ndarray, "n D"]:
        z = rng.normal(size=(n, dim))
        z[:, 0] = truncnorm.rvs(float(self.edge), np.inf, size=n, random_state=rng)
        return z


class Improper(Form):
    """The density of z_0 falls like |z_0|^(-2 power), power at most 1/2: its integral is infinite."""

    power: Float[Array, ""]

    def __call__(self, z: Float[Array, " D"]) -> Float[Array, ""]:
        return -self.power * jnp.log1p(z[0] ** 2) - 0.5 * jnp.sum(z[1:] ** 2)

    def sample(self, rng: np.random.Generator, n: int, dim: int) -> Float[np.ndarray, "n D"]:
        raise ValueError("This density cannot be normalised.")


class Mapped(eqx.Module):
    """log p~(x) = log form(W (x - mean)) + log |W| + offset; ``offset`` is log Z."""

    form: Form
    mean: Float[Array, " D"]
    whitening: Float[Array, "D D"]
    offset: Float[Array, ""]

    def __call__(self, x: Float[Array, " D"]) -> Float[Array, ""]:
        z = jnp.matmul(self.whitening, x - self.mean, precision="highest")
        log_det = jnp.sum(jnp.log(jnp.abs(jnp.diagonal(self.whitening))))
        return self.form(z) + log_det + self.offset


class WrongGradient(eqx.Module):
    """A log density with its gradient, wrong by a factor in some coordinates."""

    density: Mapped
    factors: Float[Array, " D"]

    def __call__(self, x: Float[Array, " D"]) -> tuple[Float[Array, ""], Float[Array, " D"]]:
        value, gradient = jax.value_and_grad(self.density)(x)
        return value, self.factors * gradient


@dataclasses.dataclass(frozen=True)
class Truth:
    """What is known of a target, in float64.

    Attributes:
        density: the log density, whose log evidence is ``log_z``.
        dim: D.
        log_z: NaN if the density cannot be normalised.
    """

    density: Mapped | KnownMixture
    dim: int
    log_z: float

    @property
    def proper(self) -> bool:
        """Whether the density can be normalised."""
        return not np.isnan(self.log_z)

    def log_prob(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        """The normalised log density."""
        if isinstance(self.density, KnownMixture):
            return self.density.log_prob(x)
        plain = eqx.tree_at(lambda d: d.offset, self.density, jnp.zeros_like(self.density.offset))
        leaves = jax.tree.map(lambda a: np.asarray(a, np.float64), plain)
        with jax.enable_x64(True):
            return np.asarray(_values(leaves, np.asarray(x, np.float64)))

    def sample(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n D"]:
        """Exact samples."""
        if isinstance(self.density, KnownMixture):
            return self.density.sample(rng, n)
        z = self.density.form.sample(rng, n, self.dim)
        whitening = np.asarray(self.density.whitening, float)
        return np.asarray(self.density.mean, float) + np.linalg.solve(whitening, z.T).T


@jax.jit
def _values(density: Mapped, x: Float[Array, "N D"]) -> Float[Array, " N"]:
    return jax.vmap(density)(x)


def mapped(
    rng: np.random.Generator, form: Form, dim: int, condition: float = 10.0, offset: float | None = None
) -> Mapped:
    """The form moved by about 2, with standard deviations around 1 and a random covariance.

    Args:
        rng: random numbers.
        form: the density of z.
        dim: D.
        condition: the ratio of the longest to the shortest axis, in standard deviations.
        offset: log Z; if left out uniform from -20 to 20.
    """
    axes = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    scales = np.exp(rng.uniform(-0.5, 0.5) + np.log(condition) * (rng.uniform(size=dim) - 0.5))
    factor = np.linalg.cholesky((axes * scales**2) @ axes.T)
    shift = rng.uniform(-20, 20) if offset is None else offset
    return Mapped(
        form,
        jnp.asarray(rng.normal(scale=2.0, size=dim), float),
        jnp.asarray(np.linalg.inv(factor), float),
        jnp.asarray(shift, float),
    )


def close_mixture(
    rng: np.random.Generator, dim: int, modes: int, distance: float, width_ratio: float
) -> KnownMixture:
    """A mixture around the origin; the closest modes are ``distance`` widths of the wider one apart."""
    widths = width_ratio ** rng.uniform(-0.5, 0.5, size=modes)
    means = rng.normal(size=(modes, dim))
    apart = np.linalg.norm(means[:, None] - means, axis=-1) / np.maximum(widths[:, None], widths)
    means *= distance / apart[~np.eye(modes, dtype=bool)].min()
    weights = 0.02 + (1 - 0.02 * modes) * rng.dirichlet(np.ones(modes))
    return KnownMixture(weights, means, widths[:, None, None] * np.eye(dim))
