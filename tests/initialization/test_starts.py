"""Initialisation: L-BFGS runs and their Gaussians, against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natmix
from natmix import HostTarget, JaxTarget, Mixture
from natmix.gaussians import DiagonalGaussians, FullGaussians
from natmix.initialization import STARTS, Setting
from natmix.initialization.clusters import cluster
from natmix.initialization.evaluator import BudgetSpentError, TargetEvaluator
from natmix.initialization.lbfgs import LbfgsPath, lbfgs_run
from natmix.initialization.pathfinder import PathGaussian, best_gaussian, in_mode, pathfinder
from natmix.initialization.region import Region
from natmix.initialization.tempered import tempered_samples

jax.config.update("jax_enable_x64", True)

RNG = np.random.default_rng(0)
D = 6
SCALES = np.logspace(-3, 3, D)
MEAN = SCALES * RNG.normal(size=D) * 5
ROTATION = np.linalg.qr(RNG.normal(size=(D, D)))[0]
COVARIANCE = (SCALES[:, None] * (0.5 * ROTATION @ np.diag(np.linspace(0.2, 2, D)) @ ROTATION.T)) * SCALES
COVARIANCE = 0.5 * (COVARIANCE + COVARIANCE.T)
PRECISION = np.linalg.inv(COVARIANCE)


def unscaled(x):
    """A Gaussian whose coordinates differ by six orders of magnitude."""
    return -0.5 * (x - MEAN) @ PRECISION @ (x - MEAN)


LOG_Z = 0.5 * (D * np.log(2 * np.pi) + np.linalg.slogdet(COVARIANCE)[1])


def relative(covariance):
    """To the scales of the coordinates."""
    return covariance / np.outer(SCALES, SCALES)


def values(fn=unscaled, dim=D, most=None):
    return TargetEvaluator(JaxTarget(fn, dim), jax.random.key(0), jnp.dtype(float), most)


def test_a_point_belongs_to_a_path_by_its_distance_in_standard_deviations():
    C = np.array([[4.0, 1.9], [1.9, 1.0]]) * 1e-8
    path = PathGaussian(np.ones(2), C, 0.0)
    for distance, inside in ((4.3, True), (4.5, False)):
        x = 1 + distance * np.linalg.cholesky(C) @ np.array([0.6, 0.8])
        assert in_mode(x, path) == inside
    singular = PathGaussian(np.ones(2), np.outer([1.0, 3.0], [1.0, 3.0]), 0.0)
    assert in_mode(np.array([2.0, 4.0]), singular)
    assert not in_mode(np.array([1.5, 2.4]), singular)


def test_lucky_samples_seldom_make_a_rough_gaussian_better_than_the_exact_one():
    """Without its standard error the best estimate is that of a rough one in up to 48 of 60 cases."""
    path = lbfgs_run(values(), np.zeros(D))
    found = [best_gaussian(values(), path, np.random.default_rng(seed)) for seed in range(60)]
    rough = [not np.allclose(relative(g.covariance), relative(COVARIANCE), atol=1e-3) for g in found]
    assert sum(rough) <= 6
    for gaussian in found:
        np.testing.assert_allclose((gaussian.mean - MEAN) / SCALES, 0, atol=0.05)


def test_a_gaussian_is_found_whatever_its_scales():
    found = pathfinder(values(), np.stack([np.zeros(D), np.ones(D)]), seed=0)
    for path in found:
        np.testing.assert_allclose((path.mean - MEAN) / SCALES, 0, atol=1e-5)
        np.testing.assert_allclose(relative(path.covariance), relative(COVARIANCE), rtol=1e-3, atol=1e-5)
        assert path.elbo == pytest.approx(LOG_Z, abs=1e-4)


def test_paths_to_one_point_share_a_gaussian():
    starts = np.array([[19.0, 18.0], [18.0, 19.0]])
    alone, path, together = (values(two, 2) for _ in range(3))
    pathfinder(alone, starts[:1], seed=0)
    lbfgs_run(path, starts[1])
    (found,) = pathfinder(together, starts, seed=0)
    assert together.evaluations == alone.evaluations + path.evaluations
    np.testing.assert_allclose(found.mean, 20, atol=1e-4)
    apart = pathfinder(values(two, 2), np.array([[19.0, 18.0], [-19.0, -18.0], [18.0, 19.0]]), seed=0)
    np.testing.assert_allclose([g.mean for g in apart], [[20, 20], [-20, -20]], atol=1e-4)


def test_a_path_leads_upwards():
    v = values()
    path = lbfgs_run(v, np.zeros(D))
    heights = [float(unscaled(x)) for x in path.x]
    assert np.all(np.diff(heights) > 0)
    np.testing.assert_allclose(path.gradient, jax.vmap(jax.grad(unscaled))(jnp.asarray(path.x)), rtol=1e-6)
    assert v.evaluations >= len(path.x)


def test_the_best_gaussian_of_a_funnel_is_not_at_its_end():
    """log p rises without bound into the neck of a funnel: the end of the path is no approximation."""

    def funnel(x):
        return -0.5 * x[0] ** 2 / 9 - 0.5 * jnp.sum(x[1:] ** 2) * jnp.exp(-x[0]) - 0.5 * 9 * x[0]

    v = values(funnel, 10)
    path = best_gaussian(v, lbfgs_run(v, np.concatenate([[3.0], np.ones(9)])), np.random.default_rng(0))
    assert np.isfinite(path.elbo)
    end = lbfgs_run(values(funnel, 10), np.concatenate([[3.0], np.ones(9)])).x[-1]
    assert path.mean[0] > end[0] + 1


def test_a_wall_is_turned_away_from():
    def walled(x):
        return jnp.where(x[0] > 0, jnp.log(jnp.maximum(x[0], 1e-300)) - x[0], -jnp.inf) - x[1] ** 2

    path = lbfgs_run(values(walled, 2), np.array([3.0, 1.0]))
    np.testing.assert_allclose(path.x[-1], [1, 0], atol=1e-3)


def test_nowhere_to_go():
    flat = lbfgs_run(values(lambda x: 0.0 * x[0], 2), np.ones(2))
    np.testing.assert_array_equal(flat.x, [[1, 1]])
    path = best_gaussian(values(lambda x: 0.0 * x[0], 2), flat, np.random.default_rng(0))
    assert path.elbo == -np.inf
    lost = lbfgs_run(values(lambda x: jnp.nan * x[0], 2), np.ones(2))
    assert isinstance(lost, LbfgsPath)


def test_evaluations_are_counted_and_limited():
    full = values()
    pathfinder(full, np.zeros((3, D)), seed=0)
    for most in (1, 10, 50, full.evaluations - 1):
        limited = values(most=most)
        pathfinder(limited, np.zeros((3, D)), seed=0)
        assert limited.evaluations <= most
    with pytest.raises(BudgetSpentError):
        lbfgs_run(values(most=0), np.zeros(D))


def two(x):
    return jnp.logaddexp(-0.5 * jnp.sum((x - 20) ** 2), np.log(3) - 0.5 * jnp.sum((x + 20) ** 2 / 0.25))


@pytest.mark.parametrize("components", [None, 1, 2])
def test_several_modes_become_several_components(components):
    setting = Setting(
        JaxTarget(two, 2), Region(scale=20.0), jax.random.key(3), float, FullGaussians, components
    )
    initial = STARTS["pathfinder"].initialise(setting)
    K = 2 if components is None else components
    assert initial.mixture.num_components == K
    assert initial.evaluations > 0
    if K == 2:
        order = np.argsort(np.asarray(initial.mixture.means)[:, 0])
        np.testing.assert_allclose(
            np.asarray(initial.mixture.means)[order], [[-20, -20], [20, 20]], atol=1e-2
        )
        # Masses 3 * 0.25 and 1.
        np.testing.assert_allclose(np.asarray(initial.mixture.weights)[order], [3 / 7, 4 / 7], atol=0.15)
    np.testing.assert_allclose(initial.prior.covariance(), 400 * np.eye(2))  # the region that was named


def test_without_a_region_components_are_sought_around_what_was_found():
    setting = Setting(JaxTarget(unscaled, D), Region(), jax.random.key(0), float, FullGaussians)
    initial = STARTS["pathfinder"].initialise(setting)
    found = relative(np.asarray(initial.prior.covariance()))
    np.testing.assert_allclose(found, 4 * relative(COVARIANCE), atol=0.15)
    diagonal = STARTS["pathfinder"].initialise(setting._replace(family=DiagonalGaussians))
    assert diagonal.mixture.covariance_family == diagonal.prior.covariance_family == "diagonal"


@pytest.mark.parametrize("host", [False, True])
def test_a_fit_of_an_unscaled_target(host):
    target = JaxTarget(unscaled, D)
    if host:
        gradient = jax.jit(jax.vmap(jax.grad(unscaled)))
        target = HostTarget(  # type: ignore[assignment]
            lambda x: -0.5 * np.einsum("ni,ij,nj->n", x - MEAN, PRECISION, x - MEAN),
            D,
            gradient=lambda x: np.asarray(gradient(x)),
            batched=True,
        )
    result = natmix.fit(target, start="pathfinder", algorithm="semtron", max_iterations=10, progress=False)
    assert result.elbo.value == pytest.approx(LOG_Z, abs=0.05)
    assert result.counts.start_evaluations > 0
    assert result.counts.evaluations >= result.counts.start_evaluations + result.counts.training_evaluations
    assert result.settings["start"] == "pathfinder"


def test_limits_hold_with_a_start():
    result = natmix.fit(
        unscaled, D, start="pathfinder", algorithm="semtron", max_evaluations=4000, progress=False
    )
    assert result.counts.evaluations <= 4000


STANDARD = natmix.Mixture.full([1.0], np.zeros((1, D)), np.eye(D)[None])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"start": "nowhere"}, "must be one of region, pathfinder"),
        (
            {
                "start": "pathfinder",
                "init_mixture": natmix.Mixture.full([1.0], np.zeros((1, D)), np.eye(D)[None]),
            },
            "not both",
        ),
        ({"start": "pathfinder", "algorithm": "zemydux"}, None),
    ],
)
def test_starts_that_make_no_sense(arguments, words):
    if words is None:  # gradients are there, if not for the algorithm
        assert natmix.fit(unscaled, D, max_iterations=1, progress=False, **arguments).counts.start_evaluations
        return
    with pytest.raises(ValueError, match=words):
        natmix.fit(unscaled, D, **arguments)


def test_pathfinder_needs_gradients():
    target = HostTarget(lambda x: -0.5 * np.sum(x**2, axis=-1), D, batched=True)
    with pytest.raises(ValueError, match="start='pathfinder' needs gradients"):
        natmix.fit(target, start="pathfinder")


# Tempered warm-up -----------------------------------------------------------------------------------


def region(scale, dim):
    return Mixture.full([1.0], np.zeros((1, dim)), [scale**2 * np.eye(dim)])


@pytest.mark.parametrize("gradients", [True, False])
def test_points_of_a_warm_up_are_those_of_the_target(gradients):
    """Two modes with the right shares, each with the right spread."""
    both = Mixture.full([0.3, 0.7], [[-4.0, 0.0, 0.0], [4.0, 1.0, 0.0]], [np.eye(3), 0.25 * np.eye(3)])
    target = JaxTarget(both.log_prob, 3, values_only=not gradients)
    v = TargetEvaluator(target, jax.random.key(0), jnp.dtype(float))
    shares = []
    for seed in range(6):
        samples = tempered_samples(v, region(5.0, 3), seed, gradients=gradients)
        assert samples.inverse_temperature == 1
        right = samples.x[samples.x[:, 0] > 0]
        shares.append(len(right) / len(samples.x))
        np.testing.assert_allclose(right.mean(axis=0), [4, 1, 0], atol=0.25)
        np.testing.assert_allclose(right.std(axis=0), 0.5, rtol=0.35)
    assert np.mean(shares) == pytest.approx(0.7, abs=0.12)


def test_a_warm_up_keeps_to_its_evaluations():
    v = TargetEvaluator(
        JaxTarget(lambda x: -50 * jnp.sum((x - 3) ** 2), 4), jax.random.key(0), jnp.dtype(float), 2500
    )
    samples = tempered_samples(v, region(1.0, 4), 0, gradients=True)
    assert 200 <= v.evaluations <= 2500
    assert 0 < samples.inverse_temperature < 1
    nowhere = TargetEvaluator(
        JaxTarget(lambda x: -jnp.inf * x[0] ** 2, 2), jax.random.key(0), jnp.dtype(float)
    )
    assert tempered_samples(nowhere, region(1.0, 2), 0, gradients=True) is None


def test_clusters_are_found_and_counted():
    rng = np.random.default_rng(0)
    scales = np.array([1e-3, 1e4])
    x = np.concatenate([rng.normal(size=(300, 2)), np.array([8, 3]) + rng.normal(size=(100, 2))]) * scales
    found = cluster(x, 8, rng)
    order = np.argsort(-found.weights)
    np.testing.assert_allclose(found.weights[order], [0.75, 0.25], atol=0.02)
    np.testing.assert_allclose(found.means[order] / scales, [[0, 0], [8, 3]], atol=0.3)
    np.testing.assert_allclose(np.sqrt(found.covariances[order, 0, 0]) / scales[0], 1, rtol=0.15)
    assert len(cluster(x[:300], 8, rng).weights) == 1
    assert len(cluster(x, 1, rng).weights) == 1


@pytest.mark.parametrize("host", [False, True])
def test_a_fit_starts_with_a_warm_up(host):
    """Modes that L-BFGS runs from the middle would find too, with their weights; also without gradients."""
    both = Mixture.full([0.25, 0.75], [[-5.0, 0.0], [5.0, 0.0]], [np.eye(2), np.eye(2)])

    def fn(x):
        a = np.exp(-0.5 * ((x[:, 0] + 5) ** 2 + x[:, 1] ** 2))
        b = np.exp(-0.5 * ((x[:, 0] - 5) ** 2 + x[:, 1] ** 2))
        return np.log(0.25 * a + 0.75 * b + 1e-300)

    target = HostTarget(fn, 2, batched=True) if host else JaxTarget(both.log_prob, 2)
    found = natmix.fit(
        target,
        start="tempered",
        algorithm="zemtron" if host else "semtron",
        init_scale=4.0,
        max_iterations=1,
        max_evaluations=40_000,
        progress=False,
    )
    assert 200 < found.counts.start_evaluations <= 10_000
    assert found.settings["start"] == "tempered"
    share = float(np.sum(np.asarray(found.mixture.weights)[np.asarray(found.mixture.means)[:, 0] > 0]))
    assert share == pytest.approx(0.75, abs=0.15)
    with pytest.raises(ValueError, match="not both"):
        natmix.fit(target, start="tempered", init_mixture=both)
