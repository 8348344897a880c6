"""The seeds of a run as tables."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from natmix.experiments.runs import Run
from natmix.experiments.runs.final import FINAL_NUMBERS

_USUAL = {
    "iterations": "iters",
    "evaluations": "evals",
    "components": "comps",
    "seconds": "time (s)",
    "compile_seconds": "compiling",
}
_STOPPED = {
    "max_seconds": "time",
    "max_run_seconds": "run time",
    "max_evaluations": "evals",
    "max_iterations": "iters",
}
ERRORS = "± is one standard error: for one seed from its samples, for a mean from the spread of the seeds."

_FEW = 3  # seeds that have columns of their own
_MOST_DIGITS = 6


def seeds_table(run: Run) -> Table:
    """One row per seed, then the mean, with its standard error for the -ELBO."""
    table = _empty()
    table.add_column("-ELBO", justify="right", no_wrap=True)
    for title in _USUAL.values():
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("stopped by", overflow="fold")
    for n, seed in run.seeds.items():
        if seed.final is not None:
            values, state = seed.final, _STOPPED.get(seed.final["stopped"], seed.final["stopped"])
        else:
            values = {k: v[-1] for k, v in seed.metrics.items() if len(v)}
            state = "FAILED" if seed.failure else "unfinished"
        elbo = number(values.get("neg_elbo"), values.get("neg_elbo_se"))
        table.add_row(str(n), elbo, *(number(values.get(name)) for name in _USUAL), state)
    finals = [seed.final for seed in run.finished.values() if seed.final is not None]
    if len(finals) > 1:
        elbo = mean_and_error([f["neg_elbo"] for f in finals])
        table.add_section()
        table.add_row("mean", elbo, *(mean([f[name] for f in finals]) for name in _USUAL), "", style="bold")
    return table


def metrics_table(run: Run) -> Table | None:
    """One row per metric; None if there are no metrics.

    The columns are the mean and the seeds. Of many seeds only the lowest and highest number are shown.
    """
    finals = {n: seed.final for n, seed in run.finished.items() if seed.final is not None}
    names = [
        name
        for name in dict.fromkeys(name for final in finals.values() for name in final)
        if name not in FINAL_NUMBERS and not name.endswith("_se")
    ]
    if not names:
        return None
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("metric")
    if len(finals) > 1:
        table.add_column("mean", justify="right", no_wrap=True)
    few = len(finals) <= _FEW
    for title in [f"seed {n}" for n in finals] if few else ["lowest", "highest"]:
        table.add_column(title, justify="right", no_wrap=True)
    for name in names:
        shown = finals.values() if few else _extremes(name, finals.values())
        cells = [number(final.get(name), final.get(f"{name}_se")) for final in shown]
        average = [mean_and_error([f.get(name) for f in finals.values()])] if len(finals) > 1 else []
        table.add_row(name, *average, *cells)
    return table


def failures(run: Run) -> list[str]:
    """A line for each seed that failed."""
    return [f"seed {n} failed: {seed.failure['error']}" for n, seed in run.seeds.items() if seed.failure]


def mean_and_error(values: Sequence[Any]) -> str:
    """Mean ± standard error of the known values."""
    known = _known(values)
    n = len(known)
    if n == 0:
        return ""
    if n == 1:  # without an error to tell which digits count
        return f"{known[0]:.2f}" if abs(known[0]) >= 1 else f"{known[0]:.3g}"
    return number(float(known.mean()), float(known.std(ddof=1)) / math.sqrt(n))


def mean(values: Sequence[Any]) -> str:
    """The mean of the known values."""
    known = _known(values)
    return number(float(known.mean())) if len(known) else ""


def number(value: Any, error: float | None = None) -> str:
    """A number with as many digits as make sense; large ones in thousands or millions."""
    if value is None:
        return ""
    value = float(value)
    if error is None or not math.isfinite(error) or not math.isfinite(value):
        return _short(value)
    if error == 0:
        return f"{value:.6g} ± 0"
    digits = max(0, 1 - math.floor(math.log10(error)))
    if digits > _MOST_DIGITS:
        return f"{value:.3g} ± {error:.2g}" if abs(value) < 1 else f"{value:.{_MOST_DIGITS}f} ± {error:.2g}"
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def _known(values: Sequence[Any]) -> np.ndarray:
    return np.array([v for v in values if _is_known(v)], float)


def _is_known(value: Any) -> bool:
    return isinstance(value, (int, float)) and not math.isnan(value)


def _extremes(name: str, finals: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The final numbers of the seeds with the lowest and the highest value of a metric."""
    known = sorted((final for final in finals if _is_known(final.get(name))), key=lambda final: final[name])
    return [known[0], known[-1]] if known else [{}, {}]


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size and math.isfinite(value):
            return f"{value / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{value:.0f}" if value == int(value if math.isfinite(value) else 0) else f"{value:.3g}"


def _empty() -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("seed", justify="right", no_wrap=True)
    return table
