"""``natmix report``, as a user types it."""

import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from html_page import Page
from quick_fits import LEAST
from run_command import assert_one_sentence, natmix

from natmix import Result, fit
from natmix.cli.report import _command
from natmix.experiments.runs import load_run
from natmix.experiments.runs.config import algorithm_from
from natmix.experiments.runs.seed_result import seed_result

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.fixture(scope="module")
def reported(finished, tmp_path_factory):
    out = tmp_path_factory.mktemp("report") / "run.html"
    outcome = natmix("report", finished[1], "--out", out, "--samples", 300)
    assert outcome.exit_code == 0, outcome.output
    assert str(out) in outcome.stdout.replace("\n", "")
    return load_run(finished[1]), Page(out.read_text(encoding="utf-8"))


def test_a_run_shows_its_best_seed(reported):
    run, page = reported
    best = min(run.seeds.values(), key=lambda seed: seed.final["neg_elbo"])
    assert f"gmm2, SAMTRON, seed {best.seed}" in page.words
    weights = page.data["corner"]["components"]["weights"]
    np.testing.assert_allclose(weights, np.sort(best.mixture.weights)[::-1], rtol=1e-5)
    assert page.data["trace"]["components"] == best.trace["components"].tolist()
    assert len(page.data["corner"]["mode"]) == 300


def test_a_run_shows_all_seeds(reported):
    run, page = reported
    for curve, (n, seed) in zip(page.data["curves"], run.seeds.items(), strict=True):
        assert curve["label"] == f"seed {n}"
        assert curve["evaluations"] == seed.metrics["evaluations"].tolist()
        np.testing.assert_allclose(curve["neg_elbo"], seed.metrics["neg_elbo"], rtol=1e-6)
    assert "detected_modes" in page.words
    assert "a run makes none" in page.sentences


def test_the_command_repeats_the_run(reported):
    run, page = reported
    command = _command(run)
    assert command in page.words
    words = command.replace("\\\n", "").split()
    assert words[:3] == ["natmix", "run", "gmm2"]
    assert "sample_selector.desired_samples=20" in words
    assert words[words.index("--max-iters") + 1] == "20"


def test_the_seed_s_result_is_judged_by_fresh_samples(reported):
    run, _ = reported
    result, missing = seed_result(run, run.seeds[1], 200)
    assert missing == ""
    assert len(result.draws) == 200 == result.counts.elbo_evaluations
    assert result.algorithm.settings() == algorithm_from(run.config).settings()
    final = run.seeds[1].final
    assert (
        result.counts.training_evaluations
        == final["evaluations"]
        == result.trajectory["total_evaluations"][-1]
    )
    assert abs(result.elbo.value + final["neg_elbo"]) < 6 * (
        result.elbo.standard_error + final["neg_elbo_se"]
    )


def test_a_problem_that_cannot_be_loaded(finished, tmp_path, monkeypatch):
    def load(*arguments, **options):
        raise ImportError("gmm2 needs something: pip install something.")

    monkeypatch.setattr("natmix.experiments.runs.seed_result.load", load)
    out = tmp_path / "run.html"
    assert natmix("report", finished[1], "--out", out).exit_code == 0
    page = Page(out.read_text(encoding="utf-8"))
    assert "gmm2 needs something: pip install something." in page.sentences
    assert page.data["importance"] is None


def test_files_and_folders(finished, tmp_path):
    result = fit(lambda x: -0.5 * jnp.sum(x**2), dim=2, **LEAST)
    result.save(tmp_path / "mine.natmix")
    assert natmix("report", tmp_path / "mine.natmix", "--title", "Mine & <yours>").exit_code == 0
    page = Page((tmp_path / "mine.html").read_text(encoding="utf-8"))
    assert "Mine & <yours>" in page.words
    assert page.data["trace"]["elbo"] == pytest.approx(
        Result.load(tmp_path / "mine.natmix").trajectory["elbo"]
    )
    (tmp_path / "kept").mkdir()
    result.save(tmp_path / "kept" / "result.safetensors")
    assert natmix("report", tmp_path / "kept").exit_code == 0
    assert (tmp_path / "kept" / "report.html").is_file()
    assert_one_sentence(natmix("report", tmp_path / "kept", "--seed", 1), "--seed chooses a seed of a run")
    (tmp_path / "empty").mkdir()
    assert_one_sentence(natmix("report", tmp_path / "empty"), "is no run directory and holds no result")
    (tmp_path / "note.txt").write_text("no result")
    assert_one_sentence(natmix("report", tmp_path / "note.txt"), "note.txt")
    assert_one_sentence(natmix("report", tmp_path / "missing"), "missing")


def test_seeds_that_are_not_there(copy):
    assert_one_sentence(natmix("report", copy, "--seed", 7), "has no seed 7, only 0, 1")
    (copy / "seed-1" / "final.json").unlink()
    assert_one_sentence(natmix("report", copy, "--seed", 1), "Seed 1 of")
    shutil.rmtree(copy / "seed-0")
    assert_one_sentence(natmix("report", copy), "No seed of")
