"""The trust region's search by Cholesky factors, for dimensions where eigen-decompositions are slow."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from natmix.array_types import Count, Scalar
from natmix.kernels.interval_search import first_inside
from natmix.kernels.linalg import einsum, upper_cholesky
from natmix.kernels.trust_region.kl_by_moments import KlByMoments

_EVALUATIONS = 16
_AIM = 0.996
_ENOUGH = 0.99
"""A step is long enough when its KL is this share of the bound."""

_AROUND = 6.0
_HALVINGS = 8
_SECTION = 2 * _AROUND / 2**_HALVINGS
_NEWTON_STEPS = 2
_APART = 0.02
"""Distances in log eta. The first guess is searched within `_AROUND` of the value for short steps and then
refined by Newton steps of at most `_SECTION`; `_APART` is the step of a finite difference."""


class CholeskyStep(NamedTuple):
    """The longest step found, per component."""

    factor: Float[Array, "K D D"]
    """U with I + A/eta = U U^T."""
    shift: Float[Array, "K D"]
    kl: Float[Array, " K"]
    ok: Bool[Array, " K"]


class _Search(NamedTuple):
    evaluations: Count
    log_eta: Float[Array, " K"]
    """The next one to try."""
    low: Float[Array, " K"]
    """Largest log eta known to be too small; log T - 1 when T itself may do."""
    high: Float[Array, " K"]
    """Smallest log eta known to be inside, inf before there is one."""
    slope: Float[Array, " K"]
    """d log KL / d log eta; -2 for a short step."""
    last: Float[Array, "2 K"]
    """The last point of the search: log eta and log KL."""
    best: CholeskyStep
    """The step at ``high``."""
    done: Bool[Array, " K"]


def cholesky_search(
    A: Float[Array, "K D D"], a: Float[Array, "K D"], bound: Float[Array, " K"], temperature: Scalar
) -> CholeskyStep:
    """The step with the smallest eta >= T such that I + A/eta > 0 and KL <= bound.

    Moments give the first guess, which is often good enough; the secant method on a log-log scale, within a
    bracket, does the rest.
    """
    log_T = jnp.log(temperature) + jnp.zeros_like(bound)
    tiny = jnp.finfo(A.dtype).tiny
    guess, slope = _guess(A, a, jnp.maximum(bound, tiny))

    def unfinished(search: _Search) -> Array:
        return ~jnp.all(search.done) & (search.evaluations < _EVALUATIONS)

    def advance(search: _Search) -> _Search:
        t = search.log_eta
        tried = _step_at(A, a, jnp.exp(t))
        kl = tried.kl
        inside = kl <= bound
        low = jnp.where(inside, search.low, jnp.maximum(search.low, t))
        high = jnp.where(inside, jnp.minimum(search.high, t), search.high)
        done = search.done | (inside & ((kl >= _ENOUGH * bound) | (t <= log_T)))
        known = jnp.isfinite(kl) & (kl > 0)
        log_kl = jnp.log(jnp.where(known, kl, 1))
        secant = (log_kl - search.last[1]) / (t - search.last[0])
        slope = jnp.where(known & (jnp.abs(secant) < 1e3), jnp.clip(secant, -200.0, -0.5), search.slope)
        step = (jnp.log(_AIM * jnp.maximum(bound, tiny)) - log_kl) / slope
        wanted = jnp.where(known, t + step, jnp.inf)
        wanted = jnp.maximum(wanted, log_T)
        bracketed = jnp.isfinite(high)
        middle = jnp.where(bracketed, 0.5 * (low + high), t + 1.0)
        usable = (wanted > low) & (wanted < jnp.where(bracketed, high, t + 10.0))
        return _Search(
            evaluations=search.evaluations + 1,
            log_eta=jnp.where(usable, wanted, middle),
            low=low,
            high=high,
            slope=slope,
            last=jnp.where(known, jnp.stack([t, log_kl]), search.last),
            best=_chosen(inside & (t < search.high) & ~search.done, tried, search.best),
            done=done,
        )

    start = _Search(
        evaluations=jnp.zeros((), jnp.int32),
        log_eta=jnp.maximum(guess, log_T),
        low=log_T - 1.0,
        high=jnp.full_like(bound, jnp.inf),
        slope=slope,
        last=jnp.full((2, *bound.shape), jnp.nan, bound.dtype),
        best=CholeskyStep(A, a, jnp.zeros_like(bound), jnp.zeros(bound.shape, bool)),
        done=bound <= 0,
    )
    # The first step is outside of the loop: it is often the only one, and loops are slow on an accelerator.
    found = jax.lax.while_loop(unfinished, advance, advance(start))
    return found.best._replace(ok=found.best.ok & (bound > 0))


def _guess(
    A: Float[Array, "K D D"], a: Float[Array, "K D"], bound: Float[Array, " K"]
) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """Log eta with a KL of about `_AIM` times the bound, and d log KL / d log eta there."""
    kl = KlByMoments.of(A, a)
    short = jnp.maximum(kl.of_short_steps(), jnp.finfo(A.dtype).tiny)
    middle = jnp.log(short) - 0.5 * jnp.log(bound)
    low, high = middle - _AROUND, middle + _AROUND
    t = first_inside(lambda t: kl(t) <= _AIM * bound, low, high, _HALVINGS, bound.size)
    slope = _slope(kl, t)
    for _ in range(_NEWTON_STEPS):
        step = (jnp.log(_AIM * bound) - jnp.log(kl(t))) / slope
        wanted = t + jnp.clip(step, -_SECTION, _SECTION)
        t = jnp.where(kl(wanted) > 0, wanted, t)
        slope = _slope(kl, t)
    return t, slope


def _slope(kl: KlByMoments, log_eta: Float[Array, " K"]) -> Float[Array, " K"]:
    """The slope d log KL / d log eta."""
    ratio = jnp.log(kl(log_eta + _APART) / kl(log_eta))
    return jnp.where(ratio < 0, jnp.clip(ratio / _APART, -200.0, -0.5), -2.0)


def _chosen(mask: Bool[Array, " K"], these: CholeskyStep, those: CholeskyStep) -> CholeskyStep:
    """The first step where ``mask`` holds, the second elsewhere."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(mask.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return CholeskyStep(*map(pick, these, those))


def _step_at(A: Float[Array, "K D D"], a: Float[Array, "K D"], eta: Float[Array, " K"]) -> CholeskyStep:
    """The step with this eta; its KL is NaN where the precision is not positive definite."""
    eye = jnp.eye(A.shape[-1], dtype=A.dtype)
    U = upper_cholesky(eye + A / eta[:, None, None])
    V = jax.scipy.linalg.solve_triangular(U, jnp.broadcast_to(eye, U.shape), lower=False)
    shift = -einsum("kji,kj->ki", V, einsum("kij,kj->ki", V, a / eta[:, None]))
    # Summed row by row: the terms are small, and separate sums would cancel.
    rows = jnp.sum(V * V, axis=-1) - 1 + 2 * jnp.log(jnp.diagonal(U, axis1=-2, axis2=-1))
    kl = 0.5 * (jnp.sum(rows, axis=-1) + jnp.sum(shift * shift, axis=-1))
    return CholeskyStep(U, shift, kl, jnp.isfinite(kl))
