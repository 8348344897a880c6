"""The search for other modes that a diagnosis makes by itself: what it sees and costs, when there is none."""

import copy
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natmix
from natmix import HostTarget
from natmix.diagnostics import SearchProblem, agreement, search_modes
from natmix.diagnostics.budget import COST_SHARE, EVALUATIONS_PER_RUN, MAX_RUNS, MIN_RUNS
from natmix.result.diagnosing import diagnostic_budget

jax.config.update("jax_enable_x64", True)

AWAY = 40.0


def one(x):
    return -0.5 * jnp.sum(x**2)


def two(x):
    return jnp.logaddexp(one(x), one(x - AWAY))


def values(x):
    return np.logaddexp(-0.5 * np.sum(x**2, axis=1), -0.5 * np.sum((x - AWAY) ** 2, axis=1))


@pytest.fixture(scope="module")
def half():
    """A fit that lacks one of two modes, and whose samples cannot show it."""
    return natmix.fit(two, dim=2, max_evaluations=20_000, accuracy=None, progress=False, verify=False)


@pytest.fixture(scope="module")
def good():
    return natmix.fit(one, dim=2, max_evaluations=40_000, accuracy=None, progress=False, verify=False)


def test_a_missed_mode_is_flagged_by_default_and_by_samples_not(half):
    for none in (0, False):
        alone = half.diagnose(search=none)
        assert (alone.verdict, alone.mode_search, alone.not_searched) == ("unsearched", None, "")
        assert "no others were searched for" in str(alone).splitlines()[0]
    found = half.diagnosis
    assert found.verdict == "distrust"
    (missed,) = found.mode_search.missed
    np.testing.assert_allclose(missed.position, AWAY, atol=1e-3)
    assert missed.share == pytest.approx(0.5, abs=0.01)
    assert found.mode_search.evaluations <= COST_SHARE * half.counts.evaluations
    assert "clear without them" in found.not_explored
    assert sum(half.diagnose(seed=s).verdict == "distrust" for s in range(1, 6)) == 5


def test_a_good_fit_is_not(good):
    found = [good.diagnose(seed=s) for s in range(5)]
    assert all(d.verdict == "trust" and d.mode_search.found == 1 and not d.mode_search.missed for d in found)
    assert all(d.exploration is None for d in found)  # chains would cost too much, and the headline says so
    assert str(found[0]).startswith("TRUST IT, ITS FAR TAILS ASIDE: ")
    assert "tails were not searched" in str(found[0]).splitlines()[0]


def test_it_is_made_once_counted_and_kept(half, tmp_path):
    calls = []

    def counted(x):
        calls.append(len(x))
        return values(x)

    slope = jax.jit(jax.vmap(jax.grad(two)))
    target = HostTarget(counted, 2, batched=True, gradient=lambda x: np.asarray(slope(x)))
    result = dataclasses.replace(half, target=target)
    text = result.summary()
    assert sum(calls) == result.diagnosis.mode_search.evaluations > 0
    assert result.diagnose().mode_search is result.diagnosis.mode_search
    assert agreement([result, result]).agreed
    assert sum(calls) == result.diagnosis.mode_search.evaluations
    path = tmp_path / "fit.safetensors"
    result.save(path)
    for again in (
        natmix.Result.load(path),
        natmix.Result.load(path, two, dtype=float),
        copy.deepcopy(result),
    ):
        assert again.summary() == text
        np.testing.assert_array_equal(
            again.diagnosis.mode_search.missed[0].position, result.diagnosis.mode_search.missed[0].position
        )


def test_as_many_as_a_tenth_of_the_fit_pays_for(good):
    least = MIN_RUNS * EVALUATIONS_PER_RUN / COST_SHARE
    for evaluations, runs in ((least - 10, 0), (least + 10, MIN_RUNS), (10_000_000, MAX_RUNS)):
        counts = dataclasses.replace(
            good.counts, training_evaluations=int(evaluations), elbo_evaluations=0, start_evaluations=0
        )
        result = dataclasses.replace(good, counts=counts)
        assert diagnostic_budget(result).runs()[0] == runs
        assert bool(diagnostic_budget(result).runs()[1]) == (runs == 0)


def test_when_there_is_none_the_headline_and_a_line_say_so(good):
    short = dataclasses.replace(good.counts, training_evaluations=10)
    for changes, why in (
        ({"target": None}, "the target is not known here"),
        ({"counts": short}, "10 runs would cost more than 10%"),
        ({"start": None}, "the initial region is not known"),
    ):
        found = dataclasses.replace(good, **changes).diagnosis
        assert found.mode_search is None
        assert why in found.not_searched
        lines = str(found).splitlines()
        assert found.verdict == "unsearched"
        assert not found.trusted
        assert lines[0].startswith("GOOD AT THE MODES IT HAS: no others were searched for")
        assert f"  mode search  none: {found.not_searched}" in lines


def test_limits_of_a_search(good):
    def searched(**limits):
        log_z = float(np.log(2 * np.pi))
        key = jax.random.key(0)
        return search_modes(SearchProblem(good.mixture, good.target, good.start, log_z, key, **limits), 20)

    whole = searched()
    assert whole.runs == 20
    for most in (0, 1, 5, 30):
        found = searched(max_evaluations=most)
        assert found.evaluations <= most
        assert found.runs < 20
    late = searched(max_seconds=0.0)
    assert late.runs == 0
    assert late.evaluations == 20  # the first step of all runs


def test_a_target_that_cannot_be_normalised_is_called_so():
    result = natmix.fit(lambda x: 0.0 * x[0], dim=2, max_evaluations=12_000, progress=False)
    assert result.diagnosis.verdict == "distrust"
    assert "the target cannot be normalised" in str(result.diagnosis)


@pytest.mark.parametrize("wrong", [True, "all", -1, 2.5, None, [8]])
def test_bad_arguments(good, wrong):
    with pytest.raises(ValueError, match='search is a number of L-BFGS runs, 0 or False for none, or "auto"'):
        good.diagnose(search=wrong)
