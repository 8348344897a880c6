"""How many evaluations a default fit takes, and how good it is then: two trees side by side.

The targets are those of `verdict_kinds.py` with a known density (even seeds: development), without a limit
of evaluations unless one is given. KL(q || p) is exact up to the noise of 20,000 samples. Quantiles and
moments of 10,000 samples of the fit are compared with those of 200,000 exact samples.

Run, in each of the trees: python benchmarks/quality/evaluations.py --label new [--kinds gaussian banana]
[--seeds 0:4:2] [--limit N]; then the table of both: --only-table.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from case_table import ROOT, Row, markdown, provenance, read_rows, run_cases, seed_range
from verdict_kinds import Case, draw_case

import natmix

KINDS = ("gaussian", "correlated", "student", "skewed", "banana", "few modes", "gradient-free")
POOL, DRAWS, EXACT = 20_000, 10_000, 200_000
MEAN, SPREAD, QUANTILE = 0.05, 0.05, 0.1
"""What counts as accurate: errors of means, ratios of standard deviations, 5% and 95% quantiles."""
KEY = ("label", "kind", "seed", "limit", "overrides")


def errors(draws: np.ndarray, exact: np.ndarray) -> Row:
    """The largest errors of the marginals."""
    sd = exact.std(axis=0)
    ratio = draws.std(axis=0) / sd
    quantiles = [np.quantile(x, (0.05, 0.95), axis=0) for x in (draws, exact)]
    return {
        "mean": float(np.max(np.abs(draws.mean(axis=0) - exact.mean(axis=0)) / sd)),
        "sd": float(ratio[np.argmax(np.abs(np.log(ratio)))]),
        "quantile": float(np.max(np.abs(quantiles[0] - quantiles[1]) / sd)),
    }


def work(row: Row) -> Row:
    """One fit."""
    case: Case = draw_case(row["kind"], row["seed"])
    limit = None if row["limit"] == 0 else row["limit"]
    result = natmix.fit(
        case.target, seed=row["seed"], max_evaluations=limit, progress=False, **json.loads(row["overrides"])
    )
    diagnosis = result.diagnose()
    pool = np.asarray(result.mixture.sample(POOL, key=1), float)
    log_q = np.asarray(result.mixture.log_prob(pool), float)
    exact = case.truth.sample(np.random.default_rng(0), EXACT)
    return {
        "dim": case.truth.dim,
        "detail": case.detail,
        "evaluations": result.counts.evaluations,
        "iterations": len(result.trajectory["elbo"]),
        "components": result.mixture.num_components,
        "stopped": result.stopped,
        "kl": float(np.mean(log_q - case.truth.log_prob(pool))),
        **errors(np.asarray(result.sample(DRAWS, seed=2), float).reshape(DRAWS, -1), exact),
        "verdict": diagnosis.verdict,
        "repairs": 0 if result.verification is None else len(result.verification.repairs),
    }


def accurate(row: Row) -> bool:
    """Whether its samples have the moments and quantiles of the target."""
    return (
        float(row["mean"]) <= MEAN
        and abs(float(row["sd"]) - 1) <= SPREAD
        and float(row["quantile"]) <= QUANTILE
    )


def table(rows: list[Row]) -> str:
    """Cases by line, labels side by side."""
    labels = sorted({row["label"] for row in rows})
    cases = sorted({(row["kind"], int(row["seed"]), row["limit"]) for row in rows})
    found = {(row["label"], row["kind"], int(row["seed"]), row["limit"]): row for row in rows}
    lines = []
    for case in cases:
        line = ["{} {}".format(*case) + (f" ({case[2]})" if case[2] != "0" else "")]
        for label in labels:
            row = found.get((label, *case))
            if row is None or row["error"]:
                line += ["", "", "", ""]
                continue
            line += [
                f"{int(row['evaluations']):,}",
                f"{float(row['kl']):.4f}",
                f"{float(row['mean']):.3f} {float(row['sd']):.3f} {float(row['quantile']):.3f}"
                + ("" if accurate(row) else " *"),
                row["verdict"],
            ]
        lines.append(line)
    columns = ("evaluations", "KL", "mean, sd, quantile", "verdict")
    return markdown(["target", *(f"{label}: {c}" for label in labels for c in columns)], lines)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--label", default="new")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    parser.add_argument("--seeds", type=seed_range, default="0:4:2")
    parser.add_argument("--limit", type=int, default=0, help="of evaluations; 0: none")
    parser.add_argument("--overrides", default="{}", help="arguments of natmix.fit, as JSON")
    parser.add_argument("--csv", type=Path, default=ROOT / "results" / "evaluations.csv")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--only-table", action="store_true")
    options = parser.parse_args()
    if not options.only_table:
        cases = [
            dict(zip(KEY, (options.label, kind, seed, options.limit, options.overrides), strict=True))
            for seed in options.seeds
            for kind in options.kinds
        ]
        run_cases(cases, work, options.csv, options.jobs, options.again, float64=False)
        return 0
    rows = list(read_rows(options.csv, KEY).values())
    print(provenance(rows), table(rows), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
