"""Chains that a diagnosis starts by itself: what they see, what they cost, and when there are none."""

import copy
import dataclasses
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import natmix
from natmix import HostTarget, JaxTarget, Mixture
from natmix.diagnostics import agreement
from natmix.diagnostics.budget import COST_SHARE, MAX_CHAINS, MIN_CHAINS
from natmix.diagnostics.elbo import evaluated_draws
from natmix.diagnostics.exploration import SHORT_CHAIN_STEPS, chain_evaluations, starting_points
from natmix.result.diagnosing import diagnostic_budget

jax.config.update("jax_enable_x64", True)

D, STEP = 9, 0.12


def funnel(x):
    """v = x[0] is standard normal, the others have standard deviation exp(v)."""
    return -0.5 * x[0] ** 2 - 0.5 * jnp.sum(x[1:] ** 2) * jnp.exp(-2 * x[0]) - (D - 1) * x[0]


def values(x):
    return (
        -0.5 * x[:, 0] ** 2 - 0.5 * np.sum(x[:, 1:] ** 2, axis=1) * np.exp(-2 * x[:, 0]) - (D - 1) * x[:, 0]
    )


def slices(lowest):
    """The funnel from some v on: one Gaussian for each of many v."""
    v = np.arange(lowest + 0.1, 3.6, STEP)
    variances = np.concatenate(
        [np.full((len(v), 1), STEP**2), np.exp(2 * v)[:, None] * np.full(D - 1, 1.05)], 1
    )
    means = np.pad(v[:, None], ((0, 0), (0, D - 1)))
    return Mixture.full(stats.norm.pdf(v), means, variances[:, :, None] * np.eye(D))


BLUNT, WHOLE = slices(-1.8), slices(-4.0)
"""The first lacks a neck with 3.6% of the mass, and with the seed below none of its samples shows it."""
TARGET = JaxTarget(funnel, D)


@pytest.fixture(scope="module")
def short():
    return natmix.fit(
        TARGET, init_mixture=WHOLE, max_iterations=1, algorithm="semtron", progress=False, verify=False
    )


def as_if(short, mixture, target=TARGET, evaluations=1_000_000, **others):
    """A result of so many evaluations, whatever its mixture."""
    draws = evaluated_draws(mixture, TARGET, jax.random.key(3), 2000)
    counts = dataclasses.replace(short.counts, training_evaluations=evaluations - 2000, elbo_evaluations=2000)
    return dataclasses.replace(
        short,
        **{"mixture": mixture, "draws": draws, "counts": counts, "stopped": "converged", "target": target}
        | others,
    )


def test_a_bad_fit_is_flagged_by_default_and_by_its_samples_not(short):
    result = as_if(short, BLUNT)
    for none in (0, False):
        alone = result.diagnose(explore=none, search=none)
        assert (alone.verdict, alone.exploration, alone.not_explored) == ("unsearched", None, "")
        assert "result.diagnose(search=32, explore=1000) searches for them." in str(alone)
    assert result.diagnosis.verdict == "distrust"
    assert "DO NOT TRUST IT" in result.summary()
    assert result.diagnosis.exploration.evaluations <= COST_SHARE * 1_000_000
    assert f"{result.diagnosis.exploration.chains:,} Markov chains found" in result.summary()
    assert result.diagnosis.exploration.position[0] < -1.8
    again = [result.diagnose(search=0, seed=s) for s in range(1, 5)]
    assert sum(d.verdict == "distrust" for d in again) >= 3


def test_a_good_fit_is_not(short):
    for evaluations in (200_000, 1_000_000):
        result = as_if(short, WHOLE, evaluations=evaluations)
        verdicts = [result.diagnose(search=0, seed=s) for s in range(2)]
        assert all(d.verdict == "unsearched" and d.exploration is not None for d in verdicts)
    assert "result.diagnose(search=32) searches for it." in str(result.diagnose(search=0))


def test_evaluations_are_counted_and_made_once(short):
    calls = []

    def counted(x):
        calls.append(len(x))
        return values(x)

    slope = jax.jit(jax.vmap(jax.grad(funnel)))
    target = HostTarget(counted, D, batched=True, gradient=lambda x: np.asarray(slope(x)))
    result = as_if(short, BLUNT, target, 170_000)
    first = result.summary()
    found, searched = result.diagnosis.exploration, result.diagnosis.mode_search
    assert 0 < found.evaluations <= COST_SHARE * result.counts.evaluations
    assert 0 < searched.evaluations <= COST_SHARE * result.counts.evaluations
    assert found.evaluations + searched.evaluations == sum(calls)
    assert f"({found.evaluations:,} evaluations)" in first
    assert result.summary() == first
    assert result.diagnose().exploration is found
    assert result.diagnose().mode_search is searched
    agreement([result, result])
    assert found.evaluations + searched.evaluations == sum(calls)


def test_as_many_as_a_tenth_of_the_fit_pays_for(short):
    least = chain_evaluations(MIN_CHAINS, SHORT_CHAIN_STEPS, 2000) / COST_SHARE
    before = 0
    for evaluations in (10_000, least - 100, least + 100, 400_000, 10_000_000):
        chains, why = diagnostic_budget(as_if(short, WHOLE, evaluations=int(evaluations))).chains()
        assert bool(chains) == (not why) == (evaluations > least)
        assert chains >= before
        if chains:
            assert chain_evaluations(chains, SHORT_CHAIN_STEPS, 2000) <= COST_SHARE * evaluations
        before = chains
    assert before == MAX_CHAINS


def test_when_there_are_none_the_verdict_says_why(short):
    def noisy(key, x):
        return funnel(x) + jax.random.normal(key)

    def broken(x):
        raise ValueError("out of order")

    good = as_if(short, WHOLE)
    wrong = dataclasses.replace(good.draws, log_target=np.where(np.arange(2000) < 50, np.nan, 0.0))
    for changes, why in (
        ({"target": None}, "the target is not known here"),
        ({"target": JaxTarget(noisy, D, stochastic=True)}, "random"),
        ({"stopped": "interrupted"}, "interrupted"),
        ({"stopped": "failed"}, "failed"),
        ({"counts": short.counts}, "200 of them would cost more than 10%"),
        (
            {"target": HostTarget(broken, D, gradient=broken)},
            "they failed. The target raised ValueError",
        ),
        ({"draws": wrong}, "clear without them"),
    ):
        result = dataclasses.replace(good, **changes)
        assert result.diagnosis.exploration is None
        assert why in result.diagnosis.not_explored
        assert f"chains       none: {result.diagnosis.not_explored}" in result.summary()
        advised = "explore=1000) searches for " in result.summary()
        assert advised == ("counts" in changes or "stopped" in changes), why
        assert (
            advised
            or "draws" in changes
            or "natmix.diagnostics.agreement([result, another])" in result.summary()
        )
        if "counts" not in changes:
            assert result.diagnosis.mode_search is None
            assert f"mode search  none: {result.diagnosis.not_searched}" in result.summary()


def test_files_and_copies_keep_what_chains_found(short, tmp_path):
    path = tmp_path / "fit.safetensors"
    result = as_if(short, BLUNT)
    result.save(path)
    assert natmix.Result.load(path).diagnosis.not_explored == "the target is not known here"
    text = result.summary()
    result.save(path)
    named = dataclasses.replace(result, target=HostTarget(values, D, batched=True))
    named.__dict__["diagnosis"] = result.diagnosis
    for again in (
        natmix.Result.load(path),
        natmix.Result.load(path, funnel),
        copy.deepcopy(result),
        pickle.loads(pickle.dumps(named)),
    ):
        assert "diagnosis" in again.__dict__
        assert again.summary() == text
    assert "diagnosis" not in dataclasses.replace(result).__dict__


@pytest.mark.parametrize("wrong", [True, "all", -1, 2.5, None, [100]])
def test_bad_arguments(short, wrong):
    with pytest.raises(ValueError, match='explore is a number of chains, 0 or False for none, or "auto"'):
        short.diagnose(explore=wrong)


def test_starts_represent_all_mass():
    rng = np.random.default_rng(0)
    x = rng.normal(size=3000)
    weights = rng.gamma(2.0, size=3000)
    weights /= weights.sum()
    f = np.stack([x, x**2, x > 1.8])
    means = []
    for _ in range(50):
        start, share = starting_points(-(x**2), weights, 400, rng)
        assert share.sum() == pytest.approx(1)
        means.append((share * f[:, start]).sum(axis=1))
    error = np.std(means, axis=0) / np.sqrt(50)
    np.testing.assert_array_less(np.abs(np.mean(means, axis=0) - f @ weights), 4 * error + 1e-3)


def test_diagonal_mixtures(short):
    wide = Mixture.diagonal([1.0], np.zeros((1, D)), np.ones((1, D)))
    target = JaxTarget(lambda x: -0.5 * jnp.sum(x**2), D)
    exact = as_if(short, wide, target)
    exact = dataclasses.replace(exact, draws=evaluated_draws(wide, target, jax.random.key(1), 2000))
    assert exact.diagnosis.trusted
    assert exact.diagnosis.exploration.uncovered.value == 0
