"""Against vectors that gmmvi 1.1 computed (tests/reference/README.md lists its deviations)."""

import functools
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_batch

from natmix import Mixture
from natmix.gaussians import DiagonalGaussians, FullGaussians
from natmix.kernels.importance_weights import effective_sample_size
from natmix.modules.component_adaptation.vips import best_candidate
from natmix.modules.component_stepsizes import (
    AdaptiveComponentStepsize,
    DecayingComponentStepsize,
    FixedComponentStepsize,
)
from natmix.modules.component_stepsizes.base import Rewards
from natmix.modules.component_updaters import DirectComponentUpdater, Iblr, TrustRegionComponentUpdater
from natmix.modules.expectations import expected_log_ratios
from natmix.modules.ng_estimators import More, Stein
from natmix.modules.per_component import PerComponent
from natmix.modules.records import Draws, NaturalGradient
from natmix.modules.sample_selectors.reuse import Ring, RingUpdate
from natmix.modules.weight_stepsizes import (
    AdaptiveWeightStepsize,
    DecayingWeightStepsize,
    FixedWeightStepsize,
)
from natmix.modules.weight_updaters import DirectWeightUpdater, TrustRegionWeightUpdater
from tests.modules.test_component_adaptation import replay

V = dict(np.load(Path(__file__).parent / "reference" / "vectors.npz"))
FULL = ["d2k1", "d2k3", "d5k3", "d5k4"]
CASES = [*FULL, "d2k3diag", "d5k3diag"]
ONE = jnp.asarray(1.0)
PENALTY = jnp.asarray(30.0)


@functools.cache
def case(name):
    """The mixture and batch of a case, in float64."""
    get = lambda key: V[f"case.{name}.{key}"].astype(np.float64)  # noqa: E731
    make = Mixture.diagonal if name.endswith("diag") else Mixture.full
    covs = get("covs")
    mixture = make(
        get("weights"), get("means"), np.diagonal(covs, axis1=1, axis2=2) if name.endswith("diag") else covs
    )
    source = V[f"case.{name}.mapping"]
    batch = make_batch(
        mixture, get("x"), get("log_target"), get("grad_target"), get("log_background"), source
    )
    return mixture, batch


def close(got, want, tolerance=2e-5):
    """Equal to float32 accuracy, relative to the largest entry."""
    want = np.asarray(want, dtype=float)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * np.abs(want).max())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("setting", ["S.sn", "S.std", "S.own", "S.sn.T2", "Z.sn", "Z.std", "Z.sn.T2"])
def test_natural_gradients(name, setting):
    if f"est.{name}.{setting}.G" not in V:
        assert name.endswith("diag")
        assert setting.startswith("Z")
        pytest.skip("gmmvi raises for MORE with diagonal covariances")
    mixture, batch = case(name)
    kind, weights = setting.split(".")[:2]
    flags = {"self_normalised": weights != "std", "own_samples_only": weights == "own"}
    option = Stein(**flags) if kind == "S" else More(**flags)
    T = jnp.asarray(2.0 if setting.endswith("T2") else 1.0)
    ng = option.estimate(option.init(mixture), mixture, batch, T, PENALTY)  # type: ignore[arg-type]
    G = mixture.components.unpull_curvature(ng.curvature)
    close(G, V[f"est.{name}.{setting}.G"], 5e-5)
    close(mixture.components.unpull(ng.gradient), V[f"est.{name}.{setting}.g"], 5e-5)


@pytest.mark.parametrize("name", FULL)
@pytest.mark.parametrize("weights", ["sn", "std"])
def test_more_with_ridge(name, weights):
    mixture, batch = case(name)
    option = More(self_normalised=weights == "sn")
    # gmmvi's standard weights are not divided by n, so that its ridge acts as ridge / n there.
    ridge = V[f"est.{name}.ridges"] / (1 if weights == "sn" else len(batch.x))
    state = PerComponent(jnp.asarray(ridge, jnp.float64), jnp.asarray(1e-12))
    ng = option.estimate(state, mixture, batch, ONE, PENALTY)
    close(mixture.components.unpull_curvature(ng.curvature), V[f"est.{name}.Z.{weights}.ridge.G"], 5e-5)
    close(mixture.components.unpull(ng.gradient), V[f"est.{name}.Z.{weights}.ridge.g"], 5e-5)


def natural_gradient(mixture, name, setting):
    key = f"upd.{name}.{setting}.G"
    G = V[key] if key in V else V[f"upd.{name}.G"]
    gaussians = mixture.components
    ok = jnp.ones(mixture.num_components, bool)
    return NaturalGradient(
        gaussians.pull_curvature(jnp.asarray(G, jnp.float64)),
        gaussians.pull(jnp.asarray(V[f"upd.{name}.g"], jnp.float64)),
        ok,
    )


DIRECT_SETTINGS = [
    ("I", DirectComponentUpdater(), 1),
    ("I.fail", DirectComponentUpdater(), 1),
    ("Y.first", Iblr(), 0),
    ("Y.later", Iblr(), 1),
    ("Y.later.bad", Iblr(), 1),
]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("setting", "option", "updates"), DIRECT_SETTINGS, ids=[s[0] for s in DIRECT_SETTINGS]
)
def test_direct_and_iblr_updates(name, setting, option, updates):
    if f"upd.{name}.{setting}.means" not in V:
        assert name.endswith("diag")
        assert setting.startswith("I")
        pytest.skip("gmmvi raises for the direct update with diagonal covariances")
    mixture, _ = case(name)
    K = mixture.num_components
    step = jnp.asarray(V[f"upd.{name}.{setting}.stepsizes"], jnp.float64)
    new, ok = option.update(
        mixture.components, natural_gradient(mixture, name, setting), step, jnp.full(K, updates), ONE
    )
    assert ok.tolist() == V[f"upd.{name}.{setting}.success"].astype(bool).tolist()
    close(new.mean, V[f"upd.{name}.{setting}.means"])
    close(new.covariance(), V[f"upd.{name}.{setting}.covs"])


TRUST = [
    "T.small",
    "T.medium",
    "T.large",
    "T.medium.T2",
    "T.full.T2",
    "T.full.pos.T2",
    "T.cold",
    "T.cold.found",
]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("setting", TRUST)
def test_trust_region_updates(name, setting):
    """At gmmvi's eta the Gaussians agree; both steps keep the bound (its own within 10%)."""
    mixture, _ = case(name)
    gaussians, K = mixture.components, mixture.num_components
    ng = natural_gradient(mixture, name, setting)
    eta = jnp.asarray(V[f"upd.{name}.{setting}.eta"], jnp.float64)
    good = V[f"upd.{name}.{setting}.success"].astype(bool)
    at_eta, ok = DirectComponentUpdater().update(
        gaussians, ng, 1 / jnp.where(eta > 0, eta, 1), jnp.ones(K, int), ONE
    )
    assert bool(jnp.all(ok[good]))
    accuracy = 2e-3 if setting == "T.large" else 1e-4
    close(at_eta.mean[good], V[f"upd.{name}.{setting}.means"][good], accuracy)
    close(at_eta.covariance()[good], V[f"upd.{name}.{setting}.covs"][good], accuracy)
    bound = jnp.asarray(V[f"upd.{name}.{setting}.stepsizes"], jnp.float64)
    T = 2.0 if setting.endswith("T2") else 1.0
    ours, ok = TrustRegionComponentUpdater().update(gaussians, ng, bound, jnp.ones(K, int), jnp.asarray(T))
    assert bool(jnp.all(ok))
    make = FullGaussians.from_covariance
    from helpers import gaussian_kl

    kl = gaussian_kl(make(ours.mean, ours.covariance()), make(gaussians.mean, gaussians.covariance()))
    assert np.all(kl <= 1.001 * np.asarray(bound))
    theirs = V[f"upd.{name}.{setting}.kl"]
    assert np.all(theirs[good] <= 1.11 * np.asarray(bound)[good])
    # Ours is the longest step: never shorter than a step of theirs that keeps the bound, full step apart.
    kept = good & (theirs <= np.asarray(bound)) & (np.asarray(eta) >= T)
    assert np.all(kl[kept] >= theirs[kept] * 0.999)
    if setting.startswith("T.full"):
        close(ours.mean, V[f"upd.{name}.{setting}.means"], 1e-4)


SEVERAL = [f"{k}.{i}" for k in ("U.sn", "U.std") for i in range(2)]
SEVERAL += [f"{k}.{i}" for k in ("O.sn", "O.std") for i in range(3)] + ["U.sn.T2", "O.sn.T2"]
WEIGHTS = [(n, s) for n in CASES for s in (["U.sn", "U.std"] if n == "d2k1" else SEVERAL)]


@pytest.mark.parametrize(("name", "setting"), WEIGHTS)
def test_weights(name, setting):
    prefix = f"wgt.{name}.{setting}"
    mixture, batch = case(name)
    T = jnp.asarray(2.0 if setting.endswith("T2") else 1.0)
    E, _ = expected_log_ratios(mixture, batch, batch.log_components, T, setting.split(".")[1] == "sn")
    close(E, V[f"{prefix}.E"], 5e-5)
    close(T * mixture.log_weights + E, V[f"{prefix}.rewards"], 5e-5)
    stepsize = jnp.asarray(V[f"{prefix}.stepsize"], jnp.float64)
    if setting.startswith("U"):
        new = DirectWeightUpdater().update(mixture.log_weights, E, stepsize, T)
        close(jnp.exp(new), V[f"{prefix}.weights"], 5e-5)
        return
    new = np.exp(np.asarray(TrustRegionWeightUpdater().update(mixture.log_weights, E, stepsize, T)))
    old = np.asarray(mixture.weights)
    kl = np.sum(new * (np.log(new) - np.log(old)))
    assert kl <= 1.001 * float(stepsize)
    assert V[f"{prefix}.kl"] <= 1.11 * float(stepsize)
    if float(T) == 1:  # for T != 1 gmmvi solves another problem
        # Both lie on the same curve q exp(b E): the ratios of log changes are equal.
        ours, theirs = np.log(new / old), np.log(V[f"{prefix}.weights"] / old)
        ours, theirs = ours - ours[0], theirs - theirs[0]
        if np.abs(theirs).max() > 1e-4:
            scale = np.dot(ours, theirs) / np.dot(theirs, theirs)
            np.testing.assert_allclose(ours, scale * theirs, rtol=1e-3, atol=1e-3 * np.abs(ours).max())
            assert 0.9 < scale < 1.15


def test_weight_floor():
    old = jnp.asarray(V["wgt.floor.old_weights"], jnp.float64)
    new = DirectWeightUpdater().update(jnp.log(old), jnp.asarray(V["wgt.floor.E"], jnp.float64), ONE, ONE)
    np.testing.assert_allclose(new, V["wgt.floor.log_weights"], atol=0.01)  # gmmvi rounds the floor to -69.07


def test_fixed_stepsizes():
    rewards = Rewards(jnp.zeros(3), jnp.ones(3, int))
    got = FixedComponentStepsize(stepsize=float(V["step.F"][0])).update(None, rewards, jnp.ones(3, int))[1]
    np.testing.assert_allclose(got, V["step.F"], rtol=1e-6)
    _, step = FixedWeightStepsize(stepsize=float(V["step.X"][0])).update(None, ONE, jnp.asarray(3))
    np.testing.assert_allclose(V["step.X"], float(step), rtol=1e-6)


def test_new_components():
    """Entropies over 200 additions lie between those of model and prior; thresholds come in turn."""
    mixture, _ = case("d2k3")
    model = float(jnp.sum(mixture.weights * mixture.components.entropy()))
    np.testing.assert_allclose(model, V["add.entropy_model"], rtol=1e-5)
    wide = 0.5 * np.sum(np.log(2 * np.pi * math.e * V["add.initial_cov"]))
    low, high = sorted([wide, model])
    assert low - 1e-4 <= V["add.entropies"].min()
    assert V["add.entropies"].max() <= high + 1e-4
    cycle = V["add.cycle"]
    turn = np.concatenate([cycle[1:], cycle[:1]])
    np.testing.assert_allclose(V["add.cycle_used"], np.resize(turn, len(V["add.cycle_used"])))


def test_decaying_stepsizes():
    option = DecayingComponentStepsize(stepsize=float(np.ravel(V["step.D.initial"])[0]), exponent=0.55)
    counts = V["step.D.counts"]
    for row, want in zip(counts, V["step.D.stepsizes"], strict=True):
        rewards = Rewards(jnp.zeros(len(row)), jnp.ones(len(row), int))
        _, got = option.update(None, rewards, jnp.asarray(row))
        if np.ptp(np.ravel(V["step.D.initial"])) == 0:
            np.testing.assert_allclose(got, want, rtol=1e-5)
        else:
            scale = np.ravel(V["step.D.initial"]) / np.ravel(V["step.D.initial"])[0]
            np.testing.assert_allclose(got * scale, want, rtol=1e-5)
    weights = DecayingWeightStepsize(stepsize=float(V["step.G.initial"]), exponent=0.55)
    got = [float(weights.update(None, ONE, jnp.asarray(n))[1]) for n in range(len(V["step.G.stepsizes"]))]  # type: ignore[assignment]
    np.testing.assert_allclose(got, V["step.G.stepsizes"], rtol=1e-5)


@pytest.mark.parametrize("group", ["step.R", "step.R.outside"])
def test_adaptive_component_stepsizes_from_the_second_record_on(group):
    """gmmvi also adapts before two records exist; from there on each step follows from the last."""
    low, high, up, down = (float(v) for v in V["step.limits"])
    rewards, steps = V[f"{group}.rewards"], V[f"{group}.stepsizes"]
    option = AdaptiveComponentStepsize(min_stepsize=low, max_stepsize=high, increase=up, decrease=down)
    row_type = type(option.init(case("d2k3")[0]).value)
    for i in range(2, len(rewards) + 1):
        state = PerComponent(
            row_type(jnp.asarray(steps[i - 1]), jnp.asarray(rewards[i - 2])), row_type(ONE, ONE)
        )
        K = rewards.shape[1]
        _, got = option.update(state, Rewards(jnp.asarray(rewards[i - 1]), jnp.full(K, i)), jnp.full(K, i))
        np.testing.assert_allclose(got, steps[i], rtol=1e-5)


def test_adaptive_weight_stepsizes():
    low, high, up, down = (float(v) for v in V["step.limits"])
    judged, steps = V["step.N.judged_on"], V["step.N.stepsizes"]
    option = AdaptiveWeightStepsize(min_stepsize=low, max_stepsize=high, increase=up, decrease=down)
    kind = type(option.init(case("d2k3")[0]))
    for i in range(2, len(steps)):
        state = kind(jnp.asarray(steps[i - 1]), jnp.asarray(judged[i - 1]))
        _, got = option.update(state, jnp.asarray(judged[i]), jnp.asarray(i))
        np.testing.assert_allclose(got, steps[i], rtol=1e-5)


@pytest.mark.parametrize("n", [n for n in V["smp.newest.n"].tolist() if n <= len(V["smp.x"])])
def test_background_of_the_newest_samples(n):
    x, got = newest_samples(n)
    want = V[f"smp.newest.{n}.log_background"]
    order = np.argsort(np.asarray(got))
    np.testing.assert_allclose(np.asarray(got)[order], np.sort(want), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(recalled(x, n), got, rtol=1e-9)


def recalled(x, n):
    """The same by a ring in which two generations of three Gaussians were remembered."""
    means, covs = (jnp.asarray(V[f"smp.gauss_{k}"], jnp.float64) for k in ("means", "covs"))
    drawn = V["smp.mapping"]
    generations = [Mixture.full([1, 1, 1], means[g], covs[g]) for g in (slice(0, 3), slice(3, 6))]
    ring = Ring.empty(generations[0], 3 * len(drawn), 4, False)
    everything = jnp.asarray(V["smp.x"], jnp.float64)
    for i, mixture in enumerate(generations):
        rows = np.flatnonzero(drawn // 3 == i)
        ring = remembered(ring, i, mixture, everything[rows], drawn[rows] % 3)
    old = ring.recall(generations[1], jnp.asarray(n), jnp.asarray(2))
    got = np.asarray(old.log_mass[:n] - np.log(n))[::-1]
    np.testing.assert_allclose(old.x[:n][::-1], x)
    return got


def remembered(ring, iteration, mixture, x, source):
    iteration, count = jnp.asarray(iteration), jnp.asarray(len(x))
    old = ring.recall(mixture, jnp.asarray(ring.x.shape[0]), iteration)
    number = jnp.bincount(jnp.asarray(source), length=mixture.num_components)
    draws = Draws(x, jnp.asarray(source, jnp.int32), number, count)
    log_components = mixture.component_log_prob(x)
    own = jnp.take_along_axis(log_components, draws.source[:, None], axis=1)[:, 0]
    _, log_sums = ring.background_log_density(x, old.used, own, count)
    new = RingUpdate(draws, jnp.zeros(len(x)), None, jnp.ones(len(x), bool), log_components, log_sums)
    return ring.push(old, new, mixture.components, iteration)


def newest_samples(n):
    """The n newest stored samples and their background log density."""
    x = jnp.asarray(V["smp.x"], jnp.float64)[-n:]
    counts = np.bincount(V["smp.mapping"][-n:], minlength=6)
    background = Mixture.full(counts, V["smp.gauss_means"].astype(float), V["smp.gauss_covs"].astype(float))
    return x, background.log_prob(x)


def test_effective_sample_sizes():
    mixture, _ = case("d2k3")
    for i in np.flatnonzero(V["smp.M.reused"]):
        x, log_z = newest_samples(int(V["smp.M.reused"][i]))
        per_component = effective_sample_size(mixture.component_log_prob(x) - log_z[:, None])
        np.testing.assert_allclose(per_component, V["smp.M.n_eff"][i], rtol=1e-4)
        wanted = np.maximum(1, V["smp.settings"][i][0] - np.floor(V["smp.M.n_eff"][i]))
        np.testing.assert_allclose(V["smp.M.drawn"][i], wanted)
    for i in np.flatnonzero(V["smp.P.reused"]):
        x, log_z = newest_samples(int(V["smp.P.reused"][i]))
        got = effective_sample_size(mixture.log_prob(x) - log_z)
        np.testing.assert_allclose(got, V["smp.P.n_eff"][i].item(), rtol=1e-4)


def test_chosen_candidates():
    mixture, _ = case("d2k3")
    for x, log_target, d, chosen in zip(
        V["add.candidates"], V["add.log_target"], V["add.thresholds"], V["add.chosen"], strict=True
    ):
        mean, _, _ = best_candidate(
            mixture,
            jnp.asarray(x, jnp.float64),
            jnp.asarray(log_target, jnp.float64),
            jnp.ones(len(x), bool),
            jnp.asarray(float(d)),
        )
        np.testing.assert_allclose(mean, x[int(chosen)])


@pytest.mark.parametrize("del_iters", [9, 30])
def test_deletions(del_iters):
    """Decisions on whole histories; gmmvi leaves out the newest weight, natmix does not."""
    group = f"del.{del_iters}"
    rewards, weights, deleted = (V[f"{group}.{k}"] for k in ("rewards", "weights", "deleted"))
    w = 2 * (del_iters // 3)
    position = np.arange(w) - w // 2
    kernel = np.exp(-0.5 * (position / (del_iters / 8)) ** 2)
    np.testing.assert_allclose(V[f"{group}.kernel"], kernel / kernel.sum(), rtol=1e-5)
    for label, r, q, want in zip(V[f"{group}.labels"], rewards, weights, deleted, strict=True):
        if label == "weight spike 1":
            continue  # the newest weight: gmmvi does not look at it
        length = r.shape[1]
        records = np.maximum(np.arange(1, length + 1)[:, None] - np.isnan(r).sum(axis=1), 0)
        history = np.where(np.isnan(r), -1e30, r).T.astype(float)
        got = replay(history, q.T.astype(float), del_iters, records=records)[-1]
        assert got.tolist() == want.astype(bool).tolist(), label


def test_both_representations_are_covered():
    assert isinstance(case("d2k3diag")[0].components, DiagonalGaussians)
    assert jax.config.jax_enable_x64  # type: ignore[attr-defined]
