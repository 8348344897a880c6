"""Many L-BFGS runs at once: every step of all of them is one evaluation of many points.

Each run maximises the log density with the two-loop recursion (J. Nocedal, Math. Comp. 1980) and a
backtracking line search. Where the log density is convex along a step, as in the tails of Student's t, it
gives no curvature: the next step goes along the gradient and is twice as long.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from natmix.initialization.evaluator import BudgetSpentError, TargetEvaluator
from natmix.initialization.lbfgs import LbfgsPath

_MAX_STEPS, _MEMORY = 300, 10
_SUFFICIENT = 1e-4
"""Share of the predicted gain that a step must have."""
_BACKTRACK, _MAX_BACKTRACKS = 0.3, 20
_MIN_CURVATURE = 1e-10
_GAIN_TOLERANCE, _GRADIENT_TOLERANCE = 1e-10, 1e-6
"""A run ends when the relative gain of a step, or every entry of the gradient, is below these."""


class _Memory(NamedTuple):
    """The last steps s and changes y of the negated gradient, newest last, of every run."""

    s: Float[np.ndarray, "B M D"]
    y: Float[np.ndarray, "B M D"]
    filled: Int[np.ndarray, " B"]

    def direction(self, g: Float[np.ndarray, "B D"]) -> Float[np.ndarray, "B D"]:
        """H g by the two-loop recursion."""
        B, M, _ = self.s.shape
        real = np.arange(M) >= M - self.filled[:, None]
        curvature = np.where(real, np.sum(self.s * self.y, axis=2), 1.0)
        d, alpha = g.copy(), np.zeros((B, M))
        for i in reversed(range(M)):
            alpha[:, i] = np.where(real[:, i], np.sum(self.s[:, i] * d, axis=1) / curvature[:, i], 0)
            d -= alpha[:, i, None] * self.y[:, i]
        last = self.y[:, -1]
        norm = np.sum(last * last, axis=1)
        d *= np.where(self.filled > 0, curvature[:, -1] / np.where(norm > 0, norm, 1), 1)[:, None]
        for i in range(M):
            beta = np.where(real[:, i], np.sum(self.y[:, i] * d, axis=1) / curvature[:, i], 0)
            d += (alpha[:, i] - beta)[:, None] * self.s[:, i]
        return d

    def push(
        self, rows: Int[np.ndarray, " R"], s: Float[np.ndarray, "R D"], y: Float[np.ndarray, "R D"]
    ) -> None:
        for stored, new in ((self.s, s), (self.y, y)):
            stored[rows, :-1] = stored[rows, 1:]
            stored[rows, -1] = new
        self.filled[rows] = np.minimum(self.filled[rows] + 1, _MEMORY)


def lbfgs_runs(
    evaluator: TargetEvaluator,
    starts: Float[np.ndarray, "B D"],
    first_steps: Float[np.ndarray, " B"] | None = None,
) -> list[LbfgsPath]:
    """An L-BFGS run from every point; those that the budget of evaluations does not allow are unfinished.

    The length of a run's first step is at most 1, or that in ``first_steps``.
    """
    batch = _Batch(evaluator, np.asarray(starts, float), 1.0 if first_steps is None else first_steps)
    for _ in range(_MAX_STEPS + _MAX_BACKTRACKS):
        if not batch.active.any() or not batch.advance():
            break
    return batch.paths()


class _Batch:
    def __init__(
        self,
        evaluator: TargetEvaluator,
        x: Float[np.ndarray, "B D"],
        first_steps: float | Float[np.ndarray, " B"],
    ) -> None:
        B, D = x.shape
        self._evaluator = evaluator
        self._x = x.copy()
        self._f, self._g = (a.copy() for a in evaluator.with_gradient(x))
        self.active: Bool[np.ndarray, " B"] = _usable(self._f, self._g)
        self._finished = np.ones(B, bool)
        self._memory = _Memory(np.zeros((B, _MEMORY, D)), np.zeros((B, _MEMORY, D)), np.zeros(B, int))
        norm = np.linalg.norm(np.where(self.active[:, None], self._g, 0), axis=1)
        self._d = self._g / np.maximum(norm, 1e-300)[:, None]
        self._step = np.minimum(first_steps, norm)
        self._tries = np.zeros(B, int)
        self._history: list[list[tuple[np.ndarray, np.ndarray, float]]] = [
            [(x[i].copy(), self._g[i].copy(), float(self._f[i]))] for i in range(B)
        ]
        self._end(np.flatnonzero(self.active & (np.max(np.abs(self._g), axis=1) <= _GRADIENT_TOLERANCE)))

    def advance(self) -> bool:
        """One evaluation of every active run; False if the budget does not allow it."""
        rows = np.flatnonzero(self.active)
        x = self._x[rows] + self._step[rows, None] * self._d[rows]
        try:
            f, g = self._evaluator.with_gradient(x)
        except BudgetSpentError:
            self._finished[rows] = False
            return False
        predicted = self._step[rows] * np.sum(self._g[rows] * self._d[rows], axis=1)
        good = _usable(f, g) & (f >= self._f[rows] + _SUFFICIENT * predicted)
        bad = rows[~good]
        self._step[bad] *= _BACKTRACK
        self._tries[bad] += 1
        self._end(bad[self._tries[bad] > _MAX_BACKTRACKS])
        if good.any():
            self._accept(rows[good], x[good], f[good], g[good])
        return True

    def _accept(
        self,
        rows: Int[np.ndarray, " R"],
        x: Float[np.ndarray, "R D"],
        f: Float[np.ndarray, " R"],
        g: Float[np.ndarray, "R D"],
    ) -> None:
        s, y, gain = x - self._x[rows], self._g[rows] - g, f - self._f[rows]
        length = np.linalg.norm(s, axis=1)
        curved = np.sum(s * y, axis=1) > _MIN_CURVATURE * length * np.linalg.norm(y, axis=1)
        self._memory.push(rows[curved], s[curved], y[curved])
        self._memory.filled[rows[~curved]] = 0
        self._x[rows], self._f[rows], self._g[rows], self._tries[rows] = x, f, g, 0
        for i, row in enumerate(rows):
            self._history[row].append((x[i], g[i], float(f[i])))
        norm = np.linalg.norm(g, axis=1)
        along = self._memory.filled[rows] == 0
        memory = _Memory(*(a[rows] for a in self._memory))
        self._d[rows] = np.where(along[:, None], g / np.maximum(norm, 1e-300)[:, None], memory.direction(g))
        self._step[rows] = np.where(along, 2 * length, 1.0)
        tolerance = max(_GAIN_TOLERANCE, 4 * self._evaluator.resolution)
        still = gain <= tolerance * np.maximum(np.abs(f), 1)
        flat = np.max(np.abs(g), axis=1) <= _GRADIENT_TOLERANCE
        long = np.array([len(self._history[row]) > _MAX_STEPS for row in rows])
        self._end(rows[(still & curved) | flat | long])

    def _end(self, rows: Int[np.ndarray, " R"]) -> None:
        self.active[rows] = False

    def paths(self) -> list[LbfgsPath]:
        out = []
        for history, finished in zip(self._history, self._finished, strict=True):
            x, g, f = zip(*history, strict=True)
            out.append(LbfgsPath(np.stack(x), np.stack(g), np.array(f), bool(finished)))
        return out


def _usable(f: Float[np.ndarray, " B"], g: Float[np.ndarray, "B D"]) -> Bool[np.ndarray, " B"]:
    return np.isfinite(f) & np.all(np.isfinite(g), axis=1)
