"""Choices for a target nobody knows: which algorithm, with which hyperparameters."""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from natmix.gaussians import AbstractGaussians
from natmix.gmmvi import GMMVI
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
    family: type[AbstractGaussians],
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
    chosen = _build(algorithm, found.target, family, overrides)
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
    algorithm: str | GMMVI,
    target: AbstractTarget,
    family: type[AbstractGaussians],
    overrides: Mapping[str, Any],
) -> GMMVI:
    if not isinstance(algorithm, GMMVI):
        return GMMVI.from_codename(algorithm, **suited_overrides(algorithm, target, family, overrides))
    if overrides:
        raise ValueError(
            f"{next(iter(overrides))!r} cannot be combined with a finished algorithm; "
            "set it where the algorithm is built, or name the algorithm by its codename."
        )
    return algorithm


def suited_overrides(
    codename: str, target: AbstractTarget, family: type[AbstractGaussians], overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Overrides completed by what suits this target, where the user said nothing."""
    options = parse(codename)
    samples = _samples(options, target.dim, family)
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


def _samples(options: Mapping[str, type[Option]], dim: int, family: type[AbstractGaussians]) -> int:
    """Samples per component (P: for the whole mixture) that suit the dimension."""
    if options["ng_estimator"] is More:
        coefficients = family.num_features(dim) + 1
        n = max(200, 3 * coefficients // 2)
    else:
        n = int(np.clip(10 * dim, 100, 300))
    return 4 * n if options["sample_selector"] is FromMixture else n
