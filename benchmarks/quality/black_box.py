"""Targets without gradients: default fits beside nautilus and PyVBMC, by evaluations.

Run: python benchmarks/quality/black_box.py [--seeds 0:40] [--methods natmix nautilus pyvbmc] [--jobs 1]

The packages nautilus-sampler and pyvbmc have to be installed. `black_box_targets.py` says how targets are
drawn. Each method is told the same box: natmix as the centre and the standard deviation of a uniform density
on it (init_mean, init_scale), nautilus as its uniform prior, PyVBMC as bounds, with the middle half of each
side as plausible. 10,000 draws are right if every mean is within 0.1 standard deviations, every standard
deviation within 10%, and the share of every mode within 0.05. natmix (default settings) and nautilus (n_live
500) are also judged during their runs, whenever their evaluations have grown by an eighth: "right after" is
the first count at which the draws are right. All three run to their own ends. The seconds of the CSV file
include compilation; rows may come from several machines.
"""

import argparse
import logging
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from black_box_targets import DIMENSIONS, HALF_SIDE, BlackBox, Judge, draw_target
from case_table import Row, add_arguments, markdown, provenance, read_rows, run_cases, seed_range

DRAWS = 10_000
LIVE = 500
FIRST, GROWTH = 1000, 1.125
KEY = ("method", "seed")


def work(case: Row) -> Row:
    """One row: a method on a target."""
    target = draw_target(case["seed"])
    judge = Judge(target)
    before = time.perf_counter()
    found = {"natmix": natmix_fit, "nautilus": nautilus_run, "pyvbmc": pyvbmc_run}[case["method"]](
        target, judge, case["seed"]
    )
    described = {"D": target.dim, "kind": target.kind, "modes": len(target.weights)}
    return {**described, **found, "seconds": round(time.perf_counter() - before, 1)}


def natmix_fit(target: BlackBox, judge: Judge, seed: int) -> Row:
    """A default fit."""
    import natmix

    right_after: list[int] = []
    next_look = FIRST

    def look(snapshot: natmix.FitSnapshot) -> None:
        nonlocal next_look
        if right_after or target.evaluations < next_look:
            return
        count = target.evaluations
        next_look = int(count * GROWTH)
        if judge(np.asarray(snapshot.mixture.sample(DRAWS, key=1), float)).right:
            right_after.append(count)

    result = natmix.fit(
        natmix.HostTarget(target, target.dim, batched=True),
        init_mean=np.zeros(target.dim),
        init_scale=2 * HALF_SIDE / np.sqrt(12),
        seed=seed,
        progress=False,
        callback=look,
    )
    evaluations = target.evaluations
    diagnosis = result.diagnosis
    errors = judge(np.asarray(result.mixture.sample(DRAWS, key=1), float))
    log_z = diagnosis.log_evidence if diagnosis else None
    return {
        "evaluations": evaluations,
        "right_after": right_after[0] if right_after else evaluations if errors.right else "",
        "right": int(errors.right),
        "verdict": diagnosis.verdict if diagnosis else "none",
        "log_z": "" if log_z is None else log_z.value,
        **vars(errors),
    }


def nautilus_run(target: BlackBox, judge: Judge, seed: int) -> Row:
    """nautilus with its defaults but for the number of live points."""
    from nautilus import Sampler

    def prior(u: np.ndarray) -> np.ndarray:
        return (2 * u - 1) * HALF_SIDE

    sampler = Sampler(
        prior, target, n_dim=target.dim, n_live=LIVE, vectorized=True, pass_dict=False, seed=seed
    )
    rng = np.random.default_rng(seed)
    right_after: int | str = ""
    limit = FIRST
    while True:
        ended = sampler.run(n_like_max=limit, verbose=False)
        points, log_w, _ = sampler.posterior()
        weights = np.exp(log_w - np.max(log_w))
        errors = judge(points[rng.choice(len(points), DRAWS, p=weights / weights.sum())])
        if errors.right and not right_after:
            right_after = target.evaluations
        if ended:
            break
        limit = int(max(limit, target.evaluations) * GROWTH)
    log_z = sampler.log_z + target.dim * np.log(2 * HALF_SIDE)
    return {
        "evaluations": target.evaluations,
        "right_after": right_after,
        "right": int(errors.right),
        "verdict": "",
        "log_z": float(log_z),
        **vars(errors),
    }


def pyvbmc_run(target: BlackBox, judge: Judge, seed: int) -> Row:
    """PyVBMC with its defaults."""
    from pyvbmc import VBMC

    logging.disable(logging.INFO)
    np.random.seed(seed)  # noqa: NPY002 - PyVBMC draws from the global generator
    side = np.full((1, target.dim), HALF_SIDE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = np.random.default_rng(seed).uniform(-HALF_SIDE / 2, HALF_SIDE / 2, (1, target.dim))
        vbmc = VBMC(
            lambda x: float(target(np.atleast_2d(x))[0]),
            start,
            -side,
            side,
            -side / 2,
            side / 2,
            options={"display": "off"},
        )
        posterior, found = vbmc.optimize()
    draws = posterior.sample(DRAWS)[0]
    errors = judge(draws)
    return {
        "evaluations": target.evaluations,
        "right_after": target.evaluations if errors.right else "",
        "right": int(errors.right),
        "verdict": "success" if found["success_flag"] else "no success",
        "log_z": float(found["elbo"]),
        **vars(errors),
    }


def table(rows: Sequence[Row]) -> str:
    """One line for each method and dimension, and one for each method."""
    methods = [m for m in ("natmix", "nautilus", "pyvbmc") if any(row["method"] == m for row in rows)]
    lines = []
    for method in methods:
        own = [row for row in rows if row["method"] == method and not row["error"]]
        for dim in DIMENSIONS:
            here = [row for row in own if int(row["D"]) == dim]
            lines += [_line(f"{method}, {dim}-d", here)] if here else []
        lines.append(_line(f"**{method}**", own))
    header = (
        "method",
        "targets",
        "right at its end",
        "right and trusted",
        "wrong and trusted",
        "right after, median",
        "at its end, median",
        "log Z within 0.1",
    )
    return markdown(header, lines) + "\n\n" + _ratio(rows)


def _line(name: str, rows: Sequence[Row]) -> list[Any]:
    right = [row for row in rows if row["right"] == "1"]
    trusted = [row for row in rows if row["verdict"] in ("trust", "success")]
    judged = bool(rows) and rows[0]["verdict"] != ""
    reached = [float(row["right_after"]) if row["right_after"] else np.inf for row in rows]
    log_z = [abs(float(row["log_z"])) <= 0.1 for row in rows if row["log_z"]]
    return [
        name,
        len(rows),
        len(right),
        sum(row["right"] == "1" for row in trusted) if judged else "-",
        sum(row["right"] != "1" for row in trusted) if judged else "-",
        _count(np.median(reached)),
        _count(np.median([float(row["evaluations"]) for row in rows])),
        sum(log_z),
    ]


def _count(number: Any) -> str:
    return "not reached" if not np.isfinite(number) else f"{number:,.0f}"


def _ratio(rows: Sequence[Row]) -> str:
    known = {(row["method"], row["seed"]): row for row in rows if not row["error"]}
    both = [seed for method, seed in known if method == "natmix" and ("nautilus", seed) in known]
    if not both:
        return ""

    def ratios(column: str) -> np.ndarray:
        pairs = [[known[m, seed] for m in ("natmix", "nautilus")] for seed in both]
        counts = np.array([[float(row[column]) if row[column] else np.inf for row in pair] for pair in pairs])
        with np.errstate(invalid="ignore"):  # neither was right
            return counts[:, 0] / counts[:, 1]

    first, ends = ratios("right_after"), ratios("evaluations")
    return (
        f"natmix over nautilus, {len(both)} targets: evaluations until right, median "
        f"{np.nanmedian(first):.2f}, at most a third on {int(np.sum(first <= 1 / 3))}; "
        f"evaluations at their own ends, median "
        f"{np.median(ends):.2f}, at most a third on {int(np.sum(ends <= 1 / 3))}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser, None, "black_box")
    parser.add_argument("--methods", nargs="+", default=["natmix", "nautilus", "pyvbmc"])
    options = parser.parse_args()
    seeds = seed_range("0:40") if options.seeds is None else options.seeds
    if not options.only_table:
        cases = [{"method": method, "seed": seed} for seed in seeds for method in options.methods]
        run_cases(cases, work, options.csv, options.jobs, options.again, options.float64)
    rows = list(read_rows(options.csv, KEY).values())
    about = __doc__.split("\n\n")[2]
    title = "# Without gradients, beside nautilus and PyVBMC"
    options.table.write_text("\n\n".join([title, provenance(rows), about.rstrip(), table(rows)]) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
