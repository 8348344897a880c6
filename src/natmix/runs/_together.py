"""Several seeds advanced at once, by `jax.vmap` of the step."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from natmix._ahead import Ahead
from natmix._algorithm import GMMVI
from natmix._blas import single_threaded_blas
from natmix._capacity import fewest_rows, grown, shrunk
from natmix._compile import quick_jit
from natmix._info_log import InfoLog
from natmix._run import _MANY, CHUNK, ChunkResult, _resized
from natmix._state import Info, State
from natmix._types import Count, PyTree
from natmix.targets import AbstractTarget


class Targets(eqx.Module):
    """The targets of several seeds: what differs is stacked, what they share is there once.

    Attributes:
        varying: arrays with the seeds first; None where the targets agree.
        common: everything else.
    """

    varying: PyTree
    common: PyTree

    @classmethod
    def build(cls, targets: Sequence[AbstractTarget]) -> "Targets":
        """Of targets for which `obstacle` finds none."""
        arrays, rest = zip(*(eqx.partition(t, eqx.is_array) for t in targets), strict=True)
        varying = jax.tree.map(lambda *a: None if _same(a) else jnp.stack(a), *arrays)
        shared = jax.tree.map(lambda *a: a[0] if _same(a) else None, *arrays)
        return cls(varying, eqx.combine(shared, rest[0]))


def obstacle(targets: Sequence[AbstractTarget]) -> str | None:
    """Why these targets cannot be evaluated together, in a few words; None if they can."""
    if not all(t.inside_jax for t in targets):
        return "a target outside JAX is evaluated for one seed at a time"
    arrays, rest = zip(*(eqx.partition(t, eqx.is_array) for t in targets), strict=True)
    if any(not eqx.tree_equal(rest[0], r) for r in rest[1:]):
        return "their targets are different functions"
    first = jax.tree.leaves(arrays[0])
    for other in arrays[1:]:
        for a, b in zip(first, jax.tree.leaves(other), strict=True):
            if a.shape != b.shape or a.dtype != b.dtype:
                return f"their targets' data differ in shape ({a.shape} and {b.shape}) or type"
    return None


def _same(arrays: Sequence[Array]) -> bool:
    return all(a is arrays[0] or np.array_equal(a, arrays[0], equal_nan=True) for a in arrays[1:])


class GroupPlan(eqx.Module):
    """What a chunk does, apart from the states it changes."""

    algorithm: GMMVI
    targets: Targets
    iterations: Count
    budgets: Int[Array, " S"]
    """Evaluations of the target that each seed may still spend."""
    active: Bool[Array, " S"]
    """Seeds that count; the others have finished and only keep their place."""


@quick_jit(donate="all-except-first")
def _group_chunk(
    plan: GroupPlan, states: tuple[State, ...]
) -> tuple[tuple[State, ...], InfoLog, Count, Bool[Array, " S"]]:
    """Up to ``plan.iterations`` steps of all; stops early when a seed lacks room or budget.

    The iteration is one number for all, so that what depends on it alone is not done per seed.
    """
    algo, size = plan.algorithm, len(states)

    def one(state: State, varying: PyTree, iteration: Count) -> tuple[State, Info]:
        state, info = algo.step(_at(state, iteration), eqx.combine(varying, plan.targets.common))
        return _at(state, None), info

    iteration = states[0].iteration
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *(_at(s, None) for s in states))
    step = jax.vmap(one, in_axes=(0, 0, None))
    _, blank = jax.eval_shape(step, stacked, plan.targets.varying, iteration)

    def affordable(iteration: Count, stacked: PyTree, spent: Array) -> Bool[Array, " S"]:
        bound = jax.vmap(lambda s: algo.next_evaluations_at_most(_at(s, iteration)))(stacked)
        return spent <= plan.budgets - bound

    def more(carry: tuple[Count, Count, Array, PyTree, InfoLog]) -> Bool[Array, ""]:
        i, iteration, spent, stacked, _ = carry
        room = ~jax.vmap(lambda s: algo.needs_room(_at(s, iteration)))(stacked)
        ready = affordable(iteration, stacked, spent) & room
        return (i < plan.iterations) & jnp.all(ready | ~plan.active)

    def advance(
        carry: tuple[Count, Count, Array, PyTree, InfoLog],
    ) -> tuple[Count, Count, Array, PyTree, InfoLog]:
        i, iteration, spent, stacked, log = carry
        stacked, info = step(stacked, plan.targets.varying, iteration)
        return i + 1, iteration + 1, spent + info.evaluations, stacked, log.put(i, info)

    zero = jnp.zeros((), jnp.int32)
    start = (zero, iteration, jnp.zeros(size, jnp.int32), stacked, InfoLog.empty(CHUNK, blank))
    i, iteration, spent, stacked, log = jax.lax.while_loop(more, advance, start)
    ends = tuple(_at(jax.tree.map(lambda a, s=s: a[s], stacked), iteration) for s in range(size))
    return ends, log, i, affordable(iteration, stacked, spent)


def _at(state: State, iteration: Any) -> State:
    """The state at an iteration; at None, what of it the seeds have each for themselves."""
    return dataclasses.replace(state, iteration=iteration)


class Together:
    """A stepper for seeds in step with each other: same algorithm, same iteration, targets of a kind.

    All have the same number of component rows, what the largest needs. A seed that has finished keeps its
    place, and its results are ignored, until half of the places are such; then a program for the others
    is compiled.
    """

    def __init__(self, algorithm: GMMVI, targets: Sequence[AbstractTarget], start_components: int) -> None:
        self.compile_seconds = 0.0
        self._algorithm = algorithm
        self._most = algorithm.component_adaptation.most_components(start_components)
        self._places = list(targets)
        self._targets = Targets.build(targets)
        self._last: list[State] | None = None
        self._own: set[int] = set()
        self._warm: set[tuple[int, int]] = set()
        self._ahead = Ahead()

    def rows_wanted(self, states: Sequence[State]) -> int:
        """The component rows that the next call of `advance` would use for these states.

        They grow when any seed needs room. They shrink, at multiples of `CHUNK` iterations, when three
        quarters of them are empty in all.
        """
        weights = jax.device_get([s.mixture.log_weights for s in states])
        each, present = map(np.array, zip(*((len(w), np.sum(w > -np.inf)) for w in weights), strict=True))
        rows = int(each.max())
        needs_room = self._algorithm.needs_room
        full = [n for s, n, k in zip(states, each, present, strict=True) if k == n and needs_room(s)]
        if full:
            return max(rows, min(grown(self._algorithm, int(max(full)), states[0].mixture.dim), self._most))
        may_shrink = int(states[0].iteration) % CHUNK == 0 and states[0].sample_selector is None
        fewest = fewest_rows(states[0].mixture.dim)
        if may_shrink and rows > fewest and 4 * int(present.max()) <= rows:
            return shrunk(rows, states[0].mixture.dim)
        return rows

    def advance(
        self, states: Sequence[State], iterations: int, budgets: Sequence[int | None]
    ) -> list[ChunkResult]:
        """At most ``iterations`` more steps of all states."""
        with single_threaded_blas():
            return self._advance(states, iterations, budgets)

    def _advance(
        self, states: Sequence[State], iterations: int, budgets: Sequence[int | None]
    ) -> list[ChunkResult]:
        start = time.perf_counter()
        places, group = self._seated(states)
        rows = self.rows_wanted(states)
        group = [_with_rows(self._algorithm, s, rows) for s in group]
        active = np.zeros(len(group), bool)
        active[places] = True
        budget = np.zeros(len(group), np.int32)
        budget[places] = [_MANY if b is None else max(min(b, _MANY), 0) for b in budgets]
        if (len(group), rows) not in self._warm:
            self._ahead.wait_for(rows)
            group = self._compiled(group)
            self._warm.add((len(group), rows))
            self.compile_seconds += time.perf_counter() - start
        plan = self._plan(min(iterations, CHUNK), budget, active)
        ends, log, done, affordable = _group_chunk(plan, tuple(group))
        self._last = list(ends)
        log, done, enough = jax.device_get((log, done, affordable))
        n = int(done)
        if n == 0 and iterations > 0 and np.all(enough[places]):
            raise RuntimeError(
                f"The seeds came to a halt together, with {rows} rows for components; run them with --apart."
            )
        arrays = log.arrays(n)
        if n:
            self._compile_ahead(self._last, int(arrays["components"][-1].max()))
        return [
            ChunkResult(ends[p], {k: v[:, p] for k, v in arrays.items()}, n == 0 and not enough[p])
            for p in places
        ]

    def _compiled(self, group: Sequence[State]) -> list[State]:
        """The states unchanged, once the program for them is compiled: a chunk of no iterations."""
        nothing = np.zeros(len(group), np.int32)
        ends, *_ = _group_chunk(self._plan(0, nothing, nothing.astype(bool)), tuple(group))
        jax.block_until_ready(ends[0].iteration)
        return list(ends)

    def _compile_ahead(self, group: Sequence[State], components: int) -> None:
        rows = group[0].mixture.num_components
        more = min(grown(self._algorithm, rows, group[0].mixture.dim), self._most)
        if (len(group), more) not in self._warm and self._ahead.wants(rows, components, more):
            start = time.perf_counter()
            larger = [_resized(self._algorithm, s, more) for s in group]
            self.compile_seconds += time.perf_counter() - start
            self._ahead.start(more, lambda: self._compiled(larger))

    def _plan(self, iterations: int, budget: np.ndarray, active: np.ndarray) -> GroupPlan:
        return GroupPlan(
            self._algorithm,
            self._targets,
            jnp.asarray(iterations, jnp.int32),
            jnp.asarray(budget, jnp.int32),
            jnp.asarray(active),
        )

    def _seated(self, states: Sequence[State]) -> tuple[list[int], list[State]]:
        """The places of these states, and the states of all places."""
        if self._last is None:
            return list(range(len(states))), list(states)
        place = {id(s): p for p, s in enumerate(self._last)}
        places = [place[id(s)] for s in states]
        if len(places) == len(self._last):
            return places, self._last
        if 2 * len(places) <= len(self._last):
            self._places = [self._places[p] for p in places]
            self._targets = Targets.build(self._places)
            self._own = set()
            return list(range(len(states))), list(states)
        for p in set(range(len(self._last))) - set(places) - self._own:
            # The seed's last state is not ours to give away.
            self._last[p] = jax.tree.map(lambda a: jnp.array(a, copy=True), self._last[p])
            self._own.add(p)
        return places, self._last


def _with_rows(algorithm: GMMVI, state: State, rows: int) -> State:
    return state if state.mixture.num_components == rows else _resized(algorithm, state, rows)
