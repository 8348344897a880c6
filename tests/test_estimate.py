"""Estimates as text: as many digits as the error allows, and no error below the resolution of the type."""

import jax
import numpy as np
import pytest

import natmix
from natmix.estimate import Estimate, counted, rounding_error

jax.config.update("jax_enable_x64", True)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (-31.31140123, 0.00090123, "-31.31140 ± 0.00090"),
        (1.23456, 0.0123, "1.235 ± 0.012"),
        (-31.3, 0.0996, "-31.30 ± 0.10"),
        (45678.0, 123.4, "45680 ± 120"),
        (1.837877066409345, 4.1e-16, "1.837877066409345 ± 4.1e-16"),
        (2.5, 0.0, "2.5"),
        (-np.inf, 0.1, "-inf ± 0.1"),
        (1.0, np.inf, "1 ± inf"),
        (np.nan, np.nan, "nan ± nan"),
    ],
)
def test_an_error_has_two_digits_and_its_value_as_many_decimals(value, error, text):
    assert str(Estimate(value, error)) == text


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [(0.4987, 0.0031, "49.87% ± 0.31%"), (0.7, 1e-9, "70.00% ± 0.01%"), (0.5, 0.2, "50% ± 20%")],
)
def test_shares_are_printed_in_percent(value, error, text):
    assert Estimate(value, error).percent() == text


def test_plurals():
    assert [counted(n, "mode") for n in (0, 1, 2, 1000)] == ["0 modes", "1 mode", "2 modes", "1,000 modes"]


def test_the_rounding_error_is_that_of_the_type_at_the_magnitude():
    log_p = np.array([-1e4, -np.inf, np.nan])
    assert rounding_error(np.float32, log_p, [3.0]) == pytest.approx(1e4 * 2**-23)
    assert rounding_error(np.float64, log_p, [3.0]) == pytest.approx(1e4 * 2**-52)
    assert rounding_error(np.float32, [np.nan]) == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_fit_claims_no_error_below_its_float_type(dtype):
    """The target is the initial Gaussian plus a large constant: all importance weights are equal."""
    result = natmix.fit(
        lambda x: -0.5 * (x @ x) + 1e4, dim=2, dtype=dtype, max_iterations=1, elbo_samples=100, progress=False
    )
    least = 0.9e4 * float(np.finfo(dtype).eps)
    for estimate in (result.elbo, result.diagnosis.elbo, result.diagnosis.log_evidence, result.diagnosis.gap):
        assert estimate.standard_error > least


def test_a_diagnosis_shows_its_verdict_in_a_notebook():
    result = natmix.fit(lambda x: -0.5 * (x @ x), dim=2, max_iterations=5, elbo_samples=200, progress=False)
    assert repr(result.diagnosis) == str(result.diagnosis)
    assert result.diagnosis.verdict == "unsearched"
    assert repr(result.diagnosis).startswith("GOOD AT THE MODES IT HAS: no others were searched for")
    searched = result.diagnose(search=100)
    assert searched.trusted
    assert repr(searched).startswith("TRUST IT")
