"""A sensible study of a target nobody knows, as the text of a study file."""

import json
from collections.abc import Mapping, Sequence

from natmix.experiments.studies.codename_patterns import matching_any
from natmix.experiments.studies.model_problem import ModelSource
from natmix.experiments.studies.spaces import has_setting

EVALUATIONS = 200_000
"""Per trial, if there is no other limit."""


def default_study(
    source: ModelSource,
    dim: int,
    codenames: Sequence[str],
    trials: int,
    budget: Mapping[str, float | None],
    sampler: str,
    seeds: str,
    storage: str,
) -> str:
    """The study file.

    Samples per component range from as few as the first-order estimate needs to many; stepsizes over two to
    three decades about the defaults; what decides how components are added over a factor of ten.
    """
    limits = {name: value for name, value in budget.items() if value is not None} or {
        "evaluations": EVALUATIONS
    }
    fewest, most = max(5, dim // 2), 100 + 10 * dim
    region = {"dim": source.dim, "init_mean": source.init_mean, "init_scale": source.init_scale}
    space = {
        "start.components": "{ low = 1, high = 20, integer = true, log = true }",
        "sample_selector.desired_samples": f"{{ low = {fewest}, high = {most}, integer = true, log = true }}",
        "sample_selector.reuse_ratio": "[0.0, 1.0, 3.0]",
        "component_stepsize.stepsize": "{ low = 1e-3, high = 1.0, log = true }",
        "weight_stepsize.stepsize": "{ low = 1e-2, high = 1.0, log = true }",
        "component_adaptation.add_iters": "{ low = 5, high = 100, integer = true, log = true }",
        "component_adaptation.prior_candidates": f"[100, {max(1000, 100 * dim)}]",
    }
    names = matching_any(name.strip() for name in codenames)
    lines = [
        f"codenames = {json.dumps(list(names))}",
        f"seeds = {json.dumps(seeds)}",
        f"storage = {json.dumps(storage)}",
        "",
        "[[problem]]",
        f"model = {json.dumps(source.path)}",
        *(f"{name} = {value}" for name, value in region.items() if value is not None),
        "",
        "[budget]",
        *(f"{name} = {value}" for name, value in limits.items()),
        "",
        "[search]",
        f"sampler = {json.dumps(sampler)}",
        f"trials = {trials}",
        "",
        "[[space]]",
        *(f"{name} = {domain}" for name, domain in space.items() if any(has_setting(c, name) for c in names)),
        "",
    ]
    return "\n".join(lines)
