"""Gradients that a target brings with it, right and wrong."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natmix
from natmix import HostTarget, JaxTarget
from natmix.targets import TargetError
from natmix.targets.gradient_check import check_gradient, evaluations_of_check

jax.config.update("jax_enable_x64", True)

KINDS = ("gauss", "student", "logistic", "funnel", "laplace", "mixture")


def random_target(kind, rng, offset):
    """(value, gradient) of a random target, its scales, and a centre; all in float64."""
    D = int(rng.choice([2, 3, 10]))
    s = 10 ** rng.uniform(-2, 2, size=D)
    m = np.zeros(D) if kind == "funnel" else s * rng.normal(size=D)
    if kind == "gauss":
        A = rng.normal(size=(D, D))
        P = A @ A.T / D + 0.1 * np.eye(D)

        def f(z):
            return -0.5 * z @ P @ z, -P @ z
    elif kind == "student":

        def f(z):
            return -(3 + D) / 2 * np.log1p(z @ z / 3), -(3 + D) / (3 + z @ z) * z
    elif kind == "logistic":
        X, y = rng.normal(size=(50, D)), rng.integers(2, size=50) * 2 - 1

        def f(z):
            t = y * (X @ z)
            return -np.logaddexp(0, -t).sum() - 0.5 * z @ z, X.T @ (y / (1 + np.exp(t))) - z
    elif kind == "funnel":

        def f(z):
            v, rest = z[0], z[1:] @ z[1:] * np.exp(-z[0])
            g = -z * np.exp(-v)
            g[0] = -v / 9 + 0.5 * rest - (D - 1) / 2
            return -(v**2) / 18 - 0.5 * rest - (D - 1) * v / 2, g
    elif kind == "laplace":

        def f(z):
            return -np.abs(z).sum(), -np.sign(z)
    else:
        c = 4 * rng.normal(size=(3, D))

        def f(z):
            log = -0.5 * ((z - c) ** 2).sum(axis=1)
            total = np.logaddexp.reduce(log)
            return total, -np.exp(log - total) @ (z - c)

    def target(x):
        value, gradient = f((x - m) / s)
        return value + offset, gradient / s

    return target, s, m


def wrong_in(target, i, factor):
    def wrong(x):
        value, gradient = target(x)
        gradient = np.array(gradient)
        gradient[i] *= factor
        return value, gradient

    return wrong


@pytest.mark.parametrize(("dtype", "offset"), [(jnp.float64, 1e4), (jnp.float32, 3000.0)])
def test_right_gradients_pass_and_wrong_ones_are_named(dtype, offset):
    rng = np.random.default_rng(0)
    found = 0
    for i in range(210):
        target, s, m = random_target(KINDS[i % len(KINDS)], rng, rng.uniform(-offset, offset))
        D, scale = len(s), s * 10 ** rng.uniform(-0.5, 0.5)
        points = m + scale * rng.normal(size=(4, D))
        bad = int(rng.integers(D))
        right = HostTarget(target, D, returns_gradient=True)
        check = check_gradient(right, jax.random.key(0), points, scale, dtype)
        assert check.suspicious == (), KINDS[i % len(KINDS)]
        assert check.evaluations <= 2 * D + 8
        wrong = HostTarget(wrong_in(target, bad, rng.choice([0.95, 1.05])), D, returns_gradient=True)
        check = check_gradient(wrong, jax.random.key(0), points, scale, dtype)
        assert check.evaluations <= 2 * D + 8
        found += bool(check.suspicious) and check.suspicious[0].coordinate == bad
    assert found >= 0.99 * 210


def right(x):
    return -0.5 * jnp.sum(x**2), -x


def doubled(x):
    return -0.5 * jnp.sum(x**2), -x * jnp.array([1.0, 1.0, 2.0])


def test_a_fit_refuses_a_wrong_gradient_and_names_the_coordinate():
    with pytest.raises(TargetError, match=r"in coordinate 2: it says .* Correct it, or give the log density"):
        natmix.fit(doubled, dim=3, max_iterations=3, progress=False)
    host = HostTarget(lambda x: -0.5 * x @ x, 3, gradient=lambda x: x)  # its sign is wrong
    with pytest.raises(TargetError, match=r"in coordinate \d, and 2 more"):
        natmix.fit(host, max_iterations=3, progress=False)
    only_values = natmix.fit(HostTarget(host.fn, 3), max_iterations=2, progress=False)
    assert only_values.counts.iterations == 2


def test_it_is_counted_and_stays_within_the_limit():
    quick: dict[str, Any] = {
        "algorithm": "semtron",
        "start": "region",
        "elbo_samples": 100,
        "progress": False,
    }
    result = natmix.fit(right, dim=3, max_evaluations=5000, **quick)
    assert result.counts.probe_evaluations == 2 * 3 + 6
    assert result.counts.evaluations <= 5000
    quick |= {"elbo_samples": 10, "sample_selector": {"desired_samples": 20}}
    few = natmix.fit(doubled, dim=3, max_evaluations=100, **quick)
    assert few.counts.probe_evaluations == 0  # the check would take more than a tenth


def test_the_run_itself_is_the_same_with_and_without():
    checked = natmix.fit(right, dim=3, max_iterations=5, progress=False)
    plain = natmix.fit(lambda x: -0.5 * jnp.sum(x**2), dim=3, max_iterations=5, progress=False)
    np.testing.assert_allclose(checked.mixture.means, plain.mixture.means, atol=1e-9)


def test_what_needs_no_check():
    def noisy(key, x):
        return -0.5 * jnp.sum(x**2) + jax.random.normal(key), -x

    stochastic = JaxTarget(noisy, 3, stochastic=True, returns_gradient=True)
    by_jax = JaxTarget(lambda x: -0.5 * jnp.sum(x**2), 3)
    values = HostTarget(lambda x: -0.5 * x @ x, 3)
    assert [evaluations_of_check(t) for t in (stochastic, by_jax, values)] == [0, 0, 0]
    assert evaluations_of_check(JaxTarget(right, 3, returns_gradient=True)) == 2 * 3 + 8


def test_noise_in_the_values_and_lost_digits_are_no_wrong_gradient():
    rng = np.random.default_rng(1)
    points, scale = rng.normal(size=(4, 3)), np.ones(3)
    noisy = HostTarget(lambda x: (-0.5 * x @ x + 0.1 * rng.normal(), -x), 3, returns_gradient=True)
    large = HostTarget(lambda x: (-0.5 * x @ x - 1e20, -x), 3, returns_gradient=True)
    outside = HostTarget(lambda x: (-np.inf, 0 * x), 3, returns_gradient=True)
    for target in (noisy, large, outside):
        assert check_gradient(target, jax.random.key(0), points, scale, jnp.float32).suspicious == ()
