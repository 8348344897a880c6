"""What the documents say of the measurements is what the recorded files say."""

import csv
import re
from pathlib import Path

import pytest

import natmix
from natmix.experiments.problems import PAPER
from natmix.experiments.tables import ALL, MAIN, collect
from natmix.experiments.tables.ordering import ordering
from natmix.experiments.tables.writing import summaries_of

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
SHORT = ("SAMTRUX", "SAMTROX", "SAMYRUX", "SAMYROX", "SEPYRUX")
"""The algorithms of the appendix that ran for a minute or so."""


def words(path: Path) -> str:
    return re.sub(r"\s+", " ", path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def bench() -> list[dict[str, str]]:
    with (RESULTS / "bench_cpu.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def span(rows: list[dict[str, str]], column: str) -> str:
    """Least and most, at two digits below ten."""
    values = sorted(float(row[column]) for row in rows)
    low, high = (f"{v:.1f}" if v < 10 else f"{v:.0f}" for v in (values[0], values[-1]))
    return f"{low} to {high}"


def test_speed_beside_gmmvi(bench):
    total, first = span(bench, "seconds_to_goal_ratio"), span(bench, "first_at_goal_ratio")
    later, memory = span(bench, "later_ms_ratio"), span(bench, "peak_mib_ratio")
    readme, page = words(ROOT / "README.md"), words(ROOT / "docs" / "speed.md")
    assert f"in {total} times less time" in readme
    assert f"it is {first} times" in readme
    assert f"iteration is {later} times faster" in readme
    for numbers in (total, first, later, memory):
        assert f"| {numbers}" in page
    assert memory == "1.7 to 14"
    for text in (readme, page):
        assert "a fourteenth to three fifths" in text
        assert re.search("natmix always (ran )?with its own", text)


def test_gmmvi_had_its_own_targets_on_all_rows_but_one(bench):
    assert [row["row"] for row in bench if not row["variant"].startswith("shipped")] == ["stm300"]
    assert len(bench) == 10


def test_every_row_beside_gmmvi_is_in_the_table(bench):
    text = words(RESULTS / "README.md")
    for row in bench:
        assert f"| {row['row']} | " in text


@pytest.fixture(scope="module")
def summaries():
    return summaries_of(collect([RESULTS], ALL, PAPER, unfinished=True))


@pytest.mark.parametrize(
    ("title", "candidates"), [("the four of the main table", MAIN), ("all nine of the appendix", ALL)]
)
def test_order_of_the_algorithms(summaries, title, candidates):
    orders = [ordering({c: summaries[c, p] for c in candidates if (c, p) in summaries}) for p in PAPER]
    pairs, by_means, clearly, back = (
        sum(getattr(order, name) for order in orders) for name in ("pairs", "by_means", "clearly", "reversed")
    )
    row = f"| {title} | {pairs} | {by_means} | {clearly} | {pairs - by_means - back} | {back} |"
    assert row in words(RESULTS / "README.md")


@pytest.mark.parametrize("problem", PAPER)
def test_short_runs_that_are_above_the_papers_interval(summaries, problem):
    section = (RESULTS / "README.md").read_text(encoding="utf-8").split("## The appendix's table")[1]
    row = re.search(rf"^\| {problem} \| \d+ \| (.*) \|$", section, re.MULTILINE)[1]
    above = {codename for codename in SHORT if not summaries[codename, problem].not_above}
    assert (set(re.findall(r"SA\w{5}|SEPYRUX", row.split(":")[0])) or _in_words(row)) == above


def _in_words(row: str) -> set[str]:
    return set(SHORT) if row.startswith("all five") else set()


def test_hardware_of_sepyfux_on_the_planar_robot(summaries):
    assert summaries["SEPYFUX", "planar_robot_4"].device.startswith("CPU, 16 cores")
    assert "and on sixteen on planar_robot_4" in words(RESULTS / "notes.md")


def test_the_citation_names_this_version():
    assert f"version: {natmix.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
