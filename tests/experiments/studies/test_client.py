"""A client plans, hands out and takes note of trials; several share a folder; nothing runs twice."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from study_files import SMALL, SimulatedPool, outcome_of, study_of, value_of

from natmix.engine.limits import Limits
from natmix.experiments.studies.budget_curve import BudgetCurve
from natmix.experiments.studies.client import opened, run_study
from natmix.experiments.studies.definition import CellKey, PruningRules
from natmix.experiments.studies.progress import StudyProgress
from natmix.experiments.studies.pruning import bars
from natmix.experiments.studies.settings_source import GivenSettings
from natmix.experiments.studies.study_folder import Attempt, StudyFolder
from natmix.experiments.studies.study_results import load_results
from natmix.experiments.studies.trial_attempt import MOST_DEATHS, deaths, planned_trial
from natmix.experiments.studies.trial_runner import AbstractTrialRunner
from natmix.experiments.studies.trial_slots import attempt_trial


def run(folder, study, **arguments):
    pool = SimulatedPool(folder, **arguments)
    return pool, run_study(folder, study, pool)


def contents(folder):
    """What a study has found: settings and values by trial."""
    rows = load_results(folder).rows()
    return {row["trial"]: {k: v for k, v in row.items() if k != "attempts"} for row in rows}


def test_numbers_of_trials(tmp_path):
    study = study_of(tmp_path, seeds=(4, 5))
    seen = set()
    for cell in range(2):
        for setting in range(3):
            for seed in range(2):
                number = study.trial_number(cell, setting, seed)
                assert study.positions(number) == (cell, setting, seed)
                seen.add(number)
    assert seen == set(range(12))


def test_a_study_runs_every_trial_once(tmp_path):
    study = study_of(tmp_path, seeds=(0, 1))
    pool, end = run(tmp_path / "out", study)
    assert not end.interrupted
    assert sorted(pool.order) == list(range(12))
    assert all(
        result.value is not None for cell in load_results(tmp_path / "out").cells for result in cell.results
    )
    again, _ = run(tmp_path / "out", study)
    assert again.order == []


def test_results_depend_on_no_number_of_workers_and_no_order(tmp_path):
    study = study_of(tmp_path)
    study = dataclasses.replace(study, search=dataclasses.replace(study.search, trials=9))
    found = []
    for workers in (1, 7):
        out = tmp_path / str(workers)
        run(out, study_of(tmp_path, trials=9), workers=workers, seed=workers)
        found.append(contents(out))
    assert found[0] == found[1]
    assert len(found[0]) == 18


def test_more_trials_may_be_asked_for_later(tmp_path):
    run(tmp_path / "out", study_of(tmp_path, trials=2))
    before = contents(tmp_path / "out")
    pool, _ = run(tmp_path / "out", study_of(tmp_path, trials=5))
    after = contents(tmp_path / "out")
    assert len(pool.order) == 6
    assert before.items() <= after.items()
    assert len(after) == 10


def test_another_study_in_the_folder_is_refused(tmp_path):
    run(tmp_path / "out", study_of(tmp_path))
    with pytest.raises(
        ValueError, match=r"holds another study: problem\.gmm2\.limits\.max_iterations is 20 there"
    ):
        run(tmp_path / "out", study_of(tmp_path, SMALL.replace("iterations = 20", "iterations = 30")))
    with pytest.raises(ValueError, match="holds other files and no study"):
        run(tmp_path, study_of(tmp_path))


def test_two_clients_share_the_trials(tmp_path):
    """One sees trials of the other as busy, then as done; `SimulatedPool` fails if one is run twice."""
    study, out = study_of(tmp_path), tmp_path / "out"
    folder = StudyFolder(out)
    folder.create(study)
    other = opened(folder, study)
    first = other.next()
    with folder.claim(first):
        assert attempt_trial(out, first) == "busy"
        mine = opened(folder, study)
        numbers = list(iter(mine.next, None))
        assert first in numbers
    folder.write_outcome(outcome_of(first, 1.0))
    assert attempt_trial(out, first) == "done"
    pool, _ = run(out, study)
    assert sorted([first, *pool.order]) == list(range(6))


def test_a_trial_that_another_client_dropped_is_run(tmp_path, monkeypatch):
    monkeypatch.setattr("natmix.experiments.studies.client.POLL_SECONDS", 0.01)
    busy = {2: 3}

    def report(number):
        busy[number] = busy.get(number, 0) - 1
        return "busy" if busy[number] > 0 else "done"

    pool, _ = run(tmp_path / "out", study_of(tmp_path), report=report)
    assert sorted(pool.order) == list(range(6))


def test_a_lost_trial_is_run_again(tmp_path):
    lost = [3, 3, 1]

    def report(number):
        if number in lost:
            lost.remove(number)
            return "lost"
        return "done"

    pool, _ = run(tmp_path / "out", study_of(tmp_path), report=report)
    assert sorted(pool.order) == list(range(6))


def test_settings_that_cannot_be_run_fail_at_once_with_their_reason(tmp_path, monkeypatch):
    text = SMALL.replace("iterations = 20", "evaluations = 3").replace("trials = 3", "trials = 1")
    study, out = study_of(tmp_path, text), tmp_path / "out"
    folder = StudyFolder(out)
    progress = opened(folder, folder.create(study))
    number = progress.next()
    assert attempt_trial(out, number) == "done"
    outcome = folder.outcome(number)
    assert outcome.state == "failed"
    assert outcome.reason.startswith("3 evaluations are not enough")


class Crashing(AbstractTrialRunner):
    """A runner whose trials fail."""

    free = 1

    def __init__(self, terms, interrupt):
        self.count = 0

    def submit(self, trial):
        raise RuntimeError("Boom.")

    def advance(self):
        return []

    def stop(self, number): ...
    def close(self): ...


def test_a_failing_trial_is_tried_again_twice(tmp_path):
    folder = StudyFolder(tmp_path / "out")
    progress = opened(folder, folder.create(study_of(tmp_path)))
    number = progress.next()
    reports = [attempt_trial(folder.path, number, runner=Crashing) for _ in range(3)]
    assert reports == ["again", "again", "done"]
    outcome = folder.outcome(number)
    assert (outcome.state, outcome.reason, outcome.attempts) == ("failed", "RuntimeError: Boom.", 3)
    assert progress.settle(number) == outcome
    assert load_results(folder.path).failures() == {"RuntimeError: Boom.": 1}


def test_a_trial_that_kills_its_process_is_given_up(tmp_path):
    folder = StudyFolder(tmp_path / "out")
    number = opened(folder, folder.create(study_of(tmp_path))).next()
    for _ in range(MOST_DEATHS):
        folder.note(number, Attempt("begin", 0, "", ""))
    assert attempt_trial(folder.path, number, runner=Crashing) == "done"
    assert "was killed 25 times after 0 iterations" in folder.outcome(number).reason


def test_deaths_count_while_nothing_is_gained():
    begin, later = Attempt("begin", 0, "", ""), Attempt("begin", 7, "", "")
    interrupted = Attempt("interrupted", 0, "", "")
    assert deaths([], 0) == 0
    assert deaths([begin, begin], 0) == 2
    assert deaths([begin, begin], 7) == 0
    assert deaths([begin, begin, later], 7) == 1
    assert deaths([begin, begin, interrupted], 0) == 0
    assert deaths([begin, interrupted, begin], 0) == 1


def test_a_line_of_attempts_that_was_cut_off_does_no_harm(tmp_path):
    folder = StudyFolder(tmp_path)
    folder.note(3, Attempt("begin", 0, "", "a"))
    path = folder.trial(3) / "attempts.jsonl"
    path.write_text(path.read_text() + '{"event": "beg')
    folder.note(3, Attempt("begin", 5, "", "b"))
    assert [attempt.process for attempt in folder.attempts(3)] == ["a", "b"]


# Pruning ----------------------------------------------------------------------------------------


def test_a_curve_has_the_best_value_by_the_end_of_each_part():
    curve = BudgetCurve(4, Limits(max_iterations=100))
    for iterations, value in ((10, 9.0), (25, 7.0), (40, 8.0), (60, 5.0), (100, 1.0)):
        curve.add(iterations, 0, 0.0, value)
    assert curve.values == [7.0, 7.0, 5.0, 1.0]
    assert not curve.is_pruned([0.0, 0.0, 0.0])  # the last part is not judged
    late = BudgetCurve(4, Limits(max_iterations=100))
    late.add(80, 0, 0.0, 3.0)
    assert late.values == [None, None, None]
    assert not late.is_pruned([0.0, 0.0, 0.0])
    early = BudgetCurve(4, Limits(max_evaluations=100))
    early.add(1, 10, 0.0, 3.0)
    early.add(2, 30, 0.0, math.inf)
    assert early.values == [3.0]
    assert early.is_pruned([2.0, None, None])
    assert not early.is_pruned([4.0, None, None])


def test_bars_are_medians_of_earlier_curves():
    rules = PruningRules("median", rungs=3, startup=2)
    curves = [outcome_of(i, 1.0, curve=[float(i), 2.0 * i, 0.0]) for i in range(3)]
    assert bars(rules, 5, curves) == [1.0, 2.0]
    assert bars(rules, 5, curves[:1]) == [None, None]
    assert bars(PruningRules(), 5, curves) == [None] * 7
    hyperband = PruningRules("hyperband", rungs=9, startup=2, factor=3)
    longer = [outcome_of(i, 1.0, curve=[float(i)] * 9) for i in range(7)]
    assert bars(hyperband, 0, longer) == [2.0, None, 2.0, None, None, None, None, None]
    assert bars(hyperband, 1, longer) == [None, None, 2.0, None, None, None, None, None]


def test_with_a_pruner_a_batch_waits_for_the_one_before(tmp_path):
    text = SMALL.replace("[search]", '[pruner]\nkind = "median"\nrungs = 3\nstartup = 2\n\n[search]')
    study, out = study_of(tmp_path, text, trials=4), tmp_path / "out"
    pool, _ = run(out, study, workers=9)
    batches = {study.positions(number)[1] // 2 for number in pool.order[:4]}
    assert batches == {0}
    assert all(bar is not None for bar in planned_trial(StudyFolder(out), study, 7).bars)


def test_trials_of_a_codename_are_planned_ahead_where_a_batch_wants_them(tmp_path):
    study = study_of(tmp_path, trials=5)
    folder = StudyFolder(tmp_path / "out")
    progress = opened(folder, folder.create(study))
    second = [progress.next(lambda cell: cell == 1) for _ in range(6)]
    assert second == [1, 3, 5, 7, 9, None]
    assert [folder.batches(cell) for cell in study.cells] == [0, 3]
    assert [progress.next() for _ in range(6)] == [0, 2, 4, 6, 8, None]


def test_with_a_pruner_nothing_is_planned_ahead(tmp_path):
    text = SMALL.replace("[search]", '[pruner]\nkind = "median"\n\n[search]')
    folder = StudyFolder(tmp_path / "out")
    progress = opened(folder, folder.create(study_of(tmp_path, text)))
    assert [progress.next(lambda cell: cell == 0) for _ in range(3)] == [0, 2, None]


# Results ----------------------------------------------------------------------------------------


def test_the_best_and_the_options(tmp_path):
    study, out = study_of(tmp_path, trials=6), tmp_path / "out"
    run(out, study)
    results = load_results(out)
    trials = [planned_trial(StudyFolder(out), study, number) for number in range(12)]
    best = min(trials, key=value_of)
    cell, result = results.best("gmm2")
    assert result.value == value_of(best)
    assert result.settings == best.settings
    assert cell == CellKey("gmm2", best.codename)
    options = results.options()
    assert [(o.module, o.letter) for o in options] == [
        ("component_adaptation", "A"),
        ("component_adaptation", "E"),
    ]
    assert min(o.value for o in options) == result.value


def test_a_setting_has_the_mean_of_its_seeds(tmp_path):
    study, out = study_of(tmp_path, seeds=(0, 100)), tmp_path / "out"
    run(out, study)
    result = load_results(out).cells[0].results[0]
    assert result.value == pytest.approx(np.mean([outcome.value for outcome in result.outcomes]))
    assert result.outcomes[1].value - result.outcomes[0].value == pytest.approx(1.0)


def test_settings_follow_from_the_seed_of_the_search(tmp_path):
    study = study_of(tmp_path)
    source = GivenSettings(study)
    cell = study.cells[0]
    assert source.batch(cell, range(3), []) == source.batch(cell, range(3), [])
    other = study_of(tmp_path, SMALL.replace("batch = 2", "seed = 1"))
    assert source.batch(cell, range(3), []) != GivenSettings(other).batch(cell, range(3), [])


def test_what_is_planned_is_read_by_others(tmp_path):
    study, out = study_of(tmp_path), tmp_path / "out"
    folder = StudyFolder(out)
    folder.create(study)
    first, second = StudyProgress(folder, study), StudyProgress(folder, study)
    assert first.next() == second.next() == 0
    assert folder.batches(study.cells[0]) == 1


# Several folders --------------------------------------------------------------------------------


def values(results):
    return {
        (each.cell, result.position): (result.settings, round(result.value, 12))
        for each in results.cells
        for result in each.results
    }


def test_parts_of_a_study_are_put_together(tmp_path):
    """By codename, by seed and by the number of settings; no trial counts twice."""
    run(tmp_path / "whole", study_of(tmp_path, seeds=(0, 1)))
    parts: dict[str, Any] = {
        "a": {"codenames": ("SAMTRUX",), "seeds": (0, 1), "trials": 2},
        "b": {"codenames": ("SEMTRUX",), "seeds": (1,)},
        "c": {"codenames": ("S?MTRUX",), "seeds": (0,)},
        "d": {"codenames": ("SAMTRUX",), "seeds": (1,), "trials": 3},
    }
    for name, changes in parts.items():
        run(tmp_path / name, study_of(tmp_path, **changes))
    whole = load_results(tmp_path / "whole")
    joint = load_results(*(tmp_path / name for name in parts))
    assert values(joint) == values(whole)
    assert [(each.total, each.running, each.repeated) for each in joint.cells] == [(3, 0, 4), (3, 0, 0)]
    assert [option[2:5] for option in joint.options()] == [option[2:5] for option in whole.options()]
    cell, best = joint.best("gmm2", "SEMTRUX")
    (folder, seed, first), (_, _, outcome) = joint.trials(cell, best)
    assert (folder.path, seed) == (tmp_path / "b", 1)
    assert folder.outcome(first.number) == first
    assert joint.trial_names(cell, best) == f"{tmp_path}/b:{first.number}, {tmp_path}/c:{outcome.number}"
    assert {row["folder"] for row in joint.rows()} == {str(tmp_path / name) for name in parts}
    # A setting of which a seed is nowhere is not done.
    assert [len(each.results) for each in load_results(tmp_path / "a", tmp_path / "b").cells] == [2, 3]
    assert [len(each.results) for each in load_results(tmp_path / "a", tmp_path / "d").cells] == [2]


def test_settings_that_were_chosen_otherwise_are_kept_apart(tmp_path):
    """As by a sampler that learns, whose results were others on another machine."""
    for name in "ab":
        run(tmp_path / name, study_of(tmp_path, trials=1))
    folder = StudyFolder(tmp_path / "b")
    cell = folder.study().cells[0]
    planned = folder.read_batch(cell, 0)
    planned.settings[0]["component_stepsize.stepsize"] = 0.5
    folder.write_batch(cell, 0, planned)
    joint = load_results(tmp_path / "a", tmp_path / "b")
    assert [each.position for each in joint.cells[0].results] == [0, 3]
    assert [len(each.results) for each in joint.cells] == [2, 1]


def test_other_studies_are_not_put_together(tmp_path):
    run(tmp_path / "a", study_of(tmp_path))
    run(tmp_path / "b", study_of(tmp_path, SMALL.replace("iterations = 20", "iterations = 30")))
    with pytest.raises(
        ValueError, match=r"b holds another study than .*a: problem\.gmm2\.limits\.max_iterations is 30 there"
    ):
        load_results(tmp_path / "a", tmp_path / "b")
