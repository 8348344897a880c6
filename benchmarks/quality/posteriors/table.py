"""The table for people."""

import platform
from importlib.metadata import version

import numpy as np

from posteriors.catalogue import PROBLEMS
from posteriors.problem import Truth
from posteriors.row import EXACT, Row

_OPEN, _CLOSE = "<!-- {} -->", "<!-- end of {} -->"
_HEAD = (
    "| method | samples | evaluations | error of means | ratio of sd | ELBO - log Z | log Z error "
    "| k-hat | natmix says |\n|---|---|---:|---:|---:|---:|---:|---:|---|"
)


def markdown(rows: list[Row], before: str, name: str, truth: Truth) -> str:
    """The text with the block of one problem replaced, or added at its end; what else is there stays."""
    opening, closing = _OPEN.format(name), _CLOSE.format(name)
    block = "\n".join([opening, *_block([r for r in rows if r.problem == name], name, truth), closing])
    if opening in before and closing in before:
        head, rest = before.split(opening, 1)
        return head + block + rest.split(closing, 1)[1]
    return (before.rstrip("\n") + "\n\n" if before else "") + block + "\n"


def _block(rows: list[Row], name: str, truth: Truth) -> list[str]:
    error = f" ± {truth.log_evidence_se:.3f}" if truth.log_evidence_se else ""
    lines = [
        f"### {PROBLEMS[name]().title} (`{name}`)",
        "",
        f"Truth: {truth.source}. log Z = {truth.log_evidence:.3f}{error}.",
    ]
    for limit in sorted({r.limit for r in rows}):
        lines += _part([r for r in rows if r.limit == limit], limit)
    versions = ", ".join(f"{p} {version(p)}" for p in ("natmix", "jax", "numpyro", "blackjax"))
    return [*lines, "", f"{versions}, Python {platform.python_version()}, float64."]


def _part(rows: list[Row], limit: int) -> list[str]:
    seeds = len({r.seed for r in rows})
    budget = f"natmix limited to {limit:,} evaluations" if limit else "natmix stops by itself"
    kinds = list(dict.fromkeys((r.method, r.draws) for r in rows))
    return [
        "",
        f"{budget}, {seeds} seed{'s' if seeds > 1 else ''}"
        + (" (median, and in brackets the worst):" if seeds > 1 else ":"),
        "",
        _HEAD,
        *(_line([r for r in rows if (r.method, r.draws) == kind]) for kind in kinds),
    ]


def _line(rows: list[Row]) -> str:
    first = rows[0]
    if first.method == EXACT:
        return f"| {EXACT} | 20,000 | | {_far([r.mean_error for r in rows])} | {_ratio(rows)} | | | | |"
    raw = first.draws == "raw"
    evaluations = f"{np.median([r.evaluations for r in rows]):,.0f}" if raw else ""
    share = ""
    if np.isfinite(first.smallest_share):
        share = f", smaller half {np.median([r.smallest_share for r in rows]):.2f}"
    cells = [
        first.method if raw else "",
        first.draws + share,
        evaluations,
        _far([r.mean_error for r in rows]),
        _ratio(rows),
        _far([r.elbo_error for r in rows]) if raw else "",
        "" if raw else _far([r.evidence_error for r in rows]),
        "" if raw else _far([r.k_hat for r in rows], 2),
        _words(rows) if raw else "",
    ]
    return "| " + " | ".join(cells) + " |"


def _far(values: list[float], digits: int = 3) -> str:
    worst = f" ({max(values, key=abs):.{digits}f})" if len(values) > 1 else ""
    return f"{np.median(values):.{digits}f}{worst}"


def _ratio(rows: list[Row]) -> str:
    ratios = [r.sd_ratio for r in rows]
    worst = max(ratios, key=lambda r: abs(np.log(r)))
    return f"{np.median(ratios):.3f}" + (f" ({worst:.3f})" if len(ratios) > 1 else "")


def _words(rows: list[Row]) -> str:
    if not rows[0].verdict:
        return ""
    return ", ".join(f"{r.verdict} ({r.modes} mode{'s' if r.modes > 1 else ''})" for r in rows)
