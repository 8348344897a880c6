"""`fit`: from a log density to a mixture."""

import contextlib
import inspect
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from natmix.checks import as_int
from natmix.engine.capacity import initial_capacity
from natmix.engine.checkpoint_schedule import CHECKPOINT_SECONDS
from natmix.engine.clock import Clock
from natmix.engine.final_elbo import FinalElbo
from natmix.engine.fit_checkpoint import Begun, FitCheckpoints, Resume, owner_of, target_values
from natmix.engine.limits import Limits
from natmix.engine.memory import check_memory, check_mixture_memory
from natmix.engine.single_fit import FitOptions, SingleFit
from natmix.engine.snapshot import FitSnapshot, told
from natmix.gmmvi import GMMVI
from natmix.initialization.arguments import StartArguments, check_names
from natmix.initialization.checked_gradient import checked_gradient
from natmix.initialization.default_algorithm import (
    MoreSamples,
    increased_samples,
    logger,
    resolve_algorithm,
    with_hyperparameters,
)
from natmix.initialization.draws_mixture import InitialDraws
from natmix.initialization.region import Region
from natmix.interrupts import sigterm_as_ctrl_c
from natmix.kernels.compilation_cache import use_compilation_cache
from natmix.kernels.forks import check_not_forked
from natmix.kernels.plan import using
from natmix.kernels.sharding import Devices, as_mesh
from natmix.mixture import Mixture
from natmix.models import as_model
from natmix.models.front_ends import check_not_traced, with_data
from natmix.models.stan_backends import showing
from natmix.random_keys import run_key, split_keys
from natmix.result.export import own_draws
from natmix.result.fit_result import BeforeIterations, finished_result, fit_result
from natmix.result.result import Result
from natmix.targets import as_target
from natmix.targets.host import calls_so_far, notes_on_calls


@sigterm_as_ctrl_c
def fit(
    target: Any,
    dim: int | None = None,
    *,
    data: Any = None,
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
    init_draws: Any = None,
    covariance: str | None = None,
    dtype: Any = None,
    mesh: Devices | None = None,
    max_iterations: int = 10_000,
    max_evaluations: int | None = None,
    max_seconds: float | None = None,
    tolerance: float = 1e-3,
    accuracy: float | None = 0.02,
    elbo_samples: int | None = None,
    progress: bool | None = None,
    callback: Callable[[FitSnapshot], Any] | None = None,
    verify: bool = True,
    more_samples: MoreSamples = True,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    resume: Resume = True,
    **overrides: Any,
) -> Result:
    """Approximate an unnormalised log density by a Gaussian mixture.

    Args:
        target: a JAX function of one point [D] (or of points [N, D]) giving the log density, or (log
            density, gradient); with a first argument named ``key`` it may be stochastic. A function
            JAX cannot trace is called on the host. A gradient of its own is compared with differences of
            the log density first, by at most 2 D + 8 evaluations. Or a `JaxTarget` or `HostTarget`, or a
            NumPyro or PyMC model, or a Stan program or its path (with `models.StanModel` for its options).
        dim: D; not needed for a target that knows it.
        data: of a function ``f(x, data)``, passed on as the last argument: arrays and numbers, also in tuples
            and dictionaries. Fits with other data of the same shapes share their compiled programs.
        model_args: the arguments of a NumPyro model (data among them).
        model_kwargs: its keyword arguments, or the data of a Stan program.
        position: for a log density of a pytree of arrays: one such pytree, the centre of the initial region.
        bounds: (low, high) of the vector, numbers or arrays with None or infinity for no bound; for a
            ``position`` by name, ``{"x": (0, 1)}``; without one every name stands for a number (or for an
            array, if its bounds are arrays). The fit is in unconstrained coordinates.
        start: how to initialise: "region", with the initial region, the Gaussian that ``init_mean`` and the
            other arguments define; "pathfinder", with Gaussians that Pathfinder finds from there, which needs
            gradients; or "tempered", with Gaussians for samples moved from there to the target by sequential
            Monte Carlo. Pathfinder for models with gradients, the region otherwise, if left out. The last
            two take at most a quarter of ``max_evaluations``. By default the initial region, in unconstrained
            coordinates, has the prior's medians and interquartile ranges of a NumPyro model, or a standard
            deviation of 1 around PyMC's initial point, a pytree's ``position``, or 0. Pathfinder makes 8
            L-BFGS runs (or ``init_components``, if more), two of three from samples of the region and every
            third from a region 3 times as wide; it takes typically 4,000 to 8,000 evaluations in 5 to 30
            dimensions, tempering 5,000 to 75,000 (results/starts.md).
        seed: every random number follows from it. Do fits with other seeds agree?
            ``natmix.diagnostics.agreement([fit(f, seed=0), fit(f, seed=1)])``.
        algorithm: a codename such as "samtron", or a `GMMVI`. SAMTRON if left out, or ZAMTRON for a
            target without gradients.
        init_mean: the mean of the initial region, a number or [D]; 0 if left out.
        init_scale: its standard deviations, a number or [D]; 1 if left out.
        init_covariance: instead of ``init_scale``: a number, variances [D] or a matrix [D, D].
        box: instead of all these: (low, high), the bounds between which most of the mass is expected.
        init_components: how many components to start with, their means drawn from the initial region;
            1 if left out.
        init_mixture: the initial mixture, instead of one drawn. The initial region, in which new components
            are expected, then has the mixture's mean and covariance unless it is given.
        init_draws: draws to start from, such as those of NUTS or of an earlier posterior; a mixture is fitted
            to them, of at most ``init_components`` components if that is given, without evaluating the
            target. For a model: its variables by name (constrained), as `numpyro.infer.MCMC.get_samples`,
            `pymc.sample`, ArviZ and `Result.sample` have them. For a function: [N, D], within its bounds if
            it has any. Several chains as [C, N, ...]. Or a `Result`, whose samples are taken. The initial
            region is then twice as wide as the draws unless it is given.
        covariance: the covariance family: "full", "diagonal" or another of `natmix.gaussians.FAMILIES`; as in
            ``init_mixture``, otherwise full, if left out.
        dtype: of the computation; that of ``init_mixture``, otherwise JAX's default float, if left out.
        mesh: several devices to divide components and samples among: a mesh with one axis, such as
            ``jax.make_mesh((8,), ("components",))``, or a list of devices. The numbers stay the same up to
            the order of sums.
        max_iterations: limit of iterations.
        max_evaluations: limit of evaluations of the target, never exceeded.
        max_seconds: limit of time, compilation included (but not that of a Stan program); the iteration that
            passes it is finished.
        tolerance: nats by which the ELBO must rise to count as improving.
        accuracy: the fit ends when KL(q || p) is at most this, in nats, by fresh samples whose importance
            weights also show no error of means and standard deviations, and when the searches of ``verify``
            find nothing. It starts with few samples, which are reused (see ``more_samples``). Where it is not
            reached, all of ``max_evaluations`` is spent; without that limit the fit ends as with None: when
            the ELBO has ceased to rise and new components help no more. None starts with many samples and
            takes 10 to 50 times more evaluations.
        elbo_samples: samples for the final ELBO; 2000 if left out, fewer for a target outside JAX.
        progress: show a live line; only on a terminal and in a notebook if left out.
        callback: called after every chunk of iterations (about four times a second) with a `FitSnapshot`:
            iteration, elbo, elbo_se, kl, components, evaluations, seconds, and the mixture if it is asked
            for. If it returns True the fit ends there and ``result.stopped`` is "callback"; other values are
            ignored. If it raises, the fit ends at once without a result and the error reaches the caller; a
            mixture that an earlier snapshot was asked for stays valid. Where chunks end depends on the clock
            (docs/determinism.md), so a callback that must repeat exactly decides by ``iteration``. A callback
            that has a method ``finished`` is given the `Result` there. `natmix.recorders` has callbacks for
            TensorBoard, Weights & Biases and MLflow.
        verify: search outside of the mixture's samples when the fit is accurate or its ELBO has settled, and
            once before: for other modes, among the points evaluated before, and by Markov chains. What is
            found becomes components, and the fit goes on, until nothing new is found. All of it takes at
            most a quarter of the fit's evaluations. Where that is less and ``max_evaluations`` has room, the
            search of an accurate fit may take 60,000 for a target inside JAX (5,000 more for each mode beyond
            the first), 20,000 without gradients (2,000 more); for one outside with gradients 20,000 in one or
            two dimensions and 5,000 in more. ``result.verification`` has what was found and repaired.
        more_samples: with ``accuracy``: start with few samples, which are reused, and take more in two steps,
            up to the number that suits the dimension without reuse, when the ELBO stops rising before the
            accuracy is reached. False: the first number to the end. Or a list of hyperparameters by module,
            one step each: ``[{"sample_selector": {"desired_samples": 500}}]``. A fit whose
            ``sample_selector`` says how many samples keeps that number, unless there is such a list.
        checkpoint: a folder for checkpoints. The same call goes on from the last one, after Ctrl-C, SIGTERM,
            a kill or an end by ``callback``, and ends with the same numbers, bit for bit on the same machine.
            Once the fit has ended, the same call only reads its result. The target is recognised by its
            values at up to four points, which are evaluated in addition (docs/checkpoints.md).
        checkpoint_seconds: between two checkpoints; more if they take long, and at most 10 before the first.
        resume: True to go on from a checkpoint in the folder, and to raise an error if it is of another fit,
            target or data, or of other software; "anyway" to go on nevertheless; False to begin anew.
        **overrides: hyperparameters by module, for example ``sample_selector={"desired_samples": 500}``.

    Returns:
        The mixture with its ELBO, trajectory and settings. Ctrl-C or SIGTERM (in the main thread) returns the
        best mixture so far.

    Raises:
        ValueError: an argument cannot be used.
        TargetError: the target fails, or its gradient is wrong; ``result`` holds what the run had reached.
        RuntimeError: this process is a fork of one that has used JAX.
    """
    clock = Clock()
    check_not_forked()
    use_compilation_cache()

    # The arguments.
    check_not_traced((target, data, model_args, model_kwargs, position))
    max_iterations = as_int(max_iterations, "max_iterations")
    limits = Limits(max_seconds, max_evaluations, max_iterations, until_converged=True)
    final = FinalElbo(elbo_samples, limits.max_evaluations)
    options = FitOptions(limits, tolerance, final, progress, callback, verify, accuracy)
    if accuracy is None and more_samples is not True:
        raise ValueError("more_samples goes with accuracy; leave accuracy=None out.")
    checkpoints = None if checkpoint is None else FitCheckpoints(checkpoint, checkpoint_seconds, resume)
    check_names(overrides, inspect.signature(fit).parameters)
    devices = as_mesh(mesh)
    region = Region(init_mean, init_scale, init_covariance, box)
    target = with_data(target, data)
    with showing(progress):
        model = as_model(target, dim, model_args, model_kwargs, position, bounds)
    if model is not None and model is not target:
        clock.leave_out(model.build_seconds)
    draws = None if init_draws is None else InitialDraws.checked(own_draws(init_draws), model, target, dim)
    arguments = StartArguments.checked(
        region, init_components, init_mixture, draws, start, covariance, dtype, model, seed
    )
    key_run, key_start, key_elbo = split_keys(run_key(seed), 3)

    # The target: bad arguments about the start raise before it is called.
    target = target if model is None else model.target()
    dim = arguments.dimension(dim, target, model)
    check_mixture_memory(arguments.family, dim, arguments.dtype, arguments.components or 1)
    initial = arguments.in_region(dim, key_start)
    found = as_target(target, dim, arguments.dtype, probe=np.asarray(initial.mixture.mean()))
    calls_before = calls_so_far(found.target)

    # The algorithm.
    efficient = accuracy is not None
    chosen, known, notes = resolve_algorithm(
        algorithm, found, arguments.dtype, arguments.family, overrides, few_samples=efficient
    )
    if model is not None and model.remark:
        notes.append(model.remark)
        logger.warning(model.remark)
    own = not efficient or isinstance(algorithm, GMMVI)
    given = False if own and more_samples is True else more_samples
    increases = increased_samples(chosen, known, arguments.family, overrides, given)
    if devices is not None:
        chosen = chosen.on(devices)
    later = list(itertools.accumulate(increases, with_hyperparameters, initial=chosen))[1:]
    method = arguments.method_for(known)
    settings = {
        "algorithm": chosen.settings(),
        "dim": known.dim,
        "seed": int(seed),
        **arguments.region.settings(),
        "init_components": arguments.components,
        "init_mixture": init_mixture is not None,
        "init_draws": None if draws is None else draws.settings(),
        "start": method,
        "covariance": arguments.family.name,
        "dtype": str(jnp.dtype(arguments.dtype)),
        "devices": 1 if chosen.mesh is None else chosen.mesh.size,
        **options.settings(),
        "more_samples": increases,
    }

    with contextlib.ExitStack() as held:
        # What was begun before.
        probes, loaded = found.probes, None
        if checkpoints is not None:
            held.enter_context(checkpoints.held())
            values = target_values(known, initial.prior or initial.mixture)
            probes += len(values)
            owner = owner_of(settings, arguments.mixture, values)
            loaded = checkpoints.load(owner, arguments.dtype, [chosen, *later])
            if loaded is not None and checkpoints.finished is not None:
                return told(callback, finished_result(checkpoints.finished, known, model))

        # The initial mixture.
        if loaded is not None:
            initial, probes = loaded.begun.first, loaded.begun.probes
        else:
            if chosen.ng_estimator.needs_gradient:
                region_mixture = initial.prior or initial.mixture
                probes += checked_gradient(known, model, region_mixture, max_evaluations, seed)
            if method != "region":
                most = None if max_evaluations is None else (max_evaluations - probes) // 4
                initial = arguments.found_by(method, known, key_start, most)
        seconds = clock.read() if loaded is None else loaded.begun.seconds
        if checkpoints is not None:
            checkpoints.begin(owner, Begun(initial, probes, seconds))

        # The run.
        with using(chosen.plan(initial.mixture).alone()):
            components = initial.mixture.num_components
            capacity = initial_capacity(chosen, components, dim)
            check_memory([chosen, *later], arguments.family, dim, arguments.dtype, capacity)
            state = chosen.init(key_run, initial.mixture, initial.prior, capacity)
            evaluations = probes + initial.evaluations
            one = SingleFit(chosen, known, state, components, options, evaluations, clock, later, checkpoints)
            begin = BeforeIterations(probes, initial.evaluations, seconds, jax.device_get(state.prior))
            if loaded is not None:
                one.go_on_from(loaded.state, loaded.records)
            outcome = one.run(key_elbo)

        settings["init_components"] = components
        notes += [initial.note] if initial.note else []
        notes += notes_on_calls(calls_so_far(known).since(calls_before))
        result = fit_result(outcome, begin, chosen, known, model, settings, notes, clock.read())
        if checkpoints is not None:
            if outcome.ended:
                checkpoints.keep_result(result.save)
            checkpoints.progress.end(outcome.stopped, result.counts.evaluations, result.notes)
    if outcome.failure is not None:
        outcome.failure.result = result if outcome.iterations else None
        told(callback, result)
        raise outcome.failure from outcome.failure.__cause__
    return told(callback, result)
