"""Trials in a batch give the runs that they give alone, and others take their slots without compiling."""

import json
import types
from typing import Any

import numpy as np
import pytest
from compilations import compilations
from plans import GPU, NATIVE
from tiny_problem import SMALL, spot, tiny

from natmix.engine.runner import Chunk
from natmix.engine.single_run import DivergedError
from natmix.experiments import runs
from natmix.experiments.runs import Limits, load_run
from natmix.experiments.studies.batch_form import BatchForm, batch_form
from natmix.experiments.studies.budget_curve import PRUNED
from natmix.experiments.studies.divergence import PATIENCE, DivergenceGuard
from natmix.experiments.studies.single_trials import SingleTrials
from natmix.experiments.studies.trial_batch import TrialBatch
from natmix.experiments.studies.trial_runner import Trial, TrialTerms
from natmix.experiments.studies.trial_structure import structure_of
from natmix.modules.codenames import LETTERS
from natmix.modules.hyperparameters import ShapeBounds

pytestmark = pytest.mark.usefixtures("quick_compilation")

LIMITS = Limits(max_iterations=30)
FORMS = {
    "together": BatchForm(True, ShapeBounds(32, 4), ShapeBounds(16, 4)),
    "turns": BatchForm(False, ShapeBounds(32, 4), ShapeBounds(16, 4)),
}
SETTINGS = {f"{m}.{k}": v for m, options in SMALL.items() for k, v in options.items()}


def trial(number, codename="SAMTRON", seed=0, **changes):
    """The hyperparameters of ``changes`` have ``__`` for the point."""
    changed = {name.replace("__", "."): value for name, value in changes.items()}
    kept = {k: v for k, v in SETTINGS.items() if "A" in codename or not k.startswith("component_adaptation")}
    return Trial(number, "tiny", codename, {**kept, "start.components": 2, **changed}, seed)


def terms(out, limits=LIMITS, load=lambda trial: tiny(trial.seed)):
    return TrialTerms(limits, load, lambda number: out / str(number), dtype="float64")


def run_all(batch, trials, on_report=lambda report: None):
    """The last progress of each trial, and all of them in order."""
    waiting, last, reports = list(trials), {}, []
    for _ in range(500):
        while waiting and batch.free:
            batch.submit(waiting.pop(0))
        for report in batch.advance():
            last[report.trial.number] = report
            reports.append(report)
            on_report(report)
        if all(t.number in last and last[t.number].finished for t in trials):
            return last, reports
    raise AssertionError("the batch does not come to an end")


def alone(out, one, limits=LIMITS):
    """The run of a trial by `natmix run`, with shapes of its own."""
    conditions = terms(out, limits)
    config = conditions.configure(one, tiny(one.seed))
    runs.execute(config, [one.seed], out / str(one.number), lambda seed: tiny(seed))
    return load_run(out / str(one.number)).seeds[one.seed]


def assert_same_run(here, there, rtol=1e-6):
    assert here.trace.keys() == there.trace.keys()
    for name in here.trace.keys() - {"seconds"}:
        np.testing.assert_allclose(here.trace[name], there.trace[name], rtol=rtol, atol=1e-9, err_msg=name)
    for name in ("iterations", "evaluations", "components", "stopped"):
        assert here.final[name] == there.final[name], name
    np.testing.assert_allclose(here.final["neg_elbo"], there.final["neg_elbo"], rtol=rtol)


VARIED = (
    trial(0),
    trial(
        1,
        seed=1,
        component_stepsize__stepsize=0.3,
        sample_selector__desired_samples=13,
        start__components=5,
        component_adaptation__del_iters=9,
        component_adaptation__prior_candidates=7,
        component_adaptation__add_iters=4,
    ),
    trial(2, sample_selector__desired_samples=31, start__components=1, weight_stepsize__stepsize=0.5),
    trial(3, seed=2, temperature=2.0, sample_selector__desired_samples=27, start__components=3),
)
REUSING = tuple(
    Trial(t.number, t.problem, t.codename, {**t.settings, "sample_selector.reuse_ratio": ratio}, t.seed)
    for t, ratio in zip(VARIED, (1.0, 2.5, 1.3, 3.0), strict=True)
)
FIXED = tuple(
    trial(
        number,
        "SEPTRUX",
        number,
        sample_selector__desired_samples=samples,
        sample_selector__reuse_ratio=ratio,
        start__components=components,
        component_stepsize__stepsize=stepsize,
    )
    for number, samples, ratio, components, stepsize in (
        (0, 30, 2.0, 1, 0.1),
        (1, 17, 1.5, 7, 0.01),
        (2, 25, 3.0, 4, 0.5),
    )
)


@pytest.fixture(scope="module")
def varied_alone(tmp_path_factory):
    out = tmp_path_factory.mktemp("alone")
    return {t.number: alone(out, t) for t in VARIED[:2]}


def assert_as_alone(out, trials, last, there):
    for one in trials:
        here = load_run(out / str(one.number)).seeds[one.seed]
        assert_same_run(here, there[one.number])
        report = last[one.number]
        assert (report.iterations, report.evaluations) == (30, here.final["evaluations"])
        assert here.final["evaluations"] == int(here.trace["evaluations"].sum())
        assert report.elbo == -here.final["neg_elbo"]
        assert not report.failure


# The numbers ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_trials_together_are_those_alone_and_replaced_without_compiling(varied_alone, tmp_path):
    """With other numbers of samples, candidates and components, one after the other in the same slot."""
    batch = TrialBatch(terms(tmp_path), 2, form=FORMS["together"])
    last, _ = run_all(batch, [VARIED[0], VARIED[3]])
    with compilations() as names:
        last |= run_all(batch, [VARIED[1], VARIED[2]])[0]
    assert names == []
    assert all(int(run.trace["added"].sum()) > 3 for run in varied_alone.values())
    assert sum(int(run.trace["deleted"].sum()) for run in varied_alone.values()) > 0
    assert_as_alone(tmp_path, VARIED[:2], last, varied_alone)
    assert [last[n].iterations for n in (2, 3)] == [30, 30]


def test_trials_in_turns_are_those_alone_and_replaced_without_compiling(varied_alone, tmp_path):
    batch = TrialBatch(terms(tmp_path), 2, form=FORMS["turns"])
    last = run_all(batch, [VARIED[0], VARIED[3]])[0]
    with compilations() as names:
        last |= run_all(batch, [VARIED[1], VARIED[2]])[0]
    assert names == []
    assert_as_alone(tmp_path, VARIED[:2], last, varied_alone)


@pytest.mark.slow
def test_a_later_batch_of_the_same_structure_does_not_compile_again(tmp_path):
    """As when a process is given more trials of a codename, after it had others."""
    compiled = []
    for name, trials in (("a", FIXED[:2]), ("b", FIXED[1:])):
        with compilations() as names:
            run_all(TrialBatch(terms(tmp_path / name), 2, form=FORMS["together"]), trials)
        compiled.append([each for each in names if "batch_chunk" in each])
    assert compiled[0]
    assert not compiled[1]


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("trials", [VARIED, REUSING, FIXED], ids=["varied", "reusing", "fixed"])
def test_all_numbers_that_masks_hide(form, trials, tmp_path):
    last, _ = run_all(TrialBatch(terms(tmp_path / "batch"), 2, form=FORMS[form]), trials)
    there = {t.number: alone(tmp_path / "alone", t) for t in trials}
    assert_as_alone(tmp_path / "batch", trials, last, there)


EVERY_OPTION = ("SAMTRON", "ZEPYFUX", "SAPIDUG", "ZAMTDOG", "SEMIRUN", "ZAPTROX")


def test_every_option_is_compared():
    assert {letter for name in EVERY_OPTION for letter in name} == set(LETTERS)


@pytest.mark.slow
@pytest.mark.parametrize("codename", EVERY_OPTION)
def test_a_trial_of_random_settings_in_a_batch_is_that_alone(codename, tmp_path):
    """From the first iteration on, in float64: what differs later in float32 is rounding, not a mask."""
    random = np.random.default_rng(sum(map(ord, codename)))
    trials = [
        trial(
            number,
            codename,
            number,
            sample_selector__desired_samples=int(random.integers(10, 33)),
            sample_selector__reuse_ratio=float(random.uniform(1.01, 3)),
            start__components=int(random.integers(1, 9)),
            component_stepsize__stepsize=float(10 ** random.uniform(-3, -0.5)),
            weight_stepsize__stepsize=float(10 ** random.uniform(-3, -0.5)),
            temperature=float(random.uniform(1, 2)),
        )
        for number in range(3)
    ]
    last, _ = run_all(TrialBatch(terms(tmp_path / "batch"), 2, form=FORMS["together"]), trials)
    there = {t.number: alone(tmp_path / "alone", t) for t in trials}
    assert_as_alone(tmp_path / "batch", trials, last, there)


# Ends -------------------------------------------------------------------------------------------


def test_failing_trials_end_with_their_reasons_and_disturb_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr("natmix.experiments.studies.divergence.PATIENCE", 1)
    problems = {0: spot(1e9), 1: spot(0.9), 2: spot(0.0), 3: spot(1e8)}
    trials = [trial(n, "SEMTRUX", seed=n, sample_selector__desired_samples=20) for n in problems]

    def batch(out):
        return TrialBatch(
            terms(out, Limits(max_iterations=40), lambda t: problems[t.seed]), 3, form=FORMS["together"]
        )

    run_all(batch(tmp_path / "calm"), [trials[0], trials[3]])
    last, _ = run_all(batch(tmp_path / "all"), trials[:3])
    assert "The algorithm diverged: in iterations" in last[1].failure
    assert 0 < last[1].iterations < 40
    assert "not finite anywhere in the initial region" in last[2].failure
    assert [last[number].diverged for number in range(3)] == [False, True, False]
    for number in (1, 2):
        stored = json.loads((tmp_path / f"all/{number}/seed-{number}/failed.json").read_text())
        assert stored["error"] == last[number].failure
        assert stored["iterations"] == last[number].iterations
    assert (last[0].failure, last[0].iterations) == ("", 40)
    here, there = (load_run(tmp_path / name / "0").seeds[0] for name in ("all", "calm"))
    assert_same_run(here, there, rtol=1e-9)


@pytest.mark.slow
def test_a_trial_diverges_at_the_same_iteration_in_a_batch_and_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("natmix.experiments.studies.divergence.PATIENCE", 1)
    found = []
    for form in (*FORMS, "alone"):
        conditions = terms(tmp_path / form, Limits(max_iterations=500), lambda t: spot(0.9))
        alone = form == "alone"
        runner = SingleTrials(conditions) if alone else TrialBatch(conditions, 2, form=FORMS[form])
        one = trial(1, "SEMTRUX", seed=1, sample_selector__desired_samples=20)
        last = run_all(runner, [one])[0][1]
        assert last.diverged
        assert f" to {last.iterations} the ELBO" in last.failure
        found.append((last.iterations, last.evaluations, last.failure))
    assert found[0][0] < 500
    assert found[0] == found[1] == found[2]


def test_only_iterations_in_a_row_are_a_divergence():
    guard = DivergenceGuard()
    run: Any = types.SimpleNamespace(iterations=PATIENCE, evaluations=70)
    bad = {"elbo": np.full(PATIENCE, np.nan), "evaluations": np.ones(PATIENCE), "invalid": np.zeros(PATIENCE)}
    invalid = {**bad, "elbo": np.zeros(PATIENCE), "invalid": np.ones(PATIENCE)}
    once = {**bad, "elbo": np.where(np.arange(PATIENCE) == 3, 0.0, np.nan)}
    guard.chunk(run, Chunk(None, once, False))
    run.iterations += 3
    guard.chunk(run, Chunk(None, {k: v[:3] for k, v in invalid.items()}, False))
    run.iterations += 4
    resumed = DivergenceGuard()
    resumed.replay({k: np.concatenate([once[k], invalid[k][:3]]) for k in once})
    for each in (guard, resumed):
        with pytest.raises(
            DivergedError, match="diverged: in iterations 5 to 14 the ELBO was not finite"
        ) as error:
            each.chunk(run, Chunk(None, {k: v[:4] for k, v in bad.items()}, False))
        assert (error.value.iterations, error.value.spent) == (14, 67)  # the rest of the chunk is left out


def test_evaluations_are_limited_and_counted_for_each_trial(tmp_path):
    limits = Limits(max_evaluations=1010, max_iterations=20)
    batch = TrialBatch(terms(tmp_path, limits), 3, form=FORMS["together"], evaluate_every=8)
    trials = [
        trial(n, "SEMTRUX", sample_selector__desired_samples=samples, start__components=components)
        for n, (samples, components) in enumerate([(20, 2), (20, 5), (13, 6)])
    ]
    last, _ = run_all(batch, trials)
    ended = {0: ("max_iterations", 20), 1: ("max_evaluations", 10), 2: ("max_evaluations", 12)}
    for number, (stopped, iterations) in ended.items():
        run = load_run(tmp_path / str(number)).seeds[0]
        assert (run.final["stopped"], run.final["iterations"]) == (stopped, iterations)
        each = (40, 100, 78)[number]
        assert last[number].evaluations == run.final["evaluations"] == each * iterations
        assert run.trace["evaluations"].tolist() == [each] * iterations
        rows = (tmp_path / str(number) / "seed-0" / "metrics.jsonl").read_text().splitlines()
        at = [json.loads(row)["iterations"] for row in rows if "iterations" in row]
        assert at == [*range(8, iterations, 8), iterations]


@pytest.mark.slow
def test_a_trial_with_more_components_grows_the_batch(tmp_path):
    batch = TrialBatch(terms(tmp_path, Limits(max_iterations=10)), 2, form=FORMS["together"])
    small, large = trial(0, "SEMTRUX"), trial(1, "SEMTRUX", start__components=17)
    batch.submit(small)
    batch.advance()
    last, _ = run_all(batch, [large])
    found = {n: load_run(tmp_path / str(n)).seeds[0] for n in (0, 1)}
    assert [run.trace["components"].tolist() for run in found.values()] == [[2] * 10, [17] * 10]
    assert last[1].iterations == 10
    assert_same_run(found[1], alone(tmp_path / "alone", large, Limits(max_iterations=10)))


# The protocol -----------------------------------------------------------------------------------


def test_a_trial_that_is_stopped_leaves_a_result_and_its_slot(tmp_path):
    batch = TrialBatch(terms(tmp_path, Limits(max_iterations=10**6)), 1, form=FORMS["turns"])
    batch.submit(trial(0, "SEMTRUX"))
    assert batch.free == 0
    (report,) = batch.advance()
    assert not report.finished
    batch.stop(0)
    (report,) = batch.advance()
    assert report.finished
    assert batch.free == 1
    assert load_run(tmp_path / "0").seeds[0].final["stopped"] == PRUNED
    # It has ended, and is reported so when it comes again.
    batch.submit(trial(0, "SEMTRUX"))
    (again,) = batch.advance()
    assert again == report._replace(seconds=again.seconds)


def interrupted(out, one, form, monkeypatch):
    """A batch that was closed early in the trial."""
    monkeypatch.setattr("natmix.experiments.studies.trial_batch.ADVANCE_SECONDS", 0.0)
    batch = TrialBatch(terms(out, CLOSED_LIMITS), 1, form=FORMS[form], evaluate_every=10)
    batch.submit(one)
    while batch.advance()[0].iterations < 20:
        pass
    batch.close()
    assert batch.free == 1
    assert (out / "0/seed-0/checkpoint/state.safetensors").is_file()
    return batch


CLOSED_LIMITS = Limits(max_iterations=60)
ADDING = trial(0, sample_selector__reuse_ratio=2.0, start__components=3, component_adaptation__del_iters=7)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_closed_batch_goes_on_from_its_checkpoints(form, tmp_path, monkeypatch):
    run_all(interrupted(tmp_path, ADDING, form, monkeypatch), [ADDING])
    undisturbed = TrialBatch(terms(tmp_path / "b", CLOSED_LIMITS), 1, form=FORMS[form], evaluate_every=10)
    run_all(undisturbed, [ADDING])
    here, there = (load_run(out / "0").seeds[0] for out in (tmp_path, tmp_path / "b"))
    assert_same_run(here, there)


@pytest.mark.slow
def test_a_checkpoint_has_the_shapes_of_the_trial_alone(tmp_path, monkeypatch):
    """So that it goes on under other bounds, on another platform, or by `natmix run`."""
    interrupted(tmp_path, ADDING, "turns", monkeypatch)
    problem = tiny(0)
    config = terms(tmp_path, CLOSED_LIMITS).configure(ADDING, problem)
    outcome = runs.execute(config, [0], tmp_path / "0", lambda seed: problem)
    assert outcome.failed == ()
    run = load_run(tmp_path / "0").seeds[0]
    assert run.final["iterations"] == len(run.trace["elbo"]) == 60
    assert int(run.trace["added"].sum()) > 3


def test_the_form_by_platform_and_limits():
    short, long = Limits(max_iterations=300), Limits(max_evaluations=10**6)
    assert batch_form(short, GPU) == batch_form(long, GPU)
    assert batch_form(short, GPU).together
    assert not batch_form(short, NATIVE).together
    assert batch_form(long, NATIVE).numbers is None


def test_structures():
    conditions = terms(None)

    def same(*trials):
        found = {structure_of(t, conditions, FORMS["together"]) for t in trials}
        return len(found) == 1

    first = VARIED[0]
    assert same(*VARIED)
    assert same(*REUSING[1:])
    assert not same(*REUSING[:2])  # as many as are drawn, and more
    assert not same(first, trial(0, sample_selector__desired_samples=33))
    assert not same(first, trial(0, "SAMTRUX"))
    assert not same(first, trial(0, weight_updater__self_normalised=False))
    assert not same(first, first._replace(problem="other"))


def test_on_an_accelerator_candidates_do_not_separate_trials():
    form = batch_form(LIMITS, GPU)
    few, many = (trial(0, component_adaptation__prior_candidates=n) for n in (3, 900))
    assert structure_of(few, terms(None), form) == structure_of(many, terms(None), form)


def test_what_a_batch_does_not_take(tmp_path):
    batch = TrialBatch(terms(tmp_path), 2, form=FORMS["together"])
    batch.submit(trial(0))
    with pytest.raises(ValueError, match="Trial 0 is running already"):
        batch.submit(trial(0))
    with pytest.raises(ValueError, match="Trial 1 cannot join the batch: it has another structure"):
        batch.submit(trial(1, "SAMTRUX"))
    with pytest.raises(ValueError, match="Trial 5 is not running"):
        batch.stop(5)
    with pytest.raises(ValueError, match="being run by another process"):
        TrialBatch(terms(tmp_path), 1).submit(trial(0))
    batch.submit(trial(2))
    with pytest.raises(ValueError, match="slots of the batch are taken"):
        batch.submit(trial(3))
    batch.close()
    with pytest.raises(ValueError, match="30 evaluations are not enough: the first iteration needs 40"):
        TrialBatch(terms(tmp_path, Limits(max_evaluations=30)), 1).submit(trial(4))
    with pytest.raises(ValueError, match="at least one slot"):
        TrialBatch(terms(tmp_path), 0)
    with pytest.raises(ValueError, match="evaluate_every"):
        TrialBatch(terms(tmp_path), 1, evaluate_every=0)
