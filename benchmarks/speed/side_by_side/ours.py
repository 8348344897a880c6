"""One run of natmix, cold, in a process of its own.

Run by the benchmark: python -m side_by_side.ours DIRECTORY RUN SECONDS
"""

import time
from typing import Any

_BEFORE_IMPORTS = time.perf_counter()

import json  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from natmix import Mixture  # noqa: E402
from natmix.engine.capacity import initial_capacity  # noqa: E402
from natmix.engine.chunk_runner import ChunkRunner  # noqa: E402
from natmix.engine.runner import CHUNK  # noqa: E402
from natmix.experiments import runs  # noqa: E402

_IMPORTED = time.perf_counter() - _BEFORE_IMPORTS

from side_by_side.problem import load  # noqa: E402
from side_by_side.record import Recorder, peak_mib, versions  # noqa: E402

CHUNK_SECONDS, CHUNK_SHARE = (0.05, 0.5), 0.1
"""How long a chunk may take: seconds, and as a share of the time since the first iteration."""


def main(directory: Path, run: str, seconds: float) -> None:
    jax.config.update("jax_enable_compilation_cache", False)
    settings = json.loads((directory / "settings.json").read_text())
    problem = load(settings["problem"], settings["seed"], directory, jnp.float32)
    jax.block_until_ready(jax.tree.leaves(problem.target))
    imported_mib = peak_mib()

    record = Recorder(directory / run, seconds)
    config = runs.configure(problem, settings["codename"], preset="paper", dtype="float32")
    algorithm, components = config.algorithm, config.components
    key_run, key_start, _ = jax.random.split(jax.random.key(np.uint32(settings["seed"])), 3)
    mixture, prior = config.start.mixture(key_start, components, jnp.float32)
    state = algorithm.init(key_run, mixture, prior, initial_capacity(algorithm, components, mixture.dim))
    most = algorithm.component_adaptation.most_components(components)
    runner = ChunkRunner(algorithm, problem.target, most)
    done = evaluations = 0
    wanted = 1
    while not record.spent:
        before, compiling = record.seconds, runner.compile_seconds
        chunk = runner.advance(state, wanted, None)
        state = jax.block_until_ready(chunk.state)
        with record.pause() as now:
            n = len(chunk.infos["components"])
            done += n
            evaluations += int(chunk.infos["evaluations"].astype(np.int64).sum())
            components = int(chunk.infos["components"][-1])
            record.mark(done, evaluations, components, runner.compile_seconds)
            if record.wants_mixture:
                keep(record, state.mixture)
            each = (now - before - (runner.compile_seconds - compiling)) / n
            may_take = min(np.clip(CHUNK_SHARE * record.since_first, *CHUNK_SECONDS), seconds - now)
            wanted = int(np.clip(may_take / max(each, 1e-9), 1, min(2 * wanted, CHUNK - done % CHUNK)))
    record.write(
        directory / f"{run}.json",
        side="ours",
        import_seconds=_IMPORTED,
        imported_mib=imported_mib,
        versions=versions("natmix", "jax", "jaxlib", "numpy"),
    )


def keep(record: Recorder, mixture: Mixture) -> None:
    log_weights = np.asarray(mixture.log_weights)
    parts: Any = mixture.components
    present = log_weights > -np.inf
    record.keep(log_weights[present], np.asarray(parts.mean)[present], np.asarray(parts.scale_tril)[present])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
