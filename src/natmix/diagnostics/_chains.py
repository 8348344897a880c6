"""Short Markov chains that leave the target as it is, with steps as wide as the mixture is where they are.

A state is a point x and a component o. In turn o is drawn from q(o|x), and x moves by Hamiltonian Monte Carlo
(by a random walk without gradients) for the density p(x) q(o|x) and the metric of component o. The joint
density p(x) q(o|x) has p as its marginal, and every step leaves it invariant: whoever starts from p stays p.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natmix._blocks import block_rows, map_blocks
from natmix._linalg import einsum
from natmix._square_root import scale_tril
from natmix.mixture import Mixture
from natmix.starts._values import Values

LEAPS = 8
"""Leapfrog steps, and evaluations, of one step of a chain with gradients."""
_LONGEST, _SHORTEST = 1.2, 0.1
"""Of a leapfrog step, over D^(1/4), in the component's standard deviations; drawn anew for every step, evenly
on a log scale: short ones get on where the target is narrower than the component."""
_WALK = 2.4
"""Of a random walk's step, over D^(1/2), the longest; the shortest is an eighth."""


class Walked(NamedTuple):
    """Chains.

    Attributes:
        log_ratio: log p~ - log q after every step.
        accepted: share of steps.
        x: the last points.
    """

    log_ratio: Float[np.ndarray, "T N"]
    accepted: float
    x: Float[np.ndarray, "N D"]


class _Place(NamedTuple):
    """Where the chains are; gradients are None without them."""

    x: Float[np.ndarray, "N D"]
    log_p: Float[np.ndarray, " N"]
    log_q: Float[np.ndarray, " N"]
    log_share: Float[np.ndarray, " N"]
    gradient: Float[np.ndarray, "N D"] | None

    @property
    def height(self) -> Float[np.ndarray, " N"]:
        """Log p + log q(o|x)."""
        return self.log_p + self.log_share


def walk(
    mixture: Mixture, values: Values, x: Float[np.ndarray, "N D"], steps: int, seed: int, *, gradients: bool
) -> Walked:
    """So many steps from each point, at which the density must be positive."""
    rng = np.random.default_rng(seed)
    log_p, slope = values.with_gradient(x) if gradients else (values.alone(x), None)
    ratios, accepted = [], 0.0
    for _ in range(steps):
        rows = _drawn(np.asarray(mixture.responsibilities(x), float), rng)
        place = _seen(mixture, x, rows, log_p, slope)
        move = _leapt if gradients else _jumped
        with np.errstate(over="ignore", invalid="ignore"):  # a step that overflows is not taken
            new, log_odds = move(mixture, values, place, rows, rng)
        taken = np.log(rng.uniform(size=len(x))) < np.where(np.isfinite(new.log_p), log_odds, -np.inf)
        x = np.where(taken[:, None], new.x, x)
        log_p = np.where(taken, new.log_p, log_p)
        slope = (
            None if slope is None or new.gradient is None else np.where(taken[:, None], new.gradient, slope)
        )
        ratios.append(log_p - np.where(taken, new.log_q, place.log_q))
        accepted += float(taken.mean()) / steps
    return Walked(np.stack(ratios), accepted, x)


def _drawn(shares: Float[np.ndarray, "N K"], rng: np.random.Generator) -> Int[np.ndarray, " N"]:
    edges = np.cumsum(shares, axis=1)
    u = rng.uniform(size=(len(shares), 1)) * edges[:, -1:]
    return np.minimum(np.sum(u >= edges, axis=1), shares.shape[1] - 1)


def _seen(
    mixture: Mixture,
    x: Float[np.ndarray, "N D"],
    rows: Int[np.ndarray, " N"],
    log_p: Float[np.ndarray, " N"],
    gradient: Float[np.ndarray, "N D"] | None,
) -> _Place:
    log_q, log_share, _ = _share(mixture, jnp.asarray(x, mixture.dtype), jnp.asarray(rows), False)
    return _Place(x, log_p, np.asarray(log_q, float), np.asarray(log_share, float), gradient)


def _leapt(
    mixture: Mixture, values: Values, place: _Place, rows: Int[np.ndarray, " N"], rng: np.random.Generator
) -> tuple[_Place, Float[np.ndarray, " N"]]:
    """Hamiltonian Monte Carlo: where it leads, and the log odds of going there."""
    N, D = place.x.shape
    where = jnp.asarray(rows)
    momentum = first = rng.normal(size=(N, D))
    longest = _LONGEST / D**0.25
    step = longest * np.exp(-rng.uniform(size=(N, 1)) * np.log(_LONGEST / _SHORTEST))
    x, log_p, slope = place.x, place.log_p, place.gradient
    for i in range(LEAPS + 1):
        log_q, log_share, pull = _share(mixture, jnp.asarray(x, mixture.dtype), where, True)
        force = np.asarray(
            _pulled(mixture, jnp.asarray(slope + np.asarray(pull), mixture.dtype), where), float
        )
        momentum = momentum + (0.5 if i in (0, LEAPS) else 1.0) * step * np.where(
            np.isfinite(force), force, 0
        )
        if i < LEAPS:
            x = x + np.asarray(_pushed(mixture, jnp.asarray(step * momentum, mixture.dtype), where), float)
            log_p, slope = values.with_gradient(x)
    new = _Place(x, log_p, np.asarray(log_q, float), np.asarray(log_share, float), slope)
    kinetic = 0.5 * np.sum(momentum**2 - first**2, axis=1)
    return new, new.height - place.height - kinetic


def _jumped(
    mixture: Mixture, values: Values, place: _Place, rows: Int[np.ndarray, " N"], rng: np.random.Generator
) -> tuple[_Place, Float[np.ndarray, " N"]]:
    """A random walk."""
    N, D = place.x.shape
    step = _WALK / np.sqrt(D) * np.exp(-rng.uniform(size=(N, 1)) * np.log(8))
    push = _pushed(mixture, jnp.asarray(step * rng.normal(size=(N, D)), mixture.dtype), jnp.asarray(rows))
    x = place.x + np.asarray(push, float)
    new = _seen(mixture, x, rows, values.alone(x), None)
    return new, new.height - place.height


@eqx.filter_jit
def _share(
    mixture: Mixture, x: Float[Array, "N D"], rows: Int[Array, " N"], slope: bool
) -> tuple[Float[Array, " N"], Float[Array, " N"], Float[Array, "N D"] | None]:
    """Log q(x), log q(o|x), and the gradient of the latter."""
    joint = mixture.components.log_prob(x) + mixture.log_weights
    log_q = jax.scipy.special.logsumexp(joint, axis=1)
    log_share = jnp.take_along_axis(joint, rows[:, None], axis=1)[:, 0] - log_q
    if not slope:
        return log_q, log_share, None
    own = jax.nn.one_hot(rows, mixture.num_components, dtype=x.dtype)
    score = mixture.components.mixture_score
    return log_q, log_share, score(own, x) - score(jnp.exp(joint - log_q[:, None]), x)


@eqx.filter_jit
def _pushed(mixture: Mixture, y: Float[Array, "N D"], rows: Int[Array, " N"]) -> Float[Array, "N D"]:
    """L y, the factor of each one's component."""
    L = scale_tril(mixture.components)
    return map_blocks(lambda y, k: einsum("nj,nij->ni", y, L[k]), (y, rows), block_rows(mixture.dim**2))


@eqx.filter_jit
def _pulled(mixture: Mixture, g: Float[Array, "N D"], rows: Int[Array, " N"]) -> Float[Array, "N D"]:
    """L^T g."""
    L = scale_tril(mixture.components)
    return map_blocks(lambda g, k: einsum("nj,nji->ni", g, L[k]), (g, rows), block_rows(mixture.dim**2))
