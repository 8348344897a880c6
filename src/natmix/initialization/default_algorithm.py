"""Choices for a target nobody knows: which algorithm, with which hyperparameters."""

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from natmix.gaussians import AbstractGaussians
from natmix.gmmvi import GMMVI
from natmix.modules.codenames import MODULES, parse
from natmix.modules.component_adaptation import AbstractComponentAdaptation
from natmix.modules.ng_estimators import AbstractNgEstimator
from natmix.modules.sample_selectors import AbstractSampleSelector, FromComponents
from natmix.targets import AbstractTarget
from natmix.targets.detection import DetectedTarget, without_gradient

logger = logging.getLogger("natmix")

GRADIENT_DEFAULT = "SAMTRON"
VALUES_DEFAULT = "ZAMTRON"

REUSE_RATIO = 3.0
"""Old samples per desired one, with few samples."""
_FEWEST_CANDIDATES = 20
"""Fresh candidates for a new component."""


ByModule = Mapping[str, Mapping[str, Any]]
MoreSamples = bool | ByModule


class _Suited(NamedTuple):
    """Hyperparameters by module."""

    few: dict[str, dict[str, Any]]
    many: dict[str, dict[str, Any]]


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
        suited = _suited(algorithm, target, family)
        wanted = suited.many if _says_how_many(overrides) else suited.few
        return GMMVI.from_codename(algorithm, **_completed(overrides, wanted))
    if overrides:
        raise ValueError(
            f"{next(iter(overrides))!r} cannot be combined with a finished algorithm; "
            "set it where the algorithm is built, or name the algorithm by its codename."
        )
    return algorithm


def suited_overrides(
    codename: str, target: AbstractTarget, family: type[AbstractGaussians], overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Overrides completed by what suits this target with many samples, where the user said nothing."""
    return _completed(overrides, _suited(codename, target, family).many)


def increased_samples(
    algorithm: GMMVI,
    target: AbstractTarget,
    family: type[AbstractGaussians],
    overrides: Mapping[str, Any],
    wanted: MoreSamples,
) -> dict[str, dict[str, Any]] | None:
    """Hyperparameters, by module, with which a fit goes on once the ELBO stops rising; None for the same."""
    if isinstance(wanted, Mapping):
        return {module: dict(values) for module, values in wanted.items()}
    if not isinstance(wanted, bool):
        raise ValueError(
            "more_samples must be True, False or hyperparameters by module, for example "
            f"{{'sample_selector': {{'desired_samples': 500}}}}, got {wanted!r}."
        )
    fewest, most = _suited(algorithm.codename, target, family)
    if not wanted or _says_how_many(overrides) or fewest == most:
        return None
    increase = {}
    for module, values in most.items():
        given = overrides.get(module, {})
        increase[module] = {
            name: value
            for name, value in values.items()
            if fewest[module][name] != value and isinstance(given, Mapping) and name not in given
        }
    return {module: values for module, values in increase.items() if values}


def with_hyperparameters(algorithm: GMMVI, changes: Mapping[str, Mapping[str, Any]]) -> GMMVI:
    """The algorithm with other hyperparameters of these modules."""
    for module, values in changes.items():
        known = module in MODULES and isinstance(values, Mapping)
        if not known or not set(values) <= {f.name for f in dataclasses.fields(getattr(algorithm, module))}:
            raise ValueError(
                f"more_samples has {module!r}: {values!r}, which are no hyperparameters of a module of "
                f"{algorithm.codename}; give for example {{'sample_selector': {{'desired_samples': 500}}}}."
            )
    changed = {m: dataclasses.replace(getattr(algorithm, m), **values) for m, values in changes.items()}
    return dataclasses.replace(algorithm, **changed)


def _says_how_many(overrides: Mapping[str, Any]) -> bool:
    """Whether the user has chosen the number of samples."""
    given = overrides.get("sample_selector", {})
    return not isinstance(given, Mapping) or bool({"desired_samples", "reuse_ratio"} & set(given))


def _suited(codename: str, target: AbstractTarget, family: type[AbstractGaussians]) -> _Suited:
    """Hyperparameters for few samples, which are reused, and for many; the same where reuse does not help."""
    options = parse(codename)
    estimator = cast(type[AbstractNgEstimator], options["ng_estimator"])
    selector = cast(type[AbstractSampleSelector], options["sample_selector"])
    adaptation = cast(type[AbstractComponentAdaptation], options["component_adaptation"])
    samples = selector.samples_factor * estimator.fit_samples(target.dim, family)
    most: dict[str, dict[str, Any]] = {"sample_selector": {"desired_samples": samples, "reuse_ratio": 0.0}}
    # A component soon leaves the wide start; fresh draws from there keep finding what it missed.
    # The more dimensions the rarer are places that only a missing mode explains.
    fresh = int(np.clip(250 * target.dim, 1000, 5000)) if target.inside_jax else samples
    if suited := adaptation.fit_defaults(fresh):
        most["component_adaptation"] = suited
    if issubclass(selector, FromComponents):
        samples = estimator.fewest_samples(target.dim, family)
        coefficients = (target.dim + 1) * (target.dim + 2) // 2
        few = min(fresh, max(_FEWEST_CANDIDATES, 2 * coefficients))
        fewest = {"sample_selector": {"desired_samples": samples, "reuse_ratio": REUSE_RATIO}}
        if suited := adaptation.fit_defaults(few):
            fewest["component_adaptation"] = suited
        return _Suited(fewest, most)
    return _Suited(most, most)


def _completed(overrides: Mapping[str, Any], wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    out = dict(overrides)
    for module, defaults in wanted.items():
        given = overrides.get(module, {})
        if isinstance(given, Mapping):
            out[module] = {**defaults, **given}
    return out
