"""The benchmark's arithmetic, on runs made up so that the answers are known."""

import csv
import json
import math

import pytest
from side_by_side import load, measures, table
from side_by_side.bench import WorkerError, chosen_targets
from side_by_side.load import Seed
from side_by_side.rows import ROWS, Row, choose, distinct


def run(first, each, count, every=1, compiling=0.0, checkpoints=(), peak=100.0):
    """``count`` iterations of ``each`` seconds after ``first`` seconds, marked ``every`` iterations.

    In the middle ``compiling`` seconds are spent compiling. Evaluations are (seconds, -ELBO, standard error).
    """
    at = sorted({1, *range(every, count + 1, every), count})
    spent = [compiling * (i > count // 2) for i in at]
    return {
        "budget": 100.0,
        "import_seconds": 2.0,
        "peak_mib": peak,
        "marks": {
            "seconds": [first + each * (i - 1) + s for i, s in zip(at, spent, strict=True)],
            "compile_seconds": spent,
            "iterations": at,
            "evaluations": [10 * i for i in at],
            "components": [i // 10 for i in at],
        },
        "checkpoints": [
            {"seconds": s, "evaluations": 10 * s, "neg_elbo": value, "neg_elbo_se": error}
            for s, value, error in checkpoints
        ],
    }


@pytest.fixture
def seed():
    theirs = run(5.0, 0.5, 200, checkpoints=[(10, 9.0, 0.01), (60, 3.0, 0.01), (100, 3.0, 0.01)], peak=300.0)
    worse = run(5.0, 0.6, 150, checkpoints=[(95, 4.0, 0.01)], peak=200.0)
    ours = [
        run(1.0, 0.02, 5000, every=7, compiling=3.0, checkpoints=[(2, 8.0, 0.01), (s, 2.9, 0.01)])
        for s in (4, 6)
    ]
    return Seed(ours, {"shipped target": theirs, "shipped target, MALLOC_MMAP_MAX_=0": worse})


def test_ratios(seed):
    m = measures.compare(seed)
    assert m["variant"] == "shipped target"
    assert m["later_iteration"] == 200
    assert m["start_ms_theirs"] == pytest.approx(500)
    assert m["start_ms_ours"] == pytest.approx(20)
    assert m["start_ms_ratio"] == pytest.approx(25)
    assert m["later_ms_ratio"] == pytest.approx(25)
    assert m["first_iteration_s_ratio"] == pytest.approx(5)
    assert m["peak_mib_ratio"] == pytest.approx(3)
    assert m["later_components_theirs"] == 20
    assert m["compile_s_ours"] == 3


def test_time_to_the_goal_is_the_median_over_runs(seed):
    m = measures.compare(seed)
    assert m["seconds_to_goal_ours"] == 5
    assert m["seconds_to_goal_ratio"] == pytest.approx(20)
    assert m["first_at_goal_ratio"] == pytest.approx(12)
    assert m["evaluations_to_goal_ratio"] == pytest.approx(12)


def test_compilation_is_no_part_of_an_iteration():
    ours = run(1.0, 0.02, 100, every=4, compiling=9.0)
    assert measures.mean_ms(ours, 10, 90) == pytest.approx(20)
    assert measures.mean_ms(ours, 40, 60) == pytest.approx(20)


def test_median_leaves_out_one_slow_iteration():
    theirs = run(1.0, 0.5, 20)
    theirs["marks"]["seconds"] = [s + 7 * (i > 9) for i, s in enumerate(theirs["marks"]["seconds"])]
    assert measures.median_ms(theirs, 1, 20) == pytest.approx(500)
    assert measures.mean_ms(theirs, 1, 20) == pytest.approx(500 + 7000 / 19)


@pytest.mark.parametrize(("value", "error", "there"), [(3.0, 0.0, True), (3.2, 0.3, True), (3.2, 0.1, False)])
def test_goal_within_a_standard_error(value, error, there):
    found = measures.reached(run(1, 1, 5, checkpoints=[(4, value, error)]), 3.0, 0.0)
    assert math.isfinite(found["seconds"]) == there


def test_a_nan_is_not_at_the_goal():
    assert (
        measures.reached(run(1, 1, 5, checkpoints=[(4, math.nan, math.inf)]), 3.0, 0.1)["seconds"] == math.inf
    )


def test_goal_not_reached_and_iterations_not_done(seed):
    short = Seed([run(1.0, 0.02, 50, checkpoints=[(2, 8.0, 0.01)])], seed.theirs)
    m = measures.compare(short)
    assert m["seconds_to_goal_ratio"] == 0
    assert m["later_ms_ratio"] is None
    assert table.times(m["seconds_to_goal_ratio"]) == "never"
    assert table.times(m["later_ms_ratio"]) == "?"


def test_an_estimate_below_what_is_possible_is_no_goal(seed):
    found = Seed([run(1.0, 0.02, 5000, checkpoints=[(2, 8.0, 0.01), (4, 3.05, 0.01)])], seed.theirs)
    assert measures.compare(found)["seconds_to_goal_ours"] == math.inf
    m = measures.compare(found._replace(least=3.05))
    assert m["seconds_to_goal_ours"] == 4
    assert m["neg_elbo_theirs"] == 3.0


def test_written_tables(seed, tmp_path):
    measured = table.measure({ROWS[0]: [seed, seed], ROWS[-1]: [seed]})
    table.write(measured, "A machine.", tmp_path)
    with (tmp_path / "bench_cpu.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["row"] for row in rows] == ["gmm20", "zamtrux-planar_robot_4"]
    assert float(rows[0]["later_ms_ratio"]) == pytest.approx(25)
    assert rows[0]["seeds"] == "2"
    text = (tmp_path / "bench_cpu.md").read_text()
    assert "500 / 20 **25x**" in text
    assert "100 / 5 **20x** (12x)" in text
    assert "A machine." in text
    assert "gmmvi had 100 s for a run, natmix 100." in text
    assert table.for_terminal(measured).row_count == 2


def test_rows_by_name():
    assert choose(None) == ROWS
    assert [row.codename for row in choose(["stm20", "sepyfux-stm20"])] == ["SAMTRON", "SEPYFUX"]
    with pytest.raises(SystemExit, match="Did you mean"):
        choose(["gmm-20"])


def test_the_same_problem_with_either_target_is_two_rows():
    shipped, own = choose(["wine", "wine-fast"])
    assert shipped[:2] == own[:2]
    assert distinct((shipped, own)) == (shipped,)
    assert len(distinct(ROWS)) == len(ROWS) - 1
    assert len({row.name for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(
    ("targets", "asked", "usable", "chosen"),
    [
        (("shipped", "own"), "shipped", ["own", "shipped"], ["shipped"]),
        (("shipped", "own"), "shipped", ["own"], ["own"]),
        (("shipped", "own"), "both", ["own", "shipped"], ["shipped", "own"]),
        (("shipped",), "own", ["own", "shipped"], ["shipped"]),
        (("own",), "shipped", ["own", "shipped"], ["own"]),
    ],
)
def test_targets_of_a_row(targets, asked, usable, chosen):
    assert chosen_targets(Row("stm20", "SAMTRON", targets), asked, usable) == chosen


def test_a_row_without_its_target_fails():
    with pytest.raises(WorkerError, match="no shipped target"):
        chosen_targets(Row("wine", "SAMTRON", ("shipped",)), "shipped", ["own"])


def test_runs_with_another_target_than_the_rows_do_not_count(tmp_path, seed):
    runs = {
        "ours-1": seed.ours[0],
        "theirs-shipped-default": seed.ours[0],
        "theirs-own-default": seed.ours[1],
    }
    for name in ("gmm20", "wine", "wine-fast"):
        (tmp_path / f"{name}-seed0").mkdir()
        for stem, found in runs.items():
            (tmp_path / f"{name}-seed0" / f"{stem}.json").write_text(json.dumps(found | {"judged": 1}))
    targets = {row.name: list(seeds[0].theirs) for row, seeds in load.rows(tmp_path).items()}
    assert targets == {
        "gmm20": ["shipped target", "fast target"],
        "wine": ["shipped target"],
        "wine-fast": ["fast target"],
    }
