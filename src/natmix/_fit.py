"""`fit`: from a log density to a mixture."""

import dataclasses
import difflib
import inspect
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from natmix import _defaults
from natmix._algorithm import GMMVI
from natmix._capacity import initial_capacity
from natmix._codenames import MODULES
from natmix._convergence import Best, Convergence
from natmix._draws import Draws
from natmix._dtypes import float_type
from natmix._evaluate import NO_ELBO, elbo_of, evaluated_draws, no_elbo
from natmix._interrupt import Interrupt, Interrupted
from natmix._progress import Progress
from natmix._result import Counts, Elbo, Result, Timings
from natmix._run import ChunkResult, Runner, check_first
from natmix._sharding import Devices, as_mesh
from natmix._state import State
from natmix.component_adaptation.vips import Vips
from natmix.mixture import Mixture
from natmix.models import AbstractModel, as_model
from natmix.starts import STARTS, begin
from natmix.targets import AbstractTarget, TargetError, as_target
from natmix.targets._base import check_dim

NEGLIGIBLE_WEIGHT = 1e-6
"""Components below are left out of the returned mixture: mostly newcomers that had no time."""

_CHUNK_SECONDS = 0.25
_LOOK = 20  # iterations between two judgements of progress: not by the clock, so that runs repeat exactly
_ELBO_SAMPLES = 2000
_INTERRUPTED_SECONDS = 2.0
"""What the final ELBO may take, about, after Ctrl-C."""


def fit(
    target: Any,
    dim: int | None = None,
    *,
    model_args: tuple[Any, ...] | None = None,
    model_kwargs: dict[str, Any] | None = None,
    position: Any = None,
    bounds: Any = None,
    start: str | None = None,
    seed: int = 0,
    algorithm: str | GMMVI | None = None,
    init_mean: ArrayLike | None = None,
    init_scale: ArrayLike | None = None,
    init_covariance: ArrayLike | None = None,
    box: tuple[ArrayLike, ArrayLike] | None = None,
    init_components: int | None = None,
    init_mixture: Mixture | None = None,
    covariance: str | None = None,
    dtype: Any = None,
    mesh: Devices | None = None,
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
            JAX cannot trace is called on the host. Or a `JaxTarget` or `HostTarget`, or a NumPyro or
            PyMC model.
        dim: D; not needed for a target that knows it.
        model_args: the arguments of a NumPyro model (data among them).
        model_kwargs: its keyword arguments.
        position: for a log density of a pytree of arrays: one such, where to look first.
        bounds: (low, high) of the vector, numbers or arrays with None or infinity for no bound; for a
            ``position`` by name, ``{"x": (0, 1)}``. The fit is in unconstrained coordinates.
        start: how to begin: "region", from the Gaussian that ``init_mean`` and the others name (1 wide
            around 0 if they are left out), or "pathfinder", from Gaussians found by climbing from there,
            which needs gradients. Pathfinder for models, the region otherwise, if left out.
        seed: every random number follows from it.
        algorithm: a codename such as "samtron", or a `GMMVI`. SAMTRON if left out, or ZAMTRON for a
            target without gradients.
        init_mean: where to look first, a number or [D]; 0 if left out.
        init_scale: how far from there, standard deviations, a number or [D]; 1 if left out.
        init_covariance: instead of ``init_scale``: a number, variances [D] or a matrix [D, D].
        box: instead of all these: (low, high), where most of the mass is to be expected.
        init_components: how many components to start with, their means drawn from the start region;
            1 if left out.
        init_mixture: the mixture to start from, instead of one drawn. The start region, where new
            components are sought, is then its own unless given.
        covariance: "full" or "diagonal"; as in ``init_mixture``, otherwise full, if left out.
        dtype: of the computation; that of ``init_mixture``, otherwise JAX's default float, if left out.
        mesh: several devices to divide components and samples among: a mesh with one axis, such as
            ``jax.make_mesh((8,), ("components",))``, or a list of devices. The numbers stay the same up to
            the order of sums.
        max_iterations: limit of iterations.
        max_evaluations: limit of evaluations of the target, never exceeded.
        max_seconds: limit of time, compilation included; the iteration that passes it is finished.
        tolerance: nats by which the ELBO must rise to count as improving.
        elbo_samples: samples for the final ELBO; 2000 if left out, fewer for a target outside JAX.
        progress: show a live line; only on a terminal if left out.
        **overrides: hyperparameters by module, for example ``sample_selector={"desired_samples": 500}``.

    Returns:
        The mixture with its ELBO, trajectory and settings. Ctrl-C returns the best mixture so far.

    Raises:
        ValueError: an argument cannot be used.
        TargetError: the target fails; its ``result`` holds what the run had reached.
    """
    started = time.perf_counter()
    limits = _Limits(max_iterations, max_evaluations, max_seconds, elbo_samples, tolerance)
    _check_names(overrides)
    devices = as_mesh(mesh)
    region = _defaults.Region(init_mean, init_scale, init_covariance, box)
    model = as_model(target, dim, model_args, model_kwargs, position, bounds)
    if model is not None:
        target, dim = model.log_density, _agreed(dim, model.dim)
        if not region.given and init_mixture is None:
            region = _model_region(model, seed)
    kind = _kind(covariance, init_mixture)
    dtype = float_type(dtype, None if init_mixture is None else init_mixture.dtype)
    dim = _dimension(dim, target, init_mixture)
    key_run, key_start, key_elbo = jax.random.split(_key(seed), 3)
    method = _method(start, model is not None, init_mixture)
    probe = np.zeros(0)
    if dim is not None:  # bad arguments are told before the target is called
        trial, _ = _start(dim, dtype, key_start, region, kind, init_components, init_mixture)
        probe = np.asarray(trial.mean())
    found = as_target(target, dim, dtype, probe)
    chosen, known, notes = _defaults.resolve_algorithm(algorithm, found, dtype, kind == "diagonal", overrides)
    if method == "pathfinder":
        if not known.has_gradient:
            raise ValueError("start='pathfinder' climbs by gradients, and the target has none.")
        most = None if max_evaluations is None else (max_evaluations - found.probes) // 4
        begun = begin(method, known, region, key_start, dtype, kind == "diagonal", init_components, most)
        mixture: Mixture = begun.mixture
        prior: Mixture | None = begun.prior
        notes += [begun.note] if begun.note else []
    else:
        begun = None
        mixture, prior = _start(known.dim, dtype, key_start, region, kind, init_components, init_mixture)
    if devices is not None:
        chosen = chosen.on(devices)
    capacity = initial_capacity(chosen, mixture.num_components, mixture.dim)
    job = _Job(
        target=known,
        algorithm=chosen,
        state=chosen.init(key_run, mixture, prior, capacity),
        start_components=mixture.num_components,
        limits=limits,
        probes=found.probes,
        start_evaluations=0 if begun is None else begun.evaluations,
        notes=notes,
        started=started,
        model=model,
    )
    settings = {
        "algorithm": chosen.settings(),
        "dim": known.dim,
        "seed": int(seed),
        **region.settings(),
        "init_components": mixture.num_components,
        "init_mixture": init_mixture is not None,
        "start": method,
        "covariance": kind,
        "dtype": str(jnp.dtype(dtype)),
        "devices": 1 if chosen.mesh is None else chosen.mesh.size,
        **dataclasses.asdict(limits),
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
        limits: "_Limits",
        probes: int,
        start_evaluations: int,
        notes: list[str],
        started: float,
        model: AbstractModel | None,
    ) -> None:
        self.target, self.algorithm, self.state, self.limits = target, algorithm, state, limits
        self.probes, self.notes, self.started = probes, notes, started
        self.start_evaluations = start_evaluations
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
                self.evaluations += _given(error)
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
            raise TargetError(f"An iteration failed: {_gist(error)}") from error
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
            _ELBO_SAMPLES
            if self.target.inside_jax
            else int(np.clip(self.evaluations // 20, 100, _ELBO_SAMPLES))
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
            mixture, left_out = _without_negligible(self._final_mixture())
            error.result = self._outcome("failed", mixture, left_out, elbo, settings)
        return error

    def _finished(self, stopped: str, key: Any, settings: dict[str, Any]) -> Result:
        mixture, left_out = _without_negligible(self._final_mixture())
        before = time.perf_counter()
        try:
            n = self._elbo_samples(stopped == "interrupted")
            draws = evaluated_draws(mixture, self.target, key, n) if n else None
            elbo = NO_ELBO if draws is None else elbo_of(draws)
        except KeyboardInterrupt as error:
            draws, elbo, self.interrupt.asked = None, no_elbo(_given(error)), True
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
        draws: Draws | None = None,
    ) -> Result:
        names = self.chunks[0] if self.chunks else {}
        trajectory = {name: np.concatenate([c[name] for c in self.chunks]) for name in names}
        if self.chunks:
            trajectory["total_evaluations"] = np.cumsum(trajectory["evaluations"].astype(np.int64))

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
        notes = (*self.notes, *_share_notes(counts))
        total_seconds = time.perf_counter() - self.started
        timings = Timings(self.runner.compile_seconds, self.running, elbo_seconds, total_seconds)
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


@dataclasses.dataclass(frozen=True)
class _Limits:
    max_iterations: int
    max_evaluations: int | None
    max_seconds: float | None
    elbo_samples: int | None
    tolerance: float

    def __post_init__(self) -> None:
        for name, low in (("max_iterations", 1), ("max_evaluations", 1), ("elbo_samples", 2)):
            value = getattr(self, name)
            if value is None and name != "max_iterations":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < low:
                raise ValueError(f"{name} must be a whole number of at least {low}, got {value!r}.")
            object.__setattr__(self, name, int(value))
        if self.max_seconds is not None and not (_is_number(self.max_seconds) and self.max_seconds > 0):
            raise ValueError(f"max_seconds must be a positive number, got {self.max_seconds!r}.")
        if not (_is_number(self.tolerance) and self.tolerance >= 0):
            raise ValueError(f"tolerance must be a number and not negative, got {self.tolerance!r}.")

    @property
    def reserve(self) -> int:
        """Evaluations set aside for the final ELBO."""
        if self.elbo_samples is not None:
            return self.elbo_samples
        share = _ELBO_SAMPLES if self.max_evaluations is None else self.max_evaluations // 10
        return min(_ELBO_SAMPLES, max(share, 1))


# Arguments --------------------------------------------------------------------------------------


def _check_names(overrides: dict[str, Any]) -> None:
    known = (*MODULES, "temperature", "zero_penalty")
    for name in overrides:
        if name not in known:
            arguments = list(inspect.signature(fit).parameters)
            close = difflib.get_close_matches(name, [*arguments, *known], 1)
            raise ValueError(
                f"fit has no argument {name!r}{f', did you mean {close[0]!r}?' if close else ';'} "
                f"Hyperparameters go by module: {', '.join(known)}."
            )


def _kind(covariance: str | None, mixture: Mixture | None) -> str:
    if mixture is not None and not isinstance(mixture, Mixture):
        raise ValueError(f"init_mixture must be a natmix.Mixture, got {type(mixture).__name__}.")
    of_mixture = None if mixture is None else "diagonal" if mixture.is_diagonal else "full"
    kind = covariance or of_mixture or "full"
    if kind not in ("full", "diagonal"):
        raise ValueError(f"covariance must be 'full' or 'diagonal', got {covariance!r}.")
    if of_mixture not in (None, kind):
        raise ValueError(f"covariance is {kind!r}, but init_mixture has {of_mixture} covariances.")
    return kind


def _method(start: str | None, is_model: bool, mixture: Mixture | None) -> str:
    """The name of the way to begin."""
    if start is None:
        return "pathfinder" if is_model and mixture is None else "region"
    if start not in STARTS:
        raise ValueError(f"start must be one of {', '.join(STARTS)}, got {start!r}.")
    if start != "region" and mixture is not None:
        raise ValueError(f"Give either start={start!r} or init_mixture, not both.")
    return start


def _agreed(dim: int | None, known: int) -> int:
    if dim is not None and dim != known:
        raise ValueError(f"dim={dim} was given, but the model has {known} unconstrained dimensions.")
    return known


def _model_region(model: AbstractModel, seed: int) -> _defaults.Region:
    """Where the model expects its variables."""
    start = model.start(jax.random.fold_in(_key(seed), 3))
    return _defaults.Region() if start is None else _defaults.Region(start.mean, start.scale)


def _dimension(dim: int | None, target: Any, mixture: Mixture | None) -> int | None:
    if dim is not None:
        dim = check_dim(dim)
    elif isinstance(target, AbstractTarget):
        dim = target.dim
    elif mixture is not None:
        dim = mixture.dim
    if mixture is not None and dim != mixture.dim:
        raise ValueError(f"init_mixture has {mixture.dim} dimensions, the target {dim}.")
    return dim


def _start(
    dim: int,
    dtype: Any,
    key: Any,
    region: _defaults.Region,
    kind: str,
    components: int | None,
    mixture: Mixture | None,
) -> tuple[Mixture, Mixture | None]:
    """The starting mixture, and the region where components are sought (None: the mixture's own)."""
    if mixture is None:
        return _defaults.start(
            dim, dtype, key, region, kind == "diagonal", 1 if components is None else components
        )
    if components is not None:
        raise ValueError("Give either init_components or init_mixture, not both.")
    mixture = mixture.astype(dtype)
    if not _usable_rows(mixture).all() or not np.isfinite(np.asarray(mixture.log_weights).max()):
        raise ValueError("init_mixture holds numbers that are not finite or covariances without full rank.")
    if not region.given:
        return mixture, None
    return mixture, _defaults.start(dim, dtype, key, region, kind == "diagonal", 1)[1]


def _key(seed: Any) -> Any:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be a whole number from 0 to 2**32 - 1, got {seed!r}.")
    return jax.random.key(np.uint32(seed))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


# Small things -----------------------------------------------------------------------------------


def _window(algorithm: GMMVI) -> int:
    """Iterations the objective is averaged over: a whole cycle of additions, at least 100."""
    adaptation = algorithm.component_adaptation
    cycle = len(adaptation.thresholds) * int(adaptation.add_iters) if isinstance(adaptation, Vips) else 0
    return max(100, cycle)


def _without_negligible(mixture: Mixture) -> tuple[Mixture, int]:
    """The mixture of the components that matter, and how many do not."""
    log_weights = np.asarray(mixture.log_weights, dtype=np.float64)
    keep = _usable_rows(mixture) & (log_weights >= np.log(NEGLIGIBLE_WEIGHT))
    kept = log_weights[keep]
    left_out = int(np.sum(log_weights > -np.inf)) - int(keep.sum())
    normalised = kept - np.logaddexp.reduce(kept)
    components = jax.tree.map(lambda a: jnp.asarray(np.asarray(a)[keep]), mixture.components)
    return Mixture(jnp.asarray(normalised, mixture.dtype), components), left_out


def _usable_rows(mixture: Mixture) -> np.ndarray:
    """Which components hold finite numbers only; absent ones are no trouble."""
    log_weights = np.asarray(mixture.log_weights)
    finite = [
        np.isfinite(np.asarray(a)).reshape(len(log_weights), -1).all(1)
        for a in jax.tree.leaves(mixture.components)
    ]
    return (np.all(finite, axis=0) & (log_weights < np.inf)) | (log_weights == -np.inf)


def _share_notes(counts: Counts) -> list[str]:
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


def _given(error: KeyboardInterrupt) -> int:
    """Evaluations in the call that Ctrl-C broke off."""
    return error.evaluations if isinstance(error, Interrupted) else 0


def _gist(error: Exception) -> str:
    """An error in one line; a quoted traceback has it in its last one."""
    lines = [type(error).__name__, *str(error).strip().splitlines()]
    return lines[-1] if "Traceback" in str(error) else ": ".join(lines[:2])
