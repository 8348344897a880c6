"""Models compared by their log evidences, against evidences in closed form."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest
from quick_fits import LEAST
from scipy import stats

import natmix
from natmix import Estimate
from natmix.result.compare import Comparison

Y = 1.3


def conjugate(prior_sd):
    """y ~ N(x, 1) with x ~ N(0, prior_sd^2), fitted by its exact posterior."""

    def log_density(x):
        prior = -0.5 * (x[0] / prior_sd) ** 2 - math.log(prior_sd)
        return prior - 0.5 * (Y - x[0]) ** 2 - math.log(2 * math.pi)

    variance = 1 / (1 + prior_sd**-2)
    posterior = natmix.Mixture.full([1.0], [[variance * Y]], [[[1.1 * variance]]])  # a little too wide
    options = {**LEAST, "max_iterations": 1, "algorithm": "semydux"}
    return natmix.fit(log_density, 1, init_mixture=posterior, elbo_samples=4000, verify=False, **options)


def log_evidence(prior_sd):
    return float(stats.norm(0, math.sqrt(1 + prior_sd**2)).logpdf(Y))


@pytest.fixture(scope="module")
def fits():
    return {"wide": conjugate(30.0), "unit": conjugate(1.0), "<b>narrow & small</b>": conjugate(0.1)}


@pytest.fixture
def judged(fits):
    """The same with verdicts of our own."""

    def with_verdicts(*verdicts):
        out = {}
        for (name, result), verdict in zip(fits.items(), verdicts, strict=True):
            copy = dataclasses.replace(result)
            copy.__dict__["diagnosis"] = dataclasses.replace(result.diagnosis, verdict=verdict)
            out[name] = copy
        return out

    return with_verdicts


def test_bayes_factors_and_probabilities_are_those_of_closed_form(fits):
    found = natmix.compare(fits)
    exact = {
        "wide": log_evidence(30.0),
        "unit": log_evidence(1.0),
        "<b>narrow & small</b>": log_evidence(0.1),
    }
    assert found.names == tuple(sorted(exact, key=lambda name: -exact[name]))
    assert found.best == found.names[0]
    total = sum(math.exp(v) for v in exact.values())
    for i, name in enumerate(found.names):
        for estimate, expected in (
            (found.log_evidences[i], exact[name]),
            (found.log_bayes_factors[i], exact[name] - exact[found.best]),
            (found.probabilities[i], math.exp(exact[name]) / total),
        ):
            assert abs(estimate.value - expected) <= 4 * estimate.standard_error
    assert found.log_bayes_factors[0] == (0.0, 0.0)
    assert sum(p.value for p in found.probabilities) == pytest.approx(1)
    assert found.evaluations == tuple(fits[name].counts.evaluations for name in found.names)


def test_errors_are_those_of_independent_log_evidences(judged):
    """Against Monte Carlo over the log evidences."""
    fits = judged("trust", "trust", "trust")
    values, errors = [0.0, -1.0, -1.5], [0.03, 0.05, 0.02]
    for result, value, error in zip(fits.values(), values, errors, strict=True):
        d = result.diagnosis
        result.__dict__["diagnosis"] = dataclasses.replace(d, log_evidence=Estimate(value, error))
    found = natmix.compare(fits)
    assert found.log_bayes_factors[1] == (-1.0, pytest.approx(math.hypot(0.03, 0.05)))
    drawn = np.array(values) + np.array(errors) * np.random.default_rng(0).normal(size=(200_000, 3))
    shares = np.exp(drawn) / np.exp(drawn).sum(axis=1, keepdims=True)
    np.testing.assert_allclose([p.standard_error for p in found.probabilities], shares.std(axis=0), rtol=0.03)
    assert "-1.000 ± 0.058" in str(found)


def test_the_table_marks_fits_not_to_be_relied_on(judged):
    fits = judged("distrust", "trust", "proposal")
    found = natmix.compare(fits)
    assert found.unreliable == ("wide",)
    lines = str(found).splitlines()
    assert lines[0] == "3 models by log evidence"
    assert [("!" in line) for line in lines[2:5]] == [name == "wide" for name in found.names]
    assert "result.diagnosis of wide" in lines[5]
    assert len({line.index("trust") for line in lines[2:5] if " trust" in line}) == 1
    assert "!" not in str(natmix.compare(judged("trust", "trust", "trust")))
    unsearched = str(natmix.compare(judged("unsearched", "trust", "undecided")))
    assert "misses no mode" in unsearched
    assert unsearched.count("!") == 2
    assert natmix.compare(list(fits.values())).names[0] == "fit 1"


def test_the_table_for_notebooks_is_escaped(fits):
    html = natmix.compare(fits)._repr_html_()
    assert "<b>narrow" not in html
    assert "&lt;b&gt;narrow &amp; small&lt;/b&gt;" in html
    assert html.count("<tr>") == 4


def test_the_table_as_a_data_frame(fits):
    pytest.importorskip("pandas")
    found = natmix.compare(fits)
    frame = found.to_pandas()
    assert tuple(frame.index) == found.names
    np.testing.assert_allclose(frame["log_evidence"], [e.value for e in found.log_evidences])
    assert list(frame.columns) == list(found.rows()[0])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda r: r, "in a list or by name"),
        (lambda r: [r], "at least two"),
        (lambda r: [r, 3], "fit 1 is int"),
        (lambda r: {"a": r, "b": dataclasses.replace(r, draws=None)}, "b has no log evidence"),
    ],
)
def test_what_cannot_be_compared(fits, given, words):
    with pytest.raises(ValueError, match=words):
        natmix.compare(given(fits["unit"]))


def test_models_without_any_mass_have_nothing_to_compare(judged):
    fits = judged("distrust", "distrust", "distrust")
    for result in fits.values():
        d = result.diagnosis
        result.__dict__["diagnosis"] = dataclasses.replace(d, log_evidence=Estimate(-np.inf, np.inf))
    with pytest.raises(ValueError, match="nothing to compare"):
        natmix.compare(fits)
    one = judged("trust", "trust", "trust")
    d = one["wide"].diagnosis
    one["wide"].__dict__["diagnosis"] = dataclasses.replace(d, log_evidence=Estimate(-np.inf, np.inf))
    found = natmix.compare(one)
    assert isinstance(found, Comparison)
    assert found.names[-1] == "wide"
    assert found.probabilities[-1] == (0.0, 0.0)
    assert jnp.isfinite(jnp.array([p.standard_error for p in found.probabilities])).all()
