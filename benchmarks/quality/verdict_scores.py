"""Are the verdicts of fits right? Scored on many (target, budget, start) cases with known truth.

Run: python benchmarks/quality/verdict_scores.py [--seeds 0:60] [--kinds funnel banana] [--jobs 1]

Every kind of case (`verdict_kinds.py`) has one case for every seed. A fit is wrong if KL(q || p) is above 0.1
or a mode of at least 1% is missing (the mixture gives it less than a quarter of its mass), or if the target
cannot be normalised. It is sound if KL(q || p) is below 0.05 and no mode is missing. KL is estimated from
10,000 samples of the mixture with the exact log evidence. Where the target has bounded support, q is taken
inside of it, and minus the log of its share there is added. With a wrong gradient no fit counts as sound.

A sound fit is refused if its verdict is "proposal" or "distrust". Other verdicts than these and "trust" are
counted apart; so are fits that raised an error. Even seeds are for development, odd seeds are held out.
"""

import argparse
import time
from collections.abc import Sequence

import numpy as np
from case_table import (
    Row,
    add_arguments,
    half,
    markdown,
    provenance,
    read_rows,
    run_cases,
    share_interval,
)
from known_targets import Truth
from random_mixtures import KnownMixture
from verdict_kinds import KINDS, draw_case

import natmix
from natmix import Mixture, TargetError

SAMPLES = 10_000
WRONG_KL, SOUND_KL = 0.1, 0.05
MODE_WEIGHT, MISSING_SHARE = 0.01, 0.25
REFUSING = ("proposal", "distrust")
MAX_SECONDS = 30.0


def score_case(case: Row) -> Row:
    """Fit it and compare the verdict with the truth."""
    drawn = draw_case(case["kind"], case["seed"])
    row = {
        "dim": drawn.truth.dim,
        "detail": drawn.detail,
        "budget": drawn.options.get("max_evaluations") or "",
        "start": drawn.options.get("start", ""),
    }
    before = time.perf_counter()
    try:
        result = natmix.fit(
            drawn.target, seed=case["seed"], max_seconds=MAX_SECONDS, progress=False, **drawn.options
        )
    except (TargetError, ValueError) as error:
        return {**row, "verdict": "raised", "headline": f"{error}", "outcome": "none"}
    diagnosis = result.diagnosis
    seconds = time.perf_counter() - before
    kl, kl_reverse, missing = errors(drawn.truth, result.mixture, case["seed"])
    log_z = diagnosis.log_evidence if diagnosis else natmix.Estimate(np.nan, np.nan)
    return {
        **row,
        "verdict": diagnosis.verdict if diagnosis else "none",
        "outcome": outcome(drawn.truth, kl, missing, case["kind"] == "wrong gradient"),
        "kl": kl,
        "kl_p_q": kl_reverse,
        "missing": missing,
        "log_z_error": log_z.value - drawn.truth.log_z,
        "log_z_se": log_z.standard_error,
        "k_hat": diagnosis.k_hat if diagnosis else np.nan,
        "effective": diagnosis.effective_samples if diagnosis else np.nan,
        "samples": diagnosis.samples if diagnosis else 0,
        "evaluations": result.counts.evaluations,
        "components": result.mixture.num_components,
        "stopped": result.stopped,
        "seconds": round(seconds, 2),
        "headline": str(diagnosis).splitlines()[0] if diagnosis else "",
    }


def errors(truth: Truth, q: Mixture, seed: int) -> tuple[float, float, int]:
    """KL(q || p), KL(p || q) and how many modes of at least 1% are missing."""
    if not truth.proper:
        return np.nan, np.nan, 0
    x = np.asarray(q.sample(SAMPLES, key=seed + 10_000), dtype=float)
    log_p = truth.log_prob(x)
    inside = np.isfinite(log_p)
    if not inside.any():
        return np.inf, np.inf, 0
    log_ratio = (np.asarray(q.log_prob(x), dtype=float) - log_p)[inside]
    kl = float(log_ratio.mean() - 2 * np.log(inside.mean()))
    exact = truth.sample(np.random.default_rng(seed), SAMPLES)
    kl_reverse = float(np.mean(truth.log_prob(exact) - np.asarray(q.log_prob(exact), dtype=float)))
    if not isinstance(truth.density, KnownMixture):
        return kl, kl_reverse, 0
    known = truth.density
    own, true = (np.bincount(known.mode_of(y), minlength=len(known.weights)) for y in (x, exact))
    missing = (own < MISSING_SHARE * true) & (known.weights >= MODE_WEIGHT)
    return kl, kl_reverse, int(missing.sum())


def outcome(truth: Truth, kl: float, missing: int, wrong_gradient: bool) -> str:
    """Whether the fit is wrong, sound, or between."""
    if not truth.proper or missing or not kl <= WRONG_KL:
        return "wrong"
    return "sound" if kl < SOUND_KL and not wrong_gradient else "between"


def table(rows: Sequence[Row]) -> str:
    """By kind, then in all."""
    rows = [row for row in rows if not row["error"]]
    lines = [_line(kind, here) for kind in KINDS if (here := [r for r in rows if r["kind"] == kind])]
    for part in ("development", "held out"):
        lines.append(_line(f"**{part}**", [r for r in rows if half(int(r["seed"])) == part]))
    lines.append(_line("**all**", rows))
    header = (
        "kind",
        "cases",
        "wrong",
        "sound",
        "trusted",
        "wrong, of the trusted",
        "refused, of the sound",
        "other verdict, of the sound",
        "raised",
        "log Z within 2 errors, of the trusted",
        "seconds, median",
    )
    return f"{_scores(rows)}\n\n{markdown(header, lines)}"


def _scores(rows: Sequence[Row]) -> str:
    trusted, sound = _trusted(rows), _sound(rows)
    scores = (
        ("trusted fits that are wrong", sum(r["outcome"] == "wrong" for r in trusted), len(trusted), "1%"),
        ("sound fits that are refused", sum(r["verdict"] in REFUSING for r in sound), len(sound), "5%"),
        ("trusted fits with log Z within 2 errors", _covered(trusted), len(trusted), "92 to 98%"),
    )
    lines = []
    for name, hits, n, asked in scores:
        low, high = share_interval(hits, n) if n else (0.0, 1.0)
        lines.append((name, f"{hits} of {n}", f"{hits / max(n, 1):.1%}", f"{low:.1%} to {high:.1%}", asked))
    return markdown(("score", "cases", "share", "95% interval", "asked"), lines)


def _trusted(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["verdict"] == "trust"]


def _sound(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["outcome"] == "sound"]


def _covered(rows: Sequence[Row]) -> int:
    return sum(abs(float(row["log_z_error"])) <= 2 * float(row["log_z_se"]) for row in rows)


def _line(name: str, rows: Sequence[Row]) -> list[str]:
    trusted, sound = _trusted(rows), _sound(rows)
    seconds = [float(row["seconds"]) for row in rows if row["seconds"]]
    refused = sum(row["verdict"] in REFUSING for row in sound)
    return [
        name,
        len(rows),
        sum(row["outcome"] == "wrong" for row in rows),
        len(sound),
        len(trusted),
        f"{sum(row['outcome'] == 'wrong' for row in trusted)} of {len(trusted)}",
        f"{refused} of {len(sound)}",
        sum(row["verdict"] not in (*REFUSING, "trust") for row in sound),
        sum(row["verdict"] == "raised" for row in rows),
        f"{_covered(trusted)} of {len(trusted)}",
        f"{np.median(seconds or [np.nan]):.1f}",
    ]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    add_arguments(parser, "0:60", "verdict_scores")
    options = parser.parse_args()
    cases = [{"kind": kind, "seed": seed} for kind in options.kinds for seed in options.seeds]
    if not options.only_table:
        run_cases(cases, score_case, options.csv, options.jobs, options.again, options.float64, options.cores)
    rows = list(read_rows(options.csv, ("kind", "seed")).values())
    explained = (
        "Verdicts of default diagnoses against the known truth. Wrong: KL(q || p) above 0.1, a mode of at "
        "least 1% missing, or an improper target. Sound: KL below 0.05 and no mode missing. "
        "`benchmarks/quality/verdict_scores.py` says how it is measured."
    )
    text = f"# Scores of the verdicts\n\n{explained}\n\n{provenance(rows)}\n\n{table(rows)}\n"
    options.table.write_text(text)
    print(f"\n{table(rows)}")


if __name__ == "__main__":
    main()
