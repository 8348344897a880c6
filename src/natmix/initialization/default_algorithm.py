"""Choices for a target nobody knows: which algorithm, with which hyperparameters."""

import logging
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from natmix.gaussians import AbstractGaussians
from natmix.gmmvi import GMMVI
from natmix.modules.codenames import parse
from natmix.modules.component_adaptation import AbstractComponentAdaptation
from natmix.modules.ng_estimators import AbstractNgEstimator
from natmix.modules.sample_selectors import AbstractSampleSelector
from natmix.targets import AbstractTarget
from natmix.targets.detection import DetectedTarget, without_gradient

logger = logging.getLogger("natmix")

GRADIENT_DEFAULT = "SAMTRON"
VALUES_DEFAULT = "ZAMTRON"


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
    estimator = cast(type[AbstractNgEstimator], options["ng_estimator"])
    selector = cast(type[AbstractSampleSelector], options["sample_selector"])
    adaptation = cast(type[AbstractComponentAdaptation], options["component_adaptation"])
    samples = selector.samples_factor * estimator.fit_samples(target.dim, family)
    wanted: dict[str, dict[str, Any]] = {"sample_selector": {"desired_samples": samples}}
    # A component soon leaves the wide start; fresh draws from there keep finding what it missed.
    # The more dimensions the rarer are places that only a missing mode explains.
    fresh = int(np.clip(250 * target.dim, 1000, 5000)) if target.inside_jax else samples
    if suited := adaptation.fit_defaults(fresh):
        wanted["component_adaptation"] = suited
    out = dict(overrides)
    for module, defaults in wanted.items():
        given = overrides.get(module, {})
        if isinstance(given, Mapping):
            out[module] = {**defaults, **given}
    return out
