"""Where a fit begins: `fit(start=...)` and initial regions by name, on models and on badly scaled targets.

Run: python benchmarks/quality/starts.py [--only NAME ...] [--seeds 0 1 2] [--write results]

The best final ELBO of all starts and seeds is the mark. A start is judged by the evaluations until the ELBO,
averaged over ten iterations, is within 0.1 nats of the mark. It fails if its final ELBO is not, after at most
300,000 evaluations.
"""

import argparse
import csv
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import natmix
from natmix.kernels.compilation_cache import use_compilation_cache

GAP, AVERAGED = 0.1, 10
MOST_EVALUATIONS = 300_000
NORMAL = {"start": "region", "init_mean": 0.0}
STARTS: dict[str, dict[str, Any]] = {
    "pathfinder": {"start": "pathfinder"},
    "tempered": {"start": "tempered"},
    "prior": {"start": "region"},
    "16 samples of the prior": {"start": "region", "init_components": 16},
    "standard normal": {**NORMAL, "init_scale": 1.0},
    "normal, sd 10": {**NORMAL, "init_scale": 10.0},
    "normal, sd 10,000": {**NORMAL, "init_scale": 1e4},
}
FOR_MODELS = (
    "pathfinder",
    "tempered",
    "prior",
    "16 samples of the prior",
    "standard normal",
    "normal, sd 10",
)
FOR_VECTORS = ("pathfinder", "tempered", "standard normal", "normal, sd 10,000")
MODELS = (
    "schools_non_centred",
    "schools_centred",
    "two_gaussians",
    "squared_regression",
    "german_credit",
    "breast_cancer",
    "funnel",
)
DIM = 10
_OPEN, _CLOSE = "<!-- table -->", "<!-- end of table -->"


@dataclasses.dataclass(frozen=True)
class Scaled:
    """x = scales * (centre + A z): scales from 1e-3 to 1e4, A A^T a correlation matrix, z independent."""

    log_parts: Callable[[Array], Array]
    scales: Float[np.ndarray, " D"]
    centre: Float[np.ndarray, " D"]
    A: Float[np.ndarray, "D D"]

    @classmethod
    def build(cls, log_parts: Callable[[Array], Array]) -> "Scaled":
        """With correlations up to about 0.9."""
        rng = np.random.default_rng(0)
        A = np.linalg.cholesky(_correlations(rng))
        return cls(log_parts, np.logspace(-3, 4, DIM)[rng.permutation(DIM)], 3 * rng.normal(size=DIM), A)

    def __call__(self, x: Float[Array, " D"]) -> Array:
        y = x / jnp.asarray(self.scales, x.dtype) - jnp.asarray(self.centre, x.dtype)
        z = jax.scipy.linalg.solve_triangular(jnp.asarray(self.A, x.dtype), y, lower=True)
        return jnp.sum(self.log_parts(z)) - float(np.sum(np.log(np.diag(self.A) * self.scales)))


def _correlations(rng: np.random.Generator) -> Float[np.ndarray, "D D"]:
    B = rng.normal(size=(DIM, 3))
    C = B @ B.T + 0.3 * np.eye(DIM)
    return C / np.sqrt(np.outer(np.diag(C), np.diag(C)))


def _student(z: Array) -> Array:
    return jax.scipy.stats.t.logpdf(z, 5.0)


VECTORS: dict[str, tuple[Scaled, Any]] = {
    "scaled_gaussian": (Scaled.build(jax.scipy.stats.norm.logpdf), jnp.float64),
    "scaled_gaussian_float32": (Scaled.build(jax.scipy.stats.norm.logpdf), jnp.float32),
    "scaled_student": (Scaled.build(_student), jnp.float64),
}


@dataclasses.dataclass(frozen=True)
class Run:
    """One fit; its ELBO over the evaluations, those of the start included."""

    problem: str
    start: str
    seed: int
    elbo: float
    evaluations: int
    before: int
    seconds: float
    stopped: str
    components: int
    path: tuple[np.ndarray, np.ndarray]

    def reached(self, mark: float) -> int | None:
        """Evaluations until the averaged ELBO was within the gap of the mark, if the final one is too."""
        spent, elbo = self.path
        if len(elbo) < AVERAGED or self.elbo < mark - GAP:
            return None
        smooth = np.convolve(elbo, np.full(AVERAGED, 1 / AVERAGED), "valid")
        hits = np.flatnonzero(smooth > mark - GAP)
        at = hits[0] + AVERAGED - 1 if hits.size else None
        return None if at is None else int(spent[at])


def run(problem: str, start: str, seed: int) -> Run:
    """Fit from one start; an error counts as a run that reached nothing."""
    how = dict(STARTS[start], seed=seed, progress=False)
    how["max_evaluations"] = MOST_EVALUATIONS
    try:
        if problem in VECTORS:
            fn, dtype = VECTORS[problem]
            result = natmix.fit(fn, DIM, dtype=dtype, **how)
        else:
            from posteriors.catalogue import PROBLEMS

            known = PROBLEMS[problem]()
            result = natmix.fit(known.model, model_kwargs=known.kwargs, **how)
    except (natmix.TargetError, ValueError) as error:
        nothing = (np.zeros(0), np.zeros(0))
        return Run(problem, start, seed, -np.inf, 0, 0, 0.0, f"{type(error).__name__}: {error}", 0, nothing)
    before = result.counts.start_evaluations + result.counts.probe_evaluations
    t = result.trajectory
    path = (t["total_evaluations"], np.asarray(t["elbo"], float))
    return Run(
        problem,
        start,
        seed,
        result.elbo.where_positive,
        result.counts.evaluations,
        before,
        result.timings.total - result.timings.compilation,
        result.stopped,
        result.mixture.num_components,
        path,
    )


FIELDS = [
    "problem",
    "start",
    "seed",
    "evaluations_to_mark",
    "gap",
    "evaluations",
    "start_evaluations",
    "seconds",
    "stopped",
    "components",
]


def rows(runs: list[Run]) -> list[dict[str, Any]]:
    """Of one problem."""
    mark = max(r.elbo for r in runs)
    out = []
    for r in runs:
        at = r.reached(mark)
        out.append(
            {
                "problem": r.problem,
                "start": r.start,
                "seed": r.seed,
                "evaluations_to_mark": "" if at is None else at,
                "gap": f"{mark - r.elbo:.4g}",
                "evaluations": r.evaluations,
                "start_evaluations": r.before,
                "seconds": f"{r.seconds:.1f}",
                "stopped": r.stopped,
                "components": r.components,
            }
        )
    return out


def table(found: list[dict[str, Any]]) -> str:
    """Evaluations to the mark, medians over the seeds that reached it."""
    problems = list(dict.fromkeys(r["problem"] for r in found))
    starts = [s for s in STARTS if any(r["start"] == s for r in found)]
    lines = ["| problem | " + " | ".join(starts) + " |", "|---|" + "---:|" * len(starts)]
    for problem in problems:
        cells = [_cell([r for r in found if (r["problem"], r["start"]) == (problem, s)]) for s in starts]
        lines.append(f"| `{problem}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(runs: list[dict[str, Any]]) -> str:
    """The file's rows are text."""
    if not runs:
        return ""
    good = [r for r in runs if r["evaluations_to_mark"] != ""]
    if not good:
        short = min(float(r["gap"]) for r in runs)
        return f"{short:,.{2 if short < 10 else 0}f} nats short"
    evaluations = np.median([int(r["evaluations_to_mark"]) for r in good])
    failed = f" ({len(runs) - len(good)} of {len(runs)} fail)" if len(good) < len(runs) else ""
    return f"{evaluations:,.0f}{failed}"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    names = [*VECTORS, *MODELS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--write", type=Path, metavar="FOLDER", help="write starts.csv and the table in starts.md"
    )
    parser.add_argument("--only-table", type=Path, metavar="FOLDER", help="the table from the rows there")
    options = parser.parse_args()
    if options.only_table:
        _write(options.only_table, [])
        return
    jax.config.update("jax_enable_x64", True)
    use_compilation_cache()
    for problem in options.only:
        runs = []
        for start in FOR_VECTORS if problem in VECTORS else FOR_MODELS:
            for seed in options.seeds:
                runs.append(run(problem, start, seed))
                r = runs[-1]
                numbers = f"ELBO {r.elbo:11.4f} {r.evaluations:10,} {r.seconds:6.1f} s"
                print(f"{problem:24} {start:24} {seed} {numbers} {r.stopped[:80]}", flush=True)
            jax.clear_caches()  # programs hold memory maps, of which a process may have 65530
        found = rows(runs)
        print(table(found))
        if options.write is not None:
            _write(options.write, found)


def _write(folder: Path, found: list[dict[str, Any]]) -> None:
    """Replace the rows of the same problems in the file, and the table in the text."""
    path, text = folder / "starts.csv", folder / "starts.md"
    new = {r["problem"] for r in found}
    kept: list[dict[str, Any]] = []
    if path.is_file():
        with path.open(newline="") as file:
            kept = [r for r in csv.DictReader(file) if r["problem"] not in new]
    names = [*VECTORS, *MODELS]
    every = sorted(kept + found, key=lambda r: names.index(r["problem"]))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(every)
    before = text.read_text() if text.is_file() else f"{_OPEN}\n{_CLOSE}\n"
    head, rest = before.split(_OPEN, 1)
    text.write_text(f"{head}{_OPEN}\n{table(every)}\n{_CLOSE}{rest.split(_CLOSE, 1)[1]}")


if __name__ == "__main__":
    main()
