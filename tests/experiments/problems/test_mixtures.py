"""The random mixtures: densities against SciPy, exact samples against the densities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem_helpers import evaluate
from scipy import stats
from scipy.special import gammaln, logsumexp

from natmix import Mixture
from natmix.experiments import problems

KEY = jax.random.key(0)


def parameters(seed, components, dim, spread):
    """Means and A^T A + I, drawn as documented."""
    rng = np.random.default_rng(seed)
    mean = rng.uniform(-spread, spread, (components, dim)).astype(np.float32)
    A = rng.normal(0, 0.1 * dim, (components, dim, dim)).astype(np.float32).astype(float)
    return mean.astype(float), np.array([a.T @ a + np.eye(dim) for a in A])


def scipy_components(name, seed):
    kind, dim = name[:3], int(name[3:])
    if kind == "gmm":
        mean, covariance = parameters(seed, 10, dim, 50)
        return [stats.multivariate_normal(m, S) for m, S in zip(mean, covariance, strict=True)]
    mean, precision = parameters(seed, 10, dim, 20)
    return [stats.multivariate_t(m, np.linalg.inv(P), df=2) for m, P in zip(mean, precision, strict=True)]


def scipy_log_density(components, x):
    return logsumexp([c.logpdf(x) for c in components], axis=0) - np.log(len(components))


@pytest.mark.parametrize(
    ("name", "seed"), [("gmm20", 0), ("gmm7", 3), ("stm20", 0), ("stm7", 3), ("stm1", 1)]
)
def test_log_density(name, seed):
    problem = problems.load(name, seed=seed)
    near = np.asarray(problem.sample(20, key=jax.random.key(1)))
    x = np.concatenate([near, np.random.default_rng(0).normal(0, 40, near.shape)])
    ours = evaluate(problem.target, x, gradient=False).log_density
    np.testing.assert_allclose(ours, scipy_log_density(scipy_components(name, seed), x), rtol=1e-9)


@pytest.fixture(scope="module")
def largest():
    return problems.load("stm300", seed=1)


def test_stm300(largest):
    fine, coarse = largest.target, jax.tree.map(lambda a: a.astype(jnp.float32), largest.target)
    x = np.asarray(coarse.fn.sample(16, key=jax.random.key(1)))
    ours, rounded = evaluate(fine, x.astype(float)), evaluate(coarse, x)
    mean, precision = parameters(1, 20, 300, 25)
    squared = np.array([np.sum((x - m) @ P * (x - m), axis=1) for m, P in zip(mean, precision, strict=True)])
    constant = gammaln(151) - gammaln(1) - 150 * np.log(2 * np.pi) + 0.5 * np.linalg.slogdet(precision)[1]
    expected = logsumexp(constant[:, None] - 151 * np.log1p(squared / 2), axis=0) - np.log(20)
    np.testing.assert_allclose(ours.log_density, expected, rtol=1e-10)
    np.testing.assert_allclose(rounded.log_density, ours.log_density, atol=2e-3)
    scale = jnp.abs(ours.gradient).max(axis=1, keepdims=True)
    np.testing.assert_allclose(rounded.gradient / scale, ours.gradient / scale, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "components", "spread"), [("gmm20", 10, 50), ("stm20", 10, 20), ("stm300", 20, 25)]
)
def test_setting(name, components, spread, largest):
    problem = largest if name == "stm300" else problems.load(name)
    assert problem.modes.shape == (components, problem.dim)
    assert problem.log_evidence == 0
    assert 0.9 * spread < jnp.abs(problem.modes).max() <= spread


def test_seeds_and_options():
    first, second = problems.load("gmm3", seed=1), problems.load("gmm3", seed=2)
    assert not np.allclose(first.modes, second.modes)
    np.testing.assert_array_equal(first.modes, problems.load("gmm3", seed=1).modes)
    few = problems.load("stm4", components=3, spread=1.0)
    assert few.modes.shape == (3, 4)
    assert jnp.abs(few.modes).max() <= 1
    for option, wrong in [("components", 0), ("components", 2.5), ("spread", -1), ("spread", "wide")]:
        with pytest.raises(ValueError, match=f"{option} must be"):
            problems.load("stm4", **{option: wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["gmm5", "stm5"])
def test_samples_have_the_marginals(name):
    problem = problems.load(name, seed=4)
    x = np.asarray(problem.sample(20_000, key=jax.random.key(2)))
    components = scipy_components(name, 4)

    def marginal(d):
        if name.startswith("gmm"):
            return [stats.norm(c.mean[d], np.sqrt(c.cov[d, d])) for c in components]
        return [stats.t(2, c.loc[d], np.sqrt(c.shape[d, d])) for c in components]

    for d in range(5):
        parts = marginal(d)
        result = stats.kstest(x[:, d], lambda v, parts=parts: np.mean([p.cdf(v) for p in parts], axis=0))
        assert result.pvalue > 1e-3


@pytest.mark.parametrize(("name", "shrink"), [("gmm5", 0.7), ("stm5", 1.0)])
def test_samples_and_density_belong_together(name, shrink):
    """E_p[q / p] = 1 for a normalised q with lighter tails than p."""
    problem = problems.load(name, seed=5)
    x = problem.sample(50_000, key=jax.random.key(3))
    L = problem.target.fn.shape.scale_tril  # type: ignore[attr-defined]
    q = Mixture.full(np.ones(10), problem.modes, shrink * jnp.einsum("kij,klj->kil", L, L))
    ratio = jnp.exp(q.log_prob(x) - evaluate(problem.target, x, gradient=False).log_density)
    error = ratio.std() / np.sqrt(len(x))
    assert error < 0.01
    assert abs(ratio.mean() - 1) < 4 * error


def test_all_modes_of_the_target_itself_are_detected():
    problem = problems.load("gmm20", seed=6)
    found = problem.secondary["detected_modes"]
    spread = jnp.ones((10, 20))
    assert found(Mixture.diagonal(np.ones(10), problem.modes, spread), KEY) == 10
    assert found(Mixture.diagonal(np.ones(4), problem.modes[:4], spread[:4]), KEY) == 4
