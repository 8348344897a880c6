"""JSON files of runs: every reader takes them, and nothing is lost."""

import json
import math

import pytest

from natmix.experiments.runs.loading import EVALUATION_NUMBERS, read_evaluations, read_final, read_metrics
from natmix.files import to_json, write_json, write_lines


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
    look = dict.fromkeys(EVALUATION_NUMBERS, 1.0) | {"neg_elbo": math.nan, "neg_elbo_se": math.inf}
    write_lines(tmp_path / "metrics.jsonl", [look, look])
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        assert strictly(line)["neg_elbo"] is None
    assert math.isnan(read_evaluations(tmp_path / "metrics.jsonl")[1]["neg_elbo"])
    metrics = read_metrics(tmp_path / "metrics.jsonl")
    assert metrics["neg_elbo"].dtype == float
    assert metrics["neg_elbo_se"][0] == math.inf
    final = look | {"mmd": math.nan, "stopped": "max_seconds", "limits": {"until": None}, "device": "one"}
    write_json(tmp_path / "final.json", final)
    strictly((tmp_path / "final.json").read_text())
    back = read_final(tmp_path / "final.json")
    assert math.isnan(back["neg_elbo"])
    assert math.isnan(back["mmd"])
    assert back["limits"] == {"until": None}


def test_files_of_before_are_read_too(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"neg_elbo": NaN, "seconds": Infinity}\n')
    look = read_evaluations(tmp_path / "metrics.jsonl")[0]
    assert math.isnan(look["neg_elbo"])
    assert look["seconds"] == math.inf


def test_a_line_that_is_no_object_is_damage(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("[1, 2]\n")
    with pytest.raises(ValueError, match="damaged"):
        read_evaluations(tmp_path / "metrics.jsonl")
