"""Numbers along the axes of a corner plot, as many as there is room for."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from natmix.plot.style import points

_LETTER, _LINE = 0.062, 0.11
"""Inches: width of a figure and height of a line, of the size that ticks have."""
_SPACE = 0.05
_MOST = 3
_FINEST = 12


class Ticks(NamedTuple):
    """Where they are, and what is written there."""

    places: Float[np.ndarray, " T"]
    labels: list[str]


def ticks(low: float, high: float, panel: float, gap: float, turned: bool) -> Ticks:
    """For an axis from ``low`` to ``high`` in a panel of so many inches, ``gap`` inches from the next.

    A label needs its length along the axis, or, ``turned`` by a right angle, the height of one line.
    """
    from matplotlib.ticker import MaxNLocator

    inches = panel / (high - low)
    for most in (_MOST, 2, 1, 4, 6, _FINEST):
        places = np.asarray(MaxNLocator(nbins=most).tick_values(low, high))
        labels = _labels(places)
        wide = (_LINE if turned else _LETTER * max(map(len, labels)) + 0.02) * points(7) / 7
        margin = max(_SPACE / 2, (wide + _SPACE - gap) / 2) / inches
        inside = (places >= low + margin) & (places <= high - margin)
        spaced = np.all(np.diff(places[inside]) * inches >= wide + _SPACE)
        if inside.any() and spaced and (inside.sum() > 1 or most not in (_MOST, 2)):
            break
    else:
        inside = np.arange(len(places)) == np.argmin(np.abs(places - (low + high) / 2))
    return Ticks(places[inside], [label for label, kept in zip(labels, inside, strict=True) if kept])


def _labels(values: Float[np.ndarray, " T"]) -> list[str]:
    """Labels with just enough decimals to distinguish the values."""
    step = float(np.min(np.diff(values))) if len(values) > 1 else float(np.abs(values).max()) or 1.0
    size = float(np.abs(values).max())
    if size < 1e6 and step >= 1e-4:
        decimals = next((d for d in range(9) if np.allclose(np.round(values, d), values, 0, step / 50)), 9)
        texts = [f"{v:.{decimals}f}" for v in values + 0.0]
    else:
        texts = [_scientific(float(v), step) for v in values]
    return ["0" if float(t) == 0 else t.replace("-", "−") for t in texts]


def _scientific(value: float, step: float) -> str:
    for digits in range(15):
        text = f"{value:.{digits}e}"
        if abs(float(text) - value) <= step / 50:
            break
    mantissa, exponent = text.split("e")
    return f"{mantissa}e{int(exponent)}"
