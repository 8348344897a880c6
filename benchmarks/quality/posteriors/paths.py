"""Multi-path Pathfinder by BlackJAX: L-BFGS runs, a Gaussian from each, importance resampling over all."""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.vi import pathfinder

from natmix.array_types import PRNGKey
from posteriors.evaluate import log_densities
from posteriors.outcome import Outcome, weighed
from posteriors.problem import Problem

AT_ONCE, MOST = 20, 100
"""Paths at a time and in all."""
ELBO_DRAWS, STEPS = 25, 100
"""Samples for the ELBO of a point of a path (as in Stan), and steps of an L-BFGS run at most."""
USUAL = 1e-5
FTOL = USUAL
"""BlackJAX's default."""
START = 2.0
"""Climbs begin uniformly between -2 and 2, as in Stan."""


def run(problem: Problem, seed: int, budget: int) -> Outcome:
    """Up to half of the evaluations for paths, the rest for samples, the same number from every path.

    Raw samples are those of the path with the best ELBO. A step of a run counts one evaluation, whatever
    its line search took, and 25 for its ELBO.
    """
    started = time.perf_counter()
    model = problem.compiled()
    key = jax.random.key(seed)

    @jax.jit
    def lbfgs_runs(key: PRNGKey) -> Any:
        key_start, key_run = jax.random.split(key)
        start = jax.random.uniform(key_start, (AT_ONCE, model.dim), minval=-START, maxval=START)
        return jax.lax.map(
            lambda a: pathfinder.approximate(
                a[0], model.log_density, a[1], ELBO_DRAWS, maxiter=STEPS, ftol=FTOL
            ),
            (jax.random.split(key_run, AT_ONCE), start),
        )

    states, spent = [], 0  # type: ignore[var-annotated]
    while spent < budget // 2 and len(states) * AT_ONCE < MOST:
        key, key_runs = jax.random.split(key)
        best, info = lbfgs_runs(key_runs)
        states.append(best)
        spent += int(np.isfinite(np.asarray(info.path.elbo)).sum()) * (1 + ELBO_DRAWS)
    every = jax.tree.map(lambda *a: jnp.concatenate(a), *states)
    every = jax.tree.map(lambda a: a[np.isfinite(np.asarray(every.elbo))], every)
    paths = len(every.elbo)
    each = max((budget - spent) // paths, 100)
    x, log_q = jax.jit(jax.vmap(lambda k, s: pathfinder.sample(k, s, each)))(
        jax.random.split(jax.random.fold_in(key, 1), paths), every
    )
    flat = np.asarray(x, float).reshape(-1, model.dim)
    log_w = log_densities(model, flat) - np.asarray(log_q, float).ravel()
    elbos = np.where(np.isfinite(log_w), log_w, -np.inf).reshape(paths, each).mean(axis=1)
    seconds = time.perf_counter() - started
    name = "multi-path Pathfinder" + (f", {STEPS} steps, ftol {FTOL:g}" if FTOL != USUAL else "")
    found = weighed(name, spent + len(flat), seconds, flat, log_w, float(elbos.max()))
    return dataclasses.replace(found, raw=np.asarray(x[int(elbos.argmax())], float))
