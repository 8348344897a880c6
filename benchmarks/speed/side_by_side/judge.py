"""The -ELBO of the mixtures a run has kept, from the same estimator and samples for both sides, in float64.

Run by the benchmark: python -m side_by_side.judge DIRECTORY RUN
"""

import json
import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from natmix import Mixture
from natmix.experiments.runs.elbo_evaluation import evaluate_elbo
from natmix.gaussians import FullGaussians
from side_by_side.problem import load

SAMPLES = 2000
FEWEST_ROWS = 8


def main(directory: Path, run: str) -> None:
    jax.config.update("jax_enable_x64", True)
    settings = json.loads((directory / "settings.json").read_text())
    problem = load(settings["problem"], settings["seed"], directory, jnp.float64)
    path = directory / f"{run}.json"
    found = json.loads(path.read_text())
    for row in found["checkpoints"]:
        seen = evaluate_elbo(
            read(directory / run / row.pop("file")), problem.reference, jax.random.key(7), SAMPLES
        )
        row["neg_elbo"], row["neg_elbo_se"] = seen.neg_elbo, seen.neg_elbo_se
        row["invalid_share"] = seen.invalid_share
    found["judged"] = SAMPLES
    path.write_text(json.dumps(found))
    shutil.rmtree(directory / run)


def read(path: Path) -> Mixture:
    """A mixture with a power of two of rows, so that few programs are compiled."""
    with np.load(path) as stored:
        log_weights, mean, scale_tril = (stored[k] for k in ("log_weights", "mean", "scale_tril"))
    K, D = mean.shape
    rows = max(FEWEST_ROWS, 1 << (K - 1).bit_length())
    weights, means, factors = np.full(rows, -np.inf), np.zeros((rows, D)), np.tile(np.eye(D), (rows, 1, 1))
    weights[:K], means[:K], factors[:K] = log_weights, mean, np.tril(scale_tril)
    return Mixture(
        jnp.asarray(weights), FullGaussians.from_scale_tril(jnp.asarray(means), jnp.asarray(factors))
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
