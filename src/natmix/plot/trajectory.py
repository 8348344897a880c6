"""The course of a fit: the ELBO and the number of components."""

from typing import TYPE_CHECKING

import numpy as np

from natmix.estimate import Estimate
from natmix.plot.axes import AxesTuple
from natmix.plot.style import COMPONENT, DENSITY, DPI, KNOWN, grid_colour, ink, points, pyplot, tidy
from natmix.result.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_X = {
    "iterations": "iteration",
    "evaluations": "evaluations of the target",
    "seconds": "seconds",
}


def plot_trajectory(
    result: Result,
    *,
    x: str = "iterations",
    log_evidence: float | Estimate | None = None,
    axes: "tuple[Axes, Axes] | None" = None,
) -> "tuple[Axes, Axes]":
    """The ELBO above, the number of components below.

    Args:
        result: the result of `natmix.fit`.
        x: what to plot over: "iterations", "evaluations" or "seconds".
        log_evidence: the log normaliser of the target, if known: the ELBO cannot exceed it.
        axes: where to draw, two axes; a new figure if left out.

    Returns:
        The axes of the ELBO and those of the components.
    """
    if x not in _X:
        raise ValueError(f"x must be one of {', '.join(_X)}, got {x!r}.")
    if not result.trajectory:
        raise ValueError("The fit ended before its first iteration: there is nothing to plot.")
    log_evidence = None if log_evidence is None else _number(log_evidence)
    above, below = axes if axes is not None else _new_axes()
    over = _coordinate(result, x)
    _draw_elbo(result, over, log_evidence, above)
    below.step(over, result.trajectory["components"], where="post", color=COMPONENT, linewidth=1.4)
    below.set(xlabel=_X[x], ylabel="components", ylim=(0, None), xlim=(0, over[-1]))
    below.locator_params(axis="y", integer=True)
    if x == "evaluations":
        below.xaxis.set_major_formatter(short_number)
    for ax in (above, below):
        ax.grid(axis="y", color=grid_colour(), linewidth=0.7)
        ax.set_axisbelow(True)
        tidy(ax)
    return AxesTuple((above, below))


def _number(value: float | Estimate) -> float:
    """The number, or the value of an estimate."""
    try:
        return float(value.value if isinstance(value, Estimate) else value)
    except (TypeError, ValueError):
        raise ValueError(f"log_evidence must be a number, got {value!r}.") from None


def _new_axes() -> "tuple[Axes, Axes]":
    _, (above, below) = pyplot().subplots(2, 1, sharex=True, figsize=(5, 4.6), dpi=DPI, layout="constrained")
    return above, below


def _coordinate(result: Result, x: str) -> np.ndarray:
    if x == "iterations":
        return np.arange(1, len(result.trajectory["elbo"]) + 1)
    return result.trajectory["total_evaluations" if x == "evaluations" else "seconds"]


def _draw_elbo(result: Result, over: np.ndarray, log_evidence: float | None, ax: "Axes") -> None:
    elbo = np.asarray(result.trajectory["elbo"], dtype=float)
    smooth = running_mean(elbo, max(1, len(elbo) // 40))
    ax.plot(over, elbo, color=DENSITY, alpha=0.25, linewidth=0.7)
    ax.plot(over, smooth, color=DENSITY, linewidth=1.6, label="ELBO")
    if log_evidence is not None:
        ax.axhline(log_evidence, color=KNOWN, linewidth=1, linestyle="--", label="log evidence")
        ax.legend(loc="lower right", frameon=False, fontsize=points(8), labelcolor=ink())
    ax.ticklabel_format(axis="y", useOffset=False)
    ax.set(ylabel="ELBO", ylim=_elbo_limits(smooth, log_evidence), xlim=(0, over[-1]))


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """The running mean of the last ``window`` values (fewer at the start) that are finite."""
    finite = np.isfinite(values)
    total = np.cumsum(np.where(finite, values, 0.0))
    count = np.cumsum(finite)
    total[window:], count[window:] = total[window:] - total[:-window], count[window:] - count[:-window]
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _elbo_limits(smooth: np.ndarray, log_evidence: float | None) -> tuple[float, float]:
    """Limits that show all but the steep first tenth of the rise."""
    known = smooth[np.isfinite(smooth)]
    if known.size == 0:
        return (-1.0, 1.0)
    top = known.max() if log_evidence is None else max(known.max(), log_evidence)
    bottom = known[known.size // 10 :].min()
    margin = 0.12 * max(top - bottom, 1e-3)
    return (bottom - margin, top + margin)


def short_number(value: float, _: float = 0) -> str:
    """1.5M for 1,500,000."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
