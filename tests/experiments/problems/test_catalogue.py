"""Loading by name, and what holds for every problem."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem_helpers import evaluate

from natmix.experiments import problems

KEY = jax.random.key(0)
TABLE = tuple(n for n in problems.names() if n not in ("talos", "stm300", "gmm100"))
CASES = [
    ("breast_cancer", "target"),
    ("breast_cancer_mb", "target"),
    ("german_credit_mb", "reference"),
    ("planar_robot_4", "target"),
    ("gmm4", "target"),
    ("stm4", "target"),
    ("wine", "target"),
    ("wine", "reference"),
]
"""Every kind of density once."""


@cache
def load(name, seed=0, dtype="float64"):
    return problems.load(name, seed=seed, dtype=dtype)


@cache
def points(name, n=6):
    """Points where the density is neither flat nor tiny: between a mode, if known, and the start."""
    problem = load(name)
    if problem.sample is not None:
        return problem.sample(n, key=jax.random.key(1))
    return 0.1 * jax.random.normal(jax.random.key(1), (n, problem.dim))


def test_names():
    assert problems.names()[:11] == problems.PAPER
    assert {"planar_robot_1", "breast_cancer_testsplit", "german_credit_testsplit"} < set(problems.names())


@pytest.mark.parametrize("name", TABLE)
def test_catalogue_knows_without_loading(name):
    entry, problem = problems.catalogue()[name], load(name)
    assert (entry.name, entry.dim, entry.title) == (problem.name, problem.dim, problem.title)
    assert len(problem.start.mean) == problem.reference.dim == problem.dim


def test_talos_is_registered():
    problem = problems.load("talos", dtype="float64")
    entry = problems.catalogue()["talos"]
    assert (problem.name, problem.dim, problem.title) == ("talos", 34, entry.title)
    with pytest.raises(ValueError, match="centre_of_mass"):
        problems.load("talos", centre_of_mass="false")


@pytest.mark.parametrize(("name", "which"), CASES)
def test_gradients(name, which):
    target, x = getattr(load(name), which), points(name)
    gradient = evaluate(target, x).gradient
    direction = jax.random.normal(jax.random.key(2), x.shape)
    step = 1e-5
    ahead, behind = (evaluate(target, x + s * step * direction).log_density for s in (1, -1))
    slope = jnp.sum(gradient * direction, axis=1)
    scale = jnp.linalg.norm(gradient, axis=1) * jnp.linalg.norm(direction, axis=1)
    np.testing.assert_allclose((ahead - behind) / (2 * step) / scale, slope / scale, atol=1e-6)


@pytest.mark.parametrize(("name", "which"), CASES)
def test_float32_agrees(name, which):
    x = points(name).astype(jnp.float32)
    coarse = evaluate(getattr(load(name, dtype="float32"), which), x)
    fine = evaluate(getattr(load(name), which), x.astype(jnp.float64))
    assert coarse.log_density.dtype == coarse.gradient.dtype == jnp.float32
    np.testing.assert_allclose(coarse.log_density, fine.log_density, rtol=2e-5, atol=1e-4)
    scale = jnp.abs(fine.gradient).max(axis=1, keepdims=True)
    np.testing.assert_allclose(coarse.gradient / scale, fine.gradient / scale, atol=2e-5)


@pytest.mark.parametrize(("name", "which"), CASES)
def test_targets_of_several_seeds_stack(name, which):
    apart = [getattr(load(name, seed), which) for seed in (0, 1)]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *apart)
    x = points(name)
    stacked = eqx.filter_jit(jax.vmap(lambda t: t.evaluate(KEY, x, len(x), True)))(together)
    for row, target in enumerate(apart):
        single = evaluate(target, x)
        np.testing.assert_allclose(stacked.log_density[row], single.log_density, rtol=1e-9)
        np.testing.assert_allclose(stacked.gradient[row], single.gradient, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["gmm4", "stm4", "wine", "breast_cancer_mb"])
def test_seeds_share_one_program(name):
    traced = []

    @eqx.filter_jit
    def compiled(target, x):
        traced.append(name)
        return target.evaluate(KEY, x, len(x), True)

    for seed in (0, 1):
        compiled(load(name, seed).target, points(name))
    assert len(traced) == 1


@pytest.mark.parametrize("name", ["gmm4", "stm4", "wine"])
def test_targets_random_by_nature_follow_the_seed(name):
    x = points(name)
    values = [evaluate(load(name, seed).reference, x, gradient=False).log_density for seed in (0, 1)]
    assert not np.allclose(*values)


@pytest.mark.parametrize("name", ["breast_cancer", "planar_robot_4", "gmm4", "wine"])
def test_blocks_change_nothing(name):
    target = load(name).reference
    n = target.batch_size + 3
    x = 0.1 * jax.random.normal(jax.random.key(3), (n, target.dim))
    whole, few = evaluate(target, x), evaluate(target, x[-4:])
    np.testing.assert_allclose(whole.log_density[-4:], few.log_density, rtol=1e-10)
    np.testing.assert_allclose(whole.gradient[-4:], few.gradient, rtol=1e-8, atol=1e-8)


STARTS = {
    "breast_cancer": (10, 100),
    "breast_cancer_testsplit": (10, 100),
    "german_credit": (10, 100),
    "german_credit_mb": (10, 100),
    "planar_robot_4": ((1,) + 9 * (0.2,), (0.0625,) + 9 * (0.0025,)),
    "gmm20": (31.63, 1000),
    "stm20": (100, 300),
    "wine": (1, 1),
}


@pytest.mark.parametrize("name", STARTS)
def test_starts(name):
    start = load(name).start
    dim = load(name).dim
    np.testing.assert_allclose(start.mean, np.zeros(dim))
    np.testing.assert_allclose(start.mean_scale, np.broadcast_to(STARTS[name][0], dim))  # type: ignore[call-overload]
    np.testing.assert_allclose(start.variance, np.broadcast_to(STARTS[name][1], dim))  # type: ignore[call-overload]


def test_default_type_is_that_of_jax():
    assert problems.load("gmm3").modes.dtype == jnp.float64  # conftest.py enables it
    assert problems.load("gmm3", dtype=np.float32).modes.dtype == jnp.float32
    with jax.enable_x64(False):
        assert problems.load("gmm3").modes.dtype == jnp.float32
        with pytest.raises(ValueError, match="jax_enable_x64"):
            problems.load("gmm3", dtype="float64")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("breast-cancer", "Did you mean 'breast_cancer'"),
        ("winee", "Did you mean 'wine'"),
        ("German_Credit", "Did you mean 'german_credit'"),
        ("gmm0", "gmmD and stmD exist for D from 1"),
        ("stm", "gmmD and stmD exist for D from 1"),
        ("zzz", "There are breast_cancer, "),
        (3, "There are breast_cancer, "),
    ],
)
def test_unknown_names(name, hint):
    with pytest.raises(ValueError, match=f"No test problem is called {name!r}. {hint}"):
        problems.load(name)


def test_unknown_options():
    with pytest.raises(ValueError, match=r"gmm20 has no option 'component'\. Did you mean 'components'"):
        problems.load("gmm20", component=3)
    with pytest.raises(ValueError, match=r"planar_robot_4 has no option 'goals'\. There are none"):
        problems.load("planar_robot_4", goals=2)
    with pytest.raises(ValueError, match="breast_cancer has no option 'minibatch'"):
        problems.load("breast_cancer", minibatch=3)


@pytest.mark.parametrize("seed", [-1, 2**32, 1.0, True, "one"])
def test_bad_seed(seed):
    with pytest.raises(ValueError, match="seed must be a whole number"):
        problems.load("gmm3", seed=seed)


@pytest.mark.parametrize("dtype", ["int32", "float16", "double trouble"])
def test_bad_dtype(dtype):
    with pytest.raises(ValueError, match="dtype must be float32 or float64"):
        problems.load("gmm3", dtype=dtype)
