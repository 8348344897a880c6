"""Targets of the benchmarks with known truth: densities, samples and what is drawn from a seed."""

import csv

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case_table import merge_rows, read_rows, run_cases, seed_range, share_interval
from random_mixtures import (
    CLOSEST,
    FARTHEST,
    SMALLEST_WEIGHT,
    SUITES,
    KnownMixture,
    dimension,
    random_mixture,
)
from verdict_kinds import KINDS, draw_case
from verdict_scores import errors, outcome

from natmix import Mixture

jax.config.update("jax_enable_x64", True)


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("seed", [0, 3])
def test_random_mixtures_are_what_their_suite_says(name, seed):
    suite = SUITES[name]
    drawn = random_mixture(suite, seed)
    truth = drawn.truth
    assert truth.dim == dimension(suite, seed)
    assert suite.modes[0] <= len(truth.weights) <= suite.modes[1]
    assert truth.weights.sum() == pytest.approx(1)
    assert truth.weights.min() >= SMALLEST_WEIGHT
    widths = np.linalg.det(truth.factors) ** (1 / truth.dim)
    assert widths.max() / widths.min() <= suite.width_ratio * (1 + 1e-9)
    apart = np.linalg.norm(truth.means[:, None] - truth.means, axis=-1)
    relative = apart / np.maximum(widths[:, None], widths) + np.diag(np.full(len(widths), np.inf))
    assert CLOSEST <= relative.min() <= FARTHEST
    assert relative.min() == pytest.approx(drawn.distance)


@pytest.mark.parametrize("seed", [0, 2])
def test_the_density_for_the_fit_is_that_of_the_truth(seed):
    truth = random_mixture(SUITES["equal"], seed).truth
    x = truth.sample(np.random.default_rng(0), 50)
    np.testing.assert_allclose(jax.vmap(truth.density())(jnp.asarray(x)), truth.log_prob(x), atol=1e-9)
    assert np.mean(truth.mode_of(truth.means) == np.arange(len(truth.means))) == 1


def test_even_and_odd_seeds_have_the_same_dimensions():
    for suite in SUITES.values():
        even, odd = ([dimension(suite, s) for s in range(first, suite.seeds, 2)] for first in (0, 1))
        assert even == odd


@pytest.mark.parametrize("kind", KINDS)
def test_samples_of_a_kind_have_its_density(kind):
    """Importance sampling from the samples' own Gaussian blurs, whose density is known, gives Z = 1."""
    truth = draw_case(kind, 0).truth
    if not truth.proper:
        assert kind == "improper"
        return
    rng = np.random.default_rng(0)
    x = truth.sample(rng, 400)
    spread = np.diff(np.quantile(x, [0.16, 0.84], axis=0), axis=0)[0] / 2
    blur = Mixture.diagonal(np.ones(400), x, np.tile((0.4 * spread) ** 2, (400, 1)))
    y = np.asarray(blur.sample(20_000, key=1))
    weights = np.exp(truth.log_prob(y) - np.asarray(blur.log_prob(y)))
    assert weights.mean() == pytest.approx(1, abs=0.15)


def test_a_fit_is_judged_by_its_divergence_and_its_modes():
    truth = draw_case("narrow mode", 0).truth
    known = truth.density
    assert isinstance(known, KnownMixture)
    covariances = known.factors @ np.swapaxes(known.factors, 1, 2)
    exact = Mixture.full(known.weights, known.means, covariances)
    kl, reverse, missing = errors(truth, exact, 0)
    assert abs(kl) < 1e-9
    assert abs(reverse) < 1e-9
    assert outcome(truth, kl, missing, False) == "sound"
    assert outcome(truth, kl, missing, True) == "between"
    one = Mixture.full([1.0], known.means[:1], covariances[:1])
    kl, _, missing = errors(truth, one, 0)
    assert kl == pytest.approx(-np.log(known.weights[0]), abs=0.02)
    assert missing == 1
    assert outcome(truth, kl, missing, False) == "wrong"
    assert outcome(truth, 0.07, 0, False) == "between"
    assert outcome(truth, float("nan"), 0, False) == "wrong"


def square(case):
    if case["seed"] == 2:
        raise ValueError("two")
    return {"square": case["seed"] ** 2}


def test_rows_are_appended_and_not_computed_again(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    run_cases([{"seed": s} for s in (2, 3)], square, path, 1, False, True)
    run_cases([{"seed": s} for s in (2, 3, 4)], square, path, 1, False, True)
    assert "1 of 3 cases to run" in capsys.readouterr().out
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["seed"] for row in rows] == ["2", "3", "4"]
    assert [row.get("square") or "" for row in rows] == ["", "9", "16"]
    assert rows[0]["error"] == "ValueError: two"
    run_cases([{"seed": 3}], square, path, 1, True, True)
    assert len(read_rows(path, ["seed"])) == 3


def test_rows_of_another_file_replace_those_of_the_same_case(tmp_path):
    path, other = tmp_path / "rows.csv", tmp_path / "other.csv"
    path.write_text("seed,square,commit\n3,9,old\n4,16,old\n")
    other.write_text("seed,square,cores,commit\n4,16,2,new\n5,25,2,new\n")
    merge_rows(path, [other], ["seed"])
    rows = read_rows(path, ["seed"])
    assert [(row["seed"], row["cores"], row["commit"]) for row in rows.values()] == [
        ("3", "", "old"),
        ("4", "2", "new"),
        ("5", "2", "new"),
    ]
    with pytest.raises(SystemExit, match=r"no file .*none\.csv"):
        merge_rows(path, [tmp_path / "none.csv"], ["seed"])


def test_more_cores_than_there_are_is_an_error(tmp_path):
    with pytest.raises(SystemExit, match="processes of 1000 cores each are more than"):
        run_cases([{"seed": 3}], square, tmp_path / "rows.csv", 2, False, True, cores=1000)


def test_seeds_and_intervals():
    assert seed_range("0:3,7") == [0, 1, 2, 7]
    assert seed_range("0:6:2") == [0, 2, 4]
    assert share_interval(0, 100) == pytest.approx((0, 0.0362), abs=1e-4)
    assert share_interval(5, 5)[1] == 1
