"""JSON files of runs: every reader takes them, and nothing is lost."""

import json
import math

import pytest
from run_files import EVALUATION, LIMITS, write_evaluations, write_final

from natmix.experiments.runs.rows import as_arrays, read_evaluations, read_final
from natmix.files.json_text import to_json


def strictly(text):
    """As the standard has it, which knows neither NaN nor Infinity."""

    def refuse(constant):
        raise ValueError(f"{constant} is no JSON.")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1.5, -0.0, 1e-300, "NaN", None, True, 3])
def test_values_come_back(value):
    back = strictly(to_json({"a": [value, {"b": (value,)}]}))
    assert back == {"a": [value, {"b": [value]}]}


def test_nan_is_null():
    assert strictly(to_json({"a": math.nan, "b": [math.nan]})) == {"a": None, "b": [None]}


def test_evaluations_and_final_numbers_are_read_as_they_were(tmp_path):
    numbers = {"neg_elbo": math.nan, "neg_elbo_se": math.inf}
    digest = write_evaluations(tmp_path / "metrics.jsonl", [numbers, numbers])
    *lines, seal = (tmp_path / "metrics.jsonl").read_text().splitlines()
    for line in lines:
        assert strictly(line)["neg_elbo"] is None
    assert strictly(seal)["file"]["rows"] == len(lines) == 2
    rows = read_evaluations(tmp_path / "metrics.jsonl", digest)
    assert math.isnan(rows[1]["neg_elbo"])
    metrics = as_arrays(rows)
    assert metrics["neg_elbo"].dtype == float
    assert metrics["neg_elbo_se"][0] == math.inf
    write_final(tmp_path / "final.json", {}, 3, {}, mmd=math.nan, **numbers)
    strictly((tmp_path / "final.json").read_text())
    back = read_final(tmp_path / "final.json", 3)
    assert math.isnan(back["neg_elbo"])
    assert math.isnan(back["mmd"])
    assert back["limits"] == LIMITS


def test_files_of_an_earlier_natmix_are_refused(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"neg_elbo": 1.0, "seconds": 2.0}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl is damaged or .* earlier natmix"):
        read_evaluations(tmp_path / "metrics.jsonl")


def test_a_line_that_is_no_object_is_damage(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("[1, 2]\n")
    with pytest.raises(ValueError, match="damaged"):
        read_evaluations(tmp_path / "metrics.jsonl")


def test_the_evaluations_of_another_seed_are_damage(tmp_path):
    write_evaluations(tmp_path / "a.jsonl", [EVALUATION])
    other = write_evaluations(tmp_path / "b.jsonl", [{"neg_elbo": 2.0}])
    with pytest.raises(ValueError, match=r"a\.jsonl is damaged: the seed's final numbers belong to another"):
        read_evaluations(tmp_path / "a.jsonl", other)
    write_final(tmp_path / "final.json", {}, 3, {})
    with pytest.raises(ValueError, match=r"final\.json is damaged: it belongs to seed 3, not to seed 4"):
        read_final(tmp_path / "final.json", 4)
