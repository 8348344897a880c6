"""The tables of measured numbers are what the recorded files say."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from case_table import read_rows
from many_modes import table as many_modes_table
from verdict_scores import table as verdict_table

from natmix.experiments.problems import PAPER

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"


def records(name: str) -> list[dict[str, str]]:
    with (RESULTS / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def words(*path: str) -> str:
    return re.sub(r"\s+", " ", ROOT.joinpath(*path).read_text(encoding="utf-8"))


def lines(*path: str) -> list[str]:
    return ROOT.joinpath(*path).read_text(encoding="utf-8").splitlines()


def short(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def span(values: list[float], digits: int) -> str:
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


@pytest.mark.parametrize("row", records("bench_cpu.csv"), ids=lambda row: row["row"])
def test_rows_beside_gmmvi(row):
    start, later, total, first, memory = (
        short(float(row[f"{name}_ratio"]))
        for name in ("start_ms", "later_ms", "seconds_to_goal", "first_at_goal", "peak_mib")
    )
    line = f"| {row['row']} | {start} | {later} | {total} ({first}) | {memory} |"
    assert line in lines("results", "README.md")


def test_evaluations_and_compilation_beside_gmmvi():
    rows = records("bench_cpu.csv")
    more = sorted(1 / float(row["evaluations_to_goal_ratio"]) for row in rows)
    equal, larger = more[:7], more[7:]
    text = words("docs", "speed.md")
    assert f"({span(equal, 1)} times on seven rows; natmix needs {span(larger, 1)} times as many" in text
    low, high = (short(f([float(row["compile_s_ours"]) for row in rows])) for f in (min, max))
    assert (low, high) == ("1.0", "6.4")
    assert "Compilation takes 1 to 6.4 seconds" in text


@pytest.mark.parametrize("row", records("cpu_limit.csv"), ids=lambda row: row["row"])
def test_the_limit_of_the_cpu(row):
    names = ("target_ms", "products_ms", "exp_ms", "limit_ms", "iteration_ms", "reference_ms")
    size = f"{row['components']}, {row['dimensions']}, {int(row['samples']):,}"
    numbers = " | ".join(row[name] for name in (*names, "reference_over_limit"))
    assert f"| {row['row']} | {size} | {numbers} |" in lines("results", "README.md")


def test_the_shares_of_the_cpus_limit():
    shares = [round(100 * float(row["share"])) for row in records("cpu_limit.csv")]
    assert f"natmix runs at {min(shares)} to {max(shares)}% of the speed of this limit" in words(
        "results", "README.md"
    )


def test_iterations_on_a_gpu():
    text = (RESULTS / "bench_gpu.txt").read_text(encoding="utf-8")
    table = lines("results", "README.md")
    header = next(
        line for line in table if line.startswith("| components, dimensions, samples | 16, 20, 300")
    )
    measured = next(line for line in table if line.startswith("| natmix | 0."))
    sizes = [re.sub(r", ", ":", cell.strip()) for cell in header.split("|")[2:-1]]
    for size, cell in zip(sizes, measured.split("|")[2:-1], strict=True):
        runs = [float(ms) for ms in re.findall(rf"^ +{size} .*?s +([\d.]+) ms", text, re.MULTILINE)]
        assert len(runs) == 4
        digits = 2 if max(runs) < 2 else 1
        assert cell.strip() == span(runs, digits)
    together = re.findall(r"^ +16:20:300 10 seeds together ([\d.]+) ms", text, re.MULTILINE)
    assert set(together) == {"0.13"}


def exponent(axis: str) -> float:
    """The slope through the upper half of the points, in logarithms."""
    points = [
        (float(r["size"]), float(r["milliseconds"])) for r in records("growth.csv") if r["axis"] == axis
    ]
    x, y = np.log(points[len(points) // 2 :]).T
    return float(np.polyfit(x, y, 1)[0])


def test_growth():
    text = words("results", "README.md")
    for axis, name in (("components", "components"), ("dimensions", "dimensions"), ("samples", "samples")):
        assert f"{name}^{exponent(axis):.2f}" in text
    assert f"diagonal dimensions^{exponent('diagonal'):.2f}" in text
    stored = [float(r["milliseconds"]) for r in records("growth.csv") if r["axis"] == "stored"]
    assert f"(1,000 to 4 million: {span(stored, 1)} ms)" in text


def test_reused_samples():
    found = {(r["problem"], r["components"], r["variant"]): r for r in records("reuse.csv")}
    pairs = [(found[*key[:2], "none"], row) for key, row in found.items() if key[2] == "reuse"]
    fewer, total = (
        [float(none[name]) / float(reuse[name]) for none, reuse in pairs]
        for name in ("evaluations_per_iteration", "evaluations")
    )
    text = words("results", "README.md")
    per_iteration, whole = (f"{short(min(v))} to {short(max(v))} times fewer" for v in (fewer, total))
    assert f"{per_iteration} evaluations per iteration, {whole} over 300 iterations" in text
    worse = {reuse["problem"]: float(reuse["neg_elbo"]) - float(none["neg_elbo"]) for none, reuse in pairs}
    assert f"{worse.pop('breast_cancer'):.2f} higher" in text
    assert max(abs(v) for v in worse.values()) < 0.0105  # "within 0.01"


def test_start_up():
    recorded = (RESULTS / "start_up.txt").read_text(encoding="utf-8").split("\n\n")[0]
    assert set(re.findall(r"natmix ([\d.]+) s", recorded)) == {"0.25"}
    cold = float(re.search(r"first, cold +([\d.]+) s", recorded)[1])
    cached = max(float(s) for s in re.findall(r"first, cached +([\d.]+) s", recorded))
    assert "| 0.25 s beyond jax |" in words("results", "README.md")
    assert f"{cold:.1f} s after the start of Python, {cached:.1f} s if compiled before" in words(
        "results", "README.md"
    )
    assert f"{cold:.1f} s after the start of Python, {cached:.1f} s if it was compiled before" in words(
        "docs", "speed.md"
    )


def test_seeds_together_and_several_devices():
    together = (RESULTS / "together_cpu.txt").read_text(encoding="utf-8")
    ratios = [float(r) for r in re.findall(r" ([\d.]+) +(?:apart|together) ", together)]
    text = words("results", "README.md")
    assert f"on 2 cores {span(ratios, 2)} times the time" in text
    sharding = (RESULTS / "sharding.txt").read_text(encoding="utf-8")
    state = {n: float(mb) for n, mb in re.findall(r"^ +(\d) +\S+ +\S+ +\S+ +(\S+)", sharding, re.MULTILINE)}
    assert f"{state['8']:.1f} MB of state per device instead of {state['1']:.0f}" in text


def test_scores_of_verdicts():
    rows = list(read_rows(RESULTS / "verdict_scores.csv", ("kind", "seed")).values())
    recorded = lines("results", "verdict_scores.md")
    for line in verdict_table(rows).splitlines():
        if line.startswith("| ") and "---" not in line:
            assert line in recorded


def test_many_modes():
    rows = list(read_rows(RESULTS / "many_modes.csv", ("suite", "seed")).values())
    recorded = lines("results", "many_modes.md")
    for line in many_modes_table(rows).splitlines():
        if line.startswith("| ") and "---" not in line:
            assert line in recorded


def test_samtron_is_never_above_the_paper():
    rows = [row for row in records("table3.csv") if row["algorithm"] == "SAMTRON"]
    assert [row["problem"] for row in rows] == list(PAPER)
    seeds = {row["problem"]: int(row["seeds"]) for row in rows}
    assert seeds.pop("planar_robot_4") == 10
    assert set(seeds.values()) == {5}
    assert all(round(float(row["neg_elbo_mean"]), 2) <= float(row["paper_mean"]) for row in rows)


def test_every_recorded_file_is_listed():
    index = words("results", "README.md")
    for path in sorted(RESULTS.iterdir()):
        if path.suffix in (".csv", ".txt", ".md") and path.name != "README.md":
            assert path.name in index, path.name
