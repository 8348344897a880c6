"""The report of a fit: its numbers are the result's, names are text, and it loads nothing."""

import base64
import dataclasses
import hashlib
import re

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from html_page import Page
from quick_fits import LEAST

import natmix
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.evidence import gather_evidence
from natmix.report import report_html
from natmix.report.page import json_for_html

HOSTILE = "</script><script>alert(1)</script>"
QUOTED = "\"'><img src=x onerror=alert(1)>&amp;"
FOREIGN = "σ²‮‏日本\u2028${title}$$"
LONG = "very_" * 60
NAMES = (HOSTILE, QUOTED, FOREIGN, LONG)
ALLOWED = {
    *("html", "head", "meta", "link", "title", "style", "body", "main", "header", "nav", "section", "script"),
    *(
        "a",
        "h1",
        "h2",
        "h3",
        "p",
        "div",
        "span",
        "bdi",
        "dl",
        "dt",
        "dd",
        "ul",
        "li",
        "pre",
        "code",
        "noscript",
    ),
    *("table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary", "svg", "rect", "canvas"),
    *("label", "input", "button", "select", "option"),
}


def hostile_model(y=None):
    mean = numpyro.sample(HOSTILE, dist.Normal(0.0, 1.0))
    share = numpyro.sample(QUOTED, dist.Uniform(3.0, 9.0))
    scale = numpyro.sample(FOREIGN, dist.HalfNormal(2.0))
    numpyro.sample(LONG, dist.Dirichlet(jnp.ones(3)))
    numpyro.deterministic("sum <b>", mean + share)
    numpyro.sample("y", dist.Normal(mean, scale), obs=y)


@pytest.fixture(scope="module")
def hostile(quick_compilation):
    return natmix.fit(hostile_model, model_kwargs={"y": 0.3}, **LEAST)


@pytest.fixture(scope="module")
def page(hostile):
    return Page(report_html(hostile, title=f"{HOSTILE}{QUOTED}"))


@pytest.fixture(scope="module")
def plain(quick_compilation):
    def log_density(x):
        return jnp.logaddexp(-0.5 * jnp.sum((x - 3) ** 2), -0.5 * jnp.sum((x + 3) ** 2) / 0.3)

    return natmix.fit(log_density, dim=2, init_components=6, init_scale=3.0, **LEAST)


def values_of(page, name):
    (k,) = (k for k, v in enumerate(page.data["corner"]["variables"]) if v["name"] == name)
    return np.array(page.data["corner"]["values"][k], float)


# What it holds --------------------------------------------------------------------------------------


def test_the_draws_are_the_result_s_in_the_model_s_own_variables(hostile, page):
    own = hostile.model.constrain(jnp.asarray(hostile.draws.x))
    for name in (HOSTILE, QUOTED, FOREIGN, "sum <b>"):
        np.testing.assert_allclose(values_of(page, name), own[name], rtol=1e-4)
    for k in range(3):
        np.testing.assert_allclose(values_of(page, f"{LONG}[{k}]"), own[LONG][:, k], rtol=1e-4)
    evidence = gather_evidence(hostile.draws)
    np.testing.assert_allclose(page.data["corner"]["weights"], evidence.weights, rtol=1e-4)


def test_densities_are_those_of_the_marginals(hostile, page):
    for variable in page.data["corner"]["variables"]:
        if variable["density"] is None:
            assert variable["name"].startswith((LONG, "sum"))
            continue
        low, high = variable["range"]
        n = len(variable["density"])
        x = low + (np.arange(n) + 0.5) / n * (high - low)
        expected = hostile.marginal(variable["name"]).pdf(x)
        np.testing.assert_allclose(variable["density"], expected, rtol=2e-3, atol=1e-6)


def test_components_and_their_maps_lead_to_the_variables(hostile, page):
    corner = page.data["corner"]
    found, mixture = corner["components"], hostile.mixture
    order = np.argsort(-np.asarray(mixture.weights), kind="stable")
    used = found["coordinates"]
    np.testing.assert_allclose(found["weights"], np.asarray(mixture.weights)[order], rtol=1e-5)
    np.testing.assert_allclose(
        found["means"], np.asarray(mixture.means)[order][:, used], rtol=1e-5, atol=1e-9
    )
    covariances = np.asarray(mixture.covariances)[order][:, used][:, :, used]
    lower = np.tril_indices(len(used))
    np.testing.assert_allclose(found["covariances"], covariances[:, *lower], rtol=1e-4, atol=1e-7)
    period = next(v for v in corner["variables"] if v["name"] == QUOTED)["map"]
    assert period["kind"] == "logistic"
    assert (period["offset"], period["scale"]) == (3.0, 6.0)
    z = hostile.draws.x[:, period["coordinate"]]
    np.testing.assert_allclose(3 + 6 / (1 + np.exp(-z)), values_of(page, QUOTED), rtol=1e-4)


def test_the_trace_is_the_trajectory(hostile, page):
    trace, trajectory = page.data["trace"], hostile.trajectory
    np.testing.assert_allclose(trace["elbo"], trajectory["elbo"], rtol=1e-6)
    assert trace["evaluations"] == trajectory["total_evaluations"].tolist()
    assert trace["components"] == trajectory["components"].tolist()
    assert trace["iterations"] == [1, 2, 3]


def test_the_weights_are_counted(plain):
    found = Page(report_html(plain)).data["importance"]
    evidence = gather_evidence(plain.draws)
    log_w = plain.draws.log_ratio - evidence.log_evidence.value
    edges = np.array(found["edges"])
    inside = (log_w >= edges[0] - 1e-6) & (log_w <= edges[-1] + 1e-6)
    assert sum(found["counts"]) == len(log_w) == found["samples"]
    assert found["counts"][-1] >= 1
    assert inside.sum() + found["counts"][0] >= len(log_w)
    np.testing.assert_allclose(
        found["tail"], np.sort(log_w)[::-1][: len(found["tail"])], rtol=1e-5, atol=1e-6
    )


def test_words_are_those_of_the_verdict(hostile, page):
    diagnosis = hostile.diagnosis
    first, *_ = str(diagnosis).splitlines()
    sentences = page.sentences
    assert first in sentences
    assert sentences.index(first) < sentences.index("Choose variables")
    for reason in diagnosis.reasons:
        assert reason in sentences
    assert f"k-hat is {diagnosis.k_hat:.2f}" in sentences
    assert str(hostile.elbo) in sentences
    assert f"{hostile.counts.evaluations:,}" in sentences


def test_modes_have_shares_and_their_draws(plain):
    page = Page(report_html(plain))
    diagnosis = plain.diagnosis
    for mode in diagnosis.modes:
        assert f"{mode.share:.2%}" in page.words
        assert mode.corrected.percent() in page.words
    marked = np.bincount(page.data["corner"]["mode"], minlength=len(diagnosis.modes)) / len(plain.draws)
    np.testing.assert_allclose(marked, [m.share for m in diagnosis.modes], atol=0.05)
    assert [int(k) for k in page.attribute("data-mode")] == list(range(len(diagnosis.modes)))


def test_a_report_evaluates_nothing(quick_compilation):
    calls = []

    def log_density(x):
        calls.append(len(x))
        return -0.5 * np.sum(x**2, axis=1)

    target = natmix.HostTarget(log_density, 2, batched=True)
    result = natmix.fit(target, verify=False, elbo_samples=200, **{**LEAST, "algorithm": "zemydux"})
    before = len(calls)
    page = Page(report_html(result))
    assert len(calls) == before
    assert "A search for missed modes: a report evaluates nothing." in page.sentences


# What is missing ------------------------------------------------------------------------------------


def test_a_loaded_result_has_the_same_report(hostile, page, tmp_path):
    hostile.save(tmp_path / "fit.natmix")
    loaded = Page(report_html(natmix.Result.load(tmp_path / "fit.natmix"), title="loaded"))
    ours, theirs = page.data["corner"], loaded.data["corner"]
    assert [v["name"] for v in theirs["variables"]] == [v["name"] for v in ours["variables"]]
    for one, other in zip(theirs["variables"], ours["variables"], strict=True):
        assert (one["map"] is None) == (other["map"] is None)
        if one["density"] is not None:
            np.testing.assert_allclose(one["density"], other["density"], rtol=2e-2, atol=1e-4)
    np.testing.assert_allclose(theirs["values"], ours["values"], rtol=1e-4)
    assert loaded.data["trace"] == page.data["trace"]


def test_without_draws_it_says_what_is_missing(hostile, tmp_path):
    bare = dataclasses.replace(hostile, draws=None, target=None, trajectory={}, verification=None)
    page = Page(report_html(bare))
    sentences = page.sentences
    assert "There is no verdict: the result has no samples with the target's density." in sentences
    assert "Not in this report" in sentences
    assert "This result has no iterations to show." in sentences
    assert page.data["corner"]["weights"] is None
    assert page.data["trace"] is None
    assert page.data["importance"] is None
    assert len(page.data["corner"]["values"][0]) == 2000


def test_densities_of_zero_and_nan_are_left_out(plain):
    log_target = plain.draws.log_target.copy()
    log_target[:50], log_target[50:80], log_target[80:90] = -np.inf, np.nan, np.inf
    draws = dataclasses.replace(plain.draws, log_target=log_target)
    result = dataclasses.replace(plain, draws=draws, verification=None, target=None)
    page = Page(report_html(result))
    kept = log_target < np.inf
    np.testing.assert_allclose(values_of(page, "x[0]"), plain.draws.x[kept, 0], rtol=1e-4)
    assert page.data["importance"]["samples"] == kept.sum()
    assert sum(page.data["importance"]["counts"]) == np.isfinite(log_target).sum()


def test_no_density_anywhere(plain):
    draws = dataclasses.replace(plain.draws, log_target=np.full(len(plain.draws), -np.inf))
    page = Page(report_html(dataclasses.replace(plain, draws=draws, verification=None, target=None)))
    assert page.data["corner"]["weights"] is None
    assert "There are no importance weights" in page.sentences


# Safety ---------------------------------------------------------------------------------------------


def test_names_are_text(hostile, page):
    assert page.tags() <= ALLOWED
    assert not page.attribute("onerror")
    assert not page.attribute("style")
    assert len(page.raw) == 3, "style, data and script"
    for name in (HOSTILE, QUOTED, "sum <b>"):
        assert name in page.words
    assert FOREIGN.replace("\u2028", "") in page.words.replace("\u2028", "")
    assert LONG in page.words
    assert [v["name"] for v in page.data["corner"]["variables"]][:3] == [HOSTILE, QUOTED, FOREIGN]


def test_nothing_is_loaded(hostile, page):
    text = report_html(hostile)
    assert page.attribute("src") == []
    assert all(link.startswith(("#", "data:,")) for link in page.attribute("href"))
    for _, raw in page.raw:
        assert not re.search(r"https?:|//[a-z]|url\(|@import|import\(|fetch\(|XMLHttpRequest|eval\(", raw)
    assert "http" not in re.sub('http-equiv="Content-Security-Policy"', "", text).replace(HOSTILE, "")


def test_the_policy_allows_this_style_and_script_and_nothing_else(page):
    policy = page.policy
    assert policy["default-src"] == "'none'"
    assert policy["img-src"] == "data:"
    style, _, script = (text for _, text in page.raw)
    for name, text in (("style-src", style), ("script-src", script)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert policy[name] == f"'sha256-{digest}'"


@pytest.mark.parametrize("text", [*NAMES, "<!--", "\u2029", "]]>"])
def test_json_cannot_leave_its_script(text):
    written = json_for_html({text: [text, float("inf"), float("nan")]})
    assert not set("<>&\u2028\u2029") & set(written)
    page = Page(f'<script id="data">{written}</script>')
    assert page.data == {text: [text, float("inf"), None]}


# Files ----------------------------------------------------------------------------------------------


def test_the_file(plain, tmp_path):
    path = tmp_path / "fit.html"
    path.write_text("old")
    assert plain.report(path, title="A <title>") == path
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "<title>A &lt;title&gt;</title>" in text
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "words"),
    [("", "is a folder; name a file in it"), ("missing/fit.html", "There is no folder"), (3, "path must be")],
)
def test_a_bad_path_is_one_sentence(plain, tmp_path, name, words):
    path = name if isinstance(name, int) else tmp_path / name
    with pytest.raises(ValueError, match=words):
        plain.report(path)


def test_thirty_variables_take_less_than_5_mb(plain):
    """Sixty components in thirty dimensions, and 5,000 draws."""
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(60, 30, 30)) / 5
    mixture = natmix.Mixture.full(
        rng.dirichlet(np.ones(60)), rng.normal(size=(60, 30)), roots @ roots.transpose(0, 2, 1) + np.eye(30)
    )
    x = np.asarray(mixture.sample(5_000, key=0), float)
    log_q = np.asarray(mixture.log_prob(x), float)
    draws = EvaluatedDraws(x, log_q + 0.1 * rng.normal(size=5_000), log_q)
    trajectory = {
        "elbo": rng.normal(size=50_000),
        "components": np.full(50_000, 60),
        "seconds": np.arange(5e4),
    }
    result = dataclasses.replace(
        plain, mixture=mixture, draws=draws, trajectory=trajectory, target=None, verification=None
    )
    text = report_html(result)
    assert 200_000 < len(text.encode()) < 5_000_000
    assert len(Page(text).data["trace"]["elbo"]) == 1000
