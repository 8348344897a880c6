"""A look at the current mixture: its ELBO on the reference target, from fresh samples."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix.array_types import PRNGKey
from natmix.kernels.compilation import quick_jit
from natmix.mixture import Mixture
from natmix.mixture.negligible import NEGLIGIBLE_WEIGHT
from natmix.modules.state import take_components
from natmix.targets import AbstractTarget

SAMPLES = 2000
FINAL_SAMPLES = 20_000
"""For the last look of a seed, whose number goes into tables (the paper: 2000)."""


@dataclasses.dataclass(frozen=True)
class Look:
    """-E[log p~ - log q] (Eq. 1) and what else was seen.

    Attributes:
        neg_elbo: infinite if a sample hit a density of zero.
        neg_elbo_se: its standard error, on the samples with a positive density.
        zero_share: share of samples with a density of zero.
        invalid_share: share of samples where the target gave NaN or +inf; they are left out.
    """

    neg_elbo: float
    neg_elbo_se: float
    zero_share: float
    invalid_share: float


def look(mixture: Mixture, reference: AbstractTarget, key: PRNGKey, samples: int = SAMPLES) -> Look:
    """Estimate the ELBO of a mixture of any capacity, without its negligible components."""
    log_p, log_q = (np.asarray(a, dtype=float) for a in _log_densities(mixture, reference, key, samples))
    zero, invalid = log_p == -np.inf, ~(log_p < np.inf)
    good = (log_q - log_p)[~zero & ~invalid]
    value = float(good.mean()) if good.size else float("nan")
    error = float(good.std(ddof=1) / np.sqrt(good.size)) if good.size > 1 else float("inf")
    return Look(float("inf") if zero.any() else value, error, float(zero.mean()), float(invalid.mean()))


@quick_jit()
def _log_densities(
    mixture: Mixture, reference: AbstractTarget, key: PRNGKey, samples: int
) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    # The rows stay, so that one program serves all looks until the number of rows changes.
    keep = mixture.components.finite() & (mixture.log_weights >= np.log(NEGLIGIBLE_WEIGHT))
    q = take_components(mixture, jnp.where(keep, jnp.arange(mixture.num_components), -1))
    q = Mixture(jax.nn.log_softmax(q.log_weights), q.components)
    key_x, key_target = jax.random.split(key)
    x = q.sample(samples, key=key_x)
    log_p = reference.evaluate(key_target, x, jnp.asarray(samples), needs_gradient=False).log_density
    return log_p, q.log_prob(x)
