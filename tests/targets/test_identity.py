"""A function that has come to mean something else is not taken for the old one."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

import natmix
from natmix.targets import HostTarget, JaxTarget
from natmix.targets.detection import as_target

data = {"mu": 0.0, "x": np.zeros(3)}


def found(fn, dim=2):
    return as_target(fn, dim, jnp.float64, np.zeros(dim)).target


def structure(target: Any) -> Any:
    return jax.tree.structure(target)


def test_programs_are_kept_while_the_function_means_the_same():
    def f(x):
        return -jnp.sum(jax.nn.softplus(x) + (x - data["mu"]) ** 2) - jnp.sum(jnp.asarray(data["x"]) ** 2)

    first = found(f)
    assert isinstance(first, JaxTarget)
    assert structure(found(f)) == structure(first)
    data["mu"] = 3.0
    second = found(f)
    assert structure(second) != structure(first)
    data["x"] = np.ones(3)
    third = found(f)
    assert structure(third) == structure(second)
    assert third.fn(np.zeros(2)) == f(np.zeros(2)) != second.fn(np.zeros(2))
    data["x"] = np.zeros(3)
    data["mu"] = 0.0


def test_a_batched_function_has_a_new_identity_when_its_data_change():
    def f(x):
        return -jnp.sum((x - data["mu"]) ** 2, axis=1)

    first = found(f)
    assert isinstance(first, JaxTarget)
    assert found(f).fn is first.fn
    data["mu"] = 3.0
    assert found(f).fn is not first.fn
    data["mu"] = 0.0


def test_a_second_fit_sees_changed_data():
    def f(x):
        return -0.5 * jnp.sum((x - data["mu"]) ** 2)

    options: dict[str, Any] = {
        "dim": 1,
        "max_iterations": 40,
        "progress": False,
        "algorithm": "semtrux",
        "init_scale": 3.0,
    }
    one = natmix.fit(f, **options)
    data["mu"] = 3.0
    two = natmix.fit(f, **options)
    data["mu"] = 0.0
    np.testing.assert_allclose([one.mixture.mean()[0], two.mixture.mean()[0]], [0, 3], atol=0.1)


def test_a_function_that_catches_its_own_errors_is_evaluated_on_the_host():
    def f(x):
        try:
            return float(scipy.stats.norm.logpdf(np.asarray(x)).sum())
        except Exception:
            return -np.inf

    target = found(f)
    assert isinstance(target, HostTarget)
    np.testing.assert_allclose(target.call(np.zeros((1, 2)), False)[0], -np.log(2 * np.pi))


def test_a_distribution_is_a_target():
    mixture = natmix.Mixture.diagonal([1.0], np.zeros((1, 2)), np.ones((1, 2)))
    assert isinstance(found(mixture), JaxTarget)
