"""Ranks of true parameters: exact posteriors pass, narrow and biased ones are flagged."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from known_posterior import Known, log_density, simulate
from scipy import stats

from natmix.calibration import simulation_check


def check(fits=200, shift=0.0, scale=1.0, **options):
    def exact(model, seed):
        return Known(model.observed["y"], shift, scale)

    return simulation_check(log_density, simulate=simulate, fits=fits, fit=exact, **options)


def test_an_exact_posterior_gives_uniform_ranks():
    found = check()
    assert found.names == ("theta[0]", "theta[1]")
    assert found.ranks.shape == (200, 2)
    assert found.ranks.min() >= 0
    assert found.ranks.max() <= 999
    assert found.passed
    assert "NOTHING WRONG FOUND with 2 parameters in 200 simulations" in str(found)
    for p, u in zip(found.parameters, found.pit_values.T, strict=True):
        assert stats.kstest(u, "uniform").pvalue > 0.01
        assert abs(p.bias.value) < 3.5 * p.bias.standard_error
        assert abs(p.spread.value - 1) < 3.5 * p.spread.standard_error


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"scale": 0.6}, "too narrow"),
        ({"scale": 2.0}, "too wide"),
        ({"shift": -0.6}, "too low"),
        ({"shift": 0.6}, "too high"),
    ],
)
def test_a_wrong_posterior_is_flagged_and_named(wrong, words):
    found = check(fits=100, **wrong)
    assert len(found.flagged) == 2
    assert "2 WRONG of 2 parameters" in str(found)
    assert words in str(found)
    for p in found.parameters:  # the numbers behind the words are those put in
        assert p.bias.value == pytest.approx(-wrong.get("shift", 0.0), abs=4 * p.bias.standard_error)
        assert p.spread.value == pytest.approx(1 / wrong.get("scale", 1.0), rel=0.3)


# When something goes wrong ------------------------------------------------------------------------


@pytest.mark.parametrize("raised", [True, False])
def test_an_interrupt_keeps_what_is_there(raised):
    seen = []

    def fit(model, seed):
        seen.append(seed)
        if len(seen) == 8 and raised:
            raise KeyboardInterrupt
        return Known(model.observed["y"], interrupted=len(seen) == 8)

    found = simulation_check(log_density, simulate=simulate, fits=30, fit=fit)
    assert found.fits == 7
    assert "Ended after 7 of 30" in str(found)


def test_an_interrupt_before_the_first_fit_is_one():
    def fit(model, seed):
        return Known(model.observed["y"], interrupted=True)

    with pytest.raises(KeyboardInterrupt):
        simulation_check(log_density, simulate=simulate, fit=fit)


def test_fits_start_at_the_prior_and_not_at_the_truth():
    regions = []

    def fit(model, seed):
        regions.append(model.start(jax.random.key(seed)))
        return Known(model.observed["y"])

    simulation_check(log_density, simulate=simulate, fit=fit, fits=100)
    for region in regions:
        np.testing.assert_array_equal(region.mean, regions[0].mean)
    assert regions[0].mean == pytest.approx(0, abs=0.4)
    assert regions[0].scale == pytest.approx(1, abs=0.35)


def test_failures_are_counted_and_told():
    seen = []

    def fit(model, seed):
        seen.append(seed)
        if len(seen) % 4 == 0:
            raise RuntimeError("no luck")
        return Known(model.observed["y"] * (np.nan if len(seen) % 4 == 1 else 1.0))

    found = simulation_check(log_density, simulate=simulate, fits=20, fit=fit)
    assert found.fits == 10
    assert len(found.failures) == 10
    assert "10 failed fits left out" in str(found)
    assert any("no luck" in f for f in found.failures)


def test_hopeless_cases_end_soon():
    def fit(model, seed):
        raise RuntimeError("never")

    with pytest.raises(ValueError, match=r"No simulation could be fitted.*never"):
        simulation_check(log_density, simulate=simulate, fit=fit)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"fits": 2}, "fits must be a whole number of at least 5"),
        ({"draws": 0}, "draws must be"),
        ({"level": 5}, "level must lie between 0 and 1"),
        ({"seed": -1}, "seed must be"),
        ({"observed": "y"}, "observed holds names"),
        ({"model_args": ()}, "does not take model_args"),
        ({"max_evalutions": 3}, "Did you mean 'max_evaluations'"),
    ],
)
def test_bad_input_gets_a_sentence(arguments, words):
    with pytest.raises(ValueError, match=words):
        simulation_check(log_density, simulate=simulate, **arguments)


def test_a_simulator_that_returns_something_else_gets_a_sentence():
    with pytest.raises(ValueError, match="must return a pair"):
        simulation_check(log_density, simulate=lambda key: jnp.zeros(2))  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="Give a NumPyro or PyMC model"):
        simulation_check(3)
