"""The paper's loop (Algorithm 1): seven modules, one step."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from natmix.array_types import Count, Flag, KeyLike, PRNGKey, PyTree, RealLike
from natmix.kernels.compilation import quick_jit
from natmix.kernels.log_densities import relevant_log_prob
from natmix.kernels.plan import Plan, using
from natmix.kernels.sharding import Devices, as_mesh, everywhere, everywhere_alike, round_up_slots
from natmix.mixture import Mixture
from natmix.modules.changes import apply_change, candidates, iteration_info
from natmix.modules.component_adaptation import AbstractComponentAdaptation
from natmix.modules.component_adaptation.base import EvaluatedSamples
from natmix.modules.component_stepsizes import AbstractComponentStepsize
from natmix.modules.component_stepsizes.base import Rewards
from natmix.modules.component_updaters import AbstractComponentUpdater
from natmix.modules.expectations import expected_log_ratios, objective
from natmix.modules.hyperparameters import ShapeBounds, real
from natmix.modules.ng_estimators import AbstractNgEstimator
from natmix.modules.per_component import PerComponent, take_slots
from natmix.modules.records import Evaluation, Query
from natmix.modules.sample_selectors import AbstractSampleSelector
from natmix.modules.state import Info, State, padded, placed_state, take_components
from natmix.modules.weight_stepsizes import AbstractWeightStepsize
from natmix.modules.weight_updaters import AbstractWeightUpdater
from natmix.random_keys import as_key
from natmix.targets import AbstractTarget


class GMMVI(eqx.Module):
    """Natural-gradient variational inference with a Gaussian mixture: one option per module.

    `from_codename` builds any of the 432 combinations. `init`, `step`, and for targets outside JAX
    `ask` and `tell`, are pure functions for `jax.jit` and `jax.vmap`; `natmix.fit` drives them.
    `on` makes the same algorithm for several devices.
    """

    sample_selector: AbstractSampleSelector
    component_stepsize: AbstractComponentStepsize
    ng_estimator: AbstractNgEstimator
    component_updater: AbstractComponentUpdater
    weight_stepsize: AbstractWeightStepsize
    weight_updater: AbstractWeightUpdater
    component_adaptation: AbstractComponentAdaptation
    temperature: RealLike = real(1.0, "T, scales the entropy term", low=0, strict=True)
    zero_penalty: RealLike = real(
        30.0, "nats by which a density of zero counts as below the worst positive one", low=0, strict=True
    )
    mesh: Mesh | None = eqx.field(static=True, default=None, converter=as_mesh)
    """The devices that components and samples are divided among; None for one device."""

    def __check_init__(self) -> None:
        from natmix.modules.codenames import check_modules

        check_modules(self)

    @classmethod
    def from_codename(cls, codename: str, **overrides: Any) -> "GMMVI":
        """The combination with this seven-letter name, in any order and case.

        Args:
            codename: for example ``"samtron"``.
            **overrides: by module: a dictionary of hyperparameters, or an option itself; and
                ``temperature``, ``zero_penalty``.
        """
        from natmix.modules.codenames import fields_of

        return cls(**fields_of(codename, overrides))

    @property
    def codename(self) -> str:
        """The seven letters, upper case, in the paper's order."""
        from natmix.modules.codenames import codename

        return codename(self)

    def on(self, mesh: Devices | None) -> "GMMVI":
        """The same algorithm on several devices: the same numbers, up to the order of sums.

        Components (in `State`) and samples are divided among the devices, so the number of component slots
        is rounded up to a multiple of theirs. States of one mesh do not fit another.

        Args:
            mesh: a mesh with one axis, ``jax.make_mesh((8,), ("components",))``, or a list of devices; None
                for one device.
        """
        return dataclasses.replace(self, mesh=as_mesh(mesh))

    def masked(self, bounds: ShapeBounds) -> "GMMVI":
        """The same algorithm for a program that other settings share.

        Numbers of samples and candidates become arrays below these bounds, and masks give their results.
        """
        from natmix.modules.codenames import MODULES

        options = {module: getattr(self, module).masked(bounds) for module in MODULES}
        return dataclasses.replace(self, **options)

    def fitted(self, state: State) -> State:
        """The state of an algorithm with the same numbers and other bounds (`masked`), for this one."""
        slots = state.mixture.num_components
        return dataclasses.replace(
            state,
            sample_selector=self.sample_selector.resized(state.sample_selector, slots, slots),
            component_adaptation=self.component_adaptation.fitted(state.component_adaptation),
        )

    def plan(self, tree: PyTree = None) -> Plan:
        """How to compute with the arrays of this tree: by their device and by the mesh."""
        return Plan.of(tree).on(self.mesh)

    def settings(self) -> dict[str, Any]:
        """All choices and hyperparameters, as plain Python."""
        from natmix.modules.codenames import settings

        return settings(self)

    # The algorithm ------------------------------------------------------------------------------

    def init(
        self, key: KeyLike, mixture: Mixture, prior: Mixture | None = None, capacity: int | None = None
    ) -> State:
        """The state before the first iteration.

        Args:
            key: a JAX key or an integer seed; every random number of the run follows from it.
            mixture: the initial mixture.
            prior: one Gaussian, the region in which components are expected; by default it has the mean and
                the covariance of the initial mixture.
            capacity: slots for components, at least as many as the mixture has.
        """
        state = _fresh_state(self, as_key(key), mixture, prior, capacity)
        with using(self.plan(state)):
            return placed_state(state)

    def step(self, state: State, target: AbstractTarget) -> tuple[State, Info]:
        """One iteration on a target inside JAX."""
        query = self.ask(state)
        return self.tell(state, query, self.evaluate(state, query, target))

    def evaluate(self, state: State, query: Query, target: AbstractTarget) -> Evaluation:
        """The target at the points of the query."""
        key = _iteration_keys(state).target
        plan = self.plan(state)
        with using(plan if target.inside_jax else plan.alone()):
            return target.evaluate(key, query.points, query.count, self.ng_estimator.needs_gradient)

    def ask(self, state: State) -> Query:
        """The points at which this iteration needs the target."""
        self._check_slots(state)
        with using(self.plan(state)):
            return self._ask(state)

    def _ask(self, state: State) -> Query:
        keys = _iteration_keys(state)
        mixture = _known_weights(state.mixture)
        draws = self.sample_selector.ask(
            state.sample_selector, keys.draws, state.iteration, mixture, state.ids
        )
        extra = self.component_adaptation.candidates(keys.candidates, state.prior)
        adds = self.component_adaptation.wants_to_add(state.iteration, state.mixture)
        points = jnp.concatenate([draws.x, jnp.zeros_like(extra)])
        points = jax.lax.dynamic_update_slice_in_dim(points, extra, draws.count, 0)
        count = draws.count + jnp.where(adds, self.component_adaptation.num_candidates(), 0)
        return Query(points, count.astype(jnp.int32), draws)

    def tell(self, state: State, query: Query, evaluation: Evaluation) -> tuple[State, Info]:
        """The rest of the iteration, given the target at the points of the query."""
        self._check_slots(state)
        with using(self.plan(state)):
            state = dataclasses.replace(state, mixture=_known_weights(state.mixture))
            new_state, info = self._tell(state, query, evaluation)
            return placed_state(new_state), info

    def _check_slots(self, state: State) -> None:
        """Check that the slots can be divided evenly among the devices."""
        slots = state.mixture.num_components
        if round_up_slots(slots, self.mesh) != slots:
            assert self.mesh is not None
            raise ValueError(
                f"A state with {slots} component slots cannot be divided among {self.mesh.size} devices; "
                "make it with `init` or `resized` of the algorithm on this mesh."
            )

    def _tell(self, state: State, query: Query, evaluation: Evaluation) -> tuple[State, Info]:
        algo = _cast(self, state.mixture.dtype)
        T = algo.temperature
        draws = query.draws
        n = draws.x.shape[0]
        log_density = evaluation.log_density[:n]
        gradient = None if evaluation.gradient is None else evaluation.gradient[:n]

        selector_state, batch = algo.sample_selector.tell(
            state.sample_selector,
            draws,
            log_density,
            gradient,
            state.iteration,
            state.mixture,
            algo.zero_penalty,
        )
        component_state, stepsizes = algo.component_stepsize.update(
            state.component_stepsize, state.rewards.value, state.updates.value
        )
        natural_gradient = algo.ng_estimator.estimate(
            state.ng_estimator, state.mixture, batch, T, algo.zero_penalty
        )
        present = state.mixture.exists
        components, success = algo.component_updater.update(
            state.mixture.components, natural_gradient, stepsizes, state.updates.value, T, present
        )
        estimator_state = algo.ng_estimator.feedback(state.ng_estimator, success)

        mixture = Mixture(state.mixture.log_weights, components)
        weight_state, weight_stepsize = algo.weight_stepsize.update(
            state.weight_stepsize, objective(mixture, state.rewards.value, T), state.iteration
        )
        log_components = relevant_log_prob(
            components,
            batch.x,
            batch.count,
            mixture.log_weights,
            batch.near,
            log_background=batch.log_background,
        )
        log_ratio, elbo = expected_log_ratios(
            mixture, batch, log_components, T, algo.weight_updater.self_normalised
        )
        exists = mixture.log_weights > -jnp.inf
        reward = jnp.where(exists, T * mixture.log_weights + log_ratio, 0)
        rewards = state.rewards.set(Rewards(reward, state.rewards.value.records + 1))
        log_weights = everywhere_alike(
            algo.weight_updater.update, mixture.log_weights, log_ratio, weight_stepsize, T
        )
        mixture = Mixture(log_weights, components)

        adaptation_state, change = algo.component_adaptation.adapt(
            state.component_adaptation,
            _iteration_keys(state).adaptation,
            state.iteration,
            mixture,
            rewards.value,
            EvaluatedSamples(draws.x, log_density, jnp.arange(n) < draws.count),
            candidates(query, evaluation),
            state.prior,
            T,
        )
        new_state = State(
            key=state.key,
            iteration=state.iteration + 1,
            mixture=mixture,
            prior=state.prior,
            ids=state.ids,
            births=state.births,
            updates=state.updates.set(state.updates.value + 1),
            rewards=rewards,
            sample_selector=selector_state,
            component_stepsize=component_state,
            ng_estimator=estimator_state,
            weight_stepsize=weight_state,
            component_adaptation=adaptation_state,
        )
        new_state, added = apply_change(new_state, everywhere(change))
        info = iteration_info(
            state, new_state, query, evaluation, batch, elbo, success, stepsizes, weight_stepsize
        )
        info = dataclasses.replace(
            info, added=added, deleted=jnp.sum(change.delete, dtype=jnp.int32), candidate_gain=change.gain
        )
        return new_state, _strong(info)

    def next_evaluations_at_most(self, state: State) -> Count:
        """A bound on the evaluations of the target in the next step."""
        components = jnp.sum(state.mixture.log_weights > -jnp.inf, dtype=jnp.int32)
        adds = self.component_adaptation.wants_to_add(state.iteration, state.mixture)
        extra = jnp.where(adds, self.component_adaptation.num_candidates(), 0)
        return self.sample_selector.next_draws_at_most(components) + extra

    def needs_room(self, state: State) -> Flag:
        """Whether the next step may add a component and no slot is free."""
        full = jnp.all(state.mixture.log_weights > -jnp.inf)
        return full & self.component_adaptation.wants_to_add(state.iteration, state.mixture)

    def resized(self, state: State, capacity: int) -> State:
        """The same state with ``capacity`` slots for components; the present ones move to the front.

        On several devices the number is rounded up to a multiple of theirs.
        """
        capacity = round_up_slots(capacity, self.mesh)
        exists = state.mixture.log_weights > -jnp.inf
        old = exists.shape[0]
        if capacity < old and state.sample_selector is not None:
            raise ValueError("A state that reuses samples cannot shrink: their Gaussians need the slots.")
        if not isinstance(exists, jax.core.Tracer) and int(jnp.sum(exists)) > capacity:
            raise ValueError(f"{int(jnp.sum(exists))} components do not fit into {capacity} slots.")
        front = jnp.argsort(~exists, stable=True)
        order = jnp.concatenate([front, jnp.full(max(0, capacity - old), -1)])[:capacity]
        order = jnp.where((order >= 0) & exists[order], order, -1)
        moved = take_slots(state, order)
        resized = dataclasses.replace(
            moved,
            mixture=take_components(state.mixture, order),
            ids=jnp.where(order >= 0, state.ids[order], jnp.arange(capacity, dtype=jnp.int32)),
            sample_selector=self.sample_selector.resized(state.sample_selector, old, capacity),
        )
        with using(self.plan(state)):
            return placed_state(resized)


def _known_weights(mixture: Mixture) -> Mixture:
    """The mixture with its weights replicated on all devices."""
    return Mixture(everywhere(mixture.log_weights), mixture.components)


@quick_jit()
def _fresh_state(
    algorithm: GMMVI, key: PRNGKey, mixture: Mixture, prior: Mixture | None, capacity: int | None
) -> State:
    """`GMMVI.init` as one program. Its results are new arrays, so that a run may donate them."""
    if prior is None:
        wide = type(mixture.components).from_covariance(mixture.mean()[None], mixture.covariance()[None])
        prior = Mixture(jnp.zeros(1, mixture.dtype), wide)
    K = mixture.num_components
    mixture = padded(mixture, round_up_slots(max(capacity or K, K), algorithm.mesh))
    K2, dtype = mixture.num_components, mixture.dtype
    algo = _cast(algorithm, dtype)
    no_rewards = Rewards(jnp.zeros((), dtype), jnp.zeros((), jnp.int32))
    state = State(
        key=key,
        iteration=jnp.zeros((), jnp.int32),
        mixture=mixture,
        prior=prior,
        ids=jnp.arange(K2, dtype=jnp.int32),
        births=jnp.max(jnp.where(mixture.log_weights > -jnp.inf, jnp.arange(1, K2 + 1, dtype=jnp.int32), 0)),
        updates=PerComponent.full(K2, jnp.zeros((), jnp.int32)),
        rewards=PerComponent.full(K2, no_rewards),
        sample_selector=algo.sample_selector.init(mixture, algo.ng_estimator.needs_gradient),
        component_stepsize=algo.component_stepsize.init(mixture),
        ng_estimator=algo.ng_estimator.init(mixture),
        weight_stepsize=algo.weight_stepsize.init(mixture),
        component_adaptation=algo.component_adaptation.init(mixture, prior),
    )
    return _strong(jax.tree.map(lambda a: jnp.array(a, copy=True), state))


class _Keys(NamedTuple):
    """The random keys of one iteration, one for each use."""

    draws: PRNGKey
    target: PRNGKey
    candidates: PRNGKey
    adaptation: PRNGKey


def _iteration_keys(state: State) -> _Keys:
    return _Keys(*jax.random.split(jax.random.fold_in(state.key, state.iteration), len(_Keys._fields)))


def _cast(tree: PyTree, dtype: Any) -> Any:
    """The tree with its floating-point arrays in the type of the run."""
    return jax.tree.map(lambda a: a.astype(dtype) if eqx.is_inexact_array(a) else a, tree)


def _strong(tree: PyTree) -> Any:
    """The tree without weak types, which would cause a second compilation."""
    return jax.tree.map(
        lambda a: jax.lax.convert_element_type(a, a.dtype) if eqx.is_inexact_array(a) else a, tree
    )
