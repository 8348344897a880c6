"""When to stop, and which mixture was the best: both judged beyond the noise of the objective."""

from collections import deque
from collections.abc import Callable

import numpy as np

from natmix.mixture import Mixture

PROMISING_WEIGHT = 0.01
"""A component added lately that carries this much shows that there was a place for it."""

PATIENCE = 3
"""Windows without such a component before no promising place is believed to be left."""

_BLOCK = 10
_SIGMAS = 3.0


class Convergence:
    """Watches a run.

    It compares the mean objective (the ELBO, for temperature 1) over the last ``window`` iterations
    with that over the window before. The rise counts when it exceeds both ``tolerance`` and two
    standard errors, these from the scatter of ten batch means within each window. The run has
    converged when no rise has counted for half a window on end; one look alone would now and then
    be mistaken. With components being added a window spans a whole cycle of additions, and none of
    those added in the last `PATIENCE` windows may carry weight.
    """

    def __init__(self, tolerance: float, window: int, components: int) -> None:
        self.tolerance = tolerance
        self.window = window
        self._iterations = 0
        self._objective: deque[float] = deque(maxlen=2 * window)
        self._births: deque[tuple[int, int]] = deque([(0, components)])
        self._last_rise = 0

    def saw(self, objective: np.ndarray, births: int) -> None:
        """Some iterations: the objective in each, and the number of components born by their end."""
        self._objective.extend(float(v) for v in objective)
        self._iterations += len(objective)
        self._births.append((self._iterations, births))
        while len(self._births) > 1 and self._births[1][0] <= self._settled:
            self._births.popleft()
        if self._rises():
            self._last_rise = self._iterations

    def reached(self, ids: np.ndarray, weights: np.ndarray) -> bool:
        """Whether the run has converged.

        Args:
            ids: numbers of the present components, in order of birth.
            weights: their weights.
        """
        if self._settled < 0 or self._iterations - self._last_rise < self.window // 2:
            return False
        return not bool(np.any(weights[ids >= self._births[0][1]] > PROMISING_WEIGHT))

    @property
    def _settled(self) -> int:
        """The iteration since when no component that matters may have come."""
        return self._iterations - PATIENCE * self.window

    def _rises(self) -> bool:
        if len(self._objective) < 2 * self.window:
            return True
        values = np.array(self._objective)
        if not np.isfinite(values).all():
            return True
        before, after = values[: self.window], values[self.window :]
        rise = after.mean() - before.mean()
        noise = np.hypot(_standard_error(before), _standard_error(after))
        return bool(rise > max(self.tolerance, 2 * noise))


def _standard_error(values: np.ndarray, batches: int = 10) -> float:
    """Of the mean, from batch means: neighbouring iterations are correlated."""
    means = np.array([b.mean() for b in np.array_split(values, batches)])
    return float(means.std(ddof=1) / np.sqrt(batches))


class Best:
    """Keeps the best mixture by a lower confidence bound of its objective.

    A mixture is judged by the last few iterations that led to it. With plain means the luckiest of
    thousands would win.
    """

    def __init__(self, mixture: Mixture) -> None:
        self.mixture = mixture
        self.bound = -np.inf
        self._recent: deque[tuple[float, float]] = deque(maxlen=_BLOCK)

    def saw(self, objective: np.ndarray, errors: np.ndarray, mixture: Callable[[], Mixture]) -> None:
        """Some iterations with the objective and its standard errors, and the mixture at their end."""
        self._recent.extend(zip(objective.tolist(), errors.tolist(), strict=True))
        mean, error = self.now()
        bound = mean - _SIGMAS * error
        if np.isfinite(bound) and bound >= self.bound:
            self.bound, self.mixture = bound, mixture()

    def now(self) -> tuple[float, float]:
        """The objective lately, and its standard error."""
        values, errors = np.array(self._recent, dtype=float).reshape(-1, 2).T
        if len(values) == 0:
            return -np.inf, np.inf
        n = len(values)
        scatter = values.std(ddof=1) if n > 1 else 0.0
        return float(values.mean()), float(max(scatter, np.sqrt(np.mean(errors**2))) / np.sqrt(n))

    def beats_last(self, tolerance: float) -> bool:
        """Whether the latest mixture is worse than the best one beyond doubt."""
        mean, error = self.now()
        slack = max(_SIGMAS * error, tolerance, 1e-6 * abs(self.bound) if np.isfinite(self.bound) else 0)
        return not np.isfinite(mean) or mean + slack < self.bound
