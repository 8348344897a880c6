"""The references and measures of benchmarks/quality/posteriors, against SciPy and samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

pytest.importorskip("numpyro")
from posteriors import funnel, schools
from posteriors.measures import errors
from posteriors.nuts import inside_region
from posteriors.problem import Truth
from posteriors.squared_regression import SQUARED_REGRESSION
from posteriors.two_gaussians import TWO_GAUSSIANS

SYMMETRIC = pytest.mark.parametrize("problem", [TWO_GAUSSIANS, SQUARED_REGRESSION], ids=lambda p: p.name)


def test_evidence_of_the_schools_is_that_of_a_multivariate_normal():
    def joint(log_tau):
        tau = np.exp(log_tau)
        covariance = np.diag(schools.SIGMA**2 + tau**2) + schools.PRIOR_SD**2
        likelihood = stats.multivariate_normal(np.zeros(8), covariance).pdf(schools.Y)
        return likelihood * stats.halfcauchy(0, schools.PRIOR_TAU).pdf(tau) * tau

    z, _ = integrate.quad(joint, -20, 12, epsabs=0, limit=200)
    assert schools.truth(schools.CENTRED).log_evidence == pytest.approx(np.log(z), abs=1e-8)


@pytest.mark.parametrize("problem", [schools.CENTRED, schools.NON_CENTRED], ids=lambda p: p.name)
def test_both_schools_have_the_same_evidence_by_importance_sampling(problem):
    """With tau from its prior and the rest given tau: what the density says, not the formulas."""
    rng = np.random.default_rng(0)
    n = 20_000
    tau = np.sort(np.abs(schools.PRIOR_TAU * rng.standard_cauchy(n)))
    given = schools.given_tau(np.log(tau))
    mu = given.mu_mean + np.sqrt(given.mu_variance) * rng.standard_normal(n)
    sd = np.sqrt(given.pull) * schools.SIGMA
    centre = given.pull * schools.Y + (1 - given.pull) * mu[:, None]
    theta = centre + sd * rng.standard_normal(sd.shape)
    log_q = stats.halfcauchy(0, schools.PRIOR_TAU).logpdf(tau) + np.log(tau)
    log_q += stats.norm(given.mu_mean, np.sqrt(given.mu_variance)).logpdf(mu)
    log_q += stats.norm(centre, sd).logpdf(theta).sum(axis=1)
    if problem is schools.CENTRED:
        x = np.column_stack([mu, np.log(tau), theta])
    else:
        x = np.column_stack([(theta - mu[:, None]) / tau[:, None], mu, np.log(tau)])
        log_q += 8 * np.log(tau)
    log_p = np.asarray(jax.vmap(problem.compiled().log_density)(jnp.asarray(x)))
    weights = np.exp(log_p - log_q)
    z, error = weights.mean(), weights.std() / np.sqrt(n)
    truth = np.exp(problem.truth(problem).log_evidence)
    assert error < 0.02 * truth
    assert abs(z - truth) < 4 * error


@pytest.mark.parametrize("module", [schools, funnel], ids=["schools", "funnel"])
def test_exact_samples_have_the_true_means_and_spreads(module):
    problem = schools.CENTRED if module is schools else funnel.FUNNEL
    truth = module.truth(problem)
    draws = module.exact(np.random.default_rng(0), 400_000)
    assert np.all(np.abs(draws.mean(axis=0) - truth.mean) < 5 * truth.sd / np.sqrt(len(draws)))
    first = slice(0, 1) if module is funnel else slice(None)  # the others' squares have hardly a variance
    np.testing.assert_allclose(draws.std(axis=0)[first], truth.sd[first], rtol=0.02)


@SYMMETRIC
def test_symmetry_is_one_of_the_density(problem):
    model, symmetry = problem.compiled(), problem.symmetry
    x = np.random.default_rng(0).normal(size=(20, model.dim))
    values = [np.asarray(jax.vmap(model.log_density)(jnp.asarray(image))) for image in symmetry.images(x)]
    np.testing.assert_allclose(values[1], values[0], rtol=1e-12)
    assert np.abs(symmetry.images(x)[1] - x).max() > 0.1


@SYMMETRIC
def test_folding_takes_one_image_of_every_point(problem):
    symmetry = problem.symmetry
    x = np.random.default_rng(0).normal(size=(50, symmetry.maps.shape[1]))
    folded = symmetry.folded(x)
    assert symmetry.inside(folded).all()
    np.testing.assert_array_equal(symmetry.folded(folded), folded)
    for image in symmetry.images(x):
        np.testing.assert_allclose(symmetry.folded(image), folded)
    np.testing.assert_allclose(symmetry.shares(symmetry.symmetrised(folded)), [0.5, 0.5])
    np.testing.assert_allclose(sorted(symmetry.shares(folded)), [0, 1])
    outside = inside_region(problem.compiled(), symmetry)(symmetry.images(folded)[1])
    assert np.all(outside == -np.inf)


def test_errors_by_hand():
    truth = Truth(np.array([0.0, 1.0]), np.array([2.0, 1.0]), 0.0, 0.0, 0.0, "")
    values = np.array([[-1.0, 1.0], [1.0, 5.0]])
    found = errors(values, np.array([3.0, 1.0]), truth)
    assert found.mean == pytest.approx(1.0)  # the second mean is 2, one standard deviation off
    assert found.sd_ratio == pytest.approx(0.5 * np.sqrt(0.75))  # 0.43 is further from 1 than 1.73
