"""Choices for a target nobody knows: which algorithm, with which hyperparameters."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
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
MoreSamples = bool | Sequence[ByModule]


class _Suited(NamedTuple):
    """Hyperparameters by module.

    Attributes:
        few: for few samples, which are reused.
        many: for many, which are not.
        more: what changes, step by step from few to many, when the ELBO stops rising.
    """

    few: dict[str, dict[str, Any]]
    many: dict[str, dict[str, Any]]
    more: tuple[dict[str, dict[str, Any]], ...]


def resolve_algorithm(
    algorithm: str | GMMVI | None,
    found: DetectedTarget,
    dtype: Any,
    family: type[AbstractGaussians],
    overrides: Mapping[str, Any],
    *,
    few_samples: bool = False,
) -> tuple[GMMVI, AbstractTarget, list[str]]:
    """The algorithm, the target as it uses it, and a note for each choice made for the user.

    With ``few_samples`` it takes few samples and reuses them, unless the user says how many.
    """
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
    chosen = _build(algorithm, found.target, family, overrides, few_samples)
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
    few_samples: bool,
) -> GMMVI:
    if not isinstance(algorithm, GMMVI):
        suited = _suited(algorithm, target, family)
        wanted = suited.few if few_samples and not _says_how_many(overrides) else suited.many
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
) -> list[dict[str, dict[str, Any]]]:
    """Hyperparameters by module with which a fit goes on each time that the ELBO stops rising."""
    if not isinstance(wanted, bool):
        if isinstance(wanted, (str, Mapping)) or not all(isinstance(step, Mapping) for step in wanted):
            raise ValueError(
                "more_samples must be True, False or a list of hyperparameters by module, for example "
                f"[{{'sample_selector': {{'desired_samples': 500}}}}], got {wanted!r}."
            )
        return [{module: dict(values) for module, values in step.items()} for step in wanted]
    if not wanted or _says_how_many(overrides):
        return []
    steps = []
    for step in _suited(algorithm.codename, target, family).more:
        given = {module: overrides.get(module, {}) for module in step}
        unsaid = {
            module: {name: value for name, value in values.items() if name not in given[module]}
            for module, values in step.items()
            if isinstance(given[module], Mapping)
        }
        steps.append({module: values for module, values in unsaid.items() if values})
    return steps


def with_hyperparameters(algorithm: GMMVI, changes: Mapping[str, Mapping[str, Any]]) -> GMMVI:
    """The algorithm with other hyperparameters of these modules."""
    for module, values in changes.items():
        known = module in MODULES and isinstance(values, Mapping)
        if not known or not set(values) <= {f.name for f in dataclasses.fields(getattr(algorithm, module))}:
            raise ValueError(
                f"more_samples has {module!r}: {values!r}, which are no hyperparameters of a module of "
                f"{algorithm.codename}; give for example [{{'sample_selector': {{'desired_samples': 500}}}}]."
            )
    changed = {m: dataclasses.replace(getattr(algorithm, m), **values) for m, values in changes.items()}
    return dataclasses.replace(algorithm, **changed)


def _says_how_many(overrides: Mapping[str, Any]) -> bool:
    """Whether the user has chosen the number of samples."""
    given = overrides.get("sample_selector", {})
    return not isinstance(given, Mapping) or bool({"desired_samples", "reuse_ratio"} & set(given))


def _suited(codename: str, target: AbstractTarget, family: type[AbstractGaussians]) -> _Suited:
    """What suits this target."""
    options = parse(codename)
    estimator = cast(type[AbstractNgEstimator], options["ng_estimator"])
    selector = cast(type[AbstractSampleSelector], options["sample_selector"])
    adaptation = cast(type[AbstractComponentAdaptation], options["component_adaptation"])
    samples = selector.samples_factor * estimator.fit_samples(target.dim, family)
    many: dict[str, dict[str, Any]] = {"sample_selector": {"desired_samples": samples}}
    # A component soon leaves the wide start; fresh draws from there keep finding what it missed.
    # The more dimensions the rarer are places that only a missing mode explains.
    fresh = int(np.clip(250 * target.dim, 1000, 5000)) if target.inside_jax else samples
    if suited := adaptation.fit_defaults(fresh):
        many["component_adaptation"] = suited
    if not issubclass(selector, FromComponents):
        return _Suited(many, many, ())
    start = estimator.fewest_samples(target.dim, family)
    few = {"sample_selector": {"desired_samples": start, "reuse_ratio": REUSE_RATIO}}
    more = {"sample_selector": {"desired_samples": 2 * start}}
    last = {"sample_selector": {"desired_samples": max(samples, start), "reuse_ratio": 0.0}}
    coefficients = (target.dim + 1) * (target.dim + 2) // 2
    candidates = min(fresh, max(_FEWEST_CANDIDATES, 2 * coefficients))
    if suited := adaptation.fit_defaults(candidates):
        few["component_adaptation"] = suited
        changed = adaptation.fit_defaults(fresh)
        more["component_adaptation"] = {k: v for k, v in changed.items() if v != suited[k]}
    return _Suited(few, many, (more, last))


def _completed(overrides: Mapping[str, Any], wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    out = dict(overrides)
    for module, defaults in wanted.items():
        given = overrides.get(module, {})
        if isinstance(given, Mapping):
            out[module] = {**defaults, **given}
    return out
