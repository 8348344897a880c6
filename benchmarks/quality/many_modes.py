"""Does a default fit find all modes of random targets, with no scale given? Scored against the known truth.

Run: python benchmarks/quality/many_modes.py --suite equal [--seeds 0:60] [--only 2 5] [--jobs 8 --cores 2]
On another machine add --csv FILE, which a second call goes on with; later --merge FILE takes its rows over.

Suites (`random_mixtures.py` says how targets are drawn): "equal", 60 targets with modes of similar width;
"uneven", 30 targets of widths within a factor of 5, and from seed 30 on (--seeds 30:42) of at least 10
dimensions, which are reported apart; "values", 40 targets without gradients, with 100,000 evaluations.

Even seeds are for development (--seeds 0:60:2), odd seeds are held out. A mode counts as found if the share
of the mixture's samples that belong to it is between 0.5 and 2 times its weight. "By density" is the number
of modes at whose samples the mixture has, in the median, a twentieth of the target's density or more. KL is
KL(q || p), from 20,000 samples of the mixture. Trust is wrong if a mode is not found, or log Z is off by more
than 0.02, or KL is above 0.1.
"""

import argparse
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from case_table import (
    Row,
    add_arguments,
    half,
    markdown,
    merge_rows,
    provenance,
    read_rows,
    run_cases,
    seed_range,
)
from random_mixtures import SUITES, dimension, random_mixture

import natmix
from natmix import JaxTarget

SAMPLES = 20_000
PER_MODE = 32
LOW_SHARE, HIGH_SHARE = 0.5, 2.0
LOG_DENSITY_DEFICIT = np.log(20)
LARGEST_LOG_Z_ERROR, LARGEST_KL = 0.02, 0.1
VALUES_EVALUATIONS = 100_000
ASKED = {"equal": (57, 60, 1), "uneven": (24, 30, 0), "values": (36, 40, None)}
"""By suite: targets with all modes, of how many, and how often trust may be wrong."""


def fit_case(case: Row) -> Row:
    """One row of the table."""
    suite = SUITES[case["suite"]]
    drawn = random_mixture(suite, case["seed"])
    truth = drawn.truth
    target = JaxTarget(truth.density(), truth.dim, values_only=suite.values_only)
    limits: dict[str, Any] = {"max_evaluations": VALUES_EVALUATIONS} if suite.values_only else {}
    before = time.perf_counter()
    result = natmix.fit(
        target, seed=case["seed"], max_seconds=case["seconds_limit"], progress=False, **limits
    )
    seconds = time.perf_counter() - before
    diagnosis = result.diagnosis
    x = np.asarray(result.mixture.sample(SAMPLES, key=12345), dtype=float)
    log_ratio = np.asarray(result.mixture.log_prob(x), dtype=float) - truth.log_prob(x)
    counts = np.bincount(truth.mode_of(x), minlength=len(truth.weights))
    shares = counts / SAMPLES / truth.weights
    found = int(np.sum((shares >= LOW_SHARE) & (shares <= HIGH_SHARE)))
    typical = truth.sample_of(np.random.default_rng(0), np.repeat(np.arange(len(truth.weights)), PER_MODE))
    log_q = np.asarray(result.mixture.log_prob(typical), dtype=float)
    deficit = np.median((truth.log_prob(typical) - log_q).reshape(-1, PER_MODE), axis=1)
    log_z_error = diagnosis.log_evidence.value if diagnosis else np.nan
    kl = float(log_ratio.mean())
    verdict = diagnosis.verdict if diagnosis else "none"
    sound = found == len(truth.weights) and abs(log_z_error) <= LARGEST_LOG_Z_ERROR and kl <= LARGEST_KL
    return {
        "dim": truth.dim,
        "modes": len(truth.weights),
        "kind": "gaussian" if np.isinf(truth.dof) else "student",
        "weights": "equal" if drawn.equal_weights else "uneven",
        "spheres": int(drawn.spheres),
        "distance": round(drawn.distance, 2),
        "side": round(drawn.side, 1),
        "found": found,
        "by_density": int(np.sum(deficit <= LOG_DENSITY_DEFICIT)),
        "log_z_error": log_z_error,
        "log_z_se": diagnosis.log_evidence.standard_error if diagnosis else np.nan,
        "kl": kl,
        "verdict": verdict,
        "wrong_trust": int(verdict == "trust" and not sound),
        "evaluations": result.counts.evaluations,
        "verification": _verification(result.counts),
        "seconds": round(seconds, 2),
        "components": result.mixture.num_components,
        "stopped": result.stopped,
    }


def _verification(counts: Any) -> int:
    """Evaluations to verify the fit, of a version that counts them."""
    names = [f.name for f in dataclasses.fields(counts) if f.name.startswith("verif")]
    return sum(int(getattr(counts, name)) for name in names)


def seconds_allowed(dim: int) -> float:
    """The default time limit of a fit."""
    return 60.0 if dim <= 10 else 180.0


def table(rows: Sequence[Row]) -> str:
    """By suite, half and dimension."""
    lines, judged = [], []
    for suite in SUITES:
        own = [row for row in rows if row["suite"] == suite]
        usual = [row for row in own if int(row["seed"]) < SUITES[suite].seeds]
        extra = [row for row in own if int(row["seed"]) >= SUITES[suite].seeds]
        for name, group in ((suite, usual), (f"{suite}, more dimensions", extra)):
            dims = sorted({dimension(SUITES[suite], int(row["seed"])) for row in group})
            for part in ("development", "held out"):
                inside = [row for row in group if half(int(row["seed"])) == part]
                for dim in dims:
                    here = [row for row in inside if dimension(SUITES[suite], int(row["seed"])) == dim]
                    lines += [_line(f"{name}, {part}, {dim}-d", here)] if here else []
                lines += [_line(f"**{name}, {part}**", inside)] if inside else []
        if usual:
            judged.append(_judged(suite, usual))
    header = (
        "suite, half, dimension",
        "targets",
        "all modes found",
        "by density",
        "modes found",
        "trust",
        "wrong trust",
        "log Z within 0.02, of the trusted",
        "KL, median",
        "evaluations, median",
        "verification",
        "seconds, median",
        "longest",
    )
    asked_header = ("suite", "targets", "all modes found", "asked", "wrong trust", "asked")
    return markdown(asked_header, judged) + "\n\n" + markdown(header, lines)


def _judged(suite: str, rows: Sequence[Row]) -> list[str | int]:
    most, of, wrong = ASKED[suite]
    trusted_wrongly = sum(int(row["wrong_trust"] or 0) for row in rows)
    allowed = "-" if wrong is None else f"at most {wrong} of {of}"
    return [suite, len(rows), _complete(rows), f"{most} of {of}", trusted_wrongly, allowed]


def _complete(rows: Sequence[Row], column: str = "found") -> int:
    return sum(row[column] == row["modes"] for row in rows if not row["error"])


def _line(name: str, rows: Sequence[Row]) -> list[str | int]:
    good = [row for row in rows if not row["error"]]
    trusted = [row for row in good if row["verdict"] == "trust"]
    close = sum(abs(float(row["log_z_error"])) <= LARGEST_LOG_Z_ERROR for row in trusted)

    def values(column: str) -> np.ndarray:
        return np.array([float(row[column]) for row in good] or [np.nan])

    return [
        name,
        len(rows),
        _complete(rows),
        _complete(rows, "by_density"),
        f"{int(np.nansum(values('found')))} of {int(np.nansum(values('modes')))}",
        len(trusted),
        sum(int(row["wrong_trust"]) for row in good),
        f"{close} of {len(trusted)}",
        f"{np.median(values('kl')):.2g}",
        f"{np.median(values('evaluations')):,.0f}",
        f"{values('verification').sum() / values('evaluations').sum():.0%}",
        f"{np.median(values('seconds')):.0f}",
        f"{values('seconds').max():.0f}",
    ]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--suite", choices=SUITES, default="equal")
    parser.add_argument("--seconds", type=float, help="limit of a fit; 60 up to 10 dimensions, otherwise 180")
    parser.add_argument("--only", type=int, nargs="+", help="only these dimensions")
    add_arguments(parser, None, "many_modes")
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="+",
        default=[],
        help="run nothing; rows of these files replace those of the same targets, then as --only-table",
    )
    options = parser.parse_args()
    suite = SUITES[options.suite]
    seeds = options.seeds or seed_range(f"0:{suite.seeds}")
    dims = {seed: dimension(suite, seed) for seed in seeds}
    cases = [
        {"suite": options.suite, "seed": s, "seconds_limit": options.seconds or seconds_allowed(dims[s])}
        for s in seeds
        if options.only is None or dims[s] in options.only
    ]
    key = ("suite", "seed")
    if options.merge:
        merge_rows(options.csv, options.merge, key)
    elif not options.only_table:
        run_cases(cases, fit_case, options.csv, options.jobs, options.again, options.float64, options.cores)
    rows = list(read_rows(options.csv, key).values())
    explained = (
        "A default `natmix.fit` of random mixtures with known modes, weights and evidence; no scale is "
        "given. Even seeds are for development, odd seeds are held out. "
        "`benchmarks/quality/many_modes.py` says what the columns mean."
    )
    text = f"# Many modes\n\n{explained}\n\n{provenance(rows)}\n\n{table(rows)}\n"
    options.table.write_text(text)
    print(f"\n{table(rows)}")


if __name__ == "__main__":
    main()
