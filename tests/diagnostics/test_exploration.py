"""Chains that search for mass the mixture does not cover: against exact samples, and known uncovered mass."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from known_mixtures import spherical, target_of
from scipy import stats

import natmix
from natmix import HostTarget, JaxTarget, Mixture
from natmix.diagnostics import explore
from natmix.diagnostics.chains import LEAPFROG_STEPS, run_chains
from natmix.diagnostics.elbo import evaluated_draws
from natmix.diagnostics.exploration import CHAIN_STEPS, SAMPLES_PER_CHAIN

jax.config.update("jax_enable_x64", True)


def found(mixture, target, seed=0, chains=400):
    draws = evaluated_draws(mixture, target, jax.random.key(seed), 1000)
    return explore(mixture, target, draws, jax.random.key(seed + 100), chains)


# Chains ---------------------------------------------------------------------------------------------


def banana(x):
    return -0.5 * x[0] ** 2 - 0.5 * (x[1] - x[0] ** 2) ** 2 / 0.25


ROUGH = Mixture.full(
    [0.5, 0.3, 0.2],
    [[0.0, 0.3], [-1.5, 2.0], [1.2, 2.0]],
    [[[1.0, 0.0], [0.0, 0.5]], [[0.3, -0.5], [-0.5, 1.5]], [[0.2, 0.3], [0.3, 0.9]]],
)


@pytest.mark.parametrize(("gradients", "steps"), [(True, 6), (False, 30)])
def test_chains_leave_the_target_as_it_is(gradients, steps):
    rng = np.random.default_rng(2)
    first = rng.normal(size=4000)
    x = np.stack([first, first**2 + 0.5 * rng.normal(size=4000)], axis=1)
    target = JaxTarget(banana, 2)
    record = run_chains(ROUGH, target, x, steps, jax.random.key(1), gradients=gradients)
    assert 0.3 < record.acceptance_rate < 0.99
    assert np.mean(np.any(record.x != x, axis=1)) > 0.98
    z = np.stack([record.x[:, 0], (record.x[:, 1] - record.x[:, 0] ** 2) / 0.5], axis=1)
    for column in z.T:
        assert stats.kstest(column, "norm").pvalue > 0.01
    assert abs(np.corrcoef(z.T)[0, 1]) < 0.06
    right = np.asarray(jax.vmap(banana)(record.x)) - np.asarray(ROUGH.log_prob(record.x))
    np.testing.assert_allclose(record.log_ratio[-1], right, atol=1e-9)


def test_chains_find_the_target_from_elsewhere():
    target = JaxTarget(banana, 2)
    record = run_chains(ROUGH, target, np.full((500, 2), 3.0), 30, jax.random.key(1), gradients=True)
    assert stats.kstest(record.x[:, 0], "norm").pvalue > 0.001


def test_diagonal_mixtures_and_densities_of_zero():
    def half(x):
        return jnp.where(x[0] > 0, -0.5 * jnp.sum(x * x), -jnp.inf)

    mixture = Mixture.diagonal([0.5, 0.5], [[0.5, 0], [1.0, 0]], [[0.5, 1.0], [1.0, 1.0]])
    x = np.abs(np.random.default_rng(0).normal(size=(2000, 2))) * [1, 1]
    x[:, 1] *= np.where(np.arange(2000) % 2, 1, -1)
    target = JaxTarget(half, 2)
    record = run_chains(mixture, target, x, 10, jax.random.key(0), gradients=True)
    assert np.all(record.x[:, 0] > 0)
    assert stats.kstest(record.x[:, 0], "halfnorm").pvalue > 0.01


# What they find -------------------------------------------------------------------------------------

UNIT = spherical([1.0], [[0.0, 0, 0]])
TWO = spherical([0.3, 0.7], [[-4.0, 0, 0], [4, 1, 0]])
CUT, STEP = -1.5, 0.25


def funnel(x):
    """v = x[0] is standard normal, the others have standard deviation exp(v)."""
    return -0.5 * x[0] ** 2 - 0.5 * jnp.sum(x[1:] ** 2) * jnp.exp(-2 * x[0]) - (x.size - 1) * x[0]


def slices(lowest):
    """The funnel from some v on: one Gaussian for each of many v."""
    v = np.arange(lowest + 0.1, 3.6, STEP)
    others = np.exp(2 * v)
    covariances = [np.diag([STEP**2, o, o]) for o in others]
    return Mixture.full(stats.norm.pdf(v), np.stack([v, 0 * v, 0 * v], axis=1), np.stack(covariances))


FUNNEL = JaxTarget(funnel, 3)
BULK = slices(CUT)


def test_a_neck_that_the_mixture_lacks():
    runs = [found(BULK, FUNNEL, s) for s in range(8)]
    assert sum(r.significant for r in runs) >= 6
    uncovered = np.mean([r.uncovered.value for r in runs])
    assert 0.15 * stats.norm.cdf(CUT) < uncovered < stats.norm.cdf(CUT)  # the chains are short
    assert all(r.position[0] < CUT for r in runs if r.significant and r.position is not None)
    whole = [found(slices(-4.0), FUNNEL, s) for s in range(3)]
    assert not any(r.significant for r in whole)


@pytest.mark.parametrize("gradients", [True, False])
def test_heavy_tails_and_too_narrow_fits(gradients):
    def student(x):
        return -0.5 * (2 + 3) * jnp.log1p(jnp.sum(x**2) / 2)

    for mixture, fn in (
        (spherical([1.0], [[0.0, 0, 0]], 1.2), student),
        (spherical([1.0], [[0.0, 0, 0]], 0.5), UNIT.log_prob),
    ):
        target = JaxTarget(fn, 3, values_only=not gradients)
        runs = [found(mixture, target, s) for s in range(3)]
        assert sum(r.significant for r in runs) >= 2


def test_good_fits_are_hardly_ever_flagged():
    """Exact, wider, with other weights, slightly narrower, shifted."""
    nearly = (
        TWO,
        spherical([0.3, 0.7], [[-4.0, 0, 0], [4, 1, 0]], 1.3),
        spherical([0.5, 0.5], [[-4.0, 0, 0], [4, 1, 0]]),
        spherical([0.3, 0.7], [[-4.0, 0, 0], [4, 1, 0]], 0.93),
        spherical([0.3, 0.7], [[-4.0, 0.2, 0], [4, 1.2, 0]]),
    )
    target = target_of(TWO)
    runs = [found(mixture, target, s) for mixture in nearly for s in range(2)]
    assert not any(r.significant for r in runs)
    little = spherical(
        [0.997, 0.003], [[-4.0, 0, 0], [4, 1, 0]]
    )  # much uncovered mass, and its samples show it
    known = [found(little, target, s, chains=2000) for s in range(2)]
    assert all(r.uncovered_by_samples.value > 0.1 for r in known)
    assert not any(r.significant for r in known)


def test_evaluations_are_counted():
    calls = []

    def fn(x):
        calls.append(len(x))
        return -0.5 * np.sum(x**2, axis=1)

    draws = evaluated_draws(UNIT, target_of(UNIT), jax.random.key(0), 100)
    with_gradient = HostTarget(fn, 3, batched=True, gradient=lambda x: -x)
    for target, each in ((HostTarget(fn, 3, batched=True), 1), (with_gradient, 1)):
        calls.clear()
        out = explore(UNIT, target, draws, jax.random.key(0), 50)
        assert (
            out.evaluations
            == sum(calls) * each
            == 50 * (1 + CHAIN_STEPS * LEAPFROG_STEPS) + 50 * SAMPLES_PER_CHAIN - 100
        )


# Results --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result():
    fitted = natmix.fit(FUNNEL, init_mixture=BULK, max_iterations=1, algorithm="semtron", progress=False)
    return dataclasses.replace(fitted, mixture=BULK, stopped="converged")


def with_draws(result, mixture):
    draws = evaluated_draws(mixture, result.target, jax.random.key(0), 2000)
    return dataclasses.replace(result, mixture=mixture, draws=draws)


def test_the_verdict_follows(result):
    bad = with_draws(result, BULK).diagnose(search=0, explore=1000, seed=1)
    assert bad.verdict == "distrust"
    assert any("Markov chains from the mixture's corrected samples" in reason for reason in bad.reasons)
    assert "1,000 Markov chains" in str(bad)
    assert "result.diagnose(search=32)" in str(bad)
    good = with_draws(result, slices(-4.0))
    alone = good.diagnose(search=0, explore=0)
    assert "explore=1000" in str(alone)
    assert alone.verdict == (found := good.diagnose(explore=200)).verdict
    assert not found.exploration.significant


def test_bad_arguments(result):
    with pytest.raises(ValueError, match="at least 50"):
        result.diagnose(explore=3)
    with pytest.raises(ValueError, match="does not know its target"):
        dataclasses.replace(result, target=None).diagnose(explore=100)
    nowhere = dataclasses.replace(result.draws, log_target=np.full(len(result.draws), -np.inf))
    with pytest.raises(ValueError, match="nowhere to start"):
        dataclasses.replace(result, draws=nowhere).diagnose(explore=100)


@pytest.mark.slow
def test_the_neck_of_eight_schools():
    numpyro = pytest.importorskip("numpyro")
    dist = numpyro.distributions
    y = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sigma = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def schools(centred):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        theta = numpyro.sample(
            "theta", dist.Normal(*((mu, tau) if centred else (0, 1))).expand([8]).to_event(1)
        )
        numpyro.sample("y", dist.Normal(theta if centred else mu + tau * theta, sigma).to_event(1), obs=y)

    for centred in (True, False):
        fitted = natmix.fit(schools, model_args=(centred,), max_evaluations=1_000_000, progress=False)
        flagged = [fitted.diagnose(explore=1000, seed=s).exploration.significant for s in range(4)]
        assert np.mean(flagged) >= 0.75 if centred else not any(flagged)
