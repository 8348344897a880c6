"""Climb a log density from a point by L-BFGS, and keep the way."""

import contextlib
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from natmix.initialization.evaluator import SpentError, Values

_MOST_STEPS = 300
_WALL = 1e30
"""Stands for a log density of -inf, NaN or +inf, which a line search has to turn away from."""


class Way(NamedTuple):
    """The points a climb has passed, the highest last, with log densities and gradients.

    ``ended`` is whether it came to its end, before the evaluations did.
    """

    x: Float[np.ndarray, "S D"]
    gradient: Float[np.ndarray, "S D"]
    value: Float[np.ndarray, " S"]
    ended: bool = True


def climb(values: Values, start: Float[np.ndarray, " D"]) -> Way:
    """From ``start`` upwards; one point if there is no way up."""
    from scipy.optimize import minimize  # a dependency of JAX

    seen: list[tuple[np.ndarray, float, np.ndarray]] = []
    way: list[int] = []

    def downhill(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = values.with_gradient(x[None])
        v, g = float(value[0]), gradient[0]
        seen.append((x.copy(), v, g))
        if not (np.isfinite(v) and np.all(np.isfinite(g))):
            return _WALL, np.zeros_like(x)
        return -v, -g

    def passed(x: np.ndarray) -> None:
        for i in range(len(seen) - 1, -1, -1):
            if np.array_equal(seen[i][0], x):
                way.append(i)
                return

    ended = False
    with contextlib.suppress(SpentError):
        minimize(
            downhill,
            np.asarray(start, float),
            jac=True,
            method="L-BFGS-B",
            callback=passed,
            options={"maxiter": _MOST_STEPS, "maxcor": 10, "ftol": 1e-10, "gtol": 1e-6},
        )
        ended = True
    if not seen:
        raise SpentError
    usable = [i for i in (0, *way) if np.isfinite(seen[i][1]) and np.all(np.isfinite(seen[i][2]))]
    x, value, gradient = zip(*(seen[i] for i in usable or [0]), strict=True)
    return Way(np.stack(x), np.stack(gradient), np.array(value), ended)
