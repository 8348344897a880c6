"""Trials that really run: in this process, step by step, interrupted and resumed."""

from pathlib import Path

import pytest
import study_model
from study_files import study_of
from tiny_problem import SMALL, tiny

from natmix.engine.limits import Limits
from natmix.experiments.runs import load_run
from natmix.experiments.studies.budget_curve import PRUNED, evaluation_times
from natmix.experiments.studies.client import opened
from natmix.experiments.studies.model_problem import ModelSource, load_model
from natmix.experiments.studies.single_trials import SingleTrials
from natmix.experiments.studies.study_folder import StudyFolder
from natmix.experiments.studies.trial_runner import Trial, TrialTerms, parted
from natmix.experiments.studies.trial_slots import attempt_trial
from natmix.interrupts import Interrupt

pytestmark = pytest.mark.usefixtures("quick_compilation")

SETTINGS = {f"{m}.{name}": value for m, values in SMALL.items() for name, value in values.items()}
MODELS = Path(study_model.__file__)


def terms(folder, iterations=60):
    return TrialTerms(
        limits=Limits(max_iterations=iterations),
        load=lambda trial: tiny(trial.seed),
        folder=lambda number: folder / str(number) / "run",
        dtype="float64",
    )


def run_to_end(runner, trial):
    runner.submit(trial)
    while True:
        (progress,) = runner.advance()
        if progress.finished:
            return progress


def trial(number=0, seed=0):
    return Trial(number, "tiny", "SAMTRON", {**SETTINGS, "start.components": 2}, seed)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trials")
    return run_to_end(SingleTrials(terms(folder)), trial()), load_run(folder / "0" / "run")


def test_a_trial_leaves_a_run_directory(whole):
    progress, run = whole
    assert (progress.iterations, progress.failure) == (60, "")
    assert run.finished[0].final["neg_elbo"] == -progress.elbo
    assert run.config["start"]["components"] == 2
    assert run.config["algorithm"]["settings"]["sample_selector"]["desired_samples"] == 20


def test_an_interrupted_trial_goes_on_to_the_same_end(whole, tmp_path, monkeypatch):
    monkeypatch.setattr("natmix.experiments.studies.single_trials.STEP_SECONDS", 0.01)
    monkeypatch.setattr("natmix.engine.single_run.CHUNK_SECONDS", 0.0)
    first = SingleTrials(terms(tmp_path))
    first.submit(trial())
    while (seen := first.advance()[0]).iterations < 20:
        assert not seen.finished
    assert first.free == 0
    first.close()
    assert first.free == 1
    progress = run_to_end(SingleTrials(terms(tmp_path)), trial())
    assert progress[1:3] == whole[0][1:3]
    assert progress.elbo == whole[0].elbo


def test_a_finished_trial_is_reported_at_once(whole):
    _, run = whole
    again = SingleTrials(terms(run.path.parents[1]))
    again.submit(trial())
    (progress,) = again.advance()
    assert progress.finished
    assert progress.elbo == whole[0].elbo


def test_a_trial_that_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("natmix.experiments.studies.single_trials.STEP_SECONDS", 0.01)
    runner = SingleTrials(terms(tmp_path, iterations=100_000))
    runner.submit(trial())
    with pytest.raises(ValueError, match="One trial at a time"):
        runner.submit(trial(1))
    while runner.advance()[0].iterations == 0:
        pass
    with pytest.raises(ValueError, match="Trial 7 is not running"):
        runner.stop(7)
    runner.stop(0)
    (progress,) = runner.advance()
    assert progress.finished
    final = load_run(tmp_path / "0" / "run").finished[0].final
    assert final["stopped"] == PRUNED
    assert final["iterations"] == progress.iterations < 100_000


@pytest.mark.parametrize("chunk_seconds", [0.0, 0.25])
def test_a_trial_is_pruned_at_the_same_iteration_at_every_speed(chunk_seconds, tmp_path, monkeypatch):
    """By the ELBO at fixed iterations, also when it was interrupted before."""
    monkeypatch.setattr("natmix.engine.single_run.CHUNK_SECONDS", chunk_seconds)
    monkeypatch.setattr("natmix.experiments.studies.single_trials.STEP_SECONDS", 0.01)
    limits = Limits(max_iterations=60)
    conditions = terms(tmp_path)._replace(times=evaluation_times(4, limits))
    bad = trial()._replace(bars=(None, -1e9, None))
    if not chunk_seconds:
        first = SingleTrials(conditions)
        first.submit(bad)
        while first.advance()[0].iterations < 16:
            pass
        first.close()
    progress = run_to_end(SingleTrials(conditions), bad)
    run = load_run(tmp_path / "0" / "run").finished[0]
    assert run.final["stopped"] == PRUNED
    assert progress.iterations == run.final["iterations"] == 30
    assert [int(n) for n in run.metrics["iterations"]] == [6, 9, 12, 15, 21, 24, 27, 30]


def test_settings_by_what_they_belong_to():
    found = parted(
        {"weight_stepsize.stepsize": 0.5, "start.components": 3, "problem.spread": 2, "temperature": 2}
    )
    assert found == ({"weight_stepsize": {"stepsize": 0.5}, "temperature": 2}, 3, {"spread": 2})
    with pytest.raises(ValueError, match=r"'stepsize' is no setting: write module\.hyperparameter"):
        parted({"stepsize": 1})


# Models of one's own ----------------------------------------------------------------------------

OWN = f"""
codenames = ["SEMTRUX"]
storage = "none"
[[problem]]
model = "{MODELS}:NAME"
dim = 2
init_scale = 3.0
[budget]
iterations = 15
[search]
trials = 1
[[space]]
start.components = 2
sample_selector.desired_samples = 10
sample_selector.reuse_ratio = 0.0
"""


def test_a_study_of_ones_own_model(tmp_path):
    folder = StudyFolder(tmp_path / "out")
    study = folder.create(study_of(tmp_path, OWN.replace("NAME", "bumps")))
    number = opened(folder, study).next()
    stopped = Interrupt()

    class Stopped(SingleTrials):
        def submit(self, trial):
            super().submit(trial)
            stopped.asked = True

    assert attempt_trial(folder.path, number, stopped, Stopped) == "interrupted"
    assert attempt_trial(folder.path, number, stopped) == "interrupted"  # it does not even begin
    assert folder.outcome(number) is None
    assert attempt_trial(folder.path, number) == "done"
    outcome = folder.outcome(number)
    assert (outcome.state, outcome.iterations, outcome.attempts) == ("complete", 15, 2)
    assert outcome.curve[-1] == outcome.neg_elbo
    assert [attempt.event for attempt in folder.attempts(number)] == ["begin", "interrupted", "begin"]


@pytest.mark.slow
def test_a_trial_that_diverges_says_so(tmp_path):
    folder = StudyFolder(tmp_path / "out")
    study = folder.create(study_of(tmp_path, OWN.replace("NAME", "diverging")))
    number = opened(folder, study).next()
    assert attempt_trial(folder.path, number) == "done"
    outcome = folder.outcome(number)
    assert outcome.state == "failed"
    assert outcome.reason.startswith("diverged: its final neg_elbo is inf; ")
    assert "density zero" in outcome.reason


def test_models_by_their_path(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import jax.numpy as jnp\n"
        "from natmix import JaxTarget\n"
        "def made(scale=1.0):\n    return JaxTarget(lambda x: -0.5 * jnp.sum((x / scale) ** 2), 3)\n"
        "def outside(x):\n    return float(x[0])\n"
    )
    made = load_model(ModelSource("mine.py:made", str(tmp_path)), "made", {"scale": 2.0}, "float32")
    assert (made.dim, made.name) == (3, "made")
    given = ModelSource("mine.py:made", str(tmp_path), init_mean=1.0, init_scale=(1.0, 2.0, 3.0))
    start = load_model(given, "made", {}, "float32").start
    assert start.mean == (1.0, 1.0, 1.0)
    assert start.variance == (1.0, 4.0, 9.0)
    for path, words in (
        ("mine.py:maid", "Did you mean 'made'"),
        ("nowhere.at_all:f", "There is no module 'nowhere.at_all'"),
        ("mine.py:outside", "Give dim"),
        ("mine.py", "A model is named module:function"),
    ):
        with pytest.raises(ValueError, match=words):
            load_model(ModelSource(path, str(tmp_path)), "x", {}, "float32")
    with pytest.raises(ValueError, match="cannot be traced by JAX"):
        load_model(ModelSource("mine.py:outside", str(tmp_path), dim=2), "x", {}, "float32")
