"""The seeds of a run as a table."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table

from natmix.runs import Run

_USUAL = ("iterations", "evaluations", "components", "seconds", "compile_seconds")
_TITLES = {"seconds": "time [s]", "compile_seconds": "compiling [s]"}


def seeds_table(run: Run, metrics: Sequence[str] = ()) -> Table:
    """One row per seed, then the mean with its standard error."""
    table = Table(box=None, header_style="bold", padding=(0, 1))
    table.add_column("seed", justify="right")
    table.add_column("-ELBO", justify="right")
    for name in (*_USUAL, *metrics):
        table.add_column(_TITLES.get(name, name), justify="right")
    table.add_column("stopped by")
    for n, seed in run.seeds.items():
        if seed.final is not None:
            f = seed.final
            cells = [number(f.get(name)) for name in (*_USUAL, *metrics)]
            table.add_row(str(n), number(f["neg_elbo"], f["neg_elbo_se"]), *cells, str(f["stopped"]))
        else:
            last = {k: v[-1] for k, v in seed.metrics.items() if len(v)}
            cells = [number(last.get(name)) for name in _USUAL] + [""] * len(metrics)
            state = f"failed: {seed.failure['error']}" if seed.failure else "unfinished"
            table.add_row(str(n), number(last.get("neg_elbo"), last.get("neg_elbo_se")), *cells, state)
    finals = [seed.final for seed in run.finished.values() if seed.final is not None]
    if len(finals) > 1:
        cells = [mean_and_error([f.get(name) for f in finals]) for name in ("neg_elbo", *_USUAL, *metrics)]
        table.add_section()
        table.add_row("mean", *cells, "", style="bold")
    return table


def mean_and_error(values: Sequence[Any]) -> str:
    """Mean ± standard error of what is known."""
    known = np.array([v for v in values if isinstance(v, (int, float))], float)
    n = len(known)
    if n == 0:
        return ""
    mean = float(known.mean())
    return number(mean, float(known.std(ddof=1)) / math.sqrt(n)) if n > 1 else number(mean)


def number(value: Any, error: float | None = None) -> str:
    """A number with as many digits as make sense."""
    if value is None:
        return ""
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        return str(value)
    if isinstance(value, (int, np.integer)) and error is None:
        return f"{value:,}"
    value = float(value)
    if error is None or not math.isfinite(error):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if error == 0:
        return f"{value:,.6g} ± 0"
    digits = min(6, max(0, 1 - math.floor(math.log10(error))))
    return f"{value:,.{digits}f} ± {error:,.{digits}f}"
