"""A batch of states advances as each of them alone would."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_problem import SMALL, tiny

from natmix import JaxTarget
from natmix.engine.batch_runner import BatchRunner
from natmix.engine.capacity import grown
from natmix.engine.chunk_runner import ChunkRunner
from natmix.engine.runner import CHUNK
from natmix.engine.stacking import Stacked, obstacle
from natmix.experiments import runs
from natmix.experiments.runs import Limits
from natmix.kernels.batching import batch_any, batch_max

pytestmark = pytest.mark.usefixtures("quick_compilation")

SEEDS = (0, 1, 2)
ITERATIONS = 30
MOST = 1000


def configuration(limits=None, dtype="float64", **overrides):
    changed = {module: {**SMALL.get(module, {}), **values} for module, values in overrides.items()}
    limits = limits or Limits(max_iterations=ITERATIONS)
    return runs.configure(tiny(dtype=dtype), overrides={**SMALL, **changed}, dtype=dtype, limits=limits)


def first_state(config, seed, rows=4):
    key, start = jax.random.split(jax.random.key(seed))
    mixture, prior = config.start.mixture(start, 1, jnp.dtype(config.dtype))
    return config.algorithm.init(key, mixture, prior, rows)


def advanced(runner, states, iterations=ITERATIONS, chunk=20):
    """The last states and all infos, by name, with the iterations first and the seeds second."""
    infos = []
    while (done := int(states[0].iteration)) < iterations:
        results = runner.advance_batch(states, min(chunk, iterations - done), [None] * len(states))
        states = [r.state for r in results]
        infos.append({k: np.stack([r.infos[k] for r in results], axis=1) for k in results[0].infos})
    return states, {k: np.concatenate([i[k] for i in infos]) for k in infos[0]}


def alone_and_batched(config, problems, rows):
    targets = [p.target for p in problems]
    fresh = [[first_state(config, s, n) for s in range(len(targets))] for n in (rows, 8)]
    together = advanced(BatchRunner(config.algorithm, targets, MOST), fresh[0])
    alone = [
        advanced(ChunkRunner(config.algorithm, t, MOST), [s]) for t, s in zip(targets, fresh[1], strict=True)
    ]
    return together, alone


def assert_states_agree(here, there, rtol):
    """Two states, perhaps with different numbers of rows, hold the same components."""
    a, b = (dict(zip(*present(s), strict=True)) for s in (here, there))
    assert a.keys() == b.keys()
    for i, row in a.items():
        for x, y in zip(row, b[i], strict=True):
            np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)


def present(state):
    rows = np.flatnonzero(np.asarray(state.mixture.log_weights) > -np.inf)
    leaves = [np.asarray(a) for a in jax.tree.leaves(state.mixture)]
    return np.asarray(state.ids)[rows].tolist(), [[a[r] for a in leaves] for r in rows]


# The numbers ------------------------------------------------------------------------------------


def assert_same(together, alone):
    states, infos = together
    assert np.all(infos["added"].sum(axis=0) > 3)
    assert np.all(infos["deleted"].sum(axis=0) > 0)
    for s, ((state,), own) in enumerate(alone):
        for name, values in own.items():
            np.testing.assert_allclose(infos[name][:, s], values[:, 0], rtol=1e-8, atol=1e-12, err_msg=name)
        assert_states_agree(states[s], state, rtol=1e-8)


def test_together_and_alone_are_the_same():
    together, alone = alone_and_batched(configuration(), [tiny(s) for s in SEEDS], rows=4)
    assert together[0][0].mixture.num_components > 4  # it had to grow
    assert_same(together, alone)


def test_together_and_alone_are_the_same_with_reused_samples():
    config = configuration(sample_selector={"reuse_ratio": 1.0, "max_age": 4})
    assert_same(*alone_and_batched(config, [tiny(s) for s in SEEDS[:2]], rows=4))


@pytest.mark.slow
def test_together_in_single_precision():
    problems = [tiny(s, "float32") for s in SEEDS[:2]]
    with jax.enable_x64(False):
        config = configuration(dtype="float32")
        runner = BatchRunner(config.algorithm, [p.target for p in problems], MOST)
        states, infos = advanced(runner, [first_state(config, s) for s in SEEDS[:2]], 7)
    assert {a.dtype for a in jax.tree.leaves(states[0].mixture)} == {np.dtype("float32")}
    assert infos["added"].sum(axis=0).tolist() == [1, 1]
    assert np.all(np.isfinite(infos["elbo"]))


def test_rows_shrink_at_fixed_iterations_to_what_the_largest_seed_needs():
    config = configuration()
    runner = BatchRunner(config.algorithm, [tiny(s).target for s in SEEDS], MOST)
    wanted = {}
    for components in (2, 32, 33):
        for iteration in (CHUNK - 1, CHUNK):
            wide = [first_state(config, s, rows=128) for s in SEEDS]
            there = jnp.arange(128) < jnp.asarray([1, components, 1])[:, None]
            states = [
                dataclasses.replace(
                    state,
                    iteration=jnp.asarray(iteration, jnp.int32),
                    mixture=dataclasses.replace(state.mixture, log_weights=jnp.where(t, -1.0, -jnp.inf)),
                )
                for state, t in zip(wide, there, strict=True)
            ]
            wanted[components, iteration - CHUNK] = runner.next_capacity(states)
    assert wanted == {
        (2, -1): 128,
        (2, 0): 64,
        (32, -1): 128,
        (32, 0): 64,
        (33, -1): 128,
        (33, 0): 128,
    }
    states[1] = dataclasses.replace(
        states[1], mixture=dataclasses.replace(states[1].mixture, log_weights=jnp.full(128, -1.0))
    )
    full = [dataclasses.replace(s, iteration=jnp.asarray(CHUNK + 2, jnp.int32)) for s in states]  # 130
    assert runner.next_capacity(full) == grown(runner.algorithm, 128, full[0].mixture.dim) > 128


def test_a_group_that_makes_no_progress_says_so(monkeypatch):
    """Rather than to try again for ever."""
    config = configuration()
    group = BatchRunner(config.algorithm, [tiny(s).target for s in (0, 1)], MOST)
    monkeypatch.setattr("natmix.gmmvi.GMMVI.needs_room", lambda self, state: jnp.asarray(True))
    with pytest.raises(RuntimeError, match=r"batch cannot go on .*--apart"):
        advanced(group, [first_state(config, s) for s in (0, 1)], 5)


def test_states_of_finished_seeds_stay_readable():
    config = configuration()
    runner = BatchRunner(config.algorithm, [tiny(s).target for s in SEEDS], MOST)
    results = runner.advance_batch([first_state(config, s) for s in SEEDS], 3, [None] * 3)
    left = results[0].state
    before = np.asarray(left.mixture.log_weights).copy()
    for _ in range(2):
        results = runner.advance_batch([r.state for r in results[-2:]], 1, [None] * 2)
    assert [int(r.state.iteration) for r in results] == [5, 5]
    np.testing.assert_array_equal(left.mixture.log_weights, before)


def test_states_have_their_samples_when_they_are_asked_for_and_until_the_group_goes_on():
    config = configuration(sample_selector={"reuse_ratio": 1.0, "max_age": 4})
    targets = [tiny(s).target for s in SEEDS[:2]]
    together = BatchRunner(config.algorithm, targets, MOST)
    results = together.advance_batch([first_state(config, s, 8) for s in SEEDS[:2]], 5, [None] * 2)
    for seed, result in zip(SEEDS, results, strict=False):
        alone = ChunkRunner(config.algorithm, targets[seed], MOST).advance(
            first_state(config, seed, 8), 5, None
        )
        whole = result.full_state()
        assert result.state.sample_selector is None
        assert jax.tree.structure(whole) == jax.tree.structure(alone.state)  # type: ignore[operator]
        for a, b in zip(*map(jax.tree.leaves, (whole, alone.state)), strict=True):
            if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
                a, b = jax.random.key_data(a), jax.random.key_data(b)
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
    together.advance_batch([r.state for r in results], 1, [None] * 2)
    with pytest.raises(RuntimeError, match="has gone on"):
        results[0].full_state()


# Branches and loops -----------------------------------------------------------------------------


def test_branches_stay_branches_and_while_loops_stay_short():
    def branch(x):
        return jax.lax.cond(batch_any(x > 2), lambda: jnp.where(x > 2, jnp.sin(x), 0.0), lambda: 0.0)

    x = jnp.arange(4.0)
    assert "cond" in str(jax.make_jaxpr(jax.vmap(branch))(x))
    np.testing.assert_allclose(jax.vmap(branch)(x), np.where(x > 2, np.sin(x), 0))
    assert batch_any(jnp.asarray(False)) == False  # noqa: E712

    def rounds(n):
        return jax.lax.fori_loop(0, batch_max(n), lambda _, c: c + 1, 0)

    assert jax.vmap(rounds)(jnp.array([1, 5, 3])).tolist() == [5, 5, 5]
    assert rounds(jnp.asarray(2)) == 2


def test_the_search_for_a_new_component_stays_a_branch(monkeypatch):
    config, target = configuration(), tiny().target
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *(first_state(config, s) for s in SEEDS))

    def branches():
        program = jax.make_jaxpr(jax.vmap(lambda s: config.algorithm.step(s, target)))(stacked)
        return str(program).count("cond[")

    agreed = branches()
    monkeypatch.setattr("natmix.modules.component_adaptation.vips.batch_any", lambda flag: flag)
    assert branches() < agreed


# Targets ----------------------------------------------------------------------------------------


def test_what_targets_share_is_kept_once():
    same = Stacked.build([tiny(4).target, tiny(4).target])
    assert jax.tree.leaves(same.varying) == []
    other = Stacked.build([tiny(s).target for s in SEEDS])
    assert [a.shape for a in jax.tree.leaves(other.varying)] == [(3, 2, 2)]


def test_targets_that_cannot_run_together():
    assert obstacle([tiny(s).target for s in SEEDS]) is None
    assert "differ in shape" in obstacle([tiny().target, tiny(centres=np.zeros((3, 2))).target])
    assert "different functions" in obstacle([JaxTarget(lambda x: -x @ x, 2), JaxTarget(lambda x: x[0], 2)])


def test_capacity_shrinks_at_fixed_iterations_only():
    config = configuration()
    wide = config.start.mixture(jax.random.key(0), 128, jnp.float64)[0]
    thin = dataclasses.replace(wide, log_weights=jnp.where(jnp.arange(128) < 2, -np.log(2.0), -jnp.inf))
    state = config.algorithm.init(0, thin)
    runner = ChunkRunner(config.algorithm, tiny().target, MOST)
    capacity = {}
    for iteration in (CHUNK - 1, CHUNK, CHUNK + 1):
        at = dataclasses.replace(state, iteration=jnp.asarray(iteration, jnp.int32))
        capacity[iteration - CHUNK] = runner._fitted(at).mixture.num_components
    assert capacity == {-1: 128, 0: 64, 1: 128}
