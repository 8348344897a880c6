"""Bridge sampling against closed forms, and where importance sampling fails."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import natmix
from natmix import Mixture
from natmix.diagnostics import diagnose
from natmix.diagnostics.bridge_sampling import autocorrelation_time, bridge_estimate
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.models import NumpyroModel, PytreeModel

NARROW = 0.6
QUICK: dict[str, Any] = {
    "algorithm": "semtron",
    "start": "region",
    "max_evaluations": 5000,
    "progress": False,
}


def narrow_pair(n, m, seed, log_z=3.0):
    """log p~ - log q of p = N(0, 1) times e^log_z and q = N(0, NARROW^2), at draws of either."""
    rng = np.random.default_rng(seed)
    p, q = stats.norm(), stats.norm(0, NARROW)
    return tuple(
        p.logpdf(x) - q.logpdf(x) + log_z for x in (rng.standard_normal(n), q.rvs(m, random_state=rng))
    )


def test_errors_are_as_small_as_claimed_where_importance_weights_have_no_variance():
    found = [
        bridge_estimate(at_p[None], at_q) for at_p, at_q in (narrow_pair(500, 500, s) for s in range(200))
    ]
    off = np.array([(f.value - 3.0) / f.standard_error for f in found])
    assert abs(off.mean()) < 0.25
    assert off.std() == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize(("n", "m"), [(2000, 50), (50, 2000)])
def test_unequal_numbers_are_used_as_they_should_be(n, m):
    found = [bridge_estimate(at_p[None], at_q) for at_p, at_q in (narrow_pair(n, m, s) for s in range(100))]
    off = np.array([(f.value - 3.0) / f.standard_error for f in found])
    assert off.std() == pytest.approx(1, abs=0.25)
    assert np.mean([f.value for f in found]) == pytest.approx(3.0, abs=0.05)


def test_it_solves_the_equation_of_meng_and_wong():
    at_p, at_q = narrow_pair(300, 300, 0)
    w_p, w_q = np.exp(at_p), np.exp(at_q)
    z = 1e-3
    for _ in range(500):  # their iteration, for equal shares, from far away
        z = np.mean(w_q / (w_q / 2 + z / 2)) / np.mean(1 / (w_p / 2 + z / 2))
    assert bridge_estimate(at_p[None], at_q).value == pytest.approx(np.log(z), abs=0.004)


def test_a_perfect_mixture_has_no_error():
    found = bridge_estimate(np.full((2, 50), -7.0), np.full(80, -7.0))
    assert found.value == pytest.approx(-7.0)
    assert found.standard_error == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_autocorrelation_time_of_an_autoregression(phi):
    rng = np.random.default_rng(0)
    x = np.zeros((4, 20_000))
    for t in range(1, x.shape[1]):
        x[:, t] = phi * x[:, t - 1] + rng.standard_normal(4)
    assert autocorrelation_time(x) == pytest.approx((1 + phi) / (1 - phi), rel=0.15)


def test_chains_that_disagree_have_a_long_memory():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 500))
    assert autocorrelation_time(x) < 1.5
    assert autocorrelation_time(x + np.array([0, 0, 0, 3.0])[:, None]) > 50
    assert autocorrelation_time(np.ones((2, 100))) == 1


def test_correlated_draws_make_the_error_larger_as_they_should():
    phi, found = 0.9, []
    q = stats.norm(0, NARROW)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        x = np.zeros(2000)
        x[0] = rng.standard_normal()
        for t in range(1, 2000):
            x[t] = phi * x[t - 1] + np.sqrt(1 - phi**2) * rng.standard_normal()
        y = q.rvs(2000, random_state=rng)
        at_p, at_q = (stats.norm.logpdf(v) - q.logpdf(v) for v in (x, y))
        found.append(bridge_estimate(at_p[None], at_q))
    off = np.array([f.value / f.standard_error for f in found])
    assert off.std() == pytest.approx(1, abs=0.25)


def test_with_a_mode_missing_only_bridge_sampling_is_right():
    both = Mixture.full([0.5, 0.5], [[-5.0], [5.0]], [[[1.0]], [[1.0]]])
    one = Mixture.full([1.0], [[-5.0]], [[[1.0]]])
    x, y = np.asarray(one.sample(2000, key=0)), np.asarray(both.sample(2000, key=1))
    at_q, at_p = (np.asarray(both.log_prob(v) - one.log_prob(v)) for v in (x, y))
    log_q = np.asarray(one.log_prob(x))
    assert diagnose(one, EvaluatedDraws(x, at_q + log_q, log_q)).log_evidence.value == pytest.approx(
        -np.log(2), abs=0.01
    )
    found = bridge_estimate(at_p[None], at_q)
    assert found.value == pytest.approx(0, abs=4 * found.standard_error)
    assert found.standard_error < 0.1


# Of a result --------------------------------------------------------------------------------------

DF = 3.0


def heavy(x):
    """Student's t in two independent coordinates, without its normaliser."""
    return -0.5 * (DF + 1) * jnp.sum(jnp.log1p(x * x / DF))


LOG_Z = -2 * stats.t(DF).logpdf(0.0)


@pytest.fixture(scope="module")
def result():
    return natmix.fit(heavy, dim=2, algorithm="semtron", max_iterations=60, progress=False)


def test_heavy_tails(result):
    x = stats.t.rvs(DF, size=(4, 1000, 2), random_state=0)
    found = result.bridge(x)
    assert found.value == pytest.approx(LOG_Z, abs=4 * found.standard_error)
    assert found.standard_error < 0.05
    assert result.bridge(x, samples=8000).standard_error < found.standard_error
    assert result.bridge(x.reshape(-1, 2)).value == pytest.approx(found.value, abs=0.02)


def test_bad_draws_get_a_sentence(result):
    x = stats.t.rvs(DF, size=(100, 2), random_state=0)
    for wrong, words in (
        (x[:, :1], r"shape \[N, 2\]"),
        (x[:5], "At least 10 draws"),
        (np.where(x > 2, np.nan, x), "not finite"),
        ({"x": x}, "as an array"),
    ):
        with pytest.raises(ValueError, match=words):
            result.bridge(wrong)


def test_draws_with_density_zero_are_not_the_target_s():
    def half(x):
        return jnp.where(x[0] > 0, -x[0], -jnp.inf)

    fitted = natmix.fit(half, dim=1, init_mean=1.0, **QUICK)
    with pytest.raises(ValueError, match=r"density is zero at 50\.0% of the draws"):
        fitted.bridge(np.array([[-1.0], [1.0]] * 10))


def test_named_draws_of_a_numpyro_model_are_unconstrained():
    numpyro = pytest.importorskip("numpyro")
    dist = numpyro.distributions

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0, 1).expand([2]))
        sigma = numpyro.sample("sigma", dist.LogNormal(0, 1))
        numpyro.deterministic("sum", mu.sum())
        numpyro.sample("y", dist.Normal(mu, 1), obs=y)
        numpyro.sample("w", dist.LogNormal(jnp.log(sigma), 1), obs=1.0)

    y = np.array([0.3, -1.0])
    # Conjugate: every mean has posterior N(y / 2, 1 / 2), log sigma N(0, 1 / 2).
    log_z = stats.norm(0, np.sqrt(2)).logpdf([*y, 0.0]).sum()
    fitted = natmix.fit(model, model_args=(jnp.asarray(y),), **QUICK)
    rng = np.random.default_rng(0)
    mu = y / 2 + rng.standard_normal((2, 500, 2)) / np.sqrt(2)
    sigma = np.exp(rng.standard_normal((2, 500)) / np.sqrt(2))
    for draws in ({"mu": mu, "sigma": sigma}, {"mu": mu[0], "sigma": sigma[0], "sum": mu[0].sum(axis=1)}):
        found = fitted.bridge(draws)
        assert found.value == pytest.approx(log_z, abs=4 * found.standard_error + 1e-3)
    with pytest.raises(ValueError, match="do not have the model's variable 'sigma'"):
        fitted.bridge({"mu": mu[0]})
    assert isinstance(fitted.model, NumpyroModel)
    x = np.asarray(fitted.mixture.sample(5, key=0))
    np.testing.assert_allclose(fitted.model.unconstrain(fitted.model.constrain(x)), x, atol=1e-6)


def test_positions_between_bounds_are_unconstrained():
    position = {"a": jnp.array([0.5, 0.2]), "b": 2.0}
    model = PytreeModel(
        lambda p: -jnp.sum(p["a"] ** 2) - p["b"] ** 2, position, {"a": (0, 1), "b": (1, None)}
    )
    x = np.asarray(jax.random.normal(jax.random.key(0), (6, 3)))
    np.testing.assert_allclose(model.unconstrain(model.constrain(x)), x, atol=1e-6)
    other = {"z": np.full((6, 2), 0.5), "a": np.full(6, 2.0)}  # as many numbers under other names
    with pytest.raises(ValueError, match="structure of the position"):
        model.unconstrain(other)


def test_vectors_between_bounds_are_as_sample_gives_them():
    """Independent beta variables, unnormalised: log Z is the sum of their log beta functions."""
    a, b = np.array([2.0, 3.0]), np.array([4.0, 1.5])

    def beta(x):
        return jnp.sum((a - 1) * jnp.log(x) + (b - 1) * jnp.log1p(-x))

    fitted = natmix.fit(beta, 2, bounds=(0, 1), **QUICK)
    log_z = np.sum(special.betaln(a, b))
    x = stats.beta(a, b).rvs(size=(3, 700, 2), random_state=0)
    for draws in (x, x.reshape(-1, 2)):
        found = fitted.bridge(draws)
        assert found.value == pytest.approx(log_z, abs=4 * found.standard_error)
        assert found.standard_error < 0.02
    with pytest.raises(ValueError, match="not within the bounds"):
        fitted.bridge(special.logit(x))
    # Other shapes are trees of variables, which have names.
    named = natmix.fit(lambda p: beta(p["x"]), position={"x": np.full(2, 0.5)}, bounds={"x": (0, 1)}, **QUICK)
    assert named.bridge({"x": x[0]}).value == pytest.approx(log_z, abs=0.1)
    assert named.bridge(special.logit(x)).value == pytest.approx(log_z, abs=0.1)
