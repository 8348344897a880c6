"""`fit`: from a log density to a mixture."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from natmix import _defaults
from natmix._algorithm import GMMVI, State, present
from natmix._convergence import Convergence
from natmix._evaluate import estimate_elbo
from natmix._interrupt import Interrupt
from natmix._progress import Progress
from natmix._result import Counts, Result, Timings
from natmix._run import ChunkResult, Runner, initial_capacity
from natmix.component_adaptation.vips import THRESHOLDS, Vips
from natmix.mixture import Mixture
from natmix.targets import AbstractTarget, TargetError, as_target

_CHUNK_SECONDS = 0.25


def fit(
    target: Any,
    dim: int | None = None,
    *,
    seed: int = 0,
    algorithm: str | GMMVI | None = None,
    init_mean: ArrayLike = 0.0,
    init_scale: ArrayLike = 1.0,
    init_covariance: ArrayLike | None = None,
    box: tuple[ArrayLike, ArrayLike] | None = None,
    init_components: int = 1,
    init_mixture: Mixture | None = None,
    covariance: str = "full",
    dtype: Any = None,
    max_iterations: int = 10_000,
    max_evaluations: int | None = None,
    max_seconds: float | None = None,
    tolerance: float = 1e-3,
    elbo_samples: int | None = None,
    progress: bool | None = None,
    **overrides: Any,
) -> Result:
    """Approximate an unnormalised log density by a Gaussian mixture.

    Args:
        target: a JAX function of one point [D] (or of points [N, D]) giving the log density, or (log
            density, gradient); with a first argument named ``key`` it may be stochastic. A function
            JAX cannot trace is called on the host. Or a `JaxTarget` or `HostTarget`.
        dim: D; not needed for a target that knows it.
        seed: every random number follows from it.
        algorithm: a codename such as "samtron", or a `GMMVI`. SAMTRON if left out, or ZAMTRON for a
            target without gradients.
        init_mean: where to look first, a number or [D].
        init_scale: how far from there, standard deviations, a number or [D].
        init_covariance: instead of ``init_scale``: a number, variances [D] or a matrix [D, D].
        box: instead of all these: (low, high), where most of the mass is to be expected.
        init_components: how many components to start with, their means drawn from the start region.
        init_mixture: the mixture to start from, instead of one drawn.
        covariance: "full" or "diagonal".
        dtype: of the computation; JAX's default float if left out.
        max_iterations: limit of iterations.
        max_evaluations: limit of evaluations of the target, never exceeded.
        max_seconds: limit of time, compilation included.
        tolerance: nats by which the ELBO must rise to count as improving.
        elbo_samples: samples for the final ELBO; 2000 if left out, fewer for a target outside JAX.
        progress: show a live line; only on a terminal if left out.
        **overrides: hyperparameters by module, for example ``sample_selector={"desired_samples": 500}``.

    Returns:
        The mixture with its ELBO, trajectory and settings. Ctrl-C returns the best mixture so far.
    """
    started = time.perf_counter()
    _check_limits(max_iterations, max_evaluations, max_seconds, tolerance, elbo_samples)
    if covariance not in ("full", "diagonal"):
        raise ValueError(f"covariance must be 'full' or 'diagonal', got {covariance!r}.")
    if init_mixture is not None:
        dim = init_mixture.dim if dim is None else dim
        covariance = "diagonal" if init_mixture.is_diagonal else "full"
    if isinstance(target, AbstractTarget) and dim is None:
        dim = target.dim
    dtype = _float_type(dtype, init_mixture)
    key_run, key_start, key_elbo = jax.random.split(jax.random.key(_seed(seed)), 3)
    probe = np.zeros(0)
    if dim is not None and not isinstance(target, AbstractTarget):
        from natmix.targets._base import check_dim

        probe = _defaults._location(check_dim(dim), init_mean, init_scale, box)[0]
    found, probes = as_target(target, dim, dtype, probe)
    chosen, notes = _defaults.resolve_algorithm(algorithm, found, covariance == "diagonal", overrides)
    mixture, prior = _defaults.start(
        found.dim,
        dtype,
        key_start,
        diagonal=covariance == "diagonal",
        init_mean=init_mean,
        init_scale=init_scale,
        init_covariance=init_covariance,
        box=box,
        components=init_components,
    )
    if init_mixture is not None:
        mixture, prior = init_mixture.astype(dtype), None
        if mixture.dim != found.dim:
            raise ValueError(f"init_mixture has {mixture.dim} dimensions, the target {found.dim}.")
    job = _Job(
        target=found,
        algorithm=chosen,
        state=chosen.init(key_run, mixture, prior, initial_capacity(chosen, mixture.num_components)),
        start_components=mixture.num_components,
        limits=(max_iterations, max_evaluations, max_seconds),
        probes=probes,
        tolerance=tolerance,
        elbo_samples=elbo_samples,
        notes=notes,
        started=started,
    )
    settings = {
        "algorithm": chosen.settings(),
        "dim": found.dim,
        "seed": int(seed),
        "covariance": covariance,
        "dtype": str(jnp.dtype(dtype)),
        "init_mean": np.asarray(init_mean).tolist(),
        "init_scale": np.asarray(init_scale).tolist(),
        "init_covariance": None if init_covariance is None else np.asarray(init_covariance).tolist(),
        "box": None if box is None else [np.asarray(b).tolist() for b in box],
        "init_components": mixture.num_components,
        "max_iterations": max_iterations,
        "max_evaluations": max_evaluations,
        "max_seconds": max_seconds,
        "tolerance": tolerance,
    }
    return job.run(progress, key_elbo, settings)


class _Job:
    """One run: the host's side of it."""

    def __init__(
        self,
        *,
        target: AbstractTarget,
        algorithm: GMMVI,
        state: State,
        start_components: int,
        limits: tuple[int, int | None, float | None],
        probes: int,
        tolerance: float,
        elbo_samples: int | None,
        notes: list[str],
        started: float,
    ) -> None:
        self.target, self.algorithm, self.state = target, algorithm, state
        self.max_iterations, self.max_evaluations, self.max_seconds = limits
        self.probes, self.notes, self.started = probes, notes, started
        self.elbo_samples = elbo_samples
        most = algorithm.component_adaptation.most_components(start_components)
        self.runner = Runner(algorithm, target, most)
        self.convergence = Convergence(tolerance, _window(algorithm))
        self.convergence.saw(0, start_components)
        self.tolerance = tolerance
        self.infos: list[dict[str, np.ndarray]] = []
        self.seconds: list[np.ndarray] = []
        self.iterations = 0
        self.evaluations = 0
        self.running = 0.0
        self.best: tuple[float, Mixture] = (-np.inf, present(state.mixture))
        self.interrupt = Interrupt()

    # The loop -----------------------------------------------------------------------------------

    def run(self, show: bool | None, key: Any, settings: dict[str, Any]) -> Result:
        stopped = "max_iterations"
        with self.interrupt.watching(), Progress(self.algorithm.codename, show) as progress:
            try:
                while self.iterations < self.max_iterations:
                    reason = self._advance(progress)
                    if reason:
                        stopped = reason
                        break
            except KeyboardInterrupt:
                stopped = "interrupted"
            except TargetError as error:
                if self.iterations:
                    error.result = self._result("interrupted", key, settings, evaluate=False)
                raise
            return self._result(stopped, key, settings)

    def _advance(self, progress: Progress) -> str | None:
        """One chunk; the reason to stop, if there is one."""
        before = time.perf_counter()
        compiled = self.runner.compile_seconds
        self.interrupt.at_once = not self.target.inside_jax
        chunk = self.runner.advance(self.state, self._chunk_length(), self._training_budget())
        self.interrupt.at_once = False
        self.state = chunk.state
        after = time.perf_counter()
        self.running += after - before - (self.runner.compile_seconds - compiled)
        if chunk.exhausted:
            if self.iterations == 0:
                raise ValueError(
                    f"max_evaluations={self.max_evaluations} is not enough for a single iteration; allow more, "
                    "or lower sample_selector={'desired_samples': ...}."
                )
            if not self._room_was_missing():
                return "max_evaluations"
            return None
        self._record(chunk, after)
        self._show(progress)
        if self.interrupt.asked:
            return "interrupted"
        if self.max_seconds is not None and after - self.started >= self.max_seconds:
            return "max_seconds"
        return "converged" if self._converged() else None

    def _room_was_missing(self) -> bool:
        return bool(self.algorithm.needs_room(self.state))

    def _record(self, chunk: ChunkResult, now: float) -> None:
        infos = chunk.infos
        n = len(infos["elbo"])
        if n == 0:
            return
        if self.iterations == 0:
            self._check_first(infos)
        previous = self.seconds[-1][-1] if self.seconds else now - self.started
        self.seconds.append(np.linspace(previous, now - self.started, n + 1)[1:])
        self.infos.append(infos)
        self.iterations += n
        self.evaluations += int(infos["evaluations"].astype(np.int64).sum())
        self.convergence.saw(self.iterations, int(self.state.births))
        score = float(np.mean(self._objective(infos)[-max(1, n // 2) :]))
        if np.isfinite(score) and score >= self.best[0]:
            self.best = (score, present(self.state.mixture))

    def _check_first(self, infos: dict[str, np.ndarray]) -> None:
        asked, zeros, invalid = (int(infos[k][0]) for k in ("evaluations", "zeros", "invalid"))
        if zeros + invalid == asked:
            raise TargetError(
                f"The target is not finite anywhere in the start region: of {asked} samples {zeros} have log "
                f"density -inf and {invalid} NaN, +inf or a gradient that is not finite. Start where the "
                "density is positive (init_mean, init_scale or box), or check the function."
            )

    def _objective(self, infos: dict[str, np.ndarray]) -> np.ndarray:
        """The ELBO with the entropy scaled by the temperature, which is what the algorithm maximises."""
        return infos["elbo"] + (float(self.algorithm.temperature) - 1) * infos["entropy"]

    # Limits -------------------------------------------------------------------------------------

    def _chunk_length(self) -> int:
        left = self.max_iterations - self.iterations
        if self.iterations == 0:
            return 1
        per_second = self.iterations / max(self.running, 1e-9)
        seconds = _CHUNK_SECONDS
        if self.max_seconds is not None:
            seconds = min(seconds, self.max_seconds - (time.perf_counter() - self.started))
        return max(1, min(left, int(per_second * seconds)))

    def _elbo_samples(self) -> int:
        if self.elbo_samples is not None:
            return self.elbo_samples
        if self.target.inside_jax:
            n = 2000
        else:
            n = int(np.clip(self.evaluations // 20, 100, 2000))
        if self.max_evaluations is not None:
            n = min(n, max(1, self.max_evaluations // 10))
        return n

    def _training_budget(self) -> int | None:
        if self.max_evaluations is None:
            return None
        reserve = self.elbo_samples if self.elbo_samples is not None else min(2000, self.max_evaluations // 10)
        return self.max_evaluations - max(1, reserve) - self.probes - self.evaluations

    def _converged(self) -> bool:
        log_weights = np.asarray(self.state.mixture.log_weights)
        exists = log_weights > -np.inf
        ids = np.asarray(self.state.ids)[exists]
        objective = np.concatenate([self._objective(i) for i in self.infos])
        return self.convergence.reached(objective, ids, np.exp(log_weights[exists]))

    def _show(self, progress: Progress) -> None:
        last = self.infos[-1]
        progress.update(
            self.iterations,
            float(np.mean(last["elbo"])),
            float(np.sqrt(np.mean(last["elbo_se"] ** 2) / len(last["elbo_se"]))),
            int(last["components"][-1]),
            self.evaluations,
            self.iterations / max(self.running, 1e-9),
        )

    # The outcome --------------------------------------------------------------------------------

    def _final_mixture(self) -> Mixture:
        """The last mixture, or the best one if the last is clearly worse."""
        last = self.infos[-1]
        n = len(last["elbo"])
        recent = self._objective(last)[-max(1, n // 2) :]
        noise = np.sqrt(np.mean(last["elbo_se"][-len(recent) :] ** 2) / len(recent))
        score, best = self.best
        if not np.isfinite(recent.mean()) or recent.mean() < score - max(4 * noise, self.tolerance, 1e-6 * abs(score)):
            self.notes.append(
                f"The last mixture was worse (ELBO {recent.mean():.4g}) than an earlier one ({score:.4g}); "
                "that one is returned."
            )
            return best
        return present(self.state.mixture)

    def _result(self, stopped: str, key: Any, settings: dict[str, Any], evaluate: bool = True) -> Result:
        mixture = self._final_mixture() if self.infos else self.best[1]
        elbo = estimate_elbo(mixture, self.target, key, self._elbo_samples() if evaluate else 0)
        names = self.infos[0] if self.infos else {}
        trajectory = {name: np.concatenate([i[name] for i in self.infos]) for name in names}
        if self.infos:
            trajectory["seconds"] = np.concatenate(self.seconds)
            trajectory["total_evaluations"] = np.cumsum(trajectory["evaluations"].astype(np.int64))
            trajectory["objective"] = self._objective(trajectory)

        def total(name: str) -> int:
            return int(trajectory[name].astype(np.int64).sum()) if name in trajectory else 0

        counts = Counts(
            iterations=self.iterations,
            training_evaluations=self.evaluations,
            elbo_evaluations=elbo.samples,
            probe_evaluations=self.probes,
            zeros=total("zeros"),
            invalid=total("invalid"),
            failed_updates=total("failed_updates"),
            added=total("added"),
            deleted=total("deleted"),
        )
        notes = (*self.notes, *_share_notes(counts))
        timings = Timings(self.runner.compile_seconds, self.running, time.perf_counter() - self.started)
        return Result(mixture, elbo, trajectory, counts, timings, stopped, self.algorithm, settings, notes)


def _share_notes(counts: Counts) -> list[str]:
    notes = []
    n = max(counts.training_evaluations, 1)
    if counts.zeros:
        notes.append(f"{counts.zeros:,} evaluations ({counts.zeros / n:.2%}) had log density -inf, a density of zero.")
    if counts.invalid:
        notes.append(
            f"{counts.invalid:,} evaluations ({counts.invalid / n:.2%}) gave NaN, +inf or a gradient that is not "
            "finite; they were excluded from the updates."
        )
    return notes


def _window(algorithm: GMMVI) -> int:
    """Iterations the objective is averaged over: a whole cycle of additions, at least 100."""
    adaptation = algorithm.component_adaptation
    cycle = len(THRESHOLDS) * int(adaptation.add_iters) if isinstance(adaptation, Vips) else 0
    return max(100, cycle)


def _float_type(dtype: Any, mixture: Mixture | None) -> Any:
    if dtype is None:
        return mixture.dtype if mixture is not None else jnp.result_type(float)
    if not jnp.issubdtype(jnp.dtype(dtype), jnp.floating):
        raise ValueError(f"dtype must be float32 or float64, got {dtype}.")
    if jnp.dtype(dtype) == jnp.float64 and not jax.config.jax_enable_x64:
        raise ValueError("dtype float64 needs jax.config.update('jax_enable_x64', True) before arrays are made.")
    if jnp.dtype(dtype).itemsize < 4:
        raise ValueError(f"dtype must be float32 or float64, got {dtype}.")
    return jnp.dtype(dtype)


def _seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise ValueError(f"seed must be a whole number, got {seed!r}.")
    return int(seed)


def _check_limits(
    iterations: Any, evaluations: Any, seconds: Any, tolerance: Any, elbo_samples: Any
) -> None:
    for name, value, low in (
        ("max_iterations", iterations, 1),
        ("max_evaluations", evaluations, 1),
        ("elbo_samples", elbo_samples, 2),
    ):
        if value is None and name != "max_iterations":
            continue
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < low:
            raise ValueError(f"{name} must be a whole number of at least {low}, got {value!r}.")
    if seconds is not None and not seconds > 0:
        raise ValueError(f"max_seconds must be positive, got {seconds!r}.")
    if not tolerance >= 0:
        raise ValueError(f"tolerance must not be negative, got {tolerance!r}.")
