"""The rules of a verdict on cases with known answers."""

import dataclasses
import itertools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import natmix
from natmix import HostTarget, JaxTarget, Mixture
from natmix.diagnostics import ModeSearch, diagnose
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.evidence import gather_evidence
from natmix.diagnostics.exploration import Exploration
from natmix.diagnostics.label_switching import label_switching
from natmix.diagnostics.moments import unreliable_moments
from natmix.diagnostics.remedies import Remedies
from natmix.diagnostics.variables import variables_at
from natmix.estimate import Estimate

jax.config.update("jax_enable_x64", True)

SEARCHED = ModeSearch((), 1, 32, 1000)
UNIT = Mixture.full([1.0], [[0.0, 0.0]], [np.eye(2)])


def gaussian(sd: float, n: int = 2000, D: int = 2, seed: int = 0) -> tuple[Mixture, EvaluatedDraws]:
    """Samples of a spherical Gaussian with this standard deviation; the target has 1, and log Z = 0."""
    mixture = Mixture.full([1.0], [np.zeros(D)], [sd**2 * np.eye(D)])
    x = sd * np.random.default_rng(seed).normal(size=(n, D))
    return mixture, EvaluatedDraws(x, stats.norm.logpdf(x).sum(1), stats.norm.logpdf(x, scale=sd).sum(1))


# Zeros and digits -----------------------------------------------------------------------------------


def test_a_few_zeros_do_not_hide_a_wide_mixture():
    """KL(N(0, s^2) || N(0, 1)) where the target is positive; everywhere else it would be infinite."""
    for sd, verdict in ((1.0, "trust"), (1.4, "proposal")):
        mixture, draws = gaussian(sd)
        cut = np.where(np.arange(2000) < 16, -np.inf, draws.log_target)
        found = diagnose(mixture, dataclasses.replace(draws, log_target=cut), SEARCHED, stopped="converged")
        kl = 2 * (0.5 * (sd**2 - 1) - np.log(sd))
        assert found.gap.value == pytest.approx(kl, abs=4 * found.gap.standard_error + 1e-9)
        assert np.isfinite(found.gap.standard_error)
        assert found.log_evidence.value == pytest.approx(
            np.log(1 - 0.008), abs=3 * found.log_evidence.standard_error
        )
        assert found.zero_share == pytest.approx(0.008)
        assert found.verdict == verdict, str(found)
        assert "0.80% of the samples have density zero" in str(found)


def test_a_share_of_zeros_near_a_hundredth_is_not_judged_by_luck():
    """0.8% of an exact mixture; a share of 3% is too much, and few samples do not show which of the two."""

    def verdicts(n, share):
        found = []
        for seed in range(40):
            mixture, draws = gaussian(1.0, n=n, seed=seed)
            zero = np.random.default_rng(seed).uniform(size=n) < share
            cut = np.where(zero, -np.inf, draws.log_target)
            found.append(diagnose(mixture, dataclasses.replace(draws, log_target=cut), SEARCHED).verdict)
        return found

    assert verdicts(2000, 0.008).count("trust") >= 38
    assert verdicts(2000, 0.03).count("proposal") >= 38
    few = verdicts(100, 0.03)
    assert few.count("undecided") > 20
    assert few.count("proposal") < 10


def test_no_number_that_is_not_finite_is_trusted():
    mixture, draws = gaussian(1.0)
    for value in (np.nan, np.inf, -np.inf):
        found = diagnose(mixture, dataclasses.replace(draws, log_target=np.full(2000, value)), SEARCHED)
        assert found.verdict == "distrust"


@pytest.mark.parametrize(
    ("offset", "dtype", "few"),
    [(1e20, "float32", True), (1e20, "float64", True), (1e5, "float32", True), (1e5, "float64", False)],
)
def test_too_few_digits_are_called_that(offset, dtype, few):
    mixture, draws = gaussian(1.0)
    log_p = (draws.log_target - offset).astype(dtype).astype(float)
    found = diagnose(mixture, dataclasses.replace(draws, log_target=log_p, dtype=np.dtype(dtype)), SEARCHED)
    assert (found.verdict == "undecided") == few
    assert ("Too few digits to judge" in str(found)) == few
    assert few or found.trusted


def test_a_fit_with_an_offset_is_not_trusted_and_the_advice_works():
    def offset(x):
        return -0.5 * jnp.sum((x - 5) ** 2) / 0.01 - 1e5

    fits = [natmix.fit(offset, dim=1, dtype=t, max_evaluations=10_000, progress=False) for t in ("f4", "f8")]
    assert fits[0].diagnosis.verdict == "undecided"
    assert 'dtype="float64"' in str(fits[0].diagnosis)
    assert "jax.config.update('jax_enable_x64', True)" in str(fits[0].diagnosis)
    assert fits[1].diagnosis.trusted, str(fits[1].diagnosis)


# Errors of log Z ------------------------------------------------------------------------------------


def student(n, nu, D, scale, seed):
    x = scale * np.random.default_rng(seed).normal(size=(n, D))
    log_p = stats.multivariate_t(np.zeros(D), np.eye(D), df=nu).logpdf(x)
    return EvaluatedDraws(x, np.atleast_1d(log_p), stats.norm.logpdf(x, scale=scale).sum(1))


@pytest.mark.parametrize(
    ("draws", "least", "most"),
    [
        (lambda s: gaussian(0.8, D=1, seed=s)[1], 0.92, 1.0),
        (lambda s: gaussian(0.95, D=3, seed=s)[1], 0.92, 1.0),
        (lambda s: gaussian(1.1, D=3, seed=s)[1], 0.92, 1.0),
        (lambda s: student(2000, 5, 3, 1.15, s), 0.9, 1.0),
        (lambda s: student(2000, 30, 10, 1.02, s), 0.92, 1.0),
    ],
)
def test_two_errors_of_log_z_hold_the_truth(draws, least, most):
    z = [gather_evidence(draws(s)).log_evidence for s in range(100)]
    assert least <= np.mean([abs(e.value) <= 2 * e.standard_error for e in z]) <= most


def test_log_z_is_given_no_unseen_mode():
    assert "given no unseen mode" in str(diagnose(*gaussian(1.0)))


# Too few samples ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [20, 50, 60, 116])
def test_few_samples_of_an_exact_fit_are_not_called_far(n):
    for seed in range(5):
        found = diagnose(*gaussian(1.0001, n=n, seed=seed), SEARCHED)
        assert found.verdict in ("undecided", "trust"), str(found)
        assert "far" not in " ".join(found.reasons)
        if found.verdict == "undecided":
            assert n == 20
            assert "Too few samples to judge" in found.reasons[0]
            assert "result.diagnose(samples=2_000)" in found.reasons[0]


def test_a_divergence_that_may_be_large_is_not_trusted():
    """KL is 0.138; with 100 samples its estimate minus two errors is often below 0.05."""
    assert 2 * (0.5 * (0.75**2 - 1) - np.log(0.75)) == pytest.approx(0.138, abs=1e-3)
    verdicts = [diagnose(*gaussian(0.75, n=100, seed=s), SEARCHED).verdict for s in range(40)]
    assert verdicts.count("trust") <= 4


def test_a_good_default_fit_stays_trusted():
    for sd in (0.97, 1.0, 1.03):
        assert all(diagnose(*gaussian(sd, D=5, seed=s), SEARCHED).trusted for s in range(20))


def test_a_heavy_tail_with_little_mass_is_not_refused():
    """Student's t with 30 degrees of freedom: KL 0.001, and k-hat above 4 for a peak of equal weights."""
    x = student(2000, 30, 1, 1.02, 0)
    found = diagnose(Mixture.full([1.0], [[0.0]], [[[1.02**2]]]), x, SEARCHED)
    assert found.k_hat > found.k_limit
    assert found.trusted, str(found)


def test_tails_that_may_be_heavy_are_not_trusted_unsearched():
    """A Gaussian on a Cauchy: KL is 0.18 and seems to be 0.06; chains find what it lacks, samples do not."""
    nothing = Estimate(0.0, 0.0)
    chains = Exploration(nothing, nothing, nothing, None, np.zeros((0, 1)), 200, 10, 0.9, 16_200)
    mixture = Mixture.full([1.0], [[0.0]], [[[1.55**2]]])
    good = [student(2000, 1, 1, 1.55, seed) for seed in range(40)]
    alone = [diagnose(mixture, draws, SEARCHED) for draws in good]
    explored = [diagnose(mixture, draws, SEARCHED, chains) for draws in good]
    assert sum(d.verdict == "trust" for d in alone) <= 1
    assert sum(d.verdict == "trust" for d in explored) > 5  # were there no chains to see it
    found = next(d for d, e in zip(alone, explored, strict=True) if e.trusted and d.verdict == "unsearched")
    assert str(found).startswith("GOOD WHERE IT HAS SAMPLES")
    assert "result.diagnose(explore=1000)" in str(found)


# Shares, moments, modes -----------------------------------------------------------------------------


def test_shares_below_a_hundredth_decide_nothing():
    two = Mixture.full([0.9999, 0.0001], [[0.0, 0.0], [30.0, 0.0]], [np.eye(2)] * 2)
    true = Mixture.full([0.995, 0.005], [[0.0, 0.0], [30.0, 0.0]], [np.eye(2)] * 2)
    x = np.concatenate([np.asarray(two.sample(1990, key=0)), 30 * np.eye(2)[:1].repeat(10, 0)])
    draws = EvaluatedDraws(x, np.asarray(true.log_prob(x)), np.asarray(two.log_prob(x)))
    assert not any("importance sampling" in r for r in diagnose(two, draws, SEARCHED).reasons)


def test_moments_that_are_off_are_named_and_others_are_not():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 4)) * [1, 1, 1.3, 1] + [0, 0.4, 0, 0]
    q = stats.norm.logpdf(x, loc=[0, 0.4, 0, 0], scale=[1, 1, 1.3, 1]).sum(1)
    weights = np.exp(stats.norm.logpdf(x).sum(1) - q)
    found = unreliable_moments(variables_at(None, x), weights / weights.mean())
    assert [(m.name, m.moment) for m in found] == [("x[1]", "mean"), ("x[2]", "sd")]
    assert found[0].change == pytest.approx(-0.4, abs=0.08)
    assert found[1].change == pytest.approx(1 / 1.3, abs=0.05)
    heavy = unreliable_moments(variables_at(None, rng.standard_cauchy((4000, 1))), np.ones(4000))
    assert {m.moment for m in heavy} == {"mean", "sd"}
    assert all(m.k_hat > 0.7 for m in heavy)
    assert unreliable_moments(variables_at(None, rng.normal(size=(2000, 50))), np.ones(2000)) == ()


def test_permuted_modes_are_label_switching():
    a = np.array([3.0, 0.0, -2.0])
    means = [a, a[[1, 0, 2]], a[[2, 1, 0]], np.full(3, 5.0)]
    mixture = Mixture.full([0.3, 0.3, 0.2, 0.2], means, [0.04 * np.eye(3)] * 4)
    x = np.asarray(mixture.sample(4000, key=0))
    log_q = np.asarray(mixture.log_prob(x))
    found = diagnose(mixture, EvaluatedDraws(x, log_q, log_q), SEARCHED)
    assert len(found.label_switching.modes) == 1
    means_found = [np.sort(found.modes[i].mean) for i in found.label_switching.modes[0]]
    assert len(means_found) == 3
    np.testing.assert_allclose(means_found, np.tile(np.sort(a), (3, 1)), atol=1e-6)
    assert "label switching: modes " in str(found)
    shifted = Mixture.full([0.5, 0.5], [a, a + 5], [0.04 * np.eye(3)] * 2)
    x = np.asarray(shifted.sample(4000, key=0))
    log_q = np.asarray(shifted.log_prob(x))
    assert diagnose(shifted, EvaluatedDraws(x, log_q, log_q)).label_switching is None


def test_widths_must_be_permuted_too():
    rng = np.random.default_rng(0)
    one = np.concatenate([rng.normal([0, 5], [1, 0.2], (500, 2)), rng.normal([5, 0], [1, 0.2], (500, 2))])
    inside = np.repeat(np.eye(2), 500, axis=0)
    assert label_switching(variables_at(None, one), inside) is None
    two = np.concatenate([one[:500], one[:500, ::-1]])
    assert label_switching(variables_at(None, two), inside).modes == ((0, 1),)


# Models ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exchangeable():
    """Two means in either order, their widths with them."""
    numpyro = pytest.importorskip("numpyro")
    dist = numpyro.distributions

    def model(y=None):
        mu = numpyro.sample("mu", dist.Normal(0, 10).expand([2]))
        sigma = numpyro.sample("sigma", dist.LogNormal(0, 1).expand([2]))
        share = numpyro.sample("share", dist.Dirichlet(jnp.ones(2)))
        mixed = dist.MixtureSameFamily(dist.Categorical(share), dist.Normal(mu, sigma))
        numpyro.sample("y", mixed, obs=y)

    rng = np.random.default_rng(0)
    y = jnp.asarray(np.concatenate([rng.normal(-3, 0.5, 40), rng.normal(3, 1.5, 80)]))
    return natmix.fit(model, model_args=(y,), max_evaluations=30_000, seed=1, progress=False)


def test_modes_of_a_model_have_names_and_its_labels_switch(exchangeable):
    found = exchangeable.diagnosis
    assert len([m for m in found.modes if m.share > 0.01]) == 2, str(found)
    assert found.label_switching is not None, str(found)
    assert set(found.label_switching.variables) >= {"mu", "sigma", "share"}
    assert re.search(r"mu\[[01]\] -?[23]\.\d+", str(found))
    assert "and share" in str(found)


def test_the_chance_of_a_new_mode_is_printed():
    hits = ModeSearch((), 2, 120, 1000, hits=(60, 60))
    text = str(diagnose(*gaussian(1.0), hits))
    assert "chance that another run finds a new mode: below 3%; narrow modes are not covered by this" in text
    assert "chance" not in str(diagnose(*gaussian(1.0), SEARCHED))


def test_trust_asks_for_a_search_for_narrow_modes():
    searched = ModeSearch((), 1, 120, 9000, hits=(120,), near_probes=2000)
    enough = diagnose(*gaussian(1.0), searched._replace(covered_width=0.081, narrow_goal=0.1))
    assert enough.verdict == "trust"
    assert "modes less than 0.081 times as wide as those known are not covered" in str(enough)
    few = diagnose(*gaussian(1.0), searched._replace(covered_width=0.3, narrow_goal=0.21))
    assert few.verdict == "unsearched"
    assert "covers modes next to the known ones down to 0.3 times their widths" in few.reasons[1]
    assert str(few).startswith("GOOD AT THE MODES IT HAS: a search found no other mode, but it did not cover")
    none = diagnose(*gaussian(1.0), searched._replace(near_probes=0, narrow_goal=0.1))
    assert none.verdict == "unsearched"
    assert "has not looked for narrow modes" in none.reasons[1]


# Advice ---------------------------------------------------------------------------------------------


def calls(text):
    """The calls that a verdict prints."""
    return re.findall(r"(?:result|natmix)\.[\w.]+\((?:[^()]|\([^()]*\))*\)", text)


def possible_calls():
    """All calls that a verdict of any kind prints for any remedies, numbers aside."""
    wide, heavy = gaussian(1.5, n=300), gaussian(0.4, n=2000)
    exact, few = gaussian(1.0), gaussian(1.0, n=30)
    cut = dataclasses.replace(wide[1], log_target=np.where(np.arange(300) < 9, -np.inf, wide[1].log_target))
    far = EvaluatedDraws(wide[1].x, wide[1].log_target - 1e20, wide[1].log_mixture)
    hidden = Mixture.full([1.0], [[0.0]], [[[1.0]]]), student(300, 1, 1, 1.0, 0)
    cases = [wide, heavy, exact, few, (wide[0], cut), (wide[0], far), hidden, gaussian(0.75, n=100)]
    found = set()
    for evaluate, search, explore, float64 in itertools.product([True, False], repeat=4):
        remedies = Remedies(evaluate, search, explore, float64)
        for mixture, draws in cases:
            for mode_search in (None, SEARCHED):
                text = str(diagnose(mixture, draws, mode_search, remedies=remedies))
                found |= {re.sub(r"samples=[\d_]+", "samples=N", call) for call in calls(text)}
    return found


def slope(x):
    return -x


@pytest.fixture(scope="module")
def fitted():
    return natmix.fit(lambda x: -0.5 * x @ x, dim=2, max_evaluations=12_000, elbo_samples=300, progress=False)


def results(fitted, tmp_path):
    """One result of every kind of verdict, and targets of every kind."""
    plain = HostTarget(lambda x: -0.5 * np.sum(x**2, axis=1), 2, batched=True)
    noisy = JaxTarget(lambda key, x: -0.5 * x @ x + 0.01 * jax.random.normal(key), 2, stochastic=True)
    wide, draws = gaussian(1.5, n=300)
    narrow, few = gaussian(0.4, n=300)
    path = tmp_path / "fit.safetensors"
    fitted.save(path)
    changes: list[dict[str, Any]] = [
        {},
        {"target": plain},
        {"target": noisy},
        {"target": HostTarget(plain.fn, 2, batched=True, gradient=slope)},
        {"mixture": wide, "draws": draws},
        {"mixture": wide, "draws": draws, "target": plain},
        {"mixture": wide, "draws": draws, "target": None},
        {"mixture": narrow, "draws": few},
        {"draws": gaussian(1.0, n=30)[1]},
        {"draws": gaussian(1.0, n=30)[1], "target": None},
        {"start": None},
        {"draws": gaussian(0.75, n=100)[1], "mixture": narrow},
    ]
    return [natmix.Result.load(path), *(dataclasses.replace(fitted, **c) for c in changes)]


def test_advice_can_be_run_as_printed(fitted, tmp_path):
    run = set()
    another = natmix.fit(lambda x: -0.5 * x @ x, dim=2, max_iterations=3, seed=1, progress=False)
    for result in results(fitted, tmp_path):
        done = set()
        for diagnosis in (result.diagnosis, result.diagnose(search=0, explore=0)):
            for call in calls(str(diagnosis)):
                if call in done:
                    run.add((call, diagnosis.verdict))
                    continue
                done.add(call)
                names = {
                    "result": result,
                    "natmix": natmix,
                    "another": another,
                    "path": tmp_path / "fit.safetensors",
                    "model": lambda x: -0.5 * x @ x,
                }
                eval(call, names)
                run.add((call, diagnosis.verdict))
    assert {verdict for _, verdict in run} >= {"unsearched", "proposal", "undecided"}
    printed = {re.sub(r"samples=[\d_]+", "samples=N", call) for call, _ in run}
    assert printed == possible_calls()
