"""Where the time of an iteration goes on this machine, for the rows of benchmarks/speed/side_by_side.

Run: python benchmarks/speed/phases.py [--only ROW ...] [--components N] [--write results]

Every phase is a program of its own here, on the arrays of a real run with as many components as the reference
had in its later phase (results/bench_cpu.csv):

    ask         new samples; with reuse also the old ones' densities and their effective sample size
    target      log density and gradient at the new samples
    tell        densities under all components, background, reuse
    score       responsibilities and gradient of log q (Stein)
    estimate    the natural gradients as a whole, score in it
    update      trust region or other step of all components
    reweigh     densities under the new components, expected log-ratios

"whole" is an iteration inside a compiled chunk, with its share of the searches for new components. It may
take less than its phases, for XLA does once what several of them need.
"""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
from cpu_limit import RESULTS
from paper_row import LaterPhase, asked_and_told, later_phase, told
from side_by_side.rows import choose, distinct
from timing import seconds_per_call

from natmix.kernels.compilation import quick_jit
from natmix.kernels.scores import mixture_score
from natmix.modules.expectations import expected_log_ratios

COLUMNS = ("row", "components", "dimensions", "samples", "new", "whole_ms")
PHASES = ("ask", "target", "tell", "score", "estimate", "update", "reweigh")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="ROW", help="these rows")
    parser.add_argument("--components", type=int, help="as many at the start, for all rows")
    parser.add_argument("--write", type=Path, help="folder for phases.csv")
    options = parser.parse_args(arguments)
    rows = csv.DictReader((RESULTS / "bench_cpu.csv").open(encoding="utf-8"))
    usual = {r["row"]: round(float(r["later_components_theirs"])) for r in rows}
    names = (*COLUMNS, *(f"{phase}_ms" for phase in PHASES))
    print(" ".join(f"{name.removesuffix('_ms'):>14}" for name in names))
    lines = []
    for row in distinct(choose(options.only)):
        phase = later_phase(row, options.components or usual[row.name])
        query, _, batch = asked_and_told(phase)
        sizes = (phase.state.mixture.dim, int(batch.count), int(query.draws.count))
        spent = {"whole": phase.seconds, **seconds(phase)}
        line = [row.name, f"{phase.components:.1f}", *sizes, *(f"{1e3 * s:.2f}" for s in spent.values())]
        print(" ".join(f"{value:>14}" for value in line), flush=True)
        lines.append(line)
    if options.write is not None:
        path = options.write / "phases.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([names, *lines])
        print(path)


def seconds(phase: LaterPhase) -> dict[str, float]:
    """Of each phase."""
    algorithm, state = phase.algorithm, phase.state
    query, evaluation, batch = asked_and_told(phase)
    mixture, T = state.mixture, jnp.asarray(algorithm.temperature, batch.x.dtype)
    estimator, penalty = algorithm.ng_estimator, jnp.asarray(algorithm.zero_penalty, batch.x.dtype)

    def estimate(state, batch):
        return estimator.estimate(state.ng_estimator, state.mixture, batch, T, penalty)

    def score(mixture, batch):
        parts, log_weights = mixture.components, mixture.log_weights
        return mixture_score(parts, batch.log_components, log_weights, batch.x, batch.count)

    def update(state, gradient):
        step = jnp.full(state.mixture.num_components, 0.01, batch.x.dtype)
        parts, present = state.mixture.components, state.mixture.exists
        return algorithm.component_updater.update(parts, gradient, step, state.updates.value, T, present)

    def reweigh(mixture, batch):
        log_components = mixture.components.log_prob(batch.x, batch.count)
        normalised = algorithm.weight_updater.self_normalised
        return expected_log_ratios(mixture, batch, log_components, T, normalised)

    gradient = jax.block_until_ready(quick_jit()(estimate)(state, batch))
    calls = {
        "ask": (algorithm.ask, (state,)),
        "target": (algorithm.evaluate, (state, query, phase.target)),
        "tell": (told, (phase, query, evaluation)),
        "score": (score, (mixture, batch)),
        "estimate": (estimate, (state, batch)),
        "update": (update, (state, gradient)),
        "reweigh": (reweigh, (mixture, batch)),
    }
    return {name: seconds_per_call(quick_jit()(fn), *arguments) for name, (fn, arguments) in calls.items()}  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
