"""Evaluations of a target are counted exactly, and never more than allowed."""

import logging
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quartic_target import (
    D,
    found,
    jax_point,
    numpy_batch,
    numpy_batch_both,
    numpy_batch_gradient,
    numpy_gradient,
    numpy_point,
)

import natmix
from natmix import HostTarget, TargetError
from natmix.initialization.default_algorithm import resolve_algorithm

pytestmark = pytest.mark.usefixtures("quick_compilation")


class Counted:
    """Counts the points it is given, and those its gradient is."""

    def __init__(self, batched=False, gradient=True):
        self.values = self.gradients = self.largest = 0
        self.batched, self.allowed = batched, gradient

    def value(self, x):
        x = np.asarray(x)
        n = len(x) if self.batched else 1
        self.values += n
        self.largest = max(self.largest, n)
        return (numpy_batch if self.batched else numpy_point)(x)

    def gradient(self, x):
        if not self.allowed:
            raise AssertionError("no gradient may be asked for")
        self.gradients += len(x) if self.batched else 1
        return (numpy_batch_gradient if self.batched else numpy_gradient)(x)

    def target(self, **kind):
        return HostTarget(dim=D, fn=self.value, gradient=self.gradient, batched=self.batched, **kind)


FEW: dict[str, Any] = {
    "sample_selector": {"desired_samples": 20},
    "component_adaptation": {"add_iters": 3, "prior_candidates": 7},
}


def test_what_is_set_aside_for_the_elbo_is_spent():
    few: dict[str, Any] = {"sample_selector": {"desired_samples": 10}, "verify": False, "progress": False}
    outside = natmix.HostTarget(lambda x: -0.5 * float(x @ x), 2)
    result = natmix.fit(outside, algorithm="zemtron", max_evaluations=1000, **few)
    assert result.stopped == "max_evaluations"
    assert result.counts.elbo_evaluations == 100
    assert 980 <= result.counts.evaluations <= 1000


@pytest.mark.parametrize("reuse", [0.0, 2.0])
@pytest.mark.parametrize("batched", [False, True])
def test_host_evaluations_are_counted_exactly(batched, reuse):
    counted = Counted(batched)
    few: dict[str, Any] = {**FEW, "sample_selector": {"desired_samples": 20, "reuse_ratio": reuse}}
    result = natmix.fit(counted.target(batch_size=6), max_iterations=8, algorithm="samtron", **few)
    c = result.counts
    assert counted.values == c.evaluations
    assert c.evaluations == c.probe_evaluations + c.training_evaluations + c.elbo_evaluations
    assert counted.gradients == c.probe_evaluations + c.training_evaluations
    assert result.trajectory["total_evaluations"][-1] == c.first_evaluations + c.training_evaluations
    assert c.probe_evaluations == 2 * D + 6  # its gradient is right, and nothing is checked twice
    assert counted.largest <= 6
    extra = 2 * 7  # candidates for new components in iterations 3 and 6
    assert c.added == 2
    if reuse == 0:
        assert c.training_evaluations == 20 * (4 * 1 + 3 * 2 + 1 * 3) + extra
    else:
        assert c.training_evaluations < 20 * 13 + extra


def test_the_probe_counts(caplog):
    counted = Counted(gradient=False)
    with caplog.at_level(logging.WARNING, logger="natmix"):
        result = natmix.fit(counted.value, dim=D, max_iterations=3, **FEW)
    assert counted.values == result.counts.evaluations
    assert result.counts.probe_evaluations == 1
    assert result.algorithm.codename == "ZAMTRON"
    lines = [r.getMessage() for r in caplog.records if r.name == "natmix"]
    assert len(lines) == 1
    assert "ZAMTRON" in lines[0]
    assert "no gradient" in lines[0]
    assert "\n" not in lines[0]
    assert lines[0] in result.notes
    assert lines[0] in result.summary()


def test_z_never_asks_for_gradients():
    counted = Counted(gradient=False)
    natmix.fit(counted.target(), max_iterations=3, algorithm="zamtron", **FEW)
    assert counted.gradients == 0
    with pytest.raises(TargetError, match="no gradient may be asked for"):
        natmix.fit(counted.target(), max_iterations=3, **FEW)


@jax.custom_jvp
def _not_differentiable(x):
    return x


@_not_differentiable.defjvp
def _refuse(primals, tangents):
    raise AssertionError("nobody may differentiate this")


def not_differentiable(x):
    return jax_point(_not_differentiable(x))


def test_z_never_differentiates(caplog):
    result = natmix.fit(not_differentiable, dim=D, max_iterations=3, algorithm="zamydux", **FEW)
    assert result.counts.iterations == 3
    assert not result.notes
    with caplog.at_level(logging.WARNING, logger="natmix"):
        chosen, target, notes = resolve_algorithm(
            None, found(not_differentiable), jnp.float64, natmix.FullGaussians, {}
        )
    assert chosen.codename == "ZAMTRON"
    assert not target.has_gradient
    assert "cannot differentiate" in notes[0]
    assert notes[0] in caplog.text
    with pytest.raises(ValueError, match="needs gradients"):
        natmix.fit(not_differentiable, dim=D, algorithm="samtron")


def test_gradients_wanted_and_not_there():
    with pytest.raises(ValueError, match="SEMTRON needs gradients"):
        natmix.fit(numpy_point, dim=D, algorithm="semtron")
    with pytest.raises(ValueError, match="ZAMTRON"):
        natmix.fit(HostTarget(dim=D, fn=numpy_point), algorithm=natmix.GMMVI.from_codename("samtron"))


@pytest.mark.parametrize("limit", [23, 60, 100, 351])
def test_max_evaluations_is_never_exceeded(limit):
    counted = Counted()
    result = natmix.fit(counted.target(), max_evaluations=limit, algorithm="samtron", **FEW)
    assert counted.values == result.counts.evaluations <= limit
    assert result.stopped == "max_evaluations"
    assert result.counts.iterations >= 1


def test_max_evaluations_too_small():
    counted = Counted()
    with pytest.raises(ValueError, match="max_evaluations=20 is not enough"):
        natmix.fit(counted.target(), max_evaluations=20, algorithm="samtron", **FEW)
    assert counted.values == 0


def test_same_fit_inside_and_outside_jax():
    inside = natmix.fit(jax_point, dim=D, max_iterations=12, algorithm="samtron", **FEW)
    outside = natmix.fit(
        HostTarget(dim=D, fn=numpy_batch_both, batched=True, returns_gradient=True),
        max_iterations=12,
        algorithm="samtron",
        **FEW,
    )
    np.testing.assert_allclose(inside.mixture.means, outside.mixture.means, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(inside.trajectory["elbo"], outside.trajectory["elbo"], rtol=1e-6)


def test_minibatch_logistic_regression():
    """Minibatches of a logistic regression lead to the posterior of the full data."""
    rng = np.random.default_rng(3)
    features = np.column_stack([np.ones(400), rng.normal(size=400)])
    labels = (rng.uniform(size=400) < 1 / (1 + np.exp(-features @ [0.3, -1.0]))).astype(float)

    def log_density(w, rows, scale):
        z = features_[rows] @ w
        return scale * jnp.sum(labels_[rows] * z - jax.nn.softplus(z)) - 0.5 * jnp.sum(w**2) / 10

    features_, labels_ = jnp.asarray(features), jnp.asarray(labels)

    def minibatch(key, w):
        return log_density(w, jax.random.randint(key, (100,), 0, 400), 4.0)

    result = natmix.fit(
        minibatch,
        dim=2,
        algorithm="SEMTRON",
        max_iterations=150,
        sample_selector={"desired_samples": 200},
        component_stepsize={"max_stepsize": 0.05},
    )
    assert result.counts.probe_evaluations == 0

    def whole(w):
        return log_density(w, jnp.arange(400), 1.0)

    slope, full = jax.jit(jax.grad(whole)), jax.jit(jax.hessian(whole))
    mode = jnp.zeros(2)
    for _ in range(10):
        mode = mode - jnp.linalg.solve(full(mode), slope(mode))
    sigma = np.sqrt(np.diag(np.linalg.inv(-np.asarray(full(mode)))))
    assert np.all(np.abs(np.asarray(result.mixture.mean()) - mode) < 1.0 * sigma)
    assert np.all(np.asarray(result.mixture.std()) / sigma < 1.5)
    assert np.all(np.asarray(result.mixture.std()) / sigma > 0.6)
