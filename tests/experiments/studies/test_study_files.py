"""Study files: what they say, and what is said of wrong ones."""

import re

import pytest
from study_files import SMALL, study_of

from natmix.experiments.studies.codename_patterns import all_codenames, matching
from natmix.experiments.studies.definition import CellKey
from natmix.experiments.studies.domains import Choice, FloatRange, IntRange
from natmix.experiments.studies.study_file import read_study
from natmix.experiments.studies.toml_lines import lines_of


def test_patterns():
    assert len(all_codenames()) == 432
    assert len(matching("S?P[TIY][RFD]UX")) == 18
    assert len(matching("s[ae][mp]tr[ou][xgn]")) == 24
    assert matching("NORTMAS") == ("SAMTRON",)
    assert len(matching("*")) == 432


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("S?PQ[RFD]UX", "position 4, the component updater, is 'Q' and must be T, Y or I"),
        ("S?P", "has 3 positions"),
        ("SAMTRO?N", "has 8 positions"),
        ("SAMTROQ", "Did you mean SAMTRON?"),
        ("X*", "matches none of the 432"),
    ],
)
def test_patterns_that_match_nothing(pattern, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        matching(pattern)


def test_a_study(tmp_path):
    study = study_of(tmp_path)
    assert study.cells == (CellKey("gmm2", "SAMTRUX"), CellKey("gmm2", "SEMTRUX"))
    adaptive, fixed = (study.spaces[cell] for cell in study.cells)
    assert adaptive.fixed == {
        "component_adaptation.prior_candidates": 10,
        "sample_selector.desired_samples": 20,
    }
    assert adaptive.free == {
        "start.components": IntRange(1, 4),
        "component_stepsize.stepsize": FloatRange(0.01, 1.0, True),
        "component_adaptation.add_iters": Choice((10, 20)),
    }
    # The pattern named it too, so what it does not have is left out.
    assert set(fixed.free) == {"start.components", "component_stepsize.stepsize"}
    assert study.problems["gmm2"].limits.max_iterations == 20
    assert study.seeds == (0,)


def test_later_sections_replace_and_budgets_scale(tmp_path):
    text = SMALL + '\n[[space]]\ncodenames = ["SEMTRUX"]\nstart.components = 5\n'
    study = study_of(tmp_path, text, scale=0.25, seeds=(3, 4), codenames=("SE*",))
    assert study.cells == (CellKey("gmm2", "SEMTRUX"),)
    space = study.spaces[study.cells[0]]
    assert space.fixed["start.components"] == 5
    assert "start.components" not in space.free
    assert study.problems["gmm2"].limits.max_iterations == 5
    assert study.seeds == (3, 4)


def test_budgets_of_problems(tmp_path):
    text = SMALL.replace(
        "[budget]\niterations = 20",
        '[[problem]]\nname = "stm2"\nbudget = { seconds = 7 }\n\n[budget]\niterations = 20\nseconds = 5',
    )
    study = study_of(tmp_path, text)
    limits = {name: problem.limits for name, problem in study.problems.items()}
    assert (limits["gmm2"].max_seconds, limits["stm2"].max_seconds) == (5, 7)
    assert limits["stm2"].max_iterations == 20


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('problems = ["gmm2"]', 'problems = ["gnn2"]', "line 2: problems No test problem is called 'gnn2'"),
        ('"S[AE]MTRUX"', '"S[AE]MTRUZ"', "line 3: codenames The pattern"),
        ("iterations = 20", "iterations = 2.5", "line 7: budget.iterations must be a positive whole number"),
        ("iterations = 20", "", "a study needs a budget"),
        ('"random"', '"randon"', "line 10: search.sampler must be grid, random, tpe or gp, got 'randon'"),
        ("trials = 3", "", "line 9: search says no number of trials"),
        ("trials = 3", "trails = 3", "line 11: search.trails is not known. Did you mean 'trials'?"),
        (
            "component_stepsize.stepsize",
            "component_stepsize.stepsise",
            "line 16: space.component_stepsize.stepsise",
        ),
        ("component_stepsize.stepsize", "component_stepsizes.stepsize", "Did you mean 'component_stepsize'?"),
        ("low = 1e-2", "low = 0.0", "must have a positive low for a logarithmic range"),
        ("low = 1e-2", "low = -1.0, log = false, points = 1", "TOML"),
        ("high = 1.0, log = true", "high = 0.001", "must have low below high"),
        (
            "high = 4, integer",
            "high = 4.5, integer",
            "line 15: space.start.components must have whole numbers",
        ),
        ("low = 1, high = 4", "low = 0, high = 4", "whole numbers of at least 1"),
        ("desired_samples = 20", "desired_samples = 0", "cannot be 0"),
        ("desired_samples = 20", "desired_samples = []", "must be a list of at least one"),
        ('"random"', '"grid"', "search.sampler is a grid, and start.components"),
        ("[[space]]", "[space]", "must be written [[space]], in double brackets"),
        ('storage = "none"', 'storage = "disk"', "line 4: storage must be journal, sqlite, none or a URL"),
        ('storage = "none"', 'storage = "none', "is no TOML"),
        ('storage = "none"', "seeds = [-1]", "line 4: seeds must be a list"),
        ('storage = "none"', 'preset = "best"', "line 4: preset must be fit, paper or paper-exp1"),
    ],
)
def test_errors_name_the_line_and_the_key(tmp_path, old, new, words):
    assert old in SMALL
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        study_of(tmp_path, SMALL.replace(old, new))
    assert "study.toml" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_hyperparameter_of_another_option_is_an_error_unless_a_pattern_names_several(tmp_path):
    text = SMALL + '\n[[space]]\ncodenames = ["SEMTRUX"]\ncomponent_adaptation.add_iters = 5\n'
    with pytest.raises(ValueError, match=r"add_iters is no hyperparameter of E \(Fixed\)"):
        study_of(tmp_path, text)
    with pytest.raises(ValueError, match=r"is no hyperparameter of R"):
        study_of(tmp_path, SMALL + "\n[[space]]\ncomponent_stepsize.exponent = 0.5\n")


def test_settings_that_go_together(tmp_path):
    text = SMALL + "\n[[space]]\ntogether = [{ start.components = 1, component_adaptation.del_iters = 10 },"
    text += " { start.components = 1, component_adaptation.del_iters = 20 }]\n"
    study = study_of(tmp_path, text)
    adaptive, fixed = (study.spaces[cell] for cell in study.cells)
    assert len(adaptive.together[0]) == 2
    assert fixed.together == (({"start.components": 1},),)
    with pytest.raises(ValueError, match=r"line 22: space\.together must have the same settings"):
        study_of(tmp_path, text.replace("{ start.components = 1, component", "{ component", 1))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_study(tmp_path / "no.toml")


def test_lines():
    text = 'a = 1\n[b]\nc.d = 2\n[[e]]\nf = 3\n\n[[e]]\n# f\n"g.h" = 4\n'
    found = lines_of(text)
    assert found["b", "c", "d"] == 3
    assert found["e", 0, "f"] == 5
    assert found["e", 1] == 7
    assert found["e", 1, "g.h"] == 9
