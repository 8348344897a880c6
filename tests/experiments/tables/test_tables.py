"""``natmix reproduce table3``: files, resuming, and what a user may get wrong."""

import csv
import json
import math
import shlex
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from paper_runs import unfinish, write_run
from run_files import change_final, write_final_mixture
from tiny_problem import SMALL, tiny
from typer.testing import CliRunner

from natmix import Mixture
from natmix.cli import app
from natmix.experiments import presets, problems, tables
from natmix.experiments.problems import PAPER
from natmix.experiments.problems.logistic_regression import standardised_features
from natmix.experiments.runs import load_run
from natmix.experiments.tables.accuracy import seen_accuracy
from natmix.experiments.tables.cells import parse_times
from natmix.experiments.tables.commands import run_commands
from natmix.experiments.tables.csv_files import write_csv
from natmix.experiments.tables.summary import Statistic
from natmix.files.lock import lock
from natmix.gaussians import FullGaussians

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


@pytest.fixture
def folder(tmp_path):
    """SAMTRON and ZAMTRUX on two problems."""
    out = tmp_path / "runs"
    write_run(out / "a", "SAMTRON", "gmm20", {0: [(5, 3.0), (50, 0.001)], 1: [(6, 0.004), (60, 0.003)]})
    write_run(out / "deep" / "b", "SAMTRON", "stm300", {0: [(90, 14.5)], 1: [(99, 15.5)]}, limit=900.0)
    write_run(out / "c", "ZAMTRUX", "gmm20", {0: [(50, 0.2)], 1: [(50, 0.4)]})
    return out


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
    # Seed 0 took 50 s with compilation; without, the median of 49.5 and 5.5.
    assert "| gmm20 | 2 | 0.00 ± 0.00 ✓ | 0.00 ± 0.00 | 50 | 28 |" in text
    assert "| modes: 9.50 ± 1.50 | 10.00 ± 0.00 | a device |" in text
    assert "| gmm20 | yes | – | – | – | – |" in text  # both 0.00 in the paper: no clear pair
    assert "| **all** |  | **0** | **0** | **0** | **0** |" in text
    assert "/some/where" not in text + (out / "table3_seeds.csv").read_text()

    seeds = read_csv(out / "table3_seeds.csv")
    assert [(r["algorithm"], r["problem"], r["seed"]) for r in seeds][:3] == [
        ("SAMTRON", "gmm20", "0"),
        ("SAMTRON", "gmm20", "1"),
        ("SAMTRON", "stm300", "0"),
    ]
    assert [r["seconds_to_paper"] for r in seeds[:4]] == ["50", "6", "90", ""]
    assert [r["run_seconds_to_paper"] for r in seeds[:4]] == ["49.5", "5.5", "89.5", ""]
    assert seeds[2]["limits.max_seconds"] == "900"
    assert (out / "table3_curves.png").read_bytes().startswith(b"\x89PNG")
    assert not (out / "table3_full.md").exists()


def test_the_table_is_beside_the_runs_if_nothing_is_said(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    assert natmix("--only-table", "--out", folder).exit_code == 0
    assert (folder / "tables" / "table3.md").is_file()
    assert natmix("--only-table", "--out", folder).exit_code == 0  # the tables are no runs
    outcome = natmix("--only-table", "--from", folder)
    assert "table3-runs/tables/table3.md" in outcome.stdout
    assert list((tmp_path / "results").iterdir()) == []


def test_the_full_table_has_only_the_problems_asked_for(folder, tmp_path):
    arguments = ("--only-table", "--out", folder, "--candidates", "all", "--problems", "gmm20")
    assert natmix(*arguments, "--write", tmp_path / "w").exit_code == 0
    text = (tmp_path / "w" / "table3_full.md").read_text(encoding="utf-8")
    assert "| gmm20 |" in text
    assert not any(f"| {problem} |" in text for problem in PAPER if problem != "gmm20")
    write_csv(tmp_path / "zero.csv", [{"x": -0.0}])
    assert (tmp_path / "zero.csv").read_text() == "x\n0\n"


def test_the_commands_name_what_was_run(folder):
    found = tables.collect([folder], tables.MAIN, PAPER)
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


def test_held_out_problems_alone_have_no_curves(tmp_path):
    write_run(tmp_path / "r", "SAMTRON", "german_credit_testsplit", {0: [(5, 277.4)]})
    arguments = ("--only-table", "--out", tmp_path, "--candidates", "samtron", "--write", tmp_path / "w")
    outcome = natmix(*arguments, "--problems", "german_credit_testsplit")
    assert outcome.exit_code == 0, outcome.output
    assert not list((tmp_path / "w").glob("*.png"))


@pytest.mark.parametrize("problems", [("gmm20",), ("gmm20", "stm300"), PAPER[:4]])
@pytest.mark.parametrize("candidates", [tables.MAIN, tables.ALL])
def test_the_legend_of_the_curves_lies_inside_the_figure(tmp_path, problems, candidates):
    from natmix.experiments.tables.curves import plot_curves

    for codename in candidates:
        for problem in problems:
            if problem in presets.problems(codename):
                write_run(tmp_path / f"{codename}-{problem}", codename, problem, {0: [(1, 900.0), (9, 80.0)]})
    figure = plot_curves(tables.collect([tmp_path], candidates, problems), candidates)
    figure.canvas.draw()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
    assert 0 <= box.y0 < box.y1 <= figure.bbox.y1
    axes = [ax.get_tightbbox() for ax in figure.axes]
    assert box.y1 <= min(a.y0 for a in axes)


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
    features, labels = standardised_features("breast_cancer")
    expected = []
    for n in (0, 1):
        weights = np.random.default_rng(n).normal(size=31)
        expected.append(100 * np.mean((features @ weights < 0) == (labels == 1)))  # no spread: no mean over q
        scale = 1e-6 * np.eye(31)[None]
        components = FullGaussians(*(jnp.asarray(a) for a in (weights[None], scale, 1e6 * np.eye(31)[None])))
        write_final_mixture(path / f"seed-{n}", Mixture(jnp.zeros(1), components))
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

    def small(codename, problem, experiment=3):
        chosen = paper(codename, problem, experiment)
        return presets.Preset(chosen.codename, problem, experiment, SMALL, 1, 0.0, 3.0, 9.0, 1000.0, 12)

    monkeypatch.setattr(presets, "paper", small)
    monkeypatch.setattr(problems, "load", lambda name, seed, dtype: tiny(seed, dtype, name))
    monkeypatch.setattr("jax.clear_caches", lambda: None)  # both problems are the same program here
    common = ("--candidates", "samtron", "--out", tmp_path / "out", "--write", tmp_path / "w")
    return lambda *more: natmix(*common, *more)


def test_a_table_is_run_and_resumed(quick, tmp_path):
    out = tmp_path / "out"
    first = quick("--problems", "stm300,gmm20", "--seeds", "0:2", "--keep-checkpoints")
    assert first.exit_code == 0, first.output
    assert first.stderr.startswith("2 cells of the table, 2 seeds each, a limit of 1000 s per seed: at most ")
    assert first.stderr.index("gmm20-samtron: 2 of 2") < first.stderr.index("stm300-samtron: 2 of 2")
    rows = read_csv(tmp_path / "w" / "table3.csv")
    assert [(r["problem"], r["seeds"]) for r in rows] == [("gmm20", "2"), ("stm300", "2")]
    assert [r["iterations"] for r in rows] == ["12", "12"]
    run = load_run(out / "gmm20-samtron")
    assert run.config["preset"] == "paper"
    values = [seed.final["neg_elbo"] for seed in run.seeds.values()]
    assert float(rows[0]["neg_elbo_mean"]) == pytest.approx(np.mean(values))

    # Finished seeds are skipped, an interrupted one goes on from its checkpoint, a new one starts.
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
        change_final(final, limits=ended["limits"] | {"max_iterations": 5}, iterations=5)
        fifth = quick("--problems", "gmm20", "--seeds", "2:4")
        assert (
            "gmm20-samtron: finished with another limit, and without checkpoints to continue from: seed 2;"
            in fifth.stderr
        )
        assert "gmm20-samtron: run by another process: seed 3" in fifth.stderr

    # A directory of another configuration is recognised before any work.
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
    assert (
        "natmix: seeds that failed: gmm20-samtron 0; repeat the command to try them again." in outcome.stderr
    )
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
        (("--only-table", "--out", "."), "There is no finished seed yet to make a table of."),
    ],
)
def test_mistakes_end_in_one_sentence(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert_one_sentence(natmix(*arguments), words)
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_a_directory_should_be_is_named(folder, tmp_path):
    (tmp_path / "file").write_text("")
    outcome = natmix("--only-table", "--out", folder, "--write", tmp_path / "file" / "results")
    assert_one_sentence(outcome, "is a file; choose another place.")


def test_another_table_is_unknown():
    outcome = CliRunner().invoke(app, ["reproduce", "table9"])
    assert outcome.exit_code == 2
    assert "table9" in outcome.stderr
