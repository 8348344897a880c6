"""Tables of Table 3 that are read back, where the run directories are gone."""

import shutil

import numpy as np
import pytest
from paper_runs import unfinish, write_run
from typer.testing import CliRunner

from natmix.cli import app
from natmix.experiments import tables
from natmix.experiments.tables.summary import summarise

FILES = ("table3.csv", "table3_seeds.csv", "table3_learning_curves.csv")
KEY = ("SAMTRON", "gmm20")


@pytest.fixture
def folder(tmp_path):
    evaluations = {0: [(5, 0.4), (50, 0.001), (60, 0.0)], 1: [(6, 0.5), (40, 0.2)], 2: [(3, 9.0), (30, 0.1)]}
    run = write_run(tmp_path / "runs" / "a", *KEY, evaluations, compiling={0: 2.0})
    unfinish(run, 2)
    written(tmp_path, "runs", to="first")
    return tmp_path


def found_in(folder, *names):
    return tables.collect([folder / name for name in names], [KEY[0]], [KEY[1]], unfinished=True)


def written(folder, *names, to):
    tables.write_table3(found_in(folder, *names), folder / to, candidates=[KEY[0]])


def test_a_table_says_of_its_seeds_what_their_directories_said(folder):
    shutil.rmtree(folder / "runs")
    written(folder, "first", to="second")
    for name in FILES:
        assert (folder / "second" / name).read_text() == (folder / "first" / name).read_text(), name
    assert (folder / "second" / "table3_curves.png").read_bytes().startswith(b"\x89PNG")
    again = summarise(found_in(folder, "second").runs[KEY])
    assert (again.seeds, again.reached, again.first_to_paper) == ((0, 1, 2), 1, 50.0)
    run = found_in(folder, "second").runs[KEY]
    np.testing.assert_array_equal(run.seeds[1].metrics["neg_elbo"], [0.5, 0.2])
    assert run.seeds[2].final["stopped"] == "unfinished"


def test_the_last_evaluation_is_enough(folder):
    (folder / "first" / "table3_learning_curves.csv").unlink()
    written(folder, "first", to="second")
    for name in FILES[:2]:
        assert (folder / "second" / name).read_text() == (folder / "first" / name).read_text(), name
    assert not (folder / "second" / "table3_curves.png").exists()


def test_a_table_beside_its_own_runs_adds_nothing(folder):
    both = found_in(folder, "runs", "first")
    assert both.copies == []
    assert both.notes == found_in(folder, "runs").notes


def test_a_newer_run_with_more_iterations_counts(folder):
    shutil.rmtree(folder / "runs")
    write_run(folder / "new" / "a", *KEY, {0: [(t, 0.7) for t in range(1, 51)], 5: [(50, 0.8)]})
    found = found_in(folder, "first", "new")
    finals = {n: seed.final["neg_elbo"] for n, seed in found.runs[KEY].finished.items()}
    assert finals == {0: 0.7, 1: 0.2, 2: 0.1, 5: 0.8}
    (line,) = found.copies
    assert "the one in new/a (finished, 49 iterations, 50 s) counts, not first/table3_seeds.csv" in line


def test_a_finished_seed_counts_before_one_the_table_has_as_broken_off(folder):
    shutil.rmtree(folder / "runs")
    write_run(folder / "new" / "a", *KEY, {2: [(50, 0.7)]})
    assert found_in(folder, "first", "new").runs[KEY].seeds[2].final["neg_elbo"] == 0.7


def test_broken_off_seeds_of_a_table_count_only_if_wanted(folder):
    shutil.rmtree(folder / "runs")
    found = tables.collect([folder / "first"], [KEY[0]], [KEY[1]])
    assert set(found.runs[KEY].finished) == {0, 1}


def test_an_unfinished_run_does_not_push_out_what_a_table_has_of_it_as_finished(folder):
    unfinish(folder / "runs" / "a", 0)
    found = tables.collect([folder / "runs", folder / "first"], [KEY[0]], [KEY[1]])
    assert found.runs[KEY].seeds[0].final["neg_elbo"] == 0.0


def test_numbers_that_were_none_come_back_so(folder):
    shutil.rmtree(folder / "runs")
    write_run(folder / "runs" / "b", *KEY, {0: [(5, float("nan"))]}, changes={"dtype": "float64"})
    written(folder, "runs", to="first")
    written(folder, "first", to="second")
    for name in FILES:
        assert (folder / "second" / name).read_text() == (folder / "first" / name).read_text(), name
    notes = found_in(folder, "second").notes
    assert "SAMTRON on gmm20: seed 0 ended with an -ELBO of nan." in notes
    assert "SAMTRON on gmm20: seed 0 was run in float64, not float32." in notes


def test_a_table_is_not_replaced_by_one_with_fewer_seeds(folder):
    shutil.rmtree(folder / "runs")
    found = tables.collect([folder / "first"], [KEY[0]], [KEY[1]])  # without those broken off
    with pytest.raises(ValueError, match="SAMTRON on gmm20, seed 2, which the new table would not have"):
        tables.write_table3(found, folder / "first", candidates=[KEY[0]])
    written(folder, "first", to="first")
    assert "unfinished" in (folder / "first" / "table3_seeds.csv").read_text()


def test_curves_of_some_seeds_alone_are_not_drawn(folder):
    shutil.rmtree(folder / "runs")
    (folder / "first" / "table3_learning_curves.csv").unlink()
    write_run(folder / "new" / "a", *KEY, {7: [(5, 3.0), (50, 0.7)]})
    written(folder, "first", "new", to="second")
    assert not (folder / "second" / "table3_curves.png").exists()


def test_a_missing_picture_is_explained(folder):
    (folder / "first" / "table3_learning_curves.csv").unlink()
    command = ["reproduce", "table3", "--only-table", "--from", str(folder / "first")]
    shown = CliRunner().invoke(app, [*command, "--write", str(folder / "second")]).output
    assert "There is no figure, because the tables do not have the learning curves" in shown


def test_mixtures_are_not_in_a_table(folder):
    seed = found_in(folder, "first").runs[KEY].seeds[0]
    assert "SavedSeed(" in repr(seed)
    with pytest.raises(FileNotFoundError, match="has its numbers alone"):
        _ = seed.mixture


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("iterations", "rounds", "has no column 'iterations'"),
        ("SAMTRON,gmm20,0", "SAMTRON,gmm20,first", "is damaged: invalid literal"),
        (",a device", ",", "is damaged: a seed has no 'device'"),
    ],
)
def test_a_table_that_is_none_is_named(folder, old, new, complaint):
    path = folder / "first" / "table3_seeds.csv"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(ValueError, match=complaint) as error:
        found_in(folder, "first")
    assert str(path) in str(error.value)
