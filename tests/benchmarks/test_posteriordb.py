"""The benchmark on posteriordb: what it reads, measures, and writes; and that it goes on where it was."""

import json
import sys
import zipfile
from typing import Any

import numpy as np
import pytest
from posteriordb import bench, database, nuts
from posteriordb.measures import errors
from posteriordb.row import Row, read
from posteriordb.table import markdown

RIGHT: dict[str, Any] = {
    "dim": 2,
    "evaluations": 1000,
    "cpu_seconds": 2.0,
    "wall_seconds": 1.5,
    "mean": 0.01,
    "sd_ratio": 1.01,
    "quantile": 0.02,
    "verdict": "trust",
    "commit": "abc",
    "date": "2026-01-01",
}


@pytest.fixture
def clone(tmp_path):
    """Posteriors a to d, of which c has no reference draws."""
    root = tmp_path / "clone" / "posterior_database"
    folders = ("posteriors", "models/stan", "data/data", "reference_posteriors/draws/draws")
    for folder in folders:
        (root / folder).mkdir(parents=True)
    chains = [{"mu": [1.0, 2.0], "A[2,1]": [3.0, 4.0]}, {"mu": [5.0, 6.0], "A[2,1]": [7.0, 8.0]}]
    for name in "dacb":
        entry = {
            "model_name": "m",
            "data_name": name,
            "reference_posterior_name": None if name == "c" else name,
        }
        (root / "posteriors" / f"{name}.json").write_text(json.dumps(entry))
        for folder, content in (("data/data", {"N": 3}), ("reference_posteriors/draws/draws", chains)):
            with zipfile.ZipFile(root / folder / f"{name}.json.zip", "w") as archive:
                archive.writestr(f"{name}.json", json.dumps(content))
    return tmp_path / "clone"


def test_programs_data_and_draws_are_read(clone):
    root = database.root(clone)
    assert root == database.root(root)
    assert database.with_reference(root) == ["a", "b", "d"]
    assert database.development(root) == ["a", "d"]
    found = database.posterior(root, "b")
    assert json.loads(found.data) == {"N": 3}
    names, draws = found.reference_draws()
    assert names == ("mu", "A[2,1]")
    np.testing.assert_array_equal(draws, [[1, 3], [2, 4], [5, 7], [6, 8]])
    own = {"mu": np.arange(3.0), "A": np.arange(12.0).reshape(3, 2, 2)}
    np.testing.assert_array_equal(database.columns(own, names), [[0, 2], [1, 6], [2, 10]])
    with pytest.raises(SystemExit, match="no reference draws"):
        database.posterior(root, "c")
    with pytest.raises(SystemExit, match="There is no posteriordb in"):
        database.root(clone.parent)


def test_errors_are_in_units_of_the_reference():
    reference = np.random.default_rng(0).normal([0, 10], [1, 4], (20_000, 2))
    found = errors(reference * [1, 0.8] + [0.3, 0], reference, logarithms=False)
    assert found.mean == pytest.approx(0.5, abs=0.02)  # 10 - 8 in units of 4
    assert found.sd_ratio == pytest.approx(0.8)
    assert found.quantile == pytest.approx(0.5 + 0.2 * 1.645, abs=0.03)
    assert not found.right
    assert errors(reference, reference, False) == (0, 1, 0)
    assert errors(np.exp(reference) * 1.2, np.exp(reference), True).mean == pytest.approx(
        np.log(1.2), rel=0.02
    )
    with pytest.raises(ValueError, match="must be positive"):
        errors(reference, reference, True)


def test_two_chains_run_at_a_time():
    assert nuts.makespan([3.0, 1.0, 1.0, 2.0]) == 4.0


def test_it_goes_on_where_it_was(clone, tmp_path, monkeypatch, capsys):
    measured = []

    def one(path, name, method, seed, limit, timeout):
        measured.append((name, method, seed, limit))
        numbers = RIGHT | ({"verdict": "failed: no"} if (name, seed) == ("a", 1) else {})
        numbers["evaluations"] = 1000 if method == "natmix" else 5000
        return Row(name, method, seed, limit, **numbers)

    monkeypatch.setattr(bench, "_measured", one)
    out = tmp_path / "results"
    command = ["posteriordb", str(clone), "--half", "development", "--seeds", "0", "1", "--write", str(out)]
    monkeypatch.setattr(sys, "argv", [*command, "--natmix-only"])
    assert bench.main() == 0
    assert measured == [(name, "natmix", seed, 0) for name in "ad" for seed in (0, 1)]
    measured.clear()
    monkeypatch.setattr(sys, "argv", command)
    bench.main()
    again = [("a", "natmix", 1, 0)]  # it had failed
    assert measured == [
        *again,
        *((n, "NUTS", s, 0) for n in "a" for s in (0, 1)),
        *(("d", "NUTS", s, 0) for s in (0, 1)),
    ]
    rows = read(out / "posteriordb.csv")
    assert len(rows) == 8
    text = (out / "posteriordb.md").read_text()
    assert "| d\\* | 2 | 1,000 (1,000) | 2.0 (2.0) | 1.5 (1.5) | 0.010 (0.010)" in text
    assert "failed: no" in text
    assert "fewer evaluations than NUTS' gradients on 2 of 2, median 1,000" in text


def test_worst_values_and_verdicts_are_shown():
    good = Row("a", "natmix", 0, 0, **RIGHT)
    bad = Row("a", "natmix", 1, 0, **(RIGHT | {"sd_ratio": 0.5, "evaluations": 3000, "verdict": "distrust"}))
    text = markdown([good, bad], ["a"], ["a"], "command", 2)
    assert "| 2,000 (3,000) |" in text
    assert "| 0.755 (0.500) |" in text
    assert "| trust, distrust |" in text
    assert "for all seeds on 0 of 1" in text
