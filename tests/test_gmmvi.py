"""The compiled step: padding, seeds and lengths of runs change nothing they should not."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import mixture_target, random_mixture

from natmix import GMMVI, Mixture
from natmix.engine import chunk_runner
from natmix.engine.capacity import grown
from natmix.engine.chunk_runner import ChunkRunner

TARGET = random_mixture(11, 3, 2, spread=3.0)
SMALL = {"desired_samples": 25}


def start(D=2, K=3, *, diagonal=False, dtype=jnp.float64, seed=1):
    means = 3 * jax.random.normal(jax.random.key(seed), (K, D), dtype)
    if diagonal:
        return Mixture.diagonal(jnp.ones(K), means, 4 * jnp.ones((K, D), dtype))
    return Mixture.full(jnp.ones(K), means, 4 * jnp.broadcast_to(jnp.eye(D, dtype=dtype), (K, D, D)))


def algorithm(codename, reuse=0.0, **overrides):
    adaptation = (
        {"add_iters": 3, "del_iters": 6, "database_size": 500, "prior_candidates": 7}
        if "A" in codename
        else {}
    )
    return GMMVI.from_codename(
        codename, sample_selector=SMALL | {"reuse_ratio": reuse}, component_adaptation=adaptation, **overrides
    )


@eqx.filter_jit
def run(algo, state, steps):
    """Steps, by the same program whatever their number: the last info, and the evaluations of all."""
    target = mixture_target(TARGET)

    def body(_, carry):
        state, _, evaluations = carry
        state, info = algo.step(state, target)
        return state, info, evaluations + info.evaluations

    info = jax.eval_shape(lambda s: algo.step(s, target)[1], state)
    nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), info)
    return jax.lax.fori_loop(0, steps, body, (state, nothing, jnp.zeros((), jnp.int32)))


def step(algo, state):
    return run(algo, state, jnp.asarray(1))[:2]


def by_identity(state):
    """Weights, means and covariances of the present components, in order of birth."""
    exists = np.flatnonzero(np.asarray(state.mixture.log_weights) > -np.inf)
    order = exists[np.argsort(np.asarray(state.ids)[exists])]
    m = state.mixture
    return [np.asarray(a)[order] for a in (m.weights, m.means, m.covariances)]


@pytest.mark.parametrize(
    ("codename", "reuse"),
    [("SAMTRON", 1.5), ("ZEPYFUX", 0.0), pytest.param("SAPIDUG", 1.5, marks=pytest.mark.slow)],
)
def test_one_step_does_not_depend_on_padding(codename, reuse):
    algo = algorithm(codename, reuse)
    state, *_ = run(algo, algo.init(0, start(), capacity=3 if "E" in codename else 6), jnp.asarray(6))
    padded = algo.resized(state, state.mixture.num_components + 5)
    one, info = step(algo, state)
    two, padded_info = step(algo, padded)
    for a, b in zip(by_identity(one), by_identity(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
    for field in dataclasses.fields(info):
        a, b = getattr(info, field.name), getattr(padded_info, field.name)
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10, err_msg=field.name)


@pytest.mark.parametrize("codename", ["SAMTRON", pytest.param("ZEPIDOG", marks=pytest.mark.slow)])
def test_vmap_over_seeds_agrees_with_separate_runs(codename):
    algo = algorithm(codename, reuse=1.5)
    target = mixture_target(TARGET)
    keys = jax.random.split(jax.random.key(5), 3)
    states = [run(algo, algo.init(k, start(), capacity=6), jnp.asarray(4))[0] for k in keys]
    together = jax.tree.map(lambda *a: jnp.stack(a), *states)
    stepped, infos = eqx.filter_jit(jax.vmap(lambda s: algo.step(s, target)))(together)
    for i, state in enumerate(states):
        alone, info = step(algo, state)
        same = jax.tree.map(lambda a, i=i: a[i], stepped)
        for a, b in zip(by_identity(alone), by_identity(same), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(infos.elbo[i], info.elbo, rtol=1e-9)


def test_vmap_from_the_start():
    algo = algorithm("SAMTRON")
    target = mixture_target(TARGET)

    @eqx.filter_jit
    def whole(keys):
        states = jax.vmap(lambda k: algo.init(k, start(), capacity=6))(keys)
        return jax.lax.scan(
            lambda s, _: jax.vmap(lambda v: algo.step(v, target))(s), states, None, length=10
        )[1]

    infos = whole(jax.random.split(jax.random.key(0), 4))
    assert infos.elbo.shape == (10, 4)
    assert bool(jnp.all(jnp.isfinite(infos.elbo)))
    assert len(set(np.asarray(infos.elbo[-1]).tolist())) == 4


def test_moving_rows_changes_nothing():
    algo = algorithm("SAMTRON")
    state, *_ = run(algo, algo.init(0, start(), capacity=8), jnp.asarray(40))
    assert int(state.births) > 3
    compact = algo.resized(state, 8)
    for a, b in zip(by_identity(step(algo, state)[0]), by_identity(step(algo, compact)[0]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("diagonal", [False, True])
def test_a_step_keeps_types_and_shapes(dtype, diagonal):
    """Otherwise a loop over steps would not compile, or would compile twice."""
    algo = algorithm("SAMTRON", reuse=1.0)
    state = algo.init(0, start(diagonal=diagonal, dtype=dtype), capacity=5)
    target = mixture_target(TARGET.astype(dtype))
    out, info = eqx.filter_eval_shape(lambda s: algo.step(s, target), state)

    def kinds(tree):
        leaves = jax.tree.leaves(eqx.filter(tree, lambda a: hasattr(a, "dtype")))
        return [(a.shape, a.dtype, getattr(a, "weak_type", False)) for a in leaves]

    assert kinds(state) == kinds(out)
    assert info.elbo.dtype == dtype


def counting(monkeypatch):
    """Counts how often a step is traced."""
    traces = []
    tell = GMMVI.tell

    def counted(self, *args):
        traces.append(1)
        return tell(self, *args)

    monkeypatch.setattr(GMMVI, "tell", counted)
    return traces


def test_traces_do_not_grow_with_iterations_seeds_stepsizes_or_the_database(monkeypatch):
    """Also while the database fills, overflows, and samples are reused."""
    traces = counting(monkeypatch)
    target = mixture_target(TARGET)
    for rate, seed, steps in ((0.1, 0, 30), (0.03, 1, 90)):
        adaptation = {"add_iters": 7, "del_iters": 6, "database_size": 400, "max_components": 6}
        algo = GMMVI.from_codename(
            "SAMTRON",
            sample_selector=SMALL | {"reuse_ratio": 1.0},
            component_adaptation=adaptation,
            component_stepsize={"stepsize": rate},
            temperature=1 + rate,
        )
        runner = ChunkRunner(algo, target, 6)
        state = algo.init(seed, start(), capacity=6)
        while int(state.iteration) < steps:
            state = runner.advance(state, 30, None).state
        if rate == 0.1:
            first = len(traces)
    assert int(state.component_adaptation.database.seen) > 400
    assert 1 <= first <= 2  # a chunk traces the step once for its shapes and once for its program
    assert len(traces) == first


def about_to_grow():
    """A runner and a state with one component, of four that have room, to which every iteration adds one."""
    algo = GMMVI.from_codename(
        "SAMYFUX",
        sample_selector={"desired_samples": 5},
        component_adaptation={"add_iters": 1, "del_iters": 50, "database_size": 600, "max_components": 20},
    )
    runner = ChunkRunner(algo, mixture_target(random_mixture(12, 3, 2, spread=3.0)), 20)
    return runner, algo.init(0, start(K=1), capacity=4)


def test_traces_grow_with_the_logarithm_of_the_components(monkeypatch):
    traces = counting(monkeypatch)
    runner, state = about_to_grow()
    capacities, expected = {4}, {4}
    while max(expected) < 20:
        expected.add(min(grown(runner.algorithm, max(expected), 2), 20))
    while int(jnp.sum(state.mixture.log_weights > -jnp.inf)) < 20:
        state = runner.advance(state, 50, None).state
        capacities.add(state.mixture.num_components)
    assert capacities == expected
    assert len(traces) <= 2 * len(capacities)


def growing(monkeypatch, forgetful):
    """Of a run that grows: its end, slots after every chunk, how often the host asked about a state."""
    asked = []
    outlook = chunk_runner._outlook
    monkeypatch.setattr(chunk_runner, "_outlook", lambda *a: asked.append(1) or outlook(*a))  # type: ignore[func-returns-value]
    (runner, state), rows = about_to_grow(), []
    while int(state.iteration) < 30:
        if forgetful:
            runner._known = None
        state = runner.advance(state, 3, None).state
        rows.append((int(state.iteration), state.mixture.num_components))
    return state, rows, len(asked)


def test_what_a_runner_knows_of_its_last_state_changes_nothing(monkeypatch):
    state, rows, asked = growing(monkeypatch, forgetful=False)
    other, others, often = growing(monkeypatch, forgetful=True)
    assert rows == others
    assert len({r for _, r in rows}) > 2
    np.testing.assert_array_equal(state.mixture.means, other.mixture.means)
    assert asked == 1  # about the first state
    assert often == len(rows)


def test_a_state_that_was_changed_is_read_again():
    algo = GMMVI.from_codename("SAMYFUX", component_adaptation={"add_iters": 30})
    runner = ChunkRunner(algo, mixture_target(TARGET), 20)
    state = algo.init(0, start(K=1), capacity=4)
    assert runner._fitted(state).mixture.num_components == 4
    full = eqx.tree_at(lambda s: s.mixture.log_weights, state, jnp.full(4, -jnp.log(4.0)))
    at_a_search = dataclasses.replace(full, iteration=jnp.asarray(30, jnp.int32))
    assert runner._fitted(at_a_search).mixture.num_components == min(grown(algo, 4, 2), 20)
    assert runner._fitted(state).mixture.num_components == 4


def test_vmap_in_single_precision_without_x64():
    """The sums in double precision within must not interfere."""
    target = mixture_target(random_mixture(12, 3, 2, spread=3.0, dtype=np.float32))
    algo = algorithm("SAMTRON")
    with jax.enable_x64(False):
        mixture = start(K=2, dtype=jnp.float32)
        states = jax.vmap(lambda k: algo.init(k, mixture, capacity=4))(jax.random.split(jax.random.key(0), 3))
        together, info = jax.jit(jax.vmap(lambda s: algo.step(s, target)))(states)
        alone, _ = jax.jit(lambda s: algo.step(s, target))(jax.tree.map(lambda a: a[1], states))
    assert together.mixture.dtype == jnp.float32
    assert np.isfinite(info.elbo).all()
    np.testing.assert_allclose(together.mixture.components.mean[1], alone.mixture.components.mean, rtol=1e-4)


def test_the_state_has_a_fixed_size():
    """Nothing in it grows with the length of the run."""
    algo = algorithm("SAMTRON", reuse=1.5)
    state = algo.init(0, start(), capacity=6)
    later, *_ = run(algo, state, jnp.asarray(50))
    sizes = [a.shape for a in jax.tree.leaves(eqx.filter(state, eqx.is_array))]
    assert sizes == [a.shape for a in jax.tree.leaves(eqx.filter(later, eqx.is_array))]


@pytest.mark.slow
def test_whole_runs_agree_statistically_whatever_the_padding():
    algo = algorithm("SEMTRON")
    target = mixture_target(TARGET)

    @eqx.filter_jit
    def finals(keys, capacity):
        states = jax.vmap(lambda k: algo.init(k, start(), capacity=capacity))(keys)
        infos = jax.lax.scan(
            lambda s, _: jax.vmap(lambda v: algo.step(v, target))(s), states, None, length=60
        )[1]
        return infos.elbo[-20:].mean(axis=0)

    one = np.asarray(finals(jax.random.split(jax.random.key(0), 12), 3))
    two = np.asarray(finals(jax.random.split(jax.random.key(1), 12), 9))
    error = np.sqrt(one.var() / 12 + two.var() / 12)
    assert abs(one.mean() - two.mean()) < 5 * error + 1e-3


def test_reuse_lowers_evaluations():
    fresh, reusing = algorithm("SEMTRON"), algorithm("SEMTRON", reuse=3.0)
    costs = []
    for algo in (fresh, reusing):
        costs.append(int(run(algo, algo.init(0, start(), capacity=3), jnp.asarray(60))[2]))
    assert costs[0] == 60 * 3 * 25
    assert costs[1] < 0.6 * costs[0]


def test_rows_too_few_for_the_components_get_a_sentence():
    algo = algorithm("SEMTRON")
    with pytest.raises(ValueError, match="3 components do not fit into 2 slots"):
        algo.resized(algo.init(0, start(), capacity=8), 2)


def test_a_state_with_reused_samples_does_not_shrink():
    algo = algorithm("SEMTRON", reuse=1.0)
    with pytest.raises(ValueError, match="cannot shrink"):
        algo.resized(algo.init(0, start(), capacity=8), 4)


def test_a_run_leaves_what_it_started_from():
    """The state is donated, chunk by chunk, and holds nothing of the caller's."""
    algo = algorithm("SAMTRON", reuse=1.0)
    mixture, prior = random_mixture(0, 3, 2), random_mixture(1, 1, 2)
    key = jax.random.key(0)
    state = algo.init(key, mixture, prior)
    for leaf in jax.tree.leaves(state):
        leaf.delete()
    assert all(bool(jnp.all(jnp.isfinite(a))) for a in jax.tree.leaves((mixture, prior)))
    jax.random.normal(key)
