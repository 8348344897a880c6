"""What a run is, and how the user says it."""

import json

import pytest
from tiny_problem import SMALL, tiny

from natmix.experiments import runs
from natmix.experiments.runs import Limits, configure
from natmix.experiments.runs.config import DEFAULT_SECONDS, merged, parse_seconds, parse_seeds
from natmix.files.differences import differences


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("2h", 7200), ("1d", 86400), ("0.5h", 1800), (" 3 m ", 180)],
)
def test_times(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "10x", "-5", "0", "0m", "1:30", "ten", "nan", "inf"])
def test_bad_times(text):
    with pytest.raises(ValueError, match="A time is written 90, 90s, 10m"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("text", "seeds"), [("7", [7]), ("0,3,5", [0, 3, 5]), ("0:3", [0, 1, 2]), ("4,0:2,4", [4, 0, 1])]
)
def test_seeds(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "-1", "0:", "1.5", "0,", "99999999999", "0:99999999999"])
def test_bad_seeds(text):
    with pytest.raises(ValueError, match="Seeds are written"):
        parse_seeds(text)


def test_an_empty_range_of_seeds():
    with pytest.raises(ValueError, match="names no seed"):
        parse_seeds("3:3")


def test_the_choices_of_fit():
    config = configure(tiny(), overrides={"component_stepsize": {"stepsize": 0.5}})
    settings = config.algorithm.settings()
    assert settings["codename"] == "SAMTRON"
    assert settings["component_stepsize"]["stepsize"] == 0.5
    assert settings["sample_selector"]["desired_samples"] == 100
    assert settings["component_adaptation"]["prior_candidates"] == 1000
    assert config.components == 1
    assert config.limits == Limits(max_seconds=DEFAULT_SECONDS)


def test_a_fixed_number_of_components_starts_with_several():
    assert configure(tiny(), "semtron").components == 32
    assert configure(tiny(), "semtron", components=3).components == 3


def test_a_given_limit_replaces_the_default_one():
    assert configure(tiny(), limits=Limits(max_iterations=5)).limits == Limits(max_iterations=5)
    # A target alone might never be reached.
    assert configure(tiny(), limits=Limits(until=1.0)).limits.max_seconds == DEFAULT_SECONDS


def test_the_choices_of_the_paper():
    problem = tiny(name="stm20")
    config = configure(problem, "samtron", preset="paper", overrides={"sample_selector": {"max_age": 7}})
    settings = config.algorithm.settings()
    assert config.components == 45
    assert config.start.variance == (300.0, 300.0)
    assert settings["sample_selector"]["desired_samples"] == 200
    assert settings["sample_selector"]["max_age"] == 7
    assert config.limits == Limits(max_seconds=7200.0, max_iterations=1_000_000)
    short = configure(problem, "samtron", preset="paper", limits=Limits(max_seconds=60.0))
    assert short.limits.max_seconds == 60


def test_the_algorithm_comes_back_from_its_configuration():
    config = configure(tiny(), "zamtrux", overrides={**SMALL, "temperature": 2.0})
    stored = json.loads(json.dumps(config.to_json()))
    assert runs.algorithm_from(stored).settings() == config.algorithm.settings()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"preset": "best"}, "preset must be fit or paper"),
        ({"covariance": "round"}, "covariance must be full"),
        ({"dtype": "float16"}, "dtype must be float32 or float64"),
        ({"components": 0}, "at least one component"),
        ({"preset": "paper"}, "no hyperparameters for SAMTRON on 'tiny'"),
        ({"overrides": {"sample_selector": {"size": 3}}}, "has no hyperparameter 'size'"),
        ({"algorithm": "samtro"}, "has no letter for"),
    ],
)
def test_bad_choices(arguments, words):
    with pytest.raises(ValueError, match=words):
        configure(tiny(), **arguments)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"max_seconds": 0.0}, "max_seconds must be a positive number"),
        ({"max_evaluations": 0}, "max_evaluations must be a whole number of at least 1"),
        ({"max_iterations": -3}, "max_iterations must be"),
        ({"until": float("nan")}, "until must be a number"),
    ],
)
def test_bad_limits(limits, words):
    with pytest.raises(ValueError, match=words):
        Limits(**limits)


def test_merged_overrides():
    below = {"a": {"x": 1, "y": 2}, "b": {"z": 3}}
    assert merged(below, {"a": {"y": 5}, "t": 1}) == {"a": {"x": 1, "y": 5}, "b": {"z": 3}, "t": 1}


def test_differences_are_named():
    there = {"a": {"b": 1, "c": [1, 2]}, "d": 1, "limits": 1}
    here = {"a": {"b": 2, "c": [1, 2]}, "e": 1, "limits": 2}
    assert differences(there, here, ("limits",)) == [("a.b", 1, 2), ("d", 1, None), ("e", None, 1)]
