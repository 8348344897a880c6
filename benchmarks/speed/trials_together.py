"""Trials of a search as one program, or one after another: trials per minute, compilation included.

Run: python benchmarks/speed/trials_together.py [--trials 16] [--iterations 300] [--evaluations 1000000]
         [--slots 16] [--codename SEPTRUX] [--problems gmm20 stm20] [--repeats 1] [--dtype float32]

Settings are drawn from the search space of the paper's Experiment 2. "apart" runs each trial as `natmix run`
does, with shapes of its own, in one process. "batch" gives the trials of each structure to a `TrialBatch`.
Both begin without compiled programs, and leave run directories. The ratio is trials per minute of the batch
over those apart; "cpu" is the same ratio by the processor time of this process, for a shared machine.
"programs" are XLA's compilations, "median gap" is that between the final -ELBOs of a trial in both. Trials
whose -ELBOs differ by more than a nat are listed: rounding decides how settings end that do not converge.
With `--dtype float64` they agree for many more iterations, which tells rounding from a fault.
"""

import argparse
import contextlib
import functools
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natmix import compilation_cache
from natmix.experiments import problems, runs
from natmix.experiments.problems.base import Problem
from natmix.experiments.runs import Limits, load_run
from natmix.experiments.studies.batch_form import batch_form
from natmix.experiments.studies.trial_batch import TrialBatch
from natmix.experiments.studies.trial_runner import Setting, Trial, TrialTerms
from natmix.experiments.studies.trial_structure import structure_of
from natmix.modules.codenames import LETTERS, adds_components
from natmix.targets import TargetError

_COMPILED = "/jax/core/compile/backend_compile_duration"
_compilations: list[float] = []


def _listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
    if event == _COMPILED:
        _compilations.append(duration_secs)


jax.monitoring.register_event_duration_secs_listener(_listen)


class Measured(NamedTuple):
    """What one strategy took."""

    seconds: float
    cpu: float
    programs: int
    neg_elbos: dict[int, float]


def settings(codename: str, random: np.random.Generator) -> dict[str, Setting]:
    """One draw from the space of Experiment 2 for this codename."""

    def log_uniform(low: float, high: float) -> float:
        return float(np.exp(random.uniform(np.log(low), np.log(high))))

    def integer(low: int, high: int) -> int:
        return int(random.integers(low, high + 1))

    drawn: dict[str, Setting] = {
        "sample_selector.desired_samples": integer(1, 1000),
        "sample_selector.reuse_ratio": float(random.uniform(1, 3)),
        "start.components": integer(1, 100),
        "component_stepsize.stepsize": log_uniform(1e-5, 1.0),
        "component_stepsize.min_stepsize": log_uniform(1e-5, 1e-2),
        "component_stepsize.max_stepsize": log_uniform(1e-2, 1.0),
    }
    direct = "U" in codename
    drawn["weight_stepsize.stepsize"] = log_uniform(1e-8, 1.0 if direct else 10.0)
    if "G" in codename:
        drawn["weight_stepsize.exponent"] = float(random.uniform(0, 3))
    if "N" in codename:
        middle = 1e-4 if direct else 1e-1
        drawn["weight_stepsize.min_stepsize"] = log_uniform(1e-8, middle)
        drawn["weight_stepsize.max_stepsize"] = log_uniform(middle, 1.0 if direct else 10.0)
    if adds_components(codename):
        drawn["component_adaptation.add_iters"] = integer(1, 100)
        drawn["component_adaptation.del_iters"] = integer(10, 100)
        drawn["component_adaptation.prior_candidates"] = integer(0, 1000)
    return drawn


def apart(trials: list[Trial], terms: TrialTerms) -> None:
    """Each trial as `natmix run` runs it."""
    for trial in trials:
        problem = terms.load(trial)
        config = terms.configure(trial, problem)
        runs.execute(config, [trial.seed], terms.folder(trial.number), {trial.seed: problem}.__getitem__)


def batch(trials: list[Trial], terms: TrialTerms, slots: int) -> int:
    """Each structure in a batch of its own; returns how many there are."""
    by_structure = defaultdict(list)
    for trial in trials:
        by_structure[structure_of(trial, terms)].append(trial)
    for group in by_structure.values():
        running = TrialBatch(terms, min(slots, len(group)))
        waiting, unfinished = list(group), len(group)
        while unfinished:
            while waiting and running.free:
                running.submit(waiting.pop(0))
            for report in running.advance():
                if report.failure:
                    print(f"  trial {report.trial.number}: {report.failure}", flush=True)
                unfinished -= report.finished
    return len(by_structure)


def measured(strategy, trials, limits, problem: Problem, dtype: str) -> Measured:
    """From no compiled programs to the run directories of all trials."""
    jax.clear_caches()
    with tempfile.TemporaryDirectory() as folder:
        terms = TrialTerms(
            limits, lambda trial: problem, lambda number: Path(folder) / str(number), dtype=dtype
        )
        before, start, cpu = len(_compilations), time.perf_counter(), time.process_time()
        strategy(trials, terms)
        seconds, spent = time.perf_counter() - start, time.process_time() - cpu
        found = {}
        for trial in trials:
            with contextlib.suppress(KeyError, OSError, ValueError, TargetError):
                final = load_run(Path(folder) / str(trial.number)).seeds[trial.seed].final
                found[trial.number] = final["neg_elbo"] if final else float("nan")
    return Measured(seconds, spent, len(_compilations) - before, found)


def main(options: argparse.Namespace) -> None:
    compilation_cache(False)
    if options.dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    limits = Limits(max_iterations=options.iterations, max_evaluations=options.evaluations)
    at_once = batch_form(limits).together
    slots = options.slots or (16 if at_once else 4)
    assert set(options.codename.upper()) <= set(LETTERS)
    print(
        f"{jax.devices()[0].device_kind}, {options.codename}: {options.trials} trials of at most "
        f"{options.iterations:,} iterations and {options.evaluations:,} evaluations; {slots} slots, "
        f"{'together' if at_once else 'in turns'}"
    )
    columns = f"{'problem':15} {'form':6} {'seconds':>8} {'trials/min':>10} {'programs':>8}"
    print(f"{columns}  ratio   cpu  median gap")
    for name in options.problems:
        problem = problems.load(name, seed=0, dtype=jnp.dtype(options.dtype))
        random = np.random.default_rng(options.seed)
        trials = [
            Trial(n, name, options.codename.upper(), settings(options.codename.upper(), random), n)
            for n in range(options.trials)
        ]
        for _ in range(options.repeats):
            one = measured(apart, trials, limits, problem, options.dtype)
            show(name, "apart", one, options.trials)
            together = functools.partial(batch, slots=slots)
            many = measured(together, trials, limits, problem, options.dtype)
            pairs = {n: (v, many.neg_elbos.get(n, np.nan)) for n, v in one.neg_elbos.items()}
            gap = np.median([abs(a - b) for a, b in pairs.values() if np.isfinite(a - b)] or [np.nan])
            show(name, "batch", many, options.trials, end="")
            print(f"  {one.seconds / many.seconds:5.2f} {one.cpu / many.cpu:5.2f}  {gap:.2g}", flush=True)
            for n, (a, b) in pairs.items():
                if not abs(a - b) <= 1:
                    print(f"  trial {n}: -ELBO {a:.6g} apart, {b:.6g} in the batch; {trials[n].settings}")


def show(name: str, form: str, took: Measured, trials: int, end: str = "\n") -> None:
    """A row of the table."""
    rate = 60 * trials / took.seconds
    print(f"{name:15} {form:6} {took.seconds:8.1f} {rate:10.2f} {took.programs:8}", end=end, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--evaluations", type=int, default=1_000_000)
    parser.add_argument("--slots", type=int, default=None)
    parser.add_argument("--codename", default="SEPTRUX")
    parser.add_argument("--problems", nargs="+", default=["gmm20", "stm20"])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
