"""Numbers of the table by hand: the paper's, means, errors, marks, orders, merging."""

import json
import math

import pytest
from paper_runs import one_run, unfinish, write_run
from run_files import START, write_failure

from natmix.experiments import presets, tables
from natmix.experiments.problems import PAPER
from natmix.experiments.runs import load_run
from natmix.experiments.tables import formatting
from natmix.experiments.tables.cells import at_most, parse_candidates, parse_problems, parse_times
from natmix.experiments.tables.ordering import ordering
from natmix.experiments.tables.summary import summarise

# The paper's numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codename", "problem", "metric", "table", "mean", "three_se"),
    [
        ("SAMTRON", "breast_cancer", "neg_elbo", "exp3", 78.00, 0.02),
        ("SAMTRON", "talos", "neg_elbo", "exp3", -24.43, 0.16),
        ("SAMYRON", "wine", "neg_elbo", "exp3", 1433.87, 30.49),
        ("SEPYFUX", "gmm100", "neg_elbo", "exp3", 4.54, 0.52),
        ("ZAMTRUX", "planar_robot_4", "neg_elbo", "exp3", 11.48, 0.04),
        ("SEPYFUX", "stm300", "neg_elbo", "exp3", 26.87, 0.45),
        ("SEPYFUX", "stm300", "neg_elbo", "exp3_full", 26.69, 0.39),
        ("SAMTROX", "breast_cancer_mb", "mmd", "exp3_full", 2.6e-3, 8e-4),
        ("SEPYRUX", "gmm100", "detected_modes", "exp3_full", 7.00, 1.85),
        ("ZAMTRUX", "wine", "test_mse", "exp3_full", 0.80, 0.13),
        ("SAMYROX", "talos", "entropy", "exp3_full", -17.32, 0.16),
        ("ZAMTRUX", "breast_cancer_mb", "neg_elbo", "exp3_accuracy", 85.88, 3.41),
        ("SAMYRUX", "german_credit_mb", "accuracy", "exp3_accuracy", 78.49, 0.09),
    ],
)
def test_numbers_of_the_paper(codename, problem, metric, table, mean, three_se):
    number = tables.paper_number(codename, problem, metric, table)
    assert (number.mean, number.three_se) == (mean, three_se)


def test_the_paper_has_every_number_but_zamtrux_on_stm300():
    missing = [(c, p) for c in tables.ALL for p in PAPER if tables.paper_number(c, p) is None]
    assert missing == [("ZAMTRUX", "stm300")]
    assert sorted(tables.ALL) == sorted(presets.codenames())


# What to run --------------------------------------------------------------------------------------


def test_samtron_and_quick_problems_come_first():
    cells = tables.cells_to_run()
    assert len(cells) == 43
    assert [cell.codename for cell in cells[:11]] == ["SAMTRON"] * 11
    assert [cells[0].problem, cells[10].problem] == ["gmm20", "stm300"]
    assert ("ZAMTRUX", "stm300") not in {(cell.codename, cell.problem) for cell in cells}
    assert cells[0].name == "gmm20-samtron"


def test_words_of_the_command_line():
    assert parse_candidates("zamtrux,SAMTRON") == ("SAMTRON", "ZAMTRUX")
    assert parse_candidates("all") == tables.ALL
    assert parse_problems("wine, gmm20") == ("gmm20", "wine")
    assert parse_times(["5m,stm300=10m", "wine=2h"]) == {"": 300, "stm300": 600, "wine": 7200}
    cells = tables.cells_to_run(("SAMTRON",), PAPER, {"": 3, "wine": 9}, {"": 2})
    limits = {cell.problem: cell.limits for cell in cells}
    assert (limits["wine"].max_seconds, limits["talos"].max_seconds) == (9, 3)
    assert limits["wine"].max_run_seconds == 2
    assert tables.cells_to_run(("SAMTRON",))[0].limits.max_seconds is None


def test_the_time_it_may_take_is_said_before():
    cells = tables.cells_to_run(("SAMTRON", "ZAMTRUX"), ("gmm20", "stm300"), {"": 600.0, "stm300": 1200.0})
    assert at_most(cells, 10) == (  # SAMTRON on both, ZAMTRUX on gmm20
        "3 cells of the table, 10 seeds each, a limit of 600 to 1200 s per seed: at most 6.7 hours one after "
        "another, less for what has finished or runs together."
    )
    (one,) = tables.cells_to_run(("SAMTRON",), ("gmm20",), None, {"": 30.0})
    assert at_most([one], 1).startswith(
        "1 cell of the table, 1 seed each, a limit of 30 s per seed: at most 30 s"
    )
    paper = presets.paper("SAMTRON", "gmm20").max_seconds
    assert f"{paper:g} s per seed" in at_most(tables.cells_to_run(("SAMTRON",), ("gmm20",)), 1)


# Numbers by hand ----------------------------------------------------------------------------------


def test_mean_and_three_standard_errors(tmp_path):
    s = one_run(tmp_path, [78.0, 78.1, 78.3])
    # mean 78.1333; deviations -0.1333, -0.0333, 0.1667: variance 0.046667 / 2, error sqrt(0.023333 / 3)
    assert s.neg_elbo.mean == pytest.approx(78.13333333)
    assert s.neg_elbo.three_se == pytest.approx(3 * math.sqrt(0.0466666667 / 2 / 3))
    assert (s.seconds, s.iterations, s.evaluations) == (20, 20, 1001)
    assert math.isnan(one_run(tmp_path, [78.0]).neg_elbo.three_se)


@pytest.mark.parametrize(
    ("values", "problem", "mark"),
    [
        ([78.0249], "breast_cancer", "✓"),  # 78.02 at two decimals, 78.00 + 0.02 allowed
        ([78.0251], "breast_cancer", "✗"),
        ([585.1049, 585.1048], "german_credit", "✓"),
        ([585.1051, 585.1052], "german_credit", "✗"),
        ([0.0049], "gmm20", "✓"),
        ([0.0051], "gmm20", "✗"),
        ([77.90, 77.91], "breast_cancer", "✓✓"),  # 77.905 + 0.015 < 77.98
        ([77.86, 77.95], "breast_cancer", "✓"),  # 3 standard errors of 0.135 reach 77.98
        ([77.5], "breast_cancer", "✓"),  # one seed has no interval
        ([math.inf, 78.0], "breast_cancer", "✗"),
        ([math.nan], "breast_cancer", "✗"),
    ],
)
def test_marks(tmp_path, values, problem, mark):
    assert formatting.mark(one_run(tmp_path, values, problem=problem)) == mark


def test_time_to_the_papers_number(tmp_path):
    evaluations = {
        0: [(1, 90), (10, 78.004), (20, 77.9)],  # at two decimals 78.00: after 10 s
        1: [(1, 90), (30, 78.006), (40, 78.0)],  # 78.01 does not count: 40 s
        2: [(1, 90), (70, 77.0)],
    }
    none = dict.fromkeys(range(6), 0.0)

    def of(name, compiling=none):
        return summarise(
            load_run(
                write_run(tmp_path / name, "SAMTRON", "breast_cancer", evaluations, 100.0, None, compiling)
            )
        )

    s = of("all")
    assert (s.time_to_paper, s.reached) == (40, 3)
    assert formatting.time_to_paper(s) == "40"
    evaluations |= {3: [(1, 90), (80, 79.0)], 4: [(80, 79.0)]}
    assert formatting.time_to_paper(of("most")) == "70 (3 of 5 seeds)"
    evaluations |= {5: [(80, 79.0)]}
    assert formatting.time_to_paper(of("half")) == "not reached (3 of 6 seeds)"


@pytest.mark.parametrize(
    ("compiling", "first", "median", "mean"),
    [
        ({0: 60.0, 1: 0.1, 2: 0.0}, "70", 29.9, 60.1 / 3),  # seed 0 compiles: 70 - 60 = 10, 29.9, 50
        ({0: 0.0, 1: 25.0, 2: 0.0}, "n/a", 50, 25 / 3),  # 70, 30 - 25, 50: some other seed compiled
        ({0: 20.0, 1: 20.0, 2: 20.0}, "70", 30, 20),  # together
    ],
)
def test_time_to_the_papers_number_with_and_without_compilation(tmp_path, compiling, first, median, mean):
    evaluations = {0: [(65, 90), (70, 77.9)], 1: [(26, 90), (30, 77.9)], 2: [(21, 90), (50, 77.9)]}
    path = write_run(tmp_path / "r", "SAMTRON", "breast_cancer", evaluations, 100.0, None, compiling)
    s = summarise(load_run(path))
    assert formatting.first_to_paper(s) == first
    assert s.time_to_paper == pytest.approx(median)
    assert s.compile_seconds == pytest.approx(mean)
    never = write_run(tmp_path / "n", "SAMTRON", "breast_cancer", {0: [(9, 80.0)]})
    assert formatting.first_to_paper(summarise(load_run(never))) == "not reached"


def test_ordering(tmp_path):
    def of(**values):
        return ordering({name: one_run(tmp_path, v, name) for name, v in values.items()})

    # In the paper 78.00 ± 0.02, 78.61 ± 0.05, 79.78 ± 0.40, 78.14 ± 0.01: six clear pairs.
    same = of(SAMTRON=[78.0, 78.0], SAMYRON=[78.6, 78.6], SEPYFUX=[79.8, 79.8], ZAMTRUX=[78.1, 78.1])
    assert set(same.first.values()) == {"yes"}
    assert (same.pairs, same.by_means, same.clearly, same.reversed) == (6, 6, 6, 0)
    # SAMTRON 0.05 above ZAMTRUX, with 3 standard errors of 0.15; and 0.05 above SAMYRON, which has none.
    other = of(SAMTRON=[78.1, 78.2], SAMYRON=[77.9, 77.9], ZAMTRUX=[78.05, 78.15])
    assert other.first == {"SAMYRON": "no", "ZAMTRUX": "no, within errors"}
    assert (other.pairs, other.by_means, other.clearly, other.reversed) == (3, 0, 0, 3)
    # SAMTRON and ZAMTRUX have intervals that meet, SAMYRON a single seed, and SEPYFUX is equal to it.
    noisy = of(SAMTRON=[77.8, 78.2], SAMYRON=[90.0], SEPYFUX=[90.001, 90.002], ZAMTRUX=[78.1, 78.1])
    assert (noisy.pairs, noisy.by_means, noisy.clearly, noisy.reversed) == (6, 5, 2, 0)
    assert of(SAMTRON=[78.004], ZAMTRUX=[77.996]).first == {"ZAMTRUX": "yes"}  # both 78.00


def test_seeds_as_one_types_them():
    assert formatting.seeds([0, 1, 2, 5, 7, 8]) == "0:3,5,7:9"


# Merging ------------------------------------------------------------------------------------------


def test_a_seed_found_twice_counts_once(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    write_run(one / "r", "SAMTRON", "gmm20", {0: [(90, 0.1)], 1: [(9, 3), (50, 0.2)], 2: [(500, 0.3)]})
    more = {0: [(9, 3), (80, 0.5)], 1: [(70, 0.6)], 2: [(5, 0.7)], 3: [(5, 0.8)]}
    write_run(two / "x" / "r", "SAMTRON", "gmm20", more)
    unfinish(one / "r", 2)
    found = tables.collect([one, two, one], ["SAMTRON"], ["gmm20"])
    run = found.runs["SAMTRON", "gmm20"]
    assert {n: seed.final["neg_elbo"] for n, seed in run.finished.items()} == {0: 0.5, 1: 0.2, 2: 0.7, 3: 0.8}
    assert found.notes == []
    assert len(found.copies) == 3
    assert (
        "the one in two/x/r (finished, 1 iteration, 80 s) counts, not one/r (finished, 0 iterations, 90 s)"
        in found.copies[0]
    )
    assert "not one/r (unfinished, 0 iterations, 500 s)" in found.copies[2]
    tables.write_table3(found, tmp_path / "out", candidates=["SAMTRON"])
    text = (tmp_path / "out" / "table3.md").read_text(encoding="utf-8")
    rule, folded = text.index("a finished run counts before"), text.index("<details>")
    assert rule < folded < text.index(found.copies[0]) < text.index("</details>")
    assert found.finished("SAMTRON", "gmm20") == {0, 1, 2, 3}
    assert found.finished("SAMTRON", "wine") == set()


def test_unfinished_failed_and_unequal_seeds_are_noted(tmp_path):
    write_run(tmp_path / "r" / "a", "SAMTRON", "gmm20", {0: [(50, 0.1)], 1: [(40, 0.2)], 2: [(3, 9.0)]})
    write_run(tmp_path / "r" / "b", "SAMTRON", "gmm20", {3: [(50, math.inf)]}, limit=50.0)
    unfinish(tmp_path / "r" / "a", 1)
    unfinish(tmp_path / "r" / "a", 2)
    write_failure(tmp_path / "r" / "a" / "seed-2", "Boom.")
    found = tables.collect([tmp_path / "r"], ["SAMTRON"], ["gmm20"])
    assert found.finished("SAMTRON", "gmm20") == {0, 3}
    text = "\n".join(found.notes)
    assert "seed 1 has not finished (40 s)" in text
    assert "seed 2 failed (Boom.)" in text
    assert "different time limits (with compilation 50 s, 100 s)" in text
    assert "seed 3 ended with an -ELBO of inf" in text


def test_another_precision_is_named_beside_the_hardware(tmp_path):
    write_run(tmp_path / "r" / "a", "SAMTRON", "gmm20", {0: [(50, 0.1)]})
    write_run(tmp_path / "r" / "b", "SAMTRON", "gmm20", {1: [(50, 0.1)]}, changes={"dtype": "float64"})
    found = tables.collect([tmp_path / "r"], ["SAMTRON"], ["gmm20"])
    assert summarise(found.runs["SAMTRON", "gmm20"]).device == "a device; a device, float64"
    assert found.notes == ["SAMTRON on gmm20: seed 1 was run in float64, not float32."]


def test_seeds_that_were_broken_off_count_as_last_seen_if_wanted(tmp_path):
    write_run(tmp_path / "r", "SAMTRON", "gmm20", {0: [(50, 0.1)], 1: [(10, 5.0), (40, 0.2)], 2: [(3, 9.0)]})
    unfinish(tmp_path / "r", 1)
    unfinish(tmp_path / "r", 2)
    write_failure(tmp_path / "r" / "seed-2", "Boom.")
    found = tables.collect([tmp_path / "r"], ["SAMTRON"], ["gmm20"], unfinished=True)
    run = found.runs["SAMTRON", "gmm20"]
    assert {n: seed.final["neg_elbo"] for n, seed in run.finished.items()} == {0: 0.1, 1: 0.2}
    assert run.seeds[1].final["stopped"] == "unfinished"
    text = "\n".join(found.notes)
    assert "seed 1 was not finished and counts as last evaluated, after 1 iteration." in text
    assert "seed 2 failed (Boom.)" in text
    assert "has not finished" not in text
    tables.write_table3(found, tmp_path / "out", candidates=["SAMTRON"])
    assert "unfinished" in (tmp_path / "out" / "table3_seeds.csv").read_text()


def test_runs_that_are_not_the_papers_are_left_out(tmp_path):
    preset = presets.paper("SAMTRON", "gmm20")
    settings = json.loads(json.dumps(preset.overrides))
    other = {**settings, "sample_selector": {**settings["sample_selector"], "desired_samples": 7}}
    stored = {**settings, "component_adaptation": {**settings["component_adaptation"], "database_size": 10}}
    changes = {
        "fit": {"preset": "fit"},
        "diagonal": {"covariance": "diagonal"},
        "option": {"problem": {"name": "gmm20", "options": {"scale": 2}}},
        "start": {"start": {**START, "components": 77}},
        "samples": {"algorithm": {"codename": "SAMTRON", "settings": other}},
        "version": {"format": 99},
    }
    for number, (name, change) in enumerate(changes.items()):
        write_run(tmp_path / "r" / name, "SAMTRON", "gmm20", {number: [(5, 0.1)]}, changes=change)
    good = {"algorithm": {"codename": "SAMTRON", "settings": stored}}
    write_run(tmp_path / "r" / "good", "SAMTRON", "gmm20", {9: [(5, 0.1)]}, changes=good)
    found = tables.collect([tmp_path / "r"], ["SAMTRON"], ["gmm20"])
    assert found.finished("SAMTRON", "gmm20") == {9}
    assert len(found.notes) == len(changes)
    assert "its sample_selector.desired_samples is 7, the paper's" in "\n".join(found.notes)
