"""``natmix run``, as a user types it."""

import dataclasses
import math
import os
import signal

import jax
import jax.numpy as jnp
import pytest
from run_command import assert_one_sentence, natmix, run

from natmix.cli import run as run_command
from natmix.cli.overrides import parse_overrides
from natmix.cli.run_progress import RunProgress, progress_line
from natmix.experiments import problems, runs
from natmix.experiments.runs.watcher import SeedSnapshot

pytestmark = pytest.mark.usefixtures("quick_compilation")


def test_a_run_shows_progress_a_table_and_where_it_is(finished):
    outcome, out = finished
    assert outcome.exit_code == 0, outcome.output
    assert "seed 0  compiling" in outcome.stderr
    assert "iteration 20" in outcome.stderr
    assert "done (max_iterations)" in outcome.stderr
    lines = [line.split() for line in outcome.stdout.splitlines()]
    assert [line[0] for line in lines[1:4]] == ["0", "1", "mean"]
    assert f"The run is in {out}" in outcome.stdout


def test_the_directory_can_be_read_by_the_library(finished):
    run = runs.load_run(finished[1])
    assert run.config["algorithm"]["settings"]["sample_selector"]["desired_samples"] == 20
    assert run.config["dtype"] == "float32"
    assert run.seeds[0].mixture.dtype == jnp.float32
    assert run.seeds[1].final["detected_modes"] >= 0
    assert "log_evidence" in run.seeds[1].final


def test_the_same_command_again_does_nothing(copy):
    before = (copy / "seed-1" / "final.json").stat().st_mtime_ns
    outcome = run(copy, "--seeds", "0:2")
    assert outcome.exit_code == 0
    assert outcome.stderr.count("finished before, skipped") == 2
    assert (copy / "seed-1" / "final.json").stat().st_mtime_ns == before


def test_quiet_is_quiet(copy):
    outcome = run(copy, "--quiet")
    assert outcome.exit_code == 0
    assert outcome.output == ""


def test_another_configuration_is_refused(copy):
    outcome = run(copy, "--set", "component_stepsize.stepsize=0.5")
    assert_one_sentence(outcome, "algorithm.component_stepsize.stepsize is 0.1 there and 0.5 here")


def test_higher_limits_without_checkpoints_are_refused(copy):
    assert_one_sentence(run(copy, "--max-iters", 40), "its checkpoint was not kept (--keep-checkpoints)")


def test_ctrl_c_then_the_same_command(tmp_path, monkeypatch, finished):
    with monkeypatch.context() as patch:
        patch.setattr(RunProgress, "update", lambda self, snapshot: os.kill(os.getpid(), signal.SIGINT))
        outcome = run(tmp_path / "run")
    assert outcome.exit_code == 130
    assert "Repeat the command to continue from there" in outcome.stderr
    assert "unfinished" in outcome.stdout
    again = run(tmp_path / "run")
    assert again.exit_code == 0
    assert "seed 0  goes on after iteration 1" in again.stderr
    there, here = (runs.load_run(path).seeds[0] for path in (finished[1], tmp_path / "run"))
    assert there.final["neg_elbo"] == here.final["neg_elbo"]


@pytest.mark.parametrize("asked", [True, False])
def test_the_stopping_rule_is_off_unless_asked_for(asked, tmp_path, monkeypatch):
    def refuse(config, *arguments, **named):
        raise ValueError(f"until_converged is {config.limits.until_converged}")

    monkeypatch.setattr(runs, "execute", refuse)
    for preset, problem in (("fit", "gmm2"), ("paper", "stm20")):
        flags = ["--until-converged"] if asked else []
        outcome = natmix("run", problem, "--preset", preset, "--out", tmp_path / "run", *flags)
        assert_one_sentence(outcome, f"until_converged is {asked}")


def test_a_run_without_a_checkpoint_says_that_it_starts_anew():
    progress = RunProgress(quiet=False)
    with progress._console.capture() as captured:
        progress.started(0, 0, True)
        progress.started(1, 0, False)
    first, second = captured.get().splitlines()
    assert first.startswith("seed 0  no checkpoint, starts from the beginning")
    assert second == "seed 1  compiling …"


def test_no_elbo_is_shown_before_its_first_evaluation():
    early = SeedSnapshot(0, 5, 100, 1, 2.0, None, None)
    assert progress_line(early).plain == "seed 0  iteration 5  components 1  evaluations 100  2 s"
    later = dataclasses.replace(early, neg_elbo=math.nan, neg_elbo_se=math.nan)
    assert "-ELBO nan" in progress_line(later).plain  # what an evaluation found


def test_a_seed_that_fails_gives_exit_code_1(tmp_path, monkeypatch, finished):
    def load(problem, seed, dtype, options):
        loaded = problems.load(problem, seed=seed, dtype=dtype)
        return loaded if seed else jax.tree.map(lambda a: a * jnp.nan, loaded)

    monkeypatch.setattr(run_command, "_load", load)
    outcome = run(tmp_path / "run", "--seeds", "0,1")
    assert outcome.exit_code == 1
    assert "seeds that failed: 0" in outcome.stderr
    assert "seed 0 failed: The target is not finite anywhere" in outcome.stdout
    assert "seed 0 failed: The target is not finite" in natmix("show", tmp_path / "run").stdout
    assert runs.load_run(tmp_path / "run").seeds[1].final is not None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["breast_cancr"], "Did you mean 'breast_cancer'?"),
        (["gmm2", "--algorithm", "samtro"], "has no letter for"),
        (
            ["gmm2", "--algorithm", "foo"],
            "natmix: A codename has seven letters, one of each module, and 'foo' has 3",
        ),
        (["gmm0"], "gmmD and stmD exist for D from 1"),
        (["gmm2", "--seeds", "1-3"], "Seeds are written 7, 0,3,5 or 0:10"),
        (["gmm2", "--max-time", "soon"], "A time is written 90, 90s, 10m"),
        (["gmm2", "--max-iters", "0"], "max_iterations must be a whole number of at least 1"),
        (["gmm2", "--max-evals", "5"], "5 evaluations are not enough"),
        (["gmm2", "--preset", "papr"], "preset must be fit or paper or paper-exp1"),
        (["gmm2", "--preset", "paper"], "no hyperparameters for SAMTRON on 'gmm2'"),
        (["stm20", "--preset", "paper", "--algorithm", "zemtron"], "it has them for SAMTRON"),
        (["wine", "--preset", "paper", "--algorithm", "septrux"], "on wine (preset paper-exp1)"),
        (["gmm2", "--covariance", "round"], "covariance must be full"),
        (["gmm2", "--dtype", "float8"], "dtype must be float32 or float64"),
        (["gmm2", "--components", "0"], "at least one component"),
        (["gmm2", "--set", "foo.bar=1"], "there is no module 'foo'"),
        (["gmm2", "--set", "sample_selectr.bar=1"], "Did you mean 'sample_selector'?"),
        (["gmm2", "--set", "sample_selector.bar=1"], "has no hyperparameter 'bar'"),
        (["gmm2", "--set", "sample_selector.desired_samples=many"], "'many' is not a number"),
        (["gmm2", "--set", "sample_selector.desired_samples=1.5"], "must be a whole number"),
        (["gmm2", "--set", "sample_selector.desired_samples"], "--set takes module.option=value"),
        (["gmm2", "--set", "sample_selector=3"], "name an option of sample_selector"),
        (["gmm2", "--set", "temperature.low=1"], "temperature has no options"),
        (["gmm2", "--set", "temperature=-1"], "temperature must lie in"),
        (["gmm2", "--set", "problem.colour=blue"], "gmm2 has no option 'colour'"),
    ],
)
def test_mistakes_get_one_sentence(arguments, words, tmp_path):
    outcome = natmix("run", *arguments, "--out", tmp_path / "out")
    assert_one_sentence(outcome, words)
    assert not (tmp_path / "out" / "seed-0").exists()


def test_a_folder_that_cannot_be_made_gets_one_sentence_before_any_work(tmp_path, monkeypatch):
    def load(*arguments):
        raise AssertionError("work was started")

    monkeypatch.setattr(run_command, "_load", load)
    (tmp_path / "file").write_text("")
    words = f"cannot be a folder, for {tmp_path / 'file'} is a file; choose another place."
    assert_one_sentence(run(tmp_path / "file" / "new" / "run"), words)
    assert_one_sentence(run(tmp_path / "file"), "file is a file; choose another place.")


def test_a_folder_that_is_refused_when_made_gets_one_sentence(tmp_path, monkeypatch, finished):
    def mkdir(self, *arguments, **options):
        raise FileNotFoundError(2, "No such file or directory", str(self))

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.mkdir", mkdir)
        patch.setattr("natmix.kernels.compilation_cache.use_compilation_cache", lambda: None)
        outcome = run(tmp_path / "new")
    assert_one_sentence(
        outcome, "new cannot be written to (No such file or directory); choose another folder"
    )


def test_a_mistake_leaves_no_folder(tmp_path):
    assert natmix("run", "gmm2", "--algorithm", "samtro", "--out", tmp_path / "out").exit_code == 2
    assert not (tmp_path / "out").exists()


def test_a_folder_of_other_things_gets_one_sentence(tmp_path):
    (tmp_path / "letter.txt").write_text("")
    assert_one_sentence(run(tmp_path), "holds other files and no run")


def test_the_default_folder_names_problem_algorithm_and_preset():
    problem = problems.load("stm20")
    assert run_command._name(runs.configure(problem)) == "stm20-samtron"
    assert run_command._name(runs.configure(problem, "sepyfux", preset="paper")) == "stm20-sepyfux-paper"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("1e5", 100_000),
        ("1e-5", 1e-5),
        ("true", True),
        ("False", False),
        ("5000,50,5", [5000, 50, 5]),
        ("100_000", 100_000),
    ],
)
def test_values_of_settings(text, value):
    overrides, options = parse_overrides([f"component_adaptation.x={text}"])
    assert overrides == {"component_adaptation": {"x": value}}
    assert type(overrides["component_adaptation"]["x"]) is type(value)
    assert options == {}


def test_settings_of_the_problem_and_of_the_whole():
    overrides, options = parse_overrides(["problem.centre_of_mass=true_one", "temperature=2"])
    assert overrides == {"temperature": 2}
    assert options == {"centre_of_mass": "true_one"}


@pytest.mark.parametrize("word", ["true", "published"])
def test_a_word_of_the_problem_stays_a_word(word, monkeypatch, tmp_path):
    given = []

    def load(problem, seed, dtype, options):
        given.append((problem, options))
        raise ValueError("Enough.")

    monkeypatch.setattr(run_command, "_load", load)
    setting = f"problem.centre_of_mass={word}"
    assert_one_sentence(natmix("run", "talos", "--set", setting, "--out", tmp_path / "run"), "Enough.")
    assert given == [("talos", {"centre_of_mass": word})]
