"""The code in a report repeats the fit."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from html_page import Page
from quick_fits import LEAST

import natmix
from natmix.report import report_html
from natmix.report.call import repeated_call


def log_density(x):
    return jnp.logaddexp(-0.5 * jnp.sum((x - 2) ** 2), -0.5 * jnp.sum((x + 2) ** 2))


def model(y=None):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def repeated(result, **names):
    space = {"natmix": natmix, **names}
    exec(repeated_call(result).code, space)
    return space["result"]


def assert_same(one, other):
    np.testing.assert_array_equal(one.mixture.means, other.mixture.means)
    np.testing.assert_array_equal(one.mixture.weights, other.mixture.weights)
    assert one.counts == other.counts
    settings = [{k: v for k, v in r.settings.items() if k != "progress"} for r in (one, other)]
    assert settings[0] == settings[1]


def fit(seed):
    return natmix.fit(
        log_density,
        dim=2,
        seed=seed,
        init_components=4,
        init_scale=np.array([2.0, 3.0]),
        covariance="diagonal",
        temperature=1.5,
        component_stepsize={"stepsize": 0.05},
        elbo_samples=100,
        verify=False,
        **LEAST,
    )


@pytest.fixture(scope="module")
def fitted(quick_compilation):
    return fit(3)


def test_a_function(fitted):
    found = repeated_call(fitted)
    assert "covariance='diagonal'" in found.code
    assert "component_stepsize={'stepsize': 0.05}" in found.code
    assert found.unknown[0].startswith("log_density: as the fit had them")
    assert_same(fitted, repeated(fitted, log_density=log_density))


def test_the_code_is_in_the_report(fitted):
    assert repeated_call(fitted).code in Page(report_html(fitted)).words


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"accuracy": None}, {"more_samples": False}, {"dtype": "float32"}])
def test_default_fits(options):
    result = natmix.fit(log_density, dim=2, max_iterations=60, elbo_samples=500, **options)
    assert_same(result, repeated(result, log_density=log_density))


@pytest.mark.slow
def test_a_numpyro_model():
    result = natmix.fit(model, model_kwargs={"y": 0.5}, max_iterations=60, elbo_samples=500)
    given = {"model": model, "model_args": (), "model_kwargs": {"y": 0.5}}
    assert_same(result, repeated(result, **given))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"init_mixture": True}, "init_mixture: the mixture that was given."),
        ({"init_draws": {"sha256": "ab12", "number": 3}}, "SHA-256 as float64 vectors is ab12"),
        ({"devices": 4}, "mesh: the 4 devices of the fit."),
        ({"start": "pathfinder"}, "init_components, if it was given: pathfinder found 4."),
    ],
)
def test_what_is_not_known_is_said(fitted, changes, words):
    result = dataclasses.replace(fitted, settings={**fitted.settings, **changes})
    found = repeated_call(result)
    assert any(words in line for line in found.unknown)
    compile(found.code, "call", "exec")


def test_a_fit_that_the_clock_ended(fitted):
    found = repeated_call(dataclasses.replace(fitted, stopped="max_seconds"))
    assert "depends on the clock" in found.unknown[-1]


def test_combined_fits_have_no_single_call(fitted):
    combined = natmix.combine([fitted, fit(4)])
    found = repeated_call(combined)
    assert found.code == ""
    assert "natmix.combine" in found.unknown[0]
    assert "natmix.combine" in Page(report_html(combined)).words
