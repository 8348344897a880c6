"""Look for modes that the mixture does not have: climb from many points, and see what is up there."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix._types import PRNGKey
from natmix.mixture import Mixture
from natmix.targets import AbstractTarget

_STEPS = 200
_APART = 3.0
"""Optima are one if they are closer than this, in standard deviations of the sharper one."""
_LACKING = 2.0
"""Nats of log density that the mixture must lack at an optimum."""
_WORTH = 0.01
"""Share of all mass, by Laplace's approximation, that a missed mode must have."""


class MissedMode(NamedTuple):
    """An optimum of the target where the mixture is far too low.

    Attributes:
        position: the optimum.
        share: of all mass, by Laplace's approximation there.
        lack: nats by which the mixture's log density is too low there.
    """

    position: Float[np.ndarray, " D"]
    share: float
    lack: float


class Hunt(NamedTuple):
    """What a search for missed modes found.

    Attributes:
        missed: modes that the mixture does not have, the largest first.
        optima: different optima found in all.
        starts: searches made.
        evaluations: of the target (values and gradients; a Hessian counts as D).
    """

    missed: tuple[MissedMode, ...]
    optima: int
    starts: int
    evaluations: int


def hunt(
    mixture: Mixture,
    target: AbstractTarget,
    start: Mixture,
    log_evidence: float,
    key: PRNGKey,
    starts: int,
) -> Hunt:
    """Climb the log density by BFGS from samples of the start region, made 1, 3 and 10 times as wide."""
    from jax.scipy.optimize import minimize

    key_x, key_target = jax.random.split(key)
    wider = jnp.asarray([1.0, 3.0, 10.0])[jnp.arange(starts) % 3, None]
    x0 = (start.mean() + wider * (start.sample(key_x, starts) - start.mean())).astype(mixture.dtype)

    def log_density(x: Float[Array, " D"]) -> Array:
        return target.evaluate(key_target, x[None], jnp.asarray(1), needs_gradient=False).log_density[0]

    def climb(x: Float[Array, " D"]) -> tuple[Array, Array, Array]:
        found = minimize(lambda x: -log_density(x), x, method="BFGS", options={"maxiter": _STEPS})
        return found.x, -found.fun, jnp.asarray(found.nfev)

    tops, heights, calls = (np.asarray(a, float) for a in jax.jit(jax.vmap(climb))(x0))
    evaluations = int(calls.sum())
    hessian = jax.jit(jax.hessian(log_density))
    optima: list[tuple[np.ndarray, float, float]] = []
    for i in np.argsort(-np.where(np.isfinite(heights), heights, -np.inf)):
        x = tops[i]
        if not np.all(np.isfinite(x)) or not np.isfinite(heights[i]):
            continue
        precision = -np.asarray(hessian(jnp.asarray(x, mixture.dtype)), float)
        evaluations += mixture.dim
        sign, log_det = np.linalg.slogdet(precision)
        if sign <= 0 or np.linalg.eigvalsh(precision)[0] <= 0:
            continue  # a saddle, or a ridge where the climb has not ended
        if any((x - y) @ precision @ (x - y) < _APART**2 for y, _, _ in optima):
            continue
        mass = heights[i] + 0.5 * (mixture.dim * np.log(2 * np.pi) - log_det)
        optima.append((x, float(heights[i]), float(mass)))
    return Hunt(_lacking(mixture, optima, log_evidence), len(optima), starts, evaluations)


def _lacking(
    mixture: Mixture, optima: list[tuple[np.ndarray, float, float]], log_evidence: float
) -> tuple[MissedMode, ...]:
    if not optima:
        return ()
    positions, heights, masses = (np.asarray(column) for column in zip(*optima, strict=True))
    here = np.asarray(mixture.log_prob(jnp.asarray(positions, mixture.dtype)), float)
    lack = heights - log_evidence - here
    lacking = lack > _LACKING
    total = np.logaddexp.reduce([log_evidence, *masses[lacking]])
    found = [
        MissedMode(positions[i], float(np.exp(masses[i] - total)), float(lack[i]))
        for i in np.flatnonzero(lacking)
    ]
    return tuple(sorted((m for m in found if m.share >= _WORTH), key=lambda m: -m.share))
