"""Choices for a target nobody knows: which algorithm, how many samples, where to start."""

import logging
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from natmix._algorithm import GMMVI
from natmix._codenames import parse
from natmix._hyper import Option
from natmix.component_adaptation import Vips
from natmix.gaussians import DiagonalGaussians, FullGaussians
from natmix.mixture import Mixture
from natmix.ng_estimators import More
from natmix.sample_selectors import FromMixture
from natmix.targets import AbstractTarget

logger = logging.getLogger("natmix")

GRADIENT_DEFAULT = "SAMTRON"
VALUES_DEFAULT = "ZAMTRON"


def resolve_algorithm(
    algorithm: str | GMMVI | None, target: AbstractTarget, diagonal: bool, overrides: Mapping[str, Any]
) -> tuple[GMMVI, list[str]]:
    """The algorithm, and a note for each choice made for the user."""
    notes = []
    if algorithm is None:
        algorithm = GRADIENT_DEFAULT if target.has_gradient else VALUES_DEFAULT
        if not target.has_gradient:
            notes.append(
                f"The target has no gradient: using {VALUES_DEFAULT}, which needs only values of the log density."
            )
            logger.warning(notes[-1])
    if isinstance(algorithm, GMMVI):
        if overrides:
            raise ValueError(
                f"{next(iter(overrides))!r} cannot be combined with a finished algorithm; "
                "set it where the algorithm is built, or name the algorithm by its codename."
            )
        chosen = algorithm
    else:
        chosen = GMMVI.from_codename(algorithm, **_for_target(algorithm, target, diagonal, overrides))
    if chosen.ng_estimator.needs_gradient and not target.has_gradient:
        raise ValueError(
            f"{chosen.codename} needs gradients and the target has none; give one "
            "(HostTarget(..., gradient=...)) or choose the estimator Z, for example ZAMTRON."
        )
    return chosen, notes


def _for_target(
    codename: str, target: AbstractTarget, diagonal: bool, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Overrides completed by what suits this target, where the user said nothing."""
    options = parse(codename)
    wanted = {"sample_selector": {"desired_samples": _samples(options, target.dim, diagonal)}}
    if options["component_adaptation"] is Vips:
        # A component soon leaves the wide start; fresh draws from there keep finding what it missed.
        fresh = 1000 if target.inside_jax else wanted["sample_selector"]["desired_samples"]
        wanted["component_adaptation"] = {"prior_candidates": fresh}
    out = dict(overrides)
    for module, defaults in wanted.items():
        given = overrides.get(module, {})
        if isinstance(given, Mapping):
            out[module] = {**defaults, **given}
    return out


def _samples(options: Mapping[str, type[Option]], dim: int, diagonal: bool) -> int:
    """Samples per component (P: for the whole mixture) that suit the dimension."""
    if options["ng_estimator"] is More:
        features = 2 * dim + 1 if diagonal else (dim + 1) * (dim + 2) // 2
        n = max(200, 3 * features // 2)
    else:
        n = int(np.clip(10 * dim, 100, 300))
    return 4 * n if options["sample_selector"] is FromMixture else n


def start(
    dim: int,
    dtype: Any,
    key: Array,
    *,
    diagonal: bool,
    init_mean: ArrayLike,
    init_scale: ArrayLike,
    init_covariance: ArrayLike | None,
    box: tuple[ArrayLike, ArrayLike] | None,
    components: int,
) -> tuple[Mixture, Mixture]:
    """The starting mixture and the prior: means drawn from the prior, all with its covariance."""
    mean, scale = _location(dim, init_mean, init_scale, box)
    family = DiagonalGaussians if diagonal else FullGaussians
    cov = np.diag(scale**2) if init_covariance is None else _covariance(dim, init_covariance)
    if not isinstance(components, (int, np.integer)) or components < 1:
        raise ValueError(f"init_components must be a whole number of at least 1, got {components!r}.")
    centre = jnp.asarray(mean, dtype)[None]
    gaussian = family.from_covariance(centre, jnp.asarray(cov, dtype)[None])
    if not bool(gaussian.finite()[0]):
        raise ValueError("The initial covariance is singular or not positive definite; give one with full rank.")
    prior = Mixture(jnp.zeros(1, dtype), gaussian)
    if components == 1:
        return prior, prior
    noise = jax.random.normal(key, (1, components, dim), dtype)
    means: Float[Array, "K D"] = gaussian.colour(noise)[0]
    rows = jnp.zeros(components, jnp.int32)
    spread = jax.tree.map(lambda a: a[rows], gaussian)
    parts = type(spread)(means, *jax.tree.leaves(spread)[1:])
    return Mixture(jnp.full(components, -np.log(components), dtype), parts), prior


def _location(
    dim: int, init_mean: ArrayLike, init_scale: ArrayLike, box: tuple[ArrayLike, ArrayLike] | None
) -> tuple[np.ndarray, np.ndarray]:
    if box is not None:
        try:
            low, high = box
        except (TypeError, ValueError):
            raise ValueError(f"box must be a pair (low, high), got {box!r}.") from None
        low, high = _vector(low, dim, "box"), _vector(high, dim, "box")
        if not np.all(low < high):
            raise ValueError("box must be (low, high) with low < high in every dimension.")
        return (low + high) / 2, (high - low) / np.sqrt(12)
    scale = _vector(init_scale, dim, "init_scale")
    if not np.all(scale > 0):
        raise ValueError("init_scale must be positive: it holds the standard deviations of the start.")
    return _vector(init_mean, dim, "init_mean"), scale


def _vector(value: ArrayLike, dim: int, name: str) -> np.ndarray:
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold numbers, got {value!r}.") from None
    if array.shape not in ((), (1,), (dim,)):
        raise ValueError(f"{name} must be a number or have shape [{dim}], got shape {list(array.shape)}.")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite.")
    return np.broadcast_to(array, (dim,)).copy()


def _covariance(dim: int, value: ArrayLike) -> np.ndarray:
    cov = np.asarray(value, dtype=float)
    if cov.ndim < 2:
        variances = _vector(cov, dim, "init_covariance")
        if not np.all(variances > 0):
            raise ValueError("init_covariance must be positive: a variance of zero has no density.")
        return np.diag(variances)
    if cov.shape != (dim, dim):
        raise ValueError(f"init_covariance must be a number, [{dim}] or [{dim}, {dim}], got {list(cov.shape)}.")
    if not np.all(np.isfinite(cov)) or not np.allclose(cov, cov.T):
        raise ValueError("init_covariance must be finite and symmetric.")
    eigenvalues = np.linalg.eigvalsh(cov)
    if eigenvalues[0] <= 1e-12 * max(eigenvalues[-1], 0):
        raise ValueError("init_covariance is singular or not positive definite; give one with full rank.")
    return cov
