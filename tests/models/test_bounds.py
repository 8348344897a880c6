"""Bounded variables outside JAX: the transformation in NumPy, its chain rule, and the targets that use it."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import natmix
from natmix.models import as_model
from natmix.models.bounds import Bounds
from natmix.targets import AbstractTwoForms, HostTarget, as_target

jax.config.update("jax_enable_x64", True)

BOUNDS = Bounds(np.array([0.0, -np.inf, 2.0, -np.inf]), np.array([1.0, np.inf, np.inf, -3.0]))
PAIR = tuple(BOUNDS)


def points(n=50, scale=3.0):
    return np.random.default_rng(0).normal(0, scale, (n, 4))


def target_of(fn, dim=None, position=None, bounds=None):
    model = as_model(fn, dim, None, None, position, bounds)
    return as_target(model.target(), model.dim, jnp.result_type(float), np.zeros(model.dim)).target


def outside(log_density):
    """The function where JAX cannot trace it."""

    def fn(x):
        return log_density(np.asarray(x, float))

    return fn


# The transformation ------------------------------------------------------------------------------


def test_many_points_are_transformed_as_each_alone():
    z = points()
    found = BOUNDS.constrained(z)
    x = jax.vmap(BOUNDS.constrain)(z)
    log_jacobian = jax.vmap(BOUNDS.log_jacobian)(z)
    slope = jax.vmap(jax.grad(lambda one: jnp.sum(BOUNDS.constrain(one))))(z)
    gradient = jax.vmap(jax.grad(BOUNDS.log_jacobian))(z)
    np.testing.assert_allclose(found.x, x, rtol=1e-14)
    np.testing.assert_allclose(found.log_jacobian, log_jacobian, rtol=1e-13)
    np.testing.assert_allclose(found.slope, slope, rtol=1e-13)
    np.testing.assert_allclose(found.log_jacobian_gradient, gradient, rtol=1e-12, atol=1e-14)


def test_densities_have_the_closed_forms_of_transformed_variables():
    """The logit of a uniform variable is logistic, the logarithm of an exponential one is Gumbel."""
    z = points()
    one = z[:, :1]
    uniform = Bounds(np.array([-1.0]), np.array([4.0])).constrained(one)
    np.testing.assert_allclose(uniform.log_jacobian - np.log(5), stats.logistic.logpdf(one[:, 0]), rtol=1e-12)
    below = Bounds(np.array([2.0]), np.array([np.inf])).constrained(one)
    density = stats.expon.logpdf(below.x[:, 0], loc=2) + below.log_jacobian
    np.testing.assert_allclose(density, stats.gumbel_l.logpdf(one[:, 0]), rtol=1e-9, atol=1e-12)
    above = Bounds(np.array([-np.inf]), np.array([2.0])).constrained(one)
    density = stats.expon.logpdf(-above.x[:, 0], loc=-2) + above.log_jacobian
    np.testing.assert_allclose(density, stats.gumbel_l.logpdf(one[:, 0]), rtol=1e-9, atol=1e-12)


def test_far_points_stay_finite():
    found = BOUNDS.constrained(np.array([[700.0, 700.0, 700.0, 700.0], [-700.0, -700.0, -700.0, -700.0]]))
    assert all(np.isfinite(part).all() for part in found)
    np.testing.assert_allclose(found.log_jacobian, [-700 + 700 + 700, -700 - 700 - 700])


# Targets -----------------------------------------------------------------------------------------


def log_density(x):
    return stats.beta(2, 3).logpdf(x[0]) + stats.norm.logpdf(x[1]) + stats.gamma(3, loc=2).logpdf(x[2]) + x[3]


def slopes(x):
    return np.array([1 / x[0] - 2 / (1 - x[0]), -x[1], 2 / (x[2] - 2) - 1, 1.0])


def many(x):
    return np.array([log_density(row) for row in x])


def many_slopes(x):
    return np.array([slopes(row) for row in x])


@pytest.mark.parametrize(
    "given",
    [
        HostTarget(log_density, 4, gradient=slopes),
        HostTarget(many, 4, batched=True, gradient=many_slopes, batch_size=7),
        HostTarget(lambda x: (log_density(x), slopes(x)), 4, returns_gradient=True),
        outside(lambda x: (log_density(x), slopes(x))),
    ],
    ids=["gradient", "batched", "pair", "function"],
)
def test_gradients_follow_by_the_chain_rule(given):
    target = target_of(given, 4, bounds=PAIR)
    assert isinstance(target, HostTarget)
    z = points(12, 1.0)
    values, gradients = target.call(z, needs_gradient=True)
    at = BOUNDS.constrained(z)
    np.testing.assert_allclose(values, many(at.x) + at.log_jacobian, rtol=1e-12)
    alone, nothing = target.call(z, needs_gradient=False)
    assert nothing is None
    np.testing.assert_array_equal(alone, values)
    for d, step in enumerate(1e-5 * np.eye(4)):
        difference = (target.call(z + step, False)[0] - target.call(z - step, False)[0]) / 2e-5
        np.testing.assert_allclose(gradients[:, d], difference, rtol=1e-6, atol=1e-6)


def test_a_position_reaches_the_function_with_its_shapes():
    seen = {}

    def fn(p):
        seen.update({name: (type(value), np.shape(value)) for name, value in p.items()})
        value = float(p["a"])
        return -np.sum(p["m"] ** 2) - value, {"a": -1.0, "m": -2 * p["m"]}

    position = {"a": 0.5, "m": np.ones((2, 3))}
    target = target_of(fn, position=position, bounds={"a": (0, 1)})
    z = np.random.default_rng(1).normal(size=(3, 7))
    values, gradients = target.call(z, needs_gradient=True)
    assert seen == {"a": (np.float64, ()), "m": (np.ndarray, (2, 3))}
    share = 1 / (1 + np.exp(-z[:, 0]))
    np.testing.assert_allclose(values, -np.sum(z[:, 1:] ** 2, axis=1) - share + np.log(share * (1 - share)))
    np.testing.assert_allclose(gradients[:, 1:], -2 * z[:, 1:])
    np.testing.assert_allclose(gradients[:, 0], -share * (1 - share) + 1 - 2 * share)


def test_inside_and_outside_of_jax_a_bounded_function_is_the_same():
    def fn(p):
        return -(p["x"] ** 2) - jnp.sum(p["y"]), {"x": -2 * p["x"], "y": -jnp.ones(2)}

    position, bounds = {"x": 0.5, "y": np.ones(2)}, {"x": (0, 1), "y": (0, None)}
    model = as_model(fn, None, None, None, position, bounds)
    form = model.target()
    assert isinstance(form, AbstractTwoForms)
    assert form == model.target()
    host = form.host_target(batched=False, returns_gradient=True)
    z = np.random.default_rng(2).normal(size=(5, 3))
    values, gradients = host.call(z, needs_gradient=True)
    in_jax = as_target(form, 3, jnp.float64, np.zeros(3)).target
    inside = in_jax.evaluate(jax.random.key(0), jnp.asarray(z), 5, True)
    slope = jax.grad(model.log_density)(jnp.asarray(z[0]))
    np.testing.assert_allclose(inside.log_density, values, rtol=1e-12)
    np.testing.assert_allclose(inside.gradient, gradients, rtol=1e-12)
    np.testing.assert_allclose(slope, gradients[0], rtol=1e-12)


def test_a_host_target_with_bounds_is_fitted():
    """A batched function on an executor: Beta(2, 3), of which mean and evidence are known."""
    with ThreadPoolExecutor(2) as executor:
        target = HostTarget(lambda x: stats.beta(2, 3).logpdf(x[:, 0]), 1, batched=True, executor=executor)
        result = natmix.fit(
            target,
            bounds=(0, 1),
            max_iterations=40,
            verify=False,
            progress=False,
            sample_selector={"desired_samples": 40},
        )
    x = result.sample(4000)
    assert x.min() > 0
    assert x.max() < 1
    assert x.mean() == pytest.approx(0.4, abs=0.02)
    assert result.diagnosis.log_evidence.value == pytest.approx(0.0, abs=0.05)


def test_a_bounded_target_can_be_pickled():
    target = target_of(HostTarget(many, 4, batched=True), bounds=PAIR)
    z = points(3)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(target)).call(z, False)[0], target.call(z, False)[0]
    )


@pytest.mark.parametrize(
    ("given", "arguments", "words"),
    [
        (HostTarget(many, 4), {"bounds": {"a": (0, 1)}}, "A HostTarget is a function of vectors"),
        (HostTarget(many, 4), {"dim": 3, "bounds": (0, 1)}, "The position has 3 numbers, but .* dim=4"),
        (
            natmix.JaxTarget(jnp.sum, 4),
            {"bounds": (0, 1)},
            "give the function itself, or a HostTarget, not a Jax",
        ),
        (3, {"dim": 1, "bounds": (0, 1)}, "must be a function of a position"),
    ],
)
def test_targets_that_cannot_have_bounds(given, arguments, words):
    with pytest.raises(ValueError, match=words):
        natmix.fit(given, **arguments)


def test_a_gradient_of_another_structure_is_told():
    def fn(p):
        return -float(p["x"]), {"y": -1.0}

    with pytest.raises(natmix.TargetError, match="must have the structure"):
        natmix.fit(fn, position={"x": 0.5}, bounds={"x": (0, 1)}, progress=False)
