"""When a run has converged, and which mixture was best: both allow for the noise of the objective."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np

from natmix.engine.recorder import Recorder
from natmix.engine.runner import Chunk
from natmix.engine.single_run import SingleRun
from natmix.gmmvi import GMMVI
from natmix.mixture import Mixture

PROMISING_WEIGHT = 0.01
"""A recently added component with more than this weight shows that additions still help."""

PATIENCE = 3
"""Windows without such a component after which additions are taken to help no more."""

CHECK_EVERY = 20
"""Iterations between two checks. They do not depend on the clock, so that runs are reproducible."""

TOLERANCE = 1e-3
"""Nats by which the objective must rise to count as improving, unless the user says otherwise."""

_BLOCK = 10
_SIGMAS = 3.0


class StoredConvergence(NamedTuple):
    """What a `Convergence` knows at a checkpoint."""

    iterations: int
    last_rise: int
    births: list[tuple[int, int]]
    objective: list[float]


class Convergence:
    """The stopping rule.

    It compares the mean objective (the ELBO, for temperature 1) over the last ``window`` iterations
    with that over the window before. A rise is significant when it exceeds both ``tolerance`` and two
    standard errors, which come from ten batch means within each window. The run has converged when no
    rise has been significant for half a window; a single comparison would sometimes be wrong. If
    components are added, a window spans a whole cycle of additions, and no component added in the last
    `PATIENCE` windows may have more than `PROMISING_WEIGHT`.
    """

    def __init__(self, tolerance: float, window: int, components: int) -> None:
        self.tolerance = tolerance
        self.window = window
        self._iterations = 0
        self._objective: deque[float] = deque(maxlen=2 * window)
        self._births: deque[tuple[int, int]] = deque([(0, components)])
        self._last_rise = 0

    def update(self, objective: np.ndarray, births: int) -> None:
        """Add some iterations: the objective of each, and how many components were born by their end."""
        self._objective.extend(float(v) for v in objective)
        self._iterations += len(objective)
        self._births.append((self._iterations, births))
        while len(self._births) > 1 and self._births[1][0] <= self._settled:
            self._births.popleft()
        if self._rises():
            self._last_rise = self._iterations

    def stored(self) -> StoredConvergence:
        """What is needed to go on."""
        return StoredConvergence(self._iterations, self._last_rise, list(self._births), list(self._objective))

    def restore(self, stored: StoredConvergence) -> None:
        """Go on from there."""
        self._iterations, self._last_rise = stored.iterations, stored.last_rise
        self._births = deque(stored.births)
        self._objective.clear()
        self._objective.extend(stored.objective)

    @property
    def flat(self) -> bool:
        """Whether no rise has been significant for half a window."""
        return self._iterations - self._last_rise >= self.window // 2

    def reached(self, ids: np.ndarray, weights: np.ndarray) -> bool:
        """Whether the run has converged.

        Args:
            ids: numbers of the present components, in order of birth.
            weights: their weights.
        """
        if self._settled < 0 or not self.flat:
            return False
        return not bool(np.any(weights[ids >= self._births[0][1]] > PROMISING_WEIGHT))

    @property
    def _settled(self) -> int:
        """The iteration since which no component of weight may have been added."""
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


class StoredBest(NamedTuple):
    """What a `BestMixture` knows at a checkpoint, the mixture left out."""

    bound: float
    recent: list[tuple[float, float]]


class BestMixture:
    """Keeps the best mixture by a lower confidence bound of its objective.

    The estimate uses the last few iterations before the mixture. Without the standard error the mixture with
    the luckiest estimate would be chosen. Iterations that reuse samples are not independent: with ``reused``
    old samples for each new one, a sample counts in so many more iterations.
    """

    def __init__(self, mixture: Mixture, reused: float = 0.0) -> None:
        self.mixture = mixture
        self._reused = reused
        self.bound = -np.inf
        self._recent: deque[tuple[float, float]] = deque(maxlen=_BLOCK)

    def update(self, objective: np.ndarray, errors: np.ndarray, mixture: Callable[[], Mixture]) -> None:
        """Add some iterations: the objective, its standard errors, and the mixture at their end."""
        self._recent.extend(zip(objective.tolist(), errors.tolist(), strict=True))
        mean, error = self.now()
        bound = mean - _SIGMAS * error
        if np.isfinite(bound) and bound >= self.bound:
            self.bound, self.mixture = bound, mixture()

    def stored(self) -> StoredBest:
        """What is needed to go on, with the mixture."""
        return StoredBest(self.bound, list(self._recent))

    def restore(self, stored: StoredBest) -> None:
        """Go on from there."""
        self.bound = stored.bound
        self._recent.clear()
        self._recent.extend(stored.recent)

    def forget(self) -> None:
        """Let any later mixture be better."""
        self.bound = -np.inf
        self._recent.clear()

    def now(self) -> tuple[float, float]:
        """The mean objective of the last few iterations, and its standard error."""
        values, errors = np.array(self._recent, dtype=float).reshape(-1, 2).T
        if len(values) == 0:
            return -np.inf, np.inf
        n = len(values)
        scatter = values.std(ddof=1) if n > 1 else 0.0
        independent = max(n / (1 + self._reused), 1.0)
        return float(values.mean()), float(max(scatter, np.sqrt(np.mean(errors**2))) / np.sqrt(independent))

    def beats_last(self, tolerance: float) -> bool:
        """Whether the latest mixture is worse than the best one beyond doubt."""
        mean, error = self.now()
        slack = max(_SIGMAS * error, tolerance, 1e-6 * abs(self.bound) if np.isfinite(self.bound) else 0)
        return not np.isfinite(mean) or mean + slack < self.bound


# Recorders --------------------------------------------------------------------------------------


class StoppingRule(Recorder):
    """Ends a run as "converged", judged every `CHECK_EVERY` iterations (see `Convergence`).

    Attributes:
        when_flat: a reason to end it as soon as the objective has ceased to rise; None for no such end.
        patient: whether it ends a run as converged.
    """

    def __init__(
        self,
        algorithm: GMMVI,
        components: int,
        tolerance: float = TOLERANCE,
        when_flat: str | None = None,
        patient: bool = True,
    ) -> None:
        self.when_flat, self.patient = when_flat, patient
        self._temperature = float(algorithm.temperature)
        self._convergence = Convergence(tolerance, window(algorithm), components)
        self._components = components
        self._new: list[np.ndarray] = []

    def restart(self, births: int) -> None:
        """Wait until the run has settled again, after ``births`` components in all."""
        old = self._convergence
        self._convergence = Convergence(old.tolerance, old.window, births)
        self._new = []

    def stored(self) -> StoredConvergence:
        """What is needed to go on, with the trajectory."""
        return self._convergence.stored()

    def restore(self, stored: StoredConvergence, since: Mapping[str, np.ndarray]) -> None:
        """Go on from there; ``since`` is the trajectory since the last check."""
        self._convergence.restore(stored)
        self._new = [objective(since, self._temperature)] if since else []

    def replay(self, trace: Mapping[str, np.ndarray]) -> None:
        """Restore what it knew at a checkpoint, from the trace of the iterations before.

        The number of births follows from the additions, so that the checkpoint need not store it.
        """
        values = objective(trace, self._temperature) if trace else np.zeros(0)
        births = self._components + np.cumsum(trace["added"].astype(int)) if trace else np.zeros(0)
        judged = len(values) - len(values) % CHECK_EVERY
        for end in range(CHECK_EVERY, judged + 1, CHECK_EVERY):
            self._convergence.update(values[end - CHECK_EVERY : end], int(births[end - 1]))
        self._new = [values[judged:]] if len(values) > judged else []

    def chunk(self, run: SingleRun, chunk: Chunk) -> str | None:
        self._new.append(objective(chunk.infos, self._temperature))
        if run.iterations % CHECK_EVERY:
            return None
        self._convergence.update(np.concatenate(self._new), int(run.state.births))
        self._new = []
        log_weights = np.asarray(run.state.mixture.log_weights)
        exists = log_weights > -np.inf
        ids, weights = np.asarray(run.state.ids)[exists], np.exp(log_weights[exists])
        if self.when_flat is not None:
            return self.when_flat if self._convergence.flat else None
        return "converged" if self.patient and self._convergence.reached(ids, weights) else None


class BestRecorder(Recorder):
    """Keeps the best mixture of a run, judged every `CHECK_EVERY` iterations (see `BestMixture`)."""

    def __init__(self, algorithm: GMMVI, tolerance: float) -> None:
        self._temperature, self._tolerance = float(algorithm.temperature), tolerance
        self._reused = float(algorithm.sample_selector.reuse_ratio)
        self._new: list[Mapping[str, np.ndarray]] = []

    def started(self, run: SingleRun) -> None:
        if not run.iterations:
            self._best = BestMixture(jax.device_get(run.state.mixture), self._reused)

    def chunk(self, run: SingleRun, chunk: Chunk) -> None:
        self._new.append(chunk.infos)
        if run.iterations % CHECK_EVERY == 0:
            self._judge(run)

    def stored(self) -> tuple[StoredBest, Mixture]:
        """What is needed to go on, with the trajectory."""
        return self._best.stored(), self._best.mixture

    def restore(self, stored: StoredBest, mixture: Mixture, since: Mapping[str, np.ndarray]) -> None:
        """Go on from there; ``since`` is the trajectory since the last check."""
        self._best = BestMixture(mixture, self._reused)
        self._best.restore(stored)
        self._new = [since] if since else []

    def restart(self) -> None:
        """Forget how good earlier mixtures were: estimates with other numbers of samples do not compare."""
        self._new = []
        self._best.forget()

    def choose(self, run: SingleRun) -> tuple[Mixture, str | None]:
        """The last mixture; or the best one, with a note, if the last is clearly worse (or was lost)."""
        if not run.iterations or any(a.is_deleted() for a in jax.tree.leaves(run.state.mixture)):
            return self._best.mixture, None
        self._judge(run)
        if not self._best.beats_last(self._tolerance):
            return jax.device_get(run.state.mixture), None
        return self._best.mixture, (
            f"The last mixture was worse (objective {self._best.now()[0]:.4g}) than an earlier one "
            f"(at least {self._best.bound:.4g}); that one is returned."
        )

    def _judge(self, run: SingleRun) -> None:
        if self._new:
            values = np.concatenate([objective(infos, self._temperature) for infos in self._new])
            errors = np.concatenate([infos["elbo_se"] for infos in self._new])
            self._best.update(values, errors, lambda: jax.device_get(run.state.mixture))
            self._new = []


def objective(infos: Mapping[str, np.ndarray], temperature: float) -> np.ndarray:
    """The ELBO with the entropy scaled by the temperature, which is what the algorithm maximises."""
    return infos["elbo"] + (temperature - 1) * infos["entropy"]


def window(algorithm: GMMVI) -> int:
    """Iterations the objective is averaged over: a whole cycle of additions, at least 100."""
    return max(100, algorithm.component_adaptation.addition_cycle())
