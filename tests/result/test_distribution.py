"""Marginals, conditionals and probabilities by name, against SciPy, quadrature and Monte Carlo."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from quick_fits import LEAST
from scipy import integrate, stats

import natmix
from natmix import Mixture
from natmix.models import NumpyroModel, PymcModel
from natmix.models.scalar_maps import ScalarMap, model_variables
from natmix.result.distribution import Distribution
from natmix.result.probability import box_probability
from natmix.result.transformed_mixture import TransformedMixture

BOUNDS = {"sigma": (0, None), "u": (2, 5), "t": (None, 3)}
POSITION = {"mu": 0.0, "sigma": 1.0, "u": 3.0, "t": 1.0, "a": np.zeros(2)}
ORDER = ["a[0]", "a[1]", "mu", "sigma", "t", "u"]
"""JAX's, by sorted names."""


def random_mixture(K=3, D=6, seed=0, diagonal=False):
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(K, D))
    if diagonal:
        return Mixture.diagonal(rng.uniform(1, 2, K), means, rng.uniform(0.1, 0.5, (K, D)))
    half = 0.3 * rng.normal(size=(K, D, D))
    return Mixture.full(rng.uniform(1, 2, K), means, half @ half.swapaxes(1, 2) + 0.1 * np.eye(D))


@pytest.fixture(scope="module")
def result():
    fitted = natmix.fit(
        lambda p: -(p["mu"] ** 2) - jnp.sum(p["a"] ** 2), position=POSITION, bounds=BOUNDS, **LEAST
    )
    return dataclasses.replace(fitted, mixture=random_mixture())


def reference(result, name):
    """The coordinate's mixture as SciPy's normal distributions, with its weights."""
    q = result.mixture
    d = ORDER.index(name)
    scales = np.sqrt(np.asarray(q.covariances)[:, d, d])
    return np.asarray(q.weights), [
        stats.norm(float(m), float(s)) for m, s in zip(q.means[:, d], scales, strict=True)
    ]


TO_COORDINATE: dict[str, Any] = {
    "mu": lambda y: y,
    "sigma": np.log,
    "u": lambda y: np.log((y - 2) / (5 - y)),
    "t": lambda y: np.log(3 - y),
}
SUPPORT = {
    "mu": (-np.inf, np.inf),
    "sigma": (0, np.inf),
    "u": (2, 5),
    "t": (-np.inf, 3),
    "a[1]": (-np.inf, np.inf),
}


# One number ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mu", "sigma", "u", "t"])
def test_a_marginal_has_scipy_s_protocol(result, name):
    one = result.marginal(name)
    assert isinstance(one, Distribution)
    assert one.support() == SUPPORT[name]
    weights, parts = reference(result, name)
    p = np.array([1e-12, 0.01, 0.3, 0.5, 0.9, 0.999, 1 - 1e-9])
    y = one.ppf(p)
    z = TO_COORDINATE[name](y)
    below = sum(w * part.cdf(z) for w, part in zip(weights, parts, strict=True))
    if name == "t":  # falls as its coordinate rises
        below = sum(w * part.sf(z) for w, part in zip(weights, parts, strict=True))
    np.testing.assert_allclose(below, p, rtol=1e-6, atol=1e-15)
    np.testing.assert_allclose(one.cdf(y), p, rtol=1e-6)
    np.testing.assert_allclose(one.sf(y), 1 - p, rtol=1e-6)
    np.testing.assert_allclose(one.isf(p), one.ppf(1 - p), rtol=1e-3)
    np.testing.assert_allclose(one.cdf(one.interval(0.9)), [0.05, 0.95])
    np.testing.assert_allclose(one.ppf([0, 1]), SUPPORT[name])
    assert np.isnan(one.ppf([-0.1, 1.1, np.nan])).all()
    assert one.median() == pytest.approx(float(y[3]))
    assert one.ppf(0.3).shape == ()
    low, high = one.ppf(1e-13), one.isf(1e-13)
    assert integrate.quad(one.pdf, low, high, limit=400, points=y[1:-1])[0] == pytest.approx(1, abs=1e-6)
    step = 1e-6 * (y[4] - y[2])
    slope = (one.cdf(y[2:5] + step) - one.cdf(y[2:5] - step)) / (2 * step)
    np.testing.assert_allclose(one.pdf(y[2:5]), slope, rtol=1e-5)
    np.testing.assert_allclose(one.logpdf(y), np.log(one.pdf(y)))


@pytest.mark.parametrize("name", ["mu", "sigma", "u", "t"])
def test_moments_are_those_of_quadrature(result, name):
    one = result.marginal(name)
    weights, parts = reference(result, name)
    of: dict[str, Any] = {
        "mu": lambda z: z,
        "sigma": np.exp,
        "u": lambda z: 2 + 3 / (1 + np.exp(-z)),
        "t": lambda z: 3 - np.exp(z),
    }

    def expected(power, about=0.0):
        return sum(
            w
            * integrate.quad(
                lambda z, q=q: (of[name](z) - about) ** power * q.pdf(z), *q.interval(1 - 1e-15)
            )[0]
            for w, q in zip(weights, parts, strict=True)
        )

    assert one.mean() == pytest.approx(expected(1), rel=1e-7)
    assert one.var() == pytest.approx(expected(2, one.mean()), rel=1e-6)
    assert one.std() == pytest.approx(math.sqrt(one.var()))
    x = one.rvs(40_000, random_state=3)
    assert stats.kstest(x, one.cdf).pvalue > 1e-3
    assert isinstance(one.rvs(), float)
    assert one.rvs((2, 3), random_state=1).shape == (2, 3)
    np.testing.assert_array_equal(one.rvs(4, random_state=2), one.rvs(4, random_state=2))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 500.0])
def test_the_mean_of_a_logistic_variable_at_any_width(scale):
    q = TransformedMixture(Mixture.diagonal([1.0], [[0.7]], [[scale**2]]), ScalarMap("logistic"))

    def above(z):  # E[g(z)] = P(z > logistic noise)
        return stats.logistic.pdf(z) * stats.norm.sf((z - 0.7) / scale)

    assert q.moments()[0] == pytest.approx(integrate.quad(above, -50, 50, limit=500)[0], rel=1e-9)


def test_far_tails_keep_their_digits():
    one = TransformedMixture(Mixture.diagonal([1.0], [[0.0]], [[1.0]]), ScalarMap())
    assert one.logcdf(-40.0) == pytest.approx(stats.norm.logcdf(-40))
    assert one.logcdf(40.0, above=True) == pytest.approx(stats.norm.logsf(40))
    assert one.quantile(stats.norm.logcdf(-40)) == pytest.approx(-40)


def test_outside_of_the_support_there_is_no_density(result):
    one = result.marginal("u")
    np.testing.assert_array_equal(one.pdf([1.0, 2.0, 5.0, 6.0]), 0)
    np.testing.assert_array_equal(one.cdf([1.0, 2.0, 5.0, 6.0]), [0, 0, 1, 1])
    assert np.isnan(one.pdf(np.nan))
    assert np.isnan(one.cdf(np.nan))
    np.testing.assert_allclose(one.pdf({"u": [2.5, 3.0]}), one.pdf([2.5, 3.0]))


def test_a_lognormal_marginal_is_scipy_s():
    fitted = natmix.fit(lambda p: -p["s"], position={"s": 1.0}, bounds={"s": (0, None)}, **LEAST)
    one = dataclasses.replace(fitted, mixture=Mixture.full([1.0], [[0.4]], [[[0.25]]])).marginal("s")
    theirs = stats.lognorm(0.5, scale=math.exp(0.4))
    y = np.array([0.2, 1.0, 4.0])
    for method in ("pdf", "logpdf", "cdf", "sf", "logsf", "logcdf"):
        np.testing.assert_allclose(getattr(one, method)(y), getattr(theirs, method)(y), err_msg=method)
    np.testing.assert_allclose(one.ppf([0.1, 0.7]), theirs.ppf([0.1, 0.7]))
    assert (one.mean(), one.std(), one.median()) == pytest.approx(
        (theirs.mean(), theirs.std(), theirs.median())
    )


# Several ------------------------------------------------------------------------------------------


def test_a_joint_marginal_has_the_density_of_the_change_of_variables(result):
    joint = result.marginal("u", "mu", "a")
    assert joint.names == ("u", "mu", "a")
    x = joint.sample(7, seed=1)
    assert {name: value.shape for name, value in x.items()} == {"u": (7,), "mu": (7,), "a": (7, 2)}
    z = np.column_stack([TO_COORDINATE["u"](x["u"]), x["mu"], x["a"]])
    q = result.mixture.marginal([ORDER.index(name) for name in ("u", "mu", "a[0]", "a[1]")])
    slope = (x["u"] - 2) * (5 - x["u"]) / 3
    np.testing.assert_allclose(joint.log_prob(x), np.asarray(q.log_prob(z)) - np.log(slope), rtol=1e-6)
    columns = np.column_stack([x["u"], x["mu"], x["a"]])
    np.testing.assert_allclose(joint.log_prob(columns), joint.log_prob(x))
    np.testing.assert_allclose(joint.pdf(columns[0]), np.exp(joint.log_prob(columns[0])))
    assert joint.log_prob(columns[0]).shape == ()
    assert joint.log_prob({"u": 1.0, "mu": 0.0, "a": [0.0, 0.0]}) == -np.inf
    assert joint.marginal("mu").cdf(0.3) == pytest.approx(result.marginal("mu").cdf(0.3))


def test_entries_have_names_of_their_own(result):
    joint = result.marginal("a[1]", "sigma")
    assert set(joint.sample(3)) == {"a[1]", "sigma"}
    assert result.marginal("a[1]").cdf(0.2) == pytest.approx(joint.marginal("a[1]").cdf(0.2))


def test_a_function_of_vectors_has_x():
    plain = natmix.fit(lambda x: -0.5 * jnp.sum(x**2), 2, **LEAST)
    plain = dataclasses.replace(plain, mixture=Mixture.full([1.0], [[0.5, 1.0]], [np.eye(2)]))
    assert plain.marginal("x[1]").cdf(1.0) == pytest.approx(0.5)
    assert plain.marginal("x").log_prob([0.5, 1.0]) == pytest.approx(-math.log(2 * math.pi))
    assert plain.prob(lambda d: d["x"][:, 0] > 0.5).value == pytest.approx(0.5, abs=0.01)


def test_a_conditional_is_the_joint_density_over_the_marginal(result):
    given = {"sigma": 0.5, "a[0]": 0.1}
    rest = result.condition(given)
    assert rest.names == ("mu", "u", "t", "a[1]")
    assert rest.given == given
    everything = result.marginal("mu", "u", "t", "a[1]", "sigma", "a[0]")
    point = {"mu": 0.2, "u": 3.3, "t": 1.5, "a[1]": -0.2}
    expected = everything.log_prob({**point, **given}) - result.marginal("sigma", "a[0]").log_prob(given)
    assert rest.log_prob(point) == pytest.approx(expected)
    again = result.condition({"a[0]": 0.1}).condition({"sigma": 0.5})
    assert again.log_prob(point) == pytest.approx(expected)
    one = rest.marginal("u")
    inside = integrate.quad(lambda u: math.exp(rest.marginal("u", "mu").log_prob([u, 0.2])), 2, 5)[0]
    assert rest.marginal("mu").pdf(0.2) == pytest.approx(inside, rel=1e-6)
    draws = rest.sample(20_000)
    assert set(draws) == set(POSITION)
    np.testing.assert_allclose(draws["sigma"], 0.5)
    np.testing.assert_allclose(draws["a"][:, 0], 0.1)
    assert stats.kstest(draws["u"], one.cdf).pvalue > 1e-3
    left = result.marginal("mu", "a").condition({"a[1]": 0.3})
    assert left.names == ("mu", "a[0]")
    assert "a[1] = 0.3" in repr(left)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda r: r.marginal("sgima"), "There is no variable 'sgima'. Did you mean 'sigma'?"),
        (lambda r: r.marginal("a[7]"), r"Did you mean 'a\[[01]\]'"),
        (lambda r: r.marginal(), "at least one variable"),
        (lambda r: r.marginal("mu", "mu"), "same coordinate"),
        (
            lambda r: r.condition({"sigma": -1.0}),
            r"sigma = -1 is not inside the support of sigma, \(0, inf\)",
        ),
        (lambda r: r.condition({}), "by name"),
        (lambda r: r.condition({"a": [1.0, 2.0, 3.0]}), r"array of shape \[2\]"),
        (lambda r: r.condition({"a": 0.0, "a[0]": 1.0}), "given twice"),
        (lambda r: r.condition(dict.fromkeys(POSITION, 2.5)), "nothing is left"),
        (lambda r: r.condition({"mu": 0.0}).marginal("mu"), "its value is given"),
        (lambda r: r.marginal("mu").condition({"sigma": 1.0}), "the variables are mu"),
        (lambda r: r.marginal("mu", "u").log_prob([1.0]), "2 numbers in its last axis"),
        (lambda r: r.marginal("mu", "u").log_prob({"mu": 1.0}), "do not have 'u'"),
        (lambda r: r.marginal("mu", "u").cdf(0.0), r"mu, u are 2: take \.marginal\('mu'\) first"),
        (lambda r: r.prob({"mu": 1.0}), "pair"),
        (lambda r: r.prob({"mu": (1.0, 0.0)}), "must not be above"),
        (lambda r: r.prob(3.0), "An event is a function"),
        (lambda r: r.prob(lambda d: d["mu"]), "truth values"),
        (lambda r: r.prob(lambda d: d["a"] > 0), "truth values"),
        (lambda r: r.marginal("mu").prob({"u": (3, None)}), "bounds must be of mu"),
    ],
)
def test_errors_say_what_to_do(result, ask, words):
    with pytest.raises(ValueError, match=words):
        ask(result)


# Probabilities ------------------------------------------------------------------------------------


def test_bounds_of_one_number_have_an_exact_probability(result):
    for name, pair in (("mu", (0, None)), ("sigma", (0.5, 2)), ("t", (None, 1)), ("u", (-5, 3))):
        found = result.prob({name: pair})
        one = result.marginal(name)
        low, high = (-np.inf if pair[0] is None else pair[0]), (np.inf if pair[1] is None else pair[1])
        assert found.standard_error == 0
        assert found.value == pytest.approx(float(one.cdf(high) - one.cdf(low)))
    assert result.prob({"u": (0, 9)}) == (1.0, 0.0)
    assert result.prob({"u": (5, None)}).value == 0


def test_a_box_of_a_diagonal_mixture_is_exact(result):
    q = dataclasses.replace(result, mixture=random_mixture(diagonal=True))
    box = {"mu": (-0.5, 1), "sigma": (None, 1.5), "a": (-1, [1.0, 2.0])}
    found = q.prob(box)
    assert found.standard_error == 0

    def inside(d):
        ok = (d["mu"] > -0.5) & (d["mu"] < 1) & (d["sigma"] < 1.5)
        return ok & (d["a"] > -1).all(axis=1) & (d["a"][:, 0] < 1) & (d["a"][:, 1] < 2)

    drawn = q.prob(inside, 200_000)
    assert abs(drawn.value - found.value) < 5 * drawn.standard_error


@pytest.mark.parametrize("dim", [2, 3, 6, 12])
def test_a_box_of_a_full_mixture_is_scipy_s(dim):
    q = random_mixture(2, dim, seed=dim)
    low, high = np.full(dim, -1.5), np.full(dim, 1.2)
    low[0], high[1] = -np.inf, np.inf
    found = box_probability(q, low, high, seed=0)
    theirs = sum(
        float(w)
        * stats.multivariate_normal.cdf(high, np.asarray(m), np.asarray(S), lower_limit=low, abseps=1e-7)
        for w, m, S in zip(q.weights, q.means, q.covariances, strict=True)
    )
    assert 0 < found.standard_error < 1e-3
    assert abs(found.value - theirs) < 5 * found.standard_error + 1e-6
    assert box_probability(q, low, high, seed=0) == found


def test_an_event_s_error_is_that_of_its_draws(result):
    found = [result.prob(lambda d: d["mu"] > d["sigma"], 500, seed=s) for s in range(60)]
    values = np.array([e.value for e in found])
    assert values.std(ddof=1) == pytest.approx(np.mean([e.standard_error for e in found]), rel=0.3)
    never = result.prob(lambda d: d["sigma"] < -1, 1000)
    assert never.value == 0
    assert 0 < never.standard_error < 3e-3


def test_a_conditional_has_probabilities_too(result):
    rest = result.condition({"sigma": 0.5})
    assert rest.prob({"sigma": (0.4, 0.6), "mu": (0, None)}).value == pytest.approx(
        rest.marginal("mu").sf(0.0)
    )
    assert rest.prob({"sigma": (0.6, None)}) == (0.0, 0.0)
    drawn = rest.prob(lambda d: (d["mu"] > 0) & (abs(d["sigma"] - 0.5) < 1e-6), 20_000)
    assert abs(drawn.value - rest.marginal("mu").sf(0.0)) < 5 * drawn.standard_error


def test_probabilities_are_corrected_by_importance_weights():
    """The mixture is narrower than the target, a standard normal."""
    fitted = natmix.fit(lambda x: -0.5 * jnp.sum(x**2), 1, elbo_samples=20_000, **LEAST)
    q = Mixture.full([1.0], [[0.2]], [[[0.9]]])
    narrow = dataclasses.replace(fitted, mixture=q, draws=None)
    truth = float(stats.norm.cdf(1) - stats.norm.cdf(0.5))
    raw = narrow.prob({"x[0]": (0.5, 1)})
    assert abs(raw.value - truth) > 0.01
    for event in ({"x[0]": (0.5, 1)}, lambda d: (d["x"][:, 0] > 0.5) & (d["x"][:, 0] < 1)):
        found = narrow.prob(event, 40_000, corrected=True)
        assert abs(found.value - truth) < 4 * found.standard_error
        assert found.standard_error < 0.005
    kept = fitted.prob({"x[0]": (0.5, 1)}, corrected=True)
    assert abs(kept.value - truth) < 4 * kept.standard_error
    with pytest.raises(ValueError, match="known log density"):
        narrow.prob({"x[0]": (0, 1)}, corrected=True)


# What is a function of one coordinate -------------------------------------------------------------


def everything(y=None):
    mu = numpyro.sample("mu", dist.Normal(1.0, 2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    numpyro.sample("u", dist.Uniform(2.0, 5.0))
    numpyro.sample("d", dist.Uniform(0.0, sigma))
    numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))
    numpyro.deterministic("total", mu + sigma)
    numpyro.deterministic("more", 1 + sigma)
    numpyro.sample("y", dist.Normal(mu, sigma), obs=y)


def test_only_functions_of_one_coordinate_have_a_closed_form():
    fitted = natmix.fit(everything, model_kwargs={"y": np.zeros(2)}, **LEAST)
    variables = fitted._names.variables
    assert [name for name, v in variables.items() if v.known] == ["mu", "sigma", "u", "more"]
    assert list(variables) == ["mu", "sigma", "u", "d", "p", "total", "more"]
    assert fitted.marginal("more").support() == (1, np.inf)
    assert fitted.marginal("more").cdf(2.5) == pytest.approx(fitted.marginal("sigma").cdf(1.5))
    for name in ("p", "p[1]", "total", "d"):
        with pytest.raises(ValueError, match="take draws"):
            fitted.marginal(name)
    with pytest.raises(ValueError, match="same coordinate"):
        fitted.marginal("sigma", "more")
    rest = fitted.condition({"more": 1.5})
    np.testing.assert_allclose(rest.sample(10)["sigma"], 0.5)
    assert (rest.sample(10)["d"] < 0.5).all()
    with pytest.raises(ValueError, match=r"use \.marginal\('mu', 'u'\) instead"):
        rest.log_prob({"mu": 0, "u": 3, "d": 0.1, "p": [0.2, 0.3, 0.5]})


def maps(model):
    return {name: [e and e.map for e in v.entries] for name, v in model_variables(model).items()}


def test_maps_are_found_in_single_precision_too():
    with jax.enable_x64(False):
        found = maps(NumpyroModel(everything, (), {"y": np.zeros(2, np.float32)}))
    assert found["mu"] == [ScalarMap()]
    assert found["sigma"] == [ScalarMap("exp")]
    assert found["u"] == [ScalarMap("logistic", 2.0, 3.0)]
    assert found["more"] == [ScalarMap("exp", 1.0)]
    assert found["d"] == found["total"] == [None]
    assert found["p"] == [None] * 3


def test_maps_of_a_pymc_model():
    pymc = pytest.importorskip("pymc")
    with pymc.Model() as model:
        mu = pymc.Normal("mu", 1, 2)
        sigma = pymc.HalfNormal("sigma", 1)
        pymc.Uniform("u", 2, 5)
        pymc.TruncatedNormal("t", 0, 1, upper=3.0)
        pymc.Uniform("d", 0, sigma)
        pymc.VonMises("angle", 0, 1)
        pymc.Normal("o", shape=2, transform=pymc.distributions.transforms.ordered)
        pymc.Normal("y", mu, sigma, observed=[1.0, 2.0])
    found = maps(PymcModel(model))
    assert found == {
        "mu": [ScalarMap()],
        "sigma": [ScalarMap("exp")],
        "u": [ScalarMap("logistic", 2, 3)],
        "t": [ScalarMap("exp", 3, -1)],
        "d": [None],
        "angle": [None],
        "o": [ScalarMap(), None],
    }


def test_a_saved_result_needs_its_model_for_this(tmp_path):
    data = {"y": np.zeros(2)}
    fitted = natmix.fit(everything, model_kwargs=data, **LEAST)
    path = tmp_path / "fit.safetensors"
    fitted.save(path)
    with pytest.raises(ValueError, match="load it with its model"):
        natmix.Result.load(path).marginal("mu")
    again = natmix.Result.load(path, model=everything, model_kwargs=data)
    assert again.marginal("sigma").median() == pytest.approx(fitted.marginal("sigma").median())


@pytest.mark.parametrize("of", [ScalarMap(), ScalarMap("exp", 3, -1), ScalarMap("logistic", -1, 0.5)])
def test_a_map_and_its_inverse(of):
    z = np.linspace(-8, 8, 33)
    np.testing.assert_allclose(of.unconstrain(of.constrain(z)), z, rtol=1e-9, atol=1e-9)
    slope = (of.constrain(z + 1e-6) - of.constrain(z - 1e-6)) / 2e-6
    np.testing.assert_allclose(np.exp(of.log_slope(z)), np.abs(slope), rtol=1e-5, atol=1e-9)
