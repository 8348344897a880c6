"""What a fit does with targets outside JAX that are not as they should be.

It goes on, with a mixture of finite numbers and a verdict that says what is wrong; or it stops with a
`TargetError` of one sentence, which has the best mixture so far. Calls that hang or die: test_workers.py. A
gradient that is wrong everywhere: test_gradient_check.py. Targets inside JAX: tests/test_bad_input.py.
"""

import itertools
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import pytest

import natmix
from natmix import HostTarget, TargetError

pytestmark = pytest.mark.usefixtures("quick_compilation")

SMALL: dict[str, Any] = {
    "sample_selector": {"desired_samples": 40},
    "component_adaptation": {
        "max_components": 6,
        "add_iters": 10,
        "prior_candidates": 20,
        "database_size": 2000,
        "database_candidates": 500,
    },
    "max_evaluations": 3000,
    "elbo_samples": 300,
    "progress": False,
}


def normal(x):
    return -0.5 * np.sum(x**2, axis=1)


def striped(value):
    """A standard normal, but for stripes in which the log density is ``value``."""
    return lambda x: np.where(np.sin(5 * x[:, 0]) > 0.6, value, normal(x))


def fitted(fn, dim=1, elbo_samples=300, **kind) -> natmix.Result:
    """A small fit; nothing may warn, and the mixture must be in order."""
    limits = {**SMALL, "elbo_samples": elbo_samples}
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        result = natmix.fit(HostTarget(fn, dim, batched=True, **kind), **limits)
        result.summary()
    for leaf in jax.tree.leaves(result.mixture):
        assert np.isfinite(np.asarray(leaf)).all()
    assert np.sum(np.asarray(result.mixture.weights)) == pytest.approx(1, abs=1e-5)
    return result


def reasons(result) -> str:
    return " ".join(result.diagnosis.reasons)


X = np.linspace(-60, 60, 1_200_001)[:, None]


def log_z(fn) -> float:
    """The log of the integral over the line, by a sum."""
    values = fn(X)
    finite = np.where(np.isnan(values) | (values > 1e30), -np.inf, values)
    return float(np.log(np.sum(np.exp(finite)) * (X[1, 0] - X[0, 0])))


# Values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e38, 1e300])
def test_regions_without_a_value_are_excluded_and_the_verdict_says_so(value):
    result = fitted(striped(value))
    assert result.counts.invalid > 0.1 * result.counts.training_evaluations
    assert result.counts.zeros == 0
    assert result.diagnosis.verdict == "distrust"
    assert "NaN or +inf at" in reasons(result)
    assert any("excluded from the updates" in note for note in result.notes)


@pytest.mark.parametrize("value", [-np.inf, -1e38, -1e300])
def test_regions_without_density_are_left(value):
    result = fitted(striped(value))
    assert result.counts.zeros > 0
    assert result.counts.invalid == 0
    assert result.elbo.zero_share < 0.25  # of a standard normal's: 29%
    bound = log_z(striped(-np.inf)) - np.log1p(-result.elbo.zero_share)
    assert result.elbo.where_positive < bound + 4 * result.elbo.standard_error
    again = fitted(striped(-np.inf))
    np.testing.assert_array_equal(result.mixture.means, again.mixture.means)


def test_gradients_that_are_nan_in_a_region_are_excluded():
    def gradient(x):
        return np.where(np.sin(5 * x) > 0.6, np.nan, -x)

    result = fitted(normal, gradient=gradient)
    assert result.counts.invalid > 0.1 * result.counts.training_evaluations
    assert result.elbo.invalid_share == 0
    np.testing.assert_allclose(result.mixture.std(), 1, atol=0.3)


@pytest.mark.parametrize("offset", [1e20, -1e20])
def test_an_offset_that_takes_all_digits_is_said(offset):
    result = fitted(lambda x: normal(x) + offset)
    assert result.diagnosis.verdict == "undecided"
    assert "Too few digits to judge" in reasons(result)
    assert "subtract a constant" in reasons(result)


def test_an_offset_that_leaves_enough_digits_does_not_matter():
    plain, moved = (fitted(lambda x, c=c: normal(x) + c) for c in (0.0, 64.0))
    np.testing.assert_allclose(moved.mixture.std(), plain.mixture.std(), atol=0.05)
    assert moved.elbo.value - plain.elbo.value == pytest.approx(64, abs=0.02)


# Shapes of the density --------------------------------------------------------------------------

PROPER = {
    "discontinuous": lambda x: normal(x) + np.where(x[:, 0] > 0.5, 3.0, 0.0),
    "plateau": lambda x: np.where(np.abs(x[:, 0]) < 2, 0.0, -5.0 * (np.abs(x[:, 0]) - 2)),
    "unbounded": lambda x: -0.5 * np.log(np.abs(x[:, 0]) + 1e-30) - np.abs(x[:, 0]),
    "heavy tails": lambda x: -np.log1p(x[:, 0] ** 2),
}

EXACT = {"unbounded": np.log(2 * np.sqrt(np.pi)), "heavy tails": np.log(np.pi)}


@pytest.mark.parametrize("name", PROPER)
def test_the_elbo_stays_below_the_evidence(name):
    result = fitted(PROPER[name])
    exact = EXACT.get(name) or log_z(PROPER[name])
    assert exact - 1.0 < result.elbo.value < exact + 4 * result.elbo.standard_error
    assert result.counts.invalid == 0
    if name in ("unbounded", "heavy tails"):
        assert result.diagnosis.verdict != "trust"


IMPROPER = {
    "constant": lambda x: np.zeros(len(x)),
    "slowly falling": lambda x: -0.1 * np.log1p(np.sum(x**2, axis=1)),
    "rising": lambda x: x[:, 0],
    "rising faster than any Gaussian falls": lambda x: 0.5 * np.sum(x**2, axis=1),
    "a pole": lambda x: -2.5 * np.log(np.sum(x**2, axis=1) + 1e-300),
}


@pytest.mark.parametrize("name", IMPROPER)
def test_what_cannot_be_normalised_is_said_in_words(name):
    result = fitted(IMPROPER[name], dim=2 if name == "a pole" else 1, elbo_samples=1000)
    assert result.diagnosis.verdict != "trust"
    assert "the target cannot be normalised" in reasons(result)


@pytest.mark.parametrize("size", [1.0, 20.0])
def test_values_that_are_random_are_not_trusted(size):
    rng = np.random.default_rng(0)
    result = fitted(lambda x: normal(x) + size * rng.normal(size=len(x)))
    assert result.diagnosis.verdict != "trust"


# Functions that fail ----------------------------------------------------------------------------


def fails_after(calls, failure):
    """A normal density whose later calls do something else."""
    numbers = itertools.count()
    return lambda x: failure(x) if next(numbers) >= calls else normal(x)


def raising(x):
    raise OSError("the licence is lost")


LATE = {
    "raises": (raising, "raised OSError: the licence is lost"),
    "a wrong shape": (lambda x: np.zeros((len(x), 2)), r"must have shape \[\d+\] for \d+ points"),
    "too few": (lambda x: normal(x)[:-1], r"must have shape \[\d+\] for \d+ points"),
    "text": (lambda x: "fast", "must consist of real numbers, it returned str"),
    "nothing": (lambda x: None, "must consist of real numbers, it returned NoneType"),
    "complex": (lambda x: normal(x) + 0j, "must consist of real numbers, it returned ndarray of complex128"),
    "a pair": (lambda x: (normal(x), -x), "must consist of real numbers|must have shape"),
}


@pytest.mark.parametrize("name", LATE)
def test_a_function_that_fails_later_leaves_the_best_mixture(name):
    failure, message = LATE[name]
    with pytest.raises(TargetError, match=message) as error:
        fitted(fails_after(6, failure))
    assert "\n" not in str(error.value)
    result = error.value.result
    assert result.stopped == "failed"
    assert result.counts.iterations >= 3
    assert np.isfinite(np.asarray(result.mixture.means)).all()
    result.mixture.sample(5)


def test_random_errors_side_by_side_leave_the_best_mixture():
    random = np.random.default_rng(1)

    def one(x):
        if random.uniform() < 0.003:
            raise OSError("the licence is lost")
        return -0.5 * float(x @ x)

    with ThreadPoolExecutor(3) as executor, pytest.raises(TargetError, match="licence is lost") as error:
        natmix.fit(HostTarget(one, 1, executor=executor), **SMALL)
    result = error.value.result
    assert result.stopped == "failed"
    assert result.counts.evaluations >= 40
