"""How far an iteration on this CPU is from its arithmetic, for SAMTRON's rows of side_by_side.

Run: python benchmarks/speed/cpu_limit.py [--only ROW ...] [--write results]

Rates of this machine are measured first: a large matrix product in float32 and an exponential. Then, for
every row, with as many components as the reference had there in the later phase:

    iteration   natmix's, the whole algorithm in compiled chunks, compilation apart
    target      its log density and gradient at the samples of an iteration, by themselves: any
                implementation pays for them
    products    of the algorithm, as if all were done at the rate of a large one in float32: N samples meet
                K Gaussians in D dimensions four times (multiplications and additions: D^2 for the densities,
                before and after the update, D^2 for the score of the mixture, 2 D^2 for Stein's sums, of a
                component's own samples where the paper's settings say so), and the candidates for a new
                component once in every search (D^2)
    exp         responsibilities and importance weights before and after the update: three for every pair of
                a sample and a component, one for every pair of a candidate and a component
    limit       the sum of the last three: no passes over memory, no draws, no decompositions, no waiting

"reference" is what gmmvi took for an iteration there (results/bench_cpu.csv, measured at another time), so
"reference over limit" is by how much an implementation of this dense arithmetic could be faster at most.
Leaving out pairs that do not matter goes below the limit: natmix does so, without its native kernels
from 41 dimensions on.
"""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from paper_row import asked_and_told, later_phase
from side_by_side.rows import Row, choose, distinct
from timing import seconds_per_call

from natmix.kernels.compilation import quick_jit

RESULTS = Path(__file__).resolve().parents[2] / "results"
COLUMNS = (
    "row",
    "components",
    "dimensions",
    "samples",
    "iteration_ms",
    "target_ms",
    "products_ms",
    "exp_ms",
    "limit_ms",
    "share",
    "reference_ms",
    "reference_over_limit",
)


class Rates(NamedTuple):
    """Of this machine, per second."""

    products: float
    """Floating-point operations of a large float32 product."""
    exps: float


class Cost(NamedTuple):
    """Of an iteration."""

    components: float
    dim: int
    samples: int
    iteration: float
    target: float
    operations: float
    exps: float


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="ROW", help="these rows")
    parser.add_argument("--write", type=Path, help="folder for cpu_limit.csv")
    options = parser.parse_args(arguments)
    chosen = [row for row in distinct(choose(options.only)) if row.codename == "SAMTRON"]
    if not chosen:
        raise SystemExit("The arithmetic is written down for SAMTRON's rows alone.")
    rates = measured_rates()
    print(f"float32 products {rates.products / 1e9:.0f} GFLOP/s, exponentials {rates.exps / 1e9:.2f} 10^9/s")
    reference = {r["row"]: r for r in csv.DictReader((RESULTS / "bench_cpu.csv").open(encoding="utf-8"))}
    lines = []
    print(" ".join(f"{name.removesuffix('_ms'):>14}" for name in COLUMNS))
    for row in chosen:
        theirs = reference[row.name]
        cost = measured(row, round(float(theirs["later_components_theirs"])))
        lines.append(as_line(row, cost, rates, float(theirs["later_ms_theirs"])))
        print(" ".join(f"{lines[-1][name]:>14}" for name in COLUMNS), flush=True)
    if options.write is not None:
        path = options.write / "cpu_limit.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
        print(path)


def measured_rates() -> Rates:
    n = 2048
    a = jnp.ones((n, n), jnp.float32) / n
    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    x = jnp.linspace(-20, 0, 2**22, dtype=jnp.float32)
    total = quick_jit()(lambda x: jnp.sum(jnp.exp(x)))
    return Rates(2 * n**3 / seconds_per_call(product, a), x.size / seconds_per_call(total, x))


def measured(row: Row, components: int) -> Cost:
    """Of this row from a start with so many components."""
    phase = later_phase(row, components)
    algorithm = phase.algorithm
    estimator: Any = algorithm.ng_estimator
    adaptation: Any = algorithm.component_adaptation
    query, _, batch = asked_and_told(phase)
    evaluate = quick_jit()(lambda q: algorithm.evaluate(phase.state, q, phase.target))
    K, N, D = phase.components, int(batch.count), phase.state.mixture.dim
    own = estimator.own_samples_only
    tried = adaptation.database_candidates + adaptation.prior_candidates
    candidates = tried * phase.searches
    return Cost(
        components=K,
        dim=D,
        samples=N,
        iteration=phase.seconds,
        target=seconds_per_call(evaluate, query),
        operations=D**2 * (K * (3 * N + candidates) + 2 * N * (1 if own else K)),
        exps=K * (3 * N + candidates),
    )


def as_line(row: Row, cost: Cost, rates: Rates, reference_ms: float) -> dict[str, Any]:
    products, exps = cost.operations / rates.products, cost.exps / rates.exps
    limit = cost.target + products + exps
    return {
        "row": row.name,
        "components": f"{cost.components:.1f}",
        "dimensions": cost.dim,
        "samples": cost.samples,
        **{
            f"{name}_ms": f"{1e3 * seconds:.1f}"
            for name, seconds in (
                ("iteration", cost.iteration),
                ("target", cost.target),
                ("products", products),
                ("exp", exps),
                ("limit", limit),
            )
        },
        "share": f"{limit / cost.iteration:.2f}",
        "reference_ms": f"{reference_ms:.0f}",
        "reference_over_limit": f"{reference_ms / (1e3 * limit):.1f}",
    }


if __name__ == "__main__":
    main()
