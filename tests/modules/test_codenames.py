"""432 names, from letters to options and back."""

import itertools

import pytest

from natmix import GMMVI, MODULES
from natmix.modules.component_updaters import Iblr, TrustRegionComponentUpdater

ALL = ["".join(o.letter for o in combination) for combination in itertools.product(*MODULES.values())]


def test_all_432_names_are_distinct_and_come_back():
    assert len(set(ALL)) == 432
    letters = [o.letter for options in MODULES.values() for o in options]
    assert len(set(letters)) == len(letters) == 17
    for name in ALL:
        assert GMMVI.from_codename(name).codename == name


@pytest.mark.parametrize("name", ["samtron", "NORTMAS", "TrOnSaM"])
def test_any_order_and_case(name):
    assert GMMVI.from_codename(name).codename == "SAMTRON"


def test_overrides_by_module():
    algo = GMMVI.from_codename(
        "samtron",
        sample_selector={"desired_samples": 7},
        component_stepsize={"stepsize": 0.5},
        temperature=2.0,
    )
    assert algo.sample_selector.desired_samples == 7
    assert float(algo.component_stepsize.stepsize) == 0.5  # type: ignore[attr-defined]
    assert float(algo.temperature) == 2.0
    settings = algo.settings()
    assert settings["sample_selector"]["desired_samples"] == 7
    assert settings["codename"] == "SAMTRON"
    again = {k: {n: v for n, v in settings[k].items() if n != "option"} for k in MODULES}
    assert GMMVI.from_codename(settings["codename"], **again, temperature=2.0).settings() == settings


def test_the_adaptive_stepsize_of_the_direct_update_does_not_overshoot():
    def largest(name, **overrides):
        return float(GMMVI.from_codename(name, weight_stepsize=overrides).weight_stepsize.max_stepsize)  # type: ignore[attr-defined]

    assert (largest("samtrun"), largest("samtron")) == (1, 4)
    assert largest("samtrun", max_stepsize=3.0) == 3
    assert largest("samtrun", stepsize=0.1) == 1
    assert float(GMMVI.from_codename("samtrun").weight_stepsize.max_stepsize) == 1  # type: ignore[attr-defined]


def test_an_option_itself_as_override():
    assert isinstance(GMMVI.from_codename("samyron", component_updater=Iblr()).component_updater, Iblr)
    with pytest.raises(ValueError, match=r"chooses 'Y'.*the override 'T'"):
        GMMVI.from_codename("samyron", component_updater=TrustRegionComponentUpdater())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("samtroq", "'Q' is not the letter of an option.*estimator: S/Z.*weight stepsize: N/X/G"),
        ("szmtron", r"'S' and 'Z' both choose the estimator; take one of S \(Stein\), Z \(MORE\)"),
        ("samtro", r"has no letter for the weight stepsize: N \(Adaptive\), X \(Fixed\), G \(Decaying\)"),
        ("", "has no letter for the estimator"),
        (7, "string of seven letters"),
    ],
)
def test_wrong_names_get_a_sentence(name, words):
    with pytest.raises(ValueError, match=words):
        GMMVI.from_codename(name)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"component_stepsizes": {}}, "no module 'component_stepsizes'.*component_stepsize"),
        ({"component_stepsize": {"step": 1}}, "no hyperparameter 'step'. Did you mean 'stepsize'"),
        ({"component_stepsize": 0.1}, "takes a dictionary"),
        ({"component_stepsize": {"stepsize": -1}}, r"stepsize must lie in \[0, inf\), got -1"),
        ({"component_stepsize": {"stepsize": "big"}}, "stepsize must be a number"),
        ({"component_stepsize": {"stepsize": float("nan")}}, "stepsize must lie in"),
        ({"component_stepsize": {"stepsize": "0.1"}}, "stepsize must be a number"),
        ({"component_stepsize": {"stepsize": [0.1, 0.2]}}, "stepsize must be a"),
        ({"component_stepsize": {"stepsize": None}}, "stepsize must be a number, got None"),
        (
            {"component_stepsize": {"min_stepsize": 2.0}},
            "min_stepsize must not exceed max_stepsize, got 2 and 1",
        ),
        ({"weight_stepsize": {"max_stepsize": 0.0}}, "min_stepsize must not exceed max_stepsize"),
        ({"sample_selector": {"desired_samples": None}}, "desired_samples must be a number, got None"),
        ({"sample_selector": {"reuse_ratio": float("inf")}}, "reuse_ratio must lie in"),
        ({"component_adaptation": {"add_iters": 2.5}}, "add_iters must be a whole number, got 2.5"),
        ({"component_adaptation": {"max_components": 2.5}}, "max_components must be a whole number"),
        ({"component_adaptation": {"thresholds": []}}, "thresholds must be a list of numbers"),
        ({"component_adaptation": {"thresholds": 5}}, "thresholds must be a list of numbers"),
        ({"component_adaptation": {"thresholds": [5, -1]}}, "thresholds must lie in"),
        ({"sample_selector": {"desired_samples": 2.5}}, "desired_samples must be a whole number"),
        ({"sample_selector": {"desired_samples": 0}}, "desired_samples must lie in"),
        ({"ng_estimator": {"self_normalised": 1}}, "must be True or False"),
        ({"component_adaptation": {"del_iters": 2}}, "del_iters must lie in"),
        ({"temperature": 0.0}, "temperature must lie in"),
        ({"temperature": "hot"}, "temperature must be a number"),
    ],
)
def test_wrong_hyperparameters_get_a_sentence(overrides, words):
    with pytest.raises(ValueError, match=words):
        GMMVI.from_codename("samtron", **overrides)


def test_a_module_in_the_wrong_place_gets_a_sentence():
    algo = GMMVI.from_codename("samtron")
    parts = {m: getattr(algo, m) for m in MODULES} | {"weight_updater": algo.component_updater}
    with pytest.raises(ValueError, match="weight_updater must be one of"):
        GMMVI(**parts)
