"""One fit: the host's side of it."""

import time
from typing import Any

import jax
import numpy as np

from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.elbo import NO_ELBO, Elbo, elbo_of, evaluated_draws, no_elbo
from natmix.engine.chunk_runner import ChunkResult, Runner, check_first
from natmix.engine.convergence import Best, Convergence
from natmix.engine.limits import ELBO_SAMPLES, Limits
from natmix.engine.progress import Progress
from natmix.gmmvi import GMMVI
from natmix.interrupts import Interrupt, Interrupted
from natmix.mixture import Mixture
from natmix.mixture.negligible import without_negligible
from natmix.models import AbstractModel
from natmix.modules.component_adaptation.vips import Vips
from natmix.modules.state import State
from natmix.result.result import Counts, Result, Timings
from natmix.targets import AbstractTarget, TargetError

_CHUNK_SECONDS = 0.25
_LOOK = 20  # iterations between two judgements of progress: not by the clock, so that runs repeat exactly
_INTERRUPTED_SECONDS = 2.0
"""What the final ELBO may take, about, after Ctrl-C."""


class Job:
    """One run: the host's side of it."""

    def __init__(
        self,
        *,
        target: AbstractTarget,
        algorithm: GMMVI,
        state: State,
        start_components: int,
        limits: "Limits",
        probes: int,
        start_evaluations: int,
        notes: list[str],
        started: float,
        model: AbstractModel | None,
    ) -> None:
        self.target, self.algorithm, self.state, self.limits = target, algorithm, state, limits
        self.probes, self.notes, self.started = probes, notes, started
        self.start_evaluations = start_evaluations
        self.start_seconds = time.perf_counter() - started
        self.start, self.model = jax.device_get(state.prior), model
        most = algorithm.component_adaptation.most_components(start_components)
        self.runner = Runner(algorithm, target, most, shrink_every=_LOOK)
        self.convergence = Convergence(limits.tolerance, _window(algorithm), start_components)
        self.best = Best(jax.device_get(state.mixture))
        self.interrupt = Interrupt()
        self.chunks: list[dict[str, np.ndarray]] = []
        self.looked = 0
        self.iterations = 0
        self.evaluations = 0
        self.running = 0.0
        self._check_budget()

    # The loop -----------------------------------------------------------------------------------

    def run(self, show: bool | None, key: Any, settings: dict[str, Any]) -> Result:
        with self.interrupt.watching(), Progress(self.algorithm.codename, show) as progress:
            try:
                stopped = None
                while stopped is None:
                    stopped = self._advance(progress)
            except KeyboardInterrupt as error:
                self.evaluations += evaluations_given(error)
                stopped = "interrupted"
            except TargetError as error:
                self.evaluations += error.evaluations
                raise self._failed(error, settings) from error.__cause__
            self.interrupt.forget()
            return self._finished(stopped, key, settings)

    def _advance(self, progress: Progress) -> str | None:
        """One chunk; the reason to stop, if there is one."""
        before, compiled = time.perf_counter(), self.runner.compile_seconds
        try:
            chunk = self.runner.advance(self.state, self._chunk_length(), self._training_budget())
        except TargetError:
            raise
        except (RuntimeError, ValueError) as error:  # from within a compiled step
            raise TargetError(f"An iteration failed: {gist(error)}") from error
        self.state = chunk.state
        after = time.perf_counter()
        self.running += after - before - (self.runner.compile_seconds - compiled)
        if chunk.exhausted:
            return "max_evaluations"
        self._record(chunk, before, after)
        self._show(progress)
        if self.interrupt.asked:
            return "interrupted"
        if self._at_look() and self._converged():
            return "converged"
        if self.iterations >= self.limits.max_iterations:
            return "max_iterations"
        seconds = self.limits.max_seconds
        return "max_seconds" if seconds is not None and after - self.started >= seconds else None

    def _record(self, chunk: ChunkResult, before: float, after: float) -> None:
        infos = chunk.infos
        n = len(infos["elbo"])
        if self.iterations == 0:
            check_first(infos, "Start where the density is positive (init_mean, init_scale or box)")
        objective = self._objective(infos)
        seconds = np.linspace(before - self.started, after - self.started, n + 1)[1:]
        self.evaluations += int(infos["evaluations"].astype(np.int64).sum())
        self.iterations += n
        self.chunks.append({**infos, "objective": objective, "seconds": seconds})
        if self._at_look():
            self._look()

    def _at_look(self) -> bool:
        return self.iterations % _LOOK == 0

    def _look(self) -> None:
        """Judge what has come since the last look."""
        new = self.chunks[self.looked :]
        self.looked = len(self.chunks)
        if new:
            objective = np.concatenate([c["objective"] for c in new])
            errors = np.concatenate([c["elbo_se"] for c in new])
            self.convergence.saw(objective, int(self.state.births))
            self.best.saw(objective, errors, lambda: jax.device_get(self.state.mixture))

    def _objective(self, infos: dict[str, np.ndarray]) -> np.ndarray:
        """The ELBO with the entropy scaled by the temperature, which is what the algorithm maximises."""
        return infos["elbo"] + (float(self.algorithm.temperature) - 1) * infos["entropy"]

    def _converged(self) -> bool:
        log_weights = np.asarray(self.state.mixture.log_weights)
        exists = log_weights > -np.inf
        return self.convergence.reached(np.asarray(self.state.ids)[exists], np.exp(log_weights[exists]))

    def _show(self, progress: Progress) -> None:
        last = self.chunks[-1]
        progress.update(
            self.iterations,
            float(np.mean(last["elbo"])),
            float(np.sqrt(np.mean(last["elbo_se"] ** 2) / len(last["elbo_se"]))),
            int(last["components"][-1]),
            self.evaluations,
            self.iterations / max(self.running, 1e-9),
        )

    # Limits -------------------------------------------------------------------------------------

    def _chunk_length(self) -> int:
        if self.iterations == 0:
            return 1
        per_second = self.iterations / max(self.running, 1e-9)
        seconds = _CHUNK_SECONDS
        if self.limits.max_seconds is not None:
            seconds = min(seconds, self.limits.max_seconds - (time.perf_counter() - self.started))
        left = self.limits.max_iterations - self.iterations
        until_look = _LOOK - self.iterations % _LOOK
        return max(1, min(left, until_look, int(per_second * seconds)))

    def _training_budget(self) -> int | None:
        """Evaluations left for the updates when those for the final ELBO are set aside."""
        limit = self.limits.max_evaluations
        return None if limit is None else limit - self._aside() - self.evaluations

    def _aside(self) -> int:
        """Evaluations that are spent already or set aside for the final ELBO."""
        return self.limits.reserve + self.probes + self.start_evaluations

    def _check_budget(self) -> None:
        budget = self._training_budget()
        if budget is None:
            return
        needed = int(self.algorithm.next_evaluations_at_most(self.state))
        if needed > budget:
            aside = self._aside()
            raise ValueError(
                f"max_evaluations={self.limits.max_evaluations} is not enough: an iteration needs {needed}, "
                f"and {aside} are spent on the start or set aside for the final ELBO; "
                "allow more, or lower sample_selector={'desired_samples': ...} or elbo_samples."
            )

    def _elbo_samples(self, interrupted: bool) -> int:
        n = (
            ELBO_SAMPLES
            if self.target.inside_jax
            else int(np.clip(self.evaluations // 20, 100, ELBO_SAMPLES))
        )
        if self.limits.elbo_samples is not None:
            n = self.limits.elbo_samples
        elif self.limits.max_evaluations is not None:
            n = min(n, self.limits.reserve)
        if interrupted and not self.target.inside_jax:
            affordable = int(self.evaluations / max(self.running, 1e-9) * _INTERRUPTED_SECONDS)
            n = min(n, affordable) if affordable > 1 else 0
        return n

    # The outcome --------------------------------------------------------------------------------

    def _failed(self, error: TargetError, settings: dict[str, Any], elbo: Elbo = NO_ELBO) -> TargetError:
        """The error, with what had been reached."""
        if self.iterations:
            mixture, left_out = without_negligible(self._final_mixture())
            error.result = self._outcome("failed", mixture, left_out, elbo, settings)
        return error

    def _finished(self, stopped: str, key: Any, settings: dict[str, Any]) -> Result:
        mixture, left_out = without_negligible(self._final_mixture())
        before = time.perf_counter()
        try:
            n = self._elbo_samples(stopped == "interrupted")
            draws = evaluated_draws(mixture, self.target, key, n) if n else None
            elbo = NO_ELBO if draws is None else elbo_of(draws)
        except KeyboardInterrupt as error:
            draws, elbo, self.interrupt.asked = None, no_elbo(evaluations_given(error)), True
        except TargetError as error:
            raise self._failed(error, settings, no_elbo(error.evaluations)) from error.__cause__
        if self.interrupt.asked:
            stopped = "interrupted"
        return self._outcome(stopped, mixture, left_out, elbo, settings, time.perf_counter() - before, draws)

    def _outcome(
        self,
        stopped: str,
        mixture: Mixture,
        left_out: int,
        elbo: Elbo,
        settings: dict[str, Any],
        elbo_seconds: float = 0.0,
        draws: EvaluatedDraws | None = None,
    ) -> Result:
        names = self.chunks[0] if self.chunks else {}
        trajectory = {name: np.concatenate([c[name] for c in self.chunks]) for name in names}
        if self.chunks:
            first = self.probes + self.start_evaluations
            trajectory["total_evaluations"] = first + np.cumsum(trajectory["evaluations"].astype(np.int64))

        def total(name: str) -> int:
            return int(trajectory[name].astype(np.int64).sum()) if name in trajectory else 0

        counts = Counts(
            iterations=self.iterations,
            training_evaluations=self.evaluations,
            elbo_evaluations=elbo.samples,
            probe_evaluations=self.probes,
            start_evaluations=self.start_evaluations,
            zeros=total("zeros"),
            invalid=total("invalid"),
            failed_updates=total("failed_updates"),
            added=total("added"),
            deleted=total("deleted"),
            left_out=left_out,
        )
        notes = (*self.notes, *share_notes(counts))
        total_seconds = time.perf_counter() - self.started
        timings = Timings(
            self.runner.compile_seconds, self.running, elbo_seconds, total_seconds, self.start_seconds
        )
        how = (trajectory, counts, timings, stopped, self.algorithm, settings, notes)
        return Result(mixture, elbo, *how, draws, self.target, self.start, self.model)

    def _final_mixture(self) -> Mixture:
        """The last mixture, or the best one if the last is clearly worse (or was lost in a failure)."""
        if not self.iterations or any(a.is_deleted() for a in jax.tree.leaves(self.state.mixture)):
            return self.best.mixture
        self._look()
        if self.best.beats_last(self.limits.tolerance):
            self.notes.append(
                f"The last mixture was worse (objective {self.best.now()[0]:.4g}) than an earlier one "
                f"(at least {self.best.bound:.4g}); that one is returned."
            )
            return self.best.mixture
        return jax.device_get(self.state.mixture)


def _window(algorithm: GMMVI) -> int:
    """Iterations the objective is averaged over: a whole cycle of additions, at least 100."""
    adaptation = algorithm.component_adaptation
    cycle = len(adaptation.thresholds) * int(adaptation.add_iters) if isinstance(adaptation, Vips) else 0
    return max(100, cycle)


def share_notes(counts: Counts) -> list[str]:
    """What the user should know about densities of zero and invalid ones."""
    notes = []
    n = max(counts.training_evaluations, 1)
    if counts.zeros:
        notes.append(
            f"{counts.zeros:,} evaluations ({counts.zeros / n:.2%}) had log density -inf, a density of zero."
        )
    if counts.invalid:
        notes.append(
            f"{counts.invalid:,} evaluations ({counts.invalid / n:.2%}) gave NaN, +inf or a gradient that is "
            "not finite; they were excluded from the updates."
        )
    return notes


def evaluations_given(error: KeyboardInterrupt) -> int:
    """Evaluations in the call that Ctrl-C broke off."""
    return error.evaluations if isinstance(error, Interrupted) else 0


def gist(error: Exception) -> str:
    """An error in one line; a quoted traceback has it in its last one, but for Equinox's, which goes on."""
    _, found, message = str(error).partition("EquinoxRuntimeError: ")
    if found:
        return message.strip().splitlines()[0]
    lines = [type(error).__name__, *str(error).strip().splitlines()]
    return lines[-1] if "Traceback" in str(error) else ": ".join(lines[:2])
