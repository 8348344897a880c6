"""Test problems: a target with its initial region and what is known about it."""

import functools
from collections.abc import Callable
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix.array_types import PRNGKey
from natmix.estimate import format_estimate
from natmix.gaussians import AbstractGaussians, family_named
from natmix.mixture import Mixture
from natmix.targets import JaxTarget
from natmix.text.html import block, headline, html_table


class Sampler(Protocol):
    """Draws exact samples of a target."""

    def __call__(self, n: int, *, key: PRNGKey) -> Float[Array, "n D"]:
        """``n`` independent samples."""
        ...


SecondaryMetric = Callable[[Mixture, PRNGKey], float]


class InitialRegion(eqx.Module):
    """The initial mixture of a run: means from N(mean, mean_scale^2), all with the same diagonal covariance.

    Mean and variance also define the prior, from which candidates for new components are drawn.
    """

    mean: tuple[float, ...] = eqx.field(static=True)
    mean_scale: tuple[float, ...] = eqx.field(static=True)
    variance: tuple[float, ...] = eqx.field(static=True)

    @classmethod
    def build(cls, dim: int, mean: Any, mean_scale: Any, variance: Any) -> "InitialRegion":
        """A start from numbers, or from one number per dimension."""
        return cls(*(_per_dimension(v, dim) for v in (mean, mean_scale, variance)))

    def mixture(
        self, key: PRNGKey, components: int, dtype: Any, covariance: str = "full"
    ) -> tuple[Mixture, Mixture]:
        """The initial mixture (one component: the mean itself) and the prior."""
        family = family_named(covariance)
        prior = Mixture(
            jnp.asarray(np.zeros(1), dtype), self._gaussians(family, jnp.asarray([self.mean], dtype))
        )
        if components == 1:
            return prior, prior
        noise = jax.random.normal(key, (components, len(self.mean)), dtype)
        means = jnp.asarray(self.mean, dtype) + noise * jnp.asarray(self.mean_scale, dtype)
        weights = jnp.asarray(np.full(components, -np.log(components)), dtype)
        return Mixture(weights, self._gaussians(family, means)), prior

    def padded_mixture(
        self, key: PRNGKey, components: int, slots: int, dtype: Any, covariance: str = "full"
    ) -> tuple[Mixture, Mixture]:
        """The same with absent components up to ``slots``; what is compiled depends on ``slots`` alone."""
        family = family_named(covariance)
        prior = Mixture(
            jnp.asarray(np.zeros(1), dtype), self._gaussians(family, jnp.asarray([self.mean], dtype))
        )
        mean, scale, variance = (np.asarray(v, dtype) for v in (self.mean, self.mean_scale, self.variance))
        present = np.arange(slots)[:, None] < components
        means = np.broadcast_to(mean, (slots, mean.size))
        if components > 1:  # rounded as above: not within one program
            means = means + np.asarray(_noise(key, slots, mean.size, np.dtype(dtype))) * scale
        std = np.where(present, np.sqrt(variance), np.ones_like(variance))
        weights = np.where(present[:, 0], -np.log(components), -np.inf)
        padded = _from_std(
            family, jnp.asarray(np.where(present, means, 0).astype(mean.dtype)), jnp.asarray(std)
        )
        return Mixture(jnp.asarray(weights, dtype), padded), prior

    def _gaussians(self, family: type[AbstractGaussians], mean: Float[Array, "K D"]) -> AbstractGaussians:
        std = np.sqrt(np.asarray(self.variance, mean.dtype))
        return _from_std(family, mean, jnp.asarray(np.broadcast_to(std, mean.shape)))


@eqx.filter_jit
def _from_std(
    family: type[AbstractGaussians], mean: Float[Array, "K D"], std: Float[Array, "K D"]
) -> AbstractGaussians:
    """Compiled as one program, because JAX compiles every operation outside of one by itself."""
    return family.from_std(mean, std)


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _noise(key: PRNGKey, slots: int, dim: int, dtype: Any) -> Float[Array, "K D"]:
    """Standard normal numbers; those of a component do not depend on how many there are."""
    return jax.random.normal(key, (slots, dim), dtype)


class Problem(eqx.Module):
    """A target with what is known about it.

    Attributes:
        name: as in ``natmix run NAME``.
        title: in a few words.
        target: what the algorithm sees; random where it uses minibatches. Data are array leaves of
            ``target.fn``, so that the targets of several seeds share one compiled program.
        reference: what the ELBO is reported on; the full data where the target uses minibatches.
        start: the initial region of runs.
        log_evidence: log of the target's normaliser, if known; no -ELBO is below minus this.
        log_evidence_se: its standard error if it was estimated (``natmix references``), 0 if exact.
        modes: centres of the target's modes, if known.
        sample: draws exact samples of the target, if that is possible.
        secondary: the problem's own metrics, by name.
        infinite: metrics that are infinite for this target, by name, with the reason.
    """

    name: str = eqx.field(static=True)
    title: str = eqx.field(static=True)
    target: JaxTarget
    reference: JaxTarget
    start: InitialRegion
    log_evidence: float | None = eqx.field(static=True, default=None)
    log_evidence_se: float = eqx.field(static=True, default=0.0)
    modes: Float[Array, "M D"] | None = None
    sample: Sampler | None = eqx.field(static=True, default=None)
    secondary: dict[str, SecondaryMetric] = eqx.field(static=True, default_factory=dict)
    infinite: dict[str, str] = eqx.field(static=True, default_factory=dict)

    @property
    def dim(self) -> int:
        """D."""
        return self.target.dim

    def _repr_html_(self) -> str:
        known = [("dimensions", f"{self.dim:,}")]
        if self.log_evidence is not None:
            known.append(("log evidence", format_estimate(self.log_evidence, self.log_evidence_se)))
        if self.modes is not None:
            known.append(("modes", f"{len(self.modes):,}"))
        known.append(("draws exact samples", "no" if self.sample is None else "yes"))
        rows = [*known, *((name, reason) for name, reason in self.infinite.items())]
        return block(headline(f"{self.name}: {self.title}"), html_table(("", ""), rows, (True, True)))


def _per_dimension(value: Any, dim: int) -> tuple[float, ...]:
    return tuple(float(v) for v in np.broadcast_to(np.asarray(value, float), (dim,)))
