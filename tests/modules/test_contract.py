"""One contract for every option of every module, and all 432 combinations."""

import dataclasses
import itertools
import os
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiler_settings import AS_SHIPPED
from helpers import random_mixture

from natmix import GMMVI, MODULES, JaxTarget, Mixture
from natmix.kernels.compilation import compiler_options, quick_jit

OPTIONS = [(module, option) for module, options in MODULES.items() for option in options]
IDS = [option.letter for _, option in OPTIONS]
DEFAULT = {module: options[0] for module, options in MODULES.items()}
TARGET = random_mixture(21, 2, 2, spread=2.5)


def codename(**chosen):
    return "".join((DEFAULT | chosen)[m].letter for m in MODULES)


def algorithm(name, **overrides):
    defaults = {"sample_selector": {"desired_samples": 20}}
    if "A" in name:
        defaults["component_adaptation"] = {
            "add_iters": 5,
            "del_iters": 6,
            "database_size": 300,
            "prior_candidates": 5,
        }
    for module, values in overrides.items():
        defaults[module] = {**defaults.get(module, {}), **values}
    return GMMVI.from_codename(name, **defaults)


def start(diagonal, dtype):
    means = jnp.asarray([[-1.0, 0.0], [1.0, 1.0], [0.0, -2.0]], dtype)
    if diagonal:
        return Mixture.diagonal(jnp.ones(3), means, 4 * jnp.ones((3, 2), dtype))
    return Mixture.full(jnp.ones(3), means, 4 * jnp.broadcast_to(jnp.eye(2, dtype=dtype), (3, 2, 2)))


@quick_jit()
def thirty(algo, state, target):
    return jax.lax.scan(lambda s, _: algo.step(s, target), state, None, length=30)


def check_thirty_iterations(name, diagonal, dtype=jnp.float32, **overrides):
    algo = algorithm(name, **overrides)
    state = algo.init(0, start(diagonal, dtype), capacity=8 if "A" in name else 3)
    target = JaxTarget(TARGET.astype(dtype).log_prob, 2)
    state, infos = thirty(algo, state, target)
    for leaf in jax.tree.leaves(state.mixture.components):
        assert bool(jnp.all(jnp.isfinite(leaf)))
        assert leaf.dtype == dtype
    weights = np.asarray(state.mixture.weights, dtype=float)
    assert not np.isnan(weights).any()
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-4)
    assert bool(jnp.all(jnp.isfinite(infos.elbo)))
    assert int(infos.invalid.sum()) == 0
    # It learns, and most updates are usable.
    assert float(infos.elbo[-5:].mean()) > float(infos.elbo[0])
    assert int(infos.failed_updates.sum()) < 0.5 * int(infos.components.sum())
    return infos


@pytest.mark.parametrize(("module", "option"), OPTIONS, ids=IDS)
def test_an_option_documents_itself(module, option):
    assert len(option.letter) == 1
    assert option.letter.isupper()
    assert option.title
    assert option.__doc__
    names = [name for name, _, _ in option.hyperparameters()]
    fields = [f.name for f in dataclasses.fields(option) if "masks" not in f.metadata]
    assert names == fields  # every field is a documented hyperparameter
    for name, default, doc in option.hyperparameters():
        assert doc
        value = getattr(option(), name)
        assert value == default or np.isclose(float(value), default)
    assert set(option().settings()) == set(names)


@pytest.mark.parametrize(("module", "option"), OPTIONS, ids=IDS)
def test_an_option_keeps_its_state_and_continuous_hyperparameters_do_not_retrace(module, option):
    """Same tree, shapes and types after a step; other real hyperparameters, same program."""
    name = codename(**{module: option})
    algo = algorithm(name)
    changed = algorithm(name, **{module: _nudged(option)}) if _nudged(option) else algo
    state = algo.init(0, start(False, jnp.float64), capacity=5)
    target = JaxTarget(TARGET.log_prob, 2)
    arrays, static = eqx.partition(algo, eqx.is_array)
    others, also_static = eqx.partition(changed, eqx.is_array)
    assert eqx.tree_equal(static, also_static)
    traces = []

    @jax.jit
    def step(arrays, state):
        traces.append(1)
        return eqx.combine(arrays, static).step(state, target)[0]

    after = jax.eval_shape(step, arrays, state)
    again = jax.eval_shape(step, others, after)
    assert jax.tree.structure(after) == jax.tree.structure(state)  # type: ignore[operator]
    shapes = [(a.shape, a.dtype) for a in jax.tree.leaves(state)]
    assert shapes == [(a.shape, a.dtype) for a in jax.tree.leaves(again)]
    assert len(traces) == 1


def _nudged(option):
    """Other values for the hyperparameters that are arrays."""
    changed = {}
    for f in dataclasses.fields(option):
        if (
            "doc" in f.metadata
            and not f.metadata.get("static", False)
            and isinstance(getattr(option(), f.name), jax.Array)
        ):
            default = f.metadata["default"]
            if f.metadata.get("integer"):
                changed[f.name] = default + 1
                continue
            changed[f.name] = (
                1.0
                if default < f.metadata["low"]
                else default * 1.01
                if default * 1.01 <= f.metadata["high"]
                else default * 0.99
            )
    return changed


def pairwise():
    """Combinations in which every pair of options of two modules occurs, found greedily."""
    modules = list(MODULES)
    everything = list(itertools.product(*MODULES.values()))
    wanted = {
        (a, x, b, y)
        for a, b in itertools.combinations(range(len(modules)), 2)
        for x in MODULES[modules[a]]
        for y in MODULES[modules[b]]
    }

    def covered(row):
        return {(a, row[a], b, row[b]) for a, b in itertools.combinations(range(len(row)), 2)}

    rows = []
    while wanted:
        best = max(everything, key=lambda row: len(covered(row) & wanted))
        rows.append("".join(o.letter for o in best))
        wanted -= covered(best)
    return rows


PAIRWISE = pairwise()


@pytest.mark.parametrize(
    ("name", "diagonal"), list(zip(PAIRWISE, itertools.cycle([False, True]), strict=False))
)
def test_pairwise_combinations_run(name, diagonal):
    """Full and diagonal covariances in turn; the slow test has all combinations with both."""
    check_thirty_iterations(name, diagonal)


@pytest.mark.skipif(AS_SHIPPED, reason="everything here is")
def test_some_combinations_run_as_shipped():
    """With the compiler's options of users, which are fixed for a process; make test-slow has them all."""
    pairs = [f"{name}-{diagonal}" for name, diagonal in zip(PAIRWISE[:2], [False, True], strict=True)]
    tests = [f"test_pairwise_combinations_run[{pair}]" for pair in pairs]
    others = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "NPROC")}
    outcome = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
        + [f"{__file__}::{test}" for test in ["test_as_shipped_is_as_shipped", *tests]],
        env=others | {"NATMIX_TEST_AS_SHIPPED": "1"},
        capture_output=True,
        text=True,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.skipif(not AS_SHIPPED, reason="runs in a process of the test above and in make test-slow")
def test_as_shipped_is_as_shipped():
    assert "xla_backend_optimization_level=0" not in os.environ.get("XLA_FLAGS", "")
    assert compiler_options("cpu")["xla_backend_optimization_level"] > 0
    assert not jax.config.read("jax_disable_most_optimizations")


@pytest.mark.parametrize(
    "overrides",
    [
        {"sample_selector": {"reuse_ratio": 1.5}},
        {"ng_estimator": {"own_samples_only": True}},
        {"ng_estimator": {"self_normalised": False}, "weight_updater": {"self_normalised": False}},
        {"component_adaptation": {"database_size": 0}},
        {"sample_selector": {"min_new_samples": 0, "reuse_ratio": 2.0}},
    ],
    ids=["reuse", "own", "standard", "no-database", "no-new"],
)
def test_the_other_switches_run(overrides):
    check_thirty_iterations("SAMTRON", False, **overrides)


def test_float64():
    infos = check_thirty_iterations("SAMTRON", False, jnp.float64)
    assert infos.elbo.dtype == jnp.float64


ALL = ["".join(o.letter for o in row) for row in itertools.product(*MODULES.values())]


@pytest.mark.slow
@pytest.mark.parametrize("diagonal", [False, True], ids=["full", "diagonal"])
@pytest.mark.parametrize("name", ALL)
def test_all_432_combinations_run(name, diagonal):
    check_thirty_iterations(name, diagonal)
