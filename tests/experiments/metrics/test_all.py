"""All metrics of a problem at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import random_mixture

from natmix import JaxTarget
from natmix.experiments.metrics import (
    METRICS,
    Metric,
    all_metrics,
    log_evidence,
    mmd_to_reference,
    neg_elbo,
    register,
)
from natmix.experiments.metrics.all import padded_mixture
from natmix.experiments.problems import load
from natmix.experiments.problems.base import InitialRegion, Problem
from natmix.experiments.references.store import save

FROM_MIXTURE = {
    "neg_elbo",
    "neg_elbo_se",
    "zero_share",
    "invalid_share",
    "entropy",
    "entropy_se",
    "log_evidence",
    "log_evidence_se",
    "reverse_ess",
}
FROM_TARGET = {"eubo", "eubo_se", "forward_ess", "sliced_wasserstein"}
P, Q = random_mixture(0, 2, 3), random_mixture(1, 3, 3, spread=1.0)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NATMIX_CACHE", str(tmp_path))
    return tmp_path / "references"


def problem(name="toy", sample=lambda n, *, key: P.sample(n, key=key), secondary=None):
    target = JaxTarget(P.log_prob, 3)
    start = InitialRegion.build(3, 0, 1, 1)
    return Problem(name, "", target, target, start, sample=sample, secondary=secondary or {})


def test_with_a_sampler_everything_is_there():
    seen = []

    def own(mixture, key):
        seen.append(key)
        return mixture.num_components

    values = all_metrics(problem(secondary={"own": own, "other": own}), Q, 0)
    assert set(values) == FROM_MIXTURE | FROM_TARGET | {"own", "other"}
    assert values.missing == {}
    assert all(type(v) is float and np.isfinite(v) for v in values.values())
    assert not jnp.array_equal(*map(jax.random.key_data, seen))  # type: ignore[arg-type]
    # The target is normalised: both bounds hold, and log Z is zero.
    assert -values["neg_elbo"] < 0 < values["eubo"]
    assert abs(values["log_evidence"]) < 4 * values["log_evidence_se"]


def test_the_truth_has_the_best_values():
    values = all_metrics(problem(), P, 0)
    assert values["neg_elbo"] == pytest.approx(0, abs=1e-12)
    assert values["eubo"] == pytest.approx(0, abs=1e-12)
    assert values["reverse_ess"] == pytest.approx(1)
    assert values["forward_ess"] == pytest.approx(1)
    assert values["sliced_wasserstein"] < all_metrics(problem(), Q, 0)["sliced_wasserstein"]


def test_without_samples_of_the_target():
    values = all_metrics(problem(sample=None), Q, 0)
    assert set(values) == FROM_MIXTURE
    assert values.missing == {}


def test_it_is_what_the_single_metrics_say():
    """Padding to a power of two changes nothing."""
    key = jax.random.split(jax.random.key(3), 4)[0]
    values = all_metrics(problem(), Q, 3)
    target = problem().reference
    assert values["neg_elbo"] == pytest.approx(neg_elbo(Q, target, key).value, rel=1e-12)
    assert values["log_evidence"] == pytest.approx(log_evidence(Q, target, key).value, rel=1e-10)
    x = Q.sample(2000, key=jax.random.split(key)[0])  # those of the others
    assert values["entropy"] == pytest.approx(-float(jnp.mean(Q.log_prob(x))), rel=1e-10)
    assert padded_mixture(Q).num_components == 4
    assert padded_mixture(P).num_components == 2
    assert all_metrics(problem(), random_mixture(5, 1, 3), 0)["entropy_se"] == 0


def test_a_missing_file_is_recorded_with_its_reason(cache):
    target = load("planar_robot_4")
    q, _ = target.start.mixture(jax.random.key(0), 3, jnp.result_type(float))
    values = all_metrics(target, q, 0)
    assert set(values) == FROM_MIXTURE | {"detected_modes"}
    assert set(values.missing) == {"eubo", "forward_ess", "sliced_wasserstein", "mmd"}
    assert all("natmix references planar_robot_4" in reason for reason in values.missing.values())


def test_other_errors_are_not_hidden():
    def broken(mixture, key):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        all_metrics(problem(secondary={"broken": broken}), Q, 0)


def test_reference_samples_stand_in_for_a_sampler(cache):
    target = load("planar_robot_4")
    samples = np.random.default_rng(0).normal(0, 0.2, (2500, 10))
    known = target.reference.evaluate(jax.random.key(0), jnp.asarray(samples[:8]), 8, False).log_density
    save("planar_robot_4", samples, {"log_density": np.asarray(known).tolist()})
    q, _ = target.start.mixture(jax.random.key(0), 2, jnp.result_type(float))
    values = all_metrics(target, q, 0)
    assert set(values) == FROM_MIXTURE | FROM_TARGET | {"mmd", "detected_modes"}
    assert values["mmd"] == pytest.approx(
        mmd_to_reference(
            "planar_robot_4", q, jax.random.fold_in(jax.random.split(jax.random.key(0), 4)[3], 0)
        )
    )


def test_reference_samples_of_another_target_are_not_used(cache):
    samples = np.random.default_rng(0).normal(0, 0.2, (2500, 10))
    save("planar_robot_4", samples, {"log_density": [0.0] * 8})
    target = load("planar_robot_4")
    q, _ = target.start.mixture(jax.random.key(0), 2, jnp.result_type(float))
    values = all_metrics(target, q, 0)
    assert "another target" in values.missing["eubo"]
    assert "eubo" not in values


def test_what_would_be_infinite_is_left_out_with_the_reason():
    values = all_metrics(load("stm3"), Q, 0)
    for name in FROM_TARGET - {"eubo_se"}:
        assert name not in values
        assert "variance" in values.missing[name]
    assert "eubo_se" not in values
    assert "log_evidence" in values


@pytest.fixture
def mean_norm():
    """A metric in one object, and one that needs samples of the target."""
    norm = Metric(("mean_norm",), lambda at: {"mean_norm": float(jnp.linalg.norm(at.mixture.mean()))})
    shift = Metric(
        ("mean_shift",),
        lambda at: {"mean_shift": float(np.abs(at.mixture.mean() - at.target_samples.mean(axis=0)).max())},
        needs_target_samples=True,
    )
    register(norm)
    register(shift)
    yield
    del METRICS["mean_norm"], METRICS["mean_shift"]


def test_a_second_metric_of_one_name_is_refused(mean_norm):
    before = dict(METRICS)
    for names in (("mean_norm",), ("another", "zero_share"), ("entropy",)):
        with pytest.raises(
            ValueError, match=rf"^There is a metric '{names[-1]}' already: choose another name\.$"
        ):
            register(Metric(names, lambda at: {}))
    assert register(METRICS["mean_norm"]) is METRICS["mean_norm"]
    assert before == METRICS


def test_a_registered_metric_is_measured(mean_norm):
    before = set(all_metrics(problem(), Q, 0)) - {"mean_norm", "mean_shift"}
    values = all_metrics(problem(), P, 0)
    assert set(values) == before | {"mean_norm", "mean_shift"}
    assert values["mean_norm"] == pytest.approx(float(jnp.linalg.norm(P.mean())))
    assert values["mean_shift"] < 0.5
    assert "mean_shift" not in all_metrics(problem(sample=None), P, 0)


def test_a_registered_metric_without_reference_samples_is_missing(mean_norm, cache):
    target = load("planar_robot_4")
    q, _ = target.start.mixture(jax.random.key(0), 3, jnp.result_type(float))
    values = all_metrics(target, q, 0)
    assert "natmix references planar_robot_4" in values.missing["mean_shift"]
    assert "mean_norm" in values


def test_every_metric_gives_the_numbers_it_names():
    values = set(all_metrics(problem(), Q, 0))
    named = {name for metric in METRICS.values() for name in metric.names}
    assert named <= values <= named | {f"{name}_se" for name in named}
