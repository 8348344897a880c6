"""Metrics of log p~ - log q: -ELBO, log evidence, effective sample sizes, evidence upper bound, entropy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import mixture_target, random_mixture
from scipy import integrate, stats

from natmix import JaxTarget, Mixture
from natmix.experiments.metrics import (
    entropy,
    evidence_upper_bound,
    forward_effective_sample_size,
    log_evidence,
    neg_elbo,
    reverse_effective_sample_size,
)

LOG_Z = 3.25
MEAN_P, MEAN_Q = np.array([0.3, -0.2]), np.array([0.0, 0.1])
COV_P = np.array([[1.0, 0.3], [0.3, 0.7]])
COV_Q = np.array([[1.5, -0.2], [-0.2, 1.1]])
N = 4000


def gaussian(mean, cov):
    return Mixture.full([1.0], [mean], [cov])


P, Q = gaussian(MEAN_P, COV_P), gaussian(MEAN_Q, COV_Q)
TARGET = JaxTarget(lambda x: P.log_prob(x) + LOG_Z, 2)


def kl(mean_a, cov_a, mean_b, cov_b):
    inverse = np.linalg.inv(cov_b)
    shift = mean_b - mean_a
    log_det = np.linalg.slogdet(cov_b)[1] - np.linalg.slogdet(cov_a)[1]
    return 0.5 * (np.trace(inverse @ cov_a) + shift @ inverse @ shift - len(shift) + log_det)


def second_moment():
    """E_q[(p/q)^2] of the two Gaussians, by quadrature."""
    p, q = stats.multivariate_normal(MEAN_P, COV_P), stats.multivariate_normal(MEAN_Q, COV_Q)

    def integrand(y, x):
        return np.exp(2 * p.logpdf([x, y]) - q.logpdf([x, y]))

    return integrate.dblquad(integrand, -6, 6, -6, 6, epsabs=1e-5)[0]


def test_neg_elbo_of_gaussians():
    estimate = neg_elbo(Q, TARGET, 0, N)
    assert abs(estimate.value - (kl(MEAN_Q, COV_Q, MEAN_P, COV_P) - LOG_Z)) < 4 * estimate.standard_error
    assert 0 < estimate.standard_error < 0.05
    assert estimate.zero_share == estimate.invalid_share == 0


def test_neg_elbo_of_a_perfect_fit_is_minus_log_z_without_error():
    value, error, *_ = neg_elbo(P, TARGET, 1)
    assert value == pytest.approx(-LOG_Z, abs=1e-12)
    assert error < 1e-12


def test_zero_density_makes_neg_elbo_infinite_and_is_counted():
    half = JaxTarget(lambda x: jnp.where(x[0] > 0, P.log_prob(x), -jnp.inf), 2)
    estimate = neg_elbo(Q, half, 0, N)
    assert estimate.value == np.inf
    assert abs(estimate.zero_share - 0.5) < 0.05
    evidence = log_evidence(Q, half, 0, N)  # a weight of zero is a weight
    expected = np.log(stats.norm.sf(0, MEAN_P[0], np.sqrt(COV_P[0, 0])))
    assert abs(evidence.value - expected) < 4 * evidence.standard_error


def test_invalid_values_are_left_out_and_counted():
    broken = JaxTarget(lambda x: jnp.where(x[0] > 3, jnp.nan, P.log_prob(x) + LOG_Z), 2)
    share = float(np.mean(np.asarray(Q.sample(N, key=jax.random.split(jax.random.key(0))[0]))[:, 0] > 3))
    assert 0 < share < 0.05
    assert neg_elbo(Q, broken, 0, N).invalid_share == pytest.approx(share)
    evidence = log_evidence(Q, broken, 0, N)
    assert evidence.invalid_share == pytest.approx(share)
    assert np.isfinite(evidence.value)


def test_log_evidence_and_effective_sample_size_of_gaussians():
    evidence = log_evidence(Q, TARGET, 3, N)
    assert abs(evidence.value - LOG_Z) < 4 * evidence.standard_error
    share = 1 / second_moment()
    assert evidence.effective_sample_size == pytest.approx(share, rel=0.1)
    assert reverse_effective_sample_size(Q, TARGET, 3, N) == evidence.effective_sample_size
    assert forward_effective_sample_size(Q, TARGET, P.sample(N, key=5)) == pytest.approx(share, rel=0.1)


def test_log_evidence_in_brute_force_numpy():
    x = np.asarray(Q.sample(50, key=jax.random.split(jax.random.key(9))[0]))
    w = np.exp(np.asarray(P.log_prob(x)) + LOG_Z - np.asarray(Q.log_prob(x)))
    evidence = log_evidence(Q, TARGET, 9, 50)
    assert evidence.value == pytest.approx(np.log(w.mean()), abs=1e-12)
    assert evidence.standard_error == pytest.approx(w.std(ddof=1) / w.mean() / np.sqrt(50))
    assert evidence.effective_sample_size == pytest.approx(w.sum() ** 2 / (w**2).sum() / 50)


def test_log_evidence_does_not_overflow():
    far = JaxTarget(lambda x: P.log_prob(x) + 5000.0, 2)
    assert abs(log_evidence(Q, far, 0, N).value - 5000) < 0.1
    nowhere = JaxTarget(lambda x: -jnp.inf + 0 * x[0], 2)
    assert log_evidence(Q, nowhere, 0, 100)[:3] == (-np.inf, np.inf, 0.0)


def test_standard_errors_cover():
    """About 95% of the intervals of two standard errors hold the truth."""
    keys = [jax.random.key(i) for i in range(200)]
    truth = kl(MEAN_Q, COV_Q, MEAN_P, COV_P) - LOG_Z
    upper = kl(MEAN_P, COV_P, MEAN_Q, COV_Q) + LOG_Z
    found = np.array(
        [
            (
                _z(neg_elbo(Q, TARGET, k, 500), truth),
                _z(log_evidence(Q, TARGET, k, 500), LOG_Z),
                _z(evidence_upper_bound(Q, TARGET, P.sample(500, key=k)), upper),
            )
            for k in keys
        ]
    )
    share = np.mean(np.abs(found) < 2, axis=0)
    assert np.all(share > 0.9), share
    assert np.all(share < 0.99), share


def _z(estimate, truth):
    return (estimate[0] - truth) / estimate[1]


def test_upper_bound_of_gaussians():
    estimate = evidence_upper_bound(Q, TARGET, P.sample(N, key=2))
    assert abs(estimate.value - (LOG_Z + kl(MEAN_P, COV_P, MEAN_Q, COV_Q))) < 4 * estimate.standard_error
    assert evidence_upper_bound(P, TARGET, P.sample(100, key=2)).value == pytest.approx(LOG_Z, abs=1e-12)


def test_a_missed_mode_is_seen_by_forward_metrics_only():
    both = Mixture.full([0.5, 0.5], [[-15.0, 0.0], [15.0, 0.0]], [np.eye(2)] * 2)
    one = gaussian([15.0, 0], np.eye(2))
    target = mixture_target(both)
    samples = both.sample(2000, key=0)
    assert neg_elbo(one, target, 0).value == pytest.approx(np.log(2), abs=1e-6)
    assert reverse_effective_sample_size(one, target, 0) == pytest.approx(1)
    assert forward_effective_sample_size(one, target, samples) < 1e-6
    assert evidence_upper_bound(one, target, samples).value > 50


def test_upper_bound_is_infinite_where_the_mixture_vanishes():
    far = gaussian([1e200, 0], np.eye(2))
    estimate = evidence_upper_bound(far, TARGET, P.sample(10, key=0))
    assert estimate.value == np.inf
    assert forward_effective_sample_size(far, TARGET, P.sample(10, key=0)) == 0


@pytest.mark.parametrize("diagonal", [False, True])
def test_entropy(diagonal):
    one = random_mixture(0, 1, 3, diagonal=diagonal)
    expected = stats.multivariate_normal(np.zeros(3), np.asarray(one.covariances[0])).entropy()
    assert entropy(one, 0).value == pytest.approx(expected)
    many = random_mixture(1, 4, 1, diagonal=diagonal)
    estimate = entropy(many, 0, N)
    grid = np.linspace(-15, 15, 20_001)
    log_q = np.asarray(many.log_prob(grid[:, None]))
    exact = -integrate.trapezoid(np.exp(log_q) * log_q, grid)
    assert abs(estimate.value - exact) < 4 * estimate.standard_error


def test_single_precision_gives_the_same():
    q32, q64 = Q.astype(jnp.float32), Q
    p32 = P.astype(jnp.float32)
    target = JaxTarget(lambda x: p32.log_prob(x) + LOG_Z, 2)
    samples = P.sample(500, key=0)
    assert evidence_upper_bound(q32, target, samples).value == pytest.approx(
        evidence_upper_bound(q64, TARGET, samples).value, abs=1e-5
    )
    estimate = log_evidence(q32, target, 0)
    assert abs(estimate.value - LOG_Z) < 4 * estimate.standard_error


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: log_evidence(Q, TARGET, 0, 1), "at least two samples"),
        (lambda: neg_elbo(Q, TARGET, 0, 0), "at least one sample"),
        (lambda: evidence_upper_bound(Q, TARGET, np.zeros((5, 3))), r"shape \[N, 2\]"),
        (lambda: forward_effective_sample_size(Q, TARGET, np.zeros(2)), r"shape \[N, 2\]"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
