"""Choices for a target nobody knows: which algorithm, how many samples, where to start."""

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from natmix.array_types import Flag, PRNGKey
from natmix.gaussians import AbstractGaussians, DiagonalGaussians, FullGaussians
from natmix.gmmvi import GMMVI
from natmix.mixture import Mixture
from natmix.modules.codenames import parse
from natmix.modules.component_adaptation import Vips
from natmix.modules.hyperparameters import Option
from natmix.modules.ng_estimators import More
from natmix.modules.sample_selectors import FromMixture
from natmix.targets import AbstractTarget
from natmix.targets.detection import DetectedTarget, without_gradient

logger = logging.getLogger("natmix")

GRADIENT_DEFAULT = "SAMTRON"
VALUES_DEFAULT = "ZAMTRON"

ADAPTATION: dict[str, Any] = {
    "add_iters": 10,
    "del_iters": 50,
    "thresholds": (5000.0, 1000.0, 200.0, 50.0, 20.0, 5.0),
}
"""How components come and go unless the user says otherwise.

The paper's thresholds end at 50 nats: in few dimensions all of its additions then go to far tails.
The two small ones refine what is known (benchmarks/quality/additions.py measures both).
"""


def resolve_algorithm(
    algorithm: str | GMMVI | None,
    found: DetectedTarget,
    dtype: Any,
    diagonal: bool,
    overrides: Mapping[str, Any],
) -> tuple[GMMVI, AbstractTarget, list[str]]:
    """The algorithm, the target as it uses it, and a note for each choice made for the user."""
    notes = []
    if algorithm is None:
        found = without_gradient(found.target, dtype) or found
        algorithm = GRADIENT_DEFAULT if found.target.has_gradient else VALUES_DEFAULT
        if not found.target.has_gradient:
            why = f" ({found.why})" if found.why else ""
            notes.append(
                f"The target has no gradient{why}: using {VALUES_DEFAULT}, "
                "which needs only values of the log density."
            )
            logger.warning(notes[-1])
    chosen = _build(algorithm, found.target, diagonal, overrides)
    if chosen.ng_estimator.needs_gradient:
        found = without_gradient(found.target, dtype) or found
        if not found.target.has_gradient:
            why = f" ({found.why})" if found.why else ""
            raise ValueError(
                f"{chosen.codename} needs gradients and the target has none{why}; give one "
                "(HostTarget(..., gradient=...)) or choose the estimator Z, for example ZAMTRON."
            )
    return chosen, found.target, notes


def _build(
    algorithm: str | GMMVI, target: AbstractTarget, diagonal: bool, overrides: Mapping[str, Any]
) -> GMMVI:
    if not isinstance(algorithm, GMMVI):
        return GMMVI.from_codename(algorithm, **_for_target(algorithm, target, diagonal, overrides))
    if overrides:
        raise ValueError(
            f"{next(iter(overrides))!r} cannot be combined with a finished algorithm; "
            "set it where the algorithm is built, or name the algorithm by its codename."
        )
    return algorithm


def _for_target(
    codename: str, target: AbstractTarget, diagonal: bool, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Overrides completed by what suits this target, where the user said nothing."""
    options = parse(codename)
    samples = _samples(options, target.dim, diagonal)
    wanted: dict[str, dict[str, Any]] = {"sample_selector": {"desired_samples": samples}}
    if options["component_adaptation"] is Vips:
        # A component soon leaves the wide start; fresh draws from there keep finding what it missed.
        # The more dimensions the rarer are places that only a missing mode explains.
        fresh = int(np.clip(250 * target.dim, 1000, 5000)) if target.inside_jax else samples
        wanted["component_adaptation"] = {**ADAPTATION, "prior_candidates": fresh}
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


@dataclasses.dataclass(frozen=True)
class Region:
    """Where to look first, as the user says it; everything may be left out."""

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

    def gaussian(self, dim: int, dtype: Any, diagonal: bool) -> AbstractGaussians:
        """One Gaussian of its mean and covariance."""
        if self.covariance is not None:
            spread = self._matrix(dim, diagonal)
            reason = "init_covariance is singular or not positive definite"
        else:
            spread = self._scale(dim)
            reason = "init_scale is zero or infinite"
        with np.errstate(over="ignore", under="ignore"):
            mean, shape = (jnp.asarray(a.astype(dtype)) for a in (self.centre(dim), spread))
        gaussian, finite = _start_gaussian(DiagonalGaussians if diagonal else FullGaussians, mean, shape)
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

    def _matrix(self, dim: int, diagonal: bool) -> np.ndarray:
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
        if diagonal and np.any(value[~np.eye(dim, dtype=bool)] != 0):
            raise ValueError(
                "init_covariance has entries off the diagonal, which covariance='diagonal' rules out."
            )
        eigenvalues = np.linalg.eigvalsh(value)
        if eigenvalues[0] <= 1e-12 * max(eigenvalues[-1], 0):
            raise ValueError("init_covariance is singular or not positive definite; give one with full rank.")
        return value


def start(
    dim: int, dtype: Any, key: Array, region: Region, diagonal: bool, components: int
) -> tuple[Mixture, Mixture]:
    """The starting mixture and the prior: means drawn from the prior, all with its covariance."""
    if isinstance(components, bool) or not isinstance(components, (int, np.integer)) or components < 1:
        raise ValueError(f"init_components must be a whole number of at least 1, got {components!r}.")
    gaussian = region.gaussian(dim, dtype, diagonal)
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
    gaussian: AbstractGaussians
    if spread.ndim == 2:
        gaussian = family.from_covariance(mean[None], spread[None])
    elif family is DiagonalGaussians:
        gaussian = DiagonalGaussians(mean[None], spread[None])
    else:  # they are never squared
        gaussian = FullGaussians(mean[None], jnp.diag(spread)[None], jnp.diag(1 / spread)[None])
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
