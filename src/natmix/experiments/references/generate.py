"""Generate reference samples."""

import dataclasses
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from natmix.diagnostics.elbo import target_log_density
from natmix.experiments.references.bridge import bridge_log_evidence
from natmix.experiments.references.nuts import run_nuts
from natmix.experiments.references.planar_robot import Arm, sample_arm, shares
from natmix.experiments.references.store import Reference, cache_directory, load, save
from natmix.text.extras import install

if TYPE_CHECKING:
    from natmix.experiments.problems.base import Problem

POINTS = 10_000
"""How many samples are kept."""

_FINGERPRINT = 8


@dataclass(frozen=True)
class Settings:
    """How much to sample, and the seed.

    Attributes:
        points: samples to keep.
        seed: of all random numbers.
        chains: of NUTS.
        warmup: its steps before the first draw, per chain.
        draws: its draws per chain.
        independent: draws of the exact sampler, of which the first are kept; the rest serve the log evidence.
    """

    points: int = POINTS
    seed: int = 0
    chains: int = 16
    warmup: int = 1000
    draws: int = 6250
    independent: int = 20_000

    def __post_init__(self) -> None:
        if self.points % self.chains or self.draws * self.chains < self.points:
            raise ValueError(
                f"{self.points} points cannot be taken evenly from {self.chains} chains "
                f"of {self.draws} draws."
            )


class _Made(NamedTuple):
    samples: Float[np.ndarray, "N D"]
    chains: Float[np.ndarray, "C T D"]
    """The chains, split for R-hat and the effective sample sizes."""
    info: dict[str, Any]


def generate(name: str, directory: Path | None = None, settings: Settings | None = None) -> Reference:
    """Sample the target of a test problem in float64, and write samples and diagnostics to ``directory``.

    Float64 is enabled only inside. Without a directory the samples go to the cache.
    """
    how = GENERATORS.get(name)
    if how is None:
        raise ValueError(f"There are no reference samples of {name!r}, only of {', '.join(GENERATORS)}.")
    settings = settings or Settings()
    diagnostics = _diagnostics()
    folder = directory or cache_directory()
    folder.mkdir(parents=True, exist_ok=True)  # raise before the work if it cannot be written
    started = time.perf_counter()
    with jax.enable_x64(True):
        from natmix.experiments.problems import load as load_problem

        problem = load_problem(name, dtype=np.float64)
        made = how(name, problem, settings)
        order = np.random.default_rng(settings.seed).permutation(len(made.samples))
        samples = made.samples[order]
        info = {
            "points": len(samples),
            "dim": problem.dim,
            "r_hat": _rounded(diagnostics.split_gelman_rubin(made.chains)),
            "effective_sample_size": _rounded(diagnostics.effective_sample_size(made.chains)),
            "draws": int(np.prod(made.chains.shape[:2])),
            **made.info,
            "log_density": values(problem, samples[:_FINGERPRINT]).tolist(),
            "settings": dataclasses.asdict(settings),
            "seconds": round(time.perf_counter() - started, 1),
            "versions": _versions(),
        }
    return save(name, samples, info, folder)


def reference_name(problem_name: str) -> str:
    """The problem whose samples are the reference; for minibatches the one with the full data."""
    name = problem_name.removesuffix("_mb")
    if name not in GENERATORS:
        raise ValueError(
            f"There are no reference samples of {problem_name!r}, only of {', '.join(GENERATORS)}."
        )
    return name


def load_for(problem: "Problem") -> Reference | None:
    """The reference samples of a problem; None if it has none.

    A FileNotFoundError says so if they have not been made, or were made for another target (other data,
    or a part of the data).
    """
    name = problem.name.removesuffix("_mb")
    if name not in GENERATORS:
        return None
    reference = load(name)
    known = np.asarray(reference.info["log_density"])
    here = values(problem, reference.samples[: len(known)])
    if not np.allclose(here, known, rtol=1e-3, atol=0.1):
        raise FileNotFoundError(
            f"The reference samples of {name} belong to another target than this {problem.name} "
            "(other data, or a part of them); there are none for this one."
        )
    return reference


def values(problem: "Problem", x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
    """The problem's log density, evaluated by natmix."""
    return np.asarray(target_log_density(problem.reference, jax.random.key(0), jnp.asarray(x)), dtype=float)


# The problems -----------------------------------------------------------------------------------


def _logistic_regression(name: str, problem: "Problem", settings: Settings) -> _Made:
    """NUTS, thinned to evenly spaced draws, the same number from every chain."""
    per_chain = settings.points // settings.chains
    run = run_nuts(
        lambda x: problem.reference.evaluate(jax.random.key(0), x[None], 1, False).log_density[0],
        problem.dim,
        chains=settings.chains,
        warmup=settings.warmup,
        draws=settings.draws,
        seed=settings.seed,
    )
    step = settings.draws // per_chain
    thinned = run.draws[:, step - 1 :: step][:, :per_chain]
    samples = thinned.reshape(-1, problem.dim)
    mixed = samples[np.random.default_rng(settings.seed + 1).permutation(len(samples))]
    evidence = bridge_log_evidence(lambda x: values(problem, x), mixed, settings.seed)
    info = {
        "sampler": "NUTS (NumPyro), whitened by the Hessian at the mode, dense mass matrix",
        "thinned_effective_sample_size": _rounded(_diagnostics().effective_sample_size(thinned)),
        "divergences": run.divergences,
        "mean_accept_probability": round(run.mean_accept, 3),
        "log_evidence": evidence.value,
        "log_evidence_se": evidence.standard_error,
        "log_evidence_by": "bridge sampling from a Gaussian",
    }
    return _Made(samples, run.draws, info)


def _planar_robot(name: str, problem: "Problem", settings: Settings) -> _Made:
    """Independent draws by rejection."""
    arm = ARMS[name]
    drawn = sample_arm(arm, max(settings.points, settings.independent), settings.seed)
    samples = drawn.samples[: settings.points]
    here, there = values(problem, samples), arm.log_density(samples)
    if not np.allclose(here, there, rtol=1e-6, atol=1e-6):
        raise RuntimeError(f"The sampler's target is not that of {name}: they differ by {here - there}.")
    parts = 4
    usable = len(drawn.samples) // parts * parts
    info = {
        "sampler": "exact rejection sampling, independent draws",
        "proposals": drawn.proposals,
        "acceptance": len(drawn.samples) / drawn.proposals,
        "shares": shares(arm, drawn.samples),
        "log_evidence": drawn.log_evidence,
        "log_evidence_se": drawn.log_evidence_se,
        "log_evidence_by": "mean acceptance probability",
    }
    return _Made(samples, drawn.samples[:usable].reshape(parts, -1, arm.links), info)


ARMS = {"planar_robot_1": Arm(goals=1), "planar_robot_4": Arm(goals=4)}
GENERATORS: dict[str, Callable[[str, "Problem", Settings], _Made]] = {
    "breast_cancer": _logistic_regression,
    "german_credit": _logistic_regression,
    "planar_robot_1": _planar_robot,
    "planar_robot_4": _planar_robot,
}


# What is written beside them --------------------------------------------------------------------


def _diagnostics() -> Any:
    try:
        from numpyro import diagnostics
    except ImportError as error:
        raise ImportError(f"Reference samples are made with NumPyro: {install('reference')}.") from error
    return diagnostics


def _rounded(numbers: Float[np.ndarray, " D"]) -> list[float]:
    return [float(f"{v:.6g}") for v in np.asarray(numbers)]


def _versions() -> dict[str, str]:
    packages = ("natmix", "numpy", "jax", "numpyro")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
