"""When a fit is accurate, on traces and weights with a known answer, and what it then spends."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, gammaln, polygamma

import natmix
from natmix import HostTarget, Mixture
from natmix.diagnostics.diagnosis import diagnose
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.engine.accuracy import (
    ACCURATE,
    LARGEST_ERRORS,
    TAIL_EVALUATIONS,
    AccuracyRule,
    confirmed,
    marginal_errors,
)
from natmix.engine.convergence import CHECK_EVERY, StoppingRule
from natmix.engine.verifier import SEARCH_EVALUATIONS
from natmix.gmmvi import GMMVI

jax.config.update("jax_enable_x64", True)

PER_ITERATION = 50
PLAIN = Mixture.full(np.ones(1), np.zeros((1, 3)), np.eye(3)[None])


def pauses(
    values: np.ndarray, accuracy: float = 0.02, chunk: int = 10, refute: float | None = None
) -> list[int]:
    """The iterations at which the rule wants fresh samples; each time these find a KL of ``refute``."""
    rule, found = AccuracyRule(accuracy), []
    for end in range(chunk, len(values) + 1, chunk):
        run: Any = SimpleNamespace(iterations=end, evaluations=PER_ITERATION * end, stopped=None)
        part: Any = SimpleNamespace(infos={"kl": values[end - chunk : end]})
        if rule.chunk(run, part) == ACCURATE:
            found.append(end)
            if refute is None:
                break
            rule.refuted(run.evaluations, 100, refute)
    return found


@pytest.mark.parametrize("chunk", [1, 4, 20])
def test_an_exact_mixture_pauses_at_the_first_check(chunk):
    assert pauses(np.zeros(200), chunk=chunk) == [CHECK_EVERY]


@pytest.mark.parametrize("kl", [0.2, np.nan, np.inf])
def test_a_divergence_that_is_large_or_unknown_never_does(kl):
    assert pauses(np.full(400, kl)) == []


def test_it_waits_for_the_divergence_to_fall():
    falling = 0.5 * np.exp(-np.arange(2000) / 100)
    (stop,) = pauses(falling)
    assert falling[stop - CHECK_EVERY : stop].mean() <= 0.02 < falling[: stop - CHECK_EVERY].min()


def test_noise_counts_against_it():
    noisy = 0.015 + 0.1 * np.random.default_rng(0).normal(size=CHECK_EVERY)
    assert pauses(np.tile(noisy, 20)) == []
    assert pauses(np.full(400, 0.015)) == [CHECK_EVERY]


def test_after_a_refutation_it_waits_and_knows_the_bias():
    # Fresh samples find three times as much: 0.01 is not enough any more, 0.006 is.
    assert pauses(np.full(2000, 0.01), refute=0.03) == [CHECK_EVERY]
    values = np.concatenate([np.full(400, 0.01), np.full(400, 0.006)])
    assert pauses(values, refute=0.03)[:2] == [CHECK_EVERY, 400 + CHECK_EVERY]
    # Refuted for another reason, it tries again, but not soon.
    again = pauses(np.full(4000, 0.01), refute=0.01)
    spent = PER_ITERATION * np.array(again)
    assert len(again) > 3
    assert np.all(np.diff(spent) >= np.maximum(200, 0.25 * spent[:-1]))


def draws_of(mixture: Mixture, target: Mixture, n: int = 2000) -> EvaluatedDraws:
    x = mixture.sample(n, key=1)
    log_p, log_q = (np.asarray(m.log_prob(x), float) for m in (target, mixture))
    return EvaluatedDraws(np.asarray(x, float), log_p + 3.0, log_q)


def shifted(by: float, scale: float = 1.0) -> Mixture:
    """A Gaussian whose first coordinate has another mean and standard deviation."""
    covariance = np.diag([scale**2, 1.0, 1.0])[None]
    return Mixture.full(np.ones(1), np.array([[by, 0.0, 0.0]]), covariance)


def test_fresh_samples_of_the_target_itself_confirm_it():
    assert confirmed(PLAIN, draws_of(PLAIN, PLAIN), 0.02)
    assert marginal_errors(draws_of(PLAIN, PLAIN)) == pytest.approx((0, 0, 0), abs=1e-9)


def test_the_errors_of_marginals_are_those_of_gaussians():
    by_mean = marginal_errors(draws_of(PLAIN, shifted(0.1), 20_000))
    assert by_mean.mean == pytest.approx(0.1, abs=0.01)
    assert by_mean.quantile == pytest.approx(0.1, abs=0.03)
    by_scale = marginal_errors(draws_of(PLAIN, shifted(0.0, 0.9), 20_000))
    assert by_scale.spread == pytest.approx(1 / 0.9 - 1, abs=0.02)
    assert by_scale.quantile == pytest.approx(1.645 * (1 / 0.9 - 1), abs=0.05)


def test_fresh_samples_refute_a_large_divergence_and_a_wrong_marginal():
    assert not confirmed(PLAIN, draws_of(PLAIN, shifted(0.63)), 0.02)  # KL 0.2
    off = draws_of(PLAIN, shifted(0.15))  # KL 0.011, and a mean off by more than is allowed
    assert not confirmed(PLAIN, off, 0.02)
    assert marginal_errors(off).mean > LARGEST_ERRORS.mean
    assert confirmed(PLAIN, draws_of(PLAIN, shifted(0.01)), 0.02)
    assert not confirmed(PLAIN, draws_of(PLAIN, shifted(0.01)), 0.0)


def test_a_heavy_tail_of_the_weights_is_not_accurate_although_the_divergence_is_small():
    # The logarithm of a Gamma(200, 1) variable has an exponential left tail; q has its mean and variance.
    shape = 200.0
    mean, variance = digamma(shape), polygamma(1, shape)
    q = Mixture.full(np.ones(1), np.full((1, 1), mean), np.full((1, 1, 1), variance))
    x = np.asarray(q.sample(2000, key=0), float)
    log_p = shape * x[:, 0] - np.exp(x[:, 0]) - gammaln(shape)
    draws = EvaluatedDraws(x, log_p, np.asarray(q.log_prob(x), float))
    kl = np.exp(mean + variance / 2) + gammaln(shape) - shape * mean
    kl -= 0.5 * np.log(2 * np.pi * np.exp(1) * variance)
    found, (close, tails) = diagnose(q, draws), confirmed(q, draws, 0.02)
    assert found.gap.value == pytest.approx(kl, abs=3 * found.gap.standard_error)
    assert found.k_hat > found.k_limit
    assert close
    assert not tails
    assert not confirmed(q, draws, 0.02)


def test_the_tail_of_nearly_equal_weights_does_not_matter():
    x = np.asarray(PLAIN.sample(2000, key=0), float)
    log_q = np.asarray(PLAIN.log_prob(x), float)
    heavy = np.random.default_rng(0).pareto(0.5, 2000)  # of shape 2
    draws = EvaluatedDraws(x, log_q + 0.01 * heavy / heavy.max(), log_q)
    found = diagnose(PLAIN, draws)
    assert found.k_hat > found.k_limit
    assert confirmed(PLAIN, draws, 0.02)


def test_a_large_error_of_log_z_is_not_accurate():
    # Weights 1 + s y, where y is Pareto distributed with the shape k: E[y] = k / (1 - k).
    s, k = 0.1, 0.65
    x = np.asarray(PLAIN.sample(2000, key=0), float)
    log_q = np.asarray(PLAIN.log_prob(x), float)
    weights = 1 + s * np.random.default_rng(2).pareto(1 / k, 2000)
    draws = EvaluatedDraws(x, log_q + np.log(weights), log_q)
    found = diagnose(PLAIN, draws)
    log_z = found.log_evidence
    assert found.verdict == "unsearched"
    assert found.k_hat <= found.k_limit
    assert 0.02 < abs(log_z.value - np.log1p(s * k / (1 - k))) < log_z.standard_error < 0.05
    assert not confirmed(PLAIN, draws, 0.02).tails
    assert confirmed(PLAIN, draws, 0.05).tails
    # With fewer samples nothing better can be asked for: 3 sqrt(2 0.02 / 200) is 0.042.
    few = EvaluatedDraws(x[:200], np.repeat(np.log([1.0, 2.3]), [180, 20]), np.zeros(200))
    assert 0.02 < diagnose(PLAIN, few).log_evidence.standard_error < 0.042
    assert confirmed(PLAIN, few, 0.02).tails


def test_patience_with_tails_ends():
    rule = AccuracyRule(0.02)
    assert rule.patient(1_000, None)
    assert rule.patient(1_000 + TAIL_EVALUATIONS - 1, None)
    assert not rule.patient(1_000 + TAIL_EVALUATIONS, None)
    longer = AccuracyRule(0.02)
    assert longer.patient(50_000, None)
    assert longer.patient(99_999, None)
    assert not longer.patient(100_000, None)
    limited = AccuracyRule(0.02)
    assert limited.patient(1_000, 8_000)
    assert not limited.patient(3_000, 8_000)
    restored = AccuracyRule(0.02)
    restored.restore(limited.stored(), {})
    assert not restored.patient(3_000, 8_000)


def test_the_stopping_rule_names_a_flat_objective_before_it_is_patient():
    rule = StoppingRule(GMMVI.from_codename("SEMTRON"), 1, when_flat="flat", patient=False)
    state: Any = SimpleNamespace(births=1, ids=np.zeros(1), mixture=SimpleNamespace(log_weights=np.zeros(1)))

    def reason(iterations: int, slope: float) -> str | None:
        infos = {
            "elbo": slope * np.arange(CHECK_EVERY) + slope * iterations,
            "entropy": np.zeros(CHECK_EVERY),
        }
        run: Any = SimpleNamespace(iterations=iterations + CHECK_EVERY, state=state)
        chunk: Any = SimpleNamespace(infos=infos)
        return rule.chunk(run, chunk)

    assert not any(reason(i, 1.0) for i in range(0, 1000, CHECK_EVERY))
    rule.restart(1)
    reasons = [reason(i, 0.0) for i in range(0, 600, CHECK_EVERY)]
    assert set(reasons) == {None, "flat"}
    rule.when_flat = None
    rule.restart(1)
    assert not any(reason(i, 0.0) for i in range(0, 1000, CHECK_EVERY))


# Fits ----------------------------------------------------------------------------------------------------


def test_where_it_is_not_accurate_all_evaluations_are_spent():
    most, calls = 6_000, []

    def values(x):  # a narrow banana, which takes many components
        calls.append(len(x))
        return -0.5 * (x[:, 0] ** 2 + ((x[:, 1] - 2 * x[:, 0] ** 2) / 0.05) ** 2)

    result = natmix.fit(
        HostTarget(values, 2, batched=True), accuracy=0.02, max_evaluations=most, progress=False
    )
    assert result.stopped == "max_evaluations"
    assert result.counts.evaluations == sum(calls)
    assert 0.98 * most <= sum(calls) <= most


def test_the_settings_repeat_a_fit_that_took_more_samples():
    options: dict[str, Any] = {"accuracy": 0.0, "verify": False, "seed": 2, "elbo_samples": 100}
    modules: dict[str, Any] = {
        "sample_selector": {"desired_samples": 8, "reuse_ratio": 2.0},
        "component_adaptation": {"max_components": 2, "prior_candidates": 10, "database_size": 1000},
    }
    more: list[dict[str, dict[str, Any]]] = [
        {"sample_selector": {"desired_samples": 30}},
        {"sample_selector": {"reuse_ratio": 0.0}},
    ]
    target = PLAIN.log_prob
    first = natmix.fit(target, 3, max_iterations=700, more_samples=more, progress=False, **options, **modules)
    spent = first.trajectory["evaluations"]
    assert spent[-1] >= 30 > 16 >= spent[200]
    assert first.settings["more_samples"] == more
    s = first.settings
    recorded: dict[str, Any] = {
        m: {k: v for k, v in s["algorithm"][m].items() if k != "option"} for m in natmix.MODULES
    }
    again = natmix.fit(
        target,
        3,
        algorithm="samtron",
        max_iterations=700,
        more_samples=s["more_samples"],
        progress=False,
        **options,
        **recorded,
    )
    np.testing.assert_array_equal(first.mixture.means, again.mixture.means)
    assert first.counts == again.counts


def test_a_fit_goes_on_until_the_tail_and_log_z_are_known():
    def log_gamma(x):  # of the logarithm of a Gamma variable, whose left tail is exponential
        return 100 * x[0] - 5 * jnp.exp(x[0])

    result = natmix.fit(log_gamma, 1, max_evaluations=10_000, progress=False)
    found = result.diagnosis
    assert result.stopped == "converged"
    assert result.counts.refuted_evaluations > 0
    assert found.k_hat <= found.k_limit
    assert found.log_evidence.standard_error <= 0.02
    truth = float(gammaln(100) - 100 * np.log(5))
    assert found.log_evidence.value == pytest.approx(truth, abs=3 * found.log_evidence.standard_error)


def test_a_gaussian_is_done_after_few_evaluations():
    def target(x):
        return -0.5 * jnp.sum((x - 1.0) ** 2)

    result = natmix.fit(target, 3, progress=False)
    assert result.settings["accuracy"] == 0.02
    assert result.stopped == "converged"
    counts = result.counts
    assert counts.evaluations - counts.verification_evaluations < 5_000
    assert 0 < counts.verification_evaluations <= SEARCH_EVALUATIONS
    assert result.diagnosis.verdict == "trust"
    assert result.diagnosis.gap.value < 0.02
    assert result.summary().splitlines()[0].endswith("converged.")
    without = natmix.fit(target, 3, accuracy=None, max_iterations=80, progress=False)
    assert without.stopped == "max_iterations"
    assert without.settings["accuracy"] is None
    assert without.settings["algorithm"]["sample_selector"]["desired_samples"] == 100
    assert without.counts.refuted_evaluations == 0


def test_more_samples_without_an_accuracy_and_a_negative_accuracy_are_refused():
    with pytest.raises(ValueError, match="more_samples goes with accuracy"):
        natmix.fit(PLAIN.log_prob, 3, accuracy=None, more_samples=False)
    with pytest.raises(ValueError, match="accuracy must be a number of nats"):
        natmix.fit(PLAIN.log_prob, 3, accuracy=-1)
