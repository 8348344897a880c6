"""`fit` from end to end: reproducible, complete in what it reports, and compiled once."""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natmix
from natmix import GMMVI, Info, Mixture
from natmix.engine.convergence import BestMixture
from natmix.mixture.negligible import NEGLIGIBLE_WEIGHT, without_negligible

pytestmark = pytest.mark.usefixtures("quick_compilation")


TRUE = Mixture.full(
    [0.3, 0.7],
    np.array([[-2.0, 0.0], [2.0, 1.0]]),
    np.array([[[0.5, 0.2], [0.2, 0.4]], [[0.3, 0.0], [0.0, 0.8]]]),
)
OPTIONS: dict[str, Any] = {
    "sample_selector": {"desired_samples": 50},
    "component_adaptation": {
        "max_components": 8,
        "add_iters": 15,
        "del_iters": 15,
        "prior_candidates": 50,
        "database_size": 5000,
        "database_candidates": 2000,
    },
    "init_scale": 3.0,
    "elbo_samples": 3000,
}


def target(x):
    return TRUE.log_prob(x) + 2.5


def same(a, b):
    return all(np.array_equal(p, q) for p, q in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.fixture(scope="module")
def result():
    return natmix.fit(target, dim=2, seed=3, max_iterations=300, accuracy=None, **OPTIONS)


def test_it_fits(result):
    """The ELBO of a normalised density reaches log Z, here 2.5, and never exceeds it."""
    assert result.algorithm.codename == "SAMTRON"
    assert result.elbo.value == pytest.approx(2.5, abs=0.05)
    assert result.elbo.value - 5 * result.elbo.standard_error <= 2.5 + 1e-9
    np.testing.assert_allclose(result.mixture.mean(), TRUE.mean(), atol=0.2)
    np.testing.assert_allclose(result.mixture.covariance(), TRUE.covariance(), atol=0.4)
    assert result.elbo.samples == 3000
    assert result.elbo.zero_share == result.elbo.invalid_share == 0
    assert float(result.elbo) == result.elbo.value


def test_the_elbo_agrees_with_the_trajectory(result):
    last = result.trajectory["elbo"][-20:]
    noise = np.hypot(result.elbo.standard_error, last.std() / np.sqrt(20))
    assert abs(last.mean() - result.elbo.value) < 5 * noise + 0.01


def test_the_trajectory_is_complete(result):
    n = result.counts.iterations
    names: dict[str, Any] = set(Info.__dataclass_fields__) | {"seconds", "total_evaluations", "objective"}  # type: ignore[assignment]
    assert set(result.trajectory) == names
    for name in names:
        assert result.trajectory[name].shape == (n,), name
        assert name == "candidate_gain" or np.isfinite(result.trajectory[name]).all(), name
    assert np.all(np.diff(result.trajectory["seconds"]) > 0)
    assert np.all(np.diff(result.trajectory["total_evaluations"]) > 0)
    c = result.counts
    assert result.trajectory["total_evaluations"][-1] == c.first_evaluations + c.training_evaluations
    assert 0 < result.timings.start < result.timings.total
    births = result.trajectory["added"].astype(int) - result.trajectory["deleted"]
    np.testing.assert_array_equal(result.trajectory["components"], 1 + np.cumsum(births))
    np.testing.assert_array_equal(result.trajectory["objective"], result.trajectory["elbo"])


def test_counts_and_timings_add_up(result):
    c, t = result.counts, result.timings
    assert c.evaluations == c.training_evaluations + 3000 + c.verification_evaluations
    assert c.added - c.deleted + 1 == result.trajectory["components"][-1]
    assert result.trajectory["components"][-1] == result.mixture.num_components + c.left_out
    assert 0 < t.iterations < t.total
    assert t.compilation + t.iterations + t.elbo + t.verification <= t.total
    assert result.trajectory["seconds"][-1] <= t.total


def test_settings_are_complete_and_plain(result):
    s: dict[str, Any] = json.loads(json.dumps(result.settings))
    assert s["seed"] == 3
    assert s["dim"] == 2
    assert s["init_mean"] == 0.0
    assert s["init_scale"] == 3.0
    assert s["max_iterations"] == 300
    assert s["dtype"] == "float64"
    assert s["algorithm"]["codename"] == "SAMTRON"
    assert s["algorithm"]["sample_selector"]["desired_samples"] == 50
    # They are enough to run it again.
    modules: dict[str, Any] = {
        m: {k: v for k, v in s["algorithm"][m].items() if k != "option"} for m in natmix.MODULES
    }
    names = (
        "seed",
        "dim",
        "init_mean",
        "init_scale",
        "init_components",
        "covariance",
        "dtype",
        "max_iterations",
    )
    limits = ("max_evaluations", "max_seconds", "tolerance", "accuracy", "elbo_samples")
    again = natmix.fit(target, algorithm="samtron", **{k: s[k] for k in (*names, *limits)}, **modules)
    assert same(again.mixture, result.mixture)


def test_the_summary_says_what_matters(result):
    text = result.summary()
    for words in (
        "SAMTRON",
        "ELBO",
        "evaluations",
        "to initialise",
        "compiling",
        "iterations",
        "left out",
        "weight",
        "limit",
    ):
        assert words in text, words
    assert str(result.counts.evaluations // 1000) in text
    assert "nan" not in text.lower()
    assert "SAMTRON" not in repr(result)
    assert "max_iterations" in repr(result)


# Traces -----------------------------------------------------------------------------------------


@pytest.fixture
def traces(monkeypatch):
    """Capacities with which the step is traced from here on."""
    seen = []
    tell = GMMVI.tell

    def counting(self, state, query, evaluation):
        seen.append(state.mixture.num_components)
        return tell(self, state, query, evaluation)

    monkeypatch.setattr(GMMVI, "tell", counting)
    return seen


def test_another_fit_compiles_nothing(result, traces):
    """Neither seed, learning rates, limits, nor the start make a new program."""
    other = natmix.fit(
        target,
        dim=2,
        seed=4,
        init_mean=0.5,
        max_iterations=37,
        max_evaluations=10**6,
        accuracy=0.01,
        max_seconds=60,
        component_stepsize={"stepsize": 0.05, "max_stepsize": 0.5},
        weight_stepsize={"stepsize": 0.3},
        temperature=1.1,
        **OPTIONS,
    )
    assert traces == []
    assert other.counts.iterations == 37
    assert other.timings.compilation < 1
    assert not same(other.mixture.means[:1], result.mixture.means[:1])
    again = natmix.fit(target, dim=2, seed=3, max_iterations=300, accuracy=None, **OPTIONS)
    assert traces == []
    assert same(again.mixture, result.mixture)
    np.testing.assert_array_equal(again.trajectory["elbo"], result.trajectory["elbo"])
    assert again.elbo == result.elbo


@pytest.mark.slow
def test_growth_compiles_with_the_logarithm(traces):
    options: dict[str, Any] = {
        **OPTIONS,
        "sample_selector": {"desired_samples": 10},
        "component_adaptation": {
            **OPTIONS["component_adaptation"],
            "add_iters": 1,
            "del_iters": 100,
            "max_components": 80,
        },
    }
    grown = natmix.fit(target, dim=2, max_iterations=110, **options)
    assert grown.trajectory["components"].max() == 80
    capacities = sorted(set(traces))
    assert capacities == [32, 64, 80]
    assert len(traces) <= 2 * len(capacities)
    traces.clear()
    natmix.fit(target, dim=2, seed=1, max_iterations=110, **options)
    assert traces == []


# Ways to start ----------------------------------------------------------------------------------


def test_arguments_that_give_the_same_start(result):
    options: dict[str, Any] = {k: v for k, v in OPTIONS.items() if k != "init_scale"}
    half = 3 * np.sqrt(3)
    ways = [
        {"init_scale": 3.0},
        {"init_scale": [3.0, 3.0]},
        {"init_covariance": 9.0},
        {"init_covariance": 9 * np.eye(2), "init_mean": [0, 0]},
        {"box": (-half, [half, half])},
        {"init_mixture": Mixture.full([1.0], np.zeros((1, 2)), 9 * np.eye(2)[None])},
    ]
    fits = [natmix.fit(target, dim=2, max_iterations=20, **way, **options) for way in ways]  # type: ignore[arg-type]
    for other in fits[1:]:
        np.testing.assert_allclose(other.mixture.means, fits[0].mixture.means, rtol=1e-6, atol=1e-8)


def test_a_mixture_to_start_from_survives_and_pays(result):
    start = result.mixture
    before = jax.tree.map(np.array, start)
    again = natmix.fit(target, init_mixture=start, max_iterations=2, **OPTIONS)
    assert again.trajectory["elbo"][0] > 2.0
    assert again.settings["init_mixture"] is True
    assert same(start, before)  # nobody took its memory
    assert again.settings["dim"] == 2


def test_many_components_to_start_with(result):
    many = natmix.fit(target, dim=2, init_components=6, max_iterations=2, **OPTIONS)
    assert many.trajectory["components"][0] == 6
    assert many.mixture.num_components + many.counts.left_out == 6
    assert len(np.unique(np.asarray(many.mixture.means)[:, 0])) == many.mixture.num_components > 1


def test_float32_diagonal():
    narrow = natmix.fit(
        target,
        dim=2,
        dtype="float32",
        covariance="diagonal",
        max_iterations=120,
        algorithm="samtron",
        **OPTIONS,
    )
    assert narrow.mixture.dtype == np.float32
    assert narrow.mixture.covariance_family == "diagonal"
    assert narrow.elbo.value == pytest.approx(2.5, abs=0.4)
    assert narrow.settings["dtype"] == "float32"
    assert jax.config.read("jax_enable_x64")


# Ways to end ------------------------------------------------------------------------------------


def gaussian(x):
    return -0.5 * jnp.sum(x**2)


def test_converges_on_a_gaussian():
    """One component is enough: it stops by itself, with the right answer."""
    start: dict[str, Any] = {"dim": 2, "algorithm": "SEMTRON", "init_mean": 2.0}
    done = natmix.fit(gaussian, max_iterations=5000, **start)
    assert done.stopped == "converged"
    assert done.converged
    assert not done.interrupted
    assert done.counts.iterations <= 100
    assert done.elbo.value == pytest.approx(np.log(2 * np.pi), abs=1e-3)
    assert "converged" in done.summary()
    patient = natmix.fit(gaussian, max_iterations=5000, accuracy=None, **start)
    assert patient.stopped == "converged"
    assert 300 <= patient.counts.iterations < 1500
    assert patient.elbo.value == pytest.approx(np.log(2 * np.pi), abs=1e-3)
    exact = natmix.fit(gaussian, max_iterations=150, accuracy=None, **start)
    assert exact.counts.iterations == 150
    assert exact.stopped == "max_iterations"
    timed = natmix.fit(gaussian, max_seconds=0.01, **start)
    assert timed.stopped == "max_seconds"
    assert timed.counts.iterations < done.counts.iterations
    with_budget = natmix.fit(gaussian, max_evaluations=2345, accuracy=None, **start)
    assert with_budget.stopped == "max_evaluations"
    assert 2100 <= with_budget.counts.evaluations <= 2345


# The mixture that is returned -------------------------------------------------------------------


def test_negligible_components_are_left_out():
    weights = np.array([0.6, 1e-30, 0.4 - 2e-7, 2e-7, 0.0])
    means = np.arange(10.0).reshape(5, 2)
    mixture = Mixture.full(weights, means, np.stack([np.eye(2)] * 5))
    kept, left_out = without_negligible(mixture)
    assert left_out == 2  # the absent one is not counted
    np.testing.assert_array_equal(kept.means, means[[0, 2]])
    np.testing.assert_allclose(kept.weights, np.array([0.6, 0.4 - 2e-7]) / (1 - 2e-7), rtol=1e-12)
    assert weights[3] < NEGLIGIBLE_WEIGHT
    broken = jax.tree.map(lambda a: a, mixture)
    broken = Mixture(broken.log_weights, jax.tree.map(lambda a: a.at[0].set(jnp.nan), broken.components))
    kept, _ = without_negligible(broken)
    assert np.isfinite(np.asarray(kept.means)).all()


def test_the_best_mixture_replaces_a_worse_last_one(monkeypatch, result):
    """If the end of a run is worse than its middle, the middle is returned and the result says so."""
    monkeypatch.setattr(BestMixture, "beats_last", lambda self, tolerance: True)
    other = natmix.fit(target, dim=2, seed=3, max_iterations=300, **OPTIONS)
    assert any("worse" in note for note in other.notes)
    assert other.elbo.value == pytest.approx(2.5, abs=0.1)
