"""The table of a study has the smallest value of each option, beside the paper's numbers."""

import csv

import pytest
from study_files import SimulatedPool, study_of
from typer.testing import CliRunner

from natmix.cli import app
from natmix.experiments.studies.client import run_study
from natmix.experiments.studies.option_table import paper_numbers
from natmix.experiments.studies.study_results import load_results

STUDY = """
title = "A small one"
storage = "none"
problems = ["gmm20", "stm20"]
codenames = ["SEMTR[OU][XN]"]
[budget]
evaluations = 1000
[search]
sampler = "random"
trials = 3
[[space]]
component_stepsize.stepsize = { low = 1e-5, high = 1.0, log = true }
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    study = study_of(folder, STUDY)
    run_study(folder / "out", study, SimulatedPool(folder / "out", workers=1))
    return folder / "out"


def rows_of(text):
    lines = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_each_option_has_the_best_of_its_trials_beside_the_papers_number(finished, tmp_path):
    out = tmp_path / "table.md"
    done = CliRunner().invoke(
        app, ["study", "table", str(finished), "--out", str(out), "--command", "make it"]
    )
    assert done.exit_code == 0, done.output
    text = out.read_text()
    load_results(finished).write_csv(tmp_path / "rows.csv")
    trials = list(csv.DictReader((tmp_path / "rows.csv").read_text().splitlines()))
    shown = {row[1][-2]: row for row in rows_of(text) if len(row) == 6 and row[1].endswith(")")}
    assert set(shown) == set("OUXN")
    for letter, row in shown.items():
        for column, problem in ((2, "gmm20"), (4, "stm20")):
            having = [t for t in trials if t["problem"] == problem and letter in t["codename"][5:]]
            best = min(float(t["neg_elbo"]) for t in having)
            assert row[column].replace("*", "").split(" ")[0] == f"{best:.2f}"
            assert row[column + 1] == f"{paper_numbers()[problem, letter]:.2f}"
    bold = [row[2] for letter, row in shown.items() if letter in "OU" and "**" in row[2]]
    assert len(bold) >= 1
    assert "1,000 evaluations" in text
    assert text.rstrip().endswith("```bash\nmake it\n```")


def test_the_papers_bold_numbers_are_the_smallest_of_their_modules():
    numbers = paper_numbers()
    for letters, problem, best in (
        ("ZS", "breast_cancer_mb", 68.22),
        ("ITY", "wine", 1431.09),
        ("MP", "stm20", 0.05),
    ):
        assert min(numbers[problem, o] for o in letters if (problem, o) in numbers) == best
    assert ("wine", "Z") not in numbers
