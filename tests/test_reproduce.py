"""``natmix reproduce table3``: numbers by hand, merging, resuming, and what a user may get wrong."""

import csv
import json
import math
import shlex
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from tiny_problem import SMALL, tiny
from typer.testing import CliRunner

from natmix import Mixture, presets, problems, reproduce
from natmix.cli import app
from natmix.gaussians import FullGaussians
from natmix.problems import PAPER
from natmix.problems.logistic_regression import _features
from natmix.reproduce import _format
from natmix.reproduce._accuracy import seen_accuracy
from natmix.reproduce._commands import run_commands
from natmix.reproduce._jobs import parse_candidates, parse_problems, parse_times
from natmix.reproduce._ordering import ordering
from natmix.reproduce._summary import Statistic, summarise
from natmix.runs import load_run
from natmix.runs._lock import lock

COLUMNS = (
    "algorithm,problem,seeds,neg_elbo_mean,neg_elbo_3se,paper_mean,paper_3se,"
    "evaluations,iterations,seconds,device"
)


def natmix(*arguments):
    return CliRunner().invoke(app, ["reproduce", "table3", *(str(a) for a in arguments)])


def assert_one_sentence(outcome, words):
    assert outcome.exit_code == 2, outcome.output
    assert words in outcome.stderr
    assert outcome.stderr.startswith("natmix: ")
    assert len(outcome.stderr.splitlines()) == 1


# Run directories made by hand --------------------------------------------------------------------


def write_run(path, codename, problem, seeds, limit=100.0, changes=None):
    """A directory with the paper's hyperparameters; seeds: number -> [(seconds, -ELBO), ...] of its looks."""
    preset = presets.paper(codename, problem)
    limits = {
        "max_seconds": limit,
        "max_evaluations": None,
        "max_iterations": preset.max_iterations,
        "until": None,
    }
    config = {
        "format": 1,
        "problem": {"name": problem, "options": {}},
        "algorithm": {"codename": preset.codename, "settings": json.loads(json.dumps(preset.overrides))},
        "start": {"components": preset.components},
        "preset": "paper",
        "covariance": "full",
        "dtype": "float32",
        "limits": limits,
        "seeds": list(seeds),
        **(changes or {}),
    }
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    (path / "environment.json").write_text("{}")
    for n, looks in seeds.items():
        folder = path / f"seed-{n}"
        folder.mkdir()
        rows = [
            {"seconds": t, "neg_elbo": y, "iterations": i, "evaluations": 10 * i, "components": 3}
            for i, (t, y) in enumerate(looks)
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        seconds, value = looks[-1]
        final = {
            "neg_elbo": value,
            "neg_elbo_se": 0.01,
            "detected_modes": 10.0 - n,
            "evaluations": 1000 + n,
            "iterations": 10 * (n + 1),
            "seconds": seconds,
            "compile_seconds": 1.0,
            "components": 3,
            "stopped": "max_seconds",
            "limits": limits,
            "device": "a device",
            "missing_metrics": {"mmd": "There are no reference samples in /some/where."},
        }
        (folder / "final.json").write_text(json.dumps(final))
    return path


def unfinish(path, seed):
    (path / f"seed-{seed}" / "final.json").unlink()


def one_run(tmp_path, values, codename="SAMTRON", problem="breast_cancer"):
    """The summary of seeds that end with these values after 10, 20, ... seconds."""
    name = f"{problem}-{codename}-{len(list(tmp_path.iterdir()))}"
    seeds = {n: [(1.0, 1e3), (10.0 * (n + 1), v)] for n, v in enumerate(values)}
    return summarise(load_run(write_run(tmp_path / name, codename, problem, seeds)))


@pytest.fixture
def folder(tmp_path):
    """SAMTRON and ZAMTRUX on two problems."""
    out = tmp_path / "runs"
    write_run(out / "a", "SAMTRON", "gmm20", {0: [(5, 3.0), (50, 0.001)], 1: [(6, 0.004), (60, 0.003)]})
    write_run(out / "deep" / "b", "SAMTRON", "stm300", {0: [(90, 14.5)], 1: [(99, 15.5)]}, limit=900.0)
    write_run(out / "c", "ZAMTRUX", "gmm20", {0: [(50, 0.2)], 1: [(50, 0.4)]})
    return out


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
    number = reproduce.paper_number(codename, problem, metric, table)
    assert (number.mean, number.three_se) == (mean, three_se)


def test_the_paper_has_every_number_but_zamtrux_on_stm300():
    missing = [(c, p) for c in reproduce.ALL for p in PAPER if reproduce.paper_number(c, p) is None]
    assert missing == [("ZAMTRUX", "stm300")]
    assert sorted(reproduce.ALL) == sorted(presets.codenames())


# What to run --------------------------------------------------------------------------------------


def test_samtron_and_quick_problems_come_first():
    jobs = reproduce.plan()
    assert len(jobs) == 43
    assert [job.codename for job in jobs[:11]] == ["SAMTRON"] * 11
    assert [jobs[0].problem, jobs[10].problem] == ["gmm20", "stm300"]
    assert ("ZAMTRUX", "stm300") not in {(job.codename, job.problem) for job in jobs}
    assert jobs[0].name == "gmm20-samtron"


def test_words_of_the_command_line():
    assert parse_candidates("zamtrux,SAMTRON") == ("SAMTRON", "ZAMTRUX")
    assert parse_candidates("all") == reproduce.ALL
    assert parse_problems("wine, gmm20") == ("gmm20", "wine")
    assert parse_times(["5m,stm300=10m", "wine=2h"]) == {"": 300, "stm300": 600, "wine": 7200}
    jobs = reproduce.plan(("SAMTRON",), PAPER, {"": 3, "wine": 9}, {"": 2})
    limits = {job.problem: job.limits for job in jobs}
    assert (limits["wine"].max_seconds, limits["talos"].max_seconds) == (9, 3)
    assert limits["wine"].max_run_seconds == 2
    assert reproduce.plan(("SAMTRON",))[0].limits.max_seconds is None


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
    assert _format.mark(one_run(tmp_path, values, problem=problem)) == mark


def test_time_to_the_papers_number(tmp_path):
    looks = {
        0: [(1, 90), (10, 78.004), (20, 77.9)],  # at two decimals 78.00: after 10 s
        1: [(1, 90), (30, 78.006), (40, 78.0)],  # 78.01 does not count: 40 s
        2: [(1, 90), (70, 77.0)],
    }
    s = summarise(load_run(write_run(tmp_path / "all", "SAMTRON", "breast_cancer", looks)))
    assert (s.time_to_paper, s.reached) == (40, 3)
    assert _format.time_to_paper(s) == "40"
    looks |= {3: [(1, 90), (80, 79.0)], 4: [(80, 79.0)]}
    s = summarise(load_run(write_run(tmp_path / "most", "SAMTRON", "breast_cancer", looks)))
    assert _format.time_to_paper(s) == "70 (3 of 5 seeds)"
    looks |= {5: [(80, 79.0)]}
    s = summarise(load_run(write_run(tmp_path / "half", "SAMTRON", "breast_cancer", looks)))
    assert _format.time_to_paper(s) == "not reached (3 of 6 seeds)"


def test_ordering(tmp_path):
    def of(**values):
        return ordering({name: one_run(tmp_path, v, name) for name, v in values.items()})

    # In the paper 78.00 ± 0.02, 78.61 ± 0.05, 79.78 ± 0.40, 78.14 ± 0.01: six clear pairs.
    same = of(SAMTRON=[78.0, 78.0], SAMYRON=[78.6, 78.6], SEPYFUX=[79.8, 79.8], ZAMTRUX=[78.1, 78.1])
    assert set(same.first.values()) == {"yes"}
    assert (same.clear, same.kept) == (6, 6)
    # SAMTRON 0.05 above ZAMTRUX, with 3 standard errors of 0.15; and 0.05 above SAMYRON, which has none.
    other = of(SAMTRON=[78.1, 78.2], SAMYRON=[77.9, 77.9], ZAMTRUX=[78.05, 78.15])
    assert other.first == {"SAMYRON": "no", "ZAMTRUX": "within errors"}
    assert (other.clear, other.kept) == (3, 1)  # ZAMTRUX and SAMYRON are the wrong way round too
    assert of(SAMTRON=[78.004], ZAMTRUX=[77.996]).first == {"ZAMTRUX": "yes"}  # both 78.00


def test_seeds_as_one_types_them():
    assert _format.seeds([0, 1, 2, 5, 7, 8]) == "0:3,5,7:9"


# Merging ------------------------------------------------------------------------------------------


def test_a_seed_found_twice_counts_once(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    write_run(one / "r", "SAMTRON", "gmm20", {0: [(90, 0.1)], 1: [(9, 3), (50, 0.2)], 2: [(500, 0.3)]})
    more = {0: [(9, 3), (80, 0.5)], 1: [(70, 0.6)], 2: [(5, 0.7)], 3: [(5, 0.8)]}
    write_run(two / "x" / "r", "SAMTRON", "gmm20", more)
    unfinish(one / "r", 2)
    found = reproduce.collect([one, two, one], ["SAMTRON"], ["gmm20"])
    run = found.runs["SAMTRON", "gmm20"]
    assert {n: seed.final["neg_elbo"] for n, seed in run.finished.items()} == {0: 0.5, 1: 0.2, 2: 0.7, 3: 0.8}
    assert len(found.notes) == 3
    assert "the one in two/x/r (finished, 80 s) counts, not one/r (finished, 90 s)" in found.notes[0]
    assert "not one/r (unfinished, 500 s)" in found.notes[2]
    assert found.finished("SAMTRON", "gmm20") == {0, 1, 2, 3}
    assert found.finished("SAMTRON", "wine") == set()


def test_unfinished_failed_and_unequal_seeds_are_noted(tmp_path):
    write_run(tmp_path / "r" / "a", "SAMTRON", "gmm20", {0: [(50, 0.1)], 1: [(40, 0.2)], 2: [(3, 9.0)]})
    write_run(tmp_path / "r" / "b", "SAMTRON", "gmm20", {3: [(50, math.inf)]}, limit=50.0)
    unfinish(tmp_path / "r" / "a", 1)
    unfinish(tmp_path / "r" / "a", 2)
    (tmp_path / "r" / "a" / "seed-2" / "failed.json").write_text('{"error": "Boom."}')
    found = reproduce.collect([tmp_path / "r"], ["SAMTRON"], ["gmm20"])
    assert found.finished("SAMTRON", "gmm20") == {0, 3}
    text = "\n".join(found.notes)
    assert "seed 1 has not finished (40 s)" in text
    assert "seed 2 failed (Boom.)" in text
    assert "different time limits (50 s, 100 s)" in text
    assert "seed 3 ended with an -ELBO of inf" in text


def test_seeds_that_were_broken_off_count_as_last_seen_if_wanted(tmp_path):
    write_run(tmp_path / "r", "SAMTRON", "gmm20", {0: [(50, 0.1)], 1: [(10, 5.0), (40, 0.2)], 2: [(3, 9.0)]})
    unfinish(tmp_path / "r", 1)
    unfinish(tmp_path / "r", 2)
    (tmp_path / "r" / "seed-2" / "failed.json").write_text('{"error": "Boom."}')
    found = reproduce.collect([tmp_path / "r"], ["SAMTRON"], ["gmm20"], unfinished=True)
    run = found.runs["SAMTRON", "gmm20"]
    assert {n: seed.final["neg_elbo"] for n, seed in run.finished.items()} == {0: 0.1, 1: 0.2}
    assert run.seeds[1].final["stopped"] == "unfinished"
    text = "\n".join(found.notes)
    assert "seed 1 was broken off and counts as it was when last looked at" in text
    assert "seed 2 failed (Boom.)" in text
    assert "has not finished" not in text
    reproduce.write_table3(found, tmp_path / "out", candidates=["SAMTRON"])
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
        "start": {"start": {"components": 77}},
        "samples": {"algorithm": {"codename": "SAMTRON", "settings": other}},
        "version": {"format": 99},
    }
    for number, (name, change) in enumerate(changes.items()):
        write_run(tmp_path / "r" / name, "SAMTRON", "gmm20", {number: [(5, 0.1)]}, changes=change)
    good = {"algorithm": {"codename": "SAMTRON", "settings": stored}}
    write_run(tmp_path / "r" / "good", "SAMTRON", "gmm20", {9: [(5, 0.1)]}, changes=good)
    found = reproduce.collect([tmp_path / "r"], ["SAMTRON"], ["gmm20"])
    assert found.finished("SAMTRON", "gmm20") == {9}
    assert len(found.notes) == len(changes)
    assert "its sample_selector.desired_samples is 7, the paper's" in "\n".join(found.notes)


# The files ----------------------------------------------------------------------------------------


def read_csv(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_table_from_what_is_there(folder, tmp_path):
    outcome = natmix("--only-table", "--from", folder, "--write", tmp_path / "results")
    assert outcome.exit_code == 0, outcome.output
    out = tmp_path / "results"
    assert (out / "table3.csv").read_text().splitlines()[0] == COLUMNS
    rows = read_csv(out / "table3.csv")
    assert [(r["algorithm"], r["problem"]) for r in rows] == [
        ("SAMTRON", "gmm20"),
        ("SAMTRON", "stm300"),
        ("ZAMTRUX", "gmm20"),
    ]
    row = rows[1]
    assert [float(row[k]) for k in ("neg_elbo_mean", "paper_mean", "paper_3se")] == [15.0, 14.96, 0.48]
    assert float(row["neg_elbo_3se"]) == pytest.approx(1.5)  # std 1/sqrt(2), over sqrt(2), times 3
    assert [float(row[k]) for k in ("seeds", "evaluations", "iterations", "seconds")] == [2, 1000.5, 15, 94.5]
    assert row["device"] == "a device"

    text = (out / "table3.md").read_text(encoding="utf-8")
    assert "| gmm20 | 0.00 ± 0.00 ✓ | 0.00 ± 0.00 | 0.30 ± 0.30 ✗ | 0.00 ± 0.00 |" in text
    assert "| stm300 | 15.00 ± 1.50 ✓ | 14.96 ± 0.48 | N/A | N/A |" in text
    assert "| gmm20 | 2 | 0.00 ± 0.00 ✓ | 0.00 ± 0.00 | 28 |" in text  # the median of 50 and 6
    assert "| modes: 9.50 ± 1.50 | 10.00 ± 0.00 | a device |" in text
    assert "| gmm20 | yes | – |" in text  # both 0.00 in the paper: no clear pair
    assert "/some/where" not in text + (out / "table3_seeds.csv").read_text()

    seeds = read_csv(out / "table3_seeds.csv")
    assert [(r["algorithm"], r["problem"], r["seed"]) for r in seeds][:3] == [
        ("SAMTRON", "gmm20", "0"),
        ("SAMTRON", "gmm20", "1"),
        ("SAMTRON", "stm300", "0"),
    ]
    assert [r["seconds_to_paper"] for r in seeds[:4]] == ["50", "6", "90", ""]
    assert seeds[2]["limits.max_seconds"] == "900"
    assert (out / "table3_curves.png").read_bytes().startswith(b"\x89PNG")
    assert not (out / "table3_full.md").exists()


def test_the_commands_name_what_was_run(folder):
    found = reproduce.collect([folder], reproduce.MAIN, PAPER)
    assert run_commands(found) == [
        "natmix reproduce table3 --candidates samtron --problems gmm20,stm300 --seeds 0:2 "
        "--max-time gmm20=100,stm300=900",
        "natmix reproduce table3 --candidates zamtrux --problems gmm20 --seeds 0:2 --max-time 100",
    ]
    for command in run_commands(found):
        words = shlex.split(command)
        assert parse_times([words[words.index("--max-time") + 1]])


def test_problems_and_candidates_narrow_the_table(folder, tmp_path):
    arguments = ("--only-table", "--out", folder, "--candidates", "samtron", "--problems", "gmm20")
    assert natmix(*arguments, "--write", tmp_path / "w").exit_code == 0
    assert len(read_csv(tmp_path / "w" / "table3.csv")) == 1


def test_all_candidates_give_the_full_table_and_accuracies(folder, tmp_path):
    write_run(folder / "d", "SAMYROX", "gmm20", {0: [(5, 0.01)], 1: [(5, 0.03)]})
    outcome = natmix("--only-table", "--out", folder, "--candidates", "all", "--write", tmp_path / "w")
    assert outcome.exit_code == 0, outcome.output
    rows = read_csv(tmp_path / "w" / "table3_full.csv")
    ours = {(r["algorithm"], r["metric"]): r for r in rows if r["problem"] == "gmm20"}
    assert {codename for codename, _ in ours} == {"SAMTRON", "SAMYROX", "ZAMTRUX"}
    row = ours["SAMYROX", "detected_modes"]
    assert [float(row[k]) for k in ("mean", "3se", "paper_mean", "paper_3se")] == [9.5, 1.5, 9.9, 0.28]
    text = (tmp_path / "w" / "table3_full.md").read_text(encoding="utf-8")
    assert "| gmm20 | -ELBO, ours | – | – | 0.00 ± 0.00 ✓ | – | 0.02 ± 0.03 ✓ |" in text
    assert "SAMYROX" not in (tmp_path / "w" / "table3.csv").read_text()  # the main table keeps to its four
    accuracy = (tmp_path / "w" / "accuracy.md").read_text(encoding="utf-8")
    assert "|  | paper | 98.72 ± 0.11 | 98.79 ± 0.12 | 98.75 ± 0.09 |" in accuracy


@pytest.mark.parametrize("problem", ["breast_cancer", "breast_cancer_mb"])
def test_accuracy_on_the_rows_given(tmp_path, problem):
    path = write_run(tmp_path / "r", "SAMTRON", problem, {0: [(5, 80.0)], 1: [(5, 80.0)]})
    features, labels = _features("breast_cancer")
    expected = []
    for n in (0, 1):
        weights = np.random.default_rng(n).normal(size=31)
        expected.append(100 * np.mean((features @ weights < 0) == (labels == 1)))  # no spread: no mean over q
        scale = 1e-6 * np.eye(31)[None]
        components = FullGaussians(*(jnp.asarray(a) for a in (weights[None], scale, 1e6 * np.eye(31)[None])))
        Mixture(jnp.zeros(1), components).save(path / f"seed-{n}" / "mixture.safetensors")
    assert abs(expected[0] - expected[1]) > 0.2
    found, by_hand = seen_accuracy(load_run(path)), Statistic.of(expected)
    assert found.mean == pytest.approx(by_hand.mean)
    assert found.three_se == pytest.approx(by_hand.three_se)
    (path / "seed-1" / "mixture.safetensors").unlink()
    assert seen_accuracy(load_run(path)).mean == pytest.approx(expected[0])


# Running ------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch, tmp_path, quick_compilation):
    """Two-dimensional problems under the names of the paper's, with little work per iteration."""
    paper = presets.paper

    def small(codename, problem):
        chosen = paper(codename, problem)
        return presets.Preset(chosen.codename, problem, SMALL, 1, 0.0, 3.0, 9.0, 1000.0, 12)

    monkeypatch.setattr(presets, "paper", small)
    monkeypatch.setattr(problems, "load", lambda name, seed, dtype: tiny(seed, dtype, name))
    monkeypatch.setattr("jax.clear_caches", lambda: None)  # both problems are the same program here
    common = ("--candidates", "samtron", "--out", tmp_path / "out", "--write", tmp_path / "w")
    return lambda *more: natmix(*common, *more)


def test_a_table_is_run_and_resumed(quick, tmp_path):
    out = tmp_path / "out"
    first = quick("--problems", "stm300,gmm20", "--seeds", "0:2", "--keep-checkpoints")
    assert first.exit_code == 0, first.output
    assert first.stderr.index("gmm20-samtron: 2 of 2") < first.stderr.index("stm300-samtron: 2 of 2")
    rows = read_csv(tmp_path / "w" / "table3.csv")
    assert [(r["problem"], r["seeds"]) for r in rows] == [("gmm20", "2"), ("stm300", "2")]
    assert [r["iterations"] for r in rows] == ["12", "12"]
    run = load_run(out / "gmm20-samtron")
    assert run.config["preset"] == "paper"
    values = [seed.final["neg_elbo"] for seed in run.seeds.values()]
    assert float(rows[0]["neg_elbo_mean"]) == pytest.approx(np.mean(values))

    # Finished seeds are skipped, an interrupted one goes on from its checkpoint, a new one begins.
    before = (out / "gmm20-samtron" / "seed-0" / "final.json").stat().st_mtime_ns
    unfinish(out / "gmm20-samtron", 1)
    second = quick("--problems", "gmm20", "--seeds", "0:3")
    assert second.exit_code == 0, second.output
    assert "gmm20-samtron: 2 of 3 seeds to run" in second.stderr
    assert "seed 1  goes on after iteration 12" in second.stderr
    assert "seed 2  compiling" in second.stderr
    assert (out / "gmm20-samtron" / "seed-0" / "final.json").stat().st_mtime_ns == before
    rows = read_csv(tmp_path / "w" / "table3.csv")  # of everything in --out, not only what ran now
    assert [(r["problem"], r["seeds"]) for r in rows] == [("gmm20", "3"), ("stm300", "2")]

    # What another machine has finished is not run here.
    shutil.move(out / "stm300-samtron", tmp_path / "elsewhere" / "stm300-samtron")
    third = quick("--problems", "stm300", "--seeds", "0:2", "--from", tmp_path / "elsewhere")
    assert third.exit_code == 0, third.output
    assert not (out / "stm300-samtron").exists()
    assert "to run" not in third.stderr
    assert len(read_csv(tmp_path / "w" / "table3.csv")) == 2

    # A seed that another process runs is left alone; one that ended under a lower limit stays.
    with lock(out / ".locks" / "gmm20-samtron-3", wait=False) as mine:
        assert mine
        fourth = quick("--problems", "gmm20", "--seeds", "2:4", "--quiet")
        assert fourth.exit_code == 0
        assert fourth.output == ""
        assert not (out / "gmm20-samtron" / "seed-3").exists()
        final = out / "gmm20-samtron" / "seed-2" / "final.json"
        ended = json.loads(final.read_text())
        ended["limits"]["max_iterations"], ended["iterations"] = 5, 5
        final.write_text(json.dumps(ended))
        fifth = quick("--problems", "gmm20", "--seeds", "2:4")
        assert "gmm20-samtron: seeds 2 have finished under another limit" in fifth.stderr
        assert "gmm20-samtron: seeds 3 are being run by another process" in fifth.stderr

    # Another configuration in the way is known before any work.
    config = out / "gmm20-samtron" / "config.json"
    config.write_text(config.read_text().replace('"float32"', '"float64"'))
    outcome = quick("--problems", "stm20,gmm20", "--seeds", "5")
    assert_one_sentence(outcome, "holds another run: dtype")
    assert not (out / "stm20-samtron").exists()


def test_failed_seeds_are_named(quick, tmp_path, monkeypatch):
    nowhere = [[math.nan, 0.0], [0.0, 0.0]]

    def load(name, seed, dtype):
        return tiny(seed, dtype, name, nowhere if name == "gmm20" else None)

    monkeypatch.setattr(problems, "load", load)
    outcome = quick("--problems", "gmm20,stm20", "--seeds", "0")
    assert outcome.exit_code == 1, outcome.output
    assert "natmix: seeds that failed: gmm20-samtron 0; the same command tries them again." in outcome.stderr
    assert [r["problem"] for r in read_csv(tmp_path / "w" / "table3.csv")] == ["stm20"]
    assert "SAMTRON on gmm20: seed 0 failed" in (tmp_path / "w" / "table3.md").read_text(encoding="utf-8")


def test_a_lock_is_held_by_one(tmp_path):
    path = tmp_path / "deep" / "a"
    with lock(path, wait=False) as first, lock(path, wait=False) as second:
        assert (first, second) == (True, False)
    with lock(path, wait=False) as again:
        assert again


# Mistakes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--candidates", "samtron,nonsense"), "nonsense"),
        (("--candidates", "zepyrun"), "The paper's tables have no ZEPYRUN, only SAMTRUX"),
        (("--candidates", "samtron,,zamtrux"), "There is a candidate missing"),
        (("--problems", "gmm2"), "The paper's tables have no problem 'gmm2', only breast_cancer"),
        (("--problems", "stm300", "--candidates", "zamtrux"), "the paper has no ZAMTRUX on stm300"),
        (("--seeds", "x"), "Seeds are written"),
        (("--max-time", "soon"), "A time is written"),
        (("--max-time", "stm=10m"), "no problem 'stm'"),
        (("--max-time", "5m,10m"), "two time limits for all problems"),
        (("--only-table", "--from", "nowhere"), "There is no folder nowhere."),
        (("--only-table", "--out", "."), "There is no finished seed to make a table of yet."),
    ],
)
def test_mistakes_end_in_one_sentence(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert_one_sentence(natmix(*arguments), words)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_named(folder, tmp_path):
    (tmp_path / "file").write_text("")
    outcome = natmix("--only-table", "--out", folder, "--write", tmp_path / "file" / "results")
    assert_one_sentence(outcome, "file: Not a directory")


def test_another_table_is_unknown():
    outcome = CliRunner().invoke(app, ["reproduce", "table9"])
    assert outcome.exit_code == 2
    assert "table9" in outcome.stderr
