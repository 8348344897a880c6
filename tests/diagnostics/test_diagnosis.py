"""The verdict on a fit: against ArviZ, closed forms, and fits that are deliberately bad."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from known_mixtures import spherical, target_of
from scipy import stats

import natmix
from natmix import HostTarget, JaxTarget, Mixture
from natmix.diagnostics import SearchProblem, agreement, diagnose, pareto_smooth, search_modes
from natmix.diagnostics.budget import EVALUATIONS_PER_RUN
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.elbo import evaluated_draws

jax.config.update("jax_enable_x64", True)

# Verdicts -------------------------------------------------------------------------------------------


def judged(mixture, target, search=0, start=None, samples=4000):
    draws = evaluated_draws(mixture, target, jax.random.key(1), samples)
    first = diagnose(mixture, draws)
    if not search:
        return first
    problem = SearchProblem(mixture, target, start, first.log_evidence.value, jax.random.key(2))
    searched = search_modes(problem, search, near_probes=60_000)
    return diagnose(mixture, draws, searched)


TRUE = spherical([0.3, 0.7], [[-4.0, 0, 0], [4, 1, 0]])


def test_a_perfect_fit_is_trusted():
    found = judged(TRUE, target_of(TRUE), search=16, start=spherical([1.0], [[0.0, 0, 0]], 5.0))
    assert found.trusted, str(found)
    assert found.log_evidence.value == pytest.approx(3.0, abs=1e-6)
    assert found.gap.value == pytest.approx(0, abs=1e-6)
    assert found.effective_samples == pytest.approx(4000)
    assert found.mode_search.found == 2
    assert not found.mode_search.missed
    assert "TRUST IT" in str(found)


def test_a_slightly_wrong_fit_is_still_trusted_and_its_divergence_is_right():
    wide = spherical([0.3, 0.7], [[-4.0, 0, 0], [4, 1, 0]], 1.05)
    found = judged(wide, target_of(TRUE))
    kl = 3 * (0.5 * (1.05**2 - 1) - np.log(1.05))
    assert found.verdict == "unsearched"
    assert not found.trusted
    assert found.gap.value == pytest.approx(kl, abs=4 * found.gap.standard_error)
    assert found.log_evidence.value == pytest.approx(3, abs=4 * found.log_evidence.standard_error)


FAR = spherical([0.3, 0.7], [[-9.0, 0, 0], [9, 1, 0]])


def test_what_is_below_a_hundredth_counts_as_minor():
    three = spherical([0.595, 0.4, 0.005], [[-9.0, 0, 0], [9, 0, 0], [0, 20, 0]])
    text = str(judged(three, target_of(three)))
    assert "modes        2, and 1 minor below 1%; shares" in text
    assert text.count(" ± ") >= 3
    assert "modes        2; shares" in str(judged(FAR, target_of(FAR)))


def test_a_missed_mode_is_found_by_a_search():
    half = spherical([1.0], [[9.0, 1, 0]])
    start: dict[str, Any] = spherical([1.0], [[0.0, 0, 0]], 5.0)
    blind = judged(half, target_of(FAR))
    assert blind.verdict == "unsearched"  # its samples cannot know, and the words say so
    assert "result.diagnose(search=32, explore=1000)" in str(blind)
    found = judged(half, target_of(FAR), search=24, start=start)
    assert found.verdict == "distrust"
    (missed,) = found.mode_search.missed
    np.testing.assert_allclose(missed.position, [-9, 0, 0], atol=1e-3)
    assert missed.share == pytest.approx(0.3, abs=0.02)
    assert found.mode_search.evaluations >= 24


@pytest.mark.parametrize("distance", [30, 100])
def test_a_search_reaches_a_hundred_widths(distance):
    far = spherical([0.5, 0.5], [[0.0, 0, 0], [0, 0.6 * distance, -0.8 * distance]])
    half = spherical([1.0], [[0.0, 0, 0]])
    found = [
        search_modes(SearchProblem(half, target_of(far), half, 3 - np.log(2), jax.random.key(s)), 32)
        for s in range(4)
    ]
    assert sum(len(f.missed) for f in found) >= 3
    words = str(judged(half, target_of(far), search=5, start=half))
    assert "up to 100 widths of the initial region" in words


def test_a_missed_mode_nearby_shows_in_the_tail_of_the_weights():
    near = spherical([0.3, 0.7], [[-2.5, 0, 0], [2.5, 1, 0]])
    found = judged(spherical([1.0], [[2.5, 1, 0]]), target_of(near))
    assert found.verdict == "distrust"
    assert found.k_hat > 1


def test_a_heavy_tail_that_starts_next_to_nothing_does_not_matter():
    tail = stats.genpareto.rvs(1.0, size=4000, random_state=1)
    x = np.asarray(TRUE.sample(4000, key=0))
    for size, verdict in ((1e-4, "unsearched"), (1.0, "distrust")):
        found = diagnose(TRUE, EvaluatedDraws(x, np.log1p(size * tail), np.zeros(4000)))
        assert found.k_hat > found.k_limit
        assert found.verdict == verdict, str(found)


@pytest.mark.parametrize("seed", range(5))
def test_a_perfect_fit_with_rounding_errors_is_trusted(seed):
    """Log densities of a thousand nats in single precision are off by 1e-4, in steps."""
    x = np.asarray(TRUE.sample(2000, key=seed))
    log_p = np.asarray(np.asarray(TRUE.log_prob(x)) + 1000, np.float32).astype(float)
    found = diagnose(TRUE, EvaluatedDraws(x, log_p, np.asarray(TRUE.log_prob(x))))
    assert found.verdict == "unsearched"
    assert found.log_evidence.standard_error > 1e-5  # that of float32, in which the numbers were computed


def test_hidden_mass_is_that_of_quantiles_beyond_the_samples():
    """For weights with P(w > z) = (1 + k z)^(-1/k), in closed form."""
    n, k = 20_000, 0.3
    upper, lower = 1 / n, 0.1 / n
    expected = ((upper ** (1 - k) - lower ** (1 - k)) / (1 - k) - (upper - lower)) / k * (1 - k)
    drawn = [stats.genpareto.rvs(k, size=n, random_state=s) for s in range(20)]
    assert np.mean([pareto_smooth(np.log(w)).hidden for w in drawn]) == pytest.approx(expected, rel=0.25)


def test_too_narrow_is_not_trusted():
    found = judged(spherical([0.3, 0.7], [[-4.0, 0, 0], [4, 1, 0]], 0.4), target_of(TRUE))
    assert found.verdict == "distrust"
    assert "heavy tail" in found.reasons[0]


def test_too_wide_is_a_proposal():
    found = judged(spherical([0.3, 0.7], [[-4.0, 0, 0], [4, 1, 0]], 1.6), target_of(TRUE))
    assert found.verdict == "proposal", str(found)
    assert found.gap.value > 0.3


def test_wrong_weights_of_modes_are_named():
    found = judged(spherical([0.6, 0.4], [[-4.0, 0, 0], [4, 1, 0]]), target_of(TRUE))
    assert found.verdict == "proposal"
    assert any("(4, 1, 0) 40.0%" in reason and "sampling 70.00%" in reason for reason in found.reasons)


def test_heavy_tails_are_not_trusted():
    def student(x):
        return -0.5 * (2 + 3) * jnp.log1p(jnp.sum(x**2) / 2)

    found = judged(spherical([1.0], [[0.0, 0, 0]], 1.2), JaxTarget(student, 3), samples=20_000)
    assert found.verdict == "distrust", str(found)


def cauchy(x):
    """In five dimensions."""
    return -3.0 * jnp.log1p(jnp.sum(x**2))


def funnel(x):
    """Neal's, in ten dimensions."""
    return -0.5 * x[0] ** 2 / 9 - 0.5 * jnp.sum(x[1:] ** 2) * jnp.exp(-x[0]) - 4.5 * x[0]


@pytest.mark.parametrize(("fn", "dim"), [(cauchy, 5), (funnel, 10)])
def test_a_fit_that_stopped_too_early_is_no_proposal(fn, dim):
    """Its log evidence is too low by many standard errors, though k-hat is now and then below its limit."""
    found = natmix.fit(fn, dim, accuracy=None, max_evaluations=20_000, progress=False, verify=False)
    assert found.stopped == "max_evaluations"
    draws = [evaluated_draws(found.mixture, found.target, jax.random.key(s), 2000) for s in range(8)]
    verdicts = [diagnose(found.mixture, d, stopped=found.stopped) for d in draws]
    assert any(v.k_hat < v.k_limit for v in verdicts)
    assert {v.verdict for v in verdicts} == {"distrust"}
    assert "stopped at the limit of evaluations" in found.summary().split("DO NOT TRUST IT")[1]


def test_a_limit_is_part_of_every_verdict():
    wide = spherical([0.3, 0.7], [[-4.0, 0, 0], [4, 1, 0]], 1.6)
    for mixture, verdict in ((TRUE, "unsearched"), (wide, "proposal")):
        draws = evaluated_draws(mixture, target_of(TRUE), jax.random.key(1), 4000)
        for stopped, words in (("max_seconds", "the time limit"), ("interrupted", "was interrupted")):
            found = diagnose(mixture, draws, stopped=stopped)
            assert found.verdict == verdict
            assert words in found.reasons[-1]
        assert "longer" not in " ".join(diagnose(mixture, draws, stopped="converged").reasons)


def test_hidden_mass_is_too_much_to_correct():
    """Weights of a converged fit with a tail of its own, light and heavy."""
    x = np.asarray(TRUE.sample(2000, key=1))
    for shape, verdict in ((0.1, "proposal"), (0.6, "distrust")):
        w = 0.2 + stats.genpareto.rvs(shape, size=2000, random_state=3)
        found = diagnose(TRUE, EvaluatedDraws(x, np.log(w), np.zeros(2000)), stopped="converged")
        assert found.k_hat < found.k_limit
        assert found.verdict == verdict, str(found)
    assert "too much for importance weights to correct" in found.reasons[-1]


def test_nothing_usable_and_zeros():
    mixture = spherical([1.0], [[0.0]])
    assert judged(mixture, JaxTarget(lambda x: jnp.nan * x[0], 1)).verdict == "distrust"
    half = judged(mixture, JaxTarget(lambda x: jnp.where(x[0] > 0, -0.5 * x[0] ** 2, -jnp.inf), 1))
    assert half.verdict == "proposal"
    assert half.log_evidence.value == pytest.approx(np.log(np.sqrt(2 * np.pi) / 2), abs=0.1)
    assert half.elbo.value == -np.inf
    assert half.gap.value == pytest.approx(0, abs=1e-9)  # one half of the mixture is exactly the target
    assert half.zero_share == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("samples", [10, 30])
def test_few_samples_are_called_few(samples):
    x = np.asarray(TRUE.sample(samples, key=0))
    log_p = np.asarray(TRUE.log_prob(x))
    found = diagnose(TRUE, EvaluatedDraws(x, log_p, log_p))
    assert found.verdict == "undecided"
    assert len(found.reasons) == 1
    assert f"Too few samples to judge: only {samples} samples were evaluated" in found.reasons[0]


def test_a_verdict_does_not_depend_on_the_target_s_constant():
    a = diagnose(
        TRUE, EvaluatedDraws(np.asarray(TRUE.sample(500, key=0)), np.linspace(0, 1, 500), np.zeros(500))
    )
    b = diagnose(
        TRUE, EvaluatedDraws(np.asarray(TRUE.sample(500, key=0)), np.linspace(0, 1, 500) + 1e4, np.zeros(500))
    )
    assert a.verdict == b.verdict
    assert a.k_hat == pytest.approx(b.k_hat, abs=1e-6)


# Results --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result():
    start: dict[str, Any] = {"init_scale": 4.0, "init_components": 4}
    return natmix.fit(target_of(TRUE), algorithm="semtron", max_iterations=600, progress=False, **start)


def test_a_fit_knows_its_verdict_without_further_evaluations(result):
    assert result.diagnosis.samples == result.elbo.samples == 2000
    assert result.diagnosis.trusted, result.summary()
    assert result.diagnosis.elbo.value == pytest.approx(result.elbo.value)
    assert "TRUST IT" in result.summary()
    assert "other modes were not searched for" not in result.summary()
    assert result.diagnose(samples=1000).samples == 3000
    assert result.diagnose(search=8).mode_search.runs == 8


def test_resampling_corrects(result):
    wide = spherical([0.5, 0.5], [[-4.0, 0, 0], [4, 1, 0]], 1.3)
    rough = dataclasses.replace(result, mixture=wide)
    x = rough.resample(20_000, seed=3)
    assert x.shape == (20_000, 3)
    np.testing.assert_allclose(np.mean(x[:, 0] > 0), 0.7, atol=0.02)
    np.testing.assert_allclose(x[x[:, 0] > 0].std(axis=0), 1, atol=0.03)
    np.testing.assert_array_equal(x, rough.resample(20_000, seed=3))
    with pytest.raises(ValueError, match="at least n"):
        rough.resample(10, pool=5)


def test_resampling_what_cannot_be_corrected_warns(result):
    narrow = dataclasses.replace(result, mixture=spherical([0.3, 0.7], [[-4.0, 0, 0], [4, 1, 0]], 0.5))
    with pytest.warns(UserWarning, match="k-hat"):
        narrow.resample(1000)


def test_a_search_without_gradients_and_bad_arguments(result):
    host = HostTarget(lambda x: -0.5 * np.sum(x**2, axis=1), 3, batched=True)
    found = dataclasses.replace(result, target=host).diagnose(search=20)
    assert found.mode_search.method == "population"
    assert 0 < found.mode_search.evaluations <= 20 * EVALUATIONS_PER_RUN
    for misuse in (lambda: result.diagnose(seed=-1), lambda: result.resample(5, seed=-1)):
        with pytest.raises(ValueError, match="seed must be"):
            misuse()
    with pytest.raises(ValueError, match="search is a number of L-BFGS runs"):
        result.diagnose(search=-1)
    with pytest.raises(ValueError, match="ask for some"):
        dataclasses.replace(result, draws=None).diagnose()


# Agreement ------------------------------------------------------------------------------------------


def with_mixture(result, mixture):
    return dataclasses.replace(result, mixture=mixture, draws=None)


def test_the_same_fit_agrees_with_itself(result):
    found = agreement([result, result])
    assert found.agreed, str(found)
    assert found.spread == 0
    assert "AGREE" in str(found)


def test_divergences_are_those_of_quadrature(result):
    from scipy import integrate

    a, b = Mixture.full([1.0], [[0.0]], [[[1.0]]]), Mixture.full([1.0], [[1.0]], [[[2.0]]])
    x = np.linspace(-12, 12, 4001)
    p, q = (np.exp(np.asarray(m.log_prob(x[:, None]))) for m in (a, b))
    m = (p + q) / 2
    exact = 0.5 * integrate.trapezoid(p * np.log(p / m), x) + 0.5 * integrate.trapezoid(q * np.log(q / m), x)
    found = agreement([with_mixture(result, a), with_mixture(result, b)], samples=40_000)
    assert found.divergences[0, 1] == pytest.approx(exact, abs=0.005)
    assert not found.agreed


def test_a_mode_that_one_fit_lacks_is_named(result):
    half = spherical([1.0], [[4.0, 1, 0]])
    found = agreement([with_mixture(result, TRUE), with_mixture(result, half), with_mixture(result, TRUE)])
    assert not found.agreed
    assert {(m.fit, m.other) for m in found.missed} == {(1, 0), (1, 2)}
    assert found.missed[0].share == pytest.approx(0.3)
    np.testing.assert_allclose(found.missed[0].position, [-4, 0, 0])
    assert "Fit 1 missed a mode that has 30.0% of fit 0" in str(found)


def test_agreement_needs_comparable_results(result):
    with pytest.raises(ValueError, match="at least two"):
        agreement([result])
    with pytest.raises(ValueError, match="different dimensions"):
        agreement([result, with_mixture(result, spherical([1.0], [[0.0]]))])
