"""Fits put together: weights with known answers, what the result holds, and what cannot be combined."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_fits import LEAST

import natmix
from natmix import HostTarget, JaxTarget, Mixture
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.elbo import elbo_of, estimate_elbo, evaluated_draws
from natmix.result.combine import SAMPLES_PER_COMPONENT
from natmix.result.combining_weights import optimal_weights

jax.config.update("jax_enable_x64", True)

LEFT, RIGHT = [-5.0, 0.0], [5.0, 1.0]
LOG_Z = 3.0


def gaussians(weights, means, scale=1.0):
    means = np.array(means, float)
    return Mixture.full(weights, means, np.stack([scale**2 * np.eye(means.shape[1])] * len(means)))


TRUTH = gaussians([0.3, 0.7], [LEFT, RIGHT])
TARGET = JaxTarget(lambda x: TRUTH.log_prob(x) + LOG_Z, 2)


@pytest.fixture(scope="module")
def template():
    return natmix.fit(TARGET, **LEAST)


def fitted(template, mixture, seed=0, target=TARGET, samples=2000):
    """A result with this mixture."""
    draws = evaluated_draws(mixture, target, jax.random.key(seed), samples)
    return dataclasses.replace(
        template, mixture=mixture, draws=draws, elbo=elbo_of(draws), target=target, stopped="converged"
    )


def share_of(mixture, point):
    """The weight of all components near a point."""
    near = np.linalg.norm(np.asarray(mixture.means) - point, axis=1) < 3
    return float(np.asarray(mixture.weights)[near].sum())


def verdict(result):
    return result.diagnose(search=0, explore=0)


# The weights ------------------------------------------------------------------------------------


def test_parts_that_do_not_overlap_get_their_shares_in_one_step():
    log_parts = np.array([[0.0, -800.0], [0.0, -800.0], [-800.0, 0.0], [-800.0, 0.0]])
    log_target = np.log([0.2, 0.2, 0.8, 0.8])
    found = optimal_weights(log_parts, np.full(4, np.log(0.5)), log_target, np.array([0.5, 0.5]))
    np.testing.assert_allclose(found.weights, [0.2, 0.8], rtol=1e-12)
    assert found.steps == 1
    assert found.gap < 1e-12


def test_the_weights_maximise_the_estimated_elbo():
    rng = np.random.default_rng(0)
    x = rng.normal(size=3000) * 2
    means = np.array([-2.0, -1.0, 0.5, 2.0])
    log_parts = -0.5 * (x[:, None] - means) ** 2 - 0.5 * np.log(2 * np.pi)
    log_proposal = -0.125 * x**2 - 0.5 * np.log(8 * np.pi)
    log_target = -0.25 * (x - 0.3) ** 2
    found = optimal_weights(log_parts, log_proposal, log_target, np.full(4, 0.25))

    S = np.exp(log_parts - log_proposal[:, None])
    S /= S.sum(axis=0)

    def elbo(w):
        Q = S @ w
        return Q @ (log_target - log_proposal - np.log(len(x)) - np.log(Q))

    others = rng.dirichlet(np.ones(4), 300)
    assert elbo(found.weights) >= max(elbo(w) for w in others) - 1e-4
    assert found.gap < 1e-3


def test_two_fits_with_one_mode_each_give_the_exact_shares(template):
    one, other = (fitted(template, gaussians([1.0], [m]), s) for s, m in enumerate((LEFT, RIGHT)))
    both = natmix.combine([one, other])
    assert share_of(both.mixture, LEFT) == pytest.approx(0.3, abs=1e-6)
    assert both.elbo.value == pytest.approx(LOG_Z, abs=1e-6)
    judged = verdict(both)
    assert judged.verdict == "unsearched"  # nothing outside of the samples was searched
    assert judged.log_evidence.value == pytest.approx(LOG_Z, abs=1e-6)


def test_inexact_modes_get_shares_within_the_error_of_the_samples(template):
    """Each mode by a Gaussian 1.2 times too wide: the ELBO's best shares are still 0.3 and 0.7."""
    one, other = (fitted(template, gaussians([1.0], [m], 1.2), s) for s, m in enumerate((LEFT, RIGHT)))
    both = natmix.combine([one, other])
    assert share_of(both.mixture, LEFT) == pytest.approx(0.3, abs=0.02)
    np.testing.assert_allclose(np.mean(both.draws.x[:, 0] < 0), 0.3, atol=0.05)


def test_the_draws_are_samples_of_the_combined_mixture(template):
    """One fit has both modes with wrong shares, the other one mode: the pooled samples have other shares."""
    one = fitted(template, gaussians([0.9, 0.1], [LEFT, RIGHT]), 0, samples=4000)
    other = fitted(template, gaussians([1.0], [LEFT]), 1)
    both = natmix.combine([one, other])
    right = np.mean(both.draws.x[:, 0] > 0)
    error = np.sqrt(0.21 / len(both.draws))
    assert right == pytest.approx(0.7, abs=4 * error)
    assert 300 < len(both.draws) < 1000  # 400 of 6000 samples are in the mode of 70%
    np.testing.assert_allclose(both.draws.log_mixture, both.mixture.log_prob(both.draws.x), rtol=1e-9)
    assert len(np.unique(both.draws.x[:, 0])) == len(both.draws)
    assert any(f"rest on {len(both.draws)} samples" in note for note in both.notes)


def test_near_copies_of_components_do_no_harm(template):
    moved = np.array(LEFT) + 0.01
    mixtures = [gaussians([0.3, 0.7], [LEFT, RIGHT]), gaussians([0.6, 0.4], [moved, RIGHT])]
    both = natmix.combine([fitted(template, m, s) for s, m in enumerate(mixtures)])
    assert share_of(both.mixture, LEFT) == pytest.approx(0.3, abs=0.01)
    assert estimate_elbo(both.mixture, TARGET, jax.random.key(9), 4000).value == pytest.approx(
        LOG_Z, abs=2e-3
    )


def test_a_bad_fit_loses_its_weight(template):
    good = fitted(template, TRUTH, 0)
    bad = fitted(template, gaussians([1.0], [[0.0, 0.0]], 8.0), 1)
    both = natmix.combine([bad, good])
    assert both.mixture.num_components == 2
    assert both.elbo.value == pytest.approx(LOG_Z, abs=5e-3)
    assert both.counts.left_out == 1 + good.counts.left_out + bad.counts.left_out


def test_many_components_with_few_samples_keep_their_weights_within_a_mode(template):
    rng = np.random.default_rng(0)
    around = [
        np.array(LEFT) + 0.3 * rng.normal(size=(20, 2)),
        np.array(RIGHT) + 0.3 * rng.normal(size=(20, 2)),
    ]
    fits = [
        fitted(template, gaussians(np.full(20, 0.05), m, 0.95), s, samples=200) for s, m in enumerate(around)
    ]
    both = natmix.combine(fits)
    assert SAMPLES_PER_COMPONENT * 40 > 400
    weights = np.asarray(both.mixture.weights)
    np.testing.assert_allclose(weights[:20], weights[0])
    assert weights[:20].sum() == pytest.approx(0.3, abs=0.05)


def test_zero_and_invalid_densities_are_reported_and_do_not_decide(template):
    def odd(x):
        value = TRUTH.log_prob(x) + LOG_Z
        value = jnp.where(x[1] > 2.5, -jnp.inf, value)
        return jnp.where(x[1] < -2.5, jnp.nan, value)

    target = JaxTarget(odd, 2)
    fits = [fitted(template, gaussians([1.0], [m]), s, target) for s, m in enumerate((LEFT, RIGHT))]
    both = natmix.combine(fits)
    assert np.isfinite(np.asarray(both.mixture.log_weights)).all()
    assert both.elbo.zero_share > 0
    assert both.elbo.invalid_share > 0


# What the result holds --------------------------------------------------------------------------


def test_the_target_is_not_evaluated_and_counts_are_summed(template):
    calls = []

    def host(x):
        calls.append(len(x))
        return -0.5 * np.sum(x**2, axis=1)

    target = HostTarget(host, 2, batched=True)
    fits = [natmix.fit(target, seed=s, **{**LEAST, "algorithm": "zemydux"}) for s in range(2)]
    before = len(calls)
    both = natmix.combine(fits)
    assert len(calls) == before
    assert both.counts.evaluations == sum(f.counts.evaluations for f in fits)
    assert both.timings.total == pytest.approx(sum(f.timings.total for f in fits))
    assert both.target is fits[0].target
    assert both.stopped == "max_iterations"


def test_results_of_files_can_be_combined_and_the_combined_one_saved(template, tmp_path):
    fits = [fitted(template, gaussians([1.0], [m]), s) for s, m in enumerate((LEFT, RIGHT))]
    for number, one in enumerate(fits):
        one.save(tmp_path / f"{number}.safetensors")
    loaded = [natmix.Result.load(tmp_path / f"{s}.safetensors") for s in range(2)]
    both = natmix.combine([*loaded[:1], fits[1]])
    assert both.target is fits[1].target
    combined = natmix.combine(loaded)
    combined.save(tmp_path / "both.safetensors")
    again = natmix.Result.load(tmp_path / "both.safetensors")
    np.testing.assert_array_equal(np.asarray(again.mixture.weights), np.asarray(combined.mixture.weights))
    assert len(again.settings["combined"]) == 2
    assert again.summary().startswith("2 fits combined on 2 dimensions")
    assert len(combined.sample(5)) == 5


def test_the_same_seed_gives_the_same_result_and_combined_results_combine(template):
    fits = [fitted(template, gaussians([1.0], [m], 1.2), s) for s, m in enumerate((LEFT, RIGHT))]
    one, other = natmix.combine(fits), natmix.combine(fits)
    np.testing.assert_array_equal(one.draws.x, other.draws.x)
    more = natmix.combine([one, fitted(template, TRUTH, 7)])
    assert more.elbo.value == pytest.approx(LOG_Z, abs=0.01)


def test_covariance_families_are_brought_together(template):
    diagonal = Mixture.diagonal([1.0], [LEFT], np.ones((1, 2)))
    both = natmix.combine([fitted(template, diagonal, 0), fitted(template, gaussians([1.0], [RIGHT]), 1)])
    assert both.mixture.covariance_family == "full"
    assert share_of(both.mixture, LEFT) == pytest.approx(0.3, abs=1e-6)


# What cannot be combined ------------------------------------------------------------------------


def test_what_is_not_several_results_gets_a_sentence(template):
    one = fitted(template, TRUTH)
    for given, words in [
        (one, "given as a list"),
        (3, "got int"),
        ([one], "at least two results, got 1"),
        ([one, one.mixture], "got Mixture"),
        ([one, one], "Results 0 and 1 have the same samples"),
        ([one, dataclasses.replace(one, draws=None)], "Result 1 keeps no samples"),
    ]:
        with pytest.raises(ValueError, match=re.escape(words)):
            natmix.combine(given)


def test_results_of_different_dimensions_or_targets_get_a_sentence(template):
    one = fitted(template, TRUTH)
    flat = gaussians([1.0], [[0.0]])
    three = fitted(template, flat, 0, JaxTarget(flat.log_prob, 1))
    with pytest.raises(ValueError, match="different dimensions"):
        natmix.combine([one, three])
    elsewhere = fitted(template, TRUTH, 1, JaxTarget(lambda x: -jnp.sum(x**2), 2))
    with pytest.raises(ValueError, match="Results 0 and 1 belong to different targets"):
        natmix.combine([one, elsewhere])
    moved = gaussians([0.3, 0.7], [LEFT, [5.0, 2.0]])
    data = fitted(template, TRUTH, 1, JaxTarget(lambda x: moved.log_prob(x) + LOG_Z, 2))
    with pytest.raises(ValueError, match="different targets"):
        natmix.combine([one, data])


def test_the_same_function_written_twice_is_the_same_target(template):
    again = JaxTarget(lambda x: TRUTH.log_prob(x) + LOG_Z, 2)
    natmix.combine([fitted(template, TRUTH, 0), fitted(template, TRUTH, 1, again)])


def test_samples_without_a_positive_density_get_a_sentence(template):
    one = fitted(template, TRUTH)
    x = one.draws.x
    nowhere = EvaluatedDraws(x + 1, np.full(len(x), -np.inf), np.zeros(len(x)))
    with pytest.raises(ValueError, match="Result 1 keeps no samples with a positive density"):
        natmix.combine([one, dataclasses.replace(one, draws=nowhere)])
