"""A model's variables in a summary: mean, standard deviation and quantiles, the latent ones first."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from natmix.estimate import counted

_MAX_ROWS = 20
_MAX_ENTRIES = (8, 4, 2, 1)
"""Entries shown of an array: the largest of these numbers with which all variables fit."""


class Variable(NamedTuple):
    """Samples of one variable, its entries in columns."""

    name: str
    labels: list[str]
    samples: Float[np.ndarray, "N M"]


TITLES = ("variable", "mean", "sd", "5%", "95%")


def table(variables: list[Variable]) -> list[str]:
    """The table as lines; it counts what it does not show."""
    rows = table_rows(variables)
    wide = max([18, *(len(row[0]) for row in rows if len(row) > 1)])
    lines = [f"  {'variable':{wide}}       mean        sd        5%       95%"]
    for label, *numbers in rows:
        if numbers:
            mean, sd, low, high = numbers
            lines.append(f"  {label:{wide}} {mean:>10} {sd:>9} {low:>9} {high:>9}")
        else:
            lines.append(f"  {label}")
    return lines


def table_rows(variables: list[Variable]) -> list[tuple[str, ...]]:
    """A label and four numbers for each entry that is shown, or words alone where some are not."""
    most = next((m for m in _MAX_ENTRIES if _rows(variables, m) <= _MAX_ROWS), 1)
    shown: list[Variable] = []
    hidden = list(variables)
    while hidden and _rows([*shown, hidden[0]], most) <= _MAX_ROWS:
        shown.append(hidden.pop(0))
    rows: list[tuple[str, ...]] = []
    for variable in shown:
        entries = zip(variable.labels, variable.samples.T, strict=True)
        rows += [_row(label, column) for label, column in list(entries)[: _shown(variable, most)]]
        left = len(variable.labels) - _shown(variable, most)
        if left:
            rows.append((f"… and {left} more entries of {variable.name}",))
    if hidden:
        rows.append((f"… and {counted(len(hidden), 'more variable')}: result.to_pandas() has them all",))
    return rows


def _shown(variable: Variable, most: int) -> int:
    """How many entries to show: a line that counts one hidden entry would be no shorter than that entry."""
    entries = len(variable.labels)
    return entries if entries <= most + 1 else most


def _rows(variables: list[Variable], most: int) -> int:
    return sum(_shown(v, most) + (len(v.labels) > _shown(v, most)) for v in variables)


def _row(label: str, column: Float[np.ndarray, " N"]) -> tuple[str, ...]:
    sd = float(column.std())
    mean, low, high = (shown_number(v, sd) for v in (column.mean(), *np.quantile(column, [0.05, 0.95])))
    return label, mean, f"{sd:.3g}", low, high


def shown_number(value: float, sd: float) -> str:
    """Four significant digits, more if the standard deviation is small."""
    shown = 4
    if sd > 0 and np.isfinite(value / sd):
        shown = int(np.clip(np.ceil(np.log10(max(abs(value) / sd, 1))) + 2, 4, 12))
    return f"{value:.{shown}g}"
