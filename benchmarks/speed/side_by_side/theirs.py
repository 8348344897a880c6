"""One run of the reference, gmmvi 1.1, through its documented classes, in an environment of its own.

Run by the benchmark: python -m side_by_side.theirs DIRECTORY RUN SECONDS TARGET, TARGET being own or shipped.
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
from typing import Any  # noqa: E402

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


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4])
