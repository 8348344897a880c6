"""The shipped studies against the recorded tables of search spaces, grids and published settings."""

import csv
import json
from pathlib import Path

import pytest

from natmix.experiments import presets
from natmix.experiments.studies.definition import CellKey
from natmix.experiments.studies.domains import Choice, FloatRange, IntRange
from natmix.experiments.studies.settings_source import axes, grid_setting, settings_in
from natmix.experiments.studies.shipped_studies import find_study, shipped_names

RECORDED = Path(__file__).parents[2] / "reference" / "studies"
NAMES = {
    "desired_samples": "sample_selector.desired_samples",
    "reuse_ratio": "sample_selector.reuse_ratio",
    "component_stepsize": "component_stepsize.stepsize",
    "component_stepsize_min": "component_stepsize.min_stepsize",
    "component_stepsize_max": "component_stepsize.max_stepsize",
    "component_stepsize_decay": "component_stepsize.exponent",
    "weight_stepsize": "weight_stepsize.stepsize",
    "weight_stepsize_min": "weight_stepsize.min_stepsize",
    "weight_stepsize_max": "weight_stepsize.max_stepsize",
    "weight_stepsize_decay": "weight_stepsize.exponent",
    "initial_components": "start.components",
    "ng_self_normalised": "ng_estimator.self_normalised",
    "own_samples_only": "ng_estimator.own_samples_only",
    "ridge": "ng_estimator.ridge",
    "add_iters": "component_adaptation.add_iters",
    "del_iters": "component_adaptation.del_iters",
    "max_components": "component_adaptation.max_components",
    "add_prior_candidates": "component_adaptation.prior_candidates",
}
DATABASE = "component_adaptation.database_size"


def recorded(name):
    with (RECORDED / name).open() as file:
        return list(csv.DictReader(file))


def domain_of(row):
    low, high, value = row["low"], row["high"], row["value"]
    return {
        "log_uniform": lambda: FloatRange(float(low), float(high), log=True),
        "uniform": lambda: FloatRange(float(low), float(high)),
        "integer": lambda: IntRange(int(low), int(high)),
        "choice": lambda: Choice(tuple(word == "True" for word in value.split("|"))),
        "fixed": lambda: json.loads(value),
    }[row["distribution"]]()


@pytest.mark.parametrize("experiment", ["1", "2"])
def test_search_spaces_are_the_recorded_ones(experiment):
    study = find_study(f"experiment{experiment}")
    expected: dict[CellKey, dict] = {}
    for row in recorded("exp12-search-spaces.csv"):
        if row["experiment"] == experiment:
            cell = CellKey(row["problem"], row["codename"])
            expected.setdefault(cell, {})[NAMES[row["hyperparameter"]]] = domain_of(row)
            limits = study.problems[cell.problem].limits
            assert limits.max_evaluations == int(row["max_evaluations"])
            assert limits.max_seconds == int(row["max_seconds"])
    assert set(study.cells) == set(expected)
    for cell, space in study.spaces.items():
        assert {**space.fixed, **space.free} == expected[cell], cell
        assert not space.together


def test_grids_are_the_recorded_ones():
    study = find_study("experiment3")
    cells: dict[CellKey, list] = {}
    for row in recorded("exp3-grids.csv"):
        cells.setdefault(CellKey(row["problem"], row["codename"]), []).append(row)
    assert set(study.cells) == set(cells)
    for cell, rows in cells.items():
        space = study.spaces[cell]
        product: dict[str, object] = dict(space.fixed)
        together: dict[str, list] = {}
        for name, domain in space.free.items():
            assert isinstance(domain, Choice)
            product[name] = list(domain.values)
        for group in space.together:
            for choice in group:
                for name, value in choice.items():
                    together.setdefault(name, []).append(value)
        for row in rows:
            values = json.loads(row["values"].lower())
            if row["hyperparameter"] in ("keep_samples", "max_stored_samples"):
                size = 0 if values == [False] else values[0]
                assert product.pop(DATABASE, size) == size
                continue
            name = NAMES[row["hyperparameter"]]
            if row["how"] == "together":
                assert together.pop(name) == values, (cell, name)
            else:
                found = product.pop(name)
                assert (found if isinstance(found, list) else [found]) == values, (cell, name)
        assert not product
        assert not together
        assert settings_in(study, cell) == int(rows[0]["settings_in_all"])
    adapting = {cell for cell in cells if cell.codename[1] == "A"}
    stored = [
        r for c in adapting for r in cells[c] if r["hyperparameter"] in ("keep_samples", "max_stored_samples")
    ]
    assert len(stored) == sum(DATABASE in study.spaces[cell].fixed for cell in adapting)


def test_a_grid_has_each_setting_once():
    study = find_study("experiment3")
    cell = CellKey("stm20", "SAMTRON")
    settings = [grid_setting(study.spaces[cell], i) for i in range(settings_in(study, cell))]
    assert len({json.dumps(setting) for setting in settings}) == 24
    assert all(setting["component_stepsize.min_stepsize"] in (0.001, 0.0001) for setting in settings)
    assert {"start.components", DATABASE} <= settings[0].keys()


def test_published_settings_are_the_presets():
    study = find_study("experiment1-published")
    assert study.preset == "paper-exp1"
    assert study.seeds == tuple(range(10))
    experiment = presets.EXPERIMENTS[study.preset]
    assert {c.codename for c in study.cells} == set(presets.codenames(experiment))
    for cell in study.cells:
        assert not axes(study.spaces[cell])
        preset = presets.paper(cell.codename, cell.problem, experiment)
        limits = study.problems[cell.problem].limits
        assert (limits.max_seconds, limits.max_iterations) == (preset.max_seconds, preset.max_iterations)


def test_names_of_shipped_studies():
    assert shipped_names() == ("experiment1", "experiment1-published", "experiment2", "experiment3")
    with pytest.raises(FileNotFoundError, match="Did you mean 'experiment1'"):
        find_study("experment1")
