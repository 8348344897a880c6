"""Everything both sides share, in two files: arrays (problem, start, points to compare at) and settings.

Run by the benchmark: python -m side_by_side.prepare PROBLEM CODENAME SEED DIRECTORY
"""

import csv
import importlib.resources
import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natmix
from natmix.experiments import problems, runs
from natmix.experiments.problems import minibatch, planar_robot
from side_by_side.problem import digest, load

POINTS = 32


def main(name: str, codename: str, seed: int, directory: Path) -> None:
    jax.config.update("jax_enable_x64", True)
    problem = load(name, seed, directory, jnp.float64)
    config = runs.configure(problem, codename, preset="paper", dtype="float32")
    kind, arrays = data(problem)
    mixture, _ = config.start.mixture(start_key(seed), config.components, jnp.float32)
    x = points(problem, mixture, seed)
    log_p, gradient = log_density(problem, x)
    stored = {f"target.{k}": v for k, v in arrays.items()}
    stored |= {
        "start.log_weights": mixture.log_weights,
        "start.mean": mixture.means,
        "start.covariance": mixture.covariances,
        "check.x": x,
        "check.log_density": log_p,
        "check.gradient": gradient,
    }
    described = config.to_json()
    settings = {
        "problem": name,
        "codename": codename,
        "seed": seed,
        "kind": kind,
        "dim": problem.dim,
        "settings": described["algorithm"]["settings"],
        "start": described["start"],
        **store(codename, name),
        **digest(directory),
        "natmix": natmix.__version__,
    }
    directory.mkdir(parents=True, exist_ok=True)
    np.savez(directory / "problem.npz", **{k: np.asarray(v) for k, v in stored.items()})  # type: ignore[arg-type]
    (directory / "settings.json").write_text(json.dumps(settings, indent=1))


def start_key(seed: int) -> Any:
    """The key from which `natmix.experiments.runs` draws the starting means of this seed."""
    return jax.random.split(jax.random.key(np.uint32(seed)), 3)[1]


def data(problem: problems.Problem) -> tuple[str, dict[str, Any]]:
    """The kind of a problem and the arrays that make it up."""
    fn: Any = problem.target.fn
    kind = type(fn).__name__
    if kind in ("GaussianMixture", "StudentMixture"):
        shape = {
            "mean": fn.shape.mean,
            "inverse_tril": fn.shape.inverse_tril,
            "log_constant": fn.log_constant,
        }
        if kind == "GaussianMixture":
            return "gmm", shape
        return "stm", {**shape, "nu": np.float64(fn.degrees_of_freedom)}
    if kind == "LogisticPosterior":
        return "logistic", {"signed": fn.signed}
    if kind == "PlanarRobot":
        stds = {
            "prior_std": np.array(planar_robot.PRIOR_STD),
            "goal_std": np.float64(planar_robot.GOAL_STD),
        }
        return "planar_robot", {"goals": fn.goals, **stds}
    if kind == "WineMinibatch":
        strides = np.array(minibatch._coprime(fn.quality.shape[0]))
        return "wine", {
            "features": fn.features,
            "quality": fn.quality,
            "minibatch": np.int64(fn.size),
            "strides": strides,
        }
    raise SystemExit(f"The benchmark has no TensorFlow version of {problem.name}.")


def points(problem: problems.Problem, mixture: natmix.Mixture, seed: int) -> np.ndarray:
    """Far out, near the starting mean, and where the target is, as float32 can hold them."""
    keys = jax.random.split(jax.random.key(seed + 1), 3)
    start = problem.start
    near = jnp.asarray(start.mean) + 0.1 * jnp.sqrt(jnp.asarray(start.variance)) * jax.random.normal(
        keys[1], (POINTS, problem.dim)
    )
    found = [mixture.sample(POINTS, key=keys[0]), near]
    if problem.sample is not None:
        found.append(problem.sample(POINTS, key=keys[2]))
    return np.concatenate([np.asarray(f, np.float32) for f in found]).astype(np.float64)


def log_density(problem: problems.Problem, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    evaluate = problem.reference.evaluate(jax.random.key(0), jnp.asarray(x), len(x), needs_gradient=True)
    return np.asarray(evaluate.log_density), np.asarray(evaluate.gradient)


def store(codename: str, problem: str) -> dict[str, Any]:
    """The paper's size of the reference's sample store."""
    text = (
        importlib.resources.files("natmix.experiments.presets")
        .joinpath("paper.csv")
        .read_text(encoding="utf-8")
    )
    rows = csv.DictReader(text.splitlines())
    row = next(r for r in rows if (r["codename"], r["problem"]) == (codename, problem))
    return {"keep_samples": row["keep_samples"] == "True", "max_stored": int(row["max_stored_samples"])}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
