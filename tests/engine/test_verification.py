"""`fit` verifies what it has settled on, repairs it, and counts what that costs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natmix
from natmix import JaxTarget
from natmix.engine.verifier import COST_SHARE, MIN_EVALUATIONS

jax.config.update("jax_enable_x64", True)

AWAY = 40.0


def two(x):
    """Two equal Gaussians, 40 widths apart in each direction; the first is in the initial region."""
    return jnp.logaddexp(-0.5 * jnp.sum(x**2), -0.5 * jnp.sum((x - AWAY) ** 2)) - jnp.log(2)


LOG_Z = np.log(2 * np.pi)


@pytest.fixture(scope="module")
def repaired():
    return natmix.fit(two, 2, progress=False)


def test_a_mode_that_was_missed_becomes_a_component(repaired):
    assert repaired.diagnosis.verdict == "trust"
    assert repaired.diagnosis.log_evidence.value == pytest.approx(LOG_Z, abs=1e-3)
    np.testing.assert_allclose(np.sort([m.mean[0] for m in repaired.diagnosis.modes]), [0, AWAY], atol=0.01)
    (repair,) = repaired.verification.repairs
    assert repair.by == "mode search"
    assert repair.components == 1
    assert repaired.verification.mode_search.missed == ()
    assert repaired.verification.unrepaired == ""
    assert "1 component added for what a mode search found after" in repaired.summary()


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
        if sum(calls) > 30_000:
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
    again = natmix.fit(two, 2, progress=False)
    np.testing.assert_array_equal(again.mixture.means, repaired.mixture.means)
    np.testing.assert_array_equal(again.mixture.log_weights, repaired.mixture.log_weights)
    assert again.counts == repaired.counts


def test_it_costs_at_most_a_quarter_or_a_few_thousand(repaired):
    counts = repaired.counts
    few = 2 * MIN_EVALUATIONS + counts.elbo_evaluations  # one repair
    assert 0 < counts.verification_evaluations <= max(COST_SHARE * counts.evaluations, few)
    total = counts.training_evaluations + counts.elbo_evaluations + counts.verification_evaluations
    assert counts.evaluations == counts.first_evaluations + total


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("most", [1_000, 3_000, 12_000, 30_000])
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
