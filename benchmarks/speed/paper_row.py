"""A row of benchmarks/speed/side_by_side in its later phase, with the paper's settings."""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from side_by_side.rows import Row

from natmix import GMMVI
from natmix.engine.capacity import initial_capacity
from natmix.engine.chunk_runner import ChunkRunner
from natmix.experiments import problems, runs
from natmix.kernels.compilation import quick_jit
from natmix.modules.state import State
from natmix.targets import AbstractTarget

WARM, TIMED = 8, 60
"""Iterations before those that are timed, and how many of these at most: one search or more, if it is due."""


class LaterPhase(NamedTuple):
    """A run that has gone on for some iterations."""

    algorithm: GMMVI
    target: AbstractTarget
    state: State
    components: float
    """On average over the iterations timed."""
    seconds: float
    """Of an iteration, compilation apart."""
    searches: float
    """For a new component, per iteration."""


def later_phase(row: Row, components: int) -> LaterPhase:
    """From a start with so many components."""
    problem = problems.load(row.problem, seed=0, dtype=jnp.float32)
    config = runs.configure(problem, row.codename, preset="paper", dtype="float32")
    algorithm = config.algorithm
    mixture, prior = config.start.mixture(jax.random.key(0), components, jnp.float32)
    state = algorithm.init(
        jax.random.key(1), mixture, prior, initial_capacity(algorithm, components, mixture.dim)
    )
    adaptation = algorithm.component_adaptation
    runner = ChunkRunner(algorithm, problem.target, adaptation.most_components(components))
    every = int(getattr(adaptation, "add_iters", 0)) or TIMED + 1
    searches = TIMED // every  # none if they are rare: then they are not in the arithmetic either
    iterations = searches * every or TIMED // 3
    for _ in range(WARM):
        state = runner.advance(state, 1, None).state
    compiling, start, present = runner.compile_seconds, time.perf_counter(), []  # type: ignore[var-annotated]
    while len(present) < iterations:
        chunk = runner.advance(state, iterations - len(present), None)
        state = jax.block_until_ready(chunk.state)
        present += chunk.infos["components"].tolist()
    seconds = time.perf_counter() - start - (runner.compile_seconds - compiling)
    mean, share = float(np.mean(present)), searches / iterations
    return LaterPhase(algorithm, problem.target, state, mean, seconds / iterations, share)


def asked_and_told(phase: LaterPhase) -> tuple[Any, Any, Any]:
    """The query of the next iteration, the target there, and the batch of samples made of them."""
    algorithm, state = phase.algorithm, phase.state
    query = quick_jit()(algorithm.ask)(state)
    evaluation = quick_jit()(lambda q: algorithm.evaluate(state, q, phase.target))(query)
    _, batch = quick_jit()(told)(phase, query, evaluation)
    return query, evaluation, batch


def told(phase: LaterPhase, query: Any, evaluation: Any) -> Any:
    """The sample selector's share of an iteration once the target is known."""
    n = query.draws.x.shape[0]
    return phase.algorithm.sample_selector.tell(
        phase.state.sample_selector,
        query.draws,
        evaluation.log_density[:n],
        None if evaluation.gradient is None else evaluation.gradient[:n],
        phase.state.iteration,
        phase.state.mixture,
        jnp.asarray(phase.algorithm.zero_penalty, jnp.float32),
    )
