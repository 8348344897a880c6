"""Stan's NUTS on one posterior by PyStan, in a process of its own: 4 chains of 1,000 + 1,000, two at a time.

Run by the benchmark: python benchmarks/quality/posteriordb/nuts.py DATABASE NAME SEED
"""

import concurrent.futures
import functools
import json
import multiprocessing
import re
import resource
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from posteriordb.database import Posterior, columns, posterior, root
from posteriordb.measures import errors

CHAINS, WARMUP, SAMPLES, AT_ONCE = 4, 1000, 1000, 2
_SECONDS = re.compile(r"([\d.eE+-]+) seconds \(Total\)")


def main() -> None:
    """Print one object of JSON."""
    import aiohttp

    # PyStan's client gives up after five minutes, of compiling or of sampling.
    endless = functools.partial(aiohttp.ClientSession, timeout=aiohttp.ClientTimeout(total=None))
    given = posterior(root(Path(sys.argv[1])), sys.argv[2])
    seed = int(sys.argv[3])
    with mock.patch.object(aiohttp, "ClientSession", endless):
        _run(given, seed)


def _run(given: Posterior, seed: int) -> None:
    import httpstan.cache
    import httpstan.services_stub
    import stan

    model: Any = stan.build(
        given.program.read_text("utf-8"), data=json.loads(given.data), random_seed=seed + 1
    )
    # Fits of the same seed are kept by httpstan, and would take no time.
    shutil.rmtree(httpstan.cache.model_directory(model.model_name) / "fits", ignore_errors=True)
    httpstan.services_stub.executor = concurrent.futures.ProcessPoolExecutor(
        AT_ONCE,
        mp_context=multiprocessing.get_context("fork"),
        initializer=httpstan.services_stub.init_worker,
    )
    before = _children_seconds()
    fit = model.sample(num_chains=CHAINS, num_samples=SAMPLES, num_warmup=WARMUP, save_warmup=True)
    httpstan.services_stub.executor.shutdown(wait=True)
    cpu = _children_seconds() - before
    names, reference = given.reference_draws()
    stepsizes = _after_warmup(fit, "stepsize__").reshape(SAMPLES, CHAINS)
    if np.ptp(stepsizes, axis=0).any():
        raise RuntimeError("The stepsize changes after the warm-up: PyStan orders its draws in another way.")
    shapes = dict(zip(fit.param_names, fit.dims, strict=True))
    by_name = {name: _after_warmup(fit, name, shape) for name, shape in shapes.items() if fit[name].size}
    found = errors(columns(by_name, names), reference, given.on_log_scale)
    divergent = int(_after_warmup(fit, "divergent__").sum())
    numbers = {
        "dim": 0,
        "evaluations": int(fit["n_leapfrog__"].sum()),
        "cpu_seconds": cpu,
        "wall_seconds": makespan([_seconds(output) for output in fit.stan_outputs]),
        "verdict": f"{divergent} divergent" if divergent else "",
    }
    print(json.dumps(numbers | found._asdict()))


def makespan(chains: list[float]) -> float:
    """Seconds until the last chain has ended, each starting as soon as there is room."""
    ends = [0.0] * AT_ONCE
    for seconds in chains:
        ends[int(np.argmin(ends))] += seconds
    return max(ends)


def _after_warmup(fit: Any, name: str, shape: Sequence[int] = ()) -> np.ndarray:
    """Draws without those of the warm-up, samples first."""
    values = np.moveaxis(np.asarray(fit[name], float), -1, 0)
    saved = values.reshape(WARMUP + SAMPLES, CHAINS, *shape)
    return saved[WARMUP:].reshape(CHAINS * SAMPLES, *shape)


def _seconds(output: bytes) -> float:
    """What Stan says a chain took, warm-up included."""
    found = [float(text) for text in _SECONDS.findall(output.decode("utf-8"))]
    if not found:
        raise RuntimeError("Stan does not say how long a chain took.")
    return found[0]


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
