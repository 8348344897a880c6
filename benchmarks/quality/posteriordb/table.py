"""The table for people."""

import platform
from collections.abc import Callable
from importlib import metadata

import numpy as np

from posteriordb.row import PURPOSES, Row

_HEAD = (
    "| posterior | D | natmix: evaluations | CPU s | wall s | m | sd | q | verdict "
    "| NUTS: gradients | CPU s | wall s | m | sd | q |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|"
)

_EXPLAINED = """\
natmix with its defaults through `StanModel`, and Stan's NUTS by PyStan (4 chains of 1,000 + 1,000, two at a
time), against the reference draws of [posteriordb](https://github.com/stan-dev/posteriordb). {seeds}.
m: worst error of a mean of `result.sample(10000)` in standard deviations of the reference (10,000 draws
against 10,000: 0.03 is noise); sd: worst ratio of standard deviations; q: worst error of a 5% or 95% quantile
in standard deviations. Gradients of NUTS are its leapfrog steps, with those of the warm-up. CPU s and wall s
are those of the fit with its verdict, in a new process, without Stan's compilation; of NUTS CPU s of the
chains' processes, and wall s by what Stan says each chain took. \\*: one of the half of the posteriors that
settings may be chosen on. Logarithms are compared for one_comp_mm_elim_abs. The second table says what
natmix's evaluations were spent on; refuted: samples that did not confirm the accuracy.
"""


def markdown(rows: list[Row], order: list[str], development: list[str], command: str, cores: int) -> str:
    """The page."""
    limits = sorted({row.limit for row in rows if row.method == "natmix"}) or [0]
    seeds = len({row.seed for row in rows})
    how = f"Medians of {seeds} seeds, in brackets the worst" if seeds > 1 else "One seed"
    lines = ["# natmix and NUTS on posteriordb", "", _EXPLAINED.format(seeds=how)]
    for limit in limits:
        part = [row for row in rows if row.method == "NUTS" or row.limit == limit]
        if limit:
            lines += [f"## natmix limited to {limit:,} evaluations", ""]
        lines += _part(part, order, development)
    dates = sorted({row.date for row in rows})
    commits = ", ".join(sorted({row.commit for row in rows}))
    packages = ", ".join(f"{p} {_version(p)}" for p in ("jax", "httpstan", "pystan"))
    lines += [
        f"Command: `{command}`. Commits: {commits}; {dates[0]} to {dates[-1]}; {cores} CPU cores; "
        f"{packages}, Python {platform.python_version()}.",
        "",
    ]
    return "\n".join(lines)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _part(rows: list[Row], order: list[str], development: list[str]) -> list[str]:
    names = [name for name in order if any(row.posterior == name for row in rows)]
    lines = [_HEAD]
    for name in names:
        ours, theirs = _of(rows, name, "natmix"), _of(rows, name, "NUTS")
        star = "\\*" if name in development else ""
        dim = str(ours[0].dim) if ours else ""
        verdicts = ", ".join(dict.fromkeys(row.verdict for row in _of(rows, name, "natmix", failed=True)))
        cells = [f"{name}{star}", dim, *_numbers(ours), verdicts, *_numbers(theirs)]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, "", *_summary(rows, names, development), "", *_by_purpose(rows, names), ""]


def _by_purpose(rows: list[Row], names: list[str]) -> list[str]:
    """What natmix's evaluations are spent on, medians over the seeds."""
    lines = ["| posterior | initialise | train | final ELBO | searches of the verdict | refuted |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for name in names:
        if ours := _of(rows, name, "natmix"):
            cells = [f"{_median(ours, purpose):,.0f}" for purpose in PURPOSES]
            lines.append("| " + " | ".join([name, *cells]) + " |")
    return lines


def _of(rows: list[Row], name: str, method: str, failed: bool = False) -> list[Row]:
    found = [row for row in rows if row.posterior == name and row.method == method]
    return found if failed else [row for row in found if not row.failed]


def _numbers(rows: list[Row]) -> list[str]:
    if not rows:
        return [""] * 6
    return [
        _cell([row.evaluations for row in rows], "{:,.0f}"),
        _cell([row.cpu_seconds for row in rows], "{:.1f}"),
        _cell([row.wall_seconds for row in rows], "{:.1f}"),
        _cell([row.mean for row in rows], "{:.3f}"),
        _cell([row.sd_ratio for row in rows], "{:.3f}", lambda ratio: abs(np.log(ratio))),
        _cell([row.quantile for row in rows], "{:.3f}"),
    ]


def _cell(values: list[float], text: str, badness: Callable[[float], float] = abs) -> str:
    middle = text.format(np.median(values))
    return f"{middle} ({text.format(max(values, key=badness))})" if len(values) > 1 else middle


def _summary(rows: list[Row], names: list[str], development: list[str]) -> list[str]:
    """What is asked for, counted; only posteriors with both methods are compared."""
    lines = []
    halves = (
        ("all", names),
        ("development", development),
        ("the others", [n for n in names if n not in development]),
    )
    for title, half in halves:
        ours = {name: found for name in names if name in half and (found := _of(rows, name, "natmix"))}
        theirs = {name: found for name in ours if (found := _of(rows, name, "NUTS"))}
        if not ours:
            continue
        fewer = sum(_median(ours[n], "evaluations") < _median(theirs[n], "evaluations") for n in theirs)
        quicker = sum(_median(ours[n], "wall_seconds") < _median(theirs[n], "wall_seconds") for n in theirs)
        right = sum(all(row.errors.right for row in found) for found in ours.values())
        nuts_right = sum(all(row.errors.right for row in found) for found in theirs.values())
        middle = np.median([_median(found, "evaluations") for found in ours.values()])
        lines.append(
            f"- {title} ({len(ours)} posteriors): fewer evaluations than NUTS' gradients on {fewer} of "
            f"{len(theirs)}, median {middle:,.0f}; m <= 0.05, sd within 0.95 to 1.05 and q <= 0.1 "
            f"for all seeds on {right} of {len(ours)} (NUTS {nuts_right} of {len(theirs)}); "
            f"wall seconds below NUTS' on {quicker} of {len(theirs)}."
        )
    return lines


def _median(rows: list[Row], name: str) -> float:
    return float(np.median([getattr(row, name) for row in rows]))
