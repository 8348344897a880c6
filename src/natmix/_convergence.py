"""When to stop: the objective no longer rises beyond its noise, and new components bring nothing."""

import numpy as np

PROMISING_WEIGHT = 0.01
"""A component added lately that carries this much shows that there was a place for it."""

PATIENCE = 3
"""Windows without such a component before no promising place is believed to be left."""


class Convergence:
    """Watches a run.

    It compares the mean objective (the ELBO, for temperature 1) over the last ``window`` iterations
    with that over the window before. The rise counts when it exceeds both ``tolerance`` and two
    standard errors, these from the scatter of ten batch means within each window. With components
    being added a window spans a whole cycle of additions, and none of those added in the last
    `PATIENCE` windows may carry weight.
    """

    def __init__(self, tolerance: float, window: int) -> None:
        self.tolerance = tolerance
        self.window = window
        self._births: list[tuple[int, int]] = []

    def saw(self, iteration: int, births: int) -> None:
        """Note how many components had been born by an iteration."""
        self._births.append((iteration, births))

    def reached(self, objective: np.ndarray, ids: np.ndarray, weights: np.ndarray) -> bool:
        """Whether the run has converged.

        Args:
            objective: one value per iteration so far.
            ids: numbers of the present components, in order of birth.
            weights: their weights.
        """
        n = len(objective)
        if n < 2 * self.window:
            return False
        before = objective[n - 2 * self.window : n - self.window]
        after = objective[n - self.window :]
        rise = after.mean() - before.mean()
        noise = np.hypot(_standard_error(before), _standard_error(after))
        if not np.isfinite(rise) or rise > max(self.tolerance, 2 * noise):
            return False
        settled = n - PATIENCE * self.window
        born_before = max((b for i, b in self._births if i <= settled), default=0)
        newcomers = weights[ids >= born_before]
        return settled >= 0 and not bool(np.any(newcomers > PROMISING_WEIGHT))


def _standard_error(values: np.ndarray, batches: int = 10) -> float:
    """Of the mean, from batch means: neighbouring iterations are correlated."""
    means = np.array([b.mean() for b in np.array_split(values, batches)])
    return float(means.std(ddof=1) / np.sqrt(batches))
