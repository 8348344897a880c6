"""Bad input gets one clear sentence before any long work; bad values never reach the mixture."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natmix
from natmix import GMMVI, HostTarget, Mixture, TargetError
from natmix.engine.chunk_runner import ChunkRunner
from natmix.modules.records import Evaluation
from natmix.targets import AbstractTarget

pytestmark = pytest.mark.usefixtures("quick_compilation")


SMALL: dict[str, Any] = {
    "sample_selector": {"desired_samples": 60},
    "component_adaptation": {
        "max_components": 8,
        "add_iters": 20,
        "prior_candidates": 50,
        "database_size": 5000,
        "database_candidates": 2000,
    },
}


def normal(x):
    return -0.5 * jnp.sum(x**2)


def host_normal(x):
    return -0.5 * float(np.sum(np.asarray(x) ** 2))


def assert_healthy(result):
    for leaf in jax.tree.leaves(result.mixture):
        assert np.isfinite(np.asarray(leaf)).all()
    assert np.isclose(np.sum(np.asarray(result.mixture.weights)), 1, atol=1e-5)
    assert np.isfinite(np.asarray(result.mixture.log_prob(result.mixture.sample(10, key=1)))).all()
    result.summary()


# Arguments --------------------------------------------------------------------------------------

BAD = [
    ({"max_iterations": 0}, "max_iterations"),
    ({"max_iterations": 2.5}, "max_iterations"),
    ({"max_iterations": None}, "max_iterations"),
    ({"max_evaluations": 0}, "max_evaluations"),
    ({"max_evaluations": 50}, "max_evaluations=50 is not enough"),
    ({"max_seconds": 0}, "max_seconds"),
    ({"max_seconds": "1"}, "max_seconds"),
    ({"max_seconds": np.nan}, "max_seconds"),
    ({"tolerance": -1}, "tolerance"),
    ({"tolerance": None}, "tolerance"),
    ({"elbo_samples": 1}, "elbo_samples"),
    ({"seed": 1.5}, "seed"),
    ({"seed": -1}, "seed"),
    ({"seed": 2**40}, "seed"),
    ({"covariance": "spherical"}, "'full'(,| or) 'diagonal'"),
    ({"dtype": "float16"}, "float32 or float64"),
    ({"dtype": int}, "float32 or float64"),
    ({"dtype": "nonsense"}, "float32 or float64"),
    ({"init_scale": 0.0}, "init_scale must be positive"),
    ({"init_scale": [1.0, -2.0]}, "init_scale must be positive"),
    ({"init_scale": [1.0, 1.0, 1.0]}, r"init_scale must be a number or have shape \[2\]"),
    ({"init_scale": "wide"}, "init_scale must hold real numbers"),
    ({"init_scale": np.inf}, "init_scale must be finite"),
    ({"init_scale": 1e-200, "dtype": "float32"}, "init_scale is zero or infinite in float32"),
    ({"init_mean": 1e60, "dtype": "float32"}, "init_mean is infinite in float32"),
    ({"init_mean": np.nan}, "init_mean must be finite"),
    ({"init_mean": [0.0, np.inf]}, "init_mean must be finite"),
    ({"init_mean": 1j}, "init_mean must hold real numbers"),
    ({"init_mean": [0.0, "a"]}, "init_mean must hold real numbers"),
    ({"init_covariance": 0.0}, "variance of zero"),
    ({"init_covariance": [[1.0, 1.0], [1.0, 1.0]]}, "singular"),
    ({"init_covariance": [[1.0, 2.0], [2.0, 1.0]]}, "not positive definite"),
    ({"init_covariance": [[1.0, 0.5], [0.0, 1.0]]}, "symmetric"),
    ({"init_covariance": [[1e-12, 5e-13], [0.0, 1e-12]]}, "symmetric"),
    ({"init_covariance": np.eye(3)}, r"init_covariance must be a number or have shape"),
    ({"init_covariance": [[np.nan, 0], [0, 1]]}, "finite"),
    ({"init_covariance": [[1.0, 0.5], [0.5, 1.0]], "covariance": "diagonal"}, "off the diagonal"),
    ({"init_covariance": 1.0, "init_scale": 1.0}, "not both"),
    ({"box": (1.0, -1.0)}, "low < high"),
    ({"box": 3.0}, "pair"),
    ({"box": ([0, 0], [1, np.inf])}, "finite"),
    ({"box": (-1.0, 1.0), "init_mean": 0.0}, "not both"),
    ({"init_components": 0}, "init_components"),
    ({"init_components": True}, "init_components"),
    ({"init_mixture": "start"}, "natmix.Mixture"),
    ({"init_mixture": Mixture.full([1.0], np.zeros((1, 3)), np.eye(3)[None])}, "3 dimensions"),
    (
        {"init_mixture": Mixture.diagonal([1.0], np.zeros((1, 2)), np.ones((1, 2))), "covariance": "full"},
        "diagonal",
    ),
    (
        {"init_mixture": Mixture.full([1.0], np.zeros((1, 2)), np.eye(2)[None]), "init_components": 2},
        "not both",
    ),
    ({"algorithm": "samtro"}, "has no letter for"),
    ({"algorithm": "szmtron"}, "both choose"),
    ({"algorithm": "samtroq"}, "is not the letter of an option"),
    ({"algorithm": 7}, "codename"),
    ({"sample_selectr": {"desired_samples": 10}}, "Did you mean 'sample_selector'"),
    ({"max_iter": 10}, "Did you mean 'max_iterations'"),
    ({"qwxyz": 1}, "by module"),
    ({"sample_selector": {"desired": 10}}, "no hyperparameter 'desired'"),
    ({"sample_selector": 10}, "dictionary"),
    ({"sample_selector": {"desired_samples": 0}}, "desired_samples"),
    ({"sample_selector": {"desired_samples": 10.5}}, "whole number"),
    ({"component_stepsize": {"stepsize": -0.1}}, "stepsize must lie in"),
    ({"weight_stepsize": {"stepsize": -0.1}}, "stepsize must lie in"),
    ({"component_stepsize": {"stepsize": np.nan}}, "stepsize must lie in"),
    ({"temperature": 0.0}, "temperature"),
    ({"zero_penalty": -1.0}, "zero_penalty"),
    ({"algorithm": GMMVI.from_codename("samtron"), "temperature": 2.0}, "finished algorithm"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=lambda v: v if isinstance(v, str) else "")
def test_a_bad_argument_gets_a_sentence_before_any_work(arguments, message, monkeypatch):
    def work(*arguments, **others):
        raise AssertionError("iterations began")

    monkeypatch.setattr(ChunkRunner, "advance", work)
    with pytest.raises(ValueError, match=message) as error:
        natmix.fit(normal, dim=2, **arguments)
    assert "\n" not in str(error.value)
    assert str(error.value)[-1] in ".?"


def test_a_mixture_with_nan_is_no_start():
    good = Mixture.full([0.5, 0.5], np.zeros((2, 2)), np.stack([np.eye(2)] * 2))
    bad = jax.tree.map(lambda a: a.at[0].set(jnp.nan), good)
    with pytest.raises(ValueError, match="not finite"):
        natmix.fit(normal, init_mixture=bad)


def test_dim_is_needed():
    with pytest.raises(ValueError, match="Give dim"):
        natmix.fit(normal)


# A target that raises ---------------------------------------------------------------------------


def test_raising_at_the_first_point():
    def target(x):
        raise OSError("no licence")

    with pytest.raises(TargetError, match="OSError: no licence") as error:
        natmix.fit(target, dim=2)
    assert error.value.result is None
    with pytest.raises(TargetError, match="OSError: no licence") as error:
        natmix.fit(HostTarget(dim=2, fn=target), **SMALL)
    assert error.value.result is None
    assert error.value.evaluations == 1


@pytest.mark.parametrize("at", [3 * 60 + 7, 5 * 60 + 11])
def test_raising_in_the_middle_keeps_what_was_reached(at):
    calls = 0

    def target(x):
        nonlocal calls
        calls += 1
        if calls == at:
            raise OSError("disk full")
        return host_normal(x)

    limit: dict[str, Any] = {
        "max_iterations": 5,
        "elbo_samples": 100,
    }  # the second case fails in the final ELBO
    with pytest.raises(TargetError, match="OSError: disk full") as error:
        natmix.fit(HostTarget(dim=2, fn=target), algorithm="zamtron", init_scale=3.0, **limit, **SMALL)
    result = error.value.result
    assert isinstance(error.value.__cause__, OSError)
    assert result is not None
    assert result.stopped == "failed"
    assert result.counts.iterations == (3 if at < 300 else 5)
    assert result.counts.evaluations == calls == at
    assert result.elbo.samples == (0 if at < 300 else 11)
    assert "not estimated" in result.summary()
    assert_healthy(result)


def test_raising_inside_jax_keeps_what_was_reached(caplog):
    calls = 0

    def check(x):
        nonlocal calls
        calls += 1
        if calls > 1000:
            raise OSError("no more")
        return np.zeros(np.shape(x)[:-1])

    def target(x):
        return normal(x) + jax.pure_callback(
            check, jax.ShapeDtypeStruct((), x.dtype), x, vmap_method="sequential"
        )

    with pytest.raises(TargetError, match="OSError: no more") as error:
        natmix.fit(target, dim=2, algorithm="zamtron", max_iterations=100, **SMALL)
    assert error.value.result is not None
    assert 1 <= error.value.result.counts.iterations < 100
    assert_healthy(error.value.result)
    assert not caplog.records  # jax would log the whole traceback


def test_an_error_of_equinox_is_its_own_sentence(caplog):
    def target(x):
        return normal(eqx.error_if(x, jnp.abs(x[0]) > 1, "a joint is beyond its limit"))

    with pytest.raises(TargetError) as error:
        natmix.fit(target, dim=2, algorithm="zamtron", max_iterations=5, **SMALL)
    assert str(error.value).startswith("An iteration failed: a joint is beyond its limit")
    assert not caplog.records


@dataclasses.dataclass
class Simulator:
    """With an equality of its own and therefore without a hash."""

    scale: float


class Simulation(AbstractTarget):
    """Outside JAX."""

    simulator: Simulator
    dim: int = eqx.field(static=True, default=2)
    has_gradient = False
    inside_jax = False

    def evaluate(self, key, x, count, needs_gradient):
        values = -0.5 * np.sum(np.asarray(x) ** 2, axis=1) / self.simulator.scale**2
        return Evaluation(jnp.asarray(values, x.dtype), None)


def test_a_target_outside_jax_needs_no_hash():
    result = natmix.fit(Simulation(Simulator(2.0)), algorithm="zamtron", max_iterations=3, **SMALL)
    assert result.counts.iterations == 3
    assert_healthy(result)


# Values that are no numbers ---------------------------------------------------------------------


@pytest.mark.parametrize("value", [-np.inf, np.nan, np.inf])
def test_not_finite_anywhere(value):
    target = HostTarget(dim=2, fn=lambda x: np.full(len(x), value), batched=True)
    with pytest.raises(TargetError, match="not finite anywhere in the initial region") as error:
        natmix.fit(target, algorithm="zamtron", **SMALL)
    assert "init_mean" in str(error.value)


def hostile(kind, x):
    """A third of the plane, in stripes, gives something that is no number."""
    wrong = jnp.sin(20 * x[0]) > 0.5
    value = normal(x)
    bad = jnp.where(kind == 0, jnp.nan, jnp.inf)
    gradient = jnp.where((kind == 2) & wrong, jnp.nan, -x)
    return jnp.where(wrong & (kind < 2), bad, value), gradient


@pytest.mark.parametrize("kind", [0, 1, 2], ids=["NaN", "+inf", "NaN gradient"])
def test_invalid_values_are_excluded_counted_and_reported(kind):
    target = jax.tree_util.Partial(hostile, jnp.asarray(kind))
    result = natmix.fit(target, dim=2, max_iterations=150, init_mean=1.0, **SMALL)
    assert_healthy(result)
    share = result.counts.invalid / result.counts.training_evaluations
    assert 0.2 < share < 0.5
    assert result.counts.zeros == 0
    assert any("excluded" in note for note in result.notes)
    if kind < 2:
        assert 0.2 < result.elbo.invalid_share < 0.5
        assert "left out" in result.summary()
    else:
        assert result.elbo.invalid_share == 0
    np.testing.assert_allclose(result.mixture.mean(), 0, atol=0.25)
    np.testing.assert_allclose(result.mixture.std(), 1, atol=0.3)


def bounded(edge, x):
    """Uniform in a box, or (edge infinite) half of a standard normal."""
    box = jnp.where(jnp.all(jnp.abs(x) < edge), 0.0, -jnp.inf)
    half = jnp.where(x[0] > 0, normal(x), -jnp.inf)
    return jnp.where(edge < jnp.inf, box, half)


@pytest.mark.parametrize("algorithm", ["SAMTRON", pytest.param("ZAMTRON", marks=pytest.mark.slow)])
def test_densities_of_zero(algorithm):
    """The fit concentrates where the density is positive, and says how much of it is not."""
    for edge, most, log_z in ((1.0, 0.05, 2 * np.log(2)), (np.inf, 0.02, np.log(np.pi))):
        target = jax.tree_util.Partial(bounded, jnp.asarray(edge))
        settings: dict[str, Any] = {**SMALL, "sample_selector": {"desired_samples": 150}}
        result = natmix.fit(
            target,
            dim=2,
            algorithm=algorithm,
            max_iterations=250,
            init_mean=0.3,
            elbo_samples=5000,
            **settings,
        )
        assert_healthy(result)
        assert result.counts.zeros > 0
        assert result.counts.invalid == 0
        assert any("-inf" in note for note in result.notes)
        elbo = result.elbo
        assert elbo.zero_share < most
        assert elbo.where_positive == pytest.approx(log_z, abs=0.5)
        if elbo.zero_share > 0:
            assert elbo.value == -np.inf
            assert f"{elbo.zero_share:.2%}" in result.summary()
        else:
            assert elbo.value == elbo.where_positive


# Sizes ------------------------------------------------------------------------------------------


def scaled(size, width, x):
    return -0.5 * size * jnp.sum((x / width) ** 2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("scale", "size", "width"),
    [(1e-6, 1.0, 1e-6), (1e6, 1.0, 1e6), (1e-6, 1.0, 1.0), (1e4, 1.0, 1.0), (1.0, 1e8, 1.0)],
)
def test_any_scale(scale, size, width, dtype):
    target = jax.tree_util.Partial(scaled, jnp.asarray(size, dtype), jnp.asarray(width, dtype))
    result = natmix.fit(
        target, dim=2, init_scale=scale, max_iterations=250, dtype=dtype, algorithm="SEMTRON", tolerance=0
    )
    assert result.mixture.dtype == dtype
    assert_healthy(result)
    true = width / np.sqrt(size)
    np.testing.assert_allclose(result.mixture.std(), true, rtol=0.1)
    assert np.all(np.abs(np.asarray(result.mixture.mean())) < 0.2 * true)


def test_improper_targets_do_no_harm():
    """A constant density: the mixture grows without bound, but its numbers stay finite."""
    target = jax.tree_util.Partial(scaled, *jnp.array([0.0, 1.0], "float64"))
    result = natmix.fit(target, dim=2, max_iterations=200, algorithm="SEMTRON", tolerance=0)
    assert_healthy(result)
    assert np.all(np.asarray(result.mixture.std()) > 10)


def test_support_of_a_single_point():
    """Zero but at the start's centre, which no sample ever hits."""
    target = HostTarget(dim=2, fn=lambda x: np.where((x == 0).all(1), 0.0, -np.inf), batched=True)
    with pytest.raises(TargetError, match="not finite anywhere"):
        natmix.fit(target, algorithm="zamtron", **SMALL)
