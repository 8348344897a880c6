"""One run of the reference, gmmvi 1.1, through its documented classes, in an environment of its own.

Run by the benchmark: python -m side_by_side.theirs DIRECTORY RUN SECONDS TARGET, TARGET being own or shipped,
or python -m side_by_side.theirs DIRECTORY check, to compare the log densities.
"""

import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
_BEFORE_IMPORTS = time.perf_counter()

import contextlib  # noqa: E402
import io  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, NamedTuple  # noqa: E402

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

tf.get_logger().setLevel("ERROR")

from gmmvi.configs import get_default_algorithm_config  # noqa: E402
from gmmvi.models.full_cov_gmm import FullCovGMM  # noqa: E402
from gmmvi.models.gmm_wrapper import GmmWrapper  # noqa: E402
from gmmvi.optimization.gmmvi import GMMVI  # noqa: E402

_IMPORTED = time.perf_counter() - _BEFORE_IMPORTS

from side_by_side import targets_tf  # noqa: E402
from side_by_side.record import Recorder, peak_mib, versions  # noqa: E402

VALUE_TOLERANCE, GRADIENT_TOLERANCE = 1e-4, 2e-3
"""Relative, for float32 against float64."""
STANDARD_ERRORS, DRAWS = 5, 400


def main(directory: Path, run: str, seconds: float, which: str) -> None:
    settings, arrays = read(directory)
    target = targets_tf.build(which, settings, arrays)
    tf.random.set_seed(settings["seed"])
    imported_mib = peak_mib()

    record = Recorder(directory / run, seconds)
    config = gmmvi_config(settings)
    start = (arrays["start.log_weights"], arrays["start.mean"], arrays["start.covariance"])
    weights = np.exp(start[0] - np.logaddexp.reduce(start[0]))
    model = FullCovGMM(*(tf.constant(a, tf.float32) for a in (weights, *start[1:])))
    wrapped = GmmWrapper.build_from_config(model, config)
    algorithm = GMMVI.build_from_config(config, target, wrapped)
    done = 0
    while not record.spent:
        algorithm.train_iter()
        done += 1
        with record.pause():
            components = int(wrapped.num_components)
            record.mark(done, int(target.evaluations), components, 0.0)
            if record.wants_mixture:
                record.keep(wrapped.log_weights.numpy(), wrapped.means.numpy(), wrapped.chol_cov.numpy())
    record.write(
        directory / f"{run}.json",
        side="theirs",
        target=which,
        import_seconds=_IMPORTED,
        imported_mib=imported_mib,
        versions=versions("gmmvi", "tensorflow", "tensorflow-probability", "numpy"),
    )


def read(directory: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    settings = json.loads((directory / "settings.json").read_text())
    with np.load(directory / "problem.npz") as stored:
        return settings, dict(stored)


def gmmvi_config(settings: dict[str, Any]) -> dict[str, Any]:
    """natmix's settings in gmmvi's words."""
    with contextlib.redirect_stdout(io.StringIO()):
        config = get_default_algorithm_config(settings["codename"])
    ours, start = settings["settings"], settings["start"]
    config["sample_selector_config"] = {
        "desired_samples_per_component": ours["sample_selector"]["desired_samples"],
        "ratio_reused_samples_to_desired": ours["sample_selector"]["reuse_ratio"],
    }
    estimator = ours["ng_estimator"]
    config["ng_estimator_config"] = {
        "only_use_own_samples": estimator["own_samples_only"],
        "use_self_normalized_importance_weights": estimator["self_normalised"],
    }
    if "ridge" in estimator:
        config["ng_estimator_config"]["initial_l2_regularizer"] = estimator["ridge"]
    for module in ("component", "weight"):
        config[f"{module}_stepsize_adapter_config"] = stepsizes(ours[f"{module}_stepsize"])
    config["weight_updater_config"] = {
        "use_self_normalized_importance_weights": ours["weight_updater"]["self_normalised"]
    }
    adaptation = ours["component_adaptation"]
    if "add_iters" in adaptation:
        config["num_component_adapter_config"] = {
            "del_iters": adaptation["del_iters"],
            "add_iters": adaptation["add_iters"],
            "max_components": adaptation["max_components"],
            "thresholds_for_add_heuristic": list(adaptation["thresholds"]),
            "min_weight_for_del_heuristic": adaptation["min_weight"],
            "num_database_samples": adaptation["database_candidates"],
            "num_prior_samples": adaptation["prior_candidates"],
        }
    config["model_initialization"] = {
        "use_diagonal_covs": False,
        "num_initial_components": start["components"],
        "prior_mean": number_or_list(start["mean"]),
        "prior_scale": number_or_list(start["mean_scale"]),
        "initial_cov": number_or_list(start["variance"]),
    }
    config["temperature"] = ours["temperature"]
    config["use_sample_database"] = settings["keep_samples"]
    config["max_database_size"] = settings["max_stored"]
    return config


def stepsizes(module: dict[str, Any]) -> dict[str, float]:
    names = {
        "stepsize": "initial_stepsize",
        "min_stepsize": "min_stepsize",
        "max_stepsize": "max_stepsize",
        "increase": "stepsize_inc_factor",
        "decrease": "stepsize_dec_factor",
    }
    return {theirs: module[ours] for ours, theirs in names.items() if ours in module}


def number_or_list(values: list[float]) -> float | list[float]:
    return values[0] if len(set(values)) == 1 else values


def check(directory: Path) -> None:
    """Write which targets are the same function as natmix's; end with a message if the own one is not."""
    settings, arrays = read(directory)
    target = targets_tf.build("own", settings, arrays)
    own = Disagreement.at_points(target, arrays)
    if not own.small:
        raise SystemExit(f"{settings['problem']}: the log densities disagree, {own}; nothing was timed.")
    messages = [f"log densities agree: {own}"]
    if settings["kind"] == "wine":
        error = minibatch_error(target, tf.constant(arrays["check.x"][:8], tf.float32))
        messages.append(f"minibatches are off by {error:.1f} standard errors at most")
    usable = ["own"]
    if settings["kind"] in targets_tf.SHIPPED:
        shipped = Disagreement.at_points(targets_tf.build("shipped", settings, arrays), arrays)
        usable += ["shipped"] * shipped.small
        word = "shipped target" if shipped.small else "shipped target not used"
        messages.append(f"{word}: {shipped}")
    (directory / "targets.json").write_text(json.dumps({"usable": usable, "messages": messages}))
    print("; ".join(messages))


class Disagreement(NamedTuple):
    """The largest relative differences of log densities and gradients."""

    value: float
    gradient: float

    @property
    def small(self) -> bool:
        return self.value < VALUE_TOLERANCE and self.gradient < GRADIENT_TOLERANCE

    def __str__(self) -> str:
        return f"{self.value:.0e} relative, gradients {self.gradient:.0e}"

    @classmethod
    def at_points(cls, target: targets_tf.Target, arrays: dict[str, np.ndarray]) -> "Disagreement":
        x = tf.constant(arrays["check.x"], tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = target.exact(x)
        gradient = tape.gradient(value, x).numpy()
        wanted, slope = arrays["check.log_density"], arrays["check.gradient"]
        off = np.abs(value.numpy() - wanted) / (1 + np.abs(wanted))
        slope_off = np.linalg.norm(gradient - slope, axis=1) / (1e-6 + np.linalg.norm(slope, axis=1))
        return cls(float(np.max(off)), float(np.max(slope_off)))


def minibatch_error(target: targets_tf.Target, x: tf.Tensor) -> float:
    """How far the mean over minibatches is from the exact value, in standard errors."""
    draws = np.stack([target.value(x).numpy() for _ in range(DRAWS)]).astype(float)
    error = np.abs(draws.mean(0) - target.exact(x).numpy()) / (draws.std(0, ddof=1) / DRAWS**0.5)
    if not error.max() < STANDARD_ERRORS:
        raise SystemExit(f"Minibatches are off by {error.max():.1f} standard errors; nothing was timed.")
    return float(error.max())


if __name__ == "__main__":
    if sys.argv[2] == "check":
        check(Path(sys.argv[1]))
    else:
        main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4])
