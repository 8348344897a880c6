"""`fit` verifies what it has settled on, repairs it, and counts what that costs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import natmix
from natmix import GMMVI, JaxTarget, Mixture
from natmix.diagnostics import SearchProblem, explore, search_modes
from natmix.diagnostics.chains import ChainsLateError
from natmix.diagnostics.elbo import evaluated_draws
from natmix.diagnostics.mode_search import NARROW_WIDTH
from natmix.engine.limits import Limits
from natmix.engine.verifier import (
    COST_SHARE,
    MAX_REPAIRS,
    MIN_EVALUATIONS,
    OUTSIDE_EVALUATIONS,
    RESERVED_SHARE,
    SEARCH_EVALUATIONS,
    VALUES_EVALUATIONS,
    VALUES_MODE_EVALUATIONS,
    Verifier,
    tail_scales,
)

jax.config.update("jax_enable_x64", True)

AWAY = 40.0


def two(x):
    """Two equal Gaussians, 40 widths apart in each direction; the first is in the initial region."""
    return jnp.logaddexp(-0.5 * jnp.sum(x**2), -0.5 * jnp.sum((x - AWAY) ** 2)) - jnp.log(2)


LOG_Z = np.log(2 * np.pi)


@pytest.fixture(scope="module", params=[0.02, None], ids=["accuracy", "patience"])
def repaired(request):
    return natmix.fit(two, 2, accuracy=request.param, progress=False)


def test_a_mode_that_was_missed_becomes_a_component(repaired):
    assert repaired.diagnosis.verdict == "trust"
    assert repaired.diagnosis.log_evidence.value == pytest.approx(LOG_Z, abs=1e-3)
    np.testing.assert_allclose(np.sort([m.mean[0] for m in repaired.diagnosis.modes]), [0, AWAY], atol=0.01)
    (repair,) = repaired.verification.repairs
    assert repair.by == "mode search"
    assert repair.components == 1
    assert repaired.verification.mode_search.missed == ()
    assert repaired.verification.unrepaired == ""
    after = 100 if repaired.settings["accuracy"] is None else 20
    assert f"1 component added for what a mode search found after {after} iterations" in repaired.summary()


@pytest.mark.parametrize(
    "options",
    [
        {"sample_selector": {"reuse_ratio": 2.0}},
        {"covariance": "diagonal"},
        {"algorithm": "zamtrux"},
        {"algorithm": "sapyron"},
    ],
    ids=["reuse", "diagonal", "values", "iblr"],
)
def test_every_kind_of_state_can_be_repaired(options):
    result = natmix.fit(two, 2, progress=False, **options)
    assert result.verification.repairs
    assert len(result.diagnosis.modes) == 2
    assert result.diagnosis.log_evidence.value == pytest.approx(LOG_Z, abs=0.01)
    present = result.mixture.num_components + result.counts.left_out
    assert result.counts.added - result.counts.deleted + 1 == present


def test_an_interrupt_keeps_the_count():
    calls = []

    def values(x):
        calls.append(len(x))
        if sum(calls) > 14_000:
            raise KeyboardInterrupt
        return np.logaddexp(-0.5 * np.sum(x**2, axis=1), -0.5 * np.sum((x - AWAY) ** 2, axis=1)) - np.log(2)

    few: dict[str, Any] = {
        "sample_selector": {"desired_samples": 50},
        "component_adaptation": {"prior_candidates": 50},
    }
    result = natmix.fit(natmix.HostTarget(values, 2, batched=True), progress=False, **few)
    assert result.stopped == "interrupted"
    assert result.counts.verification_evaluations > 0
    assert result.counts.evaluations == sum(calls)
    assert result.verification.mode_search is None
    assert "interrupted" in result.verification.not_searched


def test_without_it_the_mode_is_missed_and_the_diagnosis_searches_by_itself():
    result = natmix.fit(two, 2, verify=False, progress=False)
    assert result.verification is None
    assert result.counts.verification_evaluations == 0
    assert result.mixture.mean()[0] == pytest.approx(0, abs=0.1)
    assert result.diagnosis.verdict == "distrust"


def test_the_same_seed_gives_the_same_fit(repaired):
    again = natmix.fit(two, 2, accuracy=repaired.settings["accuracy"], progress=False)
    np.testing.assert_array_equal(again.mixture.means, repaired.mixture.means)
    np.testing.assert_array_equal(again.mixture.log_weights, repaired.mixture.log_weights)
    assert again.counts == repaired.counts


def test_what_it_costs_at_most(repaired):
    counts = repaired.counts
    assert counts.verification_evaluations > 0
    if repaired.settings["accuracy"] is None:
        assert counts.verification_evaluations <= COST_SHARE * counts.evaluations
    else:
        assert counts.verification_evaluations <= SEARCH_EVALUATIONS + MIN_EVALUATIONS
    total = counts.training_evaluations + counts.elbo_evaluations + counts.verification_evaluations
    assert counts.evaluations == counts.first_evaluations + total


def test_gradients_from_outside_are_searched_by_a_share_where_more_is_not_enough_for_trust():
    target = natmix.HostTarget(lambda x: -0.5 * np.sum(x**2, axis=1), 3, batched=True, gradient=lambda x: -x)
    result = natmix.fit(target, progress=False)
    spent = result.counts.verification_evaluations
    assert 0.5 * MIN_EVALUATIONS < spent <= max(MIN_EVALUATIONS, COST_SHARE * result.counts.evaluations)
    assert result.counts.evaluations < OUTSIDE_EVALUATIONS
    assert result.diagnosis.verdict == "unsearched"


@pytest.mark.parametrize(("dim", "enough"), [(2, OUTSIDE_EVALUATIONS), (3, 0)])
def test_the_search_for_narrow_modes_from_outside_is_made_where_it_can_be_thorough(dim, enough):
    target = natmix.HostTarget(
        lambda x: -0.5 * np.sum(x**2, axis=1), dim, batched=True, gradient=lambda x: -x
    )
    region = Mixture.full([1.0], np.zeros((1, dim)), np.eye(dim)[None])
    assert Verifier(GMMVI.from_codename("samtron"), target, region, None, True)._enough == enough


@pytest.mark.parametrize(
    ("most", "gradients"),
    [(1_000, True), (1_000, False), (3_000, True), (12_000, False), (30_000, True), (30_000, False)],
)
def test_evaluations_are_counted_and_limits_kept(most, gradients):
    calls = []

    def values(x):
        calls.append(len(x))
        return np.logaddexp(-0.5 * np.sum(x**2, axis=1), -0.5 * np.sum((x - AWAY) ** 2, axis=1)) - np.log(2)

    slope = jax.jit(jax.vmap(jax.grad(two)))
    gradient = (lambda x: np.asarray(slope(x))) if gradients else None
    target = natmix.HostTarget(values, 2, batched=True, gradient=gradient)
    result = natmix.fit(
        target,
        progress=False,
        max_evaluations=most,
        sample_selector={"desired_samples": 50},
        component_adaptation={"prior_candidates": 50},
    )
    assert sum(calls) == result.counts.evaluations <= most
    result.summary()
    assert sum(calls) == result.counts.evaluations
    if most == 30_000:
        assert result.verification.repairs
        assert len(result.diagnosis.modes) == 2


def test_without_gradients_a_search_may_take_so_much_for_every_mode():
    target = JaxTarget(two, 2, values_only=True)
    far = jnp.array([[0.0, 0.0], [60.0, 0.0], [0.0, 60.0], [60.0, 60.0]])

    def four(x):
        return jax.nn.logsumexp(-0.5 * jnp.sum((x - far) ** 2, axis=1))

    for function, modes in ((target, 2), (JaxTarget(four, 2, values_only=True), 4)):
        result = natmix.fit(function, max_evaluations=30_000, progress=False)
        assert len(result.diagnosis.modes) == modes
        assert result.diagnosis.verdict == "trust"
        assert result.counts.evaluations <= 30_000
        search = result.verification.mode_search
        assert search.new_mode_chance <= 0.01
        assert search.evaluations <= VALUES_EVALUATIONS + VALUES_MODE_EVALUATIONS * (modes - 1)


def test_an_algorithm_with_fixed_components_says_why_it_cannot_repair():
    result = natmix.fit(two, 2, algorithm="SEMTRON", progress=False)
    assert result.verification.mode_search.missed
    assert result.verification.repairs == ()
    assert "does not add components" in result.verification.unrepaired
    assert result.diagnosis.verdict == "distrust"


def test_random_values_are_not_searched():
    def noisy(key, x):
        return two(x) + 0.01 * jax.random.normal(key)

    target = JaxTarget(noisy, 2, stochastic=True)
    result = natmix.fit(target, max_iterations=150, progress=False)
    assert result.verification.mode_search is None
    assert "random" in result.verification.not_searched


def test_files_keep_it(repaired, tmp_path):
    path = tmp_path / "fit.safetensors"
    repaired.save(path)
    again = natmix.Result.load(path)
    assert again.verification.repairs == repaired.verification.repairs
    assert again.verification.mode_search == repaired.verification.mode_search
    assert again.counts == repaired.counts
    assert again.diagnosis.verdict == "trust"


def test_bad_arguments():
    with pytest.raises(ValueError, match="verify must be True or False, got 3"):
        natmix.fit(two, 2, verify=3)  # type: ignore[arg-type]


@pytest.mark.slow
def test_many_modes_in_many_dimensions():
    rng = np.random.default_rng(1)
    means = jnp.asarray(rng.uniform(-40, 40, size=(12, 20)))

    def target(x):
        return (
            jax.nn.logsumexp(-0.5 * jnp.sum((x - means) ** 2, axis=1))
            - jnp.log(12)
            - 10 * jnp.log(2 * jnp.pi)
        )

    result = natmix.fit(target, 20, progress=False)
    assert result.diagnosis.verdict == "trust"
    assert len(result.diagnosis.modes) == 12
    assert result.diagnosis.log_evidence.value == pytest.approx(0, abs=0.01)


# What ends a fit ------------------------------------------------------------------------------------


def test_the_time_limit_leaves_the_last_search_its_share(monkeypatch):
    readings = iter(range(1_000_000))
    monkeypatch.setattr("natmix.engine.clock.Clock.read", lambda clock: 0.25 * next(readings))
    result = natmix.fit(two, 2, max_seconds=50, tolerance=0.0, accuracy=0.0, progress=False)
    assert result.stopped == "max_seconds"
    search = result.verification.mode_search
    assert search is not None
    assert search.missed or result.verification.repairs


def test_seconds_are_reserved_where_there_is_a_search():
    def verifier(target):
        return Verifier(
            GMMVI.from_codename("samtron"), target, Mixture.full([1.0], [[0.0, 0.0]], [np.eye(2)]), None
        )

    limits = Limits(max_seconds=20.0)
    assert verifier(JaxTarget(two, 2)).reserved_seconds(limits) == RESERVED_SHARE * 20
    assert verifier(JaxTarget(two, 2)).reserved_seconds(Limits()) == 0
    random = JaxTarget(lambda key, x: two(x), 2, stochastic=True)
    assert verifier(random).reserved_seconds(limits) == 0


def test_chains_end_at_the_time_limit_and_are_counted():
    calls = []

    def values(x):
        calls.append(len(x))
        return -0.5 * np.sum(x**2, axis=1)

    mixture = Mixture.full([1.0], np.zeros((1, 2)), np.eye(2)[None])
    target = natmix.HostTarget(values, 2, batched=True, gradient=lambda x: -x)
    draws = evaluated_draws(mixture, target, jax.random.key(0), 500)
    calls.clear()
    with pytest.raises(ChainsLateError) as late:
        explore(mixture, target, draws, jax.random.key(1), 50, max_seconds=0.0)
    assert late.value.evaluations == sum(calls)
    inside = JaxTarget(lambda x: -0.5 * jnp.sum(x**2), 2)
    draws = evaluated_draws(mixture, inside, jax.random.key(0), 500)
    whole, timed = (
        explore(mixture, inside, draws, jax.random.key(1), 50, 4, most) for most in (np.inf, 600.0)
    )
    np.testing.assert_array_equal(whole.points, timed.points)
    assert whole.uncovered == timed.uncovered


@pytest.mark.parametrize(
    "log_density",
    [lambda x: -2.5 * jnp.log(jnp.sum((x - 3) ** 2)), lambda x: -0.1 * jnp.log1p(jnp.sum(x**2))],
    ids=["unbounded", "improper"],
)
def test_what_cannot_be_normalised_is_not_repaired_for_ever(log_density):
    result = natmix.fit(log_density, 2, progress=False, max_iterations=240)
    assert len(result.verification.repairs) <= MAX_REPAIRS
    assert result.counts.verification_evaluations <= COST_SHARE * result.counts.evaluations
    assert result.diagnosis.verdict != "trust"


def test_a_fit_has_a_narrow_mode_next_to_a_wide_one():
    away = jnp.array([7.0, 6.0])

    def target(x):
        wide = jnp.log(0.4) - 0.5 * jnp.sum(x**2)
        return jnp.logaddexp(wide, jnp.log(0.6 / 9e-4) - 0.5 * jnp.sum((x - away) ** 2) / 9e-4)

    result = natmix.fit(target, 2, progress=False, max_evaluations=100_000)
    assert len(result.diagnosis.modes) == 2
    assert result.diagnosis.verdict == "trust"
    assert result.diagnosis.log_evidence.value == pytest.approx(LOG_Z, abs=0.01)
    assert result.verification.mode_search.covered_width <= NARROW_WIDTH


# Heavy tails ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [2, 10])
def test_a_few_gaussians_of_several_scales_make_students_t(dim):
    scales = tail_scales(5.0)
    together = Mixture.full(np.ones(4) / 4, np.zeros((4, dim)), scales[:, None, None] * np.eye(dim))
    x = np.asarray(together.sample(4000, key=0))
    exact = stats.multivariate_t(np.zeros(dim), df=5).logpdf(x)
    assert np.mean(np.asarray(together.log_prob(x)) - exact) < 0.1
    alone = np.asarray(Mixture.full([1.0], np.zeros((1, dim)), np.eye(dim)[None]).sample(4000, key=0))
    one = stats.multivariate_normal(np.zeros(dim)).logpdf(alone)
    ratio = np.mean(np.asarray(together.log_prob(x)) - exact) / np.mean(
        one - stats.multivariate_t(np.zeros(dim), df=5).logpdf(alone)
    )
    assert ratio < 0.5
    assert tail_scales(np.inf).tolist() == [1.0]


@pytest.mark.parametrize("heavy", [True, False])
def test_the_search_tells_the_tails_of_the_modes(heavy):
    dim, away = 5, 30.0

    def mode(x):
        square = jnp.sum(x**2)
        return -5.0 * jnp.log1p(square / 5) if heavy else -0.5 * square

    target = JaxTarget(lambda x: jnp.logaddexp(mode(x), mode(x - away)), dim)
    known = Mixture.full([1.0], np.zeros((1, dim)), np.eye(dim)[None])
    constant = (
        stats.multivariate_t(np.zeros(dim), df=5) if heavy else stats.multivariate_normal(np.zeros(dim))
    )
    log_z = -float(constant.logpdf(np.zeros(dim)))
    found = search_modes(SearchProblem(known, target, known, log_z, jax.random.key(0)), 32)
    assert len(found.missed) == 1
    assert found.dof in ((3.0, 5.0, 10.0) if heavy else (np.inf,))
