"""The trust region by native kernels, against the exact step from eigenvalues."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import gaussian_kl
from plans import XLA

from natmix.gaussians import FullGaussians
from natmix.kernels import native
from natmix.kernels.plan import using
from natmix.kernels.trust_region.eigen import eigen_search
from natmix.modules.component_updaters import DirectComponentUpdater, TrustRegionComponentUpdater
from natmix.modules.records import NaturalGradient

pytestmark = pytest.mark.skipif(not native.available(), reason="installed without native kernels")

SIZES = [(3, 1), (40, 2), (30, 7), (20, 16), (20, 25), (12, 33), (8, 49), (5, 64), (3, 97), (2, 150)]
"""Components and dimensions: whole vectors, blocks and panels, and parts of them."""


class Case:
    """Gaussians, and curvatures from harmless to absurd, a third of them definite."""

    def __init__(self, K: int, D: int, dtype: type = np.float64, seed: int = 0) -> None:
        rng = np.random.default_rng(1000 * D + seed)
        L = np.tril(0.3 * rng.normal(size=(K, D, D))) / np.sqrt(D)
        L += np.eye(D) * np.exp(rng.uniform(-1, 1, (K, D, 1)))
        self.gaussians = FullGaussians.from_scale_tril(
            jnp.asarray(rng.normal(size=(K, D)), dtype), jnp.asarray(L, dtype)
        )
        A = rng.normal(size=(K, D, D)) * np.exp(rng.uniform(-3, 5, size=(K, 1, 1)))
        definite = np.arange(K)[:, None, None] % 3 == 0
        A = np.where(definite, A @ np.swapaxes(A, 1, 2) / D, A + np.swapaxes(A, 1, 2))
        a = rng.normal(size=(K, D)) * np.exp(rng.uniform(-3, 5, size=(K, 1)))
        self.A, self.a = jnp.asarray(A, dtype), jnp.asarray(a, dtype)
        self.bound = jnp.asarray(np.exp(rng.uniform(np.log(1e-4), np.log(2.0), size=K)), dtype)
        self.usable = jnp.ones(K, bool)
        self.temperature = jnp.asarray(1, dtype)

    def __call__(self, most_rounding: float = 1e30) -> tuple[FullGaussians, jax.Array]:
        g = self.gaussians
        limits = (self.bound, self.usable, self.temperature, most_rounding)
        mean, L, W, ok = native.trust_region(self.A, self.a, *limits, g.mean, g.scale_tril, g.inverse_tril)
        return FullGaussians(mean, L, W), ok

    def exact(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Eta and KL of the longest step, and which are full ones."""
        values, vectors = np.linalg.eigh(np.asarray(self.A, float))
        b = np.einsum("kij,ki->kj", vectors, np.asarray(self.a, float))
        bound, T = jnp.asarray(self.bound, float), jnp.asarray(float(self.temperature))
        step = eigen_search(jnp.asarray(values), jnp.asarray(b), bound, T)
        return np.asarray(step.eta), np.asarray(step.kl), np.asarray(step.eta) <= float(T) * (1 + 1e-9)


def check_case(case: Case) -> None:
    D, single = case.gaussians.dim, case.gaussians.dtype == jnp.float32
    new, ok = case()
    assert bool(jnp.all(ok))
    kl, bound = gaussian_kl(new, case.gaussians), np.asarray(case.bound, float)
    _, wanted, full = case.exact()
    slack = 2e-3 if single else 1e-9
    assert np.all(kl <= (1 + slack) * bound)
    enough = 0.9999 if D <= 48 else 0.99
    assert np.all(kl[~full] >= (enough - slack) * bound[~full])
    np.testing.assert_allclose(kl[full], wanted[full], rtol=10 * slack)
    product = np.asarray(new.scale_tril, float) @ np.asarray(new.inverse_tril, float)
    close = 1e-4 if single else 1e-11
    np.testing.assert_allclose(product, np.broadcast_to(np.eye(D), product.shape), atol=close)
    for factor in (new.scale_tril, new.inverse_tril):
        assert not np.any(np.triu(factor, 1))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_steps_are_the_longest_within_the_bound(size: tuple[int, int], dtype: type) -> None:
    check_case(Case(*size, dtype))


def check_updates() -> None:
    """For the instructions of this process."""
    for dtype in (np.float32, np.float64):
        for size in ((30, 7), (12, 33), (2, 150)):
            check_case(Case(*size, dtype))


@pytest.mark.parametrize("D", [3, 25, 70])
def test_steps_follow_the_natural_gradient(D: int) -> None:
    """The same as a direct step of the length 1 / eta, found from its KL."""
    case = Case(6, D)
    new, _ = case()
    eta = case.exact()[0]
    ng = NaturalGradient(case.A, case.a, case.usable)
    direct, ok = DirectComponentUpdater().update(
        case.gaussians, ng, jnp.asarray(1 / eta), jnp.ones(6, int), case.temperature
    )
    assert bool(jnp.all(ok))
    # A KL of 99.99% (99%) of the bound is a step shorter by half of the difference, relatively.
    near = 1e-2 if D > 48 else 2e-4
    moved = np.abs(np.asarray(direct.mean - case.gaussians.mean)).max(axis=1, keepdims=True)
    assert np.all(np.abs(new.mean - direct.mean) <= near * moved)


@pytest.mark.parametrize("T", [0.3, 1.0, 4.0])
def test_a_full_step_is_the_direct_step(T: float) -> None:
    case = Case(6, 12)
    case.A = jnp.einsum("kij,klj->kil", case.A, case.A) / 100
    case.bound, case.temperature = jnp.full(6, 1e6), jnp.asarray(T)
    new, ok = case()
    ng = NaturalGradient(case.A, case.a, case.usable)
    direct, _ = DirectComponentUpdater().update(
        case.gaussians, ng, jnp.full(6, 1 / T), jnp.ones(6, int), case.temperature
    )
    assert bool(jnp.all(ok))
    for a, b in zip(jax.tree.leaves(new), jax.tree.leaves(direct), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("size", [1e-38, 1e-25, 1e-8, 1.0, 1e8, 1e18, 1e38])
@pytest.mark.parametrize("D", [5, 60])
def test_curvatures_of_any_size(size: float, D: int) -> None:
    case = Case(2, D, np.float32)
    case.A = jnp.asarray(
        size * np.eye(D)[None] * np.where(np.arange(D) % 2, 1, [[[0.5]], [[-0.5]]]), jnp.float32
    )
    case.a = jnp.full((2, D), min(size, 1e15), jnp.float32)
    case.bound = jnp.full(2, 0.1, jnp.float32)
    new, ok = case()
    assert bool(jnp.all(ok))
    _, wanted, full = case.exact()
    kl = gaussian_kl(new, case.gaussians)
    np.testing.assert_allclose(kl[~full], 0.1, rtol=0.012)
    np.testing.assert_allclose(kl[full], wanted[full], atol=1e-6)


def test_steps_far_shorter_than_roundings_of_their_covariance_keep_their_length() -> None:
    """A KL of 1e-9 moves eigenvalues of the covariance by 1e-5 in ten dimensions."""
    case = Case(8, 10, np.float32)
    case.bound = jnp.full(8, 1e-9, jnp.float32)
    case.a = case.a * 0
    _, _, W, ok = native.trust_region(
        case.A,
        case.a,
        case.bound,
        case.usable,
        case.temperature,
        1e30,
        jnp.zeros((8, 10), jnp.float32),
        *[jnp.broadcast_to(jnp.eye(10, dtype=jnp.float32), (8, 10, 10))] * 2,
    )
    assert bool(jnp.all(ok))
    B = np.asarray(W, float)
    kl = 0.5 * (np.sum(np.linalg.inv(B) ** 2, axis=(1, 2)) - 10 + 2 * np.log(np.linalg.det(B)))
    np.testing.assert_allclose(kl, 1e-9, rtol=0.1)


def test_only_usable_components_change() -> None:
    case = Case(7, 9)
    everyone, _ = case()
    case.usable = jnp.arange(7) % 2 == 0
    case.A = case.A.at[4, 2, 2].set(jnp.nan)
    case.a = case.a.at[6, 0].set(jnp.inf)
    new, ok = case()
    assert ok.tolist() == [True, False, True, False, False, False, False]
    for a, b, c in zip(*map(jax.tree.leaves, (new, everyone, case.gaussians)), strict=True):
        np.testing.assert_array_equal(a[jnp.array([0, 2])], b[jnp.array([0, 2])])
        np.testing.assert_array_equal(a[jnp.array([1, 3, 4, 5, 6])], c[jnp.array([1, 3, 4, 5, 6])])


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan])
def test_without_a_positive_bound_and_temperature_there_is_no_step(bad: float) -> None:
    case = Case(2, 4)
    case.bound = jnp.asarray([bad, 0.1])
    assert case()[1].tolist() == [False, True]
    case.temperature = jnp.asarray(bad)
    assert case()[1].tolist() == [False, False]


def test_components_too_narrow_for_their_type_stay_unless_they_become_wider() -> None:
    case = Case(12, 6)
    case.bound = jnp.full(12, 0.1)
    free, _ = case()
    limit = float(jnp.median(free.rounding()))
    new, ok = case(most_rounding=limit)
    narrow = free.rounding() > limit
    wider = free.rounding() <= case.gaussians.rounding()
    assert ok.tolist() == (~narrow | wider).tolist()
    assert 0 < int(jnp.sum(narrow & wider)) < int(jnp.sum(narrow))
    np.testing.assert_array_equal(new.mean[~ok], case.gaussians.mean[~ok])


def test_what_lies_above_the_diagonal_is_not_read() -> None:
    case = Case(3, 21)
    clean, _ = case()
    above = jnp.triu(jnp.full((21, 21), jnp.nan), 1)
    g = case.gaussians
    case.gaussians = FullGaussians(g.mean, g.scale_tril + above, g.inverse_tril + above)
    got, ok = case()
    assert bool(jnp.all(ok))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(clean), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_updater_uses_them() -> None:
    case = Case(6, 20)
    ng = NaturalGradient(case.A, case.a, case.usable)
    present = jnp.arange(6) != 2

    def update() -> tuple[FullGaussians, jax.Array]:
        return TrustRegionComponentUpdater().update(  # type: ignore[return-value]
            case.gaussians, ng, case.bound, jnp.ones(6, int), case.temperature, present
        )

    text = str(jax.make_jaxpr(lambda: update())())
    assert "natmix_trust_region" in text
    native_form, ok = update()
    with using(XLA):
        assert "natmix_trust_region" not in str(jax.make_jaxpr(lambda: update())())
        without, ok2 = update()
    assert ok.tolist() == ok2.tolist() == present.tolist()
    np.testing.assert_allclose(native_form.mean, without.mean, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(native_form.covariance(), without.covariance(), rtol=5e-3, atol=5e-3)
