"""Densities that matter nothing are left out, and nothing else."""

import jax.numpy as jnp
import numpy as np
import pytest
from plans import native_only
from scipy.special import logsumexp

from natmix.gaussians import DiagonalGaussians, FullGaussians
from natmix.kernels import native
from natmix.kernels.importance_sums import effective_samples
from natmix.kernels.log_densities import relevant_log_prob
from natmix.kernels.sample_arrays import Background
from natmix.mixture import Mixture


class Spread:
    """Samples of components that are some widths apart, in order of the components."""

    def __init__(self, K: int, D: int, n: int, apart: float, dtype: type) -> None:
        rng = np.random.default_rng(K + D + n)
        mean = apart * rng.normal(size=(K, D))
        L = np.tril(0.2 * rng.normal(size=(K, D, D)) / D**0.5) + np.eye(D) * rng.uniform(0.7, 1.5, (K, D, 1))
        self.source = np.repeat(np.arange(K), n)
        self.x = mean[self.source] + np.einsum("nij,nj->ni", L[self.source], rng.normal(size=(K * n, D)))
        self.mixture = Mixture(
            jnp.asarray(np.log(rng.dirichlet(np.ones(K))), dtype),
            FullGaussians.from_scale_tril(jnp.asarray(mean, dtype), jnp.asarray(L, dtype)),
        )
        self.samples = jnp.asarray(self.x, dtype)
        self.exact = np.asarray(self.mixture.components.log_prob(self.samples))
        self.log_drawn = jnp.full(K, -np.log(K), dtype)

    def __call__(self, near: np.ndarray | None = None, **known: object) -> np.ndarray:
        near = jnp.asarray(self.source if near is None else near, jnp.int32)  # type: ignore[assignment]
        parts, weights = self.mixture.components, self.mixture.log_weights
        return np.asarray(relevant_log_prob(parts, self.samples, None, weights, near, **known))  # type: ignore[arg-type]


@pytest.fixture(params=[np.float32, np.float64], ids=["single", "double"])
def spread(request: pytest.FixtureRequest) -> Spread:
    return Spread(12, 20, 90, 3.0, request.param)


def background(of: Spread, log_components: np.ndarray) -> np.ndarray:
    return logsumexp(log_components - np.log(log_components.shape[1]), axis=1)


@native_only
def test_what_is_kept_is_exact_and_what_is_not_is_far_below(spread: Spread) -> None:
    got = spread(log_drawn=spread.log_drawn)
    kept = np.isfinite(got)
    np.testing.assert_array_equal(got[kept], spread.exact[kept])
    assert (got[~kept] == -np.inf).all()
    assert 1 / 12 <= kept.mean() < 0.5
    below = spread.exact - background(spread, spread.exact)[:, None]
    assert below[~kept].max() < -40
    mixture = logsumexp(spread.exact + np.asarray(spread.mixture.log_weights), axis=1)
    assert (spread.exact - mixture[:, None])[~kept].max() < -40


@native_only
@pytest.mark.parametrize("near", ["right", "another", "nonsense"])
def test_sums_keep_their_precision_whatever_the_hint(spread: Spread, near: str) -> None:
    hints = {"right": spread.source, "another": (spread.source + 1) % 12, "nonsense": spread.source * 7 - 30}
    log_z = jnp.asarray(background(spread, spread.exact), spread.samples.dtype)
    got = spread(hints[near], log_background=log_z)
    all_valid = Background(log_z, jnp.ones(log_z.shape, bool))
    n_eff, want = (effective_samples(jnp.asarray(a), all_valid) for a in (got, spread.exact))
    np.testing.assert_allclose(n_eff, want, rtol=10 * float(jnp.finfo(log_z.dtype).eps))
    log_weights = np.asarray(spread.mixture.log_weights)
    np.testing.assert_allclose(
        logsumexp(got + log_weights, axis=1), logsumexp(spread.exact + log_weights, axis=1), rtol=1e-6
    )


@native_only
def test_a_component_far_from_all_samples_keeps_its_densities(spread: Spread) -> None:
    far = spread.mixture.components.mean.at[5].set(100.0)
    components = FullGaussians.from_scale_tril(far, spread.mixture.components.scale_tril)  # type: ignore[attr-defined]
    spread.mixture = Mixture(spread.mixture.log_weights, components)
    exact = np.asarray(components.log_prob(spread.samples))
    elsewhere = np.flatnonzero(spread.source != 5)
    spread.samples, source = spread.samples[elsewhere], spread.source[elsewhere]
    got = spread(source, log_drawn=spread.log_drawn)
    np.testing.assert_array_equal(got[:, 5], exact[elsewhere, 5])
    assert np.isfinite(got[:, 5]).all()
    assert np.isinf(got).any()


@native_only
def test_a_light_component_does_not_hide_a_heavy_one(spread: Spread) -> None:
    """Where the nearest component has next to no weight, the mixture's density is that of others."""
    log_weights = spread.mixture.log_weights.at[3].set(-60.0)
    spread.mixture = Mixture(log_weights, spread.mixture.components)
    got = spread(log_drawn=spread.log_drawn)
    w = np.asarray(log_weights)
    np.testing.assert_allclose(logsumexp(got + w, axis=1), logsumexp(spread.exact + w, axis=1), rtol=1e-6)


@native_only
def test_absent_components_and_samples_that_are_no_numbers(spread: Spread) -> None:
    spread.mixture = Mixture(spread.mixture.log_weights.at[2].set(-jnp.inf), spread.mixture.components)
    spread.samples = spread.samples.at[100].set(jnp.nan)
    got = spread(log_drawn=spread.log_drawn)
    assert (got[:, 2] == -np.inf).all()
    present = np.arange(12) != 2
    assert np.isnan(got[100, present]).all()
    others = np.arange(len(got)) != 100
    kept = np.isfinite(got[others])
    np.testing.assert_array_equal(got[others][kept], spread.exact[others][kept])


@native_only
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_new_samples_meet_generations(dtype: type) -> None:
    """Of three generations one has lost some samples, and one is empty."""
    s = Spread(12, 20, 90, 1.0, dtype)
    parts = s.mixture.components
    counts = np.random.default_rng(0).integers(1, 9, 12).astype(float)
    counts[8:] = 0
    used = np.where(np.arange(12) < 4, counts // 2, counts)
    own = s.exact[np.arange(len(s.x)), s.source]
    m, W, c = parts.mean, parts.inverse_tril, parts.log_normaliser()  # type: ignore[attr-defined]
    drawn = (jnp.asarray(n, dtype) for n in (used, counts))
    mass, each = native.background_log_density(  # type: ignore[call-arg]
        s.samples,
        m,
        W,
        c,
        *drawn,  # type: ignore[arg-type]
        jnp.asarray(own, dtype),
        3,
        jnp.asarray(1000),
    )
    with np.errstate(divide="ignore"):
        want = logsumexp(s.exact + np.log(used), axis=1)
        by_generation = logsumexp((s.exact + np.log(counts)).reshape(-1, 3, 4), axis=2)
    near = by_generation > own[:, None] - 40
    np.testing.assert_allclose(
        np.where(near, each, 0)[:1000], np.where(near, by_generation, 0)[:1000], rtol=1e-5
    )
    matters = (want > own - 40)[:1000]
    assert matters.mean() > 0.5
    np.testing.assert_allclose(mass[:1000][matters], want[:1000][matters], rtol=1e-5)
    assert not np.any(mass[1000:])
    assert not np.any(each[1000:])
    assert (each[:1000, 2] == -np.inf).all()


@native_only
def test_samples_that_are_not_in_use_do_not_count_as_near(spread: Spread) -> None:
    """A component that only such samples are near to keeps its densities at the others."""
    log_z = background(spread, spread.exact)
    log_z[spread.source == 5] = np.nan
    got = spread(log_background=jnp.asarray(log_z, spread.samples.dtype))
    np.testing.assert_array_equal(got[:, 5], spread.exact[:, 5])
    assert np.isinf(got).any()


def test_other_covariances_have_all_densities() -> None:
    rng = np.random.default_rng(0)
    parts = DiagonalGaussians(jnp.asarray(rng.normal(size=(3, 2))), jnp.ones((3, 2)))
    mixture, x = Mixture(jnp.log(jnp.ones(3) / 3), parts), jnp.asarray(rng.normal(size=(100, 2)))
    near = jnp.zeros(100, jnp.int32)
    got = relevant_log_prob(parts, x, None, mixture.log_weights, near, log_drawn=jnp.zeros(3))
    np.testing.assert_array_equal(got, parts.log_prob(x))
