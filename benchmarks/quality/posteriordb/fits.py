"""natmix on one posterior, in a process of its own: nothing is compiled by JAX before.

Run by the benchmark: python benchmarks/quality/posteriordb/fits.py DATABASE NAME SEED LIMIT
"""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import jax

import natmix
from posteriordb.database import columns, posterior, root
from posteriordb.measures import errors

DRAWS = 10_000


def main() -> None:
    """Print one object of JSON."""
    given = posterior(root(Path(sys.argv[1])), sys.argv[2])
    seed, limit = int(sys.argv[3]), int(sys.argv[4])
    jax.config.update("jax_enable_x64", True)
    model = natmix.models.StanModel(given.program, json.loads(given.data), backend="httpstan")
    cpu, wall = time.process_time(), time.perf_counter()
    result = natmix.fit(model, seed=seed, max_evaluations=limit or None, progress=False)
    verdict = result.diagnosis.verdict
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    names, reference = given.reference_draws()
    found = errors(columns(result.sample(DRAWS), names), reference, given.on_log_scale)
    counts = result.counts
    numbers = {
        "dim": model.dim,
        "evaluations": counts.evaluations,
        "initialise": counts.first_evaluations,
        "train": counts.training_evaluations,
        "elbo": counts.elbo_evaluations,
        "verify": counts.verification_evaluations,
        "refuted": counts.refuted_evaluations,
        "cpu_seconds": cpu,
        "wall_seconds": wall,
        "verdict": str(verdict),
    }
    print(json.dumps(numbers | found._asdict()))


if __name__ == "__main__":
    main()
