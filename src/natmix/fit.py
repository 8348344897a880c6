"""`fit`: from a log density to a mixture."""

import dataclasses
import inspect
import time
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from natmix.checks import float_type
from natmix.engine.capacity import initial_capacity
from natmix.engine.fit_loop import Job
from natmix.engine.limits import Limits
from natmix.gmmvi import GMMVI
from natmix.initialization import defaults, initialise
from natmix.initialization.arguments import (
    agreed_dim,
    check_names,
    covariance_kind,
    dimension,
    model_region,
    run_key,
    start_method,
    starting_mixture,
)
from natmix.kernels.sharding import Devices, as_mesh
from natmix.mixture import Mixture
from natmix.models import as_model
from natmix.random_keys import split_keys
from natmix.result.result import Result
from natmix.targets import as_target


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
            PyMC model, or a Stan program or its path (with `models.StanModel` for its options).
        dim: D; not needed for a target that knows it.
        model_args: the arguments of a NumPyro model (data among them).
        model_kwargs: its keyword arguments, or the data of a Stan program.
        position: for a log density of a pytree of arrays: one such, where to look first.
        bounds: (low, high) of the vector, numbers or arrays with None or infinity for no bound; for a
            ``position`` by name, ``{"x": (0, 1)}``; without one every name stands for a number (or for an
            array, if its bounds are arrays). The fit is in unconstrained coordinates.
        start: how to initialise: "region", with the Gaussian that ``init_mean`` and the others name, the
            initial region; "pathfinder", with Gaussians that Pathfinder finds from there, which needs
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
        init_mean: where to look first, a number or [D]; 0 if left out.
        init_scale: how far from there, standard deviations, a number or [D]; 1 if left out.
        init_covariance: instead of ``init_scale``: a number, variances [D] or a matrix [D, D].
        box: instead of all these: (low, high), where most of the mass is to be expected.
        init_components: how many components to start with, their means drawn from the initial region;
            1 if left out.
        init_mixture: the mixture to start from, instead of one drawn. The initial region, where new
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
    limits = Limits(max_iterations, max_evaluations, max_seconds, elbo_samples, tolerance)
    check_names(overrides, inspect.signature(fit).parameters)
    devices = as_mesh(mesh)
    region = defaults.Region(init_mean, init_scale, init_covariance, box)
    model = as_model(target, dim, model_args, model_kwargs, position, bounds)
    if model is not None:
        target, dim = model.target(), agreed_dim(dim, model.dim)
        if not region.given and init_mixture is None:
            region = model_region(model, seed)
    kind = covariance_kind(covariance, init_mixture)
    dtype = float_type(dtype, None if init_mixture is None else init_mixture.dtype)
    dim = dimension(dim, target, init_mixture)
    key_run, key_start, key_elbo = split_keys(run_key(seed), 3)
    method = start_method(start, model is not None, init_mixture)
    probe = np.zeros(0)
    if dim is not None:  # bad arguments are told before the target is called
        trial, _ = starting_mixture(dim, dtype, key_start, region, kind, init_components, init_mixture)
        probe = np.asarray(trial.mean())
    found = as_target(target, dim, dtype, probe)
    chosen, known, notes = defaults.resolve_algorithm(algorithm, found, dtype, kind == "diagonal", overrides)
    if model is not None and model.remark:
        notes.append(model.remark)
        defaults.logger.warning(model.remark)
    if method == "pathfinder" and not known.has_gradient:
        if start is not None:
            raise ValueError("start='pathfinder' needs gradients, and the target has none.")
        method = "region"
    if method != "region":
        most = None if max_evaluations is None else (max_evaluations - found.probes) // 4
        initial = initialise(
            method, known, region, key_start, dtype, kind == "diagonal", init_components, most
        )
        mixture: Mixture = initial.mixture
        prior: Mixture | None = initial.prior
        notes += [initial.note] if initial.note else []
    else:
        initial = None
        mixture, prior = starting_mixture(
            known.dim, dtype, key_start, region, kind, init_components, init_mixture
        )
    if devices is not None:
        chosen = chosen.on(devices)
    capacity = initial_capacity(chosen, mixture.num_components, mixture.dim)
    job = Job(
        target=known,
        algorithm=chosen,
        state=chosen.init(key_run, mixture, prior, capacity),
        start_components=mixture.num_components,
        limits=limits,
        probes=found.probes,
        start_evaluations=0 if initial is None else initial.evaluations,
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
