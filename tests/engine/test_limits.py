"""Limits: which is reached, and how they are completed."""

import pytest

from natmix.engine.limits import Limits


@pytest.mark.parametrize(
    ("limits", "numbers", "reason"),
    [
        ({}, (10**9, 1e9, 0.0), None),
        ({"max_iterations": 5}, (4, 0.0, 0.0), None),
        ({"max_iterations": 5}, (5, 0.0, 0.0), "max_iterations"),
        ({"max_seconds": 2.0}, (0, 2.0, 1.0), "max_seconds"),
        ({"max_run_seconds": 2.0}, (0, 2.5, 1.0), None),
        ({"max_run_seconds": 2.0}, (0, 3.0, 1.0), "max_run_seconds"),
    ],
)
def test_which_limit_is_reached(limits, numbers, reason):
    assert Limits(**limits).reached(*numbers) == reason


def test_seconds_left_are_those_to_the_nearest_limit():
    assert Limits().seconds_left(5.0, 1.0) == float("inf")
    assert Limits(max_seconds=10.0, max_run_seconds=6.0).seconds_left(5.0, 1.0) == 2.0


def test_neither_an_elbo_nor_convergence_ends_a_run_for_certain():
    assert Limits(until=3.0, until_converged=True).endless
    assert not Limits(max_run_seconds=3.0).endless


def test_the_usual_limits_fill_the_gaps():
    mine = Limits(max_iterations=3, until_converged=True)
    usual = Limits(max_iterations=9, max_seconds=4.0)
    assert mine.completed_by(usual) == Limits(max_iterations=3, max_seconds=4.0, until_converged=True)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"max_seconds": 0}, "max_seconds must be a positive number, got 0"),
        ({"max_run_seconds": "1"}, "max_run_seconds must be a positive number"),
        ({"max_iterations": 2.5}, "max_iterations must be a whole number of at least 1, got 2.5"),
        ({"max_evaluations": True}, "max_evaluations must be a whole number"),
        ({"until": "low"}, "until must be a number"),
    ],
)
def test_bad_limits_get_a_sentence(limits, words):
    with pytest.raises(ValueError, match=words):
        Limits(**limits)
