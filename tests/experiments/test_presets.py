"""The paper's hyperparameters."""

import importlib.resources
import math

import pytest

from natmix import GMMVI
from natmix.experiments.presets import EXPERIMENTS, codenames, paper, problems
from natmix.experiments.presets.paper import MOST_STORED, published_rows
from natmix.experiments.problems import load

ALL = [
    (experiment, codename, problem)
    for experiment in sorted(EXPERIMENTS.values())
    for codename in codenames(experiment)
    for problem in problems(codename, experiment)
]
ELEVEN = {
    "breast_cancer",
    "breast_cancer_mb",
    "german_credit",
    "german_credit_mb",
    "gmm100",
    "gmm20",
    "planar_robot_4",
    "stm20",
    "stm300",
    "talos",
    "wine",
}


def test_nine_algorithms_on_eleven_problems():
    assert len(codenames()) == 9
    for codename in codenames():
        missing = {"stm300"} if codename == "ZAMTRUX" else set()
        assert set(problems(codename)) == (ELEVEN - missing) | {
            "breast_cancer_testsplit",
            "german_credit_testsplit",
        }


def test_experiment_1_has_two_algorithms_on_three_problems():
    assert codenames(1) == ("SEPTRUX", "SEPYRUX")
    for codename in codenames(1):
        assert set(problems(codename, 1)) == {"breast_cancer", "breast_cancer_mb", "wine"}


@pytest.mark.parametrize(("experiment", "codename", "problem"), ALL)
def test_every_row_builds_its_algorithm_with_its_numbers(experiment, codename, problem):
    preset = paper(codename.lower(), problem, experiment)
    algorithm = GMMVI.from_codename(preset.codename, **preset.overrides)
    settings = algorithm.settings()
    row = published_rows(experiment)[codename, problem]
    assert preset.experiment == experiment
    assert settings["codename"] == codename
    named = {
        "desired_samples": ("sample_selector", "desired_samples"),
        "reuse_ratio": ("sample_selector", "reuse_ratio"),
        "component_stepsize": ("component_stepsize", "stepsize"),
        "component_stepsize_min": ("component_stepsize", "min_stepsize"),
        "component_stepsize_max": ("component_stepsize", "max_stepsize"),
        "weight_stepsize": ("weight_stepsize", "stepsize"),
        "weight_stepsize_min": ("weight_stepsize", "min_stepsize"),
        "weight_stepsize_max": ("weight_stepsize", "max_stepsize"),
        "del_iters": ("component_adaptation", "del_iters"),
        "add_iters": ("component_adaptation", "add_iters"),
        "max_components": ("component_adaptation", "max_components"),
        "add_database_candidates": ("component_adaptation", "database_candidates"),
        "add_prior_candidates": ("component_adaptation", "prior_candidates"),
    }
    for column, (module, name) in named.items():
        if row[column]:
            assert settings[module][name] == pytest.approx(float(row[column]))
    flags = {
        "own_samples_only": ("ng_estimator", "own_samples_only"),
        "ng_self_normalised": ("ng_estimator", "self_normalised"),
        "weight_self_normalised": ("weight_updater", "self_normalised"),
    }
    for column, (module, name) in flags.items():
        assert settings[module][name] is (row[column] == "True")
    if codename[1] == "A":
        stored = min(int(row["max_stored_samples"]), MOST_STORED) if row["keep_samples"] == "True" else 0
        assert settings["component_adaptation"]["database_size"] == stored


def test_the_numbers_of_one_row_as_printed():
    preset = paper("SAMTRON", "planar_robot_4")
    assert preset.overrides["weight_stepsize"] == {
        "stepsize": 5.0,
        "min_stepsize": 1e-5,
        "max_stepsize": 4.0,
    }
    assert preset.overrides["component_adaptation"]["add_iters"] == 1
    assert preset.components == 100
    assert preset.max_seconds == 8 * 3600
    start = preset.start(10)
    assert start.mean == (0.0,) * 10
    assert start.mean_scale == (1.0, *(0.2,) * 9)
    assert start.variance == (0.0625, *(0.0025,) * 9)


def test_the_two_experiments_differ_where_both_have_an_algorithm():
    first, third = paper("sepyrux", "breast_cancer", 1), paper("sepyrux", "breast_cancer")
    assert (first.components, third.components) == (5, 25)
    assert first.overrides["sample_selector"] == {
        "desired_samples": 993,
        "reuse_ratio": pytest.approx(2.556760661729829),
    }
    assert third.overrides["sample_selector"] == {"desired_samples": 300, "reuse_ratio": 0.0}
    assert first.overrides["weight_stepsize"] == {"stepsize": 0.0}
    assert (first.max_seconds, first.max_iterations) == (6 * 3600, 100_000)


@pytest.mark.parametrize("problem", sorted(problems("SAMTRON")))
def test_problems_start_where_the_paper_does(problem):
    loaded = load(problem)
    starts = {
        paper(codename, name, experiment).start(loaded.dim)
        for experiment, codename, name in ALL
        if name == problem
    }
    assert starts == {loaded.start}


def test_limits_are_the_papers():
    assert paper("samtron", "stm300").max_seconds == 24 * 3600
    assert paper("samtron", "gmm20").max_seconds == 30 * 60
    assert paper("zamtrux", "wine").max_iterations == 100_000


def test_letters_may_come_in_any_order():
    assert paper("nortmas", "stm20") == paper("samtron", "stm20")


def test_a_start_scale_near_the_square_root_of_the_covariance():
    preset = paper("samtron", "gmm100")
    assert preset.mean_scale == pytest.approx(math.sqrt(preset.variance), rel=1e-3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("codename", "problem", "words"),
    [
        ("zemtrux", "stm20", "no hyperparameters for ZEMTRUX; it has them for SAMTRON, SAMTROX"),
        ("zamtrux", "stm300", "no hyperparameters for ZAMTRUX on 'stm300'; .* breast_cancer"),
        ("samtron", "gmm7", "no hyperparameters for SAMTRON on 'gmm7'"),
        ("samtronn", "gmm20", "both choose"),
        (
            "septrux",
            "wine",
            r"Experiment 3 has no .* SEPTRUX; .* Experiment 1 has them .* \(preset paper-exp1\)",
        ),
    ],
)
def test_what_is_not_there_is_said(codename, problem, words):
    with pytest.raises(ValueError, match=words):
        paper(codename, problem)


def test_an_experiment_without_hyperparameters_is_said():
    with pytest.raises(ValueError, match="experiments 1 and 3, not of 2"):
        paper("samtron", "gmm20", 2)


@pytest.mark.parametrize("experiment", sorted(EXPERIMENTS.values()))
def test_the_numbers_travel_with_the_package(experiment):
    folder = importlib.resources.files("natmix.experiments.presets")
    assert folder.joinpath(f"experiment{experiment}.csv").is_file()
