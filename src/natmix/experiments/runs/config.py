"""What a run is: problem, algorithm, start, precision and limits, as plain data."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Literal, TypedDict

import jax
import jax.numpy as jnp
import numpy as np

from natmix.engine.limits import Limits
from natmix.experiments import presets
from natmix.experiments.problems.base import InitialRegion, Problem
from natmix.gaussians import FAMILIES
from natmix.gmmvi import GMMVI
from natmix.initialization.default_algorithm import suited_overrides
from natmix.modules.codenames import MODULES, adds_components

PRESETS = ("fit", *presets.EXPERIMENTS)
DTYPES = ("float32", "float64")

DEFAULT_SECONDS = 600.0
"""The time limit of a seed if no limit is given."""

FIXED_COMPONENTS = 32
"""Components to start with if none are ever added and nobody says how many."""


FORMAT = 1
"""Of ``config.json``."""


class ProblemEntry(TypedDict):
    """Which problem."""

    name: str
    options: dict[str, Any]


class AlgorithmEntry(TypedDict):
    """Which algorithm, with all hyperparameters by module."""

    codename: str
    settings: dict[str, Any]


class StartEntry(TypedDict):
    """Where the components start."""

    components: int
    mean: list[float]
    mean_scale: list[float]
    variance: list[float]


class LimitsEntry(TypedDict):
    """When a seed ends, as `natmix.engine.limits.Limits` has it; null is no limit."""

    max_seconds: float | None
    max_evaluations: int | None
    max_iterations: int | None
    until: float | None
    max_run_seconds: float | None
    until_converged: bool


class StoredConfig(TypedDict):
    """What a ``config.json`` holds."""

    format: int
    problem: ProblemEntry
    algorithm: AlgorithmEntry
    start: StartEntry
    preset: str
    covariance: str
    dtype: Literal["float32", "float64"]
    limits: LimitsEntry
    seeds: list[int]


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Everything that decides a seed's run, apart from the seed.

    Attributes:
        problem: its name.
        problem_options: given to `natmix.experiments.problems.load`.
        algorithm: with all hyperparameters.
        components: how many to start with.
        start: where they start.
        preset: which choices were completed by: "fit", "paper" or "paper-exp1".
        covariance: the covariance family, "full" or "diagonal".
        dtype: "float32" or "float64".
        limits: when a seed stops.
    """

    problem: str
    algorithm: GMMVI
    components: int
    start: InitialRegion
    preset: str = "fit"
    covariance: str = "full"
    dtype: str = "float32"
    limits: Limits = dataclasses.field(default_factory=Limits)
    problem_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The contents of ``config.json``, apart from the seeds."""
        settings = _shortest(self.algorithm.settings())
        return {
            "format": FORMAT,
            "problem": {"name": self.problem, "options": dict(self.problem_options)},
            "algorithm": {"codename": settings.pop("codename"), "settings": settings},
            "start": {
                "components": self.components,
                "mean": list(self.start.mean),
                "mean_scale": list(self.start.mean_scale),
                "variance": list(self.start.variance),
            },
            "preset": self.preset,
            "covariance": self.covariance,
            "dtype": self.dtype,
            "limits": dataclasses.asdict(self.limits),
        }


def configure(
    problem: Problem,
    algorithm: str = "samtron",
    *,
    preset: str = "fit",
    overrides: Mapping[str, Any] | None = None,
    components: int | None = None,
    covariance: str = "full",
    dtype: str = "float32",
    limits: Limits | None = None,
    problem_options: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Complete what the user says by a preset.

    Args:
        problem: for any seed; its name, dimension and start are used.
        algorithm: a codename.
        preset: "fit": the choices of `natmix.fit`; "paper" and "paper-exp1": those of the paper's
            Experiments 3 and 1, where it has some.
        overrides: hyperparameters by module, before those of the preset.
        components: how many to start with; the preset's number if left out (fit: 1, or
            `FIXED_COMPONENTS` if none are added).
        covariance: the covariance family, "full" or "diagonal".
        dtype: "float32" or "float64".
        limits: when a seed stops; the preset's where there is none (fit: `DEFAULT_SECONDS`).
        problem_options: what the problem was loaded with.
    """
    check_choice("preset", preset, PRESETS)
    check_choice("covariance", covariance, tuple(FAMILIES))
    check_choice("dtype", dtype, DTYPES)
    if components is not None and components < 1:
        raise ValueError(f"A run starts with at least one component, got {components}.")
    if dtype == "float64" and not jax.config.read("jax_enable_x64"):
        raise ValueError("float64 needs jax.config.update('jax_enable_x64', True) before arrays are made.")
    given, overrides = limits or Limits(), overrides or {}
    if preset in presets.EXPERIMENTS:
        chosen = presets.paper(algorithm, problem.name, presets.EXPERIMENTS[preset])
        usual = Limits(max_seconds=chosen.max_seconds, max_iterations=chosen.max_iterations)
        completed = merged(chosen.overrides, overrides)
        start, K = chosen.start(problem.dim), chosen.components
    else:
        # Without any limit a run might not end.
        usual = Limits(max_seconds=DEFAULT_SECONDS) if given.endless else Limits()
        completed = suited_overrides(algorithm, problem.target, FAMILIES[covariance], overrides)
        adapts = adds_components(algorithm)
        start, K = problem.start, 1 if adapts else FIXED_COMPONENTS
    return RunConfig(
        problem=problem.name,
        algorithm=GMMVI.from_codename(algorithm, **completed),
        components=K if components is None else components,
        start=start,
        preset=preset,
        covariance=covariance,
        dtype=dtype,
        limits=given.completed_by(usual),
        problem_options=problem_options or {},
    )


def check_choice(what: str, value: str, choices: tuple[str, ...]) -> None:
    """One of a few words."""
    if value not in choices:
        raise ValueError(f"{what} must be {' or '.join(choices)}, got {value!r}.")


def algorithm_from(config: Mapping[str, Any]) -> GMMVI:
    """The algorithm that a ``config.json`` describes."""
    settings = config["algorithm"]["settings"]
    overrides = {
        name: {k: v for k, v in value.items() if k != "option"} if name in MODULES else value
        for name, value in settings.items()
    }
    return GMMVI.from_codename(config["algorithm"]["codename"], **overrides)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Overrides by module, the second ones winning."""
    out: dict[str, Any] = dict(below)
    for module, value in above.items():
        both = isinstance(value, Mapping) and isinstance(out.get(module), Mapping)
        out[module] = {**out[module], **value} if both else value
    return out


def parse_seconds(text: str) -> float:
    """Of "90", "90s", "10m", "1.5h" or "1d"."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([smhd]?)\s*", text)
    if match is None or float(match[1]) == 0:
        raise ValueError(f"A time is written 90, 90s, 10m, 2h or 1d, got {text!r}.")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def parse_seeds(text: str) -> list[int]:
    """Of "7", "0,3,5" or "0:10" (0 to 9), or several of them with commas."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?::\s*(\d+)\s*)?", part)
        if match is None or int(match[2] or 0) >= 2**32 or int(match[1]) >= 2**32:
            raise ValueError(
                f"Seeds are written 7, 0,3,5 or 0:10 (that is 0 to 9), below 2**32, got {text!r}."
            )
        first = int(match[1])
        seeds += range(first, int(match[2])) if match[2] else [first]
    if not seeds:
        raise ValueError(f"{text!r} names no seed: a:b is from a to b - 1.")
    return list(dict.fromkeys(seeds))


def _shortest(value: Any) -> Any:
    """Numbers as people write them: 0.1 rather than its nearest float32."""
    if isinstance(value, Mapping):
        return {k: _shortest(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_shortest(v) for v in value]
    single = jnp.result_type(float) == jnp.float32
    return float(str(np.float32(value))) if single and isinstance(value, float) else value
