"""Batches of Gaussians of every registered family: against dense NumPy algebra, and against full ones."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gaussian_makers import ALL_FAMILIES, D, Data, K, N, close, diagonal, full, maker, same_as_full
from scipy import stats
from scipy.special import logsumexp

from natmix.gaussians import FAMILIES, AbstractGaussians, FullGaussians
from natmix.kernels.compilation import quick_jit
from natmix.kernels.linalg import symmetrise, triangular_inverse, upper_cholesky
from natmix.kernels.stein_sums import own_stein, score_moments, stein

jax.config.update("jax_enable_x64", True)


Family = type[AbstractGaussians]


def unit(family: Family) -> AbstractGaussians:
    """Standard normals: whitened coordinates are the coordinates themselves."""
    return family.isotropic(jnp.zeros((K, D)), jnp.ones(K))


def dense(g: AbstractGaussians, A: jax.Array) -> jax.Array:
    """A curvature in the form of a family as matrices."""
    return unit(type(g)).unpull_curvature(A)


def held(family: Family, matrix: jax.Array) -> jax.Array:
    """What a family can hold of a symmetric matrix, as a matrix."""
    one = unit(family)
    return one.unpull_curvature(one.pull_curvature(matrix))


def curvature(g: AbstractGaussians, values: jax.Array, family: Family) -> jax.Array:
    """What ``family`` can hold of diag(values), in the form of g."""
    return unit(type(g)).pull_curvature(held(family, jax.vmap(jnp.diag)(values)))


def _held_curvature(g: AbstractGaussians, found: tuple[jax.Array, jax.Array], family: Family) -> Any:
    A, a = found
    return held(family, dense(g, A)), a


def _cross_moment(g: Any, d: Data) -> jax.Array:
    return g.cross_moment(g.whiten(d.x), d.w, d.gradients)


def _stein(g: Any, d: Data, family: Family) -> Any:
    return _held_curvature(g, stein(g, d.w, d.x, d.gradients), family)


def _own_stein(g: Any, d: Data, family: Family) -> Any:
    return _held_curvature(g, own_stein(g, jnp.abs(d.y[..., 0]), d.y, jnp.sin(d.y)), family)


def _score_moments(g: Any, d: Data, family: Family) -> Any:
    return _held_curvature(g, score_moments(g, d.w, d.x), family)


def _moved(g: Any, d: Data, family: Family) -> Any:
    new = g.moved(g.factor(curvature(g, d.positive, family)), d.v)
    return new.mean, new.covariance(), new.half_log_det(), new.whiten(d.x)


def _eigenvalues(g: Any, d: Data, family: Family) -> Any:
    return jnp.sort(g.spectrum(curvature(g, d.v, family))[0], axis=1)


def _through_spectrum(g: Any, d: Data, family: Family) -> Any:
    return dense(g, g.from_spectrum(*g.spectrum(curvature(g, d.v, family))))


def _through_basis(g: Any, d: Data, family: Family) -> Any:
    basis = g.spectrum(curvature(g, d.v, family))[1]
    return g.from_basis(basis, 2 * g.into_basis(basis, d.v))


def _gaussians(g: AbstractGaussians) -> Any:
    return g.mean, g.covariance(), g.half_log_det()


def _condition(g: Any, d: Data, family: Family) -> Any:
    log_density, rest = g.condition(np.array([2, 0]), np.array([1, 3]), d.x[0, :2])
    return log_density, _gaussians(rest)


def _multiply(g: Any, d: Data, family: Family) -> Any:
    others = g.take(jnp.array([1])), full(3).take(jnp.array([0]))
    return [(log_z, _gaussians(product)) for log_z, product in map(g.multiply, others)]


OPERATIONS: dict[str, Callable[[Any, Data, Family], Any]] = {
    "covariance": lambda g, d, f: g.covariance(),
    "cholesky": lambda g, d, f: g.cholesky(),
    "inverse_cholesky": lambda g, d, f: g.inverse_cholesky(),
    "half_log_det": lambda g, d, f: g.half_log_det(),
    "log_normaliser": lambda g, d, f: g.log_normaliser(),
    "entropy": lambda g, d, f: g.entropy(),
    "whiten": lambda g, d, f: g.whiten(d.x),
    "colour": lambda g, d, f: g.colour(d.y),
    "colour_rows": lambda g, d, f: g.colour_rows(d.x, d.rows),
    "pull": lambda g, d, f: g.pull(d.v),
    "push": lambda g, d, f: g.push(d.v),
    "unpull": lambda g, d, f: g.unpull(d.v),
    "push_rows": lambda g, d, f: g.push_rows(d.x, d.rows),
    "pull_rows": lambda g, d, f: g.pull_rows(d.x, d.rows),
    "pull_curvature": lambda g, d, f: held(f, dense(g, g.pull_curvature(d.G))),
    "unpull_curvature": lambda g, d, f: g.unpull_curvature(curvature(g, d.v, f)),
    "scaled": lambda g, d, f: dense(g, g.scaled(curvature(g, d.v, f), d.by)),
    "plus_identity": lambda g, d, f: dense(g, g.plus_identity(curvature(g, d.v, f))),
    "square": lambda g, d, f: dense(g, g.square(curvature(g, d.v, f))),
    "spectrum": _eigenvalues,
    "from_spectrum": _through_spectrum,
    "basis": _through_basis,
    "factor": lambda g, d, f: dense(g, g.factor(curvature(g, d.positive, f))),
    "solve": lambda g, d, f: g.solve(g.factor(curvature(g, d.positive, f)), d.v),
    "moved": _moved,
    "squared_distances": lambda g, d, f: g.squared_distances(d.x),
    "log_prob": lambda g, d, f: g.log_prob(d.x),
    "mixture_log_prob": lambda g, d, f: g.mixture_log_prob(d.log_weights, d.x),
    "mixture_score": lambda g, d, f: g.mixture_score(d.r, d.x),
    "cross_moment": lambda g, d, f: held(f, dense(g, _cross_moment(g, d))),
    "finish_cross_moment": lambda g, d, f: held(f, dense(g, g.finish_cross_moment(_cross_moment(g, d)))),
    "second_moment": lambda g, d, f: held(f, dense(g, g.second_moment(g.whiten(d.x), d.w))),
    "precision_weighted_sum": lambda g, d, f: g.precision_weighted_sum(g.whiten(d.x), d.r),
    "stein": _stein,
    "own_stein": _own_stein,
    "score_moments": _score_moments,
    "finite": lambda g, d, f: g.finite(),
    "narrowness": lambda g, d, f: g.narrowness(),
    "rounding": lambda g, d, f: g.rounding() * 1e16,
    "take": lambda g, d, f: g.take(jnp.array([2, 0])).covariance(),
    "where": lambda g, d, f: g.where(d.mask, g.take(jnp.array([1, 0, 0]))).covariance(),
    "std": lambda g, d, f: g.std(),
    "marginal": lambda g, d, f: _gaussians(g.marginal(np.array([3, 1]))),
    "condition": _condition,
    "affine": lambda g, d, f: _gaussians(g.affine(d.G[0, :2], d.v[0, :2])),
    "rescale": lambda g, d, f: _gaussians(g.rescale(d.v[0], d.v[1])),
    "multiply": _multiply,
    "kl": lambda g, d, f: (g.kl(g.take(jnp.array([1]))), g.kl(full(3)), full(3).kl(g)),
    "astype": lambda g, d, f: g.astype(jnp.float32).astype(jnp.float64).covariance() * 1e-4,
}

NOT_FULL = [family for family in FAMILIES.values() if family is not FullGaussians]


@pytest.mark.parametrize("family", NOT_FULL, ids=lambda f: f.name)
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_family_agrees_with_full_covariances(name: str, family: Family) -> None:
    g, data = maker(family)(), Data()
    a = OPERATIONS[name](g, data, family)
    b = OPERATIONS[name](same_as_full(g), data, family)
    jax.tree.map(close, a, b)


def test_every_operation_is_in_the_table() -> None:
    public = {n for n in vars(AbstractGaussians) if not n.startswith("_")}
    elsewhere = {"mean", "capacity", "dim", "dtype", "axis_aligned", "features", "num_features", "unpack"}
    elsewhere |= {"from_covariance", "isotropic", "from_std"}
    elsewhere |= {"parameters", "from_parameters", "parameter_shapes", "flaw"}
    elsewhere |= {"factors", "with_factors"}  # of one family alone: kernels/test_forms.py
    covered = set(OPERATIONS) - {"basis", "stein", "own_stein", "score_moments"}
    covered |= {"into_basis", "from_basis"}
    assert public - elsewhere == covered


def test_rounding_bounds_what_storing_a_sample_in_single_precision_does_to_it() -> None:
    """How far rounding to float32 moves y = L^-1 (x - m): less than `rounding`, and not far less."""
    rng = np.random.default_rng(3)
    D = 6
    basis = np.linalg.qr(rng.normal(size=(D, D)))[0]
    L = np.linalg.cholesky((basis * np.logspace(-7, 1, D)) @ basis.T)
    m = 3 * rng.normal(size=D)
    g = FullGaussians.from_scale_tril(
        *(jnp.asarray(a, jnp.float32) for a in (m[None], np.stack([L])))  # its own scales decide
    )
    x = m + rng.normal(size=(2000, D)) @ L.T
    moved = np.linalg.norm((x.astype(np.float32) - x) @ inverse(L).T, axis=1)
    bound = float(g.rounding()[0])
    assert bound > 1e-3
    assert bound / 30 < moved.max() < bound


def test_rounding_does_not_depend_on_the_scales_of_the_coordinates() -> None:
    g = full()
    by = jnp.asarray([1e-9, 1.0, 1e9][: g.dim] + [1.0] * max(0, g.dim - 3), g.dtype)
    scaled = FullGaussians.from_scale_tril(g.mean * by, g.scale_tril * by[:, None])
    close(scaled.rounding() * 1e16, g.rounding() * 1e16)


# Against SciPy and dense NumPy ----------------------------------------------------------------------


def inverse(L: np.ndarray) -> np.ndarray:
    return np.linalg.inv(L)


def naive_whitened(g: AbstractGaussians, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    L = np.linalg.cholesky(g.covariance())
    return L, np.einsum("kij,knj->kni", inverse(L), x[None] - np.asarray(g.mean)[:, None])


@ALL_FAMILIES
def test_densities_match_scipy(make: Callable[[], Any]) -> None:
    g, d = make(), Data()
    normals = [stats.multivariate_normal(m, S) for m, S in zip(g.mean, g.covariance(), strict=True)]
    expected = np.stack([n.logpdf(d.x) for n in normals], axis=1)
    close(g.log_prob(d.x), expected)
    close(g.mixture_log_prob(d.log_weights, d.x), logsumexp(expected + d.log_weights, axis=1))
    close(g.entropy(), [n.entropy() for n in normals])


@ALL_FAMILIES
def test_score_is_the_gradient_of_the_log_density(make: Callable[[], Any]) -> None:
    g, d = make(), Data()
    r = jax.nn.softmax(g.log_prob(d.x) + d.log_weights, axis=1)
    expected = jax.grad(lambda x: jnp.sum(g.mixture_log_prob(d.log_weights, x)))(d.x)
    close(g.mixture_score(r, d.x), expected)


@ALL_FAMILIES
def test_colour_inverts_whiten(make: Callable[[], Any]) -> None:
    g, d = make(), Data()
    back = g.colour(g.whiten(d.x))
    close(back, np.broadcast_to(d.x, back.shape))
    picked = g.colour(jnp.broadcast_to(d.x, (K, N, D)))[d.rows, jnp.arange(N)]
    close(g.colour_rows(d.x, d.rows), picked)


@ALL_FAMILIES
def test_pulling_and_pushing_match_dense_products(make: Callable[[], Any]) -> None:
    g, d = make(), Data()
    L = np.linalg.cholesky(g.covariance())
    close(g.pull(d.v), np.einsum("kij,ki->kj", L, d.v))
    close(g.push(d.v), np.einsum("kij,kj->ki", L, d.v))
    close(g.unpull(g.pull(d.v)), d.v)
    pulled = np.swapaxes(L, 1, 2) @ np.asarray(d.G) @ L
    close(dense(g, g.pull_curvature(d.G)), held(type(g), jnp.array(pulled)))


@ALL_FAMILIES
def test_a_curvature_goes_there_and_back(make: Callable[[], Any]) -> None:
    g, d = make(), Data()
    A = curvature(g, d.v, type(g))
    close(g.pull_curvature(g.unpull_curvature(A)), A)
    close(full().unpull_curvature(full().pull_curvature(d.G)), d.G)


def test_spectrum_of_full_gaussians_diagonalises() -> None:
    g, d = full(), Data()
    values, basis = g.spectrum(d.G)
    close(g.from_spectrum(values, basis), d.G)
    close(g.from_spectrum(1 / values, basis), np.linalg.inv(d.G), rtol=1e-7)
    close(g.from_basis(basis, values * g.into_basis(basis, d.v)), np.einsum("kij,kj->ki", d.G, d.v))


def test_factor_solve_and_move_of_full_gaussians_match_dense_algebra() -> None:
    g, d = full(), Data()
    P = np.asarray(g.square(d.G)) + np.eye(D)
    U = g.factor(jnp.array(P))
    close(U, np.triu(U))
    close(np.asarray(U) @ np.swapaxes(U, 1, 2), P)
    close(g.solve(U, d.v), np.linalg.solve(P, np.asarray(d.v)[..., None])[..., 0])
    new = g.moved(U, d.v)
    L = np.asarray(g.scale_tril)
    close(new.covariance(), L @ np.linalg.inv(P) @ np.swapaxes(L, 1, 2))
    close(new.mean, np.asarray(g.mean) + np.einsum("kij,kj->ki", L, d.v))
    close(new.scale_tril, np.linalg.cholesky(new.covariance()))
    close(np.asarray(new.scale_tril) @ np.asarray(new.inverse_tril), np.broadcast_to(np.eye(D), (K, D, D)))


@ALL_FAMILIES
def test_factor_of_an_indefinite_matrix_is_nan_for_that_component_only(make: Callable[[], Any]) -> None:
    g, d = make(), Data()
    P = curvature(g, d.positive.at[1, 2].set(-100.0), type(g))
    new = g.moved(g.factor(P), d.v)
    np.testing.assert_array_equal(new.finite(), [True, False, True])


@ALL_FAMILIES
def test_stein_and_score_moments_match_naive_sums(make: Callable[[], Any]) -> None:
    g, d = make(), Data()
    L, y = naive_whitened(g, np.asarray(d.x))
    w, v = np.asarray(d.w), np.asarray(d.gradients)
    cross = np.einsum("nk,kni,nj,kjl->kil", w, y, v, L, optimize=True)
    A, a = stein(g, d.w, d.x, d.gradients)
    close(a, np.einsum("kij,nk,ni->kj", L, w, v, optimize=True))
    own = np.einsum("nk,kni,knj->kij", w, y, y) - np.einsum("nk,ij->kij", w, np.eye(D))
    B, b = score_moments(g, d.w, d.x)
    close(b, np.einsum("nk,kni->ki", w, y))
    close(dense(g, A), held(type(g), symmetrise(jnp.array(cross))))
    close(dense(g, B), held(type(g), jnp.array(own)))


def test_stein_recovers_the_hessian_of_a_quadratic() -> None:
    g, d = full(), Data()
    n = 100_000
    x = g.colour_rows(jax.random.normal(jax.random.key(0), (n, D), g.dtype), jnp.zeros(n, int))
    weights = jnp.zeros((n, K), g.dtype).at[:, 0].set(1 / n)
    A, a = stein(g, weights, x, x @ d.G[0])
    np.testing.assert_allclose(A[0], g.pull_curvature(d.G)[0], atol=0.1)
    np.testing.assert_allclose(a[0], g.pull(jnp.einsum("kij,kj->ki", d.G, g.mean))[0], atol=0.1)


# Quadratic features ---------------------------------------------------------------------------------


@ALL_FAMILIES
def test_features_are_uncorrelated_under_a_standard_normal(make: Callable[[], Any]) -> None:
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)  # exact for the degrees that occur
    grid = np.stack(np.meshgrid(*[nodes] * D), axis=-1).reshape(-1, D)
    w = np.prod(np.stack(np.meshgrid(*[weights / weights.sum()] * D), axis=-1).reshape(-1, D), axis=1)
    f = np.asarray(make().features(jnp.array(grid)))
    covariance = f.T @ (w[:, None] * f)
    variances = np.diag(covariance)
    close(covariance, np.diag(variances))
    close(variances[-D:], 1)
    assert set(np.round(variances[:-D], 9)) <= {1.0, 2.0}  # of products and of squares
    assert f.shape[1] == type(make()).num_features(D)
    close(w @ f, np.zeros(f.shape[1]))


@ALL_FAMILIES
def test_features_recover_a_quadratic(make: Callable[[], Any]) -> None:
    g, d = make(), Data()
    H = np.asarray(held(type(g), d.G))
    y = np.asarray(d.x)
    values = 0.5 * np.einsum("ni,kij,nj->nk", y, H, y) + y @ np.asarray(d.v).T + 3.0
    design = np.column_stack([g.features(d.x), np.ones(N)])
    coefficients = np.linalg.lstsq(design, values, rcond=None)[0][:-1]
    hessian, gradient = g.unpack(jnp.array(coefficients.T))
    close(dense(g, hessian), H)
    close(gradient, d.v)


# Parameters, construction and rows -------------------------------------------------------------


@pytest.mark.parametrize("cls", FAMILIES.values(), ids=list(FAMILIES))
def test_constructors_agree(cls: Family) -> None:
    mean, scale = diagonal().mean, jnp.array([0.5, 1.0, 2.0])
    a = cls.isotropic(mean, scale)
    b = cls.from_covariance(mean, scale[:, None, None] ** 2 * jnp.eye(D))
    jax.tree.map(close, a, b)
    jax.tree.map(close, a, cls.from_std(mean, jnp.broadcast_to(scale[:, None], (K, D))))
    assert (a.capacity, a.dim, a.dtype) == (K, D, jnp.float64)


@ALL_FAMILIES
def test_parameters_build_the_same_gaussians(make: Callable[[], Any]) -> None:
    g = make()
    parameters = g.parameters()
    assert "mean" in parameters
    assert {name: a.shape for name, a in parameters.items()} == g.parameter_shapes(K, D)
    again = type(g).from_parameters(parameters)
    np.testing.assert_array_equal(again.covariance(), g.covariance())
    jax.tree.map(close, again, g)


@ALL_FAMILIES
def test_finite_finds_bad_rows(make: Callable[[], Any]) -> None:
    g = make()
    bad = jax.tree.map(lambda a: a.at[0].set(jnp.nan).at[2].set(0.0), g)
    np.testing.assert_array_equal(bad.finite(), [False, True, False])


@pytest.mark.parametrize("compiled", [lambda fn: fn, jax.jit, quick_jit()], ids=["not", "jit", "quickly"])
@ALL_FAMILIES
def test_finite_however_it_is_compiled(make: Callable[[], Any], compiled: Callable[..., Any]) -> None:
    g = make()
    finite = compiled(lambda g: g.finite())
    huge = jax.tree.map(lambda a: a.at[1].multiply(1e60), g)
    np.testing.assert_array_equal(finite(huge), [True, True, True])
    for numbers in ((jnp.inf, 1.0), (-jnp.inf, 1.0), (jnp.inf, -jnp.inf), (jnp.nan, 1.0)):
        first, last = numbers
        bad = dataclasses.replace(g, mean=g.mean.at[1, 0].set(first).at[1, -1].set(last))
        np.testing.assert_array_equal(finite(bad), [True, False, True])


@ALL_FAMILIES
def test_where_chooses_rows(make: Callable[..., Any]) -> None:
    a, b = make(), make(5)
    mixed = a.where(jnp.array([True, False, True]), b)
    jax.tree.map(lambda m, x, y: close(m, np.stack([x[0], y[1], x[2]])), mixed, a, b)


def test_triangular_helpers() -> None:
    g = full()
    close(
        np.asarray(triangular_inverse(g.scale_tril)) @ np.asarray(g.scale_tril),
        np.broadcast_to(np.eye(D), (K, D, D)),
    )
    P = np.linalg.inv(g.covariance())
    close(upper_cholesky(jnp.array(P)), np.swapaxes(np.linalg.inv(g.scale_tril), 1, 2), rtol=1e-7)


@pytest.mark.parametrize("dim", [96, 101])
def test_densities_in_many_dimensions(dim: int) -> None:
    rng = np.random.default_rng(dim)
    A = rng.normal(size=(2, dim, dim)) / np.sqrt(dim)
    covariance = A @ A.transpose(0, 2, 1) + 0.1 * np.eye(dim)
    mean, x = rng.normal(size=(2, dim)), rng.normal(size=(5, dim))
    g = FullGaussians.from_covariance(jnp.asarray(mean), jnp.asarray(covariance))
    expected = [stats.multivariate_normal(m, c).logpdf(x) for m, c in zip(mean, covariance, strict=True)]
    close(g.log_prob(jnp.asarray(x)), np.stack(expected, axis=1))
