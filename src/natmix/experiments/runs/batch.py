"""Several seeds advanced at once, by `jax.vmap` of the step."""

import dataclasses
import functools
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from natmix.array_types import Count, PyTree
from natmix.engine.background_compilation import Ahead
from natmix.engine.capacity import fewest_rows, grown, shrunk
from natmix.engine.chunk_runner import _MANY, CHUNK, ChunkResult, _resized
from natmix.engine.info_log import InfoLog
from natmix.gmmvi import GMMVI
from natmix.kernels.compilation import quick_jit
from natmix.kernels.threads import single_threaded_blas
from natmix.modules.state import Info, State
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


class Group(NamedTuple):
    """The states of several seeds, seeds first in all arrays but the iteration, which is one number."""

    states: State
    """At no iteration."""
    iteration: Count

    @property
    def size(self) -> int:
        """How many seeds there are."""
        return int(self.states.ids.shape[0])


@quick_jit(donate="all-except-first")
def _group_chunk(
    plan: GroupPlan, group: Group
) -> tuple[Group, tuple[State, ...], InfoLog, Count, Bool[Array, " S"]]:
    """Up to ``plan.iterations`` steps of all; stops early when a seed lacks room or budget.

    The iteration is one number for all, so that what depends on it alone is not done per seed.
    """
    algo = plan.algorithm

    def one(state: State, varying: PyTree, iteration: Count) -> tuple[State, Info]:
        state, info = algo.step(_at(state, iteration), eqx.combine(varying, plan.targets.common))
        return _at(state, None), info

    step = jax.vmap(one, in_axes=(0, 0, None))
    _, blank = jax.eval_shape(step, group.states, plan.targets.varying, group.iteration)

    def affordable(group: Group, spent: Array) -> Bool[Array, " S"]:
        at_most = algo.next_evaluations_at_most
        bound = jax.vmap(lambda s: at_most(_at(s, group.iteration)))(group.states)
        return spent <= plan.budgets - bound

    def more(carry: tuple[Count, Array, Group, InfoLog]) -> Bool[Array, ""]:
        i, spent, group, _ = carry
        room = ~jax.vmap(lambda s: algo.needs_room(_at(s, group.iteration)))(group.states)
        ready = affordable(group, spent) & room
        return (i < plan.iterations) & jnp.all(ready | ~plan.active)

    def advance(carry: tuple[Count, Array, Group, InfoLog]) -> tuple[Count, Array, Group, InfoLog]:
        i, spent, group, log = carry
        states, info = step(group.states, plan.targets.varying, group.iteration)
        return i + 1, spent + info.evaluations, Group(states, group.iteration + 1), log.put(i, info)

    start = (
        jnp.zeros((), jnp.int32),
        jnp.zeros(group.size, jnp.int32),
        group,
        InfoLog.empty(CHUNK, blank),
    )
    i, spent, group, log = jax.lax.while_loop(more, advance, start)
    brief = Group(_brief(group.states), group.iteration)
    ends = tuple(_of_seed(brief, seed) for seed in range(group.size))
    return group, ends, log, i, affordable(group, spent)


@quick_jit()
def _stacked(states: tuple[State, ...]) -> Group:
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *(_at(s, None) for s in states))
    return _own_group(stacked, states[0].iteration)


@quick_jit()
def _of_seed(group: Group, seed: Count | int) -> State:
    return _at(jax.tree.map(lambda a: a[seed], group.states), group.iteration)


@quick_jit()
def _some_of(group: Group, seeds: Int[Array, " S2"]) -> Group:
    return _own_group(jax.tree.map(lambda a: a[seeds], group.states), group.iteration)


@quick_jit()
def _group_resized(algorithm: GMMVI, group: Group, capacity: int) -> Group:
    def resized(state: State) -> State:
        return _at(algorithm.resized(_at(state, group.iteration), capacity), None)

    return _own_group(jax.vmap(resized)(group.states), group.iteration)


def _own_group(states: State, iteration: Count) -> Group:
    """To be donated: no array of it is anybody else's."""
    return Group(states, jnp.array(iteration, copy=True))


def _brief(state: State) -> State:
    """Without the samples that it keeps, which are most of it."""
    return dataclasses.replace(state, sample_selector=None, component_adaptation=None)


def _at(state: State, iteration: Any) -> State:
    """The state at an iteration; at None, what of it the seeds have each for themselves."""
    return dataclasses.replace(state, iteration=iteration)


class Together:
    """A stepper for seeds in step with each other: same algorithm, same iteration, targets of a kind.

    All have the same number of component rows, what the largest needs. A seed that has finished keeps its
    place, and its results are ignored, until half of the places are such; then a program for the others
    is compiled. The states that `advance` returns lack the samples that they keep: these stay in one array
    for all seeds, until `ChunkResult.whole` asks for them.
    """

    def __init__(self, algorithm: GMMVI, targets: Sequence[AbstractTarget], start_components: int) -> None:
        self.compile_seconds = 0.0
        self._algorithm = algorithm
        self._most = algorithm.component_adaptation.most_components(start_components)
        self._places = list(targets)
        self._targets = Targets.build(targets)
        self._group: Group | None = None
        self._last: list[State] = []
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
        keeps = states[0] if self._group is None else self._group.states
        may_shrink = int(states[0].iteration) % CHUNK == 0 and keeps.sample_selector is None
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
        rows = self.rows_wanted(states)
        places, group = self._seated(states, rows)
        active = np.zeros(group.size, bool)
        active[places] = True
        budget = np.zeros(group.size, np.int32)
        budget[places] = [_MANY if b is None else max(min(b, _MANY), 0) for b in budgets]
        if (group.size, rows) not in self._warm:
            self._ahead.wait_for(rows)
            group = self._compiled(group)
            self._warm.add((group.size, rows))
            self.compile_seconds += time.perf_counter() - start
        plan = self._plan(min(iterations, CHUNK), budget, active)
        self._group = None  # given away, whatever comes of it
        group, ends, log, done, affordable = _group_chunk(plan, group)
        self._group, self._last = group, list(ends)
        log, done, enough = jax.device_get((log, done, affordable))
        n = int(done)
        if n == 0 and iterations > 0 and np.all(enough[places]):
            raise RuntimeError(
                f"The seeds came to a halt together, with {rows} rows for components; run them with --apart."
            )
        arrays = log.arrays(n)
        if n:
            self._compile_ahead(group, int(arrays["components"][-1].max()))
        return [
            ChunkResult(
                ends[p],
                {k: v[:, p] for k, v in arrays.items()},
                n == 0 and not enough[p],
                functools.partial(self._whole, group, p),
            )
            for p in places
        ]

    def _whole(self, group: Group, place: int) -> State:
        if group is not self._group:
            raise RuntimeError("The group has gone on: this seed's samples are no longer there.")
        return _of_seed(group, jnp.asarray(place))

    def _compiled(self, group: Group) -> Group:
        """The states unchanged, once the program for them is compiled: a chunk of no iterations."""
        nothing = np.zeros(group.size, np.int32)
        group, *_ = _group_chunk(self._plan(0, nothing, nothing.astype(bool)), group)
        return jax.block_until_ready(group)

    def _compile_ahead(self, group: Group, components: int) -> None:
        rows, dim = group.states.ids.shape[1], group.states.mixture.components.mean.shape[-1]
        more = min(grown(self._algorithm, rows, dim), self._most)
        if (group.size, more) not in self._warm and self._ahead.wants(rows, components, more):
            start = time.perf_counter()
            larger = _group_resized(self._algorithm, group, more)
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

    def _seated(self, states: Sequence[State], rows: int) -> tuple[list[int], Group]:
        """The places of these states, and the states of all places with so many rows."""
        if self._group is None:
            group, places = _stacked(tuple(_with_rows(self._algorithm, s, rows) for s in states)), None
        else:
            place = {id(s): p for p, s in enumerate(self._last)}
            group, places = self._group, [place[id(s)] for s in states]
            if 2 * len(places) <= group.size:
                self._places = [self._places[p] for p in places]
                self._targets = Targets.build(self._places)
                group, places = _some_of(group, jnp.asarray(places)), None
            if group.states.ids.shape[1] != rows:
                group = _group_resized(self._algorithm, group, rows)
        return list(range(group.size)) if places is None else places, group


def _with_rows(algorithm: GMMVI, state: State, rows: int) -> State:
    return state if state.mixture.num_components == rows else _resized(algorithm, state, rows)
