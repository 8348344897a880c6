"""`natmix.combine`: several fits of one target put together, without evaluating it."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from natmix.diagnostics.diagnosis import ENDED_EARLY
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.elbo import elbo_of
from natmix.diagnostics.modes import mode_labels
from natmix.estimate import counted
from natmix.gaussians import FullGaussians
from natmix.mixture import Mixture
from natmix.mixture.negligible import without_negligible
from natmix.random_keys import run_key
from natmix.result.combining_weights import optimal_weights
from natmix.result.result import Counts, Result, Timings
from natmix.targets.identity import same_program

SAMPLES_PER_COMPONENT = 50
"""Every component gets a weight of its own if there are this many kept samples for each. With fewer samples
noise would decide, so the components of one mode in one fit keep their relative weights."""
SAMPLES_PER_PART = 10
"""A mode with fewer samples in its fit is merged with the heaviest mode of that fit."""
NEGLIGIBLE_PART = 1e-4
"""Parts below this weight are left out: they change the ELBO by about as much."""
LARGEST_GAP = 0.01
"""Nats by which the ELBO may be below its optimum over the weights; beyond it a note says so."""
_MIN_DRAWS = 2
_BLOCK = 2_000_000
"""Log densities computed at once."""


class _Pool(NamedTuple):
    """All samples of the fits.

    Attributes:
        draws: x, log p~ and, as ``log_mixture``, the log density of the proposal.
        union: all components; the weights of each fit are multiplied by its share of the samples.
        fit: the fit of every component.
    """

    draws: EvaluatedDraws
    union: Mixture
    fit: Int[np.ndarray, " K"]


def combine(fits: Sequence[Result], *, seed: int = 0) -> Result:
    """One result from several fits of the same target, with other seeds or starts or from other machines.

    It has the components of all fits. Their weights maximise the ELBO, estimated from the samples that the
    fits keep (`Result.draws`). The target is not evaluated. What one fit missed and another found is in the
    result; near copies of a component share its weight; a bad fit loses its weight. Components of one mode
    in one fit keep their relative weights unless there are 50 samples for each.

    All kept samples together are not samples of the combined mixture. Rejection sampling selects some that
    are: they are its ``draws``, and its ELBO and verdict rest on them. The notes say how many they are; there
    are few if a mode that only one fit has, with a small weight, gets a large one. For fresh samples, which
    evaluate the target: ``combine(fits).diagnose(samples=2000)``.

    Args:
        fits: at least two results, of `natmix.fit` or `Result.load`.
        seed: of the rejection sampling.

    Returns:
        A result with the model, target and initial region of the first fit that knows its target. Counts and
        timings are sums over the fits; there is no trajectory. `Result.stopped` is "converged" if all fits
        converged, otherwise that of the first that did not.

    Raises:
        ValueError: the fits cannot be put together.
    """
    run_key(seed)
    results = _checked(fits)
    pool = _pool(results)
    parts = _parts(pool, results)
    weights, gap = _weights(pool, parts)
    mixture, left_out = _mixture(pool.union, weights[parts] * _inner_weights(pool.union, parts))
    draws = _own_samples(mixture, pool.draws, seed)
    first = next((r for r in results if r.target is not None), results[0])
    return Result(
        mixture=mixture,
        elbo=elbo_of(draws),
        trajectory={},
        counts=_counts(results, left_out),
        timings=Timings(**_sums(Timings, [r.timings for r in results])),
        stopped=next((r.stopped for r in results if r.stopped in ENDED_EARLY), "converged"),
        algorithm=first.algorithm,
        settings={"combined": [r.settings for r in results], "seed": int(seed), "dim": mixture.dim},
        notes=_notes(results, pool, mixture, draws, gap),
        draws=draws,
        target=first.target,
        start=first.start,
        model=first.model,
    )


def _checked(fits: Any) -> list[Result]:
    if isinstance(fits, Result) or not isinstance(fits, Sequence):
        raise ValueError(
            "combine() takes several results, given as a list: combine([one, other]), "
            f"got {type(fits).__name__}."
        )
    strange = [f for f in fits if not isinstance(f, Result)]
    if strange:
        raise ValueError(
            f"combine() takes results of natmix.fit or natmix.Result.load, got {type(strange[0]).__name__}."
        )
    if len(fits) < 2:
        raise ValueError(f"combine() takes at least two results, got {len(fits)}.")
    dims = [f.mixture.dim for f in fits]
    if len(set(dims)) > 1:
        raise ValueError(f"These results belong to targets of different dimensions: {dims}.")
    for i, f in enumerate(fits):
        if f.draws is None or len(f.draws) < _MIN_DRAWS or not np.isfinite(f.draws.log_target).any():
            raise ValueError(
                f"Result {i} keeps no samples with a positive density, which combine() needs: leave it out, "
                "or fit again with elbo_samples=2000."
            )
    _check_same_target(list(fits))
    for i, f in enumerate(fits):
        for j in range(i):
            if np.array_equal(f.draws.x, fits[j].draws.x):
                raise ValueError(
                    f"Results {j} and {i} have the same samples: give each fit once, with a seed of its own."
                )
    return list(fits)


def _check_same_target(fits: list[Result]) -> None:
    """By the names of the variables, and by the programs of the targets where JAX can trace them."""
    different = "Results {} and {} belong to different targets: combine() puts fits of one target together."
    names = [(i, list(f.model.coordinates)) for i, f in enumerate(fits) if f.model is not None]
    for i, own in names[1:]:
        if own != names[0][1]:
            raise ValueError(different.format(names[0][0], i))
    known = [(i, f) for i, f in enumerate(fits) if f.target is not None]
    for i, f in known[1:]:
        if not same_program(known[0][1].target, f.target):
            raise ValueError(different.format(known[0][0], i))


def _pool(fits: list[Result]) -> _Pool:
    draws = [f.draws for f in fits if f.draws is not None]
    mixtures = _alike([f.mixture for f in fits])
    sizes = np.array([len(d) for d in draws], float)
    shares = np.log(sizes / sizes.sum())
    log_weights = [m.log_weights + share for m, share in zip(mixtures, shares, strict=True)]
    components = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *(m.components for m in mixtures))
    union = Mixture(jnp.concatenate(log_weights).astype(mixtures[0].dtype), components)
    pooled = draws[0]
    for more in draws[1:]:
        pooled = pooled.joined(more)
    number = np.repeat(np.arange(len(fits)), [m.num_components for m in mixtures])
    return _Pool(dataclasses.replace(pooled, log_mixture=_log_prob(union, pooled.x)), union, number)


def _alike(mixtures: list[Mixture]) -> list[Mixture]:
    """The mixtures in one covariance family and float type."""
    dtype = np.result_type(*(m.dtype for m in mixtures))
    mixtures = [m.astype(dtype) for m in mixtures]
    if len({m.covariance_family for m in mixtures}) == 1:
        return mixtures
    return [Mixture(m.log_weights, FullGaussians.from_covariance(m.means, m.covariances)) for m in mixtures]


def _log_prob(mixture: Mixture, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
    return np.asarray(mixture.log_prob(jnp.asarray(x, mixture.dtype)), float)


def _parts(pool: _Pool, fits: list[Result]) -> Int[np.ndarray, " K"]:
    """The part of the mixture that every component belongs to; each part gets one weight."""
    K, N = pool.union.num_components, len(pool.draws)
    if N >= SAMPLES_PER_COMPONENT * K:
        return np.arange(K)
    mode = mode_labels(pool.union)
    weights = np.asarray(pool.union.weights, float)
    for number in range(len(fits)):
        own = pool.fit == number
        samples = N * np.bincount(mode[own], weights[own], minlength=mode.max() + 1)
        few = own & (samples[mode] < SAMPLES_PER_PART)
        mode[few] = samples.argmax()
    return np.unique(mode + (mode.max() + 1) * pool.fit, return_inverse=True)[1]


def _inner_weights(union: Mixture, parts: Int[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
    """The weights of the components within their parts."""
    weights = np.asarray(union.weights, float)
    return weights / np.bincount(parts, weights)[parts]


def _weights(pool: _Pool, parts: Int[np.ndarray, " K"]) -> tuple[Float[np.ndarray, " A"], float]:
    """The weights of the parts, and what the estimated ELBO could still gain."""
    log_target = pool.draws.log_target
    usable = log_target < np.inf
    # A density of zero counts as the smallest positive one seen: the ELBO of any Gaussian would be -inf.
    floor = log_target[np.isfinite(log_target)].min()
    x, log_target = pool.draws.x[usable], np.maximum(log_target[usable], floor)
    initial = np.bincount(parts, np.asarray(pool.union.weights, float))
    log_parts = _log_densities(pool.union, parts, x)
    found = optimal_weights(log_parts, pool.draws.log_mixture[usable], log_target, initial)
    kept = np.where(found.weights >= NEGLIGIBLE_PART, found.weights, 0.0)
    return kept / kept.sum(), found.gap


def _log_densities(
    union: Mixture, parts: Int[np.ndarray, " K"], x: Float[np.ndarray, "N D"]
) -> Float[np.ndarray, "N A"]:
    """The log densities of the parts."""
    order = np.argsort(parts, kind="stable")
    first = np.searchsorted(parts[order], np.arange(parts.max() + 1))
    log_inner = np.log(_inner_weights(union, parts))[order]
    rows = int(np.clip(_BLOCK // union.num_components, 1, len(x)))
    blocks = []
    for begin in range(0, len(x), rows):
        block = np.resize(x[begin : begin + rows], (rows, union.dim))  # the last one is padded
        by_component = np.asarray(union.component_log_prob(jnp.asarray(block, union.dtype)), float)
        blocks.append(np.logaddexp.reduceat(by_component[:, order] + log_inner, first, axis=1))
    return np.concatenate(blocks)[: len(x)]


def _mixture(union: Mixture, weights: Float[np.ndarray, " K"]) -> tuple[Mixture, int]:
    """The mixture without negligible components, and how many were left out."""
    with np.errstate(divide="ignore"):
        log_weights = jnp.asarray(np.log(weights), union.dtype)
    kept, _ = without_negligible(Mixture(log_weights, union.components))
    return kept, union.num_components - kept.num_components


def _own_samples(mixture: Mixture, pool: EvaluatedDraws, seed: int) -> EvaluatedDraws:
    """Independent samples of the mixture, by rejection sampling from the pooled ones."""
    log_mixture = _log_prob(mixture, pool.x)
    log_ratio = log_mixture - pool.log_mixture
    chance = np.exp(log_ratio - log_ratio.max())
    taken = np.random.default_rng(seed).uniform(size=len(pool)) < chance
    return EvaluatedDraws(pool.x[taken], pool.log_target[taken], log_mixture[taken], pool.dtype)


def _sums(kind: type, records: Sequence[Any]) -> dict[str, Any]:
    """Fields of a record: numbers summed over several, anything else from the first."""
    values = {f.name: [getattr(record, f.name) for record in records] for f in dataclasses.fields(kind)}
    return {name: sum(v) if isinstance(v[0], int | float) else v[0] for name, v in values.items()}


def _counts(fits: list[Result], left_out: int) -> Counts:
    sums = Counts(**_sums(Counts, [f.counts for f in fits]))
    return dataclasses.replace(sums, left_out=sums.left_out + left_out)


def _notes(
    fits: list[Result], pool: _Pool, mixture: Mixture, draws: EvaluatedDraws, gap: float
) -> tuple[str, ...]:
    notes = [
        f"Combined from {len(fits)} fits: {mixture.num_components} of their "
        f"{counted(pool.union.num_components, 'component')} are kept, with weights optimised on the "
        f"{len(pool.draws):,} samples that the fits keep.",
        f"ELBO and verdict rest on {counted(len(draws), 'sample')} of these, independent samples of the "
        "combined mixture. The weights were optimised on them too: the ELBO is slightly too high.",
    ]
    if gap > LARGEST_GAP:
        notes.append(f"The weights could still raise the estimated ELBO by up to {gap:.2g} nats.")
    return tuple(notes)
